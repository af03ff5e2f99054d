"""The run folder and the model file."""

import json
import re
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import fastdqn
from fastdqn.config import make_config
from fastdqn.errors import UserError
from fastdqn.evaluator import Score
from fastdqn.run import folder as folders
from fastdqn.run.model import load_model, read_facts, save_model
from fastdqn.switches import LADDER
from tests.unit.tiny import everything_in, train_tiny

CONFIG = make_config("snake", "snake", {})


def score_at(step, mean=1.0):
    return Score("snake", "plain", {}, step, 0, 0.0, 1, [0], mean, mean, (mean, mean), [mean], [5], 0, 500)


# ---------------------------------------------------------------- names


def test_a_name_lands_in_runs_and_a_path_stays_a_path():
    assert folders.run_path("mine", "snake") == Path("runs/mine")
    assert folders.run_path("deep/mine", "snake") == Path("deep/mine")
    assert folders.run_path("/tmp/mine", "snake") == Path("/tmp/mine")


@pytest.mark.parametrize(
    ("env_id", "slug"), [("snake", "snake"), ("ALE/Pong-v5", "ale-pong-v5"), ("CartPole-v1", "cartpole-v1")]
)
def test_without_a_name_it_is_env_date_and_suffix(env_id, slug):
    path = folders.run_path(None, env_id)
    assert path.parent == Path("runs")
    assert re.fullmatch(rf"{slug}-\d{{8}}-\d{{6}}-[0-9a-f]{{4}}", path.name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/..", "/"])
def test_what_is_no_name(name):
    with pytest.raises(UserError, match="no name for a run"):
        folders.run_path(name, "snake")


# ---------------------------------------------------------------- created once


def test_created_with_its_config(runs):
    made = folders.create(Path("runs/mine"), CONFIG)
    assert made.config() == CONFIG
    assert folders.find("mine").path == folders.find("runs/mine").path == Path("runs/mine")
    assert folders.find(runs / "mine").config() == CONFIG


def test_never_twice(runs):
    folders.create(Path("runs/mine"), CONFIG)
    with pytest.raises(UserError, match=r"runs/mine already exists.*--from runs/mine"):
        folders.create(Path("runs/mine"), CONFIG)
    (runs / "empty").mkdir()
    folders.create(Path("runs/empty"), CONFIG)


def test_of_two_at_the_same_moment_one_gets_it(runs, monkeypatch):
    """Both have looked and found the place free before either of them writes."""
    both_looked = threading.Barrier(2, timeout=30)
    monkeypatch.setattr(folders, "check_new", lambda path: both_looked.wait())
    outcomes = []

    def claim(seed):
        try:
            folders.create(Path("runs/mine"), CONFIG.model_copy(update={"seed": seed}))
            outcomes.append(seed)
        except UserError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=claim, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winner, loser = sorted(outcomes, key=lambda outcome: isinstance(outcome, str))
    assert "already exists" in loser
    assert folders.find("mine").config().seed == winner


def test_a_folder_that_cannot_be_made(runs):
    runs.parent.joinpath("runs").write_text("a file where the folder should be")
    with pytest.raises(UserError, match="cannot be written"):
        folders.create(Path("runs/mine"), CONFIG)


# ---------------------------------------------------------------- found


def test_what_is_not_there_gets_the_nearest_and_the_newest_names(runs):
    with pytest.raises(UserError, match="There are no runs in runs/ yet"):
        folders.find("mine")
    for name in ("mine", "yours"):
        folders.create(runs / name, CONFIG)
    (runs / "notes.txt").write_text("no run")
    with pytest.raises(UserError, match=r"There is no run 'mind'\. Did you mean mine\? Runs here: mine, yours\."):
        folders.find("mind")


@pytest.mark.parametrize("name", ["holiday", "runs/holiday"])
def test_a_folder_without_a_config_is_no_run(runs, name):
    (runs / "holiday").mkdir(parents=True)
    with pytest.raises(UserError, match="runs/holiday is not a run"):
        folders.find(name)


def test_scores_come_by_step(runs):
    made = folders.create(Path("runs/mine"), CONFIG)
    assert made.scores() == []
    for step in (20, 3, 1_000_000):
        made.write_score(score_at(step))
    path = made.write_score(score_at(20, mean=5.0), "-seed_0")
    assert [score["step"] for score in made.scores()] == [3, 20, 20, 1_000_000]
    assert json.loads(path.read_text())["mean"] == 5.0


# ---------------------------------------------------------------- the model file


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def test_saved_and_loaded(tmp_path):
    path = tmp_path / "model.safetensors"
    save_model(path, network(0), {"step": 12, "env_id": "x"})
    other = network(1)
    assert load_model(path, other) == read_facts(path) == {"step": 12, "env_id": "x"}
    for one, two in zip(network(0).parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
    assert everything_in(tmp_path) == ["model.safetensors"], "nothing half-written is left"


def test_a_save_that_fails_leaves_the_old_model(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    save_model(path, network(0), {"step": 1})

    def full_disk(tensors, file, metadata):
        Path(file).write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full_disk)
    with pytest.raises(OSError, match="No space left"):
        save_model(path, network(1), {"step": 2})
    other = network(2)
    assert load_model(path, other) == {"step": 1}
    assert torch.equal(next(other.parameters()), next(network(0).parameters()))


def test_weights_that_are_tied_can_be_saved(tmp_path):
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    save_model(tmp_path / "m", tied, {})
    load_model(tmp_path / "m", tied)


@pytest.mark.parametrize("content", [b"", b"junk", b"\xff" * 64, None])
def test_a_damaged_file_is_refused(tmp_path, content):
    path = tmp_path / "model.safetensors"
    save_model(path, network(), {})
    path.write_bytes(path.read_bytes()[:-5] if content is None else content)
    with pytest.raises(UserError, match="damaged or no model file"):
        load_model(path, network())


def test_a_file_that_is_not_there_or_not_ours(tmp_path):
    with pytest.raises(UserError, match="There is no model at"):
        load_model(tmp_path / "none", network())
    save_file(network().state_dict(), tmp_path / "theirs")
    with pytest.raises(UserError, match=r"not written by this version of fastdqn \(format None\)"):
        load_model(tmp_path / "theirs", network())
    save_file(network().state_dict(), tmp_path / "later", metadata={"format": "fastdqn-model-9"})
    with pytest.raises(UserError, match="fastdqn-model-9"):
        load_model(tmp_path / "later", network())


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)), r"'0\.weight' it has \(4, 3\) where \(4, 5\)"),
        (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3)), r"'2\.weight' it has \(2, 4\) where \(3, 4\)"),
        (nn.Sequential(nn.Linear(3, 4)), r"'2\.bias' it has \(2,\) where nothing"),
        (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Linear(2, 2)), r"'3\.weight' it has nothing where"),
    ],
)
def test_shapes_that_do_not_fit_are_named_and_nothing_is_loaded(tmp_path, other, difference):
    save_model(tmp_path / "m", network(), {"env_id": "x", "state_shape": [3], "num_actions": 2})
    before = [parameter.clone() for parameter in other.parameters()]
    with pytest.raises(UserError, match=difference) as refusal:
        load_model(tmp_path / "m", other)
    assert "trained on x with states (3,) and 2 actions" in str(refusal.value)
    assert all(torch.equal(one, two) for one, two in zip(before, other.parameters(), strict=True))


