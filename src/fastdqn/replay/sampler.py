"""Samplers: which rows to learn from."""

from typing import Any, Protocol

import numpy as np

from fastdqn.replay.ring import TAIL, Ring

CANDIDATES = 4  # draws per sample; all are TAIL with probability (share of TAIL rows) ** 4, and then the weight is 0


class Sampler(Protocol):
    stack: int
    n_step: int
    rng: np.random.Generator

    def draw(self, ring: Ring, batch_size: int, batches: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(lane, row, weight), each (batches * batch_size,)."""

    def opened(self, ring: Ring, lanes: slice) -> None:
        """Called after each of these lanes got a new row."""

    def feedback(self, ring: Ring, index: Any, priority: Any) -> None: ...
    def set_beta(self, beta: float) -> None: ...
    def state(self) -> dict[str, Any]: ...
    def load_state(self, state: dict[str, Any], ring: Ring) -> None:
        """`ring` has loaded its own state already. The state may be that of another kind of sampler."""


class UniformSampler:
    """Every valid start with the same probability, in fixed shapes, so that the same rule runs inside a CUDA graph.

    A draw that hits a TAIL row is replaced by the next candidate, never by its neighbour: that would draw the last
    step of each game twice as often.
    """

    def __init__(self, stack: int, n_step: int, rng: np.random.Generator) -> None:
        self.stack, self.n_step, self.rng = stack, n_step, rng

    def draw(self, ring: Ring, batch_size: int, batches: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        u, low, count, ends = self.candidates(ring, batches * batch_size)
        lane = np.searchsorted(ends, u, side="right")
        row = low[lane] + u - (ends[lane] - count[lane])
        usable = (ring.flags[lane, row % ring.T] & TAIL) == 0
        chosen = usable.argmax(axis=0), np.arange(batches * batch_size)
        return lane[chosen], row[chosen], usable.any(axis=0).astype(np.float32)

    def candidates(self, ring: Ring, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Numbers of valid starts, counted over all lanes, (CANDIDATES, rows); and per lane the first valid start,
        how many there are, and their running sum."""
        low, count = ring.valid_starts(self.stack, self.n_step)
        ends = np.cumsum(count)
        if ends[-1] == 0:
            raise ValueError("nothing to draw yet: no row has a full window")
        return self.rng.integers(ends[-1], size=(CANDIDATES, rows)), low, count, ends

    def opened(self, ring: Ring, lanes: slice) -> None:
        """Nothing to do: valid starts are computed from the ring."""

    def feedback(self, ring: Ring, index: Any, priority: Any) -> None:
        """Ignored: no start is likelier than another."""

    def set_beta(self, beta: float) -> None:
        """Ignored: there is no bias to correct."""

    def state(self) -> dict[str, Any]:
        return {"rng": self.rng.bit_generator.state}

    def load_state(self, state: dict[str, Any], ring: Ring) -> None:
        self.rng.bit_generator.state = state["rng"]
