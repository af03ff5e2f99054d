"""From the repeats of a measurement to one row of a table."""

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastdqn.bench.verdict import ratio_interval, speed_verdict
from fastdqn.processes.control import ACTOR_WORK

COLUMNS = (
    "updates_per_second",
    "samples_per_step",
    "cpu_percent",
    "others_cpu_percent",
    "gpu_percent",
    "rss_mb",
    "gpu_memory_mb",
)
WAITS = ("learner_waits_percent", "actors_wait_percent")  # of roles in processes
SpeedJson = dict[str, Any]  # Speed.as_json()


def speed_columns(speeds: Sequence[SpeedJson], against: Sequence[SpeedJson] | None = None) -> dict[str, Any]:
    """Medians over the repeats, the range of the pieces, and the change against another measurement of the same rounds."""
    row: dict[str, Any] = {
        "steps_per_second": statistics.median(speed["steps_per_second"] for speed in speeds),
        "interval": range_of(speeds),
        "change": None,
        "change_interval": None,
        "speed_verdict": "not measured",
    }
    for name in COLUMNS:
        known = [speed[name] for speed in speeds if speed[name] is not None]
        row[name] = statistics.median(known) if known else None
    for name in WAITS:
        known = [speed["details"][name] for speed in speeds if name in speed.get("details", {})]
        row |= {name: statistics.median(known)} if known else {}
    row["threads"] = speeds[-1]["threads"]
    splits = [speed["split"] for speed in speeds if speed.get("split")]  # a stretch that was cut short has none
    row["split"] = {name: statistics.median(split[name] for split in splits) for name in (splits[0] if splits else {})}
    if against:
        ratio = ratio_interval(windows_of(speeds), windows_of(against))
        row["change"], row["change_interval"] = ratio.value, [ratio.low, ratio.high]
        one_piece = min(sum(map(len, windows_of(side))) for side in (speeds, against)) < 2  # shows no spread
        row["speed_verdict"] = "no clear difference" if one_piece else speed_verdict(ratio)
    return row


def why_so_fast(name: str, speeds: Sequence[SpeedJson]) -> str | None:
    """Of roles in processes: who held up whom, and what an actor's time went into. In words, for the record's notes."""
    told = speeds[-1].get("details", {}) if speeds else {}
    if "bottleneck" not in told:
        return None
    work = [f"{part} {told[key]:.0f} %" for part in ACTOR_WORK if (key := f"actors_{part}_percent") in told]
    return f"{name}: {told['bottleneck']}" + (f". An actor's time: {', '.join(work)}." if work else ".")


def windows_of(speeds: Sequence[SpeedJson]) -> list[list[float]]:
    return [speed["windows"] for speed in speeds]


def range_of(speeds: Sequence[SpeedJson]) -> list[float]:
    """The middle 80 % of all pieces of all repeats: how much the speed wavers, not how well its mean is known."""
    pieces = np.concatenate([np.asarray(speed["windows"], np.float64) for speed in speeds])
    low, high = np.quantile(pieces, [0.1, 0.9])
    return [float(low), float(high)]
