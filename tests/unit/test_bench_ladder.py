"""The ladder: which rungs there are, that each really has the switches it says, and a whole ladder from end to end."""

import importlib.util
import json
from functools import cache
from itertools import pairwise

import pytest

from fastdqn import switches
from fastdqn.bench import ladder
from fastdqn.bench.clock import Speed
from fastdqn.bench.conduct import Measuring
from fastdqn.bench.identity import subject_of_job
from fastdqn.bench.judge import Judge
from fastdqn.bench.ladder import TEXTBOOK, ladder_row, run_ladder, rungs
from fastdqn.bench.peers import our_variants
from fastdqn.bench.record import Keeper
from fastdqn.bench.work import make_work
from fastdqn.build import why_not
from fastdqn.cli import main
from fastdqn.device.hardware import lacks
from fastdqn.errors import UserError
from fastdqn.prepare import prepare
from fastdqn.switches import LADDER
from tests.unit.stand_ins import answer_for_children
from tests.unit.tiny import TINY_SNAKE, as_arguments

needs_atari = pytest.mark.skipif(importlib.util.find_spec("ale_py") is None, reason="needs ale-py")
ENVS = ["snake", "CartPole-v1", pytest.param("pong", marks=needs_atari)]
NAMES = [switch.name for switch in LADDER]
QUICK = {**TINY_SNAKE, "device": "cpu", "learner.steps_per_update": 1, "learner.threads": 1}
SAMPLES_PER_STEP = 16.0


@cache
def job_of(env):
    return prepare(env, settings={"device": "cpu"})


def part(all_rungs, name):
    return [rung for rung in all_rungs if rung.part == name]


def clashing_with(switch):
    """A clash may be declared on either side; what needs a clashing switch goes with it."""
    clashing = set(switch.clashes) | {other.name for other in LADDER if switch.name in other.clashes}
    for _ in LADDER:
        clashing |= {other.name for other in LADDER if clashing & set(other.needs)}
    return clashing


def pretend(monkeypatch, answer):
    """A machine that has everything, or nothing, that a switch may need."""
    for module in (ladder, switches):
        monkeypatch.setattr(module, "lacks", lambda need, device: answer)


# ---------------------------------------------------------------- the rungs


@pytest.mark.parametrize("env", ENVS)
def test_from_the_textbook_to_the_default_one_switch_a_rung(env):
    job = job_of(env)
    steps = part(rungs(job), "ladder")
    assert (steps[0].name, steps[0].switches, steps[0].adds, steps[0].against) == (TEXTBOOK, frozenset(), None, None)
    assert len(steps) > 8
    for before, rung in pairwise(steps):
        assert rung.switches - before.switches == {rung.adds.name}
        assert before.switches < rung.switches
        assert rung.against == before.name
        assert rung.name == f"+ {rung.adds.name}"
        assert not rung.skipped
    assert [rung.adds.name for rung in steps[1:]] == [name for name in NAMES if name in job.switches]
    assert steps[-1].switches == job.switches, "the top is the run as it would be trained"


@pytest.mark.parametrize("env", ENVS)
def test_every_other_switch_of_this_environment_is_an_extra(env):
    job = job_of(env)
    all_rungs = rungs(job)
    top, extras = part(all_rungs, "ladder")[-1], part(all_rungs, "extra")
    assert [rung.adds.name for rung in extras] == [
        name for name in NAMES if name not in job.switches and name not in why_not(job.config, job.kind)
    ]
    for rung in extras:
        missing = [lacks(need, "cpu") for need in rung.adds.machine]
        assert rung.against == top.name
        assert rung.name == f"default + {rung.adds.name}"
        if any(missing):
            assert rung.skipped == f"needs {next(filter(None, missing))}"
        else:
            assert rung.skipped == ""
            assert rung.switches == job.switches - clashing_with(rung.adds) | {rung.adds.name}
    by_name = {rung.adds.name: rung for rung in extras}
    for name in ("pinned_copies", "cudnn_benchmark", "tf32", "fp16"):
        assert by_name[name].skipped == "needs a CUDA device"
    assert len({rung.name for rung in all_rungs}) == len(all_rungs)


