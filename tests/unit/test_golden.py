"""Runs and learner states that an earlier version made (tests/golden) are read by this one, and go on from there."""

import json
import shutil

import numpy as np
import pytest
import torch

import fastdqn
from fastdqn.cli import main
from tests.golden.make import (
    FURTHER,
    HERE,
    LEARNERS,
    PATHS,
    RUNS,
    fixed_states,
    in_arrays,
    parts_of,
    update_further,
    weights_of,
)

STATES = [(which, path) for which, (_, _, paths) in LEARNERS.items() for path in paths]


@pytest.mark.parametrize("name", RUNS)
def test_a_model_plays_as_it_did(name):
    player = fastdqn.load(HERE / name)
    expected = json.loads((HERE / name / "expected.json").read_text())
    stack = player.config.replay.stack or player.kind.stack
    states = fixed_states(player.kind.spec, stack, len(expected))
    assert len(expected) == 6
    for state, then in zip(states, expected, strict=True):
        player.reset()
        np.testing.assert_allclose(player.values(state), then["values"], rtol=1e-5, atol=1e-5)
        player.reset()
        assert player.act(state) == then["action"]
    rows = player.folder.metrics()
    assert player.facts["update"] == rows[-1]["update"] > 50
    (score,) = player.folder.scores()
    assert score["step"] == player.facts["step"]
    assert len(score["scores"]) == 4


@pytest.mark.parametrize("name", RUNS)
def test_a_run_can_be_evaluated(name, tmp_path, capsys):
    copy = tmp_path / name
    shutil.copytree(HERE / name, copy)
    assert main(["eval", str(copy), "--episodes", "3"]) == 0
    assert "mean" in capsys.readouterr().out
    (written,) = copy.glob("evaluations/*games_3*.json")
    assert len(json.loads(written.read_text())["scores"]) == 3


def test_a_run_starts_from_one(runs):
    """The weights, with every setting as it was."""
    old = fastdqn.load(HERE / "cartpole-mlp")
    settings = RUNS["cartpole-mlp"][1] | {"replay.warmup_steps": 10_000}  # no update: what is saved is what was loaded
    run = fastdqn.train("CartPole-v1", steps=50, settings=settings, from_run=HERE / "cartpole-mlp", quiet=True)
    assert run.updates == 0
    for name, weight in fastdqn.load(run).network.state_dict().items():
        assert torch.equal(weight, old.network.state_dict()[name]), name


def saved_by(which, path):
    return torch.load(HERE / f"learner-{which}-{path}.pt", weights_only=True)


@pytest.mark.parametrize(("which", "path"), STATES)
def test_a_learner_goes_on_from_its_state_on_every_path(which, path):
    """The weights are those that were saved, and the next updates end where they ended then: the optimizer's moments and
    the count of updates came along."""
    paths = LEARNERS[which][2]
    for other in paths:
        saved, parts = saved_by(which, path), parts_of(which, other)
        learner = parts.learner
        learner.load_state(saved["learner"])
        assert learner.updates == saved["learner"]["updates"] >= 20
        for name, weight in learner.online.state_dict().items():
            assert torch.equal(weight, saved["learner"]["online"][name]), (other, name)
        for name, weight in learner.target.state_dict().items():
            assert torch.equal(weight, saved["learner"]["target"][name]), (other, name)
        before = weights_of(learner)
        losses = update_further(parts)
        assert learner.updates == saved["learner"]["updates"] + FURTHER
        assert np.isfinite(losses).all()
        np.testing.assert_allclose(losses, saved["losses"], rtol=1e-4, atol=1e-5, err_msg=other)
        after = weights_of(learner)
        torch.testing.assert_close(after, saved["weights_after"], rtol=1e-3, atol=1e-4)
        moved = [(after[name] - before[name]).abs().max().item() for name in before]
        assert max(moved) > 1e-3, "the updates have done something"
        parts.close()


@pytest.mark.parametrize(("which", "path"), [("cartpole", "lean"), ("snake", "hand_written")])
def test_a_replay_takes_its_rows_back(which, path):
    saved, parts = saved_by(which, path), parts_of(which, path)
    rows = in_arrays(saved["replay"])
    parts.replay.load_state(rows)
    for name, array in rows["ring"].items():
        np.testing.assert_array_equal(getattr(parts.replay.ring, name), array, err_msg=name)
    assert rows["ring"]["W"].min() > 10
    parts.learner.load_state(saved["learner"])
    parts.learner.train(2)
    assert parts.learner.updates == saved["learner"]["updates"] + 2
    loss, _ = parts.learner.read_means()
    assert loss is not None
    assert np.isfinite(loss)
    parts.close()


def test_every_path_is_there():
    assert {path for _, path in STATES} == set(PATHS)
    assert {f"learner-{which}-{path}.pt" for which, path in STATES} == {file.name for file in HERE.glob("*.pt")}
