"""Two CUDA streams (switch `overlap`): acting on one, learning on the other, so that an action never waits for an update.

Who writes a tensor on one stream and reads it on the other records an event after writing and waits for it before reading.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch


class Event(Protocol):
    """As torch.cuda.Event: `record` puts it behind all that was queued on the current stream so far, `wait` lets the current
    stream wait for it. One that was never recorded is not waited for."""

    def record(self) -> None: ...
    def wait(self) -> None: ...


class Streams(Protocol):
    def acting(self) -> AbstractContextManager[None]: ...
    def learning(self) -> AbstractContextManager[None]: ...
    def event(self) -> Event: ...
    def settle(self) -> None:
        """Waits until both are empty."""
        ...


class TwoStreams:
    """Acting goes first wherever both want the GPU."""

    def __init__(self, device: str) -> None:
        self._act = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
        self._learn = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def acting(self) -> AbstractContextManager[None]:
        return _on(self._act)

    def learning(self) -> AbstractContextManager[None]:
        return _on(self._learn)

    def event(self) -> Event:
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        return event

    def settle(self) -> None:
        self._act.synchronize()
        self._learn.synchronize()


@contextmanager
def _on(stream: torch.cuda.Stream) -> Iterator[None]:
    """What was done outside of both streams, a state loaded say, comes first."""
    stream.wait_stream(torch.cuda.default_stream(stream.device))
    with torch.cuda.stream(stream):
        yield


def on_stream(place: Callable[[], AbstractContextManager[None]], call: Callable[..., Any]) -> Callable[..., Any]:
    """The same call, with all it asks of the GPU queued there."""

    def there(*given: Any) -> Any:
        with place():
            return call(*given)

    return there
