"""`fastdqn bench ...`: bad input is refused in a sentence before anything is measured, and Ctrl-C keeps what there is."""

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from fastdqn.bench.children import Children
from fastdqn.cli import main
from tests.unit.stand_ins import answer_for_children
from tests.unit.tiny import TINY_SNAKE, as_arguments, everything_in

needs_atari = pytest.mark.skipif(importlib.util.find_spec("ale_py") is None, reason="needs ale-py")
TINY = as_arguments({**TINY_SNAKE, "device": "cpu", "learner.threads": 1})
COMMANDS = ["ladder", "sweep", "profile", "envs", "peers", "throughput", "keep"]
DEADLINE = 120.0  # seconds; reached only when something is broken


@pytest.fixture
def cli(capsys):
    """Runs a command in this process; gives its exit code, stdout and stderr."""

    def run(*arguments):
        try:
            code = main(["bench", *arguments])
        except SystemExit as exit_:  # tyro ends the process itself
            code = exit_.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def asked(monkeypatch):
    """The tasks that children would get. No process is started; every speed is 100 steps a second."""
    tasks = []

    def ask(self, task, module="", while_waiting=None):
        tasks.append(task)
        return {
            "steps_per_second": 100.0,
            "windows": [99.0, 101.0],
            "by_the_logs_formula": 200.0,
            "samples_per_step": 4.0,
            "updates_per_second": 25.0,
            "cpu_percent": 100.0,
            "others_cpu_percent": 0.0,
            "gpu_percent": None,
            "rss_mb": 300.0,
            "gpu_memory_mb": None,
            "threads": 1,
            "split": {"env": 0.3, "learn": 0.7},
            "switches": [],
            "details": {},
        }

    answer_for_children(monkeypatch, ask)
    return tasks


@pytest.fixture
def refused(cli, runs, asked):
    """A command that must fail: exit code 2, one sentence without a traceback, nothing measured, the folder as it was."""

    def run(*arguments):
        before = everything_in(runs.parent)
        code, out, err = cli(*arguments)
        assert code == 2, (out, err)
        assert "Traceback" not in out + err
        assert out == ""
        assert err.startswith("fastdqn: ")
        assert len(err.strip().splitlines()) == 1, "one sentence"
        assert asked == [], "something was measured"
        assert everything_in(runs.parent) == before, "something was left behind"
        return err

    return run


def records(runs):
    return [json.loads(path.read_text()) for path in sorted(runs.parent.glob("benchmarks/records/*/record.json"))]


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("command", ["ladder", "profile", "envs", "peers"])
def test_unknown_environment(refused, command):
    if command == "peers" and importlib.util.find_spec("stable_baselines3") is None:
        pytest.skip("needs stable-baselines3")
    assert "Unknown environment 'snaek'. Did you mean snake" in refused(command, "snaek")


def test_unknown_environment_of_a_sweep(refused):
    assert "Did you mean CartPole-v1" in refused("sweep", "CartPol-v1", "learner.batch_size=8,16")


@pytest.mark.parametrize(
    "command", [["ladder", "snake"], ["profile", "snake"], ["envs", "snake"], ["throughput"]], ids=" ".join
)
@pytest.mark.parametrize(
    ("repeats", "says"),
    [
        ("0", "--repeats must be 1 or more, not 0."),
        ("1.5", "--repeats must be a whole number, not '1.5'."),
        ("some", "--repeats must be a number, not 'some'."),
        ("1e999", "--repeats must be a number, not '1e999'."),
    ],
)
def test_how_often(refused, command, repeats, says):
    assert says in refused(*command, "--repeats", repeats)


