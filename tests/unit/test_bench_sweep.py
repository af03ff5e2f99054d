"""A sweep: what is typed, what is refused before anything is measured, and what is said of rows that learn less."""

import json

import pytest

from fastdqn.bench.clock import Speed
from fastdqn.bench.conduct import Measuring
from fastdqn.bench.identity import subject_of_job
from fastdqn.bench.profile import LEFT_OUT
from fastdqn.bench.record import Keeper
from fastdqn.bench.sweep import ALONE, name_of, named_points, parse_sweep, read_rows, run_sweep
from fastdqn.bench.work import make_work
from fastdqn.errors import UserError
from tests.unit.stand_ins import answer_for_children
from tests.unit.tiny import TINY_SNAKE, everything_in

# ---------------------------------------------------------------- what is typed


@pytest.mark.parametrize(
    ("typed", "points"),
    [
        (["learner.batch_size=32,64"], [{"learner.batch_size": 32}, {"learner.batch_size": 64}]),
        (["learner.batch_size=1k, 2_000,1e4"], [{"learner.batch_size": n} for n in (1000, 2000, 10_000)]),
        (["learner.lr=1e-3,0.5"], [{"learner.lr": 0.001}, {"learner.lr": 0.5}]),
        (["learner.double=true,false"], [{"learner.double": True}, {"learner.double": False}]),
        (["network.hidden=[64],[256,256]"], [{"network.hidden": [64]}, {"network.hidden": [256, 256]}]),
        (["network.kind=mlp,cnn"], [{"network.kind": "mlp"}, {"network.kind": "cnn"}]),
        (["learner.lr_end=null,0"], [{"learner.lr_end": None}, {"learner.lr_end": 0}]),
        (["switches.off=[],[no_grad]"], [{"switches.off": []}, {"switches.off": ["no_grad"]}]),
        ([" seed =1,2"], [{"seed": 1}, {"seed": 2}]),
        (
            ["learner.steps_per_update=1,2,4", "learner.batch_size=32,64,128"],
            [{"learner.steps_per_update": n, "learner.batch_size": 32 * n} for n in (1, 2, 4)],
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value[0], str) else "",
)
def test_values_as_they_are_typed(typed, points):
    parsed = parse_sweep(typed)
    assert parsed == points
    assert [list(map(type, point.values())) for point in parsed] == [list(map(type, point.values())) for point in points]


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["learner.batch_size"], "'learner.batch_size' is no sweep"),
        (["learner.batch_size="], "is no sweep"),
        (["=1,2"], "is no sweep"),
        (["learner.batch_size=32"], "at least two values"),
        (["learner.batch_size=32,"], "at least two values"),
        (["learner.batch_size=[32,64"], "cannot be read"),
        (["learner.batch_size=1],[2"], "cannot be read"),
        (["a=1,2", "b=1,2,3"], "the same number of values"),
        (["a=1,2", "a=3,4"], "'a' is given twice"),
        (["learner.batch_size=32,64,32"], "batch_size=32 is given twice"),
        (["learner.lr=1e-3,0.001"], "lr=0.001 is given twice"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_fault_is_told_in_a_sentence(typed, says):
    with pytest.raises(UserError, match=says) as fault:
        parse_sweep(typed)
    assert str(fault.value).endswith(".")


def test_names_of_rows():
    assert name_of({"learner.batch_size": 32}) == "batch_size=32"
    assert name_of({"network.hidden": [256, 256], "learner.double": True}) == "hidden=[256,256], double=true"


# ---------------------------------------------------------------- a whole sweep with made-up speeds


def made_up_speed(steps_per_second, samples_per_step):
    return Speed(
        steps_per_second=steps_per_second,
        updates_per_second=samples_per_step * steps_per_second / 16,
        samples_per_step=samples_per_step,
        steps=1000,
        updates=int(samples_per_step * 1000 / 16),
        seconds=1.0,
        windows=[steps_per_second * share for share in (0.99, 1.0, 1.01)],
        cpu_percent=100.0,
        others_cpu_percent=0.0,
        gpu_percent=None,
        rss_mb=300.0,
        gpu_memory_mb=None,
        startup_seconds=1.0,
        warmup_seconds=1.0,
        device="cpu",
        threads=1,
        switches=["no_grad"],
    ).as_json()


@pytest.fixture
def asked(monkeypatch):
    """Tasks as the children would get them; no process is started. The answers follow from the settings."""
    tasks = []

    def ask(self, task, module="", while_waiting=None):
        tasks.append(task)
        learner = {key.removeprefix("learner."): value for key, value in task["settings"].items()}
        samples_per_step = learner["batch_size"] / learner["steps_per_update"]
        share = 0.996 if learner["batch_size"] > 16 else 1.004  # a stretch seldom holds whole cycles only
        return made_up_speed(6400 / learner["batch_size"], share * samples_per_step)

    answer_for_children(monkeypatch, ask)
    return tasks


def sweep(typed, tmp_path, settings=(), **measuring):
    points = parse_sweep(typed)
    work = make_work("snake", None, {**TINY_SNAKE, **dict(settings), **points[0]})
    how = Measuring(seconds=1.0, repeats=2, **measuring)
    keeper = Keeper("sweep", subject_of_job(work.job), vars(how), str(tmp_path), "mine")
    run_sweep(work, named_points(points), how, keeper)
    return json.loads((keeper.path / "record.json").read_text())


def test_rows_are_compared_with_the_first_value(asked, tmp_path):
    record = sweep(["learner.batch_size=32,64,16"], tmp_path)
    assert record["complete"] is True
    rows = record["rows"]
    assert [row["value"] for row in rows] == ["batch_size=32", "batch_size=64", "batch_size=16"]
    assert [row["steps_per_second"] for row in rows] == [200, 100, 400]
    assert [row["change"] for row in rows] == [None, 0.5, 2.0]
    assert [row["speed_verdict"] for row in rows] == ["not measured", "slower", "faster"]
    assert [row["settings"] for row in rows] == [{"learner.batch_size": size} for size in (32, 64, 16)]
    assert [row["learning_verdict"] for row in rows] == ["not measured"] * 3
    assert [len(row["speeds"]) for row in rows] == [2, 2, 2]
    order = [task["settings"]["learner.batch_size"] for task in asked]
    assert order == [32, 64, 16, 16, 64, 32], "every round measures all of them, the order turned around"


def test_the_environment_alone_is_a_row_of_its_own(asked, tmp_path):
    record = sweep(["learner.batch_size=32,64"], tmp_path, alone=True)
    assert [row["value"] for row in record["rows"]] == ["batch_size=32", "batch_size=64", ALONE]
    alone = [task for task in asked if task.get("without")]
    assert len(alone) == 2, "one a round"
    assert all(task["settings"]["learner.batch_size"] == 32 for task in alone), "as in the first row"
    assert record["rows"][-1]["change"] == 1.0
    assert all(task["without"] in LEFT_OUT for task in alone)


def test_rows_that_learn_less_a_step_get_a_note(asked, tmp_path):
    record = sweep(["learner.batch_size=16,32"], tmp_path)
    assert len(record["notes"]) == 1
    assert "samples per step" in record["notes"][0]


def test_rows_of_the_same_work_get_no_note(asked, tmp_path):
    """4 samples a step each; the measured numbers differ by a share of a percent, as they do."""
    record = sweep(["learner.steps_per_update=4,8", "learner.batch_size=16,32"], tmp_path)
    assert [row["samples_per_step"] for row in record["rows"]] == [4.016, 3.984]
    assert record["notes"] == []


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["learner.batch_size=16,32,0"], "learner.batch_size=0"),
        (["learner.batchsize=16,32"], "learner.batch_size"),
        (["network.hidden=[64],[0]"], "network.hidden"),
        (["env.dim=5,1"], "dim"),
        (["switches.off=[],[frame_rings]"], "frame_ring"),
    ],
)
def test_a_wrong_value_is_refused_before_anything_is_measured(asked, tmp_path, typed, says):
    with pytest.raises(UserError, match=says):
        sweep(typed, tmp_path)
    assert asked == []
    assert everything_in(tmp_path) == []


