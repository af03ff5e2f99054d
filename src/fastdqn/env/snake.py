"""Snake, one game at a time in plain Python: the reference that the fast version must match bit for bit.

The observation is uint8 (3, dim, dim); a cell is in at most one plane:
    0 head    255 at the head
    1 body    the block i places behind the head of a snake of n blocks: 255 * (n - i) / n, rounded up. The neck is
              brightest, the tail dimmest and never 0, so one image tells the motion. The head is not in this plane
    2 food    255 at the food; empty once the board is full
A crash leaves the board as it was before the fatal move, so the last observation is always a legal board.
"""

import secrets
from collections import deque
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fastdqn.env.base import State
from fastdqn.env.snake_image import BoardView, paint_board, print_board
from fastdqn.env.snake_rules import (
    CAMEL_CASE,
    MOVES,
    NUM_ACTIONS,
    brightness,
    draw,
    read_settings,
    start_positions,
)
from fastdqn.errors import UserError

Cell = tuple[int, int]  # row, column


class SnakeEnv(gymnasium.Env[npt.NDArray[np.uint8], np.int64]):
    """Actions 0 up, 1 right, 2 down, 3 left; reward +1 for food, -1 for death; the score is the food eaten."""

    metadata = {"render_modes": ["rgb_array", "ansi"], "render_fps": 12}  # noqa: RUF012 (Gymnasium's own type)

    def __init__(
        self,
        dim: int = 10,
        starting_blocks: int = 3,
        dist_to_border: int | None = None,  # 3, or the most that a small board allows
        max_steps: int = 500,
        render_mode: str | None = None,
        **camel_case: int,
    ) -> None:
        snake_case = {"dim": dim, "starting_blocks": starting_blocks, "max_steps": max_steps}
        if dist_to_border is not None:
            snake_case["dist_to_border"] = dist_to_border
        # A camelCase name replaces its snake_case one: whether that one was given or is the default cannot be told
        replaced = {CAMEL_CASE[name] for name in camel_case if name in CAMEL_CASE}
        kept = {name: value for name, value in snake_case.items() if name not in replaced}
        self.settings = read_settings(kept | camel_case)
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UserError(f"Snake: render_mode must be rgb_array, ansi or None, not {render_mode!r}.")
        self.render_mode = render_mode

        board = (3, self.settings.dim, self.settings.dim)
        self.observation_space = spaces.Box(0, 255, board, np.uint8)
        self.action_space = spaces.Discrete(NUM_ACTIONS)

        self._starts = start_positions(self.settings)
        self._seed: int | None = None  # with the episode number, all the randomness there is
        self._episode = 0
        self._body: deque[Cell] = deque()  # the head first
        self._direction = 0
        self._food: Cell | None = None
        self._score = 0
        self._steps = 0
        self._outcome = "not begun"  # then "playing", and at last "dead", "won" or "time"

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
        """With a seed: episode 0 of that seed. Without: the next episode, of a random seed if there was none."""
        seed = None if seed is None else int(seed)
        super().reset(seed=seed)  # checks the seed; Gymnasium's generator is not used
        if seed is not None or self._seed is None:
            self._seed = secrets.randbits(64) if seed is None else seed % 2**64
            self._episode = 0
        else:
            self._episode += 1

        start = draw(self._seed, self._episode, 0, len(self._starts))
        row, column, self._direction = self._starts[start]
        down, right = MOVES[self._direction]
        self._body = deque((row - i * down, column - i * right) for i in range(self.settings.starting_blocks))
        self._score = 0
        self._steps = 0
        self._outcome = "playing"
        self._place_food()
        return self._observe(), {"score": self._score}

    def step(self, action: np.int64 | int) -> tuple[npt.NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        if self._outcome != "playing":
            raise gymnasium.error.ResetNeeded("Snake: this game is over (or none has begun); call reset() first.")
        if not 0 <= action < NUM_ACTIONS:
            raise ValueError(f"Snake: action must be 0, 1, 2 or 3, not {action}.")

        is_reversal = action == self._direction ^ 2 and len(self._body) > 1  # one block has no neck to turn into
        if not is_reversal:
            self._direction = int(action)
        target = self._cell_ahead()
        self._steps += 1

        reward = 0.0
        if self._is_deadly(target):
            reward, self._outcome = -1.0, "dead"
        elif target == self._food:
            reward = 1.0
            self._score += 1
            self._body.appendleft(target)
            self._place_food()
            if len(self._body) == self.settings.dim**2:
                self._outcome = "won"
        else:
            self._body.pop()
            self._body.appendleft(target)
        if self._outcome == "playing" and self._steps >= self.settings.max_steps:
            self._outcome = "time"

        terminated, truncated = self._outcome in ("dead", "won"), self._outcome == "time"
        return self._observe(), reward, terminated, truncated, {"score": self._score}

    def render(self) -> Any:
        """An RGB image (height, width, 3) or a text, as `render_mode` says."""
        if self.render_mode == "rgb_array":
            return paint_board(self._view())
        if self.render_mode == "ansi":
            return print_board(self._view())
        gymnasium.logger.warn("Snake: render() needs render_mode='rgb_array' or 'ansi' when the environment is made.")
        return None

    def state(self) -> State:
        """Everything needed to go on exactly from here."""
        return {
            "settings": self.settings.as_dict(),
            "seed": self._seed,
            "episode": self._episode,
            "body": np.array(self._body, np.int64).reshape(-1, 2),  # (blocks, 2): row and column, the head first
            "direction": self._direction,
            "food": None if self._food is None else list(self._food),
            "score": self._score,
            "steps": self._steps,
            "outcome": self._outcome,
        }

    def load_state(self, state: State) -> None:
        if state["settings"] != self.settings.as_dict():
            raise UserError(f"Snake: the saved game has settings {state['settings']}, not {self.settings.as_dict()}.")
        self._seed = state["seed"]
        self._episode = int(state["episode"])
        self._body = deque((int(row), int(column)) for row, column in state["body"])
        self._direction = int(state["direction"])
        self._food = None if state["food"] is None else (int(state["food"][0]), int(state["food"][1]))
        self._score = int(state["score"])
        self._steps = int(state["steps"])
        self._outcome = state["outcome"]

    def _cell_ahead(self) -> Cell:
        (row, column), (down, right) = self._body[0], MOVES[self._direction]
        return row + down, column + right

    def _is_deadly(self, target: Cell) -> bool:
        """A wall or the body. The tail's cell is safe: the tail leaves it in this step (food never lies on it)."""
        on_board = 0 <= target[0] < self.settings.dim and 0 <= target[1] < self.settings.dim
        return not on_board or (target in self._body and target != self._body[-1])

    def _place_food(self) -> None:
        """Uniform over the free cells: the k-th of them in row-major order."""
        assert self._seed is not None
        taken = set(self._body)
        cells = range(self.settings.dim)
        free = [(row, column) for row in cells for column in cells if (row, column) not in taken]
        self._food = free[draw(self._seed, self._episode, 1 + self._score, len(free))] if free else None

    def _observe(self) -> npt.NDArray[np.uint8]:
        head, body, food = obs = np.zeros((3, self.settings.dim, self.settings.dim), np.uint8)
        for i, cell in enumerate(self._body):
            if i == 0:
                head[cell] = 255
            else:
                body[cell] = brightness(i, len(self._body))
        if self._food is not None:
            food[self._food] = 255
        return obs

    def _view(self) -> BoardView:
        body, food = tuple(self._body), self._food
        return BoardView(self.settings.dim, body, self._direction, food, self._score, self._outcome)
