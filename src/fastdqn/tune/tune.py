"""Finds the fastest settings of this machine for one work, device by device."""

import gc
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fastdqn.build import set_process_flags, stack_of
from fastdqn.errors import RoleError, UserError
from fastdqn.prepare import Job, check_memory_of, prepare, with_threads
from fastdqn.processes.probe import ProcessProbe
from fastdqn.run.probe import Probe
from fastdqn.run.tuned import Tuned, profile_path, this_machine, untuned_of, work_of
from fastdqn.run.usage import Usage
from fastdqn.tune.race import RunFailedError, Runs, race
from fastdqn.tune.search import Found, clear_winner, key_of, search
from fastdqn.tune.space import Point, acts_with_fresh_weights, coordinates
from fastdqn.tune.view import TuneView

WARM_UP_SECONDS, FILL_SECONDS = 0.5, 1.0
FAR_BEHIND = 0.25  # a device whose start is so much slower than what another has reached is not searched


class WarmRun:
    """A job in small, warm. Each turn sets what a process has only one of: its threads and flags."""

    def __init__(self, job: Job) -> None:
        self.lanes, self._threads, self._switches = job.config.actor.lanes, job.threads, job.switches
        torch.set_num_threads(self._threads)
        self._probe = Probe(job.config, job.kind, job.device)
        try:
            self._probe.warm_up(WARM_UP_SECONDS, fill_seconds=FILL_SECONDS)
        except BaseException:
            self._probe.close()
            raise

    def rate(self, seconds: float) -> float:
        torch.set_num_threads(self._threads)
        set_process_flags(self._switches)
        try:
            return self._probe.rate(seconds)
        except torch.OutOfMemoryError:
            raise RunFailedError from None

    def close(self) -> None:
        self._probe.close()


class WarmProcesses:
    """A job whose roles are processes, in small, warm. They work in its turns only."""

    def __init__(self, job: Job) -> None:
        self._probe = ProcessProbe(with_threads(job))
        try:
            self._probe.warm_up(WARM_UP_SECONDS)
            self._probe.pause()
        except BaseException:
            self._probe.close()
            raise

    def rate(self, seconds: float) -> float:
        try:
            return self._probe.rate(seconds)
        except RoleError:
            raise RunFailedError from None

    def close(self) -> None:
        self._probe.close()


