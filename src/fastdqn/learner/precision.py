"""Shorter numbers: passes in bfloat16 or float16 (switches `bf16`, `fp16`), tensor cores and cuDNN (`tf32`,
`cudnn_benchmark`). Weights, gradients of weights and optimizer stay float32."""

from typing import Any

import torch
from torch import Tensor, nn

from fastdqn.learner.loss import Loss
from fastdqn.learner.update import weights_of
from fastdqn.transition import Batch


def in_short_numbers(loss: Loss, device: str, dtype: torch.dtype) -> Loss:
    """The loss under autocast. No cache of shortened weights: one made under no_grad, for the TD goal, would be used for
    the online network as well and carry no gradient."""
    device_type = device.partition(":")[0]

    def short(batch: Batch) -> tuple[Tensor, Tensor]:
        with torch.autocast(device_type, dtype=dtype, cache_enabled=False):
            return loss(batch)

    return short


class ScaledUpdate:
    """An update whose loss is scaled up before the backward pass, so that small gradients survive float16. An update
    whose gradients overflow is left out, and the scale halved."""

    def __init__(
        self, loss: Loss, optimizer: torch.optim.Optimizer, clip_grad_norm: float, *, grads_to_none: bool = False
    ) -> None:
        self._loss, self._optimizer = loss, optimizer
        self._clip_grad_norm, self._grads_to_none = clip_grad_norm, grads_to_none
        self._weights = weights_of(optimizer)
        self._scaler = torch.amp.GradScaler(self._weights[0].device.type)

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        loss_value, q_mean = self._loss(batch)
        self._optimizer.zero_grad(set_to_none=self._grads_to_none)
        self._scaler.scale(loss_value).backward()  # type: ignore[no-untyped-call]
        if self._clip_grad_norm > 0:
            self._scaler.unscale_(self._optimizer)
            nn.utils.clip_grad_norm_(self._weights, self._clip_grad_norm)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        return loss_value.detach(), q_mean

    def state(self) -> dict[str, Any]:
        return dict(self._scaler.state_dict())

    def load_state(self, state: dict[str, Any]) -> None:
        self._scaler.load_state_dict(state)


def set_tensor_cores(tf32: bool) -> None:
    """For the whole process: float32 products of matrices and convolutions on tensor cores, or in full."""
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32


def set_cudnn_search(on: bool) -> None:
    """For the whole process: cuDNN times its algorithms the first time it sees a shape. Batches have one shape here."""
    torch.backends.cudnn.benchmark = on
