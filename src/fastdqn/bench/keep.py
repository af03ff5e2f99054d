"""Finished runs as a record: `fastdqn bench keep RUN RUN --name cartpole-8-seeds`. Copies numbers, trains nothing."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastdqn.bench.identity import Subject, env_name, subject_of_run
from fastdqn.bench.record import Keeper
from fastdqn.errors import UserError
from fastdqn.run import dumps
from fastdqn.run import folder as folders
from fastdqn.run.folder import RunFolder

SOAK_SECONDS = 600.0
USS = "_uss_mb"


def run_row(run: RunFolder) -> dict[str, Any]:
    """The run's last evaluation, its steps and its speed while it learned (the warm-up does not count)."""
    rows, scores = run.metrics(), run.scores()
    if not rows or not scores:
        raise UserError(f"{run.path} has no metrics or no evaluation yet, so there is nothing to keep.")
    full = max(row["samples_per_step"] for row in rows)
    learning = [row for row in rows if row["samples_per_step"] > 0.9 * full] or rows
    last = scores[-1]
    return {
        "run": run.path.name,
        "seed": run.config().seed,
        "steps": last["step"],
        "updates": last["update"],
        "minutes": rows[-1]["seconds"] / 60,
        "mean": last["mean"],
        "median": last["median"],
        "interval": last["interval"],
        "episodes": last["episodes"],
        "epsilon": last["epsilon"],
        "steps_per_second": statistics.median(row["steps_per_second"] for row in learning),
        "samples_per_step": statistics.median(row["samples_per_step"] for row in learning),
        **dumped_games(run.path),
        **memory_of_roles(rows),
    }


def memory_of_roles(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of a run in processes that has learned for ten minutes: what memory each role had in the third of them and in the
    last, whether the ring was full from the start, how far samples per step strayed over 10,000 steps, and who died."""
    learning = [row for row in rows if row["update"]]
    if not learning or "restarts" not in learning[-1] or learning[-1]["seconds"] - learning[0]["seconds"] < SOAK_SECONDS:
        return {}
    began, end = learning[0]["seconds"], learning[-1]["seconds"]
    third = [row for row in learning if began + 120 <= row["seconds"] < began + 180]
    last = [row for row in learning if row["seconds"] > end - 60]
    roles = [name.removesuffix(USS) for name in learning[-1] if name.endswith(USS)]
    told = {role: [[row[role + USS] for row in part if role + USS in row] for part in (third, last)] for role in roles}
    memory = {role: [statistics.median(part) for part in parts] for role, parts in told.items() if all(parts)}
    if not memory:  # too few lines to tell
        return {}
    return {
        "soak_minutes": (end - began) / 60,
        "uss_mb": memory,
        "uss_growth_percent": max(100 * (after / before - 1) for before, after in memory.values()),
        "replay_rows_at_first_update": learning[0]["replay_rows"],
        "replay_rows_in_the_end": learning[-1]["replay_rows"],
        "samples_per_step_strayed_percent": 100 * strayed(learning),
        "restarts": learning[-1]["restarts"],
        "hung": learning[-1]["hung"],
    }


def strayed(rows: Sequence[dict[str, Any]], steps: int = 10_000) -> float:
    """The samples per step of every stretch of so many steps, against those of all: the largest difference, as a share."""
    whole = (rows[-1]["update"] - rows[0]["update"]) / (rows[-1]["step"] - rows[0]["step"])
    worst, first = 0.0, 0
    for row in rows:
        while rows[first + 1]["step"] <= row["step"] - steps:
            first += 1
        length = row["step"] - rows[first]["step"]
        if length >= steps:
            worst = max(worst, abs((row["update"] - rows[first]["update"]) / length / whole - 1))
    return worst


def dumped_games(run: Path) -> dict[str, Any]:
    """What the games take that `dump.every` has kept; nothing where there are none."""
    files = sorted((run / dumps.FOLDER).glob("*.npz"))
    if not files:
        return {}
    steps = sum(dumps.steps_of(file) for file in files)
    size = sum(file.stat().st_size for file in files)
    return {
        "dumped_games": len(files),
        "dump_mb_per_game": size / len(files) / 1e6,
        "dump_bytes_per_step": size / steps,
        "steps_per_dumped_game": steps / len(files),
    }


def curve_points(run: RunFolder) -> list[dict[str, Any]]:
    """The score while exploring, line by line of the run's own log."""
    name, seed = run.path.name, run.config().seed
    return [
        {"rung": name, "seed": seed, "step": row["step"], "seconds": row["seconds"], "score": row["score_mean"]}
        for row in run.metrics()
        if row["score_mean"] is not None
    ]


def keep_runs(runs: Sequence[RunFolder], keeper: Keeper) -> None:
    keeper.record["rows"] = [run_row(run) for run in runs]
    keeper.curves = [point for run in runs for point in curve_points(run)]
    keeper.finish()


def find_runs(names: Sequence[str]) -> tuple[list[RunFolder], Subject]:
    """The runs, and what they are about: all of one environment, so that they can stand in one table."""
    if not names:
        raise UserError("Which runs are to be kept? For example: fastdqn bench keep runs/first --name snake-first")
    runs = [folders.find(name) for name in names]
    for run in runs:
        for name in (folders.MACHINE, folders.METRICS):
            if not (run.path / name).is_file():
                raise UserError(f"{run.path} has no {name}, so there is nothing to keep.")
    envs = {env_name(run.config()) for run in runs}
    if len(envs) > 1:
        raise UserError(f"These runs are of different environments ({', '.join(sorted(envs))}): keep them one by one.")
    scores = runs[0].scores()
    return runs, subject_of_run(runs[0], scores[-1]["protocol"] if scores else "")