# ---------------------------------------------------------------- rows from a file


def test_rows_of_a_file_have_their_names_and_values(tmp_path):
    file = tmp_path / "rows.yaml"
    file.write_text("as it is: {actor.lanes: 1}\nthree: {actor.lanes: 3, replay.capacity: 20k, switches.off: [bf16]}\n")
    assert read_rows(str(file)) == {
        "as it is": {"actor.lanes": 1},
        "three": {"actor.lanes": 3, "replay.capacity": 20_000, "switches.off": ["bf16"]},
    }


@pytest.mark.parametrize("text", ["", "one: {a: 1}", "[1, 2]", "a: 1\nb: 2", "a: {b: [", "\0"])
def test_a_file_that_is_no_table_is_refused(tmp_path, text):
    file = tmp_path / "rows.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=r"rows\.yaml"):
        read_rows(str(file))
    with pytest.raises(UserError, match="cannot be read"):
        read_rows(str(tmp_path / "none.yaml"))


def test_the_chapters_table_is_one_that_can_be_measured():
    """The file behind the record of logs 001 and 002: six rows of the same samples per step."""
    rows = read_rows("benchmarks/rows/chapter.yaml")
    assert len(rows) == 6
    jobs = [make_work("catch", None, settings).job for settings in rows.values()]
    assert {job.config.samples_per_step for job in jobs} == {4.0}
    assert [job.config.runner for job in jobs].count("processes") == 2
    assert sorted("no_grad" in job.switches for job in jobs) == [False] + [True] * 5
