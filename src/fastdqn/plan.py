"""What a run would cost, before it is started: memory, disk, time at the speed measured here, and money."""

import time
from dataclasses import dataclass

import torch

from fastdqn.build import build
from fastdqn.config import Config
from fastdqn.prepare import Job
from fastdqn.run.preflight import RESERVE_BYTES, Need, free_memory, human_bytes
from fastdqn.runner.inline import InlineRunner
from fastdqn.runner.ports import Parts, Stop

PROBE_ROWS = 20_000  # replay of the probe: large enough to draw from, small enough to fill at once
BYTES_PER_METRICS_ROW = 560


@dataclass(frozen=True)
class Plan:
    needs: tuple[Need, ...]
    memory_free: int
    disk_bytes: int
    steps: int | None
    steps_per_second: float
    samples_per_step: float
    minutes: float | None  # None when no limit tells how long it will be
    price: float | None

    def lines(self) -> list[str]:
        total = sum(need.bytes for need in self.needs)
        parts = ", ".join(f"{need.name} {human_bytes(need.bytes)}" for need in self.needs)
        fits = "fits" if total <= self.memory_free - RESERVE_BYTES else "DOES NOT FIT"
        lines = [
            f"memory  {human_bytes(total)} ({parts}); {human_bytes(self.memory_free)} free: {fits}",
            f"disk    {human_bytes(self.disk_bytes)} in the run folder",
            f"speed   {self.steps_per_second:,.0f} steps/s at {self.samples_per_step:.3g} samples per step, "
            "measured on this machine just now",
        ]
        if self.minutes is None:
            lines.append("time    unknown: set --steps or --minutes to get an estimate")
        else:
            hours = f" ({self.minutes / 60:.1f} hours)" if self.minutes > 90 else ""
            lines.append(f"time    {self.minutes:,.1f} minutes{hours} for training, evaluations not counted")
        if self.price is not None:
            lines.append(f"money   {self.price:,.2f} at the price per hour you gave")
        return lines


def make_plan(job: Job, seconds: float = 6.0, price_per_hour: float | None = None) -> Plan:
    """Plays and learns for a few seconds at the job's own lanes, batch and samples per step; writes nothing."""
    speed, spi = measure_speed(job, seconds)
    limits = job.config.limits
    candidates = [limits.minutes] if limits.minutes is not None else []
    if limits.steps is not None:
        candidates.append(limits.steps / speed / 60)
    minutes = min(candidates) if candidates else None
    steps = limits.steps or (int((minutes or 0) * 60 * speed) or None)
    rows = (steps or 0) // job.config.log.every_steps
    return Plan(
        needs=job.needs,
        memory_free=free_memory(),
        disk_bytes=rows * BYTES_PER_METRICS_ROW + job.parameters * 4 + 200_000,
        steps=steps,
        steps_per_second=speed,
        samples_per_step=spi,
        minutes=minutes,
        price=price_per_hour * minutes / 60 if price_per_hour is not None and minutes is not None else None,
    )


def measure_speed(job: Job, seconds: float) -> tuple[float, float]:
    """(steps per second, samples per step) while learning, with the exploration of the run's end."""
    config = _probe_config(job.config)
    torch.set_num_threads(job.threads)
    parts = build(config, job.kind, job.device, job.own_network)
    rows: list[dict[str, float]] = []
    runner = InlineRunner(parts, Stop(), rows.append, lambda score: None)
    try:
        runner.start()
        for duration in (seconds / 3, seconds):  # the first stretch warms up: kernels compiled, first rows filled
            began = time.monotonic()
            while _goes_on(parts, time.monotonic() - began, duration):
                runner.round()
            runner.log()
    finally:
        runner.close()
    return rows[-1]["steps_per_second"], rows[-1]["samples_per_step"]


def _goes_on(parts: Parts, elapsed: float, duration: float) -> bool:
    """A slow environment gets longer for its first update, but a run whose updates are rarer than that has none here."""
    if not parts.learner.updates:
        duration *= 5
    return elapsed < duration or not parts.actor.steps


def _probe_config(config: Config) -> Config:
    lanes = config.actor.lanes
    smallest = 8 * lanes * ((config.replay.stack or 4) + config.replay.n_step)
    capacity = min(config.replay.capacity, max(PROBE_ROWS, smallest))
    return config.model_copy(
        update={
            "replay": config.replay.model_copy(update={"capacity": capacity, "warmup_steps": smallest // 4}),
            "actor": config.actor.model_copy(update={"epsilon_start": config.actor.epsilon_end}),
        }
    )
