"""The child's side of a measurement: one task from the parent, one answer to it, and no life without it.

The task is one line of JSON on stdin, the answer is the last line of stdout. A further line on stdin is a turn, for a task
that is measured in turns (turns.py). The parent holds stdin open until it has the answer: its end tells the child that
nobody waits any more (so `subprocess.run(input=...)`, which closes it at once, cannot be the parent).
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from fastdqn.bench.clock import Clock, Speed
from fastdqn.bench.turns import give_turns
from fastdqn.errors import UserError

PARENT_IS_GONE = 3  # exit code
WARMUP_UPDATES = 20
WARMUP_SECONDS = 1.0


def serve(measure: Callable[[dict[str, Any]], dict[str, Any]]) -> int:
    """A whole child: read the task, measure, answer; the exit code. A UserError is answered as a sentence."""
    try:
        answer(measure(read_task()))
    except UserError as fault:
        answer({"error": str(fault)})
        return 2
    return 0


def read_task() -> dict[str, Any]:
    """The task. From here on the process ends with its parent."""
    line = sys.stdin.readline()
    threading.Thread(target=_end_with_parent, args=(sys.stdin.fileno(),), daemon=True, name="fastdqn-parent").start()
    try:
        task = json.loads(line)
    except ValueError:
        task = None
    if not isinstance(task, dict):
        raise UserError("This program is started by `fastdqn bench` and reads one JSON object, its task, from stdin.")
    return task


def answer(result: dict[str, Any]) -> None:
    print(json.dumps(result), flush=True)


def _end_with_parent(stdin: int) -> None:
    """Reads the descriptor itself: a thread inside sys.stdin.read() holds a lock that Python's own exit waits for."""
    while words := os.read(stdin, 4096):
        give_turns(words.count(b"\n"))
    os._exit(PARENT_IS_GONE)  # at once: the main thread may be deep inside an emulator


class Stretch:
    """Told of steps and updates before every round, it says whether there is to be another one.

    First the replay fills, then the warm-up (20 updates and one second of learning, whichever is later), then the
    clock runs for `seconds`. It starts and stops right after an update, so that the stretch holds whole cycles and
    its samples per step are the true ones however short it is. `speed` is taken at that very moment, so that tearing
    down costs nobody anything.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        if not seconds > 0:
            raise UserError(f"seconds={seconds} is no length of a measurement: it must be more than 0.")
        self._clock, self._seconds = clock, seconds
        self._updates = 0
        self._first_update_at: float | None = None
        self._begun = self._timed = False
        self.speed: Speed | None = None

    def goes_on(self, steps: int, updates: int) -> bool:
        just_learned, self._updates = updates > self._updates, updates
        if self._timed:
            if self._clock.tick(steps, updates) < self._seconds or not just_learned:
                return True
            self.speed = self._clock.speed()
            return False
        if not self._begun:
            self._begun = True
            self._clock.first_step()
        if just_learned and self._is_warm(updates):
            self._timed = True
            self._clock.start(steps, updates)
        return True

    def _is_warm(self, updates: int) -> bool:
        now = time.perf_counter()
        if self._first_update_at is None:
            self._first_update_at = now
        return updates >= WARMUP_UPDATES and now - self._first_update_at >= WARMUP_SECONDS
