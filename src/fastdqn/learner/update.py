"""One update: loss, gradients, optimizer, target network. A plain function, wrapped at build time."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fastdqn.config import LearnerConfig
from fastdqn.learner.loss import td_loss
from fastdqn.transition import Batch

Update = Callable[[Batch], tuple[Tensor, Tensor]]  # batch -> (loss, q_mean), detached scalars on the device
FollowOnline = Callable[[int], None]  # called after update number u (1, 2, ...): moves the target network


def make_optimizer(config: LearnerConfig, network: nn.Module) -> torch.optim.Optimizer:
    if config.optimizer == "adam":
        return torch.optim.Adam(network.parameters(), lr=config.lr, eps=config.optimizer_eps)
    # Nature's RMSprop: centred, squared-gradient momentum 0.95
    return torch.optim.RMSprop(network.parameters(), lr=config.lr, alpha=0.95, eps=config.optimizer_eps, centered=True)


def make_update(online: nn.Module, target: nn.Module, optimizer: torch.optim.Optimizer, config: LearnerConfig) -> Update:
    parameters = list(online.parameters())

    def update(batch: Batch) -> tuple[Tensor, Tensor]:
        loss, q_mean = td_loss(online, target, batch, double=config.double, error=config.loss)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if config.clip_grad_norm > 0:
            nn.utils.clip_grad_norm_(parameters, config.clip_grad_norm)
        optimizer.step()
        return loss.detach(), q_mean

    return update


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
