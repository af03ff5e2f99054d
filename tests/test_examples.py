"""Every example runs as a user would run it, with a tiny budget, and really learns (updates > 0)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
# Two processes with two OpenMP threads each on two cores spend their time waiting for each other
PATH = os.pathsep.join(filter(None, [str(EXAMPLES), os.environ.get("PYTHONPATH")]))
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": PATH}


def run(folder: Path, *command: str) -> str:
    """What the command prints; it must end well."""
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def number(pattern: str, text: str) -> float:
    """The number that the pattern's group catches, such as '1,234' or '0.5'."""
    match = re.search(pattern, text)
    assert match is not None, f"{pattern!r} is not in:\n{text}"
    return float(match[1].replace(",", ""))


@pytest.mark.slow
def test_train_snake(tmp_path):
    text = run(tmp_path, str(EXAMPLES / "train_snake.py"), "--steps", "7k", "--games", "1", "--run", "tiny")
    assert number(r"([\d,]+) updates", text) > 0
    assert (tmp_path / "runs" / "tiny" / "film.gif").read_bytes()[:3] == b"GIF"
    assert "mean score" in text


@pytest.mark.slow
def test_own_env(tmp_path):
    text = run(tmp_path, str(EXAMPLES / "own_env.py"), "--steps", "6k")
    assert number(r"([\d,]+) updates", text) > 0
    assert number(r"mean score (\S+)", text) == 1.0
    assert re.search(r"one game: right( right)+$", text, re.MULTILINE)


@pytest.mark.slow
def test_own_network(tmp_path):
    text = run(tmp_path, str(EXAMPLES / "own_network.py"), "--steps", "2k")
    assert number(r"([\d,]+) updates", text) > 0
    assert number(r"([\d,]+) weights, torch", text) == 5 * 128 + 2 * 129 * 128 + 129 * 3  # the dueling network and no other
    assert number(r"([\d,]+) steps/s with this network", text) > 0
    assert number(r"([\d,]+) with the same one built in", text) > 0


def test_own_loop(tmp_path):
    text = run(tmp_path, str(EXAMPLES / "own_loop.py"), "--steps", "1500")
    assert number(r"updates ([\d,]+)", text) > 0
    assert "the loaded agent agrees" in text
    assert (tmp_path / "cartpole.safetensors").is_file()


def test_seed_benchmark(tmp_path):
    text = run(tmp_path, str(EXAMPLES / "seed_benchmark.py"), "--episodes", "40")
    assert 0 < number(r"([\d,]+) steps really taken", text) <= 50 * 40
    assert number(r"([\d,]+) updates", text) > 0
    # Games end before their 50th step, so the original's formula must come out higher
    assert number(r"Throughput: (\S+)", text) < number(r"for every game: (\S+)", text)


@pytest.mark.slow
def test_custom_env_package(tmp_path):
    train = ["train", "examples/Lamps-v0", "--import", "custom_env_package", "--set", "env.lamps=3"]
    text = run(tmp_path, "-m", "fastdqn", *train, "--run", "lamps", "--steps", "2500")
    assert number(r"([\d,]+) updates", text) > 0
    text = run(tmp_path, "-m", "fastdqn", "watch", "lamps", "--import", "custom_env_package")
    assert (tmp_path / "runs" / "lamps" / "film.gif").is_file()
    assert "best of 5 games" in text


def test_every_example_has_a_test():
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    for example in EXAMPLES.glob("*.py"):
        assert example.stem in tested
