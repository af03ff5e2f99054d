"""The inputs and outputs of a loss."""

from typing import NamedTuple

from torch import Tensor


class Passes(NamedTuple):
    """The networks' outputs for a batch: (B, actions), or (B, actions, outputs). Only `online` carries gradient."""

    online: Tensor  # online(state)
    target_next: Tensor  # target(next_state)
    online_next: Tensor | None = None  # online(next_state), if the bootstrap rule needs it
    target: Tensor | None = None  # target(state), if the bootstrap rule needs it


class PerSample(NamedTuple):
    """What a loss returns, each (B,) and float32. Only `loss` carries gradient."""

    loss: Tensor
    error: Tensor  # its absolute value is the sample's priority: the TD error, or the cross entropy of distributions
    value: Tensor  # of the action taken
