"""Finds the fastest settings of this machine for one work, and writes them down for `train`."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fastdqn.build import stack_of
from fastdqn.env.cores import usable_cores
from fastdqn.errors import UserError
from fastdqn.prepare import Job, prepare, with_threads
from fastdqn.run.probe import Probe
from fastdqn.run.tuned import Tuned, profile_path, this_machine, work_of
from fastdqn.run.usage import Usage
from fastdqn.tune.race import Runs, race
from fastdqn.tune.search import Found, clear_winner, key_of, search
from fastdqn.tune.space import Point, coordinates
from fastdqn.tune.view import TuneView

WARM_UP_SECONDS, FILL_SECONDS = 0.5, 1.0
FAR_BEHIND = 0.25  # a device whose start is so much slower than what another has reached is not searched


class Tuner:
    """One work on one machine. `fixed` are the user's own settings; they are never touched."""

    def __init__(
        self, env: str, preset: str | None, fixed: Mapping[str, Any], imports: Iterable[str], minutes: float, view: TuneView
    ) -> None:
        self.fixed, self.view = dict(fixed), view
        self._prepare = partial(prepare, env, preset, imports=tuple(imports))
        self.job = self._prepare(settings=self.fixed)
        self._minutes, self._ends = minutes, 0.0
        self._usage = Usage("cpu")
        self._warm: dict[str, WarmRun] = {}  # point -> its run; after a race only the winner's

    def run(self) -> Tuned:
        self._usage.start()
        try:
            return self._run()
        finally:
            self._close_runs()

    def _run(self) -> Tuned:
        untuned = self._start(self.job.device)
        best, trials = untuned, []
        for device in self._devices():
            start = self._start(device)
            if best is not untuned and self._far_behind(start, best):
                continue
            found = self._search(start)
            trials += [asdict(trial) for trial in found.trials]
            best = found.point if best is untuned else self._better(best, found.point)
        rates = self._race("untuned, tuned", [untuned, best] if best != untuned else [untuned])
        best = [untuned, best][clear_winner(rates)]
        return self._written_down(best, rates, trials)

    def _devices(self) -> list[str]:
        """The GPU first: where it is far ahead the CPU need not be searched."""
        if "device" in self.fixed or not torch.cuda.is_available():
            return [self.job.device]
        return ["cuda", "cpu"]

    def _start(self, device: str) -> Point:
        """As `train` would do it, on this device."""
        job = with_threads(self._prepare(settings=self.fixed | {"device": device}))
        config, env_threads = job.config, job.kind.settings.get("threads")
        point = {
            "device": device,
            "actor.lanes": config.actor.lanes,
            "actor.groups": config.actor.groups,
            "learner.threads": job.threads,
            "switches.on": list(config.switches.on),
            "switches.off": list(config.switches.off),
        }
        return point if env_threads is None else point | {"env.threads": env_threads or usable_cores()}

    def _job_at(self, point: Point) -> Job | None:
        """None for a point that cannot be had here, or would be a point in name only (many lanes with `many_lanes` off)."""
        try:
            job = self._prepare(settings=self.fixed | point)  # the user's own are in every point
        except UserError:
            return None
        return job if job.config.actor.lanes == point["actor.lanes"] else None

    def _search(self, start: Point) -> Found:
        job = self._job_at(start)
        assert job is not None, "the start is what train would do"
        self._ends = time.monotonic() + 60 * self._minutes / len(self._devices())
        found = search(start, coordinates(job, self.fixed), self._job_at, self._race, self._time_is_up)
        self.view.left_out(found.left_out)
        return found

    def _far_behind(self, start: Point, best: Point) -> bool:
        rates = self._race("device", [start, best])
        return rates[0] < FAR_BEHIND * rates[1]

    def _better(self, one: Point, other: Point) -> Point:
        rates = self._race("device", [one, other])
        return one if rates[0] >= rates[1] else other

    def _race(self, what: str, points: list[Point]) -> list[float]:
        names = self.view.begin(what, points)
        makers: dict[str, Callable[[], Runs | None]] = {
            name: partial(self._run_at, point) for name, point in zip(names, points, strict=True)
        }
        rates = [runner.rate for runner in race(makers, self.view.turn)]
        taken = clear_winner(rates)
        self._close_runs(but=points[taken])
        self.view.end(rates, taken)
        return rates

    def _run_at(self, point: Point) -> Runs | None:
        """Built and warm, or still there from the race before."""
        key = key_of(point)
        if key not in self._warm:
            job = self._job_at(point)
            try:
                if job is None:
                    return None
                self._warm[key] = WarmRun(job)
            except (UserError, torch.OutOfMemoryError):
                return None
        return self._warm[key]

    def _close_runs(self, but: Point | None = None) -> None:
        kept = None if but is None else key_of(but)
        for key in [key for key in self._warm if key != kept]:
            self._warm.pop(key).close()

    def _time_is_up(self) -> bool:
        return time.monotonic() > self._ends

    def _written_down(self, best: Point, rates: list[float], trials: list[dict[str, Any]]) -> Tuned:
        kind, config = self.job.kind, self.job.config
        return Tuned(
            env_id=kind.spec.env_id,
            work=work_of(config, kind, stack_of(config, kind)),
            machine=this_machine(),
            settings=best,
            steps_per_second=rates[clear_winner(rates)],
            untuned_steps_per_second=rates[0],
            samples_per_step=config.samples_per_step,
            date=time.strftime("%Y-%m-%d"),
            others_cpu_percent=self._usage.read()["others_cpu_percent"] or 0.0,
            trials=trials,
        )


class WarmRun:
    """A job in small, warm, with its own number of threads."""

    def __init__(self, job: Job) -> None:
        self.lanes, self._threads = job.config.actor.lanes, job.threads
        torch.set_num_threads(self._threads)
        self._probe = Probe(job.config, job.kind, job.device)
        self._probe.warm_up(WARM_UP_SECONDS, fill_seconds=FILL_SECONDS)

    def rate(self, seconds: float) -> float:
        torch.set_num_threads(self._threads)
        return self._probe.rate(seconds)

    def close(self) -> None:
        self._probe.close()


def tune(
    env: str,
    preset: str | None,
    settings: Mapping[str, Any],
    imports: Iterable[str],
    minutes: float,
    out: str | None,
    view: TuneView,
) -> tuple[Tuned, Path]:
    """Searches, and writes what was found where `train` looks for it, or into the file `out`."""
    if out is not None and Path(out).is_dir():
        raise UserError(f"{out} is a folder: --out is the file that the profile is written into.")
    with closing(view):
        tuned = Tuner(env, preset, settings, imports, minutes, view).run()
    path = Path(out) if out is not None else profile_path(tuned.work)
    tuned.save(path)
    return tuned, path
