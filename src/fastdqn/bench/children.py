"""The parent's side of a measurement: starts children, waits for their answers, and leaves none behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import IO, Any

from fastdqn.errors import UserError

WORKER = "fastdqn.bench.worker"
LONGEST_SECONDS = 6 * 3600.0
Task = dict[str, Any]
Answer = dict[str, Any]


class Children:
    """Runs tasks in processes of their own. `close` ends those that are still running, with everything they started."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._closed = threading.Event()

    def ask(self, task: Task, module: str = WORKER, while_waiting: Callable[[], None] = lambda: None) -> Answer:
        """The child's answer. A sentence from the child is raised as UserError; a child that dies, with its last words."""
        with tempfile.TemporaryFile("w+") as words:
            child = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                text=True,
                start_new_session=True,  # Ctrl-C reaches the parent only, which then ends its children
            )
            self._running.add(child)
            patience = 0.0
            try:
                lines = _lines_of(child, task, while_waiting, self._closed)
                patience = 0.0 if self._closed.is_set() else 3.0
            finally:
                _end(child, patience)
                self._running.discard(child)
            if self._closed.is_set():
                raise KeyboardInterrupt
            words.seek(0)
            return _answer(lines, child.returncode, words.read())

    def ask_all(
        self,
        tasks: Sequence[Task],
        jobs: int,
        on_answer: Callable[[int, Answer], None],
        while_waiting: Callable[[], None] = lambda: None,
    ) -> None:
        """All tasks, `jobs` at a time; answers come in the order they are ready."""
        lock = threading.Lock()

        def one(number: int) -> None:
            answer = self.ask(tasks[number])
            with lock:
                on_answer(number, answer)

        with ThreadPoolExecutor(jobs) as pool:
            try:
                waiting = {pool.submit(one, number) for number in range(len(tasks))}
                while waiting:
                    done, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                    for each in done:
                        each.result()
                    while_waiting()
            except BaseException:
                self.close()
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def close(self) -> None:
        self._closed.set()
        for child in list(self._running):
            _kill(child)


def _lines_of(
    child: "subprocess.Popen[str]", task: Task, while_waiting: Callable[[], None], closed: threading.Event
) -> list[str]:
    """Everything the child says on stdout. Its stdin stays open meanwhile: an end of it would tell it to stop."""
    assert child.stdin is not None
    assert child.stdout is not None
    lines: list[str] = []
    stdout = child.stdout
    reader = threading.Thread(target=_read, args=(stdout, lines), daemon=True)
    reader.start()
    with contextlib.suppress(BrokenPipeError):  # it died at once; its last words will tell
        child.stdin.write(json.dumps(task) + "\n")
        child.stdin.flush()
    began = time.monotonic()
    while reader.is_alive() and child.poll() is None and not closed.is_set():
        reader.join(0.1)
        while_waiting()
        if time.monotonic() - began > LONGEST_SECONDS:
            raise UserError(f"A measurement took longer than {LONGEST_SECONDS / 3600:.0f} hours and was ended: {task}")
    if child.poll() is not None:
        _kill(child)  # what it started, and left behind with its stdout still open
        reader.join(3.0)
    return lines


def _read(stdout: IO[str], lines: list[str]) -> None:
    with contextlib.suppress(ValueError):  # it was closed meanwhile: nobody waits for more
        lines.extend(stdout)


def _end(child: "subprocess.Popen[str]", patience: float = 0.0) -> None:
    """Ends the child and its own children. `patience` seconds are for one that has answered, to leave by itself."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=patience)
    _kill(child)
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):  # of a task that nobody has read
                stream.close()


def _kill(child: "subprocess.Popen[str]") -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)  # its session, which it is the leader of
    child.wait()


def _answer(lines: list[str], code: int, words: str) -> Answer:
    try:
        answer = json.loads(lines[-1])
    except (IndexError, ValueError):
        last = "\n".join(words.strip().splitlines()[-15:])
        raise RuntimeError(f"a measurement ended without an answer (exit code {code}):\n{last}") from None
    if not isinstance(answer, dict):
        raise RuntimeError(f"a measurement answered {answer!r}")
    if "error" in answer:
        raise UserError(str(answer["error"]))
    return answer
