"""Where the time goes: what is left out is really left out, and everything else is still done."""

from types import SimpleNamespace

import pytest

from fastdqn.bench.clock import Speed
from fastdqn.bench.conduct import Measuring
from fastdqn.bench.identity import subject_of_job
from fastdqn.bench.measure import measure, split_of
from fastdqn.bench.profile import (
    ADVICE,
    ALL_BUT_THE_ENVIRONMENT,
    COUNTERFACTUALS,
    LEFT_OUT,
    WORDS,
    advice_for,
    profile_rows,
    share_of,
)
from fastdqn.bench.record import Keeper
from fastdqn.bench.simple import run_profile
from fastdqn.bench.work import make_work
from fastdqn.build import build
from fastdqn.metrics import SECTIONS
from fastdqn.prepare import prepare
from fastdqn.runner.ceiling import TICKS_AT_ONCE
from fastdqn.runner.inline import InlineRunner
from fastdqn.runner.ports import Stop
from tests.unit.stand_ins import answer_for_children
from tests.unit.tiny import TINY_SNAKE

SETTINGS = {**TINY_SNAKE, "device": "cpu", "learner.threads": 1, "actor.epsilon_start": 0.1, "actor.epsilon_end": 0.1}
ROUNDS = 100


@pytest.fixture
def play():
    """Plays a tiny snake with one part left out; gives what was done, counted on the real parts."""
    runners = []

    def run(without=None):
        job = prepare("snake", settings=SETTINGS)
        parts = build(job.config, job.kind, job.device)
        seen = SimpleNamespace(parts=parts, drawn=0, updated=0, asked=0, batches=[])
        sample, update, greedy = parts.replay.sample, parts.learner.update, parts.actor.policy._greedy

        def counting_sample(size, batches=1):
            seen.drawn += 1
            return sample(size, batches)

        def counting_update(batch):
            seen.updated += 1
            seen.batches.append(batch)  # kept: the address of one that is gone is used again
            return update(batch)

        def counting_greedy(states):
            seen.asked += 1
            return greedy(states)

        parts.replay.sample, parts.learner.update, parts.actor.policy._greedy = (
            counting_sample,
            counting_update,
            counting_greedy,
        )
        before = [weight.detach().clone() for weight in parts.learner.online.parameters()]
        if without is not None:
            LEFT_OUT[without](parts)
        runner = InlineRunner(parts, Stop(), lambda row: None, lambda score: None)
        runners.append(runner)
        runner.start()
        for _ in range(ROUNDS):
            runner.round()
        seen.steps, seen.updates, seen.stored = parts.actor.steps, parts.learner.updates, len(parts.replay)
        after = list(parts.learner.online.parameters())
        seen.moved = max(float((new.detach() - old).abs().max()) for old, new in zip(before, after, strict=True))
        seen.gradients = [weight.grad for weight in after]
        return seen

    yield run
    for runner in runners:
        runner.close()


def test_nothing_left_out(play):
    """The other side of every test below: without a part left out, all of it is done."""
    seen = play()
    assert seen.steps > 200
    assert seen.stored > 150
    assert seen.updates == seen.drawn == seen.updated > 30
    assert len(set(map(id, seen.batches))) > 30
    assert seen.asked == ROUNDS
    assert seen.moved > 0


def test_without_updates_it_only_plays_and_stores(play):
    whole, seen = play(), play("updates")
    assert (seen.updates, seen.drawn, seen.updated) == (0, 0, 0)
    assert seen.moved == 0
    assert seen.steps > 200
    assert seen.stored > 150
    assert seen.asked == whole.asked


def test_without_sampling_one_batch_is_learned_from_again_and_again(play):
    seen = play("sampling")
    assert seen.drawn == 1
    assert seen.updates == seen.updated > 30
    assert len(set(map(id, seen.batches))) == 1
    assert seen.moved > 0


def test_without_the_optimizer_step_gradients_are_there_and_weights_stay(play):
    seen = play("the optimizer step")
    assert seen.updates == seen.drawn == seen.updated > 30
    assert seen.moved == 0
    assert all(gradient is not None for gradient in seen.gradients)
    assert sum(float(gradient.abs().sum()) for gradient in seen.gradients) > 0


def test_without_the_loss_batches_are_drawn_and_left_alone(play):
    seen = play("the loss")
    assert seen.updated == 0
    assert seen.updates == seen.drawn > 30
    assert seen.moved == 0
    assert all(gradient is None or not gradient.any() for gradient in seen.gradients), "nothing was computed"
    loss, q_mean = seen.parts.learner.read_means()
    assert (loss, q_mean) == (0.0, 0.0), "a line of metrics can still be made"


def test_with_random_actions_the_network_is_never_asked(play):
    seen = play("the network when acting")
    assert seen.asked == 0
    assert seen.updates == seen.updated > 30
    assert seen.moved > 0


def test_the_environment_alone_is_played_and_nothing_else(play):
    whole, seen = play(), play(ALL_BUT_THE_ENVIRONMENT)
    assert seen.steps > 0.9 * whole.steps
    assert (seen.stored, seen.updates, seen.drawn, seen.updated, seen.asked) == (0, 0, 0, 0, 0)
    assert seen.moved == 0


