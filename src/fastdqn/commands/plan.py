"""What a run would cost, before it is started: memory, disk, time at the speed measured here, and money."""

from dataclasses import dataclass

import torch

from fastdqn.prepare import Job, with_threads
from fastdqn.run.preflight import RESERVE_BYTES, Need, free_memory, human_bytes
from fastdqn.run.probe import Probe

BYTES_PER_METRICS_ROW = 560


@dataclass(frozen=True)
class Plan:
    needs: tuple[Need, ...]
    memory_free: int
    disk_bytes: int
    steps: int | None
    steps_per_second: float
    samples_per_step: float
    minutes: float | None  # None without a limit on steps or minutes
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
    """(steps per second, samples per step) while learning, with the run's final epsilon."""
    job = with_threads(job)
    torch.set_num_threads(job.threads)
    probe = Probe(job.config, job.kind, job.device, job.own_network)
    try:
        probe.warm_up(seconds / 3)
        return probe.rate(seconds), float(probe.rows[-1]["samples_per_step"])
    finally:
        probe.close()
