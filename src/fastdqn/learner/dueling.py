"""The last layer of a dueling network (Wang et al. 2016): one state value and one advantage per action, combined.

    q(a) = v + advantage(a) - mean of the advantages

Each stream has its own hidden layer. The two are concatenated in the layer before this one, so they are one matrix product.
This layer is linear in both, so it can be computed as one linear layer too (`as_linear`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Dueling(nn.Module):
    """(B, 2 * width): the value stream's features, then the advantage stream's -> (B, actions * outputs)."""

    def __init__(self, width: int, num_actions: int, outputs: int = 1) -> None:
        super().__init__()
        self.width, self.num_actions, self.outputs = width, num_actions, outputs
        self.value = nn.Linear(width, outputs)
        self.advantage = nn.Linear(width, num_actions * outputs)

    def forward(self, features: Tensor) -> Tensor:
        for_value, for_advantage = torch.split(features, self.width, 1)
        advantage = torch.unflatten(self.advantage(for_advantage), 1, (self.num_actions, self.outputs))
        return (self.value(for_value).unsqueeze(1) + advantage - advantage.mean(1, keepdim=True)).flatten(1)

    def as_linear(self, cast: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Weight (actions * outputs, 2 * width) and bias of the equivalent linear layer. `cast` are the weights and biases
        of value and advantage, in the dtype of the passes."""
        value, value_bias, *advantages = cast
        advantage, advantage_bias = (torch.unflatten(own, 0, (self.num_actions, self.outputs)) for own in advantages)
        centred = advantage - advantage.mean(0)
        weight = torch.cat([value.expand_as(centred), centred], 2).flatten(0, 1)
        return weight, (value_bias + advantage_bias - advantage_bias.mean(0)).flatten()

    def split_gradients(self, of_weight: Tensor, of_bias: Tensor, gradients: Sequence[Tensor]) -> None:
        """Fills the gradients of value and advantage from those of that linear layer."""
        by_action = torch.unflatten(of_weight, 0, (self.num_actions, self.outputs))
        for_value, for_advantage = torch.split(by_action, self.width, 2)
        bias = torch.unflatten(of_bias, 0, (self.num_actions, self.outputs))
        torch.sum(for_value, 0, out=gradients[0])
        torch.sum(bias, 0, out=gradients[1])
        torch.sub(for_advantage, for_advantage.mean(0), out=torch.unflatten(gradients[2], 0, by_action.shape[:2]))
        torch.sub(bias, bias.mean(0), out=torch.unflatten(gradients[3], 0, bias.shape))
