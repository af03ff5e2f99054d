"""Catch: a ball crosses an 84x84 screen that wraps around sideways; a paddle must be under it when it lands.

The ball falls for eight steps and drifts to the left or to the right all the while. The paddle rides below it; on the
last step the ball hops three columns on, and the paddle jumps left, stays or jumps right. Whoever saw the direction
catches it every time. One frame does not show the direction (the column is uniform, and earlier actions leave no trace
that could serve as memory), so from single frames nobody can do better than a coin: mean 0. The smallest task that proves
a pixel path (frames, stacks, convolutions) learns end to end.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

CELLS = 21  # the screen is 21 x 21 cells of 4 x 4 pixels
CELL = 4
GAME_STEPS = 8
ROWS_PER_STEP = 2.5
HOP = 3  # columns of the ball's last hop and of the paddle's jump


class CatchEnv(gymnasium.Env[np.ndarray, int]):
    """Actions: left, stay, right. Reward 1 for a catch, -1 for a miss, at the end of a game of 8 steps."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012  (Gymnasium's own convention)

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space = spaces.Box(0, 255, (1, CELLS * CELL, CELLS * CELL), np.uint8)
        self.action_space = spaces.Discrete(3)  # type: ignore[assignment]
        self.render_mode = render_mode
        self._step, self._ball, self._paddle, self._direction = 0, 0, 0, 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        self._ball = self._paddle = int(self.np_random.integers(CELLS))
        self._direction = int(self.np_random.choice([-1, 1]))
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._step += 1
        last = self._step == GAME_STEPS
        self._ball = (self._ball + self._direction * (HOP if last else 1)) % CELLS
        self._paddle = (self._paddle + (int(action) - 1) * HOP) % CELLS if last else self._ball
        reward = (1.0 if self._paddle == self._ball else -1.0) if last else 0.0
        return self._observe(), reward, last, False, {}

    def render(self) -> Any:
        return np.repeat(self._observe()[0][:, :, None], 3, axis=2)

    def state(self) -> dict[str, Any]:
        position = [self._step, self._ball, self._paddle, self._direction]
        return {"position": np.array(position), "rng": self.np_random.bit_generator.state}

    def load_state(self, state: dict[str, Any]) -> None:
        self._step, self._ball, self._paddle, self._direction = (int(value) for value in state["position"])
        self.np_random.bit_generator.state = state["rng"]

    def _observe(self) -> np.ndarray:
        cells = np.zeros((CELLS, CELLS), np.uint8)
        cells[int(self._step * ROWS_PER_STEP), self._ball] = 255
        cells[-1, (self._paddle + np.arange(-1, 2)) % CELLS] = 255  # three cells wide, hit in the middle
        return cells.repeat(CELL, axis=0).repeat(CELL, axis=1)[None]
