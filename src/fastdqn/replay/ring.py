"""The ring of lanes: every observation is stored once, in the order it was seen, one ring per lane.

    row       0      1      2      3      4      5      6       W = 7 rows opened, row 6 is open
    obs       o0     o1     o2     o3     p0     p1     p2
    action    a0     a1     a2     -      b0     b1
    flags     FIRST         TERM   TAIL   FIRST                 a game of 3 steps takes 4 rows

A row is opened with its observation and closed when the outcome of its action arrives. The newest row is open: it may
serve as a next state, never as a start. Row numbers are absolute and never wrap; a row lives in slot `row % T`.
Truncation needs no flag: a row that is not TERMINAL and whose next row is TAIL bootstraps from that TAIL row.
"""

from typing import Any

import numpy as np

from fastdqn.replay.place import Allocate, in_memory
from fastdqn.transition import Block

FIRST = np.uint8(1)  # obs came from a reset: no older frame enters its stack
TERMINAL = np.uint8(2)  # this row's action ended the learning episode: discount 0
TAIL = np.uint8(4)  # no action was taken here: the true last observation of a game


class Ring:
    """L lanes of T rows each. `W[lane]` counts the rows opened so far (int64, never wraps)."""

    def __init__(
        self,
        num_lanes: int,
        rows_per_lane: int,
        obs_shape: tuple[int, ...],
        obs_dtype: Any,
        allocate: Allocate = in_memory,
    ) -> None:
        self.num_lanes = num_lanes
        self.T = rows_per_lane
        self.obs = allocate((num_lanes, rows_per_lane, *obs_shape), obs_dtype)
        self.action = allocate((num_lanes, rows_per_lane), np.int64)
        self.reward = allocate((num_lanes, rows_per_lane), np.float32)
        self.flags = allocate((num_lanes, rows_per_lane), np.uint8)
        self.W = np.zeros(num_lanes, np.int64)
        self._lane_numbers = np.arange(num_lanes)

    def append(self, block: Block) -> None:
        """Closes the open row of each lane of the block and opens the next. Data first, W last."""
        lanes = self._lane_numbers[block.lanes]
        W = self.W[block.lanes]
        # On a lane's very first row, `previous` is slot T-1, which is not open yet: what is written there is overwritten
        previous, new = (W - 1) % self.T, W % self.T
        outcome = np.where(block.first, TAIL, np.where(block.terminal, TERMINAL, np.uint8(0)))
        self.action[lanes, previous] = block.action
        self.reward[lanes, previous] = block.reward
        self.flags[lanes, previous] |= outcome
        self.obs[lanes, new] = block.obs
        self.flags[lanes, new] = np.where(block.first, FIRST, np.uint8(0))
        self.W[block.lanes] = W + 1

    def seal(self, lane: int) -> None:
        """Marks the open row TAIL, after a killed actor, a rebuilt env or resume. The lane's next block must be `first`."""
        if self.W[lane] > 0:
            self.flags[lane, (self.W[lane] - 1) % self.T] |= TAIL

    def valid_starts(self, stack: int, n_step: int) -> tuple[np.ndarray, np.ndarray]:
        """Per lane, the first valid start and how many there are (TAIL rows among them are skipped when drawing)."""
        return valid_starts(self.W, self.T, stack, n_step)

    def rows(self, since: np.ndarray) -> list[dict[str, np.ndarray]]:
        """Per lane, the rows numbered `since[lane]` and later that are still stored, oldest first. To save in increments,
        pass the W of the last save minus 1: the row that was open then has been closed since."""
        parts = []
        for lane in range(self.num_lanes):
            numbers = np.arange(max(int(since[lane]), int(self.W[lane]) - self.T, 0), self.W[lane])
            slots = numbers % self.T
            columns = {name: getattr(self, name)[lane, slots] for name in ("obs", "action", "reward", "flags")}
            parts.append({"row": numbers, **columns})
        return parts

    def state(self) -> dict[str, Any]:
        return {name: getattr(self, name).copy() for name in ("obs", "action", "reward", "flags", "W")}

    def load_state(self, state: dict[str, Any]) -> None:
        for name, saved in state.items():
            getattr(self, name)[...] = saved


def valid_starts(W: np.ndarray, T: int, stack: int, n_step: int) -> tuple[np.ndarray, np.ndarray]:
    low = np.maximum(0, W - T + stack - 1)
    return low, np.maximum(0, W - n_step - low)


def bytes_per_row(obs_shape: tuple[int, ...], obs_dtype: Any) -> int:
    return int(np.prod(obs_shape)) * np.dtype(obs_dtype).itemsize + 8 + 4 + 1  # action, reward, flags
