"""Whole runs on an environment that counts: the same body over both runners, and what only roles in processes promise.

A run in processes takes some seconds to start, so the tests share a few of them.
"""

import gc
import importlib
import json
import multiprocessing.resource_tracker
import os
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from unittest import mock

import numpy as np
import psutil
import pytest
from safetensors.torch import load_file
from torch import nn

import fastdqn
from fastdqn.build import build
from fastdqn.errors import UserError
from fastdqn.prepare import prepare
from fastdqn.processes.control import ACTOR_WORK
from fastdqn.processes.slots import SLOTS
from fastdqn.run.model import read_facts
from fastdqn.runner.inline import InlineRunner
from fastdqn.runner.limits import Limits
from fastdqn.runner.ports import Stop
from fastdqn.train import Run
from tests.processes import checking, leftovers
from tests.processes.counting import GAME_STEPS, CountingEnv, make_counting

pytestmark = pytest.mark.alone

TRAIN = importlib.import_module("fastdqn.train")  # the module: `fastdqn.train` is the function
PROCESSES = importlib.import_module("fastdqn.processes.runner")

LANES, WARMUP, BATCH, STEPS_PER_UPDATE, SYNC = 4, 100, 16, 8, 50
STEPS, EPISODES, MINUTES = 13_000, 700, 2
EVALUATIONS, EVALUATE_EVERY = 40, 300
HELD_FOR = 10_000  # steps: over no window of so many are the samples per step further off than
OFF_BY = 0.02

COUNTING = {
    "actor.lanes": LANES,
    "actor.epsilon_end": 1.0,  # nothing but random actions: what is played does not depend on when weights arrive
    "replay.capacity": 4000,
    "replay.stack": 4,
    "replay.n_step": 3,
    "replay.warmup_steps": WARMUP,
    "network.kind": "mlp",
    "network.hidden": [16],
    "learner.batch_size": BATCH,
    "learner.steps_per_update": STEPS_PER_UPDATE,
    "learner.target_every": 50,
    "learner.threads": 1,
    "evaluator.episodes": 4,
    "evaluator.lanes": 2,
    "log.every_steps": 100,
}


def solved_in_the_end():
    """Whatever the score, evaluation number EVALUATIONS solves the game."""
    seen = []

    def solved_by(limits, mean_score):
        seen.append(mean_score)
        return len(seen) >= EVALUATIONS

    return mock.patch.object(Limits, "solved_by", solved_by)


@dataclass(frozen=True)
class Plan:
    limits: dict
    settings: dict  # of both runners
    apart: dict  # of the runner processes only
    learn: object = None  # in the place of the learner's main, in its process
    here: object = None  # something to do around the run, in this process


PLANS = {
    "steps": Plan(
        limits={"steps": STEPS},
        settings={},
        apart={"actor.sync_every": SYNC, "actor.push": "step"},
        learn=checking.learn_and_tell,
    ),
    "episodes": Plan(
        limits={"episodes": EPISODES},
        settings={"actor.lanes": 9, "actor.epsilon_end": 0.2, "actor.epsilon_steps": 5000, "evaluator.at_end": False},
        apart={"actor.count": 3, "actor.push": "episode"},
        learn=checking.learn_and_check,
    ),
    "minutes": Plan(
        limits={"minutes": MINUTES},
        settings={"evaluator.at_end": False},
        apart={"learner.ratio": "free"},
        learn=checking.learn_by_the_clock_of_games,
        here=checking.clock_of_games,
    ),
    "target": Plan(
        limits={"steps": "10M", "minutes": 1, "target": 1000},  # nothing but the target should end it
        settings={"actor.groups": 2, "evaluator.every_steps": EVALUATE_EVERY},
        apart={"actor.push": 7},
        here=solved_in_the_end,
    ),
}


@dataclass(frozen=True)
class Traces:
    """What a run may leave behind on the machine."""

    children: frozenset
    files: tuple
    names: frozenset

    @classmethod
    def now(cls):
        gc.collect()
        tracker = multiprocessing.resource_tracker._resource_tracker._pid  # stays for the next run
        children = {child.pid for child in psutil.Process().children(recursive=True)} - {tracker}
        files = []
        for descriptor in os.listdir("/proc/self/fd"):
            try:
                files.append(os.readlink(f"/proc/self/fd/{descriptor}").partition("[")[0])
            except FileNotFoundError:  # the one that the list was read through
                continue
        return cls(frozenset(children), tuple(sorted(files)), frozenset(leftovers.names()))


