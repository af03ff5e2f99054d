"""Replay as in textbooks: a deque of tuples, converted to tensors one by one (switch `array_replay` off)."""

import random
from collections import deque
from typing import Any

import numpy as np
import torch

from fastdqn.replay.textbook.accumulate import Accumulator, Transition
from fastdqn.transition import Batch, Block


class DequeReplay:
    """A deque of tuples; each field of each transition becomes a tensor of its own before they are stacked."""

    def __init__(self, capacity: int, accumulator: Accumulator, seed: int) -> None:
        self.memory: deque[Transition] = deque(maxlen=capacity)
        self._accumulator = accumulator
        self._random = random.Random(seed)

    def append(self, block: Block) -> None:
        self.memory.extend(self._accumulator.add(block))

    def seal(self, lane: int) -> None:
        self.memory.extend(self._accumulator.seal(lane))

    def sample(self, batch_size: int, batches: int = 1) -> Batch:
        return self._batch(self._random.choices(self.memory, k=batches * batch_size))

    def feedback(self, index: Any, priority: Any) -> None:
        """Ignored: draws are uniform."""

    def set_beta(self, beta: float) -> None:
        """Ignored: draws are uniform."""

    def gather(self, lane: np.ndarray, row: np.ndarray) -> Batch:
        by_index = {transition.index: transition for transition in self.memory}
        return self._batch([by_index[int(a), int(b)] for a, b in zip(lane, row, strict=True)])

    def __len__(self) -> int:
        return len(self.memory)

    def state(self) -> dict[str, Any]:
        columns = {}
        if self.memory:
            for name, values in zip(Transition._fields, zip(*self.memory, strict=True), strict=True):
                columns[name] = np.stack([np.asarray(value) for value in values])
        version, words, gauss = self._random.getstate()
        rng = {"version": version, "words": np.array(words, np.int64), "gauss": gauss}
        return {"memory": columns, "accumulator": self._accumulator.state(), "rng": rng}

    def load_state(self, state: dict[str, Any]) -> None:
        self.memory.clear()
        if state["memory"]:
            for values in zip(*(state["memory"][name] for name in Transition._fields), strict=True):
                index, obs, action, returns, discount, next_state = values
                key = (int(index[0]), int(index[1]))
                self.memory.append(Transition(key, obs, int(action), returns, discount, next_state))
        self._accumulator.load_state(state["accumulator"])
        rng = state["rng"]
        self._random.setstate((rng["version"], tuple(rng["words"].tolist()), rng["gauss"]))

    def _batch(self, transitions: list[Transition]) -> Batch:
        return Batch(
            state=torch.stack([torch.tensor(t.state, dtype=torch.float32) for t in transitions]),
            action=torch.tensor([t.action for t in transitions]),
            returns=torch.tensor([float(t.returns) for t in transitions]),
            discount=torch.tensor([float(t.discount) for t in transitions]),
            next_state=torch.stack([torch.tensor(t.next_state, dtype=torch.float32) for t in transitions]),
            weight=torch.ones(len(transitions)),
            index=torch.tensor([t.index for t in transitions]),
        )