def test_the_facts_of_a_run(trained):
    facts = read_facts(trained.folder.model_path)
    assert (facts["env_id"], facts["state_shape"], facts["num_actions"]) == ("snake", [3, 5, 5], 4)
    assert (facts["step"], facts["update"]) == (trained.steps, trained.updates)


# ---------------------------------------------------------------- under any switches


def test_a_model_saved_under_any_switches_loads_under_any_other(runs, trained):
    """Everything off, nothing off: the file has the same names and shapes, and plays the same after loading."""
    every = [switch.name for switch in LADDER if switch.name != "native_atari"]
    textbook = train_tiny(run="textbook", off=every)
    assert textbook.updates > 0
    obs = fastdqn.load(textbook).kind.make_single().reset(seed=5)[0]
    values = fastdqn.load(textbook).values(obs)
    assert np.abs(values).max() > 0
    going_on = {"replay.warmup_steps": 10_000}  # no update: the weights stay as loaded
    fast = train_tiny(run="fast", from_run=textbook, settings=going_on)
    back = train_tiny(run="back", from_run=fast, off=every, settings=going_on)
    for run in (fast, back):
        assert run.updates == 0
        assert fastdqn.load(run).values(obs).tolist() == values.tolist()
    torch_names = {name: tensor.shape for name, tensor in fastdqn.load(trained).network.state_dict().items()}
    assert torch_names == {name: tensor.shape for name, tensor in fastdqn.load(textbook).network.state_dict().items()}
