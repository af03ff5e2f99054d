"""The DQN loss. `discount` carries gamma, n and the end of the episode, so the loss knows none of them."""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812  (the name everybody reads it by)
from torch import Tensor, nn

from fastdqn.config import LearnerConfig
from fastdqn.transition import Batch

ERRORS = {"huber": F.smooth_l1_loss, "mse": F.mse_loss}

Goal = Callable[[Batch], Tensor]  # batch -> what the values of the actions taken should be, (B,)
Loss = Callable[[Batch], tuple[Tensor, Tensor]]  # batch -> (loss, mean value of the actions taken), scalars


def make_goal(online: nn.Module, target: nn.Module, config: LearnerConfig) -> Goal:
    """return + discount * value of the next state, as a textbook has it: the graph it builds is cut off at its end."""

    def goal(batch: Batch) -> Tensor:
        next_values = target(batch.next_state)  # (B, actions)
        if config.double:
            best = online(batch.next_state).argmax(1, keepdim=True)
            q_next = next_values.gather(1, best).squeeze(1)
        else:
            q_next = next_values.amax(1)
        wanted: Tensor = batch.returns + batch.discount * q_next
        return wanted.detach()

    return goal


def without_graph(goal: Goal) -> Goal:
    """The same goal under torch.no_grad: no graph is built in the first place (switch `no_grad`)."""

    def graphless(batch: Batch) -> Tensor:
        with torch.no_grad():
            return goal(batch)

    return graphless


def make_loss(online: nn.Module, goal: Goal, config: LearnerConfig) -> Loss:
    error = ERRORS[config.loss]

    def loss(batch: Batch) -> tuple[Tensor, Tensor]:
        wanted = goal(batch)
        q = online(batch.state).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        # float32 from here on: under autocast q and wanted may come in a shorter format
        errors = error(q.float(), wanted.float(), reduction="none")
        return (batch.weight * errors).mean(), q.detach().float().mean()

    return loss
