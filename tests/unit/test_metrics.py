"""The rows of metrics.jsonl, on a clock that only moves when told to."""

import json

import pytest

from fastdqn import metrics
from fastdqn.metrics import SECTIONS, JsonlSink, Meter, Timers, read_rows

COUNTERS = {"seconds", "step", "frame", "update", "episode", "return_mean", "score_mean", "epsilon", "loss", "q_mean"}
RATES = {"steps_per_second", "updates_per_second", "samples_per_step"}
SPLIT = {"env_seconds", "act_seconds", "store_seconds", "sample_seconds", "learn_seconds", "other_seconds"}


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    def pass_(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(metrics.time, "perf_counter", made)
    return made


@pytest.fixture
def timers():
    return Timers()


@pytest.fixture
def meter(clock, timers):
    made = Meter(timers, frame_skip=4, batch_size=32, window_episodes=3)
    clock.pass_(50)  # building the parts takes long, and counts for nothing
    made.start()
    return made


def work(clock, timers, **seconds):
    for name, amount in seconds.items():
        with timers[name]:
            clock.pass_(amount)


def row(meter, step, update=0):
    return meter.row(step, update, epsilon=0.5, loss=None, q_mean=None)


def split_of(line):
    return {name: line[f"{name}_seconds"] for name in (*SECTIONS, "other")}


def test_every_key_is_there(meter, clock):
    clock.pass_(1)
    assert set(row(meter, 10)) >= COUNTERS | RATES | SPLIT
    assert list(row(meter, 20))[:3] == ["seconds", "step", "frame"]


def test_counters_are_totals_and_rates_are_since_the_last_row(meter, clock):
    clock.pass_(2)
    first = row(meter, 100, 10)
    clock.pass_(5)
    second = row(meter, 600, 60)
    assert (first["seconds"], second["seconds"]) == (2, 7)
    assert (first["steps_per_second"], second["steps_per_second"]) == (50, 100)
    assert (first["updates_per_second"], second["updates_per_second"]) == (5, 10)
    assert (second["step"], second["update"]) == (600, 60)
    assert (first["frame"], second["frame"]) == (400, 2400)
    assert second["epsilon"] == 0.5


def test_samples_per_step(meter, clock):
    clock.pass_(1)
    assert row(meter, 100, 0)["samples_per_step"] == 0
    clock.pass_(1)
    assert row(meter, 140, 10)["samples_per_step"] == 32 * 10 / 40
    clock.pass_(1)
    assert row(meter, 140, 12)["samples_per_step"] == 0, "no step was made: nothing to divide by"


def test_the_split_sums_to_the_time_that_passed(meter, clock, timers):
    work(clock, timers, env=1, act=0.5, store=0.25, sample=0.125, learn=2)
    clock.pass_(0.625)
    first = row(meter, 10)
    assert split_of(first) == {"env": 1, "act": 0.5, "store": 0.25, "sample": 0.125, "learn": 2, "other": 0.625}
    assert sum(split_of(first).values()) == first["seconds"] == 4.5
    work(clock, timers, env=3)
    second = row(meter, 20)
    assert split_of(second) == {"env": 3, "act": 0, "store": 0, "sample": 0, "learn": 0, "other": 0}


def test_evaluation_counts_into_no_rate(meter, clock, timers):
    work(clock, timers, env=2)
    clock.pass_(100)
    meter.eval_seconds += 100
    line = row(meter, 50, 4)
    assert line["steps_per_second"] == 25
    assert line["updates_per_second"] == 2
    assert line["other_seconds"] == 0
    assert line["eval_seconds"] == 100
    assert line["seconds"] == 102, "the run itself did take that long"
    clock.pass_(2)
    after = row(meter, 60)
    assert (after["steps_per_second"], after["eval_seconds"]) == (5, 0)


def test_means_are_over_the_last_games(meter, clock):
    clock.pass_(1)
    assert (row(meter, 1)["return_mean"], row(meter, 2)["score_mean"]) == (None, None)
    for i in range(5):
        meter.add_game(returns=float(i), score=10.0 * i)
    line = row(meter, 3)
    assert (line["episode"], line["return_mean"], line["score_mean"]) == (5, 3, 30)


def test_a_row_without_time_is_finite(meter):
    line = row(meter, 5)
    assert line["steps_per_second"] > 0
    json.dumps(line, allow_nan=False)


def test_state_goes_on_where_it_was(meter, clock, timers):
    clock.pass_(3)
    for i in (1, 3):
        meter.add_game(i, i)
    meter.eval_seconds += 1
    row(meter, 100, 10)
    saved = json.loads(json.dumps(meter.state()))

    clock.pass_(1000)
    again = Meter(Timers(), 4, 32, 3)
    again.add_game(99, 99)  # what it did before is forgotten
    again.load_state(saved)
    clock.pass_(2)
    line = row(again, 120, 12)
    assert line["seconds"] == 5
    assert line["steps_per_second"] == 10
    assert (line["episode"], line["return_mean"], line["eval_seconds"]) == (2, 2, 0)


# ---------------------------------------------------------------- timers


def test_timers_add_up_and_are_made_once(clock):
    timers = Timers()
    work(clock, timers, env=1)
    work(clock, timers, env=2)
    assert timers["env"].seconds == 3
    assert timers["env"] is timers["env"]
    assert timers["never"].seconds == 0


def test_a_timer_counts_time_that_ended_in_a_fault(clock):
    def fail():
        clock.pass_(4)
        raise RuntimeError

    timers = Timers()
    with pytest.raises(RuntimeError), timers["env"]:
        fail()
    assert timers["env"].seconds == 4


# ---------------------------------------------------------------- jsonl


def test_rows_are_on_disk_at_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    sink = JsonlSink(path)
    sink.write({"step": 1, "loss": None})
    assert path.read_text() == '{"step": 1, "loss": null}\n', "before it is closed"
    sink.write({"step": 2, "loss": 0.5})
    sink.close()
    assert read_rows(path) == [{"step": 1, "loss": None}, {"step": 2, "loss": 0.5}]


@pytest.mark.parametrize("torn", ['{"step": 3, "lo', "{", '{"step": 3', ""])
def test_a_torn_last_line_is_left_out(tmp_path, torn):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n' + torn)
    assert read_rows(path) == [{"step": 1}, {"step": 2}]


def test_an_empty_file_has_no_rows(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("")
    assert read_rows(path) == []


def test_a_loss_that_ran_away_is_written_as_null(tmp_path):
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    sink.write({"step": 1, "loss": float("nan"), "q_mean": float("inf"), "return_mean": None})
    sink.close()
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1, "loss": null, "q_mean": null, "return_mean": null}\n'
