"""One update: passes, loss, gradients (backprop.py), then clipping and the optimizer's step (step.py). Also the update of
the target network."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fastdqn.config import LearnerConfig
from fastdqn.learner.backprop import Backprop, Learned
from fastdqn.learner.step import Step
from fastdqn.transition import Batch

FollowOnline = Callable[[int], None]  # called after update number u (1, 2, ...): updates the target network


class Update:
    """The update of every learner, independent of network, loss and optimizer."""

    def __init__(self, backprop: Backprop, step: Step) -> None:
        self.backprop, self.step = backprop, step

    def __call__(self, batch: Batch, *known: Tensor) -> Learned:
        """`known` are the results of backprop.look_ahead for this batch, if it was called."""
        learned = self.backprop(batch, *known)
        self.step()
        return learned


MOST_TOGETHER = 16  # more brings no gain
MOST_BYTES_TOGETHER = 64 * 2**20  # of states and next states: batches drawn together are in memory together


def most_together(config: LearnerConfig, state_bytes: int) -> int:
    """For how many updates batches may be drawn together; at least 1, however large the batch."""
    return max(1, min(MOST_TOGETHER, MOST_BYTES_TOGETHER // (2 * config.batch_size * state_bytes)))


def updates_before_the_target_moves(config: LearnerConfig, most: int) -> Callable[[int], int]:
    """Updates done so far -> how many of the next ones use the current target network; 1 to `most`."""
    if config.target != "hard":
        return lambda done: 1
    return lambda done: min(most, config.target_every - done % config.target_every)


def make_target_rule(online: nn.Module, target: nn.Module, config: LearnerConfig) -> FollowOnline:
    """How the target network follows the online one. With target=none the two are the same object."""
    old_weights: list[Tensor] = list(target.parameters())
    new_weights: list[Tensor] = list(online.parameters())
    pairs = list(zip(old_weights, new_weights, strict=True))

    def copy_buffers() -> None:
        """Of a user-defined network, e.g. batch norm's. Looked up each time: a forward may assign new ones."""
        for old, new in zip(target.buffers(), online.buffers(), strict=True):
            old.copy_(new)

    @torch.no_grad()
    def copy_every(update: int) -> None:
        if update % config.target_every == 0:
            for old, new in pairs:
                old.copy_(new)
            copy_buffers()

    @torch.no_grad()
    def mix(update: int) -> None:
        torch._foreach_lerp_(old_weights, new_weights, config.target_tau)
        copy_buffers()

    def stay(update: int) -> None: ...

    return {"hard": copy_every, "soft": mix, "none": stay}[config.target]
