"""The programs that train a DQN as others do: they run, they learn, and they do the same work as ours."""

import ast
import contextlib
import importlib.util
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import gymnasium
import numpy as np
import psutil
import pytest
import torch

from fastdqn.bench import child, peer_sb3, plain_script
from fastdqn.bench.clock import Clock
from fastdqn.errors import UserError
from fastdqn.learner.network import make_network
from fastdqn.prepare import prepare

needs_sb3 = pytest.mark.skipif(
    importlib.util.find_spec("stable_baselines3") is None, reason="needs stable-baselines3: pip install 'fastdqn[peers]'"
)
PLAIN_DQN = {
    "learner.double": False,
    "replay.n_step": 1,
    "replay.capacity": 20_000,
    "replay.warmup_steps": 100,
    "network.kind": "mlp",
    "network.hidden": [256, 256],
    "learner.batch_size": 64,
    "learner.steps_per_update": 4,
    "learner.target": "hard",
}
NATURE = {"network.kind": "nature", "network.hidden": None, "replay.capacity": 1000, "learner.batch_size": 8}


def task_for(env, settings=(), **options):
    return {"env": env, "preset": None, "settings": {**PLAIN_DQN, **dict(settings)}, "seconds": 1.0, **options}


def start(program, line):
    # One thread: two that spin beside other tests are a hundred times slower than one
    process = subprocess.Popen(
        [sys.executable, "-m", f"fastdqn.bench.{program}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process


def ask(program, task):
    """(exit code, answer), as `fastdqn bench` asks: stdin stays open until the answer is there."""
    with start(program, json.dumps(task)) as process:
        watchdog = threading.Timer(120, process.kill)
        watchdog.start()
        try:
            answer = process.stdout.read()
            code = process.wait()
        finally:
            watchdog.cancel()
        assert code in (0, 2), process.stderr.read()
        return code, json.loads(answer.splitlines()[-1])


def family_of(process):
    root = psutil.Process(process.pid)
    return [root, *root.children(recursive=True)]


# Both programs, from outside


ONE, FOUR = ({"envs": envs, "workers": "dummy", "threads": 1} for envs in (1, 4))


@pytest.mark.parametrize(
    ("program", "options", "env"),
    [
        pytest.param("plain_script", {}, "snake", id="plain_script-snake"),
        pytest.param("plain_script", {}, "CartPole-v1", marks=pytest.mark.slow, id="plain_script-CartPole-v1"),
        pytest.param("peer_sb3", ONE, "snake", marks=[needs_sb3, pytest.mark.slow], id="sb3-1-snake"),
        pytest.param("peer_sb3", ONE, "CartPole-v1", marks=[needs_sb3, pytest.mark.slow], id="sb3-1-CartPole-v1"),
        pytest.param("peer_sb3", FOUR, "snake", marks=[needs_sb3, pytest.mark.slow], id="sb3-4-snake"),
        pytest.param("peer_sb3", FOUR, "CartPole-v1", marks=needs_sb3, id="sb3-4-CartPole-v1"),
    ],
)
def test_a_program_trains_and_answers_with_its_speed(program, options, env):
    code, speed = ask(program, task_for(env, **options))
    assert code == 0
    assert speed["updates"] > 0
    assert speed["steps"] > 0
    assert speed["samples_per_step"] == pytest.approx(64 / 4, rel=0.02)
    assert 1.0 <= speed["seconds"] < 10
    assert speed["startup_seconds"] > 0
    assert speed["warmup_seconds"] >= 1
    assert speed["threads"] == 1
    assert speed["details"]["envs"] == options.get("envs", 1)
    assert speed["details"]["weights_moved"] > 0.001
    assert speed["details"]["parameters"] == prepare(env, None, PLAIN_DQN).parameters


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "options"),
    [
        ("plain_script", {}),
        pytest.param("peer_sb3", {"envs": 2, "workers": "subproc", "threads": 1}, marks=needs_sb3),
    ],
    ids=["plain_script", "sb3-subproc"],
)
def test_a_program_trains_on_atari(program, options):
    code, speed = ask(program, task_for("pong", NATURE, **options))
    assert code == 0
    assert speed["updates"] > 0
    assert speed["samples_per_step"] == pytest.approx(8 / 4, rel=0.02)
    assert speed["details"]["weights_moved"] > 0


