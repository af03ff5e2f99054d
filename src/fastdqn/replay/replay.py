"""Replay as the learner sees it: blocks in, batches out. textbook/arrays.py and textbook/deque_replay.py are slower."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from fastdqn.replay.ring import Ring
from fastdqn.replay.sampler import Sampler
from fastdqn.replay.window import window
from fastdqn.transition import Batch, Block


class Replay(Protocol):
    def append(self, block: Block) -> None: ...
    def seal(self, lane: int) -> None: ...
    def sample(self, batch_size: int, batches: int = 1) -> Batch:
        """`batches` batches drawn together, concatenated."""

    def feedback(self, index: Any, priority: Any) -> None:
        """Priorities from an update: `index` is that of its batch, `priority` how much there is still to learn from each
        row, (B,) float32, not negative. Uniform replays ignore it."""

    def set_beta(self, beta: float) -> None:
        """Sets how much of the bias of prioritised draws the weights correct. Uniform replays ignore it."""

    def gather(self, lane: np.ndarray, row: np.ndarray) -> Batch:
        """The transitions that start at these rows, with weight 1."""

    def __len__(self) -> int:
        """Starts that can be drawn now (TAIL rows may be among them)."""

    def state(self) -> dict[str, Any]: ...
    def load_state(self, state: dict[str, Any]) -> None: ...


class RingReplay:
    """Stores each frame once, in its own dtype; stacks, n-step returns and ends are computed when a batch is drawn."""

    def __init__(
        self,
        ring: Ring,
        sampler: Sampler,
        *,
        gamma: float,
        clip_rewards: bool,
        window: Callable[..., Batch] = window,
    ) -> None:
        self.ring, self.sampler = ring, sampler
        self._gamma, self._clip, self._look = gamma, clip_rewards, window

    def append(self, block: Block) -> None:
        self.ring.append(block)
        self.sampler.opened(self.ring, block.lanes)

    def seal(self, lane: int) -> None:
        self.ring.seal(lane)

    def sample(self, batch_size: int, batches: int = 1) -> Batch:
        return self.look(*self.choose(batch_size, batches))

    def choose(self, batch_size: int, batches: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(lane, row, weight) of the batch that `sample` would return."""
        return self.sampler.draw(self.ring, batch_size, batches)

    def feedback(self, index: Any, priority: Any) -> None:
        self.sampler.feedback(self.ring, index, priority)

    def set_beta(self, beta: float) -> None:
        self.sampler.set_beta(beta)

    def gather(self, lane: np.ndarray, row: np.ndarray) -> Batch:
        return self.look(lane, row, np.ones(len(row), np.float32))

    def __len__(self) -> int:
        _, count = self.ring.valid_starts(self.sampler.stack, self.sampler.n_step)
        return int(count.sum())

    def state(self) -> dict[str, Any]:
        return {"ring": self.ring.state(), "sampler": self.sampler.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.ring.load_state(state["ring"])
        self.sampler.load_state(state["sampler"], self.ring)

    def look(self, lane: np.ndarray, row: np.ndarray, weight: np.ndarray) -> Batch:
        """The batch that starts at these rows."""
        stack, n_step = self.sampler.stack, self.sampler.n_step
        how: dict[str, Any] = {"gamma": self._gamma, "clip_rewards": self._clip}
        return self._look(self.ring, lane, row, weight, stack=stack, n_step=n_step, **how)
