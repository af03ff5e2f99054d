"""Named timers, and the rows of metrics.jsonl."""

import json
import math
import time
from collections import deque
from pathlib import Path
from typing import Any, Protocol

SECTIONS = ("env", "act", "store", "sample", "learn")


class Timer:
    """`with timer:` adds the time spent inside to `seconds`. One object per section: no allocation on the hot path."""

    __slots__ = ("_began", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._began


class Timers(dict[str, Timer]):
    """The sections a step's time is split into; what none of them covers is 'other'."""

    def __missing__(self, name: str) -> Timer:
        self[name] = Timer()
        return self[name]


class Tracker(Protocol):
    def write(self, row: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


class JsonlSink:
    """One JSON object per line, flushed at once: a killed run loses no written line."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def write(self, row: dict[str, Any]) -> None:
        # A diverged loss is written as null: NaN is not JSON, and other programs read this file too
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()
        }
        self._file.write(json.dumps(finite) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics.jsonl; a half-written last line is left out."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


class Meter:
    """Turns counters into rows. Rates and the split are over the time since the previous row; the counters are totals.

    The split: env (recv and send), act (policy), store (replay.append), sample (draw a batch), learn (update),
    other (the rest of the loop). Evaluation is counted in eval_seconds only and is not part of any rate.
    """

    def __init__(self, timers: Timers, frame_skip: int, batch_size: int, window_episodes: int) -> None:
        self._timers, self._frame_skip, self._batch_size = timers, frame_skip, batch_size
        self._returns: deque[float] = deque(maxlen=window_episodes)
        self._scores: deque[float] = deque(maxlen=window_episodes)
        self._began = self._last_time = time.perf_counter()
        self._last_sections: dict[str, float] = {}
        self._last_step = self._last_update = 0
        self.episodes = 0
        self.eval_seconds = 0.0
        self._last_eval_seconds = 0.0

    def start(self) -> None:
        """The clock starts at the first environment step, not when the parts are built."""
        self._began = self._last_time = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began

    def add_game(self, returns: float, score: float) -> None:
        self.episodes += 1
        self._returns.append(returns)
        self._scores.append(score)

    @property
    def return_mean(self) -> float | None:
        return sum(self._returns) / len(self._returns) if self._returns else None

    @property
    def score_mean(self) -> float | None:
        return sum(self._scores) / len(self._scores) if self._scores else None

    def row(self, step: int, update: int, epsilon: float, loss: float | None, q_mean: float | None) -> dict[str, Any]:
        now = time.perf_counter()
        evaluated = self.eval_seconds - self._last_eval_seconds
        elapsed = max(now - self._last_time - evaluated, 1e-9)
        steps, updates = step - self._last_step, update - self._last_update
        split = {}
        for name in SECTIONS:
            total = self._timers[name].seconds
            split[f"{name}_seconds"] = total - self._last_sections.get(name, 0.0)
            self._last_sections[name] = total
        row: dict[str, Any] = {
            "seconds": now - self._began,
            "step": step,
            "frame": step * self._frame_skip,
            "update": update,
            "episode": self.episodes,
            "return_mean": self.return_mean,
            "score_mean": self.score_mean,
            "steps_per_second": steps / elapsed,
            "updates_per_second": updates / elapsed,
            "samples_per_step": self._batch_size * updates / steps if steps else 0.0,
            "epsilon": epsilon,
            "loss": loss,
            "q_mean": q_mean,
            **split,
            "other_seconds": max(0.0, elapsed - sum(split.values())),
            "eval_seconds": evaluated,
        }
        self._last_time, self._last_step, self._last_update = now, step, update
        self._last_eval_seconds = self.eval_seconds
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()}

    def state(self) -> dict[str, Any]:
        return {
            "returns": list(self._returns),
            "scores": list(self._scores),
            "episodes": self.episodes,
            "eval_seconds": self.eval_seconds,
            "step": self._last_step,
            "update": self._last_update,
            "seconds": self.seconds,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """The clock continues from the saved seconds."""
        for games, saved in ((self._returns, state["returns"]), (self._scores, state["scores"])):
            games.clear()
            games.extend(saved)
        self.episodes = state["episodes"]
        self.eval_seconds = self._last_eval_seconds = state["eval_seconds"]
        self._last_step, self._last_update = state["step"], state["update"]
        self._last_time = time.perf_counter()
        self._began = self._last_time - state["seconds"]
