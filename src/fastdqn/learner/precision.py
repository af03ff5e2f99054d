"""Shorter numbers: passes in bfloat16 or float16 (switches `bf16`, `fp16`), tensor cores and cuDNN (`tf32`,
`cudnn_benchmark`). Weights, gradients of weights and optimizer stay float32."""

import torch
from torch import Tensor, nn

from fastdqn.learner.loss import Loss
from fastdqn.learner.update import Update, weights_of
from fastdqn.transition import Batch


def in_short_numbers(loss: Loss, device: str, dtype: torch.dtype) -> Loss:
    """The loss under autocast. No cache of shortened weights: one made under no_grad, for the TD goal, would be used for
    the online network as well and carry no gradient."""
    device_type = device.partition(":")[0]

    def short(batch: Batch) -> tuple[Tensor, Tensor]:
        with torch.autocast(device_type, dtype=dtype, cache_enabled=False):
            return loss(batch)

    return short


def make_scaled_update(
    loss: Loss, optimizer: torch.optim.Optimizer, clip_grad_norm: float, *, grads_to_none: bool = False
) -> Update:
    """An update whose loss is scaled up before the backward pass, so that small gradients survive float16. An update
    whose gradients overflow is left out, and the scale halved."""
    weights = weights_of(optimizer)
    scaler = torch.amp.GradScaler(weights[0].device.type)

    def update(batch: Batch) -> tuple[Tensor, Tensor]:
        loss_value, q_mean = loss(batch)
        optimizer.zero_grad(set_to_none=grads_to_none)
        scaler.scale(loss_value).backward()  # type: ignore[no-untyped-call]
        if clip_grad_norm > 0:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(weights, clip_grad_norm)
        scaler.step(optimizer)
        scaler.update()
        return loss_value.detach(), q_mean

    return update


def set_tensor_cores(tf32: bool) -> None:
    """For the whole process: float32 products of matrices and convolutions on tensor cores, or in full."""
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32


def set_cudnn_search(on: bool) -> None:
    """For the whole process: cuDNN times its algorithms the first time it sees a shape. Batches have one shape here."""
    torch.backends.cudnn.benchmark = on
