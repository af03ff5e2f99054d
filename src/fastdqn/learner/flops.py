"""FLOPs of learning, counted without running it: the basis for computing a ceiling and choosing the number of threads."""

from collections.abc import Callable

import torch
from torch import nn

from fastdqn.config import Config
from fastdqn.learner.bootstrap import make_bootstrap


def forward_flops(make_network: Callable[[], nn.Module], state_shape: tuple[int, ...], device: str = "meta") -> int:
    """FLOPs of the forward pass of one state (a multiplication and an addition are two). On the device 'meta' nothing is
    computed, which not every user-defined network supports: use 'cpu' for those."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device(device):
        network = make_network()
        states = torch.zeros(1, *state_shape)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(states)
    return int(counter.get_total_flops())


def update_flops(config: Config, forward: int) -> int:
    """One update: the online network's forward pass and, at twice the cost, its backward pass; the target network on the
    next states; and the further passes that the bootstrap rule needs."""
    rule = make_bootstrap(config.learner)
    passes = 3 + 1 + rule.needs_online_next + rule.needs_target
    return passes * config.learner.batch_size * forward


def step_flops(config: Config, forward: int) -> float:
    """Per environment step: acting once, and its share of the updates."""
    return forward + update_flops(config, forward) / config.learner.steps_per_update
