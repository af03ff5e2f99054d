"""Snake on a device (switch `device_snake`): thousands of boards stepped in tensors, the rules of snake.py bit for bit.

    age    0 0 0 0 0      A board is a plane of ages: 0 is free, the tail is 1, each block one more than the block behind
           0 1 0 0 0      it, the head as old as the snake is long. A move takes one from every age and puts the length
           0 2 3 4 0      under the head; a meal leaves the ages alone.

Nothing is read back and all shapes are fixed, so that a step may be part of a CUDA graph.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fastdqn.device.counter_rng import mix, remainder
from fastdqn.env.base import State, check_actions
from fastdqn.env.snake_lanes import neighbours_of, starts_of
from fastdqn.env.snake_rules import NUM_ACTIONS, SnakeSettings, check_saved, make_spec
from fastdqn.transition import Tick

COLUMNS = ("seed", "episode", "steps", "length", "direction", "head", "food", "over", "age")


class Answer(NamedTuple):
    """A Tick in tensors; overwritten by the next step."""

    obs: Tensor  # (L, 3, dim, dim) uint8
    reward: Tensor  # (L,) float32
    terminated: Tensor  # (L,) bool
    truncated: Tensor  # (L,) bool
    first: Tensor  # (L,) bool


class DeviceSnake:
    """A LaneEnv of one group. `step(actions)` moves every board once; one whose game is over starts the next instead."""

    def __init__(self, num_lanes: int, settings: SnakeSettings, device: str | torch.device) -> None:
        self.num_lanes, self.settings, self.spec = num_lanes, settings, make_spec(settings)
        self.groups: tuple[slice, ...] = (slice(0, num_lanes),)
        cells = settings.dim**2
        numbers: dict[str, Any] = {"dtype": torch.int64, "device": device}
        self.seed, self.episode, self.steps, self.length, self.direction, self.head, self.food = (
            torch.zeros(num_lanes, **numbers) for _ in range(7)
        )
        self.over = torch.ones(num_lanes, dtype=torch.bool, device=device)
        self.age = torch.zeros((num_lanes, cells), dtype=torch.int16, device=device)
        self._neighbours = torch.from_numpy(neighbours_of(settings.dim)).to(**numbers)  # (cells, 4), -1 beyond a wall
        starts = torch.from_numpy(starts_of(settings)).to(**numbers)  # (starts, 2): cell, direction
        self._start_cell, self._start_direction = starts.unbind(1)
        self._start_age = _boards(starts, self._neighbours, settings.starting_blocks)  # (starts, cells)
        self._cell_numbers = torch.arange(cells, device=device)
        flags: dict[str, Any] = {"dtype": torch.bool, "device": device}
        self.answer = Answer(
            torch.zeros((num_lanes, 3, settings.dim, settings.dim), dtype=torch.uint8, device=device),
            torch.zeros(num_lanes, device=device),
            *(torch.zeros(num_lanes, **flags) for _ in range(3)),
        )

    def reset(self, seeds: list[int]) -> None:
        """The next step starts every lane's first game."""
        if len(seeds) != self.num_lanes:
            raise ValueError(f"{self.num_lanes} lanes need as many seeds, not {len(seeds)}")
        words = np.array([int(seed) % 2**64 for seed in seeds], np.uint64).view(np.int64)
        self.seed.copy_(mix(torch.from_numpy(words)))
        self.episode.fill_(-1)
        self.over.fill_(True)
        self._started = False

    def send(self, group: int, actions: np.ndarray) -> None:
        """Actions from the host; DeviceActor gives its own to `step`."""
        check_actions(actions, NUM_ACTIONS)
        self.step(torch.from_numpy(actions).to(self.seed.device))

    def recv(self, group: int) -> Tick:
        if not self._started:
            self.step(torch.zeros_like(self.seed))
        arrays = {name: tensor.cpu().numpy().copy() for name, tensor in self.answer._asdict().items()}
        return Tick(**arrays, life_lost=np.zeros(self.num_lanes, bool))

    @torch.no_grad()
    def step(self, actions: Tensor) -> None:
        """Leaves its outcome in `answer`."""
        self._started = True
        starting = self.over.clone()
        reward, crashed = self._move(actions, ~starting)
        self._start(starting)
        self._place_food(starting | (reward > 0))
        terminated = crashed | (self.food < 0)
        truncated = ~terminated & (self.steps >= self.settings.max_steps)
        self.over.copy_(terminated | truncated)
        for own, new in zip(self.answer[1:], (reward, terminated, truncated, starting), strict=True):
            own.copy_(new)
        self._paint()

    def _move(self, actions: Tensor, moving: Tensor) -> tuple[Tensor, Tensor]:
        """Every board that is not starting; a crash leaves the board as it was. Gives (reward, crashed)."""
        turning = moving & ((actions != self.direction ^ 2) | (self.length == 1))
        self.direction.copy_(torch.where(turning, actions, self.direction))
        target = self._neighbours[self.head, self.direction]
        # The tail (age 1) moves away in time
        age_there = self.age.gather(1, target.clamp(min=0).unsqueeze(1)).squeeze(1)
        crashed = moving & ((target < 0) | (age_there > 1))
        moved = moving & ~crashed
        ate = moved & (target == self.food)
        self.steps += moving
        self.length += ate
        self.head.copy_(torch.where(moved, target, self.head))
        self.age.sub_((moved & ~ate).unsqueeze(1).to(torch.int16)).clamp_(min=0)
        self._put(moved, self.head, self.length)
        return ate.to(torch.float32) - crashed.to(torch.float32), crashed

    def _put(self, where: Tensor, cell: Tensor, age: Tensor) -> None:
        """age[lane, cell[lane]] = age[lane] in the lanes of `where`."""
        at = cell.unsqueeze(1)
        new = torch.where(where, age.to(torch.int16), self.age.gather(1, at).squeeze(1))
        self.age.scatter_(1, at, new.unsqueeze(1))

    def _start(self, starting: Tensor) -> None:
        self.episode += starting
        choice = self._draw(torch.zeros_like(self.episode), len(self._start_cell))
        self.head.copy_(torch.where(starting, self._start_cell[choice], self.head))
        self.direction.copy_(torch.where(starting, self._start_direction[choice], self.direction))
        self.length.masked_fill_(starting, self.settings.starting_blocks)
        self.steps.masked_fill_(starting, 0)
        self.age.copy_(torch.where(starting.unsqueeze(1), self._start_age[choice], self.age))

    def _place_food(self, where: Tensor) -> None:
        """Uniform over the free cells: the k-th of them in row-major order; -1 on a full board."""
        free = self.age == 0
        count = self.age.shape[1] - self.length
        skip = self._draw(1 + self.length - self.settings.starting_blocks, count.clamp(min=1))
        is_food = free & (free.cumsum(1) == (skip + 1).unsqueeze(1))
        cell = (is_food * self._cell_numbers).sum(1)
        self.food.copy_(torch.where(where, torch.where(count > 0, cell, -1), self.food))

    def _draw(self, number: Tensor, choices: Tensor | int) -> Tensor:
        """The random numbers of snake_rules.draw."""
        return remainder(mix(mix(self.seed + self.episode) + number), choices)

    def _paint(self) -> None:
        """Head, body (brighter towards the head, never 0) and food."""
        planes = self.answer.obs.view(self.num_lanes, 3, -1)
        is_head = self._cell_numbers == self.head.unsqueeze(1)
        length = self.length.to(torch.int32).unsqueeze(1)
        brightness = (255 * self.age.to(torch.int32) + length - 1) // length  # rounded up
        planes[:, 0] = is_head * 255
        planes[:, 1] = brightness.masked_fill(is_head, 0)
        planes[:, 2] = (self._cell_numbers == self.food.unsqueeze(1)) * 255

    def close(self) -> None:
        """Nothing to free."""

    def state(self) -> State:
        """Between two steps: the games and the newest answer, whose image is painted anew."""
        kept = {name: getattr(self, name).cpu().numpy().copy() for name in COLUMNS}
        kept |= {"exact": True, "settings": self.settings.as_dict()}
        return kept | {name: getattr(self.answer, name).cpu().numpy().copy() for name in Answer._fields[1:]}

    def load_state(self, state: State) -> None:
        check_saved(state, self.settings, self.num_lanes)
        for name in COLUMNS:
            getattr(self, name).copy_(torch.from_numpy(state[name]))
        for name in Answer._fields[1:]:
            getattr(self.answer, name).copy_(torch.from_numpy(state[name]))
        self._paint()
        self._started = True


def _boards(starts: Tensor, neighbours: Tensor, blocks: int) -> Tensor:
    """(starts, cells): the ages of a snake that begins at each of them."""
    cell, direction = starts.unbind(1)
    board = torch.zeros((len(starts), len(neighbours)), dtype=torch.int16, device=starts.device)
    for age in range(blocks, 0, -1):  # from the head back to the tail
        board.scatter_(1, cell.unsqueeze(1), age)
        cell = neighbours[cell, direction ^ 2]
    return board
