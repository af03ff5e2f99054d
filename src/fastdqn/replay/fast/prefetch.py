"""Prefetching of batches (setting `learner.prefetch`): during an update, a thread builds the next ones.

The rows of a batch are chosen when it is ordered; the thread only copies frames, and rows are not overwritten before it is
done. Batch u is drawn with its own random stream, (seed, u), from the rows that are stored when update u - k is due, where k
is how many are kept ahead. So it is the same batch whatever the timing: a sample lag of k, bit for bit.

Feedback may arrive while the thread works, as it never reads priorities: batches ordered before keep the rows and weights of
the old priorities.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from fastdqn import seeding
from fastdqn.replay.replay import RingReplay
from fastdqn.transition import Batch, Block


class Prefetched:
    """A RingReplay whose batches are ordered `ahead` updates before they are needed."""

    def __init__(
        self,
        replay: RingReplay,
        ahead: int,
        seed: int,
        finish: Callable[[Batch], Any] = lambda batch: batch,
        receive: Callable[[Any], Batch] = lambda batch: batch,
    ) -> None:
        """`finish` is applied to a batch in the thread (a copy to a GPU), `receive` by the thread that takes it."""
        self.replay, self._ahead, self._seed = replay, ahead, seed
        self._finish, self._receive = finish, receive
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fastdqn-prefetch")
        self._ordered: deque[Future[Any]] = deque()
        self._count = 0  # of all batches ordered so far

    def append(self, block: Block) -> None:
        self._let_the_thread_finish()
        self.replay.append(block)

    def seal(self, lane: int) -> None:
        self._let_the_thread_finish()
        self.replay.seal(lane)

    def sample(self, batch_size: int, batches: int = 1) -> Batch:
        """Several batches are those of several calls, concatenated."""
        taken = [self._next(batch_size) for _ in range(batches)]
        return taken[0] if batches == 1 else Batch(*(_joined(parts) for parts in zip(*taken, strict=True)))

    def feedback(self, index: Any, priority: Any) -> None:
        self.replay.feedback(index, priority)

    def set_beta(self, beta: float) -> None:
        self.replay.set_beta(beta)

    def gather(self, lane: np.ndarray, row: np.ndarray) -> Batch:
        return self.replay.gather(lane, row)

    def __len__(self) -> int:
        return len(self.replay)

    def state(self) -> dict[str, Any]:
        self._let_the_thread_finish()
        waiting = [_copied(self._receive(order.result())) for order in self._ordered]
        return {"replay": self.replay.state(), "seed": self._seed, "count": self._count, "waiting": waiting}

    def load_state(self, state: dict[str, Any]) -> None:
        self._let_the_thread_finish()
        self.replay.load_state(state["replay"])
        self._seed, self._count = state["seed"], state["count"]
        self._ordered = deque(self._thread.submit(self._finish, _copied(batch)) for batch in state["waiting"])

    def _next(self, batch_size: int) -> Batch:
        while len(self._ordered) <= self._ahead:
            self._order(batch_size)
        batch = self._receive(self._ordered.popleft().result())
        if len(batch.action) != batch_size:
            raise ValueError(f"{batch_size} rows are wanted, and {len(batch.action)} were drawn ahead")
        return batch

    def _order(self, batch_size: int) -> None:
        self.replay.sampler.rng = seeding.stream(self._seed, f"batch {self._count}")
        rows = self.replay.choose(batch_size)
        self._ordered.append(self._thread.submit(lambda: self._finish(self.replay.look(*rows))))
        self._count += 1

    def _let_the_thread_finish(self) -> None:
        if self._ordered:
            self._ordered[-1].result()  # one thread: when the last is done, all are


def _joined(parts: tuple[Any, ...]) -> Any:
    return torch.cat(parts) if isinstance(parts[0], torch.Tensor) else np.concatenate(parts)


def _copied(batch: Batch) -> Batch:
    return Batch(*(field.clone() if isinstance(field, torch.Tensor) else field.copy() for field in batch))