@pytest.mark.parametrize(
    ("env", "own"),
    [
        ("snake", {"lane_vector_env", "device_snake"}),
        ("CartPole-v1", {"lane_vector_env", "lean_mlp"}),
        pytest.param("pong", {"native_atari"}, marks=needs_atari),
    ],
)
def test_foreign_switches_are_absent(env, own):
    named = {rung.adds.name for rung in rungs(job_of(env), leave_one_out=True) if rung.adds}
    of_some = {"lane_vector_env", "native_atari", "device_snake", "lean_mlp"}
    assert named & of_some == own
    job = job_of(env)
    assert named == set(NAMES) - why_not(job.config, job.kind).keys()


@pytest.mark.parametrize("env", ENVS)
def test_on_a_machine_that_has_everything_clashes_are_taken_out(monkeypatch, env):
    pretend(monkeypatch, "")
    job = prepare(env, settings={"device": "cpu", "switches.on": ["bf16"]})
    by_name = {rung.adds.name: rung for rung in rungs(job) if rung.part == "extra"}
    assert "bf16" in job.switches
    assert "bf16" in clashing_with(by_name["fp16"].adds)
    assert "bf16" not in by_name["fp16"].switches
    for rung in by_name.values():
        missing = [name for name in rung.adds.needs if name not in job.switches]
        assert rung.skipped == (f"needs {missing[0]}" if missing else "")
        assert missing or rung.switches == job.switches - clashing_with(rung.adds) | {rung.adds.name}
    for rung in rungs(job, leave_one_out=True):
        assert rung.skipped or prepare(env, settings={"device": "cpu", **rung.settings()}).switches == rung.switches, (
            rung.name
        )


def test_on_a_machine_that_has_nothing_all_such_extras_are_skipped(monkeypatch):
    pretend(monkeypatch, "a flux capacitor")
    job = prepare("snake", settings={"device": "cpu"})
    for rung in rungs(job):
        needy = rung.adds is not None and bool(rung.adds.machine)
        assert rung.skipped == ("needs a flux capacitor" if needy else "")


@pytest.mark.parametrize("env", ENVS)
def test_leaving_one_out_leaves_out_what_needs_it(env):
    job = job_of(env)
    assert part(rungs(job), "leave_one_out") == []
    all_rungs = rungs(job, leave_one_out=True)
    without = part(all_rungs, "leave_one_out")
    assert [rung.adds.name for rung in without] == [name for name in NAMES if name in job.switches]
    for rung in without:
        assert rung.adds.name not in rung.switches
        assert rung.against == part(all_rungs, "ladder")[-1].name
    by_name = {rung.adds.name: rung for rung in without}
    gone = {name: job.switches - rung.switches for name, rung in by_name.items()}
    assert gone.pop("array_replay") == {"array_replay", "frame_ring", "compiled_draw"}
    assert gone.pop("frame_ring") == {"frame_ring", "compiled_draw"}
    lean = {"lean_mlp"} & job.switches
    assert gone.pop("hand_written") == {"hand_written"} | lean
    assert gone.pop("fused_optimizer") == {"fused_optimizer", "one_pass_optimizer"} | lean
    assert all(left_out == {name} for name, left_out in gone.items())


@pytest.mark.parametrize("env", ENVS)
def test_a_rung_has_exactly_the_switches_it_says(env):
    for rung in rungs(job_of(env), leave_one_out=True):
        assert prepare(env, settings={"device": "cpu", **rung.settings()}).switches == rung.switches, rung.name


