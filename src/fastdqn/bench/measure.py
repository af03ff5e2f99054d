"""What is timed: a whole run in small, the environment alone, the arithmetic alone. Called in a process of its own."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from fastdqn.bench.clock import Clock, Speed
from fastdqn.bench.turns import Turns
from fastdqn.build import build_boards, build_env, build_network, stack_of
from fastdqn.build_learner import dtype_of_passes
from fastdqn.device.cores import usable_cores
from fastdqn.errors import UserError
from fastdqn.learner.flops import forward_flops, step_flops
from fastdqn.metrics import SECTIONS
from fastdqn.prepare import Job, with_threads
from fastdqn.processes.probe import LOOK_SECONDS, ProcessProbe
from fastdqn.processes.sharing import thread_plan
from fastdqn.run.probe import Probe
from fastdqn.runner.ceiling import env_alone
from fastdqn.runner.limits import Every
from fastdqn.runner.ports import Parts

Change = Callable[[Parts], None]  # something done to the parts before they are timed: a part left out, a fault planted


def measure(
    job: Job, seconds: float, change: Change | None = None, turns: Turns | None = None, whole_replay: bool = False
) -> Speed:
    """Warms up, then plays and learns for `seconds` by the clock, in turns with others where there are some."""
    if job.config.runner == "processes":
        if change is not None:
            raise UserError("A part can be left out of a run in one process only: use the runner inline.")
        return measure_apart(job, seconds, turns, whole_replay)
    job = with_threads(job)
    torch.set_num_threads(job.threads)
    clock = Clock(job.device, job.threads, job.config.learner.batch_size, turns)
    probe = Probe(job.config, job.kind, job.device, job.own_network, whole_replay)
    try:
        if change is not None:
            change(probe.parts)
        actor, learner = probe.parts.actor, probe.parts.learner
        clock.first_step()
        probe.warm_up()
        warm_rows, log_due = len(probe.rows), Every(probe.parts.config.log.every_steps)
        log_due.passed(actor.steps)
        details = {
            "lanes": probe.parts.env.num_lanes,
            "rows_filled": len(probe.parts.replay) if whole_replay else probe.parts.ratio.warmup_steps,
            "capacity": probe.parts.config.replay.capacity,
            "notes": [*job.notes, *probe.parts.notes],
        }
        clock.start(actor.steps, learner.updates, switches=sorted(probe.parts.switches), details=details)
        while clock.tick(actor.steps, learner.updates) < seconds:
            probe.runner.round()
            if log_due.passed(actor.steps):  # as a run does: what logging costs is part of the speed
                probe.runner.log()
        speed = clock.speed()
        probe.runner.log()
        return replace(speed, split=split_of(probe.rows[warm_rows:], clock.waited_seconds))
    finally:
        probe.close()


class PausingTurns(Turns):
    """Processes work on by themselves: between two turns they are told to pause."""

    def __init__(self, turns: Turns, probe: ProcessProbe) -> None:
        super().__init__(turns.seconds * turns.count, turns.count)
        self._probe = probe

    def over(self, so_far: dict[str, Any]) -> None:
        self._probe.pause()
        super().over(so_far)
        self._probe.resume()


def measure_apart(job: Job, seconds: float, turns: Turns | None = None, whole_replay: bool = False) -> Speed:
    """The same for a run whose roles live in processes of their own."""
    job = with_threads(job)
    probe = ProcessProbe(job, whole_replay)
    try:
        pausing = PausingTurns(turns, probe) if turns is not None else None
        threads = thread_plan(usable_cores(), job.threads, job.config.actor.count, job.config.learner.threads > 0).learner
        clock = Clock("cpu", threads, job.config.learner.batch_size, pausing)  # it queues nothing on a GPU by itself
        clock.first_step()
        probe.warm_up()
        details = {
            "lanes": job.config.actor.lanes,
            "actors": job.config.actor.count,
            "capacity": probe.runner.config.replay.capacity,
            "notes": [*job.notes],
        }
        probe.count_from_here()
        clock.start(probe.steps, probe.updates, switches=sorted(job.switches), details=details)
        while clock.tick(probe.steps, probe.updates) < seconds:
            probe.go_on(LOOK_SECONDS)
        speed = clock.speed()
        busy = probe.gpu_percent()
        return replace(speed, device=job.device, gpu_percent=busy, details=speed.details | probe.figures())
    finally:
        probe.close()


def split_of(rows: list[dict[str, Any]], waited_seconds: float = 0.0) -> dict[str, float]:
    """Section -> share of the time, from lines of metrics. Waiting for turns is no part of it."""
    seconds = {name: sum(float(row[f"{name}_seconds"]) for row in rows) for name in (*SECTIONS, "other")}
    seconds["other"] = max(0.0, seconds["other"] - waited_seconds)
    total = sum(seconds.values()) or 1.0
    return {name: round(value / total, 4) for name, value in seconds.items()}


def measure_env(job: Job, lanes: int, seconds: float) -> dict[str, Any]:
    """Steps per second of the environment alone, with the job's switches and groups."""
    torch.set_num_threads(1)
    boards = build_boards(job.kind, lanes, job.device, job.switches)
    env = boards or build_env(job.kind, lanes, min(job.config.actor.groups, lanes), job.switches)
    try:
        pieces = [env_alone(env, job.config.seed, seconds / 4) for _ in range(4)]
    finally:
        env.close()
    return {"lanes": lanes, "steps_per_second": sum(pieces) / len(pieces), "windows": pieces}


def measure_ceiling(job: Job, seconds: float) -> dict[str, Any]:
    """What no run of this job can beat here: its arithmetic at the speed of one large matrix product, in the precision
    it uses and on all cores, and the environment alone."""
    job = with_threads(job)
    dtype = dtype_of_passes(job.switches) or torch.float32
    shape = job.kind.spec.state_shape(stack_of(job.config, job.kind))
    forward = forward_flops(lambda: build_network(job.config, job.kind), shape)
    per_step = step_flops(job.config, forward)
    peak = matrix_flops_per_second(job.device, dtype, seconds / 2)
    alone = measure_env(job, job.config.actor.lanes, seconds / 2)["steps_per_second"]
    return {
        "steps_per_second": 1.0 / (per_step / peak + 1.0 / alone),
        "env_alone": alone,
        "flops_per_step": per_step,
        "gflops_per_second": peak / 1e9,
        "precision": str(dtype).removeprefix("torch."),
        "words": f"{per_step / 1e6:.1f} MFLOP a step at the {peak / 1e9:,.0f} GFLOP/s of a large matrix product "
        f"({str(dtype).removeprefix('torch.')}, {job.device}), and the environment alone at {alone:,.0f} steps/s",
    }


def matrix_flops_per_second(device: str, dtype: torch.dtype, seconds: float, side: int = 1024) -> float:
    """The fastest of several products of two square matrices, with torch's own number of threads."""
    side = 8 * side if device.startswith("cuda") else side
    a, b = (torch.rand(side, side, device=device).to(dtype) for _ in range(2))
    before = torch.get_num_threads()
    torch.set_num_threads(torch.get_num_threads() if device.startswith("cuda") else usable_cores())
    best, began = 0.0, time.perf_counter()
    try:
        while time.perf_counter() - began < seconds:
            started = time.perf_counter()
            for _ in range(4):
                a @ b
            if device.startswith("cuda"):
                torch.cuda.synchronize(device)
            best = max(best, 4 * 2 * side**3 / (time.perf_counter() - started))
    finally:
        torch.set_num_threads(before)
    return best
