"""Records: saved row by row, never written over, valid JSON, small; and finished runs turned into one."""

import io
import json
import math
import shlex
import shutil
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fastdqn.bench import table
from fastdqn.bench.identity import Subject, env_name, subject_of_job
from fastdqn.bench.keep import find_runs, keep_runs
from fastdqn.bench.record import POINTS_PER_CURVE, Keeper, command_line, rounded, thinned
from fastdqn.errors import UserError
from fastdqn.prepare import prepare
from tests.unit.tiny import TINY_SNAKE, everything_in, train_tiny


@pytest.fixture(scope="module")
def about() -> Subject:
    return subject_of_job(prepare("snake", settings=TINY_SNAKE))


@pytest.fixture
def keeper(about, tmp_path):
    return lambda name="mine": Keeper("ladder", about, {"seconds": 1.0}, str(tmp_path / "records"), name)


def read(keeper):
    return json.loads((keeper.path / "record.json").read_text())


# ---------------------------------------------------------------- the keeper


def test_nothing_is_written_before_there_is_something_to_keep(keeper, tmp_path):
    keeper()
    assert everything_in(tmp_path) == []


def test_saved_after_every_row_and_complete_only_at_the_end(keeper):
    kept = keeper()
    for count in (1, 2, 3):
        kept.record["rows"].append({"rung": str(count)})
        kept.save()
        assert [row["rung"] for row in read(kept)["rows"]] == [str(number + 1) for number in range(count)]
        assert read(kept)["complete"] is False
    kept.finish()
    assert read(kept)["complete"] is True
    assert len(read(kept)["rows"]) == 3


def test_a_record_says_what_on_which_machine_by_which_command(keeper, about):
    kept = keeper()
    kept.finish()
    record = read(kept)
    assert record["version"] == 1
    assert (record["kind"], record["env_id"], record["device"]) == ("ladder", "snake", about.device)
    assert record["title"] == "The ladder on Snake 5x5"
    assert record["id"] == kept.path.name
    assert record["config"]["learner"]["batch_size"] == 16
    assert record["switches"] == about.switches
    assert record["machine"]["versions"]["torch"]
    assert record["command"]
    assert record["date"].startswith(record["id"][:10])
    assert record["measuring"] == {"seconds": 1.0}


def test_a_record_is_never_written_over(keeper):
    first, texts = keeper(), {}
    first.finish()
    for suffix in ("-2", "-3"):
        again = keeper()
        assert again.path.name == first.path.name + suffix
        again.record["rows"] = [{"rung": suffix}]
        texts = {path: path.read_text() for path in first.path.parent.rglob("*.json")}
        again.finish()
        assert read(again)["id"] == again.path.name
    for path, text in texts.items():
        assert path.read_text() == text
    assert sorted(path.name for path in first.path.parent.iterdir()) == [first.path.name + end for end in ("", "-2", "-3")]


def test_two_measurements_at_the_same_time_do_not_share_a_record(keeper):
    """Both were begun before either of them saved."""
    first, second = keeper(), keeper()
    first.record["rows"], second.record["rows"] = [{"rung": "first"}], [{"rung": "second"}]
    for kept in (first, second, first, second):
        kept.save()
    assert (read(first)["rows"][0]["rung"], read(second)["rows"][0]["rung"]) == ("first", "second")
    assert first.path != second.path
    assert read(second)["id"] == second.path.name


def test_a_folder_that_cannot_be_written_is_refused_at_once(about, tmp_path):
    """Not after the first measurement."""
    (tmp_path / "a_file").write_text("")
    for folder in ("a_file", "a_file/below"):
        with pytest.raises(UserError, match="a_file"):
            Keeper("ladder", about, {}, str(tmp_path / folder))
    with pytest.raises(UserError, match="too long"):
        Keeper("ladder", about, {}, str(tmp_path), "n" * 300)


def test_names_are_plain(about, tmp_path):
    assert Keeper("ladder", about, {}, str(tmp_path), "A b/../C!").path.name[10:] == "-a-b-c"
    assert Keeper("sweep", about, {}, str(tmp_path)).path.name[10:] == "-sweep-snake"


