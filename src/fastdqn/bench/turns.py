"""Measuring in turns: processes that are compared live side by side, and one at a time runs for about a second.

A machine that is shared, or too warm, is slower by half for ten seconds and then fast again. Measured one after the other,
one variant has the good seconds and the next the bad ones; in turns all of them have both.
"""

import json
import threading
from typing import Any

SO_FAR = "so_far"  # the key of a line that says: my turn is over, and this is my speed until now
LONGEST_TURN_SECONDS = 1.0
FEWEST_TURNS = 4

_given = threading.Semaphore(0)  # turns that the parent has given and nobody has taken yet


def number_of_turns(seconds: float) -> int:
    """How many turns a stretch of `seconds` is cut into."""
    return max(FEWEST_TURNS, round(seconds / LONGEST_TURN_SECONDS))


class Turns:
    """The child's side: `over` says that a turn is over and waits for the next."""

    def __init__(self, seconds: float, count: int) -> None:
        self.count = count
        self.seconds = seconds / count  # of one turn

    def over(self, so_far: dict[str, Any]) -> None:
        print(json.dumps({SO_FAR: so_far}), flush=True)
        _given.acquire()


def give_turns(count: int) -> None:
    """Called when the parent's lines arrive: each is a turn."""
    for _ in range(count):
        _given.release()


def turns_of(task: dict[str, Any]) -> Turns | None:
    """The turns that a task asks for; None: it has the machine to itself."""
    return Turns(task["seconds"], task["turns"]) if task.get("turns") else None
