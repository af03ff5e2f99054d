"""What a user gets: the wheel, installed into a clean virtual environment, trains (its presets are inside)."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


CLEAN = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # which may lead to the source tree


def run(*command, cwd):
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=CLEAN, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_wheel_trains_in_a_clean_environment(tmp_path):
    source = tmp_path / "source"  # a copy: what an earlier build left behind must not find its way into the wheel
    for name in ("src", "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        source.mkdir(exist_ok=True)
        copy(ROOT / name, source / name)
    shutil.rmtree(source / "src" / "fastdqn.egg-info", ignore_errors=True)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path / "dist", source, cwd=tmp_path)
    (wheel,) = (tmp_path / "dist").glob("fastdqn-*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python, script = tmp_path / "venv/bin/python", tmp_path / "venv/bin/fastdqn"
    run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    where = run(python, "-c", "import fastdqn; print(fastdqn.__file__)", cwd=tmp_path)
    assert str(tmp_path / "venv") in where

    settings = ["--set", "replay.warmup_steps=500", "--set", "evaluator.episodes=4"]
    said = run(script, "train", "snake", "--steps", "3k", "--run", "first", *settings, cwd=tmp_path)
    found = re.search(r"step limit reached after ([\d,]+) steps and ([\d,]+) updates", said)
    assert found
    assert int(found[2].replace(",", "")) > 50
    for name in ("config.yaml", "metrics.jsonl", "model.safetensors", "curve.png"):
        assert (tmp_path / "runs/first" / name).stat().st_size > 0
    assert "cartpole" in run(script, "settings", cwd=tmp_path)
    assert "mean" in run(script, "eval", "first", "--episodes", "4", cwd=tmp_path)
