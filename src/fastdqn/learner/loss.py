"""The DQN loss. `discount` carries gamma, n and the end of the episode, so the loss knows none of them."""

import torch
import torch.nn.functional as F  # noqa: N812  (the name everybody reads it by)
from torch import Tensor, nn

from fastdqn.transition import Batch

ERRORS = {"huber": F.smooth_l1_loss, "mse": F.mse_loss}


def td_target(online: nn.Module, target: nn.Module, batch: Batch, double: bool) -> Tensor:
    """return + discount * value of the next state; no gradient flows through it."""
    with torch.no_grad():
        next_values = target(batch.next_state)  # (B, actions)
        if double:
            best = online(batch.next_state).argmax(1, keepdim=True)
            q_next = next_values.gather(1, best).squeeze(1)
        else:
            q_next = next_values.amax(1)
        goal: Tensor = batch.returns + batch.discount * q_next
        return goal


def td_loss(online: nn.Module, target: nn.Module, batch: Batch, *, double: bool, error: str) -> tuple[Tensor, Tensor]:
    """(loss, mean value of the actions taken), both scalars."""
    goal = td_target(online, target, batch, double)
    q = online(batch.state).gather(1, batch.action.unsqueeze(1)).squeeze(1)
    errors = ERRORS[error](q, goal, reduction="none")
    return (batch.weight * errors).mean(), q.detach().mean()