@pytest.mark.parametrize("program", ["plain_script", pytest.param("peer_sb3", marks=needs_sb3)])
def test_a_users_mistake_is_answered_with_a_sentence(program):
    code, answer = ask(program, task_for("sneak"))
    assert code == 2
    assert answer["error"].startswith("Unknown environment 'sneak'. Did you mean snake")


def test_a_task_that_is_no_json_is_answered_with_a_sentence():
    with start("plain_script", "hello") as process:
        assert "error" in json.loads(process.stdout.read())
        assert process.wait() == 2


@pytest.mark.parametrize(
    "program",
    ["plain_script", pytest.param("peer_sb3", marks=[needs_sb3, pytest.mark.slow])],
)
def test_a_program_ends_with_its_parent(program):
    """Also its environments in processes of their own."""
    own_processes = 2 if program == "peer_sb3" else 0
    task = task_for("snake", envs=max(1, own_processes), workers="subproc", threads=1)
    process = start(program, json.dumps({**task, "seconds": 3600}))
    family = []
    try:
        deadline = time.monotonic() + 60
        while len(family := family_of(process)) <= own_processes and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(1)
        assert process.poll() is None
        assert len(family) > own_processes
        process.stdin.close()
        assert process.wait(timeout=30) == child.PARENT_IS_GONE
        _, alive = psutil.wait_procs(family, timeout=10)
        assert not alive
        assert process.stdout.read() == ""
    finally:
        for left_over in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                left_over.kill()
        process.stdout.close()
        process.stderr.close()


# The stretch


def test_a_stretch_holds_whole_cycles_and_begins_after_the_warm_up(monkeypatch):
    monkeypatch.setattr(child, "WARMUP_SECONDS", 0.02)
    stretch = child.Stretch(Clock("cpu", 1, batch_size=10), seconds=0.05)
    steps = updates = 0
    while stretch.goes_on(steps, updates):
        steps += 1
        if steps > 100 and steps % 7 == 0:  # a cycle of 7 steps
            updates += 1
        time.sleep(0.0001)
    assert stretch.speed.updates > 0
    assert stretch.speed.steps == 7 * stretch.speed.updates
    assert stretch.speed.samples_per_step == pytest.approx(10 / 7)
    assert stretch.speed.seconds >= 0.05
    assert updates - stretch.speed.updates >= child.WARMUP_UPDATES


# The plain script, from inside


