"""One update: loss, gradients, optimizer, target network. A plain function, put together at build time."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from fastdqn.config import LearnerConfig
from fastdqn.learner.loss import Loss
from fastdqn.transition import Batch

# (batch, what was computed ahead for it) -> (loss, q_mean): detached scalars on the device, or plain numbers
Update = Callable[..., tuple[Tensor | float, Tensor | float]]


@runtime_checkable
class StatefulUpdate(Protocol):
    """An update that remembers something from one batch to the next, such as the scale of a loss."""

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]: ...
    def state(self) -> dict[str, Any]: ...
    def load_state(self, state: dict[str, Any]) -> None: ...


FollowOnline = Callable[[int], None]  # called after update number u (1, 2, ...): moves the target network


def make_update(
    loss: Loss, optimizer: torch.optim.Optimizer, clip_grad_norm: float, *, grads_to_none: bool = False
) -> Update:
    """`grads_to_none`: gradients are dropped, and the backward pass writes new ones instead of adding to zeros."""
    weights = weights_of(optimizer)

    def update(batch: Batch) -> tuple[Tensor, Tensor]:
        loss_value, q_mean = loss(batch)
        optimizer.zero_grad(set_to_none=grads_to_none)
        loss_value.backward()  # type: ignore[no-untyped-call]
        if clip_grad_norm > 0:
            nn.utils.clip_grad_norm_(weights, clip_grad_norm)
        optimizer.step()
        return loss_value.detach(), q_mean

    return update


def weights_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


MOST_TOGETHER = 16  # more gain nothing
MOST_BYTES_TOGETHER = 64 * 2**20  # of states and next states: what is drawn together must be held together


def most_together(config: LearnerConfig, state_bytes: int) -> int:
    """How many updates may be drawn together; at least 1, however large its batch."""
    return max(1, min(MOST_TOGETHER, MOST_BYTES_TOGETHER // (2 * config.batch_size * state_bytes)))


def updates_before_the_target_moves(config: LearnerConfig, most: int) -> Callable[[int], int]:
    """Updates done so far -> how many of the next ones see the target network as it is now; 1 to `most`."""
    if config.target != "hard":
        return lambda done: 1
    return lambda done: min(most, config.target_every - done % config.target_every)


def make_target_rule(online: nn.Module, target: nn.Module, config: LearnerConfig) -> FollowOnline:
    """How the target network follows the online one. With target=none the two are the same object."""
    old_weights: list[Tensor] = list(target.parameters())
    new_weights: list[Tensor] = list(online.parameters())
    pairs = list(zip(old_weights, new_weights, strict=True))
    buffers = list(zip(target.buffers(), online.buffers(), strict=True))  # of a network of the user's own, batch norm's say

    @torch.no_grad()
    def copy_every(update: int) -> None:
        if update % config.target_every == 0:
            for old, new in [*pairs, *buffers]:
                old.copy_(new)

    @torch.no_grad()
    def mix(update: int) -> None:
        torch._foreach_lerp_(old_weights, new_weights, config.target_tau)
        for old, new in buffers:
            old.copy_(new)

    def stay(update: int) -> None: ...

    return {"hard": copy_every, "soft": mix, "none": stay}[config.target]
