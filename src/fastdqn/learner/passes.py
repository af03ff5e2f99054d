"""What goes into a loss and what comes out of it."""

from typing import NamedTuple

from torch import Tensor


class Passes(NamedTuple):
    """What the networks put out for a batch: (B, actions), or (B, actions, outputs). Only `online` carries gradient."""

    online: Tensor  # online(state)
    target_next: Tensor  # target(next_state)
    online_next: Tensor | None = None  # online(next_state), if the bootstrap rule asks for it
    target: Tensor | None = None  # target(state), if the bootstrap rule asks for it


class PerSample(NamedTuple):
    """What a loss answers, each (B,) and float32. Only `loss` carries gradient."""

    loss: Tensor
    error: Tensor  # its size is the sample's priority: the TD error, or the cross entropy of distributions
    value: Tensor  # of the action taken
