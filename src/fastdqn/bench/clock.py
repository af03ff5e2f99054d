"""The clock of every speed: warm up, then time one stretch in pieces, and say what it cost the machine."""

import time
from dataclasses import asdict, dataclass, field
from typing import Any

import psutil

from fastdqn.run.usage import Usage

WINDOW_SECONDS = 0.5  # length of a piece; the pieces show how much the speed wavers within one stretch


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
    """

    def __init__(self, device: str, threads: int, batch_size: int) -> None:
        self._device, self._threads, self._batch_size = device, threads, batch_size
        self._usage = Usage(device)
        self._windows: list[float] = []
        self._first_step_at = self._began = self._window_began = 0.0
        self._startup_seconds = self._warmup_seconds = 0.0
        self._steps = self._updates = self._first_steps = self._first_updates = self._window_steps = 0

    def first_step(self) -> None:
        self._startup_seconds = time.time() - psutil.Process().create_time()
        self._first_step_at = time.perf_counter()

    def start(self, steps: int, updates: int) -> None:
        self._synchronize()
        self._began = self._window_began = time.perf_counter()
        self._warmup_seconds = self._began - self._first_step_at
        self._first_steps = self._window_steps = self._steps = steps
        self._first_updates = self._updates = updates
        self._usage.start()

    def tick(self, steps: int, updates: int) -> float:
        """Seconds since the start."""
        now = time.perf_counter()
        self._steps, self._updates = steps, updates
        if now - self._window_began >= WINDOW_SECONDS:
            self._windows.append((steps - self._window_steps) / (now - self._window_began))
            self._window_began, self._window_steps = now, steps
        return now - self._began

    def speed(self, **known: Any) -> Speed:
        """`known` fills split, switches and details. On a GPU the work that is still queued counts into the time."""
        self._synchronize()
        seconds = time.perf_counter() - self._began
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
            **known,
        )

    def _synchronize(self) -> None:
        if self._device.startswith("cuda"):
            import torch

            torch.cuda.synchronize(self._device)
