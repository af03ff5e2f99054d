"""Points raced side by side: all of them are built and warm, and take turns of a fraction of a second.

A shared machine is slower by half for some seconds and then fast again; in turns every point has the good and the bad ones.
The slow ones drop out on the way, so that the time goes where the question is.
"""

import math
import operator
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

TURN_SECONDS = 0.15  # or one round of the run, where that is longer
LONG_ENOUGH_SECONDS = 2.0  # of turns, for each point that is still in the race
LOOK_AT_SECONDS = 0.6  # when hopeless points begin to drop out
HOPELESS = 0.85  # of the fastest so far


class Runs(Protocol):
    """What is raced: a run in small."""

    def rate(self, seconds: float) -> float: ...
    def close(self) -> None: ...


@dataclass
class Runner:
    """A point in the race, with the speed of each of its turns."""

    name: str
    run: Runs | None  # None: it could not be built
    turns: list[float] = field(default_factory=list)
    seconds: float = 0.0
    rate: float = 0.0  # steps per second, as far as it is known
    out: bool = False


def race(
    makers: dict[str, Callable[[], Runs | None]],
    on_turn: Callable[[list[Runner], float], None] = lambda runners, share: None,
    clock: Callable[[], float] = time.monotonic,
) -> list[Runner]:
    """All points with their turns, in the order given. `on_turn` sees them and the share of the race that is over, the
    building included. Whoever made the runs closes them."""
    runners: list[Runner] = []
    for number, (name, make) in enumerate(makers.items()):
        on_turn(runners, 0.5 * number / len(makers))
        runners.append(Runner(name, make()))
    racing = [runner for runner in runners if runner.run is not None]
    least, rounds = 0.0, math.ceil(LONG_ENOUGH_SECONDS / TURN_SECONDS)
    while racing and least < LONG_ENOUGH_SECONDS and len(racing[0].turns) < rounds:
        for runner in racing:
            began = clock()
            assert runner.run is not None
            runner.turns.append(runner.run.rate(TURN_SECONDS))
            runner.seconds += clock() - began
            on_turn(runners, 0.5 + 0.5 * min(1.0, least / LONG_ENOUGH_SECONDS))
        least = min(runner.seconds for runner in racing)
        compare(racing)
        racing = _hopeful(racing, least)[::-1]  # the order is turned around each time
    return runners


def compare(racing: list[Runner]) -> None:
    """Sets the rates: the first's is the median of its turns, the others' stand to it as they did in the median round. A
    second in which everything is slow slows a round as a whole, and leaves these ratios as they are."""
    first = racing[0]
    usual = statistics.median(first.turns)
    for runner in racing:
        runner.rate = usual * statistics.median(map(operator.truediv, runner.turns, first.turns))


def _hopeful(racing: list[Runner], seconds: float) -> list[Runner]:
    best = max(runner.rate for runner in racing)
    for runner in racing:
        runner.out = seconds >= LOOK_AT_SECONDS and runner.rate < HOPELESS * best
    return [runner for runner in racing if not runner.out]
