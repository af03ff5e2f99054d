"""The search: one coordinate after the other, each time the best of the points beside the one reached so far.

It knows nothing of networks: a race is a function from points to speeds. The same point is never raced twice on the same
coordinate, and a neighbour must be CLEAR_GAIN faster to be taken, because a change for nothing is a change to explain.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fastdqn.prepare import Job
from fastdqn.tune.space import Coordinate, Point

CLEAR_GAIN = 1.03
MOST_PASSES = 3

Race = Callable[[str, list[Point]], list[float]]  # (what is tried, points; the first is where we stand) -> steps per second


@dataclass
class Trial:
    """One race: what was tried, how fast each point was, and which one was taken."""

    name: str
    points: list[Point]
    rates: list[float]
    taken: int = 0  # 0: nothing beat where we stood


@dataclass
class Found:
    point: Point
    trials: list[Trial] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # coordinates that the time never reached


def search(
    start: Point,
    coordinates: Sequence[Coordinate],
    job_at: Callable[[Point], Job | None],
    race: Race,
    time_is_up: Callable[[], bool],
) -> Found:
    """`job_at` gives None for a point that cannot be had here. Ends when a whole pass has changed nothing."""
    found, raced = Found(start), set[str]()
    for _ in range(MOST_PASSES):
        before = found.point
        for coordinate in coordinates:
            job = job_at(found.point)
            assert job is not None, "the point reached was raced, so it can be had"
            beside = [point for point in coordinate.neighbours(found.point, job) if key_of(point) not in raced]
            beside = [point for point in beside if job_at(point) is not None]
            if not beside:
                continue
            if time_is_up():
                found.left_out.append(coordinate.name)
                continue
            trial = Trial(coordinate.name, [found.point, *beside], race(coordinate.name, [found.point, *beside]))
            raced.update(map(key_of, trial.points))
            trial.taken = clear_winner(trial.rates)
            found.trials.append(trial)
            found.point = trial.points[trial.taken]
        if found.point == before:
            break
    tried = {trial.name for trial in found.trials}
    found.left_out = [name for name in dict.fromkeys(found.left_out) if name not in tried]
    return found


def clear_winner(rates: Sequence[float]) -> int:
    """The place of the fastest, or 0 if it is not clearly faster than the first."""
    best = max(range(len(rates)), key=rates.__getitem__)
    return best if rates[best] > CLEAR_GAIN * rates[0] else 0


def key_of(point: Point) -> str:
    return json.dumps(point, sort_keys=True)