@pytest.mark.parametrize("command", ["ladder", "profile", "envs"])
@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        ("0", "--seconds must be more than 0, not 0."),
        ("-1", "--seconds must be more than 0, not -1."),
        ("x", "--seconds must be a number, not 'x'."),
        ("nan", "--seconds must be a number, not 'nan'."),
        ("1e999", "--seconds must be a number, not '1e999'."),
    ],
)
def test_how_long(refused, command, seconds, says):
    assert says in refused(command, "snake", "--seconds", seconds)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "What is to be swept?"),
        (["learner.batch_size"], "is no sweep"),
        (["learner.batch_size="], "is no sweep"),
        (["learner.batch_size=32"], "at least two values"),
        (["learner.batch_size=8,16", "learner.lr=0.1"], "the same number of values"),
        (["learner.batch_size=8,0"], "learner.batch_size=0"),
        (["learner.batchsize=8,16"], "learner.batch_size"),
        (["learner.batch_size=8,16", "--repeats", "0"], "--repeats"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_sweeps_that_are_none(refused, arguments, says):
    assert says in refused("sweep", "snake", *arguments)


@pytest.mark.parametrize("lanes", ["0", "8,0", "-1", "1.5", "x", "", "1,,2", "70000"])
def test_lanes_that_are_none(refused, lanes):
    assert "--lanes" in refused("envs", "snake", "--lanes", lanes)


@pytest.mark.parametrize("command", ["ladder", "profile", "envs"])
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--set", "learner.batchsize=3"], "learner.batch_size"),
        (["--set", "learner.batch_size=0"], "learner.batch_size=0"),
        (["--set", "env.dimm=3"], "Did you mean dim"),
        (["--set", "nonsense"], "is not a setting"),
        (["--set", "switches.on=[frame_rings]"], "Unknown switch 'frame_rings'. Did you mean frame_ring"),
        (["--set", "switches.on=[native_atari]"], "does not apply to snake"),
        (["--preset", "snek"], "Unknown preset 'snek'. Did you mean snake"),
        (["--device", "gpu"], "Unknown device 'gpu'"),
        (["--import", "no_such_module"], "--import no_such_module"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_settings_that_are_none(refused, command, arguments, says):
    assert says in refused(command, "snake", *arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--seeds", "0"], "--seeds must be 1 or more"),
        (["--seeds", "1.5"], "--seeds must be a whole number"),
        (["--jobs", "0"], "--jobs must be 1 or more"),
        (["--steps", "0"], "--steps must be 1 or more"),
        (["--steps", "3"], "--steps must be 4 or more"),
        (["--steps", "many"], "--steps must be a number"),
        (["--target", "high"], "--target must be a number"),
        (["--target", "1e999"], "--target must be a number"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_how_learning_is_judged(refused, arguments, says):
    assert says in refused("ladder", "snake", *TINY, "--to-target", *arguments)


@needs_atari
def test_a_target_is_asked_for_where_none_is_known(refused):
    for command in (["ladder", "freeway"], ["sweep", "freeway", "learner.lr=0.1,0.2"]):
        sentence = refused(*command, "--to-target", "--steps", "1000", "--device", "cpu")
        assert "No score is known at which freeway counts as solved: give it with --target." in sentence


@pytest.mark.parametrize("arguments", [["--episodes", "0"], ["--steps", "0"], ["--episodes", "x"], ["--steps", "1.5"]])
def test_games_that_are_none(refused, arguments):
    assert arguments[0] in refused("throughput", *arguments)


def test_runs_that_cannot_be_kept(refused, runs):
    assert "Which runs are to be kept?" in refused("keep")
    assert "There is no run 'nothing'" in refused("keep", "nothing")
    (runs / "early").mkdir(parents=True)
    assert "is not a run" in refused("keep", "early")
    (runs / "early" / "config.yaml").write_text("env_id: snake\nenv: {dim: 5}\n")
    assert "early has no machine.json" in refused("keep", "early")


@pytest.mark.parametrize("command", [["ladder", "snake"], ["throughput"], ["sweep", "snake", "learner.lr=0.1,0.2"]])
def test_a_place_for_the_record_that_is_none(refused, runs, command):
    (runs.parent / "a_file").write_text("")
    assert "a_file is no folder" in refused(*command, "--out", "a_file/records")
    assert "too long" in refused(*command, "--name", "n" * 300)


def test_peers_that_are_not_installed(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    assert "pip install 'fastdqn[peers]'" in refused("peers", "snake")


def test_no_command_and_unknown_command(cli):
    for arguments in ([], ["ladders", "snake"], ["ladder"], ["ladder", "snake", "--wrong-option"]):
        code, out, err = cli(*arguments)
        assert code == 2
        assert "Traceback" not in out + err


# ---------------------------------------------------------------- help


def test_help_of_all(cli):
    code, out, _ = cli("--help")
    assert code == 0
    for command in COMMANDS:
        assert command in out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each(cli, command):
    code, out, _ = cli(command, "--help")
    assert code == 0
    assert f"fastdqn bench {command}" in re.sub(r"\s+", " ", out)
    assert "--name" in out


def test_help_loads_nothing_heavy():
    script = (
        "import sys\nfrom fastdqn.cli import main\n"
        f"for command in {COMMANDS!r}:\n"
        "    try: main(['bench', command, '--help'])\n    except SystemExit as e: assert not e.code\n"
        "    heavy = {'torch', 'numba', 'matplotlib', 'ale_py', 'pydantic', 'stable_baselines3'} & set(sys.modules)\n"
        "    print('HEAVY', sorted(heavy), command)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if line.startswith("HEAVY ")]
    assert told == [f"HEAVY [] {command}" for command in COMMANDS]


# ---------------------------------------------------------------- good paths, the speeds made up


def test_environments_alone(cli, asked, runs):
    code, out, _ = cli("envs", "snake", *TINY, "--lanes", "1, 8", "--repeats", "2", "--seconds", "1k")
    assert code == 0
    (record,) = records(runs)
    assert record["complete"] is True
    assert [(row["lanes"], row["path"], row["steps_per_second"]) for row in record["rows"]] == [
        (1, "fast", 100.0),
        (8, "fast", 100.0),
        (1, "textbook", 100.0),
    ]
    assert [task["lanes"] for task in asked] == [1, 8, 1, 1, 8, 1]
    assert {task["seconds"] for task in asked} == {1000.0}
    assert asked[2]["settings"]["switches.off"] == ["lane_vector_env"]
    assert "8 lanes" in out


def test_an_even_number_of_repeats_has_a_median(cli, runs, monkeypatch):
    speeds = iter([100.0, 300.0])
    answer_for_children(monkeypatch, lambda self, *rest: {"steps_per_second": next(speeds), "windows": [1.0]})
    assert cli("envs", "MountainCar-v0", "--lanes", "1", "--repeats", "2", "--seconds", "1")[0] == 0
    assert records(runs)[0]["rows"][0]["steps_per_second"] == 200.0


def test_throughput(cli, asked, runs):
    code, out, _ = cli("throughput", "--episodes", "7", "--steps", "9", "--repeats", "2", "--name", "log")
    assert code == 0
    assert asked == [{"task": "throughput", "episodes": 7, "steps": 9}] * 2
    (record,) = records(runs)
    assert record["complete"] is True
    assert len(record["rows"]) == 2
    assert "by the log's formula" in out


def test_a_sweep(cli, asked, runs):
    code, out, _ = cli("sweep", "snake", "learner.batch_size=8,16", *TINY, "--repeats", "1", "--seconds", "1")
    assert code == 0
    (record,) = records(runs)
    assert [row["value"] for row in record["rows"]] == ["batch_size=8", "batch_size=16"]
    assert [task["settings"]["learner.batch_size"] for task in asked] == [8, 16]
    assert "batch_size=16" in out
    assert "The rows differ in samples per step" in out


def test_a_profile(cli, asked, runs):
    code, out, _ = cli("profile", "snake", *TINY, "--repeats", "1", "--seconds", "1")
    assert code == 0
    assert "70% of the time is 'learn'." in out
    assert "random actions" in out
    assert records(runs)[0]["complete"] is True


def test_runs_are_kept(cli, trained, runs):
    code, out, _ = cli("keep", str(trained.path), "--name", "tiny", "--out", "mine")
    assert code == 0
    (path,) = runs.parent.glob("mine/*-tiny/record.json")
    assert json.loads(path.read_text())["rows"][0]["mean"] == pytest.approx(trained.score.mean, rel=1e-5)
    assert f"record  {path.parent.relative_to(runs.parent)}" in out


def test_settings_reach_the_measuring_process(cli, asked, runs):
    assert (
        cli("profile", "snake", *TINY, "--preset", "default", "--set", "seed=7", "--seconds", "1", "--repeats", "1")[0] == 0
    )
    for task in asked:
        assert (task["env"], task["preset"], task["seconds"]) == ("snake", "default", 1.0)
        assert task["settings"]["seed"] == 7
        assert task["settings"]["env.dim"] == 5
        assert task["settings"]["device"] == "cpu"


def test_ctrl_c_inside(cli, asked, runs, monkeypatch):
    """What was measured so far is shown and kept, and the exit code is what shells expect."""
    answer = Children.ask

    def ask_twice(self, task, *rest):
        if len(asked) == 2:
            raise KeyboardInterrupt
        return answer(self, task, *rest)

    monkeypatch.setattr(Children, "ask", ask_twice)
    code, out, err = cli("sweep", "snake", "learner.batch_size=8,16,32", *TINY, "--repeats", "2", "--seconds", "1")
    assert code == 130
    assert "stopped; what was measured so far:" in err
    assert "batch_size=16" in out
    assert "batch_size=32" not in out
    assert "stopped before the end" in out
    (record,) = records(runs)
    assert record["complete"] is False
    assert [row["value"] for row in record["rows"]] == ["batch_size=8", "batch_size=16"]


# ---------------------------------------------------------------- for real


def measured_rows(folder):
    return [
        row
        for path in folder.glob("records/*/record.json")
        for row in json.loads(path.read_text())["rows"]
        if "steps_per_second" in row
    ]


def until(condition, what):
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {DEADLINE:.0f} s")


def gone(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return True


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_measured_and_leaves_no_process(tmp_path):
    command = [sys.executable, "-m", "fastdqn", "bench", "ladder", "snake", *TINY, "--seconds", "1", "--repeats", "1"]
    process = subprocess.Popen(
        [*command, "--out", "records", "--name", "mine"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell may have made the tests deaf to it
    )
    family = []
    try:
        until(lambda: measured_rows(tmp_path) or process.poll() is not None, "a first row")
        # The next measurement is under way: there is a child to leave behind
        family = until(lambda: psutil.Process(process.pid).children(recursive=True), "a second measurement")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE)
        assert all(map(gone, family)), "ended with the command, not when it was done with its measurement"
    finally:
        for each in [process, *family]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "stopped; what was measured so far:" in err
    assert "textbook" in out
    (path,) = tmp_path.glob("records/*-mine/record.json")
    record = json.loads(path.read_text())
    assert record["complete"] is False
    rows = measured_rows(tmp_path)
    assert len(rows) >= 1
    assert rows[0]["rung"] == "textbook"
    assert rows[0]["speeds"][0]["updates"] > 0
    assert record["command"].startswith("fastdqn bench ladder snake --set env.dim=5 ")


@pytest.mark.slow
@pytest.mark.alone
def test_small_measurements_for_real(cli, runs):
    assert cli("throughput", "--episodes", "5", "--steps", "30", "--name", "throughput")[0] == 0
    assert cli("envs", "snake", *TINY, "--lanes", "1,4", "--seconds", "0.4", "--repeats", "1", "--name", "envs")[0] == 0
    assert cli("profile", "snake", *TINY, "--seconds", "0.3", "--repeats", "1", "--name", "profile")[0] == 0
    by_name = {record["kind"]: record for record in records(runs)}
    assert all(record["complete"] for record in by_name.values())
    (row,) = by_name["throughput"]["rows"]
    assert 0 < row["steps"] <= 150
    assert row["updates"] > 0
    assert row["by_the_logs_formula"] >= row["steps_per_second"] > 0
    assert all(row["steps_per_second"] > 0 for row in by_name["envs"]["rows"])
    rows = {row["part"]: row for row in by_name["profile"]["rows"]}
    assert rows["nothing left out"]["updates_per_second"] > 0
    assert rows["updates"]["updates_per_second"] == 0
    assert rows["updates"]["share"] > 0.2


@pytest.mark.slow
def test_a_sweep_to_a_target_for_real(cli, runs):
    """Trained by two processes at a time, judged against the first value."""
    arguments = ["--to-target", "--seeds", "2", "--jobs", "2", "--steps", "600", "--target", "4", "--learning-only"]
    code, out, _ = cli("sweep", "snake", "learner.lr=1e-3,1e-2", *TINY, *arguments)
    assert code == 0
    (record,) = records(runs)
    assert [row["learning_verdict"] == "reference" for row in record["rows"]] == [True, False]
    for row in record["rows"]:
        assert row["learning"]["updates"] > 0
        assert row["learning"]["seeds"] == 2
        assert row["minutes_to_target"] is None
        assert row["learning_verdict"] in out
    lines = next(runs.parent.glob("benchmarks/records/*/metrics.jsonl")).read_text().splitlines()
    assert {(json.loads(line)["rung"], json.loads(line)["seed"]) for line in lines} == {
        (name, seed) for name in ("lr=0.001", "lr=0.01") for seed in (0, 1)
    }
