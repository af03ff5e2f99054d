"""Two queues on a GPU (switch `overlap`): acting in one, learning in the other, so that an action never waits for an update.

Whoever writes a tensor in one queue and reads it in the other leaves a mark after writing and waits for it before reading.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch


class Mark(Protocol):
    """A place in a queue. `record` puts it behind all that was queued so far in the queue we are in; `wait` lets the queue
    we are in wait for it. One that was never recorded is not waited for."""

    def record(self) -> None: ...
    def wait(self) -> None: ...


class Queues(Protocol):
    def acting(self) -> AbstractContextManager[None]: ...
    def learning(self) -> AbstractContextManager[None]: ...
    def mark(self) -> Mark: ...
    def settle(self) -> None:
        """Waits until both are empty."""
        ...


class TwoStreams:
    """Acting goes first wherever both want the GPU."""

    def __init__(self, device: str) -> None:
        self._act = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
        self._learn = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def acting(self) -> AbstractContextManager[None]:
        return _queued_in(self._act)

    def learning(self) -> AbstractContextManager[None]:
        return _queued_in(self._learn)

    def mark(self) -> Mark:
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        return event

    def settle(self) -> None:
        self._act.synchronize()
        self._learn.synchronize()


@contextmanager
def _queued_in(stream: torch.cuda.Stream) -> Iterator[None]:
    """What was done outside of both queues, a state loaded say, comes first."""
    stream.wait_stream(torch.cuda.default_stream(stream.device))
    with torch.cuda.stream(stream):
        yield


def queued(place: Callable[[], AbstractContextManager[None]], call: Callable[..., Any]) -> Callable[..., Any]:
    """The same call, with all it asks of the GPU queued there."""

    def there(*given: Any) -> Any:
        with place():
            return call(*given)

    return there
