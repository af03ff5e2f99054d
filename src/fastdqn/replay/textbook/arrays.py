"""Whole transitions in preallocated float32 arrays (switch `array_replay`; used when `frame_ring` is off)."""

from typing import Any

import numpy as np

from fastdqn.replay.textbook.accumulate import Accumulator, Transition
from fastdqn.transition import Batch, Block


class ArrayReplay:
    """Whole transitions in preallocated arrays, states and next states as float32 stacks."""

    def __init__(
        self, capacity: int, state_shape: tuple[int, ...], accumulator: Accumulator, rng: np.random.Generator
    ) -> None:
        self._accumulator, self._rng = accumulator, rng
        self._columns: dict[str, np.ndarray] = {
            "state": np.zeros((capacity, *state_shape), np.float32),
            "action": np.zeros(capacity, np.int64),
            "returns": np.zeros(capacity, np.float32),
            "discount": np.zeros(capacity, np.float32),
            "next_state": np.zeros((capacity, *state_shape), np.float32),
            "index": np.zeros((capacity, 2), np.int64),
        }
        self._capacity = capacity
        self._written = 0  # transitions stored so far, never wraps

    def append(self, block: Block) -> None:
        self._store(self._accumulator.add(block))

    def seal(self, lane: int) -> None:
        self._store(self._accumulator.seal(lane))

    def sample(self, batch_size: int, batches: int = 1) -> Batch:
        return self._batch(self._rng.integers(len(self), size=batches * batch_size))

    def feedback(self, index: Any, priority: Any) -> None:
        """Ignored: draws are uniform."""

    def set_beta(self, beta: float) -> None:
        """Ignored: draws are uniform."""

    def gather(self, lane: np.ndarray, row: np.ndarray) -> Batch:
        stored = self._columns["index"][: len(self)].tolist()
        slot_of = {(a, b): slot for slot, (a, b) in enumerate(stored)}
        return self._batch(np.array([slot_of[int(a), int(b)] for a, b in zip(lane, row, strict=True)]))

    def __len__(self) -> int:
        return min(self._written, self._capacity)

    def state(self) -> dict[str, Any]:
        columns = {name: array.copy() for name, array in self._columns.items()}
        rng = self._rng.bit_generator.state
        return {"columns": columns, "written": self._written, "accumulator": self._accumulator.state(), "rng": rng}

    def load_state(self, state: dict[str, Any]) -> None:
        for name, saved in state["columns"].items():
            self._columns[name][...] = saved
        self._written = state["written"]
        self._accumulator.load_state(state["accumulator"])
        self._rng.bit_generator.state = state["rng"]

    def _store(self, transitions: list[Transition]) -> None:
        for transition in transitions:
            slot = self._written % self._capacity
            for name, value in transition._asdict().items():
                self._columns[name][slot] = value
            self._written += 1

    def _batch(self, slots: np.ndarray) -> Batch:
        return Batch(**{name: array[slots] for name, array in self._columns.items()}, weight=np.ones(len(slots), np.float32))