@pytest.mark.parametrize(
    "wishes",
    [
        {"switches.off": ["array_replay"]},
        {"switches.off": ["many_lanes", "no_grad"]},
        {"switches.on": ["channels_last"]},
        {"switches.prefer": []},
    ],
    ids=str,
)
def test_a_default_of_the_users_own(wishes):
    """The top is what the user would train; every rung that is not skipped can be measured."""
    job = prepare("snake", settings={"device": "cpu", **wishes})
    all_rungs = rungs(job, leave_one_out=True)
    assert part(all_rungs, "ladder")[-1].switches == job.switches
    for rung in all_rungs:
        if not rung.skipped:
            assert prepare("snake", settings={"device": "cpu", **wishes, **rung.settings()}).switches == rung.switches
    if wishes.get("switches.off") == ["array_replay"]:
        by_name = {rung.name: rung for rung in all_rungs}
        assert by_name["default + array_replay"].skipped == ""
        assert by_name["default + frame_ring"].skipped == "needs array_replay"


# ---------------------------------------------------------------- a row in numbers


def made_up_speed(steps_per_second, windows=None, **more):
    speed = Speed(
        steps_per_second=steps_per_second,
        updates_per_second=steps_per_second,
        samples_per_step=SAMPLES_PER_STEP,
        steps=1000,
        updates=1000,
        seconds=1.0,
        windows=windows or [steps_per_second] * 3,
        cpu_percent=100.0,
        others_cpu_percent=0.0,
        gpu_percent=None,
        rss_mb=300.0,
        gpu_memory_mb=None,
        startup_seconds=1.0,
        warmup_seconds=1.0,
        device="cpu",
        threads=1,
        split={"env": 0.25, "learn": 0.75},
        switches=["no_grad"],
    )
    return speed.as_json() | more


@pytest.fixture(scope="module")
def work():
    return make_work("snake", None, QUICK | {"network.kind": "cnn", "network.channels": [4]})


def test_a_row_by_hand(work):
    steps = part(rungs(work.job), "ladder")
    first, second, third = steps[:3]
    speeds = {
        first.name: [made_up_speed(100.0), made_up_speed(200.0)],
        second.name: [made_up_speed(150.0), made_up_speed(300.0)],
        third.name: [made_up_speed(300.0, cpu_percent=90.0), made_up_speed(600.0, cpu_percent=110.0)],
    }
    judge = Judge(work, Measuring())
    row = ladder_row(first, speeds, judge)
    assert (row["rung"], row["part"], row["adds"], row["promise"], row["switches"]) == (TEXTBOOK, "ladder", None, None, [])
    assert row["steps_per_second"] == 150.0, "the median of the repeats"
    assert (row["change"], row["speed_verdict"], row["learning_verdict"]) == (None, "not measured", "not measured")
    assert "vs_textbook" not in row

    row = ladder_row(third, speeds, judge)
    assert row["adds"] == third.adds.name
    assert row["promise"] == third.adds.promise.name
    assert row["summary"] == third.adds.summary
    assert row["switches"] == sorted(third.switches)
    assert row["steps_per_second"] == 450.0
    assert row["interval"] == [300.0, 600.0], "the middle 80 % of all pieces"
    assert row["change"] == pytest.approx(2.0), "against the rung before, round by round"
    assert row["change_interval"] == pytest.approx([2.0, 2.0])
    assert row["vs_textbook"] == pytest.approx(3.0)
    assert row["vs_textbook_interval"] == pytest.approx([3.0, 3.0])
    assert row["speed_verdict"] == "faster"
    assert (row["cpu_percent"], row["rss_mb"], row["samples_per_step"]) == (100.0, 300.0, SAMPLES_PER_STEP)
    assert (row["gpu_percent"], row["threads"]) == (None, 1)
    assert row["split"] == {"env": 0.25, "learn": 0.75}
    assert len(row["speeds"]) == 2
    assert row["skipped"] == ""