def test_the_plain_script_uses_nothing_of_ours_but_environment_settings_and_network():
    tree = ast.parse(Path(plain_script.__file__).read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    ours = {name.removeprefix("fastdqn.") for name in modules | names if name.startswith("fastdqn")}
    assert {name for name in ours if not name.startswith("env.")} == {
        "bench.child",
        "bench.turns",
        "bench.clock",
        "bench.work",
        "config",
        "errors",
        "learner.network",
        "prepare",
    }


@pytest.mark.slow
def test_the_plain_script_learns_cartpole():
    settings = {
        "network.hidden": [64, 64],
        "learner.batch_size": 32,
        "learner.steps_per_update": 1,
        "learner.target": "soft",
        "learner.target_tau": 0.02,
        "learner.double": False,
        "replay.n_step": 1,
        "replay.warmup_steps": 500,
        "actor.epsilon_end": 0.1,
        "actor.epsilon_steps": 500,  # over when learning begins: what gets better then is not the dice
    }
    job = prepare("CartPole-v1", None, settings)
    random.seed(3)
    torch.manual_seed(3)
    network = make_network(job.config.network, (4,), np.float32, 2)
    counts = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        returns = plain_script.train(
            job.config, job.kind, network, "cpu", lambda *count: counts.append(count) or count[0] < 4000
        )
    finally:
        torch.set_num_threads(threads)
    assert counts[-1] == (4000, 3500)
    assert np.mean(returns[:20]) < 35
    assert np.mean(returns[-10:]) > 100


class Counting(gymnasium.Env):
    """Every observation is the number of the step, a game lasts 5 steps; a life is lost at step 2."""

    observation_space = gymnasium.spaces.Box(0, 255, (1, 4, 4), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.step_number = self.resets = 0

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        self.step_number = 0
        return self._image(), {}

    def step(self, action):
        self.step_number += 1
        ended = self.step_number == 5
        return self._image(), 1.0, False, ended, {"life_lost": self.step_number == 2, "raw_reward": 10.0}

    def _image(self):
        return np.full((1, 4, 4), 10 + self.step_number, np.uint8)


def test_the_plain_script_stacks_frames_and_knows_its_ends(monkeypatch):
    learned = []
    monkeypatch.setattr(plain_script, "learn", lambda online, target, optimizer, batch, *rest: learned.extend(batch))
    settings = {**PLAIN_DQN, "replay.stack": 3, "learner.batch_size": 10, "replay.warmup_steps": 10, "network.kind": "auto"}
    job = prepare(Counting, None, settings)
    network = make_network(job.config.network, (3, 4, 4), np.uint8, 2)
    returns = plain_script.train(job.config, job.kind, network, "cpu", lambda steps, updates: updates < 1)
    assert returns == [50.0, 50.0]
    assert len(learned) == 10
    for transition in learned:
        newest = int(transition.state[2, 0, 0])
        last = int(transition.next_state[2, 0, 0])
        assert last == newest + 1
        assert [int(frame[0, 0]) for frame in transition.next_state] == [
            n if n >= 10 else 0 for n in (last - 2, last - 1, last)
        ]
        assert transition.end == (last == 12)  # the lost life; a game cut at step 5 goes on in its value


def test_the_plain_script_measures_with_the_last_epsilon():
    config = plain_script.with_last_epsilon(prepare("CartPole-v1", None, PLAIN_DQN).config)
    assert plain_script.epsilon_at(99, config, warmup=100) == 1.0
    assert plain_script.epsilon_at(100, config, warmup=100) == config.actor.epsilon_end


@pytest.mark.parametrize("target", ["hard", "soft"])
def test_the_plain_scripts_target_follows(target):
    config = prepare("CartPole-v1", None, {"learner.target": target, "learner.target_every": 2}).config.learner
    online, old = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    before, goal = old.weight.detach().clone(), online.weight.detach().clone()
    plain_script.follow(online, old, config, updates=1)
    one = before if target == "hard" else before + config.target_tau * (goal - before)
    torch.testing.assert_close(old.weight.detach(), one)
    plain_script.follow(online, old, config, updates=2)
    two = goal if target == "hard" else one + config.target_tau * (goal - one)
    torch.testing.assert_close(old.weight.detach(), two)


@pytest.mark.parametrize(
    ("settings", "envs", "says"),
    [({"replay.n_step": 3}, 1, "n_step"), ({}, 2, "one environment"), ({"learner.batch_size": 30_000}, 1, "capacity")],
)
def test_the_plain_script_refuses_what_it_cannot_do(settings, envs, says):
    job = prepare("CartPole-v1", None, {**PLAIN_DQN, **settings})
    with pytest.raises(UserError, match=says):
        plain_script.refuse_what_it_cannot_do(job.config, job.kind, envs)


# stable-baselines3, from inside


@pytest.fixture
def make_model():
    """(model, job) of stable-baselines3 for an environment and settings."""
    vec_envs = []

    def make(env, settings=(), envs=1):
        job = prepare(env, None, {**PLAIN_DQN, "replay.capacity": 1000, **dict(settings)})
        vec_envs.append(peer_sb3.make_vec_env(job.config, job.kind, envs, "dummy"))
        return peer_sb3.make_model(job, peer_sb3.find_rhythm(job.config, envs), vec_envs[-1]), job

    yield make
    for vec_env in vec_envs:
        vec_env.close()


@needs_sb3
@pytest.mark.parametrize(
    ("env", "settings"),
    [
        ("CartPole-v1", {}),
        ("snake", {}),
        ("snake", {"network.kind": "cnn", "network.hidden": None}),
        ("snake", {"network.kind": "cnn", "network.channels": [8, 16], "network.hidden": [32, 16]}),
        ("pong", NATURE),
        ("catch", {"network.kind": "nature", "network.channels": [16, 32, 32], "network.hidden": [64], "replay.stack": 4}),
    ],
    ids=["cartpole mlp", "snake mlp", "snake cnn", "snake own cnn", "pong nature", "catch own nature"],
)
def test_sb3_has_our_layers_and_the_same_weights_give_the_same_values(make_model, env, settings):
    """So the bytes are scaled alike as well."""
    model, job = make_model(env, settings)
    spec, config = job.kind.spec, job.config
    state_shape = spec.state_shape(config.replay.stack or job.kind.stack)
    ours = make_network(config.network, state_shape, spec.obs_dtype, spec.num_actions)
    theirs = list(model.q_net.parameters())
    assert [tuple(p.shape) for p in theirs] == [tuple(p.shape) for p in ours.parameters()]
    assert sum(p.numel() for p in theirs) == job.parameters
    with torch.no_grad():
        for theirs_layer, our_layer in zip(theirs, ours.parameters(), strict=True):
            theirs_layer.copy_(our_layer)
        model.observation_space.seed(0)
        states = torch.as_tensor(np.stack([model.observation_space.sample() for _ in range(5)]).clip(-10, 255))
        values = ours(states)
        torch.testing.assert_close(model.q_net(states), values, rtol=1e-4, atol=1e-5)
    assert values.std() > 0


@needs_sb3
def test_sb3_gets_the_settings_of_the_config(make_model):
    model, _ = make_model(
        "snake", {"learner.optimizer": "rmsprop", "learner.lr": 0.01, "learner.optimizer_eps": 0.5}, envs=4
    )
    assert isinstance(model.policy.optimizer, torch.optim.RMSprop)
    group = model.policy.optimizer.param_groups[0]
    assert (group["lr"], group["eps"], group["alpha"], group["centered"]) == (0.01, 0.5, 0.95, True)
    assert (model.batch_size, model.learning_starts, model.gamma) == (64, 100, 0.95)
    assert model.replay_buffer.buffer_size * 4 == 1000
    model, _ = make_model("snake", {"learner.optimizer_eps": 0.25, "learner.clip_grad_norm": 0})
    assert isinstance(model.policy.optimizer, torch.optim.Adam)
    assert model.policy.optimizer.param_groups[0]["eps"] == 0.25
    assert model.max_grad_norm == float("inf")


@needs_sb3
@pytest.mark.parametrize("envs", [1, 4])
def test_sb3_explores_as_the_config_ends_and_its_weights_move(make_model, envs):
    model, _ = make_model("snake", {"actor.epsilon_end": 0.3}, envs)
    before = [p.detach().clone() for p in model.q_net.parameters()]
    seen = []
    peer_sb3.train(model, lambda steps, updates: seen.append((steps, updates)) or updates < 20)
    assert model.exploration_rate == 0.3
    steps, updates = seen[-1]
    first = next(step for step, count in seen if count == 1)
    assert updates == 20
    assert steps - first == 4 * (updates - 1)
    assert all(not torch.equal(old, new) for old, new in zip(before, model.q_net.parameters(), strict=True))
    states = torch.as_tensor(np.stack([model.observation_space.sample() for _ in range(5)]))
    assert model.q_net(states).std(0).min() > 0  # not one constant answer to every state


@pytest.mark.parametrize(
    ("steps_per_update", "envs", "train_freq", "gradient_steps"),
    [(4, 1, 4, 1), (4, 2, 2, 1), (4, 4, 1, 1), (4, 8, 1, 2), (4, 6, 2, 3), (32, 64, 1, 2), (2.5, 1, 5, 2), (0.5, 2, 1, 4)],
)
def test_the_rhythm_keeps_the_samples_per_step(steps_per_update, envs, train_freq, gradient_steps):
    config = prepare("snake", None, {**PLAIN_DQN, "learner.steps_per_update": steps_per_update}).config
    rhythm = peer_sb3.find_rhythm(config, envs)
    assert (rhythm.train_freq, rhythm.gradient_steps) == (train_freq, gradient_steps)
    assert rhythm.train_freq * envs / rhythm.gradient_steps == steps_per_update
    assert rhythm.target_interval == config.learner.target_every * steps_per_update
    assert rhythm.tau == 1.0


def test_a_soft_target_moves_once_per_update():
    settings = {**PLAIN_DQN, "learner.target": "soft", "learner.target_tau": 0.25}
    config = prepare("snake", None, settings).config
    assert peer_sb3.find_rhythm(config, envs=2) == peer_sb3.Rhythm(2, 1, target_interval=4, tau=0.25)
    with pytest.raises(UserError, match=r"learner\.target=hard"):
        peer_sb3.find_rhythm(config, envs=8)


def test_a_ratio_that_cannot_be_exact_is_refused():
    config = prepare("snake", None, {**PLAIN_DQN, "learner.steps_per_update": 3.1416}).config
    with pytest.raises(UserError, match=r"steps_per_update=3\.1416"):
        peer_sb3.find_rhythm(config, envs=1)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"learner.double": True}, "double"),
        ({"learner.loss": "mse"}, "huber"),
        ({"learner.target": "none"}, "target network"),
    ],
)
def test_sb3_is_not_asked_for_what_it_cannot_do(settings, says):
    with pytest.raises(UserError, match=says):
        peer_sb3.refuse_what_it_cannot_do(prepare("snake", None, {**PLAIN_DQN, **settings}).config)


