"""From gradients to new weights: clipping, the optimizer's step, and loss scaling for float16."""

from typing import Any, Protocol

import torch
from torch import Tensor

from fastdqn.learner.flat import flat_of


class Step(Protocol):
    """Called when the gradients are computed. It may skip a step with non-finite gradients, and change the loss scale."""

    optimizer: torch.optim.Optimizer

    def __call__(self) -> None: ...

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss that the backward pass starts from."""
        ...

    def state(self) -> dict[str, Any] | None:
        """Its own state, besides the optimizer's."""
        ...

    def load_state(self, state: dict[str, Any] | None) -> None: ...


class PlainStep:
    def __init__(self, optimizer: torch.optim.Optimizer, clip_grad_norm: float) -> None:
        """`clip_grad_norm`: maximum norm of the whole gradient, 0 for none. An optimizer that has a `clip` clips itself."""
        self.optimizer, self._largest = optimizer, clip_grad_norm
        self._weights = weights_of(optimizer)
        self._clip = getattr(optimizer, "clip", self._clip_in_place)

    def __call__(self) -> None:
        if self._largest > 0:
            self._clip(self._largest)
        self.optimizer.step()

    def scaled(self, loss: Tensor) -> Tensor:
        return loss

    def state(self) -> dict[str, Any] | None:
        return None

    def load_state(self, state: dict[str, Any] | None) -> None:
        """Ignores a loss scale that another kind of step saved."""

    def _clip_in_place(self, largest: float) -> None:
        gradients = [weight.grad for weight in self._weights if weight.grad is not None]
        flat = flat_of(gradients)
        clip_norm(gradients if flat is None else [flat], largest)


class ScaledStep(PlainStep):
    """The loss is scaled up before the backward pass, so that small gradients survive float16 (switch `fp16`). A step whose
    gradients overflow is skipped, and the scale halved."""

    def __init__(self, optimizer: torch.optim.Optimizer, clip_grad_norm: float) -> None:
        super().__init__(optimizer, clip_grad_norm)
        self._scaler = torch.amp.GradScaler(self._weights[0].device.type)

    def __call__(self) -> None:
        if self._largest > 0:
            self._scaler.unscale_(self.optimizer)
            self._clip_in_place(self._largest)
        self._scaler.step(self.optimizer)
        self._scaler.update()

    def scaled(self, loss: Tensor) -> Tensor:
        larger: Tensor = self._scaler.scale(loss)
        return larger

    def state(self) -> dict[str, Any] | None:
        return dict(self._scaler.state_dict())

    def load_state(self, state: dict[str, Any] | None) -> None:
        if state is not None:
            self._scaler.load_state_dict(state)


def weights_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def clip_norm(gradients: list[Tensor], largest: float) -> None:
    """Same results as nn.utils.clip_grad_norm_; but on a CPU, where reading the norm costs nothing, gradients within the
    limit are not multiplied by 1."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    share = largest / (norm + 1e-6)
    if norm.device.type != "cpu" or not share >= 1.0:  # also true for NaN
        torch._foreach_mul_(gradients, share.clamp_(max=1.0))
