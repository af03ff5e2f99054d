"""The optimizers: as torch makes them by default, and with all weights stepped in one call (switch `fused_optimizer`)."""

from typing import Any

import torch
from torch import nn

from fastdqn.config import LearnerConfig


def make_optimizer(config: LearnerConfig, network: nn.Module, *, one_call: bool = False) -> torch.optim.Optimizer:
    """`one_call`: Adam fused into one kernel; RMSprop, which torch has no fused version of, over lists of tensors."""
    weights = network.parameters()
    if config.optimizer == "adam":
        how: dict[str, Any] = {"fused": True} if one_call else {}
        return torch.optim.Adam(weights, lr=config.lr, eps=config.optimizer_eps, **how)
    how = {"foreach": True} if one_call else {}
    # Nature's RMSprop: centred, squared-gradient momentum 0.95
    return torch.optim.RMSprop(weights, lr=config.lr, alpha=0.95, eps=config.optimizer_eps, centered=True, **how)
