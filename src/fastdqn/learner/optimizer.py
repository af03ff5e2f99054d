"""The optimizers: as torch makes them by default, and with all weights stepped in one call (switch `fused_optimizer`)."""

from typing import Any

import torch
from torch import Tensor, nn

from fastdqn.config import LearnerConfig

ALPHA = 0.95  # of Nature's RMSprop: centred, squared gradients averaged over 20 updates


def make_optimizer(
    config: LearnerConfig, network: nn.Module, *, one_call: bool = False, in_graph: bool = False
) -> torch.optim.Optimizer:
    """`one_call`: Adam fused into one kernel; RMSprop, which torch has no fused version of, over lists of tensors.
    `in_graph`: whatever changes from step to step is a tensor of the device, the learning rate too."""
    optimizer = _make(config, list(network.parameters()), one_call, in_graph)
    # The first step runs before anything is recorded, on purpose: torch would warn of that
    optimizer._warned_capturable_if_run_uncaptured = True
    return optimizer


def _make(config: LearnerConfig, weights: list[Tensor], one_call: bool, in_graph: bool) -> torch.optim.Optimizer:
    lr: Any = torch.tensor(config.lr, device=weights[0].device) if in_graph else config.lr
    how: dict[str, Any] = {"capturable": True} if in_graph else {}
    if config.optimizer == "adam":
        how |= {"fused": True} if one_call else {}
        return torch.optim.Adam(weights, lr=lr, eps=config.optimizer_eps, **how)
    how |= {"foreach": True} if one_call else {}
    return torch.optim.RMSprop(weights, lr=lr, alpha=ALPHA, eps=config.optimizer_eps, centered=True, **how)
