"""A module that registers an environment, for `--import`.

PYTHONPATH=examples fastdqn train examples/Lamps-v0 --import custom_env_package --set env.lamps=4 --run lamps
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

PIXELS = 24  # of a lamp in a film


class LampsEnv(gymnasium.Env[np.ndarray, int]):
    """A row of lamps; pressing one flips it and its neighbours. Reward 1 when all are dark."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012  (Gymnasium's own convention)

    def __init__(self, lamps: int = 5, render_mode: str | None = None) -> None:
        self.observation_space = spaces.Box(0, 1, (lamps,), np.int8)
        self.action_space = spaces.Discrete(lamps)  # type: ignore[assignment]
        self.render_mode = render_mode
        self._lit = np.zeros(lamps, np.int8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._lit[:] = 0
        while not self._lit.any():  # made by presses, so presses can undo it
            for lamp in range(len(self._lit)):
                if self.np_random.random() < 0.5:
                    self._press(lamp)
        return self._lit.copy(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._press(int(action))
        solved = not self._lit.any()
        return self._lit.copy(), float(solved), solved, False, {}

    def render(self) -> Any:
        row = np.where(self._lit, 255, 40).astype(np.uint8).repeat(PIXELS)
        return np.broadcast_to(row[None, :, None], (PIXELS, len(row), 3)).copy()

    def _press(self, lamp: int) -> None:
        self._lit[max(0, lamp - 1) : lamp + 2] ^= 1


# Gymnasium cuts a game after max_episode_steps: a truncation, which a DQN bootstraps from
gymnasium.register("examples/Lamps-v0", entry_point="custom_env_package:LampsEnv", max_episode_steps=30)