def test_a_row_before_and_without_its_measurement(work, monkeypatch):
    pretend(monkeypatch, "a flux capacitor")
    all_rungs = rungs(work.job)
    judge = Judge(work, Measuring())
    assert ladder_row(all_rungs[1], {TEXTBOOK: [made_up_speed(100.0)]}, judge) is None
    skipped = next(rung for rung in all_rungs if rung.skipped)
    row = ladder_row(skipped, {}, judge)
    assert row["skipped"] == "needs a flux capacitor"
    assert (row["speed_verdict"], row["learning_verdict"]) == ("not measured", "not measured")
    assert "steps_per_second" not in row


def test_a_slower_rung_is_called_slower_and_noise_is_not(work):
    first, second = part(rungs(work.job), "ladder")[:2]
    judge = Judge(work, Measuring())
    base = [made_up_speed(100.0, windows=[98.0, 100.0, 102.0]) for _ in range(3)]
    for factor, verdict in ((0.8, "slower"), (1.005, "no clear difference"), (1.3, "faster")):
        own = [made_up_speed(100 * factor, windows=[factor * 102, factor * 98, factor * 100]) for _ in range(3)]
        assert ladder_row(second, {first.name: base, second.name: own}, judge)["speed_verdict"] == verdict


def test_a_single_piece_shows_no_spread_and_gives_no_verdict(work):
    """One repeat that is shorter than a window: 0.97x (0.97-0.97) is not known to be slower."""
    first, second = part(rungs(work.job), "ladder")[:2]
    speeds = {first.name: [made_up_speed(100.0, windows=[100.0])], second.name: [made_up_speed(97.0, windows=[97.0])]}
    row = ladder_row(second, speeds, Judge(work, Measuring()))
    assert row["change"] == pytest.approx(0.97)
    assert row["speed_verdict"] == "no clear difference"


# ---------------------------------------------------------------- a whole ladder


def speed_of(settings):
    """More switches, more speed; of those that are off by default, channels_last alone gains something. The default
    without array_replay would be faster still, but that is no rung to stand on."""
    on = settings["switches.on"]
    left_out = "many_lanes" in on and "array_replay" not in on
    return 100.0 + 10 * len(on) + 1000 * ("channels_last" in on) + 5000 * left_out


@pytest.fixture
def asked(monkeypatch):
    """The tasks that children would get. No process is started: the answers are made up."""
    tasks = []

    def ask(self, task, module="", while_waiting=None):
        tasks.append(task)
        if task["task"] == "ceiling":
            return {"steps_per_second": 10_000.0, "env_alone": 20_000.0, "words": "made up"}
        return made_up_speed(speed_of(task["settings"]))

    answer_for_children(monkeypatch, ask)
    return tasks


def test_every_rung_is_measured_with_its_switches_and_the_best_is_named(asked, work, tmp_path):
    saved, how = [], Measuring(seconds=1.0, repeats=2)
    keeper = Keeper("ladder", subject_of_job(work.job), vars(how), str(tmp_path), "mine")
    save = keeper.save
    keeper.save = lambda: saved.append((len(asked), json.loads(json.dumps(keeper.record)))) or save()
    run_ladder(work, how, rungs(work.job, leave_one_out=True), keeper)

    all_rungs = rungs(work.job, leave_one_out=True)
    measured = [rung for rung in all_rungs if not rung.skipped]
    order = [frozenset(task["settings"]["switches.on"]) for task in asked if task["task"] == "speed"]
    assert order == [rung.switches for rung in (*measured, *measured[::-1])], "the second round goes down again"
    assert all(task["settings"]["device"] == "cpu" and task["settings"]["env.dim"] == 5 for task in asked)

    record = json.loads((keeper.path / "record.json").read_text())
    assert record["complete"] is True
    assert [row["rung"] for row in record["rows"]] == [rung.name for rung in all_rungs]
    for row, rung in zip(record["rows"], all_rungs, strict=True):
        if not rung.skipped:
            assert row["steps_per_second"] == speed_of({"switches.on": rung.switches})
    top = 100.0 + 10 * (len(work.job.switches) + 1) + 1000
    assert record["best"]["rung"] == "default + channels_last"
    assert record["best"]["vs_textbook"] == pytest.approx(top / 100, rel=1e-5)
    assert record["ceiling"]["share"] == pytest.approx(top / 10_000, rel=1e-5)

    # After every single measurement, and never called complete before the end
    counts = [count for count, _ in saved]
    assert set(range(2, len(asked) + 1)) <= set(counts)
    assert [each["complete"] for _, each in saved] == [False] * (len(saved) - 1) + [True]


