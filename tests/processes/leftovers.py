"""Names in shared memory that somebody left behind. Those of other programs come and go."""

import os
import time

FOLDER = "/dev/shm"


def names() -> set[str]:
    return set(os.listdir(FOLDER))


def left_since(before: set[str], seconds: float = 2.0) -> set[str]:
    """What was not there before and does not go away."""
    new, ends = names() - before, time.monotonic() + seconds
    while new and time.monotonic() < ends:
        time.sleep(0.05)
        new &= names()
    return new