@needs_sb3
@pytest.mark.parametrize("options", [{"workers": "threads"}, {"envs": 0}])
def test_sb3_refuses_odd_options(options):
    with pytest.raises(UserError, match="envs"):
        peer_sb3.measure(task_for("snake", **options))


@needs_sb3
def test_sb3_refuses_a_replay_that_does_not_fit():
    with pytest.raises(UserError, match=r"largest that fits: --set replay\.capacity="):
        peer_sb3.measure(task_for("snake", {"replay.capacity": 10**12}))


@needs_sb3
def test_sb3_learns_n_step_returns(make_model):
    """It is no reason to refuse: it has them since 2.7."""
    model, _ = make_model("CartPole-v1", {"replay.n_step": 3, "learner.gamma": 0.5})
    peer_sb3.train(model, lambda steps, updates: updates < 1)
    batch = model.replay_buffer.sample(256)
    assert batch.rewards.max().item() == pytest.approx(1 + 0.5 + 0.25)
    assert batch.discounts.min().item() == pytest.approx(0.125)


def test_a_lost_life_ends_sb3s_episode_and_no_step_is_lost():
    env = peer_sb3.LifeEndsEpisode(Counting())
    env.reset(seed=0)
    seen = []
    for _ in range(5):
        obs, _, terminated, truncated, _ = env.step(0)
        seen.append((int(obs[0, 0, 0]), terminated, truncated))
        if terminated:
            again, _ = env.reset()
            assert np.array_equal(again, obs)
    assert seen == [(11, False, False), (12, True, False), (13, False, False), (14, False, False), (15, False, True)]
    assert env.unwrapped.resets == 1
    assert int(env.reset()[0][0, 0, 0]) == 10
    assert env.unwrapped.resets == 2


@needs_sb3
def test_sb3_stacks_four_frames_of_atari_with_the_newest_last(make_model):
    model, _ = make_model("pong", NATURE)
    vec_env = model.get_env()
    first = vec_env.reset().copy()
    assert first.shape == (1, 4, 84, 84)
    assert not first[0, :3].any()
    assert first[0, 3].any()
    second, *_ = vec_env.step(np.array([0]))
    assert np.array_equal(second[0, 2], first[0, 3])
