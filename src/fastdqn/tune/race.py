"""Points raced side by side: all of them are built and warm, and take turns of a fraction of a second.

A shared machine is slower by half for some seconds and then fast again; in turns every point has the good and the bad ones.
A point is judged by its ratio to the first one in the same rounds, so a slow spell that comes when it has dropped out
changes nothing about it. The slow ones drop out on the way, so that the time goes where the question is; the first never
does.
"""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

TURN_SECONDS = 0.15  # or one round of the run, where that is longer
LONG_ENOUGH_SECONDS = 2.0  # of turns, for each point that is still in the race
LOOK_AT_SECONDS = 0.6  # when hopeless points begin to drop out
HOPELESS = 0.85  # of the fastest so far


class RunFailedError(Exception):
    """A run that was built has failed, for want of memory."""


class Runs(Protocol):
    """What is raced: a run in small. `rate` may raise RunFailedError."""

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
    """All points with their rates, in the order given. `on_turn` sees them and the share of the race that is over, the
    building included. Whoever made the runs closes them."""
    runners: list[Runner] = []
    for number, (name, make) in enumerate(makers.items()):
        on_turn(runners, 0.5 * number / len(makers))
        runners.append(Runner(name, make()))
    built = [runner for runner in runners if runner.run is not None]
    racing, least, rounds = list(built), 0.0, math.ceil(LONG_ENOUGH_SECONDS / TURN_SECONDS)
    while racing and least < LONG_ENOUGH_SECONDS and len(racing[0].turns) < rounds:
        for runner in racing:
            _take_a_turn(runner, clock)
            on_turn(runners, 0.5 + 0.5 * min(1.0, least / LONG_ENOUGH_SECONDS))
        racing = [runner for runner in racing if not runner.out]
        least = min((runner.seconds for runner in racing), default=0.0)
        set_rates(built)
        if least >= LOOK_AT_SECONDS:
            _drop_the_hopeless(racing, first=built[0])
        racing = [runner for runner in racing if not runner.out][::-1]  # the order is turned around each time
    return runners


def set_rates(runners: list[Runner]) -> None:
    """The first's is the median of its turns; the others' stand to it as they did in the rounds they shared."""
    first = runners[0]
    usual = statistics.median(first.turns) if first.turns else 0.0
    for runner in runners:
        shared = [own / other for own, other in zip(runner.turns, first.turns, strict=False) if other > 0]
        runner.rate = usual * statistics.median(shared) if shared else 0.0


def _take_a_turn(runner: Runner, clock: Callable[[], float]) -> None:
    assert runner.run is not None
    began = clock()
    try:
        runner.turns.append(runner.run.rate(TURN_SECONDS))
    except RunFailedError:
        runner.out = True
        runner.turns.clear()
    runner.seconds += clock() - began


def _drop_the_hopeless(racing: list[Runner], first: Runner) -> None:
    best = max((runner.rate for runner in racing), default=0.0)
    for runner in racing:
        runner.out = runner is not first and runner.rate < HOPELESS * best
