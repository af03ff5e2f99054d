"""The losses: from the outputs of the networks to a loss per sample.

A loss is a distance (huber, mse, c51) from a TD target, and the target comes from a bootstrap rule (bootstrap.py). It is
plain torch in float32 and knows nothing of networks, priorities, gamma or n: `discount` carries gamma, n and the end of the
episode. How to add one: docs/add-a-learning-part.md.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch.nn.functional as F  # noqa: N812  (the name everybody reads it by)
from torch import Tensor

from fastdqn.config import LearnerConfig
from fastdqn.errors import UserError, nearest
from fastdqn.learner.bootstrap import Bootstrap, make_bootstrap
from fastdqn.learner.c51 import Categorical, cross_entropy
from fastdqn.learner.heads import Head, Values
from fastdqn.learner.passes import Passes, PerSample
from fastdqn.transition import Batch


class Loss(Protocol):
    """`name` is the distance's; it and the bootstrap's name select a compiled version (output_gradient.py)."""

    name: str
    bootstrap: Bootstrap

    def __call__(self, passes: Passes, batch: Batch) -> PerSample: ...


class Distance(NamedTuple):
    """One row of the table of losses."""

    head: Callable[[LearnerConfig], Head]  # what the network must output, and how it becomes values
    loss: Callable[[LearnerConfig, Head, Bootstrap], Loss]
    bootstraps: tuple[str, ...]  # that it can be combined with


class ScalarLoss:
    """The distance between one value and one TD target."""

    def __init__(self, name: str, distance: Callable[..., Tensor], bootstrap: Bootstrap) -> None:
        self.name, self.bootstrap, self._distance = name, bootstrap, distance

    def __call__(self, passes: Passes, batch: Batch) -> PerSample:
        td_target = self.bootstrap.td_target(passes, batch).detach()
        value = passes.online.gather(1, batch.action.unsqueeze(1)).squeeze(1).float()
        loss = self._distance(value, td_target, reduction="none")
        return PerSample(loss, (value - td_target).detach(), value.detach())


def scalar(name: str, distance: Callable[..., Tensor]) -> Distance:
    """A row for a distance with torch's signature: (values, TD targets, reduction="none") -> (B,)."""
    return Distance(
        head=lambda config: Values(),
        loss=lambda config, head, bootstrap: ScalarLoss(name, distance, bootstrap),
        bootstraps=("max", "double", "munchausen"),
    )


LOSSES: dict[str, Distance] = {
    "huber": scalar("huber", F.smooth_l1_loss),
    "mse": scalar("mse", F.mse_loss),
    "c51": Distance(Categorical.of, cross_entropy, bootstraps=("max", "double")),
}


def find_distance(config: LearnerConfig) -> Distance:
    """The configured row; raises UserError for an unknown loss, or one that cannot be combined with its bootstrap rule."""
    if config.loss not in LOSSES:
        raise UserError(f"Unknown loss '{config.loss}'.{nearest(config.loss, LOSSES)} Losses: {', '.join(LOSSES)}.")
    row, rule = LOSSES[config.loss], config.bootstrap
    if rule not in row.bootstraps:
        legal = ", ".join(name for name, other in LOSSES.items() if rule in other.bootstraps)
        raise UserError(f"learner.loss={config.loss} does not go together with {rule}. Losses that do: {legal}.")
    return row


def make_head(config: LearnerConfig) -> Head:
    return find_distance(config).head(config)


def make_loss(config: LearnerConfig, head: Head) -> Loss:
    """`head` is the online network's: its tensors (a support, say) are on the network's device."""
    return find_distance(config).loss(config, head, make_bootstrap(config))
