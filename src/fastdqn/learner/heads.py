"""From what a network puts out to one value per action."""

from typing import Any

from torch import Tensor, nn


class Head(nn.Module):
    """`outputs` numbers per action; called with (B, actions), or (B, actions, outputs) where there are several, it gives
    the values (B, actions)."""

    outputs = 1

    def facts(self) -> dict[str, Any]:
        """What a model file says of it."""
        return {}


class Values(Head):
    """The outputs are the values."""

    def forward(self, outputs: Tensor) -> Tensor:
        return outputs
