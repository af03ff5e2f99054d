"""The parent's side of a measurement: starts children, waits for their answers, and leaves none behind."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any

from fastdqn.bench.turns import SO_FAR
from fastdqn.errors import UserError
from fastdqn.run.usage import free_memory

WORKER = "fastdqn.bench.worker"
LONGEST_SECONDS = 6 * 3600.0
Task = dict[str, Any]
Answer = dict[str, Any]
OnSpeed = Callable[[int, Answer, bool], None]  # number of the task, its speed so far, whether that is its answer


class Child:
    """One measuring process: its task goes in, its lines come out."""

    def __init__(self, task: Task, module: str) -> None:
        self._task = task
        self._words = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed in `end`)
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            text=True,
            start_new_session=True,  # Ctrl-C reaches the parent only, which then ends its children
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._last_line = ""
        self._killed = False
        self._began = time.monotonic()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.tell(json.dumps(task))

    def tell(self, line: str) -> None:
        """Its stdin stays open: an end of it would tell it to stop."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died; its last words will tell
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def next_line(self, while_waiting: Callable[[], None], closed: threading.Event) -> str | None:
        """The next line of its stdout; None when there will be none."""
        while not closed.is_set():
            ended = not self._reader.is_alive() or self._process.poll() is not None
            if ended:
                self.kill()  # what it started, and left behind with its stdout still open
                self._reader.join(3.0)
            try:
                self._last_line = self._lines.get(timeout=0.0 if ended else 0.1)
                return self._last_line
            except queue.Empty:
                if ended:
                    return None
            while_waiting()
            if time.monotonic() - self._began > LONGEST_SECONDS:
                hours = LONGEST_SECONDS / 3600
                raise UserError(f"A measurement took longer than {hours:.0f} hours and was ended: {self._task}")
        return None

    def answer(self) -> Answer:
        """A sentence from the child is raised as UserError; a child that died, with its last words."""
        self._words.seek(0)
        return _answer(self._last_line, self._process.returncode, self._words.read())

    def leave(self) -> None:
        """One that has answered leaves by itself within some seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=3.0)

    def kill(self) -> None:
        """Once: when all of its session are gone, the number may be given to somebody else."""
        if not self._killed:
            self._killed = True
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)  # its session, which it is the leader of
        self._process.wait()

    def end(self) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout, self._words):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # of a task that nobody has read
                    stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):  # it was closed meanwhile: nobody waits for more
            for line in self._process.stdout:
                self._lines.put(line)


class Children:
    """Runs tasks in processes of their own. `close` ends those that are still running, with everything they started."""

    def __init__(self) -> None:
        self._running: set[Child] = set()
        self._closed = threading.Event()

    def ask(self, task: Task, module: str = WORKER, while_waiting: Callable[[], None] = lambda: None) -> Answer:
        """The answer of one child."""
        with self._child(task, module) as child:
            while child.next_line(while_waiting, self._closed) is not None:
                pass
            return self._answer_of(child)

    def ask_in_turns(
        self,
        asked: Sequence[tuple[Task, str]],
        turns: int,
        on_speed: OnSpeed,
        while_waiting: Callable[[], None] = lambda: None,
    ) -> None:
        """Tasks (each with its module) in processes that live side by side and take turns (turns.py), as many of them as
        the memory holds. A task that knows no turns has the machine to itself until it has answered."""
        with contextlib.ExitStack() as group:
            waiting: list[tuple[int, Child]] = []
            memory = Memory()
            for number, (task, module) in enumerate(asked):
                child = group.enter_context(self._child(task | {"turns": turns}, module))
                if self._turn(number, child, on_speed, while_waiting):
                    waiting.append((number, child))
                if not memory.holds_another(task):
                    self._play_out(waiting, on_speed, while_waiting)
                    waiting.clear()
                    group.close()
            self._play_out(waiting, on_speed, while_waiting)

    def _play_out(self, waiting: list[tuple[int, Child]], on_speed: OnSpeed, while_waiting: Callable[[], None]) -> None:
        """Turn by turn until all have answered; every second time in the opposite order."""
        while waiting:
            for number, child in waiting:
                child.tell("turn")
                if not self._turn(number, child, on_speed, while_waiting):
                    waiting = [(other, one) for other, one in waiting if one is not child]
            waiting = waiting[::-1]

    def _turn(self, number: int, child: Child, on_speed: OnSpeed, while_waiting: Callable[[], None]) -> bool:
        """Until the child's turn is over; whether it waits for another."""
        while (line := child.next_line(while_waiting, self._closed)) is not None:
            if line.startswith(f'{{"{SO_FAR}"'):
                on_speed(number, json.loads(line)[SO_FAR], False)
                return True
        on_speed(number, self._answer_of(child), True)
        return False

    def _answer_of(self, child: Child) -> Answer:
        if self._closed.is_set():
            raise KeyboardInterrupt
        child.leave()
        return child.answer()

    @contextlib.contextmanager
    def _child(self, task: Task, module: str) -> Iterator[Child]:
        with contextlib.ExitStack() as ending:
            with interrupt_held_back():  # or a child that was started a moment ago is known to nobody
                child = Child(task, module)
                self._running.add(child)
                ending.callback(self._running.discard, child)
                ending.callback(child.end)
            yield child

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
            child.kill()


@contextlib.contextmanager
def interrupt_held_back() -> Iterator[None]:
    """A Ctrl-C that comes meanwhile is raised at the end. Only the main thread hears of one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        raise KeyboardInterrupt


class Memory:
    """Whether the machine holds one process more of the kind that was started last, with room to spare."""

    def __init__(self) -> None:
        self._free: dict[str, int] = {}
        self._largest: dict[str, int] = {}

    def holds_another(self, task: Task) -> bool:
        free = free_memory(str(task.get("settings", {}).get("device", "cpu")))
        for where, now in free.items():
            self._largest[where] = max(self._largest.get(where, now // 20), self._free.get(where, now) - now)
        self._free = free
        return all(now > 2 * self._largest[where] for where, now in free.items())


def _answer(line: str, code: int, words: str) -> Answer:
    try:
        answer = json.loads(line)
    except ValueError:
        last = "\n".join(words.strip().splitlines()[-15:])
        raise RuntimeError(f"a measurement ended without an answer (exit code {code}):\n{last}") from None
    if not isinstance(answer, dict):
        raise RuntimeError(f"a measurement answered {answer!r}")
    if "error" in answer:
        raise UserError(str(answer["error"]))
    return answer
