"""Prioritised sampling: the larger a row's last TD error, the likelier it is drawn (setting `replay.prioritised`).

A row can be drawn once its n steps are stored: first with the largest priority seen so far, then with the one from feedback.
It gets priority 0 when the oldest frame of its stack is overwritten. TAIL rows stay at 0. So every draw is a valid start.
"""

from typing import Any

import numpy as np

from fastdqn.replay.ring import TAIL, Ring
from fastdqn.replay.sum_tree import SumTree

SMALLEST = 1e-6  # added to a priority, so that a row with zero error can still be drawn


class PrioritisedSampler:
    """Draws row i with probability p_i / sum of all p, where p = (priority + 1e-6) ** alpha, independently."""

    def __init__(self, stack: int, n_step: int, rng: np.random.Generator, *, slots: int, alpha: float, beta: float) -> None:
        """`slots`: lanes x rows per lane."""
        self.stack, self.n_step, self.rng = stack, n_step, rng
        self.alpha, self.beta = alpha, beta
        self.tree = SumTree(slots)
        self.maximum = np.ones(1)  # an array, so that a compiled loop can update it

    def draw(self, ring: Ring, batch_size: int, batches: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        from fastdqn.replay.sum_tree_kernels import draw_rows  # here, because importing numba takes half a second

        if self.tree.nodes[1] == 0.0:
            return self._nothing_to_learn(ring, batches * batch_size)
        shape = (batches, batch_size)
        lane, row, weight = np.empty(shape, np.int64), np.empty(shape, np.int64), np.empty(shape, np.float32)
        draw_rows(self.tree.nodes, self.rng.random(shape), ring.W, ring.T, self.beta, lane, row, weight)
        return lane.ravel(), row.ravel(), weight.ravel()

    def opened(self, ring: Ring, lanes: slice) -> None:
        from fastdqn.replay.sum_tree_kernels import open_rows

        open_rows(self.tree.nodes, self.maximum, ring.W, ring.flags, lanes.start, lanes.stop, self.stack, self.n_step)

    def feedback(self, ring: Ring, index: Any, priority: Any) -> None:
        """Rows that were overwritten since they were drawn are ignored, as are non-finite priorities. If a row occurs twice,
        the larger priority counts."""
        from fastdqn.replay.sum_tree_kernels import take_feedback

        index, priority = np.ascontiguousarray(index, np.int64), np.ascontiguousarray(priority, np.float32)
        how = (self.stack, self.n_step, self.alpha)
        take_feedback(self.tree.nodes, self.maximum, index, priority, ring.W, ring.flags, *how)

    def set_beta(self, beta: float) -> None:
        self.beta = float(beta)

    def state(self) -> dict[str, Any]:
        priorities = {"stored": self.tree.leaves.copy(), "maximum": float(self.maximum[0])}
        return {"rng": self.rng.bit_generator.state, "priorities": priorities}

    def load_state(self, state: dict[str, Any], ring: Ring) -> None:
        self.rng.bit_generator.state = state["rng"]
        stored, maximum = fitting(state.get("priorities"), ring.W, ring.flags, self.stack, self.n_step)
        self.tree.fill(stored.ravel())
        self.maximum[0] = maximum

    def _nothing_to_learn(self, ring: Ring, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """If all valid starts are TAIL rows, which can happen in the first ticks: one of them, with weight 0."""
        low, count = ring.valid_starts(self.stack, self.n_step)
        if not count.any():
            raise ValueError("nothing to draw yet: no row has a full window")
        lane = int(count.argmax())
        return np.full(rows, lane), np.full(rows, low[lane]), np.zeros(rows, np.float32)


def fitting(
    saved: dict[str, Any] | None, W: np.ndarray, flags: np.ndarray, stack: int, n_step: int
) -> tuple[np.ndarray, float]:
    """((L, T) priorities, the maximum) for a ring that was loaded: the saved priorities, the maximum for valid starts that
    have none (from a uniform replay, another n_step), and 0 elsewhere."""
    lanes, length = flags.shape
    maximum = 1.0 if saved is None else float(saved["maximum"])
    stored = np.zeros(flags.shape) if saved is None else np.asarray(saved["stored"], np.float64).reshape(lanes, length)
    newest = W[:, None] - 1
    row = newest - (newest - np.arange(length)) % length  # (L, T): which row is in which slot
    low = np.maximum(0, W[:, None] - length + stack - 1)
    valid = (row >= low) & (row <= newest - n_step) & ((flags & TAIL) == 0)
    return np.where(valid, np.where(stored > 0, stored, maximum), 0.0), maximum
