"""Train with a network of your own: anything that is called with (state_shape, num_actions) and gives a module.

python examples/own_network.py --steps 30k
"""

import argparse

import numpy as np
import torch
from torch import Tensor, nn

import fastdqn


class Dueling(nn.Module):
    """A value and one advantage per action, joined (Wang et al. 2016). States come as float32; bytes as 0 to 1."""

    def __init__(self, state_shape: tuple[int, ...], num_actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(state_shape)), 128), nn.ReLU())
        self.value = nn.Linear(128, 1)
        self.advantage = nn.Linear(128, num_actions)

    def forward(self, state: Tensor) -> Tensor:
        features = self.body(state)
        advantage = self.advantage(features)
        return self.value(features) + advantage - advantage.mean(1, keepdim=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", default="30k", help="environment steps")
    arguments = parser.parse_args()

    run = fastdqn.train("CartPole-v1", steps=arguments.steps, network=Dueling)
    print(f"{run.steps:,} steps, {run.updates:,} updates")

    player = fastdqn.load(run, network=Dueling)  # a run keeps weights, not code
    print("values of the upright pole:", player.values(np.zeros(4, np.float32)).round(2))
    assert isinstance(player.network.body, Dueling)
    print(f"{sum(weights.numel() for weights in player.network.parameters()):,} weights, torch {torch.__version__}")


if __name__ == "__main__":
    main()