def test_boards_on_a_device_are_played_alone_there(tensors_on_the_cpu):
    on = ["device_ring", "device_snake"]
    job = prepare("snake", settings={**SETTINGS, "switches.on": on, "switches.off": tensors_on_the_cpu(on)})
    parts = build(job.config, job.kind, "cpu")
    LEFT_OUT[ALL_BUT_THE_ENVIRONMENT](parts)
    parts.actor.start(list(range(parts.env.num_lanes)))
    steps, _ = parts.actor.step(0)
    assert parts.actor.steps == steps > 0.5 * TICKS_AT_ONCE * parts.env.num_lanes
    assert len(parts.replay) == 0


def test_the_timed_run_is_the_one_without_the_part():
    """`measure` hands the parts over before the first step, and learns all the same."""
    seen = []

    def change(parts):
        seen.append((parts.actor.steps, parts.switches))
        COUNTERFACTUALS["the optimizer step"](parts)

    job = prepare("snake", settings={**SETTINGS, "replay.capacity": 200, "learner.steps_per_update": 1})
    speed = measure(job, 0.1, change)
    assert seen == [(0, job.switches)]
    assert speed.updates > 0
    assert speed.samples_per_step == pytest.approx(16.0, rel=0.1)
    assert speed.seconds >= 0.1
    assert speed.warmup_seconds >= 1.0
    assert speed.switches == sorted(job.switches)
    assert speed.details["lanes"] == 4
    assert speed.details["capacity"] == 200
    assert set(speed.split) == {*SECTIONS, "other"}
    assert sum(speed.split.values()) == pytest.approx(1.0, abs=0.01)
    assert speed.split["learn"] > 0.05


# ---------------------------------------------------------------- shares, words, rows


@pytest.mark.parametrize(
    ("whole", "without", "share"),
    [(100, 200, 0.5), (100, 100, 0.0), (100, 400, 0.75), (100, 80, -0.25), (100, 0, 0.0), (100, float("inf"), 0.0)],
)
def test_the_share_of_a_part(whole, without, share):
    assert share_of(whole, without) == pytest.approx(share)


def test_every_part_has_words_and_every_section_advice():
    assert set(WORDS) == set(COUNTERFACTUALS)
    assert set(ADVICE) == {*SECTIONS, "other"}


@pytest.mark.parametrize("largest", [*SECTIONS, "other"])
def test_advice_is_about_the_largest_share(largest):
    split = dict.fromkeys((*SECTIONS, "other"), 0.1) | {largest: 0.5}
    assert advice_for(split) == f"50% of the time is '{largest}'. {ADVICE[largest]}"


def test_a_split_from_lines_of_metrics():
    row = {f"{name}_seconds": 1.0 for name in (*SECTIONS, "other")}
    rows = [row | {"learn_seconds": 7.0}, row | {"learn_seconds": 3.0}]  # 10 of 20 seconds
    assert split_of(rows) == dict.fromkeys((*SECTIONS, "other"), 0.1) | {"learn": 0.5}
    assert set(split_of([]).values()) == set(split_of([dict.fromkeys(row, 0.0)]).values()) == {0.0}


def made_up_speed(steps_per_second):
    return Speed(
        steps_per_second=steps_per_second,
        updates_per_second=steps_per_second / 4,
        samples_per_step=4.0,
        steps=1000,
        updates=250,
        seconds=1.0,
        windows=[steps_per_second] * 3,
        cpu_percent=100.0,
        others_cpu_percent=0.0,
        gpu_percent=None,
        rss_mb=300.0,
        gpu_memory_mb=None,
        startup_seconds=1.0,
        warmup_seconds=1.0,
        device="cpu",
        threads=1,
        split={"env": 0.2, "learn": 0.8},
    ).as_json()


def test_rows_say_what_each_part_is_worth():
    rows = profile_rows(
        {"nothing": [made_up_speed(100.0)], "updates": [made_up_speed(400.0)], "the loss": [made_up_speed(200.0)]}
    )
    assert [row["part"] for row in rows] == ["nothing left out", "updates", "the loss"]
    assert [row["share"] for row in rows] == [None, 0.75, 0.5]
    assert [row["change"] for row in rows] == [None, 4.0, 2.0]
    assert [row["steps_per_second"] for row in rows] == [100.0, 400.0, 200.0]
    assert rows[1]["words"] == WORDS["updates"]


def test_a_profile_asks_for_the_run_and_for_every_part_left_out(monkeypatch, tmp_path):
    asked = []

    def ask(self, task, module="", while_waiting=None):
        asked.append(task["without"])
        return made_up_speed(100.0 if task["without"] == "nothing" else 250.0)

    answer_for_children(monkeypatch, ask)
    work, how = make_work("snake", None, SETTINGS), Measuring(seconds=1.0, repeats=2)
    keeper = Keeper("profile", subject_of_job(work.job), vars(how), str(tmp_path))
    run_profile(work, how, keeper)
    names = ["nothing", *COUNTERFACTUALS]
    assert asked == [*names, *names[::-1]]
    record = keeper.record
    assert record["complete"] is True
    assert [row["share"] for row in record["rows"]] == [None] + [0.6] * len(COUNTERFACTUALS)
    assert record["split"] == {"env": 0.2, "learn": 0.8}
    assert record["advice"] == advice_for(record["split"])
