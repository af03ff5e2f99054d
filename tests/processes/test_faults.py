"""Drills: roles that are killed, raise or hang, signals at every moment, a parent that vanishes.

Every run is a program of its own in a session of its own, so whatever it leaves behind is found by the session's number.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from safetensors.numpy import load_file

from fastdqn.cli import INTERRUPTED_EXIT, TERMINATED_EXIT
from tests.processes import leftovers
from tests.unit.tiny import TINY, as_arguments

pytestmark = pytest.mark.alone

ROOT = Path(__file__).parents[2]
SECONDS = 60  # for anything to come about; all of it takes a few
# One thread, and nothing that is compiled: roles are born quickly, and a heartbeat of a few seconds suffices
SETTINGS = {**TINY, "learner.threads": 1, "processes.first_heartbeat_seconds": 45}
OFF = "compiled_draw,lane_vector_env"
WATCHED = {"processes.heartbeat_seconds": 3}
ALONE = {"evaluator.at_end": False}  # without an evaluator
ENDLESS = 10_000_000  # steps


class Drill:
    """A run in its own session. `pace` says how many seconds a step takes in which role, until `go`."""

    def __init__(self, folder, command, pace=(), variables=(), piped=False):
        self.folder, self.run = folder, folder / "runs" / "drill"
        drill = {"folder": str(folder), "pace": dict(pace), **dict(variables)}
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        own = {"DRILL": json.dumps(drill), "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        own |= {"PYTHONDONTWRITEBYTECODE": ""}  # what is compiled once saves every role a quarter of its birth
        self.said, self.complained = folder / "stdout", folder / "stderr"
        with self.said.open("w") as out, self.complained.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                cwd=folder,
                env=os.environ | own,
                stdout=subprocess.PIPE if piped else out,
                stderr=err,
                start_new_session=True,
            )

    def until(self, condition, what, seconds=SECONDS):
        """Waits for the condition and gives its value; fails at once when the run has ended without it."""
        ends = time.monotonic() + seconds
        while True:
            ended = self.process.poll() is not None
            if value := condition():
                return value
            assert not ended, f"{what}: the run has ended before\n{self.everything_said()}"
            assert time.monotonic() < ends, f"{what}: not within {seconds} s\n{self.everything_said()}"
            time.sleep(0.02)

    def exit_code(self, seconds=SECONDS):
        """Of the run when it has ended and left nobody behind."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the run has not ended within {seconds} s\n{self.everything_said()}")
        self.nobody_left(10)
        return code

    def nobody_left(self, seconds):
        ends = time.monotonic() + seconds
        while left := self.living():
            assert time.monotonic() < ends, f"left behind: {[psutil.Process(pid).cmdline() for pid in left]}"
            time.sleep(0.02)

    def living(self):
        """Processes of the session. A zombie counts as gone: there may be nobody who takes note of its end."""
        return [pid for pid in psutil.pids() if session_of(pid) == self.process.pid and lives(pid)]

    def close(self):
        for pid in self.living():
            signal_if_alive(pid, signal.SIGKILL)
        self.process.wait()

    def everything_said(self):
        files = (self.said, self.complained, self.run / "roles.log")
        return "\n".join(f"{file.name}:\n{file.read_text()[-3000:]}" for file in files if file.exists())

    def roles(self):
        """name -> pid; empty before there are any, and after."""
        try:
            return json.loads((self.run / "roles.json").read_text())
        except FileNotFoundError:
            return {}

    def born(self, *names):
        """The pids of these roles as soon as they are there."""
        return self.until(lambda: (roles := self.roles()) and set(names) <= set(roles) and roles, f"{names} are born")

    def played(self, name):
        """The pid of a role that has played a step in this life."""

        def pid_of_player():
            pid = self.roles().get(name)
            return pid if pid and (self.folder / f"played-{pid}").exists() else None

        return self.until(pid_of_player, f"{name} plays")

    def replaced(self, name, pid):
        """The pid of its successor."""
        return self.until(lambda: (new := self.roles().get(name)) and new != pid and new, f"{name} is replaced")

    def kill(self, pid):
        """One of ours, at once."""
        assert session_of(pid) == self.process.pid
        os.kill(pid, signal.SIGKILL)

    def rows(self):
        file = self.run / "metrics.jsonl"
        text = file.read_text() if file.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def row_where(self, condition, what):
        return self.until(lambda: next((row for row in self.rows() if condition(row)), None), what)

    def learns(self):
        return self.row_where(lambda row: row["update"] > 0, "it learns")

    def model(self):
        return load_file(self.run / "model.safetensors")

    def scores(self):
        return list((self.run / "evaluations").glob("*.json"))

    def log(self):
        return (self.run / "roles.log").read_text()

    def go(self):
        (self.folder / "go").touch()


