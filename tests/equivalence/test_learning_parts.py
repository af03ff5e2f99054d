"""Every part that learning is made of, on every path: the way back written out gives the gradients of autograd, whatever the
network's end, its norm, the loss and the bootstrap rule."""

import itertools

import numpy as np
import pytest
import torch

from fastdqn.build import build_greedy
from fastdqn.device.hardware import lacks
from tests.equivalence.test_precision import compare_gradients, taken_gradients, within_tolerance
from tests.equivalence.updates import (
    CATCH_NATURE,
    SNAKE_CNN,
    SNAKE_MLP,
    parts_of,
    random_batches,
    same_updates,
)

NETWORKS = {
    "plain": {},
    "dueling": {"network.dueling": True},
    "norm": {"network.norm": "layer"},
    "both": {"network.dueling": True, "network.norm": "layer"},
}
C51 = {"learner.loss": "c51", "learner.atoms": 11, "learner.v_min": -3, "learner.v_max": 3}
LOSSES = {
    "huber": {},
    "mse-double": {"learner.loss": "mse", "learner.double": True},
    "munchausen": {"learner.munchausen": True},
    "c51": C51,
    "c51-double": C51 | {"learner.double": True},
}
PARTS = pytest.mark.parametrize(("network", "loss"), list(itertools.product(NETWORKS, LOSSES)))


def with_parts(setup, network, loss):
    return setup._replace(settings=setup.settings | NETWORKS[network] | LOSSES[loss])


@PARTS
def test_the_way_back_written_out_is_autograds(network, loss):
    setup = with_parts(SNAKE_CNN, network, loss)
    fast, plain = parts_of(setup, ["hand_written"]), parts_of(setup)
    assert [type(parts.learner.update.backprop).__name__ for parts in (fast, plain)] == ["HandWritten", "Autograd"]
    # Few: now and then a ReLU lies so near its edge that the rounding of a joined pass decides it, for autograd as well
    same_updates(fast.learner, plain.learner, ((batch, batch) for batch in random_batches(plain, 11, seed=4)))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("network", NETWORKS)
def test_so_is_the_lean_one(network, loss):
    setup = with_parts(SNAKE_MLP, network, loss)
    fast, plain = parts_of(setup, ["hand_written", "lean_mlp"]), parts_of(setup)
    assert [type(parts.learner.update.backprop).__name__ for parts in (fast, plain)] == ["Lean", "Autograd"]
    same_updates(fast.learner, plain.learner, ((batch, batch) for batch in random_batches(plain, 20)))


@pytest.mark.parametrize(("network", "loss"), [("both", "c51-double"), ("both", "munchausen")])
@pytest.mark.skipif(bool(lacks("bf16", "cpu")), reason="needs bfloat16 instructions")
@pytest.mark.parametrize("setup", [SNAKE_CNN, CATCH_NATURE], ids=["cnn", "nature"])
def test_in_bfloat16_the_gradient_is_nearly_the_same(setup, network, loss):
    setup = with_parts(setup, network, loss)
    short, plain = parts_of(setup, ["hand_written", "bf16"]), parts_of(setup)
    assert within_tolerance(*compare_gradients(short, plain))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("on", [[], ["hand_written"]], ids=["autograd", "by hand"])
def test_the_target_networks_outputs_may_be_known_already(loss, on):
    """target_ahead: the same learned from what look_ahead gave as from the batch alone."""
    parts = parts_of(with_parts(SNAKE_CNN, "dueling", loss), on)
    backprop = parts.learner.update.backprop
    (batch,) = random_batches(parts, 1)
    alone, ahead = backprop(batch), backprop(batch, *backprop.look_ahead(batch))
    torch.testing.assert_close(torch.as_tensor(ahead.loss), torch.as_tensor(alone.loss))
    torch.testing.assert_close(ahead.error, alone.error)


def test_a_state_saved_on_one_path_loads_on_every_other():
    setup = with_parts(SNAKE_MLP, "plain", "mse-double")
    sides = [[], ["hand_written"], ["hand_written", "lean_mlp"], ["one_pass_optimizer"]]
    learners = [parts_of(setup, on).learner for on in sides]
    *batches, last = random_batches(parts_of(setup), 11)
    for batch in batches:
        learners[0].train_on(batch)
    for learner in learners[1:]:
        learner.load_state(learners[0].state())
    for learner in learners:
        learner.read_means()
        learner.train_on(last)
    first, *others = [learner.read_means() for learner in learners]
    assert all(other == pytest.approx(first, rel=1e-5) for other in others)
    for learner in learners[1:]:
        for ours, theirs in zip(learner.online.parameters(), learners[0].online.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(bool(lacks("bf16", "cpu")), reason="needs bfloat16 instructions")
@pytest.mark.parametrize(
    ("network", "loss"), [("dueling", "mse-double"), ("dueling", "c51-double"), ("both", "huber"), ("both", "c51-double")]
)
def test_a_lean_network_in_bfloat16_acts_and_steps_as_the_plain_one(monkeypatch, network, loss):
    monkeypatch.setattr("tests.equivalence.test_precision.gradients", taken_gradients)
    setup = with_parts(SNAKE_MLP, network, loss)
    short, plain = (parts_of(setup, ["hand_written", "lean_mlp", *on]) for on in (["bf16"], []))
    assert within_tolerance(*compare_gradients(short, plain))
    greedy = build_greedy(plain.learner.online, "cpu", plain.switches)
    states = np.random.default_rng(0).integers(0, 256, (64, 3, 10, 10), dtype=np.uint8)
    for batch in random_batches(plain, 3):
        plain.learner.train_on(batch)  # new weights are acted with at once
        assert greedy(states).tolist() == plain.learner.online(torch.from_numpy(states)).argmax(1).tolist()
