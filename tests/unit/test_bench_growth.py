"""What more work costs: which points are taken, that the replay is really full, and what a stored step takes."""

import json

import numpy as np
import pytest

from fastdqn.bench.conduct import Measuring
from fastdqn.bench.growth import bytes_per_row, growth_points, run_growth
from fastdqn.bench.identity import subject_of_job
from fastdqn.bench.record import Keeper
from fastdqn.bench.work import make_work
from fastdqn.prepare import prepare
from fastdqn.run import probe
from fastdqn.run.probe import Probe
from tests.unit.stand_ins import answer_for_children
from tests.unit.test_bench_sweep import made_up_speed
from tests.unit.tiny import TINY_SNAKE


@pytest.mark.parametrize("env", ["snake", "CartPole-v1", "pong"])
def test_a_dozen_points_each_with_one_setting_changed(env):
    config = prepare(env, settings={"device": "cpu"}).config
    points = growth_points(config)
    assert len(points) <= 11
    assert {key for key, _, _ in points} == {
        "actor.lanes", "learner.batch_size", "learner.steps_per_update", "replay.capacity",
    }  # fmt: skip
    for key, value, settings in points:
        assert settings == {key: value}
        changed = prepare(env, settings={"device": "cpu", **settings}).config
        assert changed != config
    capacities = [value for key, value, _ in points if key == "replay.capacity"]
    assert (min(capacities), max(capacities)) == (10_000, 2_000_000)


def growth(tmp_path, monkeypatch, settings=()):
    asked = []

    def ask(self, task, module="", while_waiting=None):
        asked.append(task)
        capacity = task["settings"].get("replay.capacity", 1000)
        return made_up_speed(100.0, 4.0) | {"rss_mb": 300 + capacity * 313 / 1e6, "details": {"rows_filled": capacity}}

    answer_for_children(monkeypatch, ask)
    work = make_work("snake", None, TINY_SNAKE | dict(settings))
    how = Measuring(seconds=1.0, repeats=1)
    keeper = Keeper("growth", subject_of_job(work.job), vars(how), str(tmp_path), "mine")
    run_growth(work, how, keeper)
    return json.loads((keeper.path / "record.json").read_text()), asked


def test_the_record(tmp_path, monkeypatch):
    record, asked = growth(tmp_path, monkeypatch)
    assert record["complete"] is True
    assert all(task["whole_replay"] for task in asked)
    assert record["rows"][0]["name"] == "as it is"
    assert record["rows"][0]["change"] is None
    assert all(row["change"] == 1.0 for row in record["rows"][1:])
    assert record["bytes_per_row"] == pytest.approx(313)
    assert record["base"]["lanes"] == TINY_SNAKE["actor.lanes"]


def test_a_point_that_does_not_fit_is_left_out_with_a_note(tmp_path, monkeypatch):
    monkeypatch.setattr("fastdqn.run.preflight.free_memory", lambda: 700_000_000)
    record, asked = growth(tmp_path, monkeypatch)
    assert any(note.startswith("replay.capacity=2,000,000 is left out: ") for note in record["notes"])
    assert 2_000_000 not in [task["settings"].get("replay.capacity") for task in asked]


def test_what_a_stored_step_takes_is_the_difference_of_the_replays():
    def row(rows, rss, gpu=None, setting="replay.capacity"):
        return {"setting": setting, "rows_filled": rows, "rss_mb": rss, "gpu_memory_mb": gpu}

    assert bytes_per_row([row(1000, 301.0), row(10_000, 310.0), row(5, 900.0, setting="actor.lanes")]) == 1000
    assert bytes_per_row([row(1000, 300.0, 7.0, setting=""), row(11_000, 300.0, 77.0)]) == 7000
    assert bytes_per_row([row(1000, 300.0)]) is None


@pytest.mark.parametrize("groups", [1, 2])
def test_a_whole_replay_is_filled_to_its_last_row_with_frames_that_were_played(groups, monkeypatch):
    monkeypatch.setattr(probe, "FILLED_ROWS", 300)
    settings = TINY_SNAKE | {"replay.capacity": 40_000, "actor.lanes": 8, "actor.groups": groups, "device": "cpu"}
    job = prepare("snake", settings=settings)
    small, whole = Probe(job.config, job.kind, "cpu"), Probe(job.config, job.kind, "cpu", whole_replay=True)
    for one in (small, whole):
        one.warm_up(0.01)
        one.close()
    assert len(small.parts.replay) < 20_000
    ring = whole.parts.replay.ring
    assert ring.T * 8 == 40_000
    assert (ring.W >= ring.T).all()
    assert len(whole.parts.replay) > 0.99 * 40_000
    assert ring.obs.any(axis=tuple(range(2, ring.obs.ndim))).all(), "no row is empty"
    assert len(np.unique(ring.obs.reshape(40_000, -1), axis=0)) > 50
    assert whole.parts.replay.append.__name__ == "append", "what kept the frames is gone"


def test_a_sweep_over_the_capacity_fills_it(tmp_path, monkeypatch):
    from fastdqn.bench.sweep import named_points, parse_sweep, run_sweep

    asked = []

    def ask(self, task, module="", while_waiting=None):
        asked.append(task)
        return made_up_speed(100.0, 4.0)

    answer_for_children(monkeypatch, ask)
    work = make_work("snake", None, TINY_SNAKE)
    how = Measuring(seconds=1.0, repeats=1)
    for typed, whole in (("replay.capacity=1000,2000", True), ("learner.batch_size=8,16", False)):
        asked.clear()
        keeper = Keeper("sweep", subject_of_job(work.job), vars(how), str(tmp_path), typed.partition("=")[0])
        run_sweep(work, named_points(parse_sweep([typed])), how, keeper)
        assert [task["whole_replay"] for task in asked] == [whole, whole]
