"""inference_mode promises SAME_NUMBERS: the same actions, without an autograd graph."""

import numpy as np
import torch

from fastdqn.actor.greedy import make_greedy, without_autograd
from fastdqn.config import NetworkConfig
from fastdqn.learner.network import make_network


def test_same_actions_and_no_graph():
    torch.manual_seed(0)
    network = make_network(NetworkConfig(kind="mlp", hidden=()), (3, 10, 10), np.uint8, 4)
    recorded = []
    network.register_forward_hook(lambda module, inputs, output: recorded.append(output))
    textbook = make_greedy(network, "cpu")
    fast = without_autograd(textbook)
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(20):
        states = rng.integers(0, 256, (64, 3, 10, 10), dtype=np.uint8) * (rng.random((64, 3, 10, 10)) < 0.03)
        expected, actions = textbook(states), fast(states)
        np.testing.assert_array_equal(expected, actions)
        seen |= set(actions.tolist())
    assert len(seen) > 1, "one action for all states would show nothing"
    assert all(output.requires_grad for output in recorded[::2])
    assert all(output.is_inference() for output in recorded[1::2])
    for ours, theirs in zip(recorded[::2], recorded[1::2], strict=True):
        assert torch.equal(ours, theirs)
