"""Replay as the learner sees it: blocks in, batches out. arrays.py and textbook.py hold the slower ones."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from fastdqn.replay.ring import Ring
from fastdqn.replay.sampler import UniformSampler
from fastdqn.replay.window import window
from fastdqn.transition import Batch, Block


class Replay(Protocol):
    def append(self, block: Block) -> None: ...
    def seal(self, lane: int) -> None: ...
    def sample(self, batch_size: int) -> Batch: ...
    def gather(self, lane: np.ndarray, row: np.ndarray) -> Batch:
        """The transitions that start at these rows, with weight 1."""

    def __len__(self) -> int:
        """Starts that can be drawn now (TAIL rows may be among them)."""

    def state(self) -> dict[str, Any]: ...
    def load_state(self, state: dict[str, Any]) -> None: ...


class RingReplay:
    """Each frame once, in its own dtype; stacks, n-step returns and ends are worked out when a batch is drawn."""

    def __init__(
        self,
        ring: Ring,
        sampler: UniformSampler,
        *,
        gamma: float,
        clip_rewards: bool,
        window: Callable[..., Batch] = window,
    ) -> None:
        self.ring, self.sampler = ring, sampler
        self._gamma, self._clip, self._look = gamma, clip_rewards, window

    def append(self, block: Block) -> None:
        self.ring.append(block)

    def seal(self, lane: int) -> None:
        self.ring.seal(lane)

    def sample(self, batch_size: int) -> Batch:
        return self.look(*self.choose(batch_size))

    def choose(self, batch_size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(lane, row, weight) of a batch."""
        return self.sampler.draw(self.ring, batch_size)

    def gather(self, lane: np.ndarray, row: np.ndarray) -> Batch:
        return self.look(lane, row, np.ones(len(row), np.float32))

    def __len__(self) -> int:
        _, count = self.ring.valid_starts(self.sampler.stack, self.sampler.n_step)
        return int(count.sum())

    def state(self) -> dict[str, Any]:
        return {"ring": self.ring.state(), "sampler": self.sampler.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.ring.load_state(state["ring"])
        self.sampler.load_state(state["sampler"])

    def look(self, lane: np.ndarray, row: np.ndarray, weight: np.ndarray) -> Batch:
        """The batch that starts at these rows."""
        stack, n_step = self.sampler.stack, self.sampler.n_step
        how: dict[str, Any] = {"gamma": self._gamma, "clip_rewards": self._clip}
        return self._look(self.ring, lane, row, weight, stack=stack, n_step=n_step, **how)