@dataclass(frozen=True)
class Played:
    run: Run
    before: Traces
    after: Traces

    def told(self, name):
        """What a learner of checking.py has written down."""
        return json.loads((self.run.path / name).read_text())


def train(plan, runner, folder):
    """With the same seed every time."""
    settings = COUNTING | plan.settings | (plan.apart if runner == "processes" else {})
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(TRAIN, "CEILING_SECONDS", 0.0))
        if plan.learn is not None:
            patches.enter_context(mock.patch.object(PROCESSES, "learn", plan.learn))
        if plan.here is not None:
            patches.enter_context(plan.here())
        how = {"seed": 5, "device": "cpu", "quiet": True, "profile": "none", "run": str(folder)}
        return fastdqn.train(make_counting, runner=runner, settings=settings, **plan.limits, **how)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The run of a plan on a runner, played once for all tests; what it fails with, all of them fail with."""
    known = {}
    folder = tmp_path_factory.mktemp("runs")
    multiprocessing.resource_tracker.ensure_running()

    def play(plan, runner):
        if (plan, runner) not in known:
            before = Traces.now()
            try:
                run = train(PLANS[plan], runner, folder / f"{plan}-{runner}")
                known[plan, runner] = Played(run, before, Traces.now())
            except BaseException as fault:
                known[plan, runner] = fault
        if isinstance(known[plan, runner], BaseException):
            raise known[plan, runner]
        return known[plan, runner]

    play("steps", "inline")  # loads what is loaded once a process
    return play


on_both_runners = pytest.mark.parametrize("runner", ["inline", "processes"])
slowly_on_both = pytest.mark.parametrize("runner", ["inline", pytest.param("processes", marks=pytest.mark.slow)])
LONG = ["episodes", "target"]  # in processes they take half a minute each
HELD = [  # plans whose samples per step are held; in processes: push = step, episode, 7
    pytest.param(plan, runner, marks=pytest.mark.slow if plan in LONG and runner == "processes" else ())
    for plan in ("steps", "episodes", "target")
    for runner in ("inline", "processes")
]


# ---------------------------------------------------------------- on both runners


@on_both_runners
def test_a_run_plays_learns_saves_and_is_judged(played, runner):
    run = played("steps", runner).run
    assert run.reason == "step limit reached"
    assert STEPS - LANES < run.steps <= STEPS
    assert run.updates > 0
    assert {"config.yaml", "metrics.jsonl", "model.safetensors", "curve.png", "evaluations"} <= set(os.listdir(run.path))
    facts = read_facts(run.folder.model_path)
    assert (facts["step"], facts["update"]) == (run.steps, run.updates)
    assert fastdqn.load(run, env=make_counting).act(np.zeros(4)) in (0, 1, 2)
    last = run.metrics()[-1]
    assert (last["step"], last["update"]) == (run.steps, run.updates)
    assert (run.score.step, run.score.update) == (run.steps, run.updates), "the final weights"
    assert run.score.steps == [GAME_STEPS] * 4
    assert run.folder.scores()[-1]["mean"] == run.score.mean
    assert run.folder.config().runner == runner


@pytest.mark.parametrize(("plan", "runner"), HELD)
def test_there_are_as_many_updates_as_the_steps_have_earned(played, runner, plan):
    """At every line of the metrics and at every evaluation, to the last update."""
    run = played(plan, runner).run
    assert run.updates == earned(run.steps) > 1000
    for told in run.metrics() + run.folder.scores():
        assert told["update"] == earned(told["step"]), told["step"]


def earned(steps):
    return max(0, (steps - WARMUP) // STEPS_PER_UPDATE)


@pytest.mark.parametrize(("plan", "runner"), HELD)
def test_the_samples_per_step_are_held(played, runner, plan):
    """Over any stretch of HELD_FOR steps, or 50 pushes if those are more, they are those of the config."""
    run = played(plan, runner).run
    config = run.folder.config()
    rounds = {"step": 1, "episode": GAME_STEPS + 1}.get(config.actor.push, config.actor.push)
    stretch = max(HELD_FOR, 50 * rounds * config.actor.lanes)
    rows = [row for row in run.metrics() if row["step"] > WARMUP]
    step, update = (np.array([row[name] for row in rows]) for name in ("step", "update"))
    begins, ends = np.nonzero(step[None, :] - step[:, None] >= stretch)
    assert len(begins) > 100
    samples = BATCH * (update[ends] - update[begins]) / (step[ends] - step[begins])
    assert np.abs(samples / config.samples_per_step - 1).max() <= OFF_BY


@slowly_on_both
def test_the_episode_limit(played, runner):
    """In processes, three actors hand over game by game."""
    run = played("episodes", runner).run
    assert run.reason == "episode limit reached"
    assert run.updates > 0
    episodes, lanes = run.metrics()[-1]["episode"], 9
    assert EPISODES <= episodes < EPISODES + lanes
    assert run.steps >= episodes * GAME_STEPS


@on_both_runners
def test_the_time_limit(played, runner):
    """By a clock that counts games."""
    run = played("minutes", runner).run
    assert run.reason == "time limit reached"
    assert run.updates > 0
    assert 60 * MINUTES <= run.metrics()[-1]["episode"] < 60 * MINUTES + LANES
    assert read_facts(run.folder.model_path)["update"] == run.updates
    assert run.score is None, "nobody has asked for one"
    assert run.folder.scores() == []


@slowly_on_both
def test_the_target_and_the_evaluations_on_the_way(played, runner):
    """Inline each time so many steps have passed; an evaluator in a process of its own, as often as it can keep up with."""
    run = played("target", runner).run
    assert run.reason == "target reached"
    assert run.updates > 0
    scores = run.folder.scores()
    on_the_way, final = scores[:EVALUATIONS], scores[-1]
    assert len(on_the_way) == EVALUATIONS
    turns = [score["step"] // EVALUATE_EVERY for score in on_the_way]
    assert turns[0] >= 1
    assert turns == sorted(set(turns)), "never twice within so many steps"
    assert runner == "processes" or turns == list(range(1, EVALUATIONS + 1))
    assert all((score["episodes"], len(score["scores"])) == (4, 4) for score in scores)
    assert len({tuple(score["seeds"]) for score in scores}) == len(scores), "fresh games every time"
    assert (final["mean"], final["update"]) == (run.score.mean, run.updates), "the final weights were judged"


def test_one_actor_counts_as_inline_line_by_line(played):
    here, apart = (played("steps", runner).run.metrics() for runner in ("inline", "processes"))
    names = ("step", "frame", "update", "episode", "samples_per_step", "epsilon")
    assert [[row[name] for name in names] for row in apart] == [[row[name] for name in names] for row in here]
    for one, other in zip(here, apart, strict=True):
        assert set(one) <= set(other), "the metrics say the same, or more"


def test_the_same_random_games_teach_the_same_weights(played):
    """The actor explores as it would inline, and nothing gets lost, doubled or shuffled on its way to the learner."""
    here, apart = (played("steps", runner).run for runner in ("inline", "processes"))
    assert here.updates == apart.updates > 1000
    for name in ("return_mean", "score_mean", "loss", "q_mean"):
        assert [row[name] for row in apart.metrics()] == [row[name] for row in here.metrics()], name
    ours, theirs = (load_file(run.folder.model_path) for run in (apart, here))
    assert all((ours[name] == theirs[name]).all() for name in theirs)
    assert set(ours) == set(theirs)


# ---------------------------------------------------------------- what is played is what is learned from


def counted_parts(steps):
    job = prepare(make_counting, settings=COUNTING | {"seed": 5, "device": "cpu"})
    runner = InlineRunner(build(job.config, job.kind, "cpu"), Stop(), lambda row: None, lambda score: None)
    runner.start()
    while runner.parts.actor.steps < steps:
        runner.round()
    numbers = [env.unwrapped._lane for env in runner.parts.env.envs]
    how = {"lane_numbers": np.array(numbers), "stack": 4, "n_step": 3, "gamma": job.config.learner.gamma}
    return runner.parts, how


FAULTS = {
    "another lane": lambda ring: ring.obs.__setitem__(0, ring.obs[1]),
    "another game": lambda ring: ring.obs[2, :, 1].__iadd__(1),
    "half a frame": lambda ring: ring.obs[:, 200, :2].__setitem__(slice(None), ring.obs[:, 201, :2] + [0, 1]),
    "one row late": lambda ring: ring.obs.__setitem__(slice(None), np.roll(ring.obs, 1, axis=1)),
    "another action": lambda ring: ring.action.__setitem__(slice(None), (ring.action + 1) % 3),
    "another reward": lambda ring: ring.reward[3, 100:110].__iadd__(0.125),
    "no end": lambda ring: ring.flags.__iand__(np.uint8(5)),
    "no beginning": lambda ring: ring.flags.__iand__(np.uint8(6)),
    "no cut": lambda ring: ring.flags.__iand__(np.uint8(3)),
}


def test_the_check_of_windows_finds_nothing_where_nothing_is_wrong():
    parts, how = counted_parts(6000)
    assert parts.learner.updates > 0
    assert (parts.replay.ring.W > parts.replay.ring.T).all(), "every lane has begun to write over its oldest rows"
    batch = parts.replay.sample(100_000)
    assert not (checking.wrong_windows(batch, **how) & (batch.weight > 0)).any()


@pytest.mark.parametrize("fault", FAULTS)
def test_the_check_of_windows_finds_what_is_wrong(fault):
    parts, how = counted_parts(1500)
    FAULTS[fault](parts.replay.ring)
    batch = parts.replay.sample(20_000)
    assert (checking.wrong_windows(batch, **how) & (batch.weight > 0)).any()


@pytest.mark.slow
def test_a_million_windows_from_three_actors_and_none_is_wrong(played):
    """Frames, actions, returns and discounts, value by value, and all that was trained on as well."""
    game = played("episodes", "processes")
    told = game.told("windows.json")
    assert game.run.updates > 0
    assert told["lanes"] == 9, "no two lanes call themselves the same"
    assert told["trained_on"] >= 0.99 * game.run.updates * BATCH
    assert told["wrong_in_training"] == 0
    assert told["checked"] >= 1_000_000
    assert told["wrong"] == 0


# ---------------------------------------------------------------- what only roles in processes promise


def test_a_free_learner_does_what_it_has_time_for(played):
    """It takes all that has arrived, then makes one update: what the steps have earned does not matter, and the ratio that
    comes of it is told."""
    run = played("minutes", "processes").run
    assert run.updates >= (run.steps - WARMUP) // (LANES * SLOTS) > 0
    for before, after in pairwise(run.metrics()):
        reached = BATCH * (after["update"] - before["update"]) / (after["step"] - before["step"])
        assert after["samples_per_step"] == pytest.approx(reached, rel=1e-3, abs=1e-3)
    held = played("minutes", "inline").run
    assert held.updates == earned(held.steps)


@pytest.mark.slow
def test_a_free_learner_keeps_the_step_limit(tmp_path):
    """Whatever else has arrived when it is reached."""
    free = {"learner.ratio": "free", "actor.count": 2, "actor.push": "episode"}
    run = train(
        Plan(limits={"steps": 1_000}, settings={"evaluator.at_end": False}, apart=free), "processes", tmp_path / "run"
    )
    assert 1_000 - LANES < run.steps <= 1_000
    assert run.updates > 0


def test_weights_are_put_up_as_often_as_asked(played):
    game = played("steps", "processes")
    told = game.told("published.json")
    (first, *later), last = told["published"][:-1], told["published"][-1]
    assert first == [0, 0], "there are weights to begin with"
    assert last == [game.run.steps, game.run.updates]
    assert told["version"] == len(told["published"])
    steps = [step for step, _ in later]
    assert WARMUP < steps[0] <= WARMUP + STEPS_PER_UPDATE + LANES, "with the first update"
    gaps = np.diff(steps)
    assert gaps.min() >= SYNC
    assert gaps.max() < SYNC + LANES, "and no later than the round in which they were due"
    assert all(np.diff([update for _, update in later]) > 0), "the same weights are not put up twice"


def test_an_actor_plays_with_weights_of_a_moment_ago(played):
    """It may be some rounds ahead of the learner, and takes the newest weights after each of them."""
    game = played("steps", "processes")
    rounds_ahead = 5
    assert game.told("published.json")["played_with"] >= game.run.steps - SYNC - LANES - rounds_ahead * LANES


@pytest.mark.parametrize("plan", [pytest.param(plan, marks=pytest.mark.slow if plan in LONG else ()) for plan in PLANS])
def test_nothing_stays_behind(played, plan):
    """No process, no open file, no shared memory. Only the helper of multiprocessing stays for the next run. A name in
    shared memory that comes and goes is another program's."""
    game = played(plan, "processes")
    assert game.run.updates > 0
    assert game.after.children == game.before.children
    assert game.after.files == game.before.files
    assert not (game.after.names - game.before.names) & leftovers.names()
    assert not [name for name in os.listdir(game.run.path) if name.endswith((".stack", ".tmp")) or name == "roles.json"]


