"""The optimizers: torch's defaults, or with all weights updated in one call (switch `fused_optimizer`)."""

from typing import Any

import torch
from torch import Tensor, nn

from fastdqn.config import LearnerConfig

ALPHA = 0.95  # of Nature's RMSprop: centred, squared gradients averaged over 20 updates

OPTIMIZERS: dict[str, Any] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
}
ONE_CALL = {"adam": "fused", "adamw": "fused", "rmsprop": "foreach"}  # torch has no fused RMSprop


def options_of(config: LearnerConfig) -> dict[str, Any]:
    """The optimizer's constructor arguments besides the learning rate."""
    own: dict[str, dict[str, Any]] = {
        "adam": {},
        "adamw": {"weight_decay": config.weight_decay},
        "rmsprop": {"alpha": ALPHA, "centered": True},
    }
    return {"eps": config.optimizer_eps, **own[config.optimizer]}


def make_optimizer(
    config: LearnerConfig, network: nn.Module, *, one_call: bool = False, in_graph: bool = False
) -> torch.optim.Optimizer:
    """`in_graph`: everything that changes from step to step is a tensor on the device, the learning rate too."""
    weights: list[Tensor] = list(network.parameters())
    lr: Any = torch.tensor(config.lr, device=weights[0].device) if in_graph else config.lr
    how: dict[str, Any] = options_of(config) | ({"capturable": True} if in_graph else {})
    how |= {ONE_CALL[config.optimizer]: True} if one_call else {}
    optimizer: Any = OPTIMIZERS[config.optimizer](weights, lr=lr, **how)
    # The first step runs before a graph is captured, on purpose: torch would warn about that
    optimizer._warned_capturable_if_run_uncaptured = True
    made: torch.optim.Optimizer = optimizer
    return made