def test_the_table_has_every_rung_and_column(asked, runs, capsys):
    arguments = ["--seconds", "1", "--repeats", "1", "--out", "records", "--name", "mine"]
    assert main(["bench", "ladder", "snake", *as_arguments(QUICK), *arguments]) == 0
    check_table(capsys.readouterr().out, prepare("snake", settings=QUICK))


def check_table(out, job):
    header = next(line for line in out.splitlines() if "steps/s" in line)
    columns = ("rung", "steps/s", "change", "updates/s", "samples/step", "CPU %", "RSS MB", "speed", "learning")
    assert [header.index(name) for name in columns] == sorted(header.index(name) for name in columns)
    for rung in rungs(job):
        assert any(rung.name in line for line in out.splitlines()), rung.name
        assert not rung.skipped or rung.skipped in next(line for line in out.splitlines() if rung.name in line)
    assert "best rung: " in out
    assert "ceiling: " in out
    assert "record  records/" in out
    assert "fastdqn report records/" in out


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_real_ladder_from_end_to_end(runs, capsys):
    arguments = ["--seconds", "0.3", "--repeats", "1", "--out", "records", "--name", "mine"]
    assert main(["bench", "ladder", "snake", *as_arguments(QUICK), *arguments]) == 0
    job = prepare("snake", settings=QUICK)
    check_table(capsys.readouterr().out, job)
    (path,) = runs.parent.glob("records/*-mine/record.json")
    record = json.loads(path.read_text())
    assert record["complete"] is True
    assert record["switches"] == sorted(job.switches)
    all_rungs = rungs(job)
    assert [row["rung"] for row in record["rows"]] == [rung.name for rung in all_rungs]
    for row, rung in zip(record["rows"], all_rungs, strict=True):
        if rung.skipped:
            continue
        assert row["updates_per_second"] > 0, rung.name
        assert row["steps_per_second"] > 0
        assert row["samples_per_step"] == pytest.approx(SAMPLES_PER_STEP, rel=0.1), rung.name
        (speed,) = row["speeds"]
        assert speed["updates"] > 0
        assert speed["details"]["lanes"] == (4 if "many_lanes" in rung.switches else 1)
        assert sum(row["split"].values()) == pytest.approx(1.0, abs=0.01)
        assert row["cpu_percent"] > 0
        assert row["rss_mb"] > 50
        assert (row["change"] is None) == (rung.name == TEXTBOOK)
    assert record["best"]["rung"] in {rung.name for rung in all_rungs}
    assert record["best"]["vs_textbook"] > 0
    assert record["ceiling"]["steps_per_second"] > 0
    assert 0 < record["ceiling"]["share"] < 10
    assert record["ceiling"]["words"]


def test_a_further_row_of_ours_stands_beside_the_peers():
    work = make_work("snake", None, {**TINY_SNAKE, "device": "cpu"})
    plain, more = our_variants(work, 1.0, {}), our_variants(work, 1.0, {"learner.batch_size": 128})
    assert [variant.name for variant in more] == [*(variant.name for variant in plain), "fastdqn, batch_size=128"]
    assert more[-1].task["settings"]["learner.batch_size"] == 128
    assert more[-2].task["settings"]["learner.batch_size"] == TINY_SNAKE["learner.batch_size"]
    with pytest.raises(UserError, match=r"learner\.batch"):
        our_variants(work, 1.0, {"learner.batchsize": 128})
