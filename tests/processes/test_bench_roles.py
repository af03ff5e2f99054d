"""Roles in processes as the bench sees them: the rows of the ladder, learning, waiting, and a share of the cores."""

import json
import os
import time

import numpy as np
import pytest

from fastdqn.bench.conduct import Measuring
from fastdqn.bench.identity import subject_of_job
from fastdqn.bench.keep import dumped_games, memory_of_roles
from fastdqn.bench.ladder import run_ladder
from fastdqn.bench.learning import train_and_evaluate
from fastdqn.bench.measure import measure
from fastdqn.bench.record import Keeper
from fastdqn.bench.roles import PLACEMENTS, role_rungs
from fastdqn.bench.rows import why_so_fast
from fastdqn.bench.sweep import check_cores, named_points, parse_sweep
from fastdqn.bench.work import make_work
from fastdqn.bench.worker import job_of
from fastdqn.device.cores import usable_cores
from fastdqn.errors import UserError
from fastdqn.prepare import prepare
from tests.processes.counting import CountingEnv
from tests.processes.test_runner import COUNTING
from tests.unit.stand_ins import answer_for_children
from tests.unit.test_bench_ladder import QUICK, made_up_speed

APART = QUICK | {"runner": "processes"}


@pytest.fixture
def work():
    return make_work("snake", None, QUICK)


def test_the_rows_are_the_two_ends_and_every_placement(work):
    textbook, default, *placed = role_rungs(work)
    assert textbook.switches == frozenset()
    assert default.switches == work.job.switches
    assert {rung.name for rung in placed} >= set(PLACEMENTS)
    for rung in placed:
        assert not rung.skipped, rung
        job = prepare("snake", settings=work.task(rung.settings())["settings"])
        for name, value in rung.settings().items():
            found = job.config
            for key in name.split("."):
                found = getattr(found, key)
            assert found == (tuple(value) if isinstance(value, list) else value)


def test_a_placement_that_cannot_be_is_told_and_not_measured(monkeypatch, tmp_path):
    """One lane cannot be shared by two actors."""
    asked = []

    def ask(self, task, module="", while_waiting=None):
        asked.append(task)
        ceiling = {"steps_per_second": 1e4, "env_alone": 1e4, "words": "made up"}
        free = task["settings"].get("learner.ratio") == "free"
        speed = made_up_speed(500.0 if free else 100.0) | {"switches": ["as", "built"]}
        return ceiling if task["task"] == "ceiling" else speed

    answer_for_children(monkeypatch, ask)
    work = make_work("snake", None, QUICK | {"actor.lanes": 1})
    how = Measuring(seconds=1.0, repeats=1)
    keeper = Keeper("ladder", subject_of_job(work.job), vars(how), str(tmp_path), "mine")
    run_ladder(work, how, role_rungs(work), keeper)
    record = json.loads((keeper.path / "record.json").read_text())
    assert record["best"]["rung"] in ("textbook", "default"), "a free learner does other work than the ceiling's"
    assert record["ceiling"]["share"] == pytest.approx(0.01)
    rows = {row["rung"]: row for row in record["rows"]}
    assert rows["in processes"]["switches"] == ["as", "built"], "what the build chose, not what the rung asked for"
    assert "actor.count=2" in rows["in processes, 2 actors"]["skipped"]
    assert rows["in processes"]["steps_per_second"] == 100.0
    assert [row["part"] for row in rows.values()].count("roles") >= len(PLACEMENTS)
    assert not any(task["settings"].get("actor.count") == 2 for task in asked)


@pytest.mark.slow
@pytest.mark.alone
def test_a_run_in_processes_is_trained_in_processes_and_judged(monkeypatch):
    """It was trained inline once, whatever the runner."""
    from fastdqn.bench import learning

    built = []
    monkeypatch.setattr(learning, "build", lambda *given: built.append(given))
    settings = APART | {"limits.steps": 1_200, "evaluator.every_steps": 300, "evaluator.at_end": True}
    trained = train_and_evaluate(prepare("snake", settings=settings))
    assert not built
    assert trained.updates >= 1_000
    assert trained.samples_per_step == pytest.approx(16, rel=0.1)
    steps = [point.step for point in trained.points]
    assert steps == sorted(steps)
    assert steps[-1] == trained.steps > 1_200 - 4  # a round of the four lanes is not cut in two
    seconds = [point.seconds for point in trained.points]
    assert seconds == sorted(seconds)
    assert seconds[-1] > 0


class SlowEnv(CountingEnv):
    """A step takes as long as hundreds of the learner's own."""

    def step(self, action):
        time.sleep(0.002)
        return super().step(action)


