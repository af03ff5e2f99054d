"""A run folder may come from anybody: loading one imports no module that the user has not named."""

import sys

import pytest

import fastdqn
from fastdqn.cli import main

MODULE = """
import gymnasium
from fastdqn.env.catch import CatchEnv
from pathlib import Path
Path("imported").touch()
gymnasium.register("OwnCatch-v0", entry_point=CatchEnv)
"""
SMALL = ["--set", "replay.warmup_steps=50", "--set", "network.kind=mlp", "--set", "network.hidden=[8]"]


@pytest.fixture
def own_run(runs, monkeypatch):
    (runs.parent / "own_catch.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(runs.parent))
    options = ["--import", "own_catch", "--steps", "200", "--run", "own", "--quiet", "--set", "evaluator.episodes=2"]
    assert main(["train", "OwnCatch-v0", *options, *SMALL]) == 0
    (runs.parent / "imported").unlink()
    sys.modules.pop("own_catch")
    yield runs / "own"
    sys.modules.pop("own_catch", None)


@pytest.mark.parametrize("command", ["eval", "watch"])
def test_a_module_named_in_a_run_is_not_imported_unless_the_user_says_so(own_run, command, capsys):
    assert main([command, str(own_run)]) == 2
    assert "add --import own_catch" in capsys.readouterr().err
    assert not (own_run.parents[1] / "imported").exists()
    assert main([command, str(own_run), "--import", "own_catch"]) == 0
    assert (own_run.parents[1] / "imported").exists()


def test_nor_one_hidden_in_the_environment_id(own_run):
    config = own_run / "config.yaml"
    text = config.read_text().replace("env_id: OwnCatch-v0", "env_id: own_catch:OwnCatch-v0")
    config.write_text(text.replace("- own_catch\n", "").replace("imports:\n", "imports: []\n"))
    with pytest.raises(fastdqn.UserError, match="add --import own_catch"):
        fastdqn.load(own_run)
    assert not (own_run.parents[1] / "imported").exists()