class LocalEnvs:
    """Functions that another process cannot find by their name."""

    @staticmethod
    def env():
        class Local(CountingEnv):
            pass

        return {"env": Local}

    @staticmethod
    def env_as_lambda():
        return {"env": lambda: CountingEnv()}

    @staticmethod
    def network():
        def make(shape, actions):
            return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), actions))

        return {"env": make_counting, "network": make}


@pytest.mark.parametrize("own", ["env", "env_as_lambda", "network"])
def test_a_function_that_cannot_travel_is_refused_with_a_sentence(tmp_path, own):
    before = Traces.now()
    with pytest.raises(UserError, match="define it at the top of a module, or use the runner inline"):
        fastdqn.train(
            **getattr(LocalEnvs, own)(),
            runner="processes",
            settings=COUNTING,
            device="cpu",
            quiet=True,
            run=str(tmp_path / "run"),
        )
    assert Traces.now().children == before.children


FOR_PROCESSES = {
    "actor.count": 2,
    "actor.push": "episode",
    "actor.sync_every": 100,
    "actor.device": "cpu",
    "learner.device": "cpu",
    "learner.ratio": "free",
    "evaluator.device": "cpu",
}


@pytest.mark.parametrize("key", FOR_PROCESSES)
def test_settings_of_processes_are_refused_inline(key):
    settings = COUNTING | {key: FOR_PROCESSES[key]}
    with pytest.raises(UserError, match=rf"{key}={FOR_PROCESSES[key]} is for roles in processes .* --runner processes"):
        prepare(make_counting, settings=settings)
    apart = prepare(make_counting, settings=settings | {"runner": "processes", "device": "cpu"}).config
    section, name = key.split(".")
    assert getattr(getattr(apart, section), name) == FOR_PROCESSES[key]