@pytest.mark.slow
@pytest.mark.alone
def test_who_waits_is_told_in_shares_of_the_time():
    told = measure(prepare(SlowEnv, settings=COUNTING | {"runner": "processes", "device": "cpu"}), 1.0).details
    assert 50 < told["learner_waits_percent"] <= 100
    assert 0 <= told["actors_wait_percent"] < 20
    assert "the learner waits for actors" in told["bottleneck"]
    assert told["learner_cpu_percent"] < 80
    assert told["shared_mb"] > 0


def test_a_row_keeps_to_its_cores():
    before = os.sched_getaffinity(0)
    try:
        job_of({"env": "snake", "settings": QUICK, "cores": 1})
        assert len(os.sched_getaffinity(0)) == usable_cores() == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize("cores", ["0,1", "1,1000000", "1,two", "1,1.5"])
def test_cores_that_are_not_there_are_refused(cores):
    with pytest.raises(UserError, match="cores="):
        check_cores(named_points(parse_sweep([f"cores={cores}"])))


def test_cores_are_no_setting_of_the_run(work):
    task = work.task({"cores": 2, "actor.lanes": 3})
    assert task["cores"] == 2
    assert "cores" not in task["settings"]
    assert task["settings"]["actor.lanes"] == 3


def test_what_dumped_games_take(tmp_path):
    assert dumped_games(tmp_path) == {}
    folder = tmp_path / "episodes"
    folder.mkdir()
    for number, steps in enumerate((10, 30)):
        arrays = {"frames": np.zeros((steps + 1, 1, 4, 4), np.uint8), "actions": np.zeros(steps, np.int64)}
        arrays |= {"rewards": np.zeros(steps), "values": np.zeros((steps, 3)), "facts": np.array(json.dumps({"a": 1}))}
        np.savez_compressed(folder / f"{number:09}-actor0.npz", **arrays)
    told = dumped_games(tmp_path)
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert told["dumped_games"] == 2
    assert told["steps_per_dumped_game"] == 20
    assert told["dump_mb_per_game"] == pytest.approx(size / 2 / 1e6)
    assert told["dump_bytes_per_step"] == pytest.approx(size / 40)


def soaked(minutes=11, leak=0.0, late=0):
    """Lines of a run in processes: a row every ten seconds, 1,000 steps and 250 updates each."""
    for number in range(6 * minutes + 1):
        updates = 250 * number - (late if number == 40 else 0)
        yield {
            "seconds": 10.0 * number,
            "step": 1_000 * number,
            "update": updates,
            "samples_per_step": 8.0,
            "replay_rows": 20_000,
            "learner_uss_mb": 500.0,
            "actor0_uss_mb": 200.0 + leak * number,
            "restarts": 0,
            "hung": 0,
        }


def test_a_soak_tells_what_grew_and_what_strayed():
    quiet = memory_of_roles(list(soaked()))
    assert quiet["uss_growth_percent"] == 0
    assert quiet["samples_per_step_strayed_percent"] == pytest.approx(0, abs=1e-9)
    assert quiet["restarts"] == 0
    assert quiet["uss_mb"] == {"learner": [500.0, 500.0], "actor0": [200.0, 200.0]}
    leaking = memory_of_roles(list(soaked(leak=1.0)))
    assert leaking["uss_growth_percent"] == pytest.approx(100 * (263.5 / 215.5 - 1), rel=0.02)
    late = memory_of_roles(list(soaked(late=100)))
    assert late["samples_per_step_strayed_percent"] == pytest.approx(100 * 100 / 2500, rel=0.02)
    assert memory_of_roles(list(soaked(minutes=9))) == {}
    assert memory_of_roles(list(soaked())[::20]) == {}, "too few lines to tell"


def test_the_record_says_in_words_who_held_up_whom():
    assert why_so_fast("as it is", [{"details": {}}]) is None
    assert why_so_fast("never measured", []) is None
    told = {
        "bottleneck": "the learner waits for actors 58% of the time",
        "actors_env_percent": 61.2,
        "actors_act_percent": 20.0,
    }
    words = why_so_fast("runner=processes", [{"details": told}])
    assert words == "runner=processes: the learner waits for actors 58% of the time. An actor's time: env 61 %, act 20 %."


@pytest.mark.parametrize("setting", [{"runner": "processes"}, {"learner.prefetch": 1}])
def test_a_table_of_roles_begins_with_one_process(setting):
    with pytest.raises(UserError, match="begins with a run in one process"):
        role_rungs(make_work("snake", None, QUICK | setting))


def test_switches_that_were_turned_off_stay_off_in_every_row():
    work = make_work("snake", None, QUICK | {"switches.off": ["target_ahead"]})
    for rung in role_rungs(work)[2:]:
        assert "target_ahead" not in prepare("snake", settings=work.task(rung.settings())["settings"]).switches