class Tuner:
    """One work on one machine. `fixed` are the user's own settings; they are never touched."""

    def __init__(
        self, env: str, preset: str | None, fixed: Mapping[str, Any], imports: Iterable[str], minutes: float, view: TuneView
    ) -> None:
        self.fixed, self.view = dict(fixed), view
        self._prepare = partial(prepare, env, preset, imports=tuple(imports))
        self.job = self._prepare(settings=self.fixed)
        check_memory_of(self.job)
        self._minutes, self._ends = minutes, 0.0
        self._usage = Usage("cpu")
        self._jobs: dict[str, Job | None] = {}
        self._warm: dict[str, WarmRun | WarmProcesses] = {}  # point -> its run; after a race only the winner's
        self._left_out: list[str] = []  # of the last search
        self._races: list[dict[str, Any]] = []

    def run(self) -> Tuned:
        self._usage.start()
        try:
            untuned, best = self._start(self.job.device), None
            for device in self._devices():
                best = self._search_device(device, best)
            points = [untuned] if best in (None, untuned) else [untuned, best]
            rates = self._race("untuned, tuned", points)
            if not rates[0]:
                raise UserError(
                    f"{self.job.kind.spec.env_id} cannot be run with these settings: the memory does not suffice."
                )
            return self._written_down(points[clear_winner(rates)], rates)
        finally:
            self._close_runs()

    def _devices(self) -> list[str]:
        """The GPU first: where it is far ahead the CPU need not be searched."""
        if self.fixed.get("device", "auto") != "auto" or not torch.cuda.is_available():
            return [self.job.device]
        return ["cuda", "cpu"]

    def _search_device(self, device: str, best: Point | None) -> Point | None:
        """The best point so far, when this device has been searched as well. A device that cannot do what the user asked
        for by name is left out."""
        try:
            start = self._start(device)
        except UserError as fault:
            self.view.say(f"{device} is left out: {fault}")
            return best
        if best is None:
            return self._search(start).point
        if self._race("device", [best, start])[1] < FAR_BEHIND * self._races[-1]["rates"][0]:
            return self._search(best).point if self._left_out else best  # this device's share of the time, for the other
        found = self._search(start).point
        return [best, found][clear_winner(self._race("device", [best, found]))]

    def _start(self, device: str) -> Point:
        """As `train` would do it, on this device."""
        job = with_threads(self._prepare(settings=self.fixed | {"device": device}))
        point = untuned_of(job.config, job.kind) | {"device": device, "learner.threads": job.threads}
        return {key: value for key, value in point.items() if value is not None}

    def _job_at(self, point: Point) -> Job | None:
        """None for a point that cannot be had here, does not fit into memory, lets the acting network fall behind, or would
        be a point in name only (many lanes with `many_lanes` off)."""
        key = key_of(point)
        if key not in self._jobs:
            try:
                job = self._prepare(settings=self.fixed | point)  # the user's own are in every point
                check_memory_of(job)
                fits = acts_with_fresh_weights(job.config, self.job.config)
                self._jobs[key] = job if fits and job.config.actor.lanes == point["actor.lanes"] else None
            except UserError:
                self._jobs[key] = None
        return self._jobs[key]

    def _search(self, start: Point) -> Found:
        job = self._job_at(start)
        if job is None:
            raise UserError(f"{self.job.kind.spec.env_id} cannot be run on {start['device']} with these settings.")
        self._ends = time.monotonic() + 60 * self._minutes / len(self._devices())
        found = search(start, coordinates(job, self.fixed), self._job_at, self._race, self._time_is_up)
        self._left_out = found.left_out
        if found.left_out:
            self.view.say(f"the time was up before: {', '.join(found.left_out)}")
        return found

    def _race(self, what: str, points: list[Point]) -> list[float]:
        names = self.view.begin(what, points)
        makers: dict[str, Callable[[], Runs | None]] = {
            name: partial(self._run_at, point) for name, point in zip(names, points, strict=True)
        }
        rates = [runner.rate for runner in race(makers, self.view.turn)]
        taken = clear_winner(rates)
        self._close_runs(but=points[taken])
        self._races.append({"name": what, "points": points, "rates": rates, "taken": taken})
        self.view.end(rates, taken)
        return rates

    def _run_at(self, point: Point) -> Runs | None:
        """Built and warm, or still there from the race before."""
        key, job = key_of(point), self._job_at(point)
        if key not in self._warm and job is not None:
            try:
                self._warm[key] = WarmRun(job) if job.config.runner == "inline" else WarmProcesses(job)
            except (UserError, RoleError, torch.OutOfMemoryError):
                return None
        return self._warm.get(key)

    def _close_runs(self, but: Point | None = None) -> None:
        kept = None if but is None else key_of(but)
        for key in [key for key in self._warm if key != kept]:
            self._warm.pop(key).close()
        gc.collect()  # a probe and its runner hold each other, and with them the memory of a device

    def _time_is_up(self) -> bool:
        return time.monotonic() > self._ends

    def _written_down(self, best: Point, rates: list[float]) -> Tuned:
        kind, config = self.job.kind, self.job.config
        return Tuned(
            env_id=kind.spec.env_id,
            work=work_of(config, kind, stack_of(config, kind)),
            machine=this_machine(),
            untuned=untuned_of(self.job.asked, kind),
            settings=best,
            steps_per_second=rates[clear_winner(rates)],
            untuned_steps_per_second=rates[0],
            samples_per_step=config.samples_per_step,
            date=time.strftime("%Y-%m-%d"),
            others_cpu_percent=self._usage.read()["others_cpu_percent"] or 0.0,
            trials=self._races,
        )


def tune(
    env: str,
    preset: str | None,
    settings: Mapping[str, Any],
    imports: Iterable[str],
    minutes: float,
    out: str | None,
    view: TuneView,
) -> tuple[Tuned, Path]:
    """What was found, and the file that it belongs into: where `train` looks for it, or `out`."""
    with closing(view):
        if out is not None:
            check_file(Path(out))
        tuned = Tuner(env, preset, settings, imports, minutes, view).run()
    return tuned, Path(out) if out is not None else profile_path(tuned.work)


def check_file(path: Path) -> None:
    """Refused before anything is measured, not after two minutes."""
    if path.is_dir():
        raise UserError(f"{path} is a folder: --out is the file that the profile is written into.")
    if not path.parent.is_dir():
        raise UserError(f"There is no folder {path.parent} to write the profile into.")
