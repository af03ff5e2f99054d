"""From the values of a batch to the slope of its loss: where the forward pass ends and the backward pass begins.

For the update written by hand. On a CPU it is one compiled loop: 128 rows of 4 values are a microsecond of arithmetic, and
the twenty torch calls for it a hundred.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fastdqn.config import LearnerConfig
from fastdqn.transition import Batch

# (values, next values of the target network, next values that choose the action or None, batch)
# -> (slope of the loss at `values`, float32; loss; mean value of the actions taken)
TD = Callable[[Tensor, Tensor, Tensor | None, Batch], tuple[Tensor, Tensor, Tensor]]


def make_td(config: LearnerConfig, device: str) -> TD:
    return compiled_td(config) if device == "cpu" else plain_td(config)


def plain_td(config: LearnerConfig) -> TD:
    def td(values: Tensor, next_values: Tensor, choosing: Tensor | None, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        if choosing is None:
            q_next = next_values.amax(1)
        else:
            q_next = next_values.gather(1, choosing.argmax(1, keepdim=True)).squeeze(1)
        goal = batch.returns + batch.discount * q_next.float()
        action = batch.action.unsqueeze(1)
        q = values.gather(1, action).squeeze(1).float()
        miss = q - goal
        if config.loss == "huber":
            slope = miss.clamp(-1.0, 1.0)
            error = slope * (miss - 0.5 * slope)  # x^2 / 2 within 1, |x| - 1/2 beyond
        else:
            slope = 2.0 * miss
            error = miss * miss
        slopes = torch.zeros_like(values, dtype=torch.float32)
        slopes.scatter_(1, action, (batch.weight * slope / len(miss)).unsqueeze(1))
        return slopes, (batch.weight * error).mean(), q.mean()

    return td


def compiled_td(config: LearnerConfig) -> TD:
    from fastdqn.learner.td_kernel import slopes_of  # here, because importing numba takes half a second

    huber = config.loss == "huber"

    def td(values: Tensor, next_values: Tensor, choosing: Tensor | None, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        slopes = torch.empty(values.shape)
        loss, q_mean = slopes_of(
            values.float().numpy(),
            next_values.float().numpy(),
            (next_values if choosing is None else choosing).float().numpy(),
            batch.action.numpy(),
            batch.returns.numpy(),
            batch.discount.numpy(),
            batch.weight.numpy(),
            huber,
            slopes.numpy(),
        )
        return slopes, torch.tensor(loss, dtype=torch.float32), torch.tensor(q_mean, dtype=torch.float32)

    return td