def test_curves_are_saved_beside_the_record(keeper):
    kept = keeper()
    kept.save()
    assert not (kept.path / "metrics.jsonl").exists()
    kept.curves = [{"rung": "textbook", "seed": 0, "step": step, "score": step / 3} for step in range(500)]
    kept.save()
    lines = [json.loads(line) for line in (kept.path / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == POINTS_PER_CURVE
    assert lines[1]["score"] == rounded(lines[1]["step"] / 3)
    assert everything_in(kept.path) == ["metrics.jsonl", "record.json"], "no half-written file is left"


@pytest.mark.parametrize(
    ("env", "settings", "name"),
    [("snake", {"env.dim": 6}, "Snake 6x6"), ("CartPole-v1", {}, "CartPole-v1"), ("catch", {}, "Catch")],
)
def test_what_an_environment_is_called(env, settings, name):
    assert env_name(prepare(env, settings=settings).config) == name


# ---------------------------------------------------------------- numbers


def test_six_digits():
    assert rounded(1234.56789) == 1234.57
    assert rounded(1 / 3) == 0.333333
    assert rounded(1.23456789e-9) == 1.23457e-9
    assert rounded(12345678) == 12345678, "a count stays as it is"
    assert rounded({"a": [1.00000001, (2.0, None, True, "x")]}) == {"a": [1.0, [2.0, None, True, "x"]]}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(values)
def test_whatever_was_measured_is_valid_json(value):
    def forbidden(name):
        raise AssertionError(f"{name} is not JSON")

    text = json.dumps(rounded(value))
    assert json.loads(text, parse_constant=forbidden) == rounded(value)
    assert rounded(rounded(value)) == rounded(value)


@given(st.floats())
def test_rounding_keeps_the_number_or_says_that_there_is_none(value):
    if math.isfinite(value):
        assert rounded(value) == pytest.approx(value, rel=5.1e-6, abs=5e-324)
    else:
        assert rounded(value) is None


@given(st.lists(st.integers(1, 400), min_size=1, max_size=4), st.integers(0, 1))
def test_curves_are_thinned_run_by_run(lengths, seed):
    points = [{"rung": str(run), "seed": seed, "step": step} for run, length in enumerate(lengths) for step in range(length)]
    kept = thinned(points)
    for run, length in enumerate(lengths):
        steps = [point["step"] for point in kept if point["rung"] == str(run)]
        assert len(steps) == min(length, POINTS_PER_CURVE)
        assert (steps[0], steps[-1]) == (0, length - 1)
        assert steps == sorted(set(steps))
        gaps = [after - before for before, after in pairwise(steps)]
        assert not gaps or max(gaps) <= min(gaps) + 1, "evenly spread"


def test_the_same_rung_with_another_seed_is_another_curve():
    points = [{"rung": "a", "seed": seed, "step": step} for step in range(100) for seed in range(3)]
    assert len(thinned(points)) == 3 * POINTS_PER_CURVE


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize("program", ["bin/fastdqn", "fastdqn", "site-packages/fastdqn/__main__.py"])
def test_the_command_can_be_typed_again(monkeypatch, program):
    words = ["bench", "sweep", "snake", "network.hidden=[64],[256,256]", "--name", "two words", "it's", "", "$x", '"a";b']
    monkeypatch.setattr(sys, "argv", [program, *words])
    line = command_line()
    assert shlex.split(line) == ["fastdqn", *words]
    assert line.startswith("fastdqn bench sweep snake network.hidden=[64],[256,256] --name 'two words' ")


def test_where_the_record_went_is_no_part_of_the_command(monkeypatch):
    monkeypatch.setattr(
        "sys.argv", ["fastdqn", "bench", "envs", "--out", "/some/place", "snake", "--out=there", "--seconds", "2"]
    )
    assert command_line() == "fastdqn bench envs snake --seconds 2"


# ---------------------------------------------------------------- bench keep


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    return [train_tiny(run=str(folder / f"seed{seed}"), seed=seed) for seed in (3, 4)]


def keep(names, folder, name="mine"):
    runs, about = find_runs([str(name) for name in names])
    kept = Keeper("run", about, {"runs": len(runs)}, str(folder), name)
    keep_runs(runs, kept)
    return kept


def test_runs_become_a_record(two_runs, tmp_path):
    kept = keep([run.path for run in two_runs], tmp_path)
    record = read(kept)
    assert record["complete"] is True
    assert (record["kind"], record["title"], record["protocol"]) == ("run", "Runs on Snake 5x5", two_runs[0].score.protocol)
    assert record["machine"]["versions"]
    assert "run" not in record["machine"], "what was decided for the run stands in device and switches"
    assert record["device"] == "cpu"
    assert "no_grad" in record["switches"]
    for row, run, seed in zip(record["rows"], two_runs, (3, 4), strict=True):
        assert (row["run"], row["seed"]) == (f"seed{seed}", seed)
        assert row["mean"] == pytest.approx(run.score.mean, rel=1e-5)
        assert row["median"] == pytest.approx(run.score.median, rel=1e-5)
        assert row["interval"] == pytest.approx(list(run.score.interval), rel=1e-5)
        assert (row["steps"], row["updates"]) == (run.steps, run.updates)
        assert row["updates"] > 0
        assert row["samples_per_step"] == pytest.approx(4.0, rel=0.1), "the warm-up does not count"
        assert row["steps_per_second"] > 0
        assert row["minutes"] > 0
        assert row["episodes"] == 4
    curves = [json.loads(line) for line in (kept.path / "metrics.jsonl").read_text().splitlines()]
    assert {(point["rung"], point["seed"]) for point in curves} == {("seed3", 3), ("seed4", 4)}
    assert all(point["score"] is not None for point in curves)


def test_a_run_with_brackets_in_its_name_is_shown_as_it_is(trained, tmp_path):
    copy = tmp_path / "[red]x"
    shutil.copytree(trained.path, copy)
    kept = keep([copy], tmp_path)
    shown = io.StringIO()
    table.show(kept.record, Console(file=shown))
    assert "[red]x" in shown.getvalue()


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [("env_id: snake", "env_id: fastdqn/Catch-v0", "Catch, Snake 5x5"), ("dim: 5", "dim: 6", "Snake 5x5, Snake 6x6")],
)
def test_runs_of_different_environments_are_refused(trained, tmp_path, was, becomes, says):
    other = tmp_path / "other"
    shutil.copytree(trained.path, other)
    config = (other / "config.yaml").read_text()
    assert was in config
    (other / "config.yaml").write_text(config.replace(was, becomes))
    with pytest.raises(UserError, match=rf"different environments \({says}\)"):
        keep([trained.path, other], tmp_path)
    assert not list(tmp_path.glob("*mine"))


def test_a_run_without_an_evaluation_is_refused(two_runs, tmp_path):
    unseen = train_tiny(run=str(tmp_path / "unseen"), settings={"evaluator.at_end": False})
    for names in ([unseen.path], [two_runs[0].path, unseen.path]):
        with pytest.raises(UserError, match="unseen has no metrics or no evaluation yet"):
            keep(names, tmp_path)
    assert not list(tmp_path.glob("*mine"))


@pytest.mark.parametrize("missing", ["metrics.jsonl", "machine.json", "evaluations"])
def test_a_run_that_lacks_a_file_is_refused_with_a_sentence(trained, tmp_path, missing):
    copy = tmp_path / "half"
    shutil.copytree(trained.path, copy, ignore=shutil.ignore_patterns(missing))
    with pytest.raises(UserError, match="half has no"):
        keep([copy], tmp_path)


def test_no_run_and_a_missing_run(runs):
    with pytest.raises(UserError, match="Which runs"):
        find_runs([])
    with pytest.raises(UserError, match="There is no run 'nothing'"):
        find_runs(["nothing"])