def test_there_must_be_lanes_for_all_actors():
    settings = COUNTING | {"runner": "processes", "device": "cpu", "actor.groups": 2}
    assert prepare(make_counting, settings=settings | {"actor.count": 2}).config.actor.count == 2
    with pytest.raises(UserError, match="there must be at least 6"):
        prepare(make_counting, settings=settings | {"actor.count": 3})


@pytest.mark.slow
@pytest.mark.parametrize("learn", [checking.learn_until_memory_runs_out, checking.learn_until_the_device_is_full])
def test_memory_that_runs_out_in_a_role_ends_with_a_sentence(learn, tmp_path):
    with pytest.raises(UserError, match=r"The memory of (cpu|this machine) ran out") as caught:
        train(Plan(limits={"steps": 500}, settings={}, apart={}, learn=learn), "processes", tmp_path / "run")
    assert "Traceback" not in str(caught.value)
    assert read_facts(tmp_path / "run" / "model.safetensors")["update"] > 20, "what was learned is saved"


def test_it_is_told_what_an_actors_time_goes_into(played):
    rows = [row for row in played("steps", "processes").run.metrics() if row["step"] > WARMUP]
    shares = {name: [row[f"actors_{name}_percent"] for row in rows] for name in (*ACTOR_WORK, "wait")}
    for name, told in shares.items():
        assert all(0 <= share <= 100 for share in told), name
    assert np.mean(shares["env"]) > 0
    assert np.mean(shares["act"]) > 0
    assert np.mean(shares["weights"]) > 0, "they come every SYNC steps"
    assert np.mean([sum(share) for share in zip(*shares.values(), strict=True)]) < 120
