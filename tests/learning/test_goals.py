"""The promises of the presets. Minutes each, so they run with `make test-slow`."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import fastdqn

pytestmark = pytest.mark.slow

TRAIN = """
import json, sys, fastdqn
env, seed, settings = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
run = fastdqn.train(env, seed=seed, settings=settings, quiet=True)
print(json.dumps({"steps": run.steps, "updates": run.updates, "mean": run.score.mean, "episodes": run.score.episodes}))
"""


def train_apart(folder, env, seed, settings):
    """A run in a process of its own, so that two can use two cores."""
    command = [sys.executable, "-c", TRAIN, env, str(seed), json.dumps(settings)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.alone  # trains on two cores by itself
@pytest.mark.timeout(1800)
def test_cartpole_475_on_7_of_8_seeds(tmp_path):
    """The fixed preset, 60,000 steps, the weights as saved at the end, 100 greedy games."""
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda seed: train_apart(tmp_path, "CartPole-v1", seed, {}), range(8)))
    print([run["mean"] for run in runs])
    assert all(59_000 < run["steps"] <= 60_000 and run["updates"] > 14_000 and run["episodes"] == 100 for run in runs)
    assert sum(run["mean"] >= 475 for run in runs) >= 7


@pytest.mark.timeout(1800)
def test_snake_10_within_the_steps_of_the_demo(tmp_path):
    """The demo is limited by time; this is the same preset limited by steps, so that a slow machine judges the same run."""
    run = train_apart(tmp_path, "snake", 0, {"limits.steps": 450_000})
    assert run["updates"] > 10_000
    assert run["episodes"] == 100
    assert run["mean"] >= 10


@pytest.mark.alone  # trains on two cores by itself
@pytest.mark.timeout(1800)
def test_catch_is_solved_from_a_stack_of_4_and_not_from_one_frame(tmp_path):
    """The pixel path end to end: 84x84 frames, ring, stacks, convolutions."""
    with ThreadPoolExecutor(2) as pool:
        settings = [{"replay.stack": stack, "learner.threads": 1} for stack in (4, 1)]  # two runs, two cores
        seen, blind = pool.map(lambda chosen: train_apart(tmp_path, "catch", 0, chosen), settings)
    print(seen, blind)
    assert seen["updates"] > 1000
    assert blind["updates"] > 1000
    assert seen["mean"] >= 0.9
    assert blind["mean"] <= 0.4


@pytest.mark.timeout(1800)
def test_pong_runs_20000_steps(runs, capsys):
    pytest.importorskip("ale_py")
    settings = {"replay.capacity": 100_000, "evaluator.at_end": False, "log.every_steps": 2000}
    run = fastdqn.train("pong", steps=20_000, settings=settings)
    print(run.speed())
    assert run.updates > 3000
    assert run.folder.curve_path.stat().st_size > 10_000
    assert "the environment alone" in run.speed()
    assert abs(run.metrics()[-2]["samples_per_step"] - 8) < 0.2
    assert run.metrics()[-1]["frame"] == run.steps * 4
