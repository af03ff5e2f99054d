"""How a run ends when the world around it does not behave: a closed pipe, a second Ctrl-C, games without an end."""

import dataclasses
import signal
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import fastdqn
from fastdqn.actor.policy import Policy
from fastdqn.cli import main
from fastdqn.env.registry import find_env
from fastdqn.env.serial import SerialLanes
from fastdqn.errors import UserError
from fastdqn.evaluator import Evaluator
from fastdqn.learner.learner import Learner
from fastdqn.prepare import check_memory_of, prepare
from fastdqn.run.preflight import RESERVE_BYTES
from tests.unit.tiny import TINY, TINY_SNAKE, as_arguments


class LongGame(gymnasium.Env):
    """Games of 250 steps (or without an end) that pay 1 in each of their first 100 steps."""

    length = 250

    def __init__(self):
        self.observation_space = spaces.Box(0, 1, (1,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.step_number = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.step_number += 1
        return np.zeros(1, np.float32), float(self.step_number <= 100), self.step_number == self.length, False, {}


class EndlessGame(LongGame):
    length = 10**9


@pytest.mark.parametrize("maker", [LongGame, EndlessGame])
def test_the_rest_of_a_cut_game_is_never_scored(maker):
    """Cut at 100 steps: every fresh game scores 100; what follows in the same game would score 0."""
    kind = find_env(maker, {})
    spec = fastdqn.transition.EnvSpec(**{**vars(kind.spec), "max_eval_steps": 100})
    env = SerialLanes([kind.make_single] * 2, spec)
    policy = Policy(lambda states: np.zeros(len(states), np.int64), spec, 2, 1, np.random.default_rng(0))
    score = Evaluator(env, policy, 0.0).evaluate(6, [1, 2], 0, 0)
    assert score.scores == [100.0] * 6
    assert score.cut == 6


def fastdqn_process(folder, *arguments, **options):
    command = [sys.executable, "-m", "fastdqn", *arguments]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, **options)


ENDLESS = ["train", "snake", "--minutes", "5", "--run", "endless", *as_arguments(TINY)]


@pytest.mark.slow
def test_a_closed_pipe_ends_the_run_and_saves_the_model(tmp_path):
    """`fastdqn train ... | head -1`: the view fails at its second line, the work is ended first, then saved."""
    process = fastdqn_process(tmp_path, *ENDLESS, stdout=subprocess.PIPE)
    assert "weights on cpu" in process.stdout.readline()
    process.stdout.close()
    process.wait(120)
    said = process.stderr.read()
    assert process.returncode in (0, 1), said
    assert "terminate called" not in said
    assert (tmp_path / "runs/endless/model.safetensors").stat().st_size > 0


def test_the_second_interrupt_ends_at_once(tmp_path):
    """The first one is swallowed by an evaluation that never looks at it; the second must still end the process."""
    stubborn = (
        "import sys, time, fastdqn.evaluator as e, fastdqn.cli as c\n"
        "def never(*args, **kw):\n"
        "    print('evaluating', flush=True)\n"
        "    while True: time.sleep(0.01)\n"
        "e.Evaluator.evaluate = never\n"
        "sys.exit(c.main(sys.argv[1:]))\n"
    )
    arguments = ["train", "snake", "--steps", "300", "--run", "stubborn", "--quiet", *as_arguments(TINY)]
    command = [sys.executable, "-c", stubborn, *arguments]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "evaluating\n"
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert "stopped at once" in process.stderr.read()


def test_a_run_of_ones_own_environment_is_not_loaded_as_the_registered_one(runs):
    """A maker that wraps a registered environment has its id; playing the plain one instead would be a silent lie."""

    def maker():
        return gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda reward: -100.0)

    settings = {"evaluator.episodes": 2, "replay.warmup_steps": 50, "network.hidden": [8]}
    run = fastdqn.train(maker, steps=200, settings=settings, quiet=True)
    assert run.score.mean < -500
    with pytest.raises(fastdqn.UserError, match=r"load\(run, env=maker\)"):
        fastdqn.load(run)
    assert fastdqn.load(run, env=maker).kind.own


def test_life_lost_and_game_over_in_one_step_is_a_game_over():
    class LastLife(LongGame):
        def step(self, action):
            obs, reward, _, _, _ = super().step(action)
            over = self.step_number == 6
            return obs, reward, over, False, {"life_lost": over}

    kind = find_env(LastLife, {})
    env = SerialLanes([kind.make_single], kind.spec)
    env.reset([0])
    ends = 0
    for _ in range(70):
        tick = env.recv(0)
        ends += int(tick.terminated[0])
        env.send(0, np.zeros(1, np.int64))
    assert ends == 10  # games of 6 steps and a dummy tick


def test_a_run_never_takes_more_steps_than_asked(runs):
    settings = {"actor.lanes": 8, "evaluator.at_end": False, "network.hidden": [8], "replay.warmup_steps": 20}
    for steps in (100, 203, 5):
        run = fastdqn.train("CartPole-v1", steps=steps, settings=settings, quiet=True)
        assert max(0, steps - 16) <= run.steps <= max(steps, 8)


@pytest.mark.parametrize("fault", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError()], ids=["device", "host"])
def test_memory_that_runs_out_on_the_way_ends_with_a_sentence_and_the_model(runs, capsys, monkeypatch, fault):
    train = Learner.train

    def train_until_it_is_full(self, count):
        if self.updates > 20:
            raise fault
        train(self, count)

    monkeypatch.setattr(Learner, "train", train_until_it_is_full)
    assert main(["train", "snake", "--run", "full", "--quiet", *as_arguments(TINY)]) == 2
    said = capsys.readouterr().err
    where = "this machine" if isinstance(fault, MemoryError) else "cpu"
    assert f"The memory of {where} ran out." in said
    assert "learner.batch_size" in said
    assert "Traceback" not in said
    assert (runs / "full" / "model.safetensors").is_file()


def test_a_replay_too_large_for_the_device_is_refused_with_the_largest_that_fits(monkeypatch):
    """In RAM only what stays there is counted."""
    job = prepare("snake", settings=TINY_SNAKE)
    ring, rest = job.needs[0], job.needs[1:]
    on_device = (dataclasses.replace(ring, on_device=True), *rest)
    monkeypatch.setattr("fastdqn.prepare.device_memory", lambda device: RESERVE_BYTES + 5_000_000)
    large = dataclasses.replace(on_device[0], bytes=ring.per_row * 10**9)
    with pytest.raises(UserError, match=r"of memory on cpu .*The largest that fits: --set replay.capacity=\d+$"):
        check_memory_of(dataclasses.replace(job, needs=(large, *rest)))
    monkeypatch.setattr("fastdqn.run.preflight.free_memory", lambda: RESERVE_BYTES + 1_000_000)
    small = dataclasses.replace(on_device[0], bytes=2_000_000)
    check_memory_of(dataclasses.replace(job, needs=(small,)))
    with pytest.raises(UserError, match=r"of memory \("):
        check_memory_of(dataclasses.replace(job, needs=(dataclasses.replace(small, on_device=False),)))
