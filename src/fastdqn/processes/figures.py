"""Further metrics of a run in processes: each role's speed, memory and waiting time, and which role is the bottleneck."""

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from fastdqn.processes.control import ACTOR_WORK, FIRST_ACTOR, LEARNER
from fastdqn.processes.shared import Shared
from fastdqn.run.usage import gpu_percent

SECONDS_BETWEEN_LOOKS = 1.0  # at the processes: a line in between repeats the last reading
CLEAR_SHARE = 0.2  # of the time: a role that waits longer is held up


class Figures:
    """Rates are over the time since the previous line."""

    def __init__(self, control: Shared, actors: int, device: str, shared_bytes: int, folder: Path) -> None:
        self._control, self._actors, self._device = control, actors, device
        self._shared_mb, self._folder = shared_bytes / 1e6, folder
        self._processes: dict[str, psutil.Process] = {}
        self._last_time = time.monotonic()
        self._last_played, self._last_waited = np.zeros(actors), np.zeros(1 + actors)
        self._last_work = np.zeros((len(ACTOR_WORK), actors))
        self._looked_at, self._looked_for = -SECONDS_BETWEEN_LOOKS, set[int]()
        self._seen: dict[str, Any] = {}
        self._warm_up: float | None = None  # steps per second before the first update

    def begin(self, pids: Mapping[str, int]) -> None:
        """Starts the measurement: the roles work from now on."""
        self._last_time = time.monotonic()
        for name, pid in pids.items():
            self._of_process(name, pid)  # CPU usage is since the last reading: this is the first

    def line(self, pids: Mapping[str, int], played: list[int], updates: int, waiting: list[int]) -> dict[str, Any]:
        """`played` are the steps of each actor, restarts included, `waiting` its filled slots."""
        now = time.monotonic()
        elapsed, self._last_time = max(now - self._last_time, 1e-9), now
        rates = (np.array(played, float) - self._last_played) / elapsed
        self._last_played = np.array(played, float)
        if not updates:
            self._warm_up = float(rates.sum())
        control, first = self._control, FIRST_ACTOR
        waited = self._waited()
        shares = ((waited - self._last_waited) / elapsed).clip(0, 1)
        self._last_waited = waited
        work = self._work()
        work_shares = ((work - self._last_work) / elapsed).clip(0, 1).mean(axis=1)
        self._last_work = work
        ages = control["step"][0] - control["weights_step"][first : first + self._actors]
        figures: dict[str, Any] = {
            "warmup_steps_per_second": self._warm_up,
            "actor_steps_per_second": float(rates.sum()),
            **{f"actor{number}_steps_per_second": float(rate) for number, rate in enumerate(rates)},
            "replay_rows": int(control["rows"][0]),
            "slots_waiting": sum(waiting),
            "weights_age_steps": float(ages.clip(0).mean()),
            "learner_waits_percent": 100 * float(shares[0]),
            "actors_wait_percent": 100 * float(shares[1:].mean()),
            **{f"actors_{name}_percent": 100 * float(share) for name, share in zip(ACTOR_WORK, work_shares, strict=True)},
            "bottleneck": bottleneck(float(shares[0]), float(shares[1:].mean())),
            "load_average": os.getloadavg()[0],
            "shared_mb": self._shared_mb,
        }
        if now - self._looked_at >= SECONDS_BETWEEN_LOOKS or set(pids.values()) != self._looked_for:
            self._looked_at, self._looked_for = now, set(pids.values())
            self._seen = self._look(pids)
        figures |= self._seen
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in figures.items()}

    def time_spent(self, pids: Mapping[str, int]) -> dict[str, float]:
        """Seconds since the roles started: waiting and work (actors: the mean), and CPU time."""
        waited = self._waited()
        spent = {"learner_waits": float(waited[0]), "actors_wait": float(waited[1:].mean())}
        spent |= {
            f"actors_{name}": float(seconds) for name, seconds in zip(ACTOR_WORK, self._work().mean(axis=1), strict=True)
        }
        for name, pid in pids.items():
            with contextlib.suppress(psutil.Error):
                times = psutil.Process(pid).cpu_times()
                spent[f"{name}_cpu"] = times.user + times.system
        return spent

    def _waited(self) -> NDArray[np.float64]:
        """Seconds of the learner, then of each actor."""
        waited = self._control["waited"]
        return np.array([waited[LEARNER], *waited[FIRST_ACTOR : FIRST_ACTOR + self._actors]])

    def _work(self) -> NDArray[np.float64]:
        """Seconds, by kind of work and by actor."""
        return self._control["spent"][:, FIRST_ACTOR : FIRST_ACTOR + self._actors].copy()

    def _look(self, pids: Mapping[str, int]) -> dict[str, Any]:
        """What must be read from the kernel, which takes some 10 ms per process."""
        found: dict[str, Any] = {"gpu_percent": gpu_percent(self._device), "run_disk_mb": disk_used(self._folder) / 1e6}
        for name, pid in pids.items():
            found |= self._of_process(name, pid)
        return found

    def _of_process(self, name: str, pid: int) -> dict[str, float]:
        """CPU since the last reading (100 % is one core), and private memory."""
        try:
            if name not in self._processes or self._processes[name].pid != pid:
                self._processes[name] = psutil.Process(pid)
            process = self._processes[name]
            return {f"{name}_cpu_percent": process.cpu_percent(), f"{name}_uss_mb": process.memory_full_info().uss / 1e6}
        except psutil.Error:  # the process has died
            return {}


def bottleneck(learner_waits: float, actors_wait: float) -> str:
    """In words: which role waits for which, and what would help."""
    if learner_waits >= max(CLEAR_SHARE, actors_wait):
        return f"the learner waits for actors {learner_waits:.0%} of the time: add an actor (actor.count) or lanes"
    if actors_wait >= CLEAR_SHARE:
        return f"the actors wait for the learner {actors_wait:.0%} of the time: fewer of them would do"
    return "neither waits for the other for long"


def disk_used(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        with contextlib.suppress(OSError):  # renamed or deleted meanwhile
            total += file.stat().st_size
    return total
