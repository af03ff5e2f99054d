"""From a network's outputs to one value per action."""

from typing import Any

from torch import Tensor, nn


class Head(nn.Module):
    """`outputs` numbers per action; called with (B, actions), or (B, actions, outputs) if there are several, it returns
    the values (B, actions)."""

    outputs = 1

    def facts(self) -> dict[str, Any]:
        """What the model file stores about it."""
        return {}


class Values(Head):
    """The outputs are the values."""

    def forward(self, outputs: Tensor) -> Tensor:
        return outputs
