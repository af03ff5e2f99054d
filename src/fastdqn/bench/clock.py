"""The clock of every speed: warm up, then time one stretch in pieces, and say what it cost the machine."""

import time
from dataclasses import asdict, dataclass, field
from typing import Any

import psutil

from fastdqn.bench.turns import Turns
from fastdqn.run.usage import Usage

WINDOW_SECONDS = 0.5  # length of a piece; the pieces show how much the speed wavers within one stretch. In turns: a turn


@dataclass(frozen=True)
class Speed:
    """One timed stretch of training in one process. Units are in the names; 100 % CPU is one core."""

    steps_per_second: float
    updates_per_second: float
    samples_per_step: float
    steps: int
    updates: int
    seconds: float
    windows: list[float]  # steps per second of the pieces, in order
    cpu_percent: float
    others_cpu_percent: float  # used by other programs meanwhile: a speed taken beside them is not worth much
    gpu_percent: float | None
    rss_mb: float
    gpu_memory_mb: float | None
    startup_seconds: float  # from the start of the process to the first environment step
    warmup_seconds: float  # from there until the clock started
    device: str
    threads: int
    split: dict[str, float] = field(default_factory=dict)  # section -> share of the time, where it is known
    switches: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Clock:
    """Told of steps and updates after every round.

    Usage: `clock = Clock(device, threads, batch_size)` early in the process, `clock.first_step()` before the first
    environment step, `clock.start(steps, updates)` after the warm-up, `clock.tick(steps, updates)` after each round,
    `clock.speed()` at the end.

    With `turns` a tick may wait for the next turn, and that time counts nowhere. The first turn only shows a first speed
    and is not part of the stretch: it comes right after the warm-up, while the others have not begun.
    """

    def __init__(self, device: str, threads: int, batch_size: int, turns: Turns | None = None) -> None:
        self._device, self._threads, self._batch_size = device, threads, batch_size
        self._turns, self._window_seconds = turns, turns.seconds if turns else WINDOW_SECONDS
        self._usage = Usage(device)
        self._windows: list[float] = []
        self._known: dict[str, Any] = {}
        self._first_step_at = self._window_began = self._closed_seconds = 0.0
        self._startup_seconds = self._warmup_seconds = 0.0
        self._steps = self._updates = self._first_steps = self._first_updates = self._window_steps = 0
        self._first_turn = turns is not None
        self.waited_seconds = 0.0  # for turns

    def first_step(self) -> None:
        self._startup_seconds = time.time() - psutil.Process().create_time()
        self._first_step_at = time.perf_counter()

    def start(self, steps: int, updates: int, **known: Any) -> None:
        """`known` fills switches and details of the speed."""
        self._synchronize()
        self._known = known
        self._warmup_seconds = time.perf_counter() - self._first_step_at
        self._begin(steps, updates)

    def _begin(self, steps: int, updates: int) -> None:
        self._windows, self._closed_seconds = [], 0.0
        self._first_steps = self._window_steps = self._steps = steps
        self._first_updates = self._updates = updates
        self._usage.start()
        self._window_began = time.perf_counter()

    def tick(self, steps: int, updates: int) -> float:
        """Seconds timed since the start."""
        self._steps, self._updates = steps, updates
        if time.perf_counter() - self._window_began >= self._window_seconds:
            self._close_window()
            if self._turns is not None and len(self._windows) < self._turns.count:
                self._wait_for_turn(self._turns)
        return self._closed_seconds + time.perf_counter() - self._window_began

    def _close_window(self) -> None:
        if self._turns is not None:
            self._synchronize()  # what is queued belongs to this turn, and must not run in another's
        now = time.perf_counter()
        self._windows.append((self._steps - self._window_steps) / (now - self._window_began))
        self._closed_seconds += now - self._window_began
        self._window_began, self._window_steps = now, self._steps

    def _wait_for_turn(self, turns: Turns) -> None:
        self._usage.pause()
        began = time.perf_counter()
        turns.over(self.speed().as_json())
        self.waited_seconds += time.perf_counter() - began
        if self._first_turn:
            self._first_turn = False
            self._begin(self._steps, self._updates)
        else:
            self._usage.resume()
            self._window_began = time.perf_counter()

    def speed(self) -> Speed:
        """On a GPU the work that is still queued counts into the time."""
        self._synchronize()
        seconds = self._closed_seconds + time.perf_counter() - self._window_began
        steps, updates = self._steps - self._first_steps, self._updates - self._first_updates
        usage: dict[str, Any] = self._usage.read()
        return Speed(
            steps_per_second=steps / seconds,
            updates_per_second=updates / seconds,
            samples_per_step=self._batch_size * updates / max(steps, 1),
            steps=steps,
            updates=updates,
            seconds=seconds,
            windows=self._windows or [steps / seconds],
            startup_seconds=self._startup_seconds,
            warmup_seconds=self._warmup_seconds,
            device=self._device,
            threads=self._threads,
            **usage,
            **self._known,
        )

    def _synchronize(self) -> None:
        if self._device.startswith("cuda"):
            import torch

            torch.cuda.synchronize(self._device)
