"""Two CUDA streams (switch `overlap`): acting on one, learning on the other, so that an action does not wait for updates.

A tensor written on one stream and read on the other needs an event: recorded after the write, waited for before the read.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch


class Event(Protocol):
    """Like torch.cuda.Event: `record` marks the work queued on the current stream so far, `wait` makes the current stream
    wait for it. Waiting for an event that was never recorded does nothing."""

    def record(self) -> None: ...
    def wait(self) -> None: ...


class Streams(Protocol):
    def acting(self) -> AbstractContextManager[None]: ...
    def learning(self) -> AbstractContextManager[None]: ...
    def event(self) -> Event: ...
    def settle(self) -> None:
        """Waits until both streams are empty."""
        ...


class TwoStreams:
    """Acting has the higher priority."""

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
    """Work outside both streams, such as loading a state, is done first."""
    stream.wait_stream(torch.cuda.default_stream(stream.device))
    with torch.cuda.stream(stream):
        yield


def on_stream(place: Callable[[], AbstractContextManager[None]], call: Callable[..., Any]) -> Callable[..., Any]:
    """The same call, with its GPU work queued on that stream."""

    def there(*given: Any) -> Any:
        with place():
            return call(*given)

    return there
