"""What `tune` may change: where and how the work is done, never what is learned from it.

Samples per step, batch, learning rate and everything else that learning depends on stay as they are. Lanes and groups are
tried only as long as one tick of a group earns at most MOST_UPDATES_A_TICK updates (or as many as the preset's own): beyond
that the network that acts is always older than the one that was trained.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastdqn.build import measures_threads, switches_to_try
from fastdqn.config import Config
from fastdqn.device.cores import powers_up_to, usable_cores
from fastdqn.prepare import Job
from fastdqn.switches import SWITCHES

Point = dict[str, Any]  # dotted settings, as `--set` takes them
MOST_UPDATES_A_TICK = 16
LANE_STEPS = (0.25, 0.5, 2, 4, 8, 16)  # times the lanes reached so far


@dataclass(frozen=True)
class Coordinate:
    """One thing that is tried: its name, and from the point reached so far to the points beside it."""

    name: str
    neighbours: Callable[[Point, Job], list[Point]]


def coordinates(job: Job, fixed: Mapping[str, Any]) -> list[Coordinate]:
    """All that this machine and this environment offer, without what the user has set by hand (`fixed`)."""
    found = []
    if job.device == "cpu" and usable_cores() > 1 and measures_threads(job.switches):
        found.append(_values("learner.threads", powers_up_to(usable_cores())))
    found.append(Coordinate("actor.lanes", _other_lanes))
    switches = [] if any(key.startswith("switches.") for key in fixed) else _switches(job)
    found += [switch for switch in switches if not _takes_long(switch.name)]
    if "threads" in job.kind.settings and job.kind.make_lanes is not None:  # threads of its own: two groups can overlap
        found.append(_values("env.threads", powers_up_to(usable_cores() - 1)))  # all of them is what 0 stands for
        found.append(_values("actor.groups", [1, 2, 4]))
    if sys.platform == "linux" and "actor.count" not in fixed:
        found.append(Coordinate("runner", _other_runners))
    found += [switch for switch in switches if _takes_long(switch.name)]
    return [coordinate for coordinate in found if coordinate.name not in fixed]


def _takes_long(switch: str) -> bool:
    return "compiler" in SWITCHES[switch].machine  # half a minute, so it comes last


def _values(key: str, values: list[int]) -> Coordinate:
    return Coordinate(key, lambda point, job: [{**point, key: value} for value in values if point[key] != value])


def updates_a_tick(config: Config) -> float:
    """Updates that one tick of the largest group earns."""
    return math.ceil(config.actor.lanes / config.actor.groups) / config.learner.steps_per_update


def acts_with_fresh_weights(config: Config, untuned: Config) -> bool:
    return updates_a_tick(config) <= max(MOST_UPDATES_A_TICK, updates_a_tick(untuned))


def _other_lanes(point: Point, job: Job) -> list[Point]:
    """More and fewer lanes than the job has now."""
    now, groups = job.config.actor.lanes, job.config.actor.groups
    counts = sorted({int(now * step) for step in LANE_STEPS})
    return [{**point, "actor.lanes": count} for count in counts if count >= groups and count != now]


def _other_runners(point: Point, job: Job) -> list[Point]:
    """All roles in one process; or apart, with one actor, and with one for every two cores."""
    lanes, groups = job.config.actor.lanes, job.config.actor.groups
    apart = [count for count in sorted({1, usable_cores() // 2}) if 1 <= count <= lanes // groups]
    choices = [("inline", 1), *(("processes", count) for count in apart)]
    now = (point["runner"], point["actor.count"])
    return [{**point, "runner": runner, "actor.count": count} for runner, count in choices if (runner, count) != now]


def _switches(job: Job) -> list[Coordinate]:
    """The switches that win on some machines and lose on others, each turned over."""
    names = switches_to_try(job.config, job.kind, job.device)

    def turned_over(name: str) -> Coordinate:
        def neighbours(point: Point, job: Job) -> list[Point]:
            on_now = name in job.switches
            return [_with_switches(point, off=[name]) if on_now else _with_switches(point, on=[name])]

        return Coordinate(name, neighbours)

    return [turned_over(name) for name in names]


def _with_switches(point: Point, on: Sequence[str] = (), off: Sequence[str] = ()) -> Point:
    now_on = [name for name in point["switches.on"] if name not in off]
    now_off = [name for name in point["switches.off"] if name not in on]
    return {
        **point,
        "switches.on": now_on + [name for name in on if name not in now_on],
        "switches.off": now_off + [name for name in off if name not in now_off],
    }
