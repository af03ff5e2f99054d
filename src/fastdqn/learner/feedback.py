"""From the learner back to a prioritised replay: the error of each sample."""

from collections import deque
from typing import Any, Protocol

import torch
from torch import Tensor


class TakesFeedback(Protocol):
    def feedback(self, index: Any, priority: Any) -> None: ...


class FeedbackAtOnce:
    """For errors and priorities on the same device."""

    def __init__(self, replay: TakesFeedback) -> None:
        self._replay = replay

    def __call__(self, index: Any, error: Tensor) -> None:
        self._replay.feedback(index, error.abs())

    def arrive(self) -> None:
        """Nothing to do: no copy is pending."""


class FeedbackFromGpu:
    """For a replay on the host: errors are copied asynchronously, and applied before the next draw."""

    def __init__(self, replay: TakesFeedback) -> None:
        self._replay = replay
        self._under_way: deque[tuple[Any, Tensor, Any]] = deque()

    def __call__(self, index: Any, error: Tensor) -> None:
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        priority = torch.empty(error.shape, pin_memory=True).copy_(error.abs(), non_blocking=True)
        copied.record()
        self._under_way.append((index, priority, copied))

    def arrive(self) -> None:
        """Waits for all pending copies and passes them to the replay."""
        while self._under_way:
            index, priority, copied = self._under_way.popleft()
            copied.synchronize()
            self._replay.feedback(index, priority)


class NoFeedback:
    """For a replay that draws uniformly."""

    def __call__(self, index: Any, error: Tensor) -> None: ...

    def arrive(self) -> None: ...
