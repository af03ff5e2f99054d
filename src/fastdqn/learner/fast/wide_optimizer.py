"""Adam and RMSprop over all weights at once, on the whole GPU (switch `wide_optimizer`).

torch's fused Adam gives every thread block 65,536 weights. The 1.7 million of the Nature network keep 26 of an H200's 132
multiprocessors busy. Here the weights are one buffer (flat.py), updated by more blocks than there are multiprocessors.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fastdqn.config import LearnerConfig
from fastdqn.learner.flat import flat_of, lay_flat, like_in
from fastdqn.learner.optimizer import ALPHA, options_of


class Wide:
    """The common part: torch's results, and torch's state under its names, updated by one kernel."""

    state: Any
    param_groups: list[dict[str, Any]]

    def lay_out(self, moments: tuple[str, str], kernel: Callable[..., None]) -> None:
        """`moments` are torch's names of the two moments kept for each weight."""
        weights: list[Tensor] = self.param_groups[0]["params"]
        flat, gradients = flat_of(weights), flat_of([weight.grad for weight in weights if weight.grad is not None])
        assert flat is not None, "lay_flat comes first"
        assert gradients is not None, "lay_flat comes first"
        own = [torch.zeros_like(flat) for _ in moments]
        self._steps = torch.zeros(len(weights), device=flat.device)
        self._kernel, self._stretches = kernel, (flat, gradients, *own, self._steps)
        for number, weight in enumerate(weights):
            parts = {name: like_in(buffer, weight) for name, buffer in zip(moments, own, strict=True)}
            self.state[weight] = {"step": self._steps[number], **parts}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self._steps += 1.0
        group = self.param_groups[0]
        self._kernel(*self._stretches, group["lr"], group["eps"])

    step.hooked = True  # type: ignore[attr-defined]  # torch wraps every other step for its profiler


class WideAdam(Wide, torch.optim.Adam):  # type: ignore[misc]
    pass


class WideAdamW(Wide, torch.optim.AdamW):  # type: ignore[misc]
    pass


class WideRMSprop(Wide, torch.optim.RMSprop):  # type: ignore[misc]
    pass


def make_wide_optimizer(config: LearnerConfig, network: nn.Module) -> torch.optim.Optimizer:
    """Moves the network's weights into one buffer. The learning rate is a tensor, which a CUDA graph reads."""
    from fastdqn.learner.fast import wide_kernels  # here, because most machines have no Triton

    kernels: dict[str, tuple[type[Any], tuple[str, str], Callable[..., None]]] = {
        "adam": (WideAdam, ("exp_avg", "exp_avg_sq"), wide_kernels.adam),
        "adamw": (WideAdamW, ("exp_avg", "exp_avg_sq"), partial(wide_kernels.adam, decay=config.weight_decay)),
        "rmsprop": (WideRMSprop, ("square_avg", "grad_avg"), partial(wide_kernels.rmsprop, alpha=ALPHA)),
    }
    made_by, moments, kernel = kernels[config.optimizer]
    lay_flat(network)
    lr = torch.tensor(config.lr, device=next(network.parameters()).device)
    optimizer: torch.optim.Optimizer = made_by(network.parameters(), lr=lr, capturable=True, **options_of(config))
    assert isinstance(optimizer, Wide), "as the table says"
    optimizer.lay_out(moments, kernel)
    return optimizer
