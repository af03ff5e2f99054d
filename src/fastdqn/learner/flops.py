"""How much arithmetic learning is, counted without doing it: what a ceiling and a choice of threads are worked out from."""

from collections.abc import Callable

import torch
from torch import nn

from fastdqn.config import Config
from fastdqn.learner.bootstrap import make_bootstrap


def forward_flops(make_network: Callable[[], nn.Module], state_shape: tuple[int, ...], device: str = "meta") -> int:
    """Floating-point operations of one state through the network (a multiplication and an addition are two). On the
    device 'meta' nothing is computed, which not every network of a user's own can do: give 'cpu' for those."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device(device):
        network = make_network()
        states = torch.zeros(1, *state_shape)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(states)
    return int(counter.get_total_flops())


def update_flops(config: Config, forward: int) -> int:
    """One update: the online network forwards and, at twice the price, backwards; the target network on the next states;
    and what the bootstrap rule asks for beside them."""
    rule = make_bootstrap(config.learner)
    passes = 3 + 1 + rule.needs_online_next + rule.needs_target
    return passes * config.learner.batch_size * forward


def step_flops(config: Config, forward: int) -> float:
    """Per environment step: acting once, and the updates that a step earns."""
    return forward + update_flops(config, forward) / config.learner.steps_per_update
