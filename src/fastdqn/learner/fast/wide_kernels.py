"""The kernels of wide_optimizer.py, compiled by Triton when they are first called."""

import math

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # weights per program: 1,641 programs for the Nature network


def adam(
    weights: Tensor, gradients: Tensor, means: Tensor, squares: Tensor, steps: Tensor, lr: Tensor, eps: float,
    betas: tuple[float, float] = (0.9, 0.999), decay: float = 0.0,
) -> None:  # fmt: skip
    """One step of torch.optim.Adam, or of AdamW with weight decay. `steps` already counts this one."""
    size = weights.numel()
    logs = [math.log(beta) for beta in betas]
    _adam[(triton.cdiv(size, BLOCK),)](weights, gradients, means, squares, steps, lr, size, eps, decay, *betas, *logs, BLOCK)


def rmsprop(
    weights: Tensor, gradients: Tensor, squares: Tensor, means: Tensor, steps: Tensor, lr: Tensor, eps: float,
    alpha: float,
) -> None:  # fmt: skip
    """One step of torch.optim.RMSprop with centered=True, which has no use for `steps`."""
    size = weights.numel()
    _rmsprop[(triton.cdiv(size, BLOCK),)](weights, gradients, squares, means, lr, size, eps, alpha, BLOCK)


@triton.jit
def _adam(
    weights, gradients, means, squares, steps, lr, size, eps, decay, beta1,
    beta2, log_beta1: tl.constexpr, log_beta2: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    gradient = tl.load(gradients + place, inside)
    mean = tl.load(means + place, inside)
    mean += (gradient - mean) * (1.0 - beta1)
    square = tl.load(squares + place, inside) * beta2 + gradient * gradient * (1.0 - beta2)
    step = tl.load(steps).to(tl.float64)
    # In float64: 1 - 0.999**1 keeps four digits in float32
    correction1 = (1.0 - tl.exp(step * log_beta1)).to(tl.float32)
    correction2 = tl.sqrt(1.0 - tl.exp(step * log_beta2)).to(tl.float32)
    rate = tl.load(lr)
    change = rate / correction1 * mean / (tl.sqrt(square) / correction2 + eps)
    tl.store(weights + place, tl.load(weights + place, inside) * (1.0 - rate * decay) - change, inside)
    tl.store(means + place, mean, inside)
    tl.store(squares + place, square, inside)


@triton.jit
def _rmsprop(
    weights, gradients, squares, means, lr, size, eps, alpha, BLOCK: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    gradient = tl.load(gradients + place, inside)
    square = tl.load(squares + place, inside) * alpha + gradient * gradient * (1.0 - alpha)
    mean = tl.load(means + place, inside)
    mean += (gradient - mean) * (1.0 - alpha)
    spread = tl.sqrt(tl.maximum(square - mean * mean, 0.0))  # rounding may make it negative
    change = tl.load(lr) * gradient / (spread + eps)
    tl.store(weights + place, tl.load(weights + place, inside) - change, inside)
    tl.store(squares + place, square, inside)
    tl.store(means + place, mean, inside)
