"""The ring of ring.py in device memory (switch `device_ring`): the same rows, drawn on the network's device.

Only the newest frame is copied from the host, once; batches never are. All shapes are fixed and nothing is read back, so
that appending and drawing may be part of a CUDA graph.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastdqn.replay.ring import FIRST, TAIL, TERMINAL, valid_starts
from fastdqn.transition import DeviceBlock

COLUMNS = ("obs", "action", "reward", "flags")


class DeviceRing:
    """L lanes of T rows each, as in ring.Ring. `rows_opened` is the host's copy of W, so nothing waits for the device."""

    def __init__(
        self, num_lanes: int, rows_per_lane: int, obs_shape: tuple[int, ...], obs_dtype: Any, device: str | torch.device
    ) -> None:
        self.num_lanes, self.T = num_lanes, rows_per_lane
        self.device = torch.device(device)
        size = num_lanes * rows_per_lane
        dtype = torch.from_numpy(np.zeros(1, obs_dtype)).dtype
        # Flat: lane * T + slot is one index, and a gather of whole rows the fastest copy
        self.obs = torch.zeros((size, *obs_shape), dtype=dtype, device=device)
        self.action = torch.zeros(size, dtype=torch.int64, device=device)
        self.reward = torch.zeros(size, dtype=torch.float32, device=device)
        self.flags = torch.zeros(size, dtype=torch.uint8, device=device)
        self.W = torch.zeros(num_lanes, dtype=torch.int64, device=device)
        self.rows_opened = np.zeros(num_lanes, np.int64)
        self.after_write: list[Callable[[slice], None]] = []  # called with the lanes, on the device, after W has changed
        self._lane_numbers = torch.arange(num_lanes, device=device)
        self.base = self._lane_numbers * rows_per_lane  # (L,)
        self._first, self._terminal, self._tail, self._none = (
            torch.tensor(int(flag), dtype=torch.uint8, device=device) for flag in (FIRST, TERMINAL, TAIL, 0)
        )

    def write(self, block: DeviceBlock) -> None:
        """Ring.append on the device: data first, W last. On the host, `count` must be called too."""
        base, W = self.base[block.lanes], self.W[block.lanes]
        previous, new = base + (W - 1) % self.T, base + W % self.T
        outcome = torch.where(block.first, self._tail, torch.where(block.terminal, self._terminal, self._none))
        self.action.index_copy_(0, previous, block.action)
        self.reward.index_copy_(0, previous, block.reward)
        self.flags.index_copy_(0, previous, self.flags[previous] | outcome)
        self.obs.index_copy_(0, new, block.obs)
        self.flags.index_copy_(0, new, torch.where(block.first, self._first, self._none))
        W += 1  # a view of self.W
        for follow in self.after_write:
            follow(block.lanes)

    def count(self, lanes: slice) -> None:
        """The host's bookkeeping for a `write`."""
        self.rows_opened[lanes] += 1

    def newest_states(self, lanes: slice, stack: int) -> Tensor:
        """(L, *state_shape): the states of the lanes' open rows, for acting."""
        return stacked(self, self._lane_numbers[lanes], self.W[lanes] - 1, stack)

    def seal(self, lane: int) -> None:
        if self.rows_opened[lane] > 0:
            self.flags[lane * self.T + int(self.rows_opened[lane] - 1) % self.T] |= int(TAIL)

    def valid_starts(self, stack: int, n_step: int) -> tuple[Tensor, Tensor]:
        """Per lane, the first valid start and how many there are, on the device."""
        low = (self.W - self.T + stack - 1).clamp_(min=0)
        return low, (self.W - n_step - low).clamp_(min=0)

    def startable(self, stack: int, n_step: int) -> int:
        """The total number of valid starts, from the host's copy of W."""
        _, count = valid_starts(self.rows_opened, self.T, stack, n_step)
        return int(count.sum())

    def rows(self, since: np.ndarray) -> list[dict[str, np.ndarray]]:
        """As Ring.rows."""
        parts = []
        for lane in range(self.num_lanes):
            numbers = np.arange(max(int(since[lane]), int(self.rows_opened[lane]) - self.T, 0), self.rows_opened[lane])
            slots = torch.from_numpy(lane * self.T + numbers % self.T).to(self.device)
            parts.append({"row": numbers} | {name: getattr(self, name)[slots].cpu().numpy() for name in COLUMNS})
        return parts

    def state(self) -> dict[str, Any]:
        """As Ring.state, so that a run may resume with a ring of the other kind."""
        shaped = {name: getattr(self, name).unflatten(0, (self.num_lanes, self.T)) for name in COLUMNS}
        return {name: column.cpu().numpy().copy() for name, column in shaped.items()} | {"W": self.rows_opened.copy()}

    def load_state(self, state: dict[str, Any]) -> None:
        for name in COLUMNS:
            getattr(self, name).copy_(torch.from_numpy(state[name]).flatten(0, 1))
        self.W.copy_(torch.from_numpy(state["W"]))
        self.rows_opened[...] = state["W"]


def stacked(ring: DeviceRing, lane: Tensor, row: Tensor, stack: int) -> Tensor:
    """(B, stack * C, ...), as window.stacked."""
    obs_shape = ring.obs.shape[1:]
    rows = row.unsqueeze(1) - torch.arange(stack - 1, -1, -1, device=row.device)  # (B, stack)
    slots = lane.unsqueeze(1) * ring.T + rows % ring.T
    frames = ring.obs.index_select(0, slots.view(-1)).view(len(row), stack, *obs_shape)
    if stack > 1:
        is_first = (ring.flags[slots] & int(FIRST)) != 0
        # Frame j belongs to another episode if any newer frame of the stack, j+1 .. stack-1, is FIRST
        newer_first = is_first.flip(1).cumsum(1).flip(1) - is_first.to(torch.int64)
        foreign = (newer_first > 0).view(len(row), stack, *[1] * len(obs_shape))
        frames = frames.masked_fill(foreign, 0)
    return frames.view(len(row), stack * obs_shape[0], *obs_shape[1:])
