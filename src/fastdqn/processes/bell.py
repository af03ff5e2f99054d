"""Wakes another process: a pipe, and a flag in shared memory that says whether its owner sleeps.

A bell is only a hint: a waiting process also checks by itself, so a lost ring costs at most WAIT_SECONDS.
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
    """`asleep` is one integer in shared memory: 1 while the owner waits."""

    def __init__(self, reader: Connection, writer: Connection, asleep: np.ndarray) -> None:
        self._reader, self._writer, self._asleep = reader, writer, asleep
        for end in (reader, writer):
            os.set_blocking(end.fileno(), False)
        self._fence = threading.Lock()

    def ring(self) -> None:
        self.fence()
        if self._asleep[0]:
            with contextlib.suppress(BlockingIOError):  # the pipe is full of unread rings
                os.write(self._writer.fileno(), b"!")

    def wait_for(self, ready: Callable[[], bool]) -> bool:
        """Sleeps until the bell rings, at most WAIT_SECONDS, unless already ready; returns whether it is ready then."""
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
        """Memory fence: other processes see writes before it earlier than writes after it."""
        with self._fence:
            pass