def lives(pid):
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def session_of(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def signal_if_alive(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


@pytest.fixture
def drill(tmp_path):
    """Starts a run with the environment of that name, in tests/processes/faulty_envs.py or anywhere else."""
    drills = []

    def start(env="drills/Walk-v0", steps=ENDLESS, settings=(), pace=(), script=None, piped=False, **variables):
        command = ["-m", "fastdqn", "train", env, "--steps", str(steps), "--run", "drill", "--runner", "processes"]
        command += ["--import", "tests.processes.faulty_envs", "--off", OFF, *["--quiet"] * (not piped)]
        command += as_arguments({**SETTINGS, **dict(settings)})
        drills.append(Drill(tmp_path, script or command, pace, variables, piped))
        return drills[-1]

    yield start
    for each in drills:
        each.close()


def check_it_went_on(drill, steps, restarts, hung=0):
    """The run has come to its step limit by learning, and has counted its losses."""
    rows = drill.rows()
    counted = [row["step"] for row in rows]
    assert counted == sorted(set(counted)), "steps only grow"
    assert [row["update"] for row in rows] == sorted(row["update"] for row in rows)
    assert steps - 8 <= counted[-1] <= steps
    assert rows[-1]["update"] > 0
    assert (rows[-1]["restarts"], rows[-1]["hung"]) == (restarts, hung)
    assert "step limit reached" in drill.said.read_text()
    assert "Traceback" not in drill.complained.read_text()
    assert drill.model()


# --- killed --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_actors_are_replaced(drill):
    """Twenty times: at random moments of their games, and now and then before they have played at all."""
    kills, steps = 20, 12_000
    run = drill(steps=steps, settings={"actor.count": 2, **ALONE}, pace={"actor": 0.02})
    moments = random.Random(1)
    run.learns()
    for number in range(kills):
        name = f"actor{number}" if number < 2 else moments.choice(["actor0", "actor1"])
        pid = run.born(name)[name] if number % 5 == 4 else run.played(name)
        time.sleep(moments.uniform(0, 0.3))  # not to wait for anything: this is the random moment
        run.kill(pid)
        run.replaced(name, pid)
    for name in ("actor0", "actor1"):
        run.played(name)
    run.row_where(lambda row: row["restarts"] == kills, "all are counted")
    run.go()
    assert run.exit_code() == 0
    check_it_went_on(run, steps, restarts=kills)
    assert run.log().count("was ended by SIGKILL") == kills


@pytest.mark.slow
def test_a_killed_evaluator_is_replaced(drill):
    """Twice: before it had anything to do, and in the middle of an evaluation."""
    run = drill(steps=8000, settings={"evaluator.every_steps": 300}, pace={"actor": 0.005, "evaluator": 0.05})
    first = run.born("evaluator", "actor0")["evaluator"]
    run.kill(first)
    second = run.replaced("evaluator", first)
    assert run.played("evaluator") == second
    run.kill(second)
    assert not run.scores(), "it was in the middle"
    run.replaced("evaluator", second)
    run.go()
    assert run.exit_code() == 0
    check_it_went_on(run, 8000, restarts=2)
    assert "mean score" in run.said.read_text()
    assert json.loads(max(run.scores()).read_text())["step"] == run.rows()[-1]["step"], "the final weights are judged"


@pytest.mark.slow
def test_a_killed_learner_ends_the_run(drill):
    """Nobody else holds what was learned: what was saved before stays as it is."""
    run = drill(settings={"evaluator.every_steps": 200}, pace={"actor": 0.002})
    run.until((run.run / "model.safetensors").exists, "a model is saved")
    assert run.learns()
    run.kill(run.roles()["learner"])
    saved = (run.run / "model.safetensors").read_bytes()
    assert run.exit_code() == 1
    assert "The learner was ended by SIGKILL" in run.complained.read_text()
    assert "Traceback" not in run.complained.read_text()
    assert (run.run / "model.safetensors").read_bytes() == saved
    assert run.model()
    assert not (run.run / "roles.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["in training", "at birth"])
def test_nobody_outlives_a_killed_parent(drill, moment):
    """Neither a role that hangs in C, which only the kernel can end, nor one that had not begun to live."""
    before = leftovers.names()
    run = drill("drills/PausesInC-v0", settings={"actor.count": 2})
    run.born("learner", "evaluator", "actor0", "actor1")
    if moment == "in training":
        run.learns()
        run.until((run.folder / "hangs").exists, "an actor hangs in C")
    assert len(run.living()) >= 5
    run.kill(run.process.pid)
    assert run.process.wait(10) == -signal.SIGKILL
    run.nobody_left(10)
    assert not leftovers.left_since(before)


# --- raising -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_environment_that_fails_now_and_then(drill):
    """It raises, and once it ends its process as if all were well: a library may call exit(0)."""
    run = drill("drills/Stumbles-v0", steps=300, settings=ALONE)
    assert run.exit_code() == 0
    assert (run.folder / "quits").exists()
    restarts = run.rows()[-1]["restarts"]
    assert restarts >= 3
    check_it_went_on(run, 300, restarts)
    assert run.log().count("RuntimeError: stumbled over step 25\n") == restarts - 1  # the last lines of the tracebacks
    assert "in trouble\n" in run.log()


@pytest.mark.slow
def test_an_actor_that_never_plays_ends_the_run(drill):
    """It is tried five times; it raises in the constructor (1, 3, 5) or at the first step (2, 4). Another actor plays on,
    and what was learned from it is kept."""
    run = drill("drills/NeverPlays-v0", settings={"actor.count": 2, **ALONE}, pace={"actor": 0.005})
    assert run.exit_code() == 1
    said = run.complained.read_text()
    assert said.count("Traceback") == 1, said
    assert "in __init__\n" in said
    assert "RuntimeError: there is no such walk\n" in said  # the last line of the traceback
    assert "The actor1 has failed" in said
    assert "It had failed 5 times in a row without playing." in said
    assert len(list(run.folder.glob("born-*"))) == 5
    assert run.log().count("RuntimeError: there is no such walk\n") == 3
    assert run.log().count("RuntimeError: stumbled over the first step\n") == 2
    assert run.rows()[-1]["update"] > 0
    assert run.model()


@pytest.mark.slow
def test_an_environment_that_raises_in_every_evaluation_ends_the_run(drill):
    """The games of an evaluation are the same every time: what has failed once may fail for ever."""
    run = drill("drills/BadJudge-v0", steps=300)
    assert run.exit_code() == 1
    assert "RuntimeError: nobody may judge this walk" in run.complained.read_text()
    assert len(list(run.folder.glob("born-*"))) == 5
    assert run.rows()[-1]["update"] > 0
    assert run.model()


# --- hanging -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "function"),
    [("Sleeps", "sleep_for_ever"), ("PausesInC", "pause_in_c")],
)
def test_an_actor_that_hangs_is_replaced(drill, env, function):
    run = drill(f"drills/{env}-v0", steps=400, settings={**WATCHED, **ALONE})
    assert run.exit_code() == 0
    assert (run.folder / "hangs").exists()
    check_it_went_on(run, 400, restarts=1, hung=1)
    assert "The actor0 has been silent for 3 s. Its stack:" in run.log()
    assert f"in {function}\n" in run.log()


@pytest.mark.slow
def test_an_actor_that_hangs_in_the_emulators_is_replaced(drill):
    pytest.importorskip("ale_py")
    settings = {"network.kind": "auto", "network.channels": [4, 4, 4], "actor.lanes": 2, "env.noop_max": 0}
    run = drill("pong", steps=300, settings={**settings, **WATCHED, **ALONE}, wrong_actions=True)
    assert run.exit_code() == 0
    assert (run.folder / "hangs").exists()
    check_it_went_on(run, 300, restarts=1, hung=1)
    assert "atari.py" in run.log()
    assert "in recv\n" in run.log()


@pytest.mark.slow
def test_training_goes_on_while_the_evaluator_hangs(drill):
    settings = {**WATCHED, "evaluator.every_steps": 100, "log.every_steps": 50}
    run = drill("drills/SleepsWhileJudged-v0", steps=5000, settings=settings, pace={"actor": 0.005})
    run.until((run.folder / "hangs").exists, "the evaluator hangs")
    evaluator, rows = run.roles()["evaluator"], len(run.rows())
    run.until(lambda: len(run.rows()) >= rows + 2, "steps go on")
    assert run.roles()["evaluator"] == evaluator, "all this while it hangs"
    assert lives(evaluator)
    run.replaced("evaluator", evaluator)
    run.go()
    assert run.exit_code() == 0
    check_it_went_on(run, 5000, restarts=1, hung=1)
    assert "The evaluator has been silent for 3 s. Its stack:" in run.log()
    assert "in sleep_for_ever\n" in run.log()
    assert "mean score" in run.said.read_text()


@pytest.mark.slow
def test_a_role_that_hangs_before_it_lives_is_replaced(drill):
    """It has no stack to show yet."""
    run = drill(steps=400, settings={**ALONE, "processes.first_heartbeat_seconds": 10})
    actor = run.born("learner", "actor0")["actor0"]
    os.kill(actor, signal.SIGSTOP)
    run.replaced("actor0", actor)
    assert run.exit_code() == 0
    check_it_went_on(run, 400, restarts=1, hung=1)


@pytest.mark.slow
def test_a_machine_that_was_asleep_replaces_nobody(drill):
    """The parent wakes first, and sees everybody as silent as it was itself."""
    run = drill(steps=6000, settings={**WATCHED, "actor.count": 2}, pace={"actor": 0.02})
    run.learns()
    for name in ("actor0", "actor1"):
        run.played(name)
    before = run.roles()
    sleepers = [run.process.pid, *(pid for pid in run.living() if pid != run.process.pid)]
    for pid in sleepers:
        os.kill(pid, signal.SIGSTOP)
    steps = run.rows()[-1]["step"]
    time.sleep(4)  # longer than a heartbeat
    assert run.rows()[-1]["step"] <= steps + 100, "it was asleep"
    for pid in sleepers:
        os.kill(pid, signal.SIGCONT)
    run.row_where(lambda row: row["step"] > steps + 200, "it goes on")
    assert run.roles() == before
    run.go()
    assert run.exit_code() == 0
    check_it_went_on(run, 6000, restarts=0)


# --- asked to end --------------------------------------------------------------------------------------------------------


def send(run, number, to):
    kill = os.killpg if to == EVERYBODY else os.kill
    kill(run.process.pid, number)


EVERYBODY, PARENT = "every process of the run", "the parent"
SIGNALS = {
    "term": (signal.SIGTERM, PARENT, TERMINATED_EXIT),
    "int": (signal.SIGINT, PARENT, INTERRUPTED_EXIT),
    "Ctrl-C": (signal.SIGINT, EVERYBODY, INTERRUPTED_EXIT),
    "term to all": (signal.SIGTERM, EVERYBODY, TERMINATED_EXIT),  # as systemd and job schedulers do it
}


def check_it_was_saved(run, how):
    assert run.exit_code(20) == SIGNALS[how][2], run.everything_said()
    assert run.model()
    assert "Traceback" not in run.complained.read_text()
    assert not (run.run / "roles.json").exists()


@pytest.mark.slow
def test_asked_to_end_before_anybody_lives(drill):
    """In the first second, when every role is still importing what it needs."""
    run = drill(settings=ALONE)
    run.born("learner", "actor0")
    send(run, *SIGNALS["Ctrl-C"][:2])
    check_it_was_saved(run, "Ctrl-C")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["term", "Ctrl-C"])
def test_asked_to_end_in_warm_up(drill, how):
    """There are many lines of metrics a second then, and the parent must not drown in them."""
    run = drill(settings={"replay.warmup_steps": ENDLESS, **ALONE})
    run.played("actor0")
    send(run, *SIGNALS[how][:2])
    check_it_was_saved(run, how)
    assert not any(row["update"] for row in run.rows())


@pytest.mark.parametrize("how", ["term", *(pytest.param(how, marks=pytest.mark.slow) for how in ("int", "term to all"))])
def test_asked_to_end_in_training(drill, how):
    run = drill(settings=ALONE)
    run.learns()
    send(run, *SIGNALS[how][:2])
    check_it_was_saved(run, how)
    assert run.rows()[-1]["update"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("how", ["term", "int"])
def test_asked_to_end_in_the_last_evaluation(drill, how):
    """The training was done, the games were not: there is no score."""
    run = drill(steps=300, pace={"evaluator": 0.5})
    run.played("evaluator")
    send(run, *SIGNALS[how][:2])
    check_it_was_saved(run, how)
    assert run.rows()[-1]["update"] > 0
    assert not run.scores()


@pytest.mark.slow
def test_a_closed_pipe_ends_the_run_and_saves_the_model(drill):
    """`fastdqn train ... | head -1`, as in a run without processes."""
    run = drill(settings=ALONE, piped=True)
    assert b"weights on cpu" in run.process.stdout.readline()
    run.learns()
    run.process.stdout.close()
    assert run.exit_code() in (0, 1)
    assert run.model()


# --- scripts -------------------------------------------------------------------------------------------------------------


SCRIPT = """
import fastdqn, gymnasium

def main(env):
    fastdqn.train(env, steps=300, runner="processes", settings={settings}, quiet=True)
"""


def script(folder, *lines):
    file = folder / "script.py"
    file.write_text(SCRIPT.format(settings=SETTINGS) + "\n".join(lines) + "\n")
    return [str(file)]


@pytest.mark.slow
def test_a_script_without_a_guard_is_told_so(drill, tmp_path):
    """In a sentence, and once: not by every process that trips over it, nor with a run folder of each."""
    run = drill(script=script(tmp_path, "main('CartPole-v1')"))
    assert run.exit_code() == 1
    said = run.complained.read_text()
    assert "`if __name__ == '__main__':`" in said.splitlines()[-1]
    assert len(said.splitlines()) < 60, said
    assert len(list((tmp_path / "runs").glob("*"))) <= 1


def test_a_function_that_cannot_be_handed_over_is_refused(drill, tmp_path):
    lines = ["if __name__ == '__main__':", "    main(lambda: gymnasium.make('CartPole-v1'))"]
    run = drill(script=script(tmp_path, *lines))
    assert run.exit_code() == 1
    said = run.complained.read_text().splitlines()[-1]
    assert said.startswith("fastdqn.errors.UserError: The runner processes cannot hand your function over")
    assert "at the top of a module" in said
