"""Wakes another process up: a pipe of its own, and a word in shared memory that says whether anybody sleeps.

A bell is only ever a hint: who waits looks again after a while by itself, so a lost ring costs WAIT_SECONDS and no more.
"""

import contextlib
import os
import select
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np

WAIT_SECONDS = 0.05


class Bell:
    """`asleep` is one word of shared memory: 1 while the owner waits."""

    def __init__(self, reader: Connection, writer: Connection, asleep: np.ndarray) -> None:
        self._reader, self._writer, self._asleep = reader, writer, asleep
        for end in (reader, writer):
            os.set_blocking(end.fileno(), False)
        self._fence = threading.Lock()

    def ring(self) -> None:
        self.fence()
        if self._asleep[0]:
            with contextlib.suppress(BlockingIOError):  # full of rings that nobody has heard yet
                os.write(self._writer.fileno(), b"!")

    def wait_for(self, ready: Callable[[], bool]) -> bool:
        """Sleeps until the bell rings, WAIT_SECONDS at most, unless it is ready already; whether it is ready then."""
        self._asleep[0] = 1
        self.fence()
        try:
            if not ready():
                heard, _, _ = select.select([self._reader.fileno()], [], [], WAIT_SECONDS)
                if heard:
                    os.read(self._reader.fileno(), 4096)
        finally:
            self._asleep[0] = 0
        return ready()

    def fence(self) -> None:
        """What was written before it is seen by others before what is written after it."""
        with self._fence:
            pass
