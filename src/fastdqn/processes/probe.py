"""A small run in processes, to be timed: like run/probe.py, but it runs by itself until it is paused."""

import statistics
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastdqn.errors import RoleError
from fastdqn.prepare import Job
from fastdqn.processes.figures import bottleneck
from fastdqn.processes.runner import ProcessRunner
from fastdqn.run.probe import probe_config
from fastdqn.runner.ports import Stop

WARM_UPDATES = 20
LOOK_SECONDS = 0.005
LONGEST_START_SECONDS = 300.0
TOLD_BY_A_ROW = ("weights_age_steps", "load_average", "shared_mb")  # and each role's memory


class ProcessProbe:
    """`steps` and `updates` increase while it runs. Between `pause` and `resume` all roles are idle."""

    def __init__(self, job: Job, whole_replay: bool = False) -> None:
        config = probe_config(job.config, job.kind, whole_replay)
        config = config.model_copy(
            update={
                "limits": config.limits.model_copy(update={"steps": None, "minutes": 1e6, "target": None, "episodes": None}),
                "evaluator": config.evaluator.model_copy(update={"every_steps": 0, "at_end": False}),
            }
        )
        self.rows: list[dict[str, Any]] = []
        self._worked, self._resumed_at = 0.0, time.monotonic()
        self._begun: dict[str, float] = {}
        self._begun_row = 0
        self._folder = tempfile.TemporaryDirectory(prefix="fastdqn-probe-")
        self._stop, self._fault = Stop(), [RoleError("the roles have ended")]
        folder = Path(self._folder.name)
        self.runner = ProcessRunner(
            replace(job, config=config),
            folder,
            folder / "model.safetensors",
            None,
        )
        self._thread = threading.Thread(target=self._run, name="fastdqn-roles", daemon=True)
        self._thread.start()

    def warm_up(self, seconds: float = 1.0) -> None:
        """Runs until the roles have started, the replay is filled as configured, and updates have been made for a while."""
        began = time.monotonic()
        while self.updates < WARM_UPDATES and time.monotonic() - began < LONGEST_START_SECONDS:
            self.go_on(LOOK_SECONDS)
        self.go_on(seconds)

    def go_on(self, seconds: float) -> None:
        """Lets the roles work for `seconds`; raises the error of a failed role."""
        self._thread.join(seconds)
        if not self._thread.is_alive():
            raise self._fault[-1]

    def rate(self, seconds: float) -> float:
        """Steps per second over the next `seconds`; paused before and after."""
        self.resume()
        began, steps = time.monotonic(), self.steps
        self.go_on(seconds)
        rate = (self.steps - steps) / (time.monotonic() - began)
        self.pause()
        return rate

    def pause(self) -> None:
        self.runner.control["pause"][0] = 1
        self.runner.wake_all()  # a role that waits for another pauses instead, and its waiting is not counted
        self._worked += time.monotonic() - self._resumed_at

    def resume(self) -> None:
        self._resumed_at = time.monotonic()
        self.runner.control["pause"][0] = 0
        self.runner.wake_all()

    def count_from_here(self) -> None:
        """Starts the interval that `figures` covers."""
        self._worked, self._resumed_at = 0.0, time.monotonic()
        self._begun, self._begun_row = self.runner.time_spent(), len(self.rows)

    def gpu_percent(self) -> float | None:
        """Median over the metrics rows; None without a GPU."""
        told = [row["gpu_percent"] for row in self.rows[self._begun_row :] if row.get("gpu_percent") is not None]
        return statistics.median(told) if told else None

    def figures(self) -> dict[str, Any]:
        """Waiting and computing of each role, as shares of the time not paused; the rest from the last row."""
        worked = self._worked + time.monotonic() - self._resumed_at
        spent = {name: after - self._begun.get(name, 0.0) for name, after in self.runner.time_spent().items()}
        shares = {name: max(0.0, seconds / worked) for name, seconds in spent.items()}  # negative: it was restarted
        learner, actors = (min(1.0, shares.pop(name)) for name in ("learner_waits", "actors_wait"))
        told: dict[str, Any] = {
            "bottleneck": bottleneck(learner, actors),
            "learner_waits_percent": round(100 * learner, 1),
            "actors_wait_percent": round(100 * actors, 1),
            **{f"{name}_percent": round(100 * share, 1) for name, share in shares.items()},
        }
        last = self.rows[-1] if self.rows else {}
        return told | {name: value for name, value in last.items() if name in TOLD_BY_A_ROW or name.endswith("_uss_mb")}

    @property
    def steps(self) -> int:
        return self.runner.step

    @property
    def updates(self) -> int:
        return self.runner.update

    def close(self) -> None:
        self.resume()
        self._stop.ask("measured")
        self._thread.join()
        self.runner.close()
        self._folder.cleanup()

    def _run(self) -> None:
        try:
            self.runner.run(self._stop, self.rows.append, lambda score: None, lambda line: None, lambda: None)
        except Exception as fault:
            self._fault.append(fault)  # type: ignore[arg-type]
