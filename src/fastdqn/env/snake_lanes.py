"""Snake, thousands of boards per call: the rules of snake.py in compiled loops (snake_kernels.py), bit for bit.

The cells of a board are numbered row by row. Each lane keeps its snake as a ring of cell numbers, so a move writes one
cell whatever the length; only the image costs time in proportion to the snake. Answers go to two buffers in turn, so
what `recv` gave stays valid while the next step is computed.
"""

from typing import Any

import numpy as np

from fastdqn.env.base import State, check_actions, split_lanes
from fastdqn.env.kind import EnvKind
from fastdqn.env.snake import SnakeEnv
from fastdqn.env.snake_rules import MOVES, NUM_ACTIONS, SnakeSettings, check_saved, make_spec, read_settings, start_positions
from fastdqn.transition import Tick

# One lane's game, 64 bytes: a cache line. int64 throughout, because numba turns int64 with uint64 into float64
GAME = np.dtype(
    [
        ("seed", np.uint64),
        ("episode", np.int64),
        ("steps", np.int64),
        ("head", np.int64),  # slot of the ring that holds the head's cell; the body lies in the slots before it
        ("length", np.int64),
        ("direction", np.int64),
        ("food", np.int64),  # its cell, -1 on a full board
        ("over", np.int64),  # 1: the next action is ignored and starts the next episode
    ]
)
OUTCOME = ("reward", "terminated", "truncated", "first")  # kept of the last tick in a state; its obs is painted anew


class SnakeLanes:
    """A LaneEnv of Snake boards. Lane with seed s plays the same game as `SnakeEnv` reset with seed s."""

    def __init__(self, num_lanes: int, num_groups: int = 1, **settings: int) -> None:
        from fastdqn.env import snake_kernels  # here, because importing numba takes half a second

        self._kernels = snake_kernels
        self.settings = read_settings(settings)
        self.spec = make_spec(self.settings)
        self.num_lanes = num_lanes
        self.groups = split_lanes(num_lanes, num_groups)

        cells = self.settings.dim**2
        self._games = np.zeros(num_lanes, GAME)
        self._ring = np.zeros((num_lanes, cells), np.int16)  # the cells of each snake
        self._taken = np.zeros((num_lanes, cells), np.uint8)  # 1 where a block lies
        self._actions = np.zeros(num_lanes, np.int64)
        self._neighbours = neighbours_of(self.settings.dim)
        self._starts = starts_of(self.settings)

        self._answers = [_empty_tick(num_lanes, self.settings.dim) for _ in range(2)]
        self._views = [[Tick(*(array[lanes] for array in tick)) for lanes in self.groups] for tick in self._answers]
        self._newest = [0] * num_groups  # which of the two answers holds a group's newest tick
        self.reset(list(range(num_lanes)))  # compiles: here, and not within the first step

    def reset(self, seeds: list[int]) -> None:
        if len(seeds) != self.num_lanes:
            raise ValueError(f"{self.num_lanes} lanes need as many seeds, not {len(seeds)}")
        self._games["seed"] = np.array([int(seed) % 2**64 for seed in seeds], np.uint64)
        self._games["episode"] = -1  # starting the next episode makes it 0
        self._games["over"] = 1
        for group, lanes in enumerate(self.groups):
            self._newest[group] = 0
            self._run(lanes, 0)

    def send(self, group: int, actions: np.ndarray) -> None:
        lanes = self.groups[group]
        if actions.shape != (lanes.stop - lanes.start,):
            raise ValueError(f"group {group} takes {lanes.stop - lanes.start} actions, not an array of {actions.shape}")
        check_actions(actions, NUM_ACTIONS)
        np.copyto(self._actions[lanes], actions, casting="same_kind")  # refuses floats
        self._newest[group] ^= 1
        self._run(lanes, self._newest[group])

    def recv(self, group: int) -> Tick:
        return self._views[self._newest[group]][group]

    def close(self) -> None:
        """Nothing to free."""

    def state(self) -> State:
        state: State = {"exact": True, "settings": self.settings.as_dict()}
        state |= {name: self._games[name].copy() for name in GAME.names or ()}
        state["ring"] = self._ring.copy()
        for name in OUTCOME:
            newest = [getattr(self.recv(group), name) for group in range(len(self.groups))]
            state[name] = np.concatenate(newest)
        return state

    def load_state(self, state: State) -> None:
        """The groups may be cut differently from those of the saved lanes."""
        check_saved(state, self.settings, self.num_lanes)
        for name in GAME.names or ():
            self._games[name] = state[name]
        self._ring[:] = state["ring"]
        answer = self._answers[0]
        self._newest = [0] * len(self.groups)
        for name in OUTCOME:
            getattr(answer, name)[:] = state[name]
        self._kernels.repaint(self._games, self._ring, self._taken, answer.obs.reshape(self.num_lanes, -1))

    def _run(self, lanes: slice, which: int) -> None:
        """Steps these lanes and writes their answer; touches nothing of other lanes."""
        answer = self._answers[which]
        self._kernels.step_lanes(
            lanes.start,
            lanes.stop,
            self._actions,
            self._games,
            self._ring,
            self._taken,
            self._neighbours,
            self._starts,
            self.settings.starting_blocks,
            self.settings.max_steps,
            answer.obs.reshape(self.num_lanes, -1),
            answer.reward,
            answer.terminated,
            answer.truncated,
            answer.first,
        )


def _empty_tick(num_lanes: int, dim: int) -> Tick:
    return Tick(
        obs=np.zeros((num_lanes, 3, dim, dim), np.uint8),
        reward=np.zeros(num_lanes, np.float32),
        terminated=np.zeros(num_lanes, bool),
        truncated=np.zeros(num_lanes, bool),
        life_lost=np.zeros(num_lanes, bool),  # a snake has one life
        first=np.zeros(num_lanes, bool),
    )


def neighbours_of(dim: int) -> np.ndarray:
    """(cells, 4): the cell reached from each cell by each action, -1 for the wall."""
    table = np.full((dim * dim, NUM_ACTIONS), -1, np.int64)
    for row in range(dim):
        for column in range(dim):
            for action, (down, right) in enumerate(MOVES):
                if 0 <= row + down < dim and 0 <= column + right < dim:
                    table[row * dim + column, action] = (row + down) * dim + column + right
    return table


def starts_of(settings: SnakeSettings) -> np.ndarray:
    """(choices, 2): cell and direction of the head, in the order of `start_positions`."""
    return np.array([(row * settings.dim + column, way) for row, column, way in start_positions(settings)], np.int64)


def snake_kind(settings: dict[str, Any]) -> EnvKind:
    """What `snake` means to the rest of the system. Unknown or impossible settings raise a UserError."""
    checked = read_settings(settings)

    def make_single(render_mode: str | None = None) -> SnakeEnv:
        return SnakeEnv(**checked.as_dict(), render_mode=render_mode)

    def make_lanes(num_lanes: int, num_groups: int) -> SnakeLanes:
        return SnakeLanes(num_lanes, num_groups, **checked.as_dict())

    def make_on_device(num_lanes: int, device: str) -> Any:
        from fastdqn.env.device_snake import DeviceSnake  # here: it imports torch

        return DeviceSnake(num_lanes, checked, device)

    return EnvKind(
        spec=make_spec(checked),
        preset="snake",
        stack=1,
        make_single=make_single,
        make_lanes=make_lanes,
        make_on_device=make_on_device,
        settings=checked.as_dict(),
    )
