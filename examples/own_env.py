"""Train on an environment of your own: a Gymnasium class, handed over as a function that makes it.

python examples/own_env.py --steps 20k
"""

import argparse
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import fastdqn

LEFT, RIGHT = 0, 1


class Corridor(gymnasium.Env[np.ndarray, int]):
    """Walk from the middle of a corridor to its right end; the left end is a pit."""

    def __init__(self, length: int = 9) -> None:
        self.length = length
        self.observation_space = spaces.Box(0.0, 1.0, (length,), np.float32)  # a DQN needs a Box ...
        self.action_space = spaces.Discrete(2)  # ... and a Discrete
        self._cell, self._steps = 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)  # seeds self.np_random, the only source of chance here
        self._cell = self.length // 2 + int(self.np_random.integers(-1, 2))
        self._steps = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._cell += 1 if action == RIGHT else -1
        self._steps += 1
        terminated = self._cell in (0, self.length - 1)
        truncated = not terminated and self._steps >= 50  # cut, not ended: its value goes on
        reward = 0.0 if not terminated else (1.0 if self._cell else -1.0)
        return self._observe(), reward, terminated, truncated, {}

    def _observe(self) -> np.ndarray:
        return np.eye(self.length, dtype=np.float32)[self._cell]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", default="20k", help="environment steps")
    arguments = parser.parse_args()

    def make() -> Corridor:
        return Corridor(length=9)

    run = fastdqn.train(make, steps=arguments.steps)  # train(lambda: Corridor()) does as well
    print(f"{run.steps:,} steps, {run.updates:,} updates")
    if run.score is not None:
        print(f"mean score {run.score.mean:.2f} over {run.score.episodes} games")

    player = fastdqn.load(run, env=make)  # a run keeps no code, so the maker is needed again
    env = make()
    obs, _ = env.reset(seed=1)
    over, path = False, []
    while not over:
        action = player.act(obs)
        path.append("left" if action == LEFT else "right")
        obs, _, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
    print("one game:", " ".join(path))


if __name__ == "__main__":
    main()
