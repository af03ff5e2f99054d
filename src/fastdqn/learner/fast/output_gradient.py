"""The gradient of the loss at the network's outputs: where the forward pass ends and a hand-written backward pass begins.

Any loss works, by autograd over its few small tensors. On a CPU huber, mse and c51 have compiled versions: 128 rows of
values are a microsecond of arithmetic, and the thirty torch calls for it take a hundred.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fastdqn.learner.backprop import Learned
from fastdqn.learner.c51 import CategoricalLoss
from fastdqn.learner.loss import Loss
from fastdqn.learner.passes import Passes
from fastdqn.transition import Batch

# (passes, batch) -> (gradient of the batch's loss at passes.online, float32; results of the update)
OutputGradient = Callable[[Passes, Batch], tuple[Tensor, Learned]]


def make_output_gradient(loss: Loss, device: str) -> OutputGradient:
    twin = TWINS.get((loss.name, loss.bootstrap.name)) if device == "cpu" else None
    return by_autograd(loss) if twin is None else twin(loss)


def by_autograd(loss: Loss) -> OutputGradient:
    def output_gradient(passes: Passes, batch: Batch) -> tuple[Tensor, Learned]:
        with torch.enable_grad():
            online = passes.online.detach().float().requires_grad_()
            per_sample = loss(passes._replace(online=online), batch)
            mean = (batch.weight * per_sample.loss).mean()
            (gradient,) = torch.autograd.grad(mean, online)
        return gradient, Learned(mean.detach(), per_sample.value.mean(), per_sample.error)

    return output_gradient


def compiled(loss: Loss) -> OutputGradient:
    from fastdqn.learner.fast.loss_kernel import gradient_of  # here, because importing numba takes half a second

    huber = {"huber": True, "mse": False}[loss.name]
    # By shape, overwritten by the next batch of that shape: gradient and error, as tensors and as arrays
    filled: dict[torch.Size, tuple[Tensor, Tensor, np.ndarray, np.ndarray]] = {}

    def output_gradient(passes: Passes, batch: Batch) -> tuple[Tensor, Learned]:
        online = passes.online.float()
        if online.shape not in filled:
            gradient, error = torch.empty(online.shape), torch.empty(len(online))
            filled[online.shape] = gradient, error, gradient.numpy(), error.numpy()
        gradient, error, *arrays = filled[online.shape]
        target_next = passes.target_next.float().numpy()
        mean, q_mean = gradient_of(
            online.numpy(),
            target_next,
            target_next if passes.online_next is None else passes.online_next.float().numpy(),
            batch.action.numpy(),
            batch.returns.numpy(),
            batch.discount.numpy(),
            batch.weight.numpy(),
            huber,
            *arrays,
        )
        return gradient, Learned(mean, q_mean, error)

    return output_gradient


def compiled_c51(loss: Loss) -> OutputGradient:
    from fastdqn.learner.fast.loss_kernel import c51_gradient_of

    assert isinstance(loss, CategoricalLoss), "found by its name"
    head, beyond = loss.head, loss.beyond.numpy()

    @torch.no_grad()
    def output_gradient(passes: Passes, batch: Batch) -> tuple[Tensor, Learned]:
        choosing = head(passes.target_next if passes.online_next is None else passes.online_next)
        log_chances = passes.online.float().log_softmax(2)
        gradient, error = log_chances.exp(), torch.empty(len(log_chances))
        mean, q_mean, outside = c51_gradient_of(
            passes.target_next.float().softmax(2).numpy(),
            choosing.numpy(),
            log_chances.numpy(),
            head.support.numpy(),
            batch.action.numpy(),
            batch.returns.numpy(),
            batch.discount.numpy(),
            batch.weight.numpy(),
            gradient.numpy(),
            error.numpy(),
        )
        beyond[0] += outside
        beyond[1] += len(error)
        return gradient, Learned(mean, q_mean, error)

    return output_gradient


# By the names of distance and bootstrap rule
TWINS: dict[tuple[str, str], Callable[[Loss], OutputGradient]] = {
    (distance, rule): compiled_c51 if distance == "c51" else compiled
    for distance in ("huber", "mse", "c51")
    for rule in ("max", "double")
}
