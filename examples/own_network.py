"""Train with a network of your own: anything that is called with (state_shape, outputs) and gives a module.

python examples/own_network.py --steps 30k

The one here is a dueling network written by hand. The same one is built in (`network.dueling=true`), so both are
trained, and their speeds stand side by side.
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
        self.for_value = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))
        self.for_advantage = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, num_actions))

    def forward(self, state: Tensor) -> Tensor:
        features = self.body(state)
        advantage = self.for_advantage(features)
        return self.for_value(features) + advantage - advantage.mean(1, keepdim=True)


def speed(run: "fastdqn.Run") -> float:
    """Steps a second, in the middle of all lines of the log."""
    return float(np.median([row["steps_per_second"] for row in run.metrics()]))


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

    built_in = {"network.hidden": [128, 128], "network.dueling": True}
    same = fastdqn.train("CartPole-v1", steps=arguments.steps, settings=built_in)
    print(f"{speed(run):,.0f} steps/s with this network, {speed(same):,.0f} with the same one built in")


if __name__ == "__main__":
    main()
