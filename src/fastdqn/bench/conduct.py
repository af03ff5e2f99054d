"""Conducts a measurement: every variant once a round in a process of its own, the order turned around each time; within a
round the processes take turns, so that a slow minute of the machine slows all of them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastdqn.bench.children import WORKER, Answer, Children, Task
from fastdqn.bench.turns import number_of_turns
from fastdqn.errors import UserError
from fastdqn.run.usage import DISTURBING_PERCENT
from fastdqn.run.view import ShareLine

OVERHEAD_SECONDS = 7.0  # of a measuring process beside the timed stretch: imports, building, filling, warming up
REFRESH_SECONDS = 5.0  # a record is brought up to date so often while processes take turns
CEILING_SECONDS = 2.0
FIRST_GUESS_SECONDS = 60.0  # what one training run takes, until one is done


@dataclass(frozen=True)
class Measuring:
    """How long, how often, how many."""

    seconds: float = 10.0  # of one timed stretch
    repeats: int = 3
    seeds: int = 0  # runs that are trained to judge learning; 0: learning is not measured
    alone: bool = False  # a sweep times the environment alone too, in turns with its rows
    timed: bool = True  # False: only learning is measured
    stop_at_target: bool = False  # a run ends when it is solved, and what comes after is not seen
    jobs: int = 1  # trained at the same time; more than one, and their minutes mean nothing
    target: float | None = None
    steps: int | None = None  # budget of a trained run; None: the preset's

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise UserError(f"--seconds must be more than 0, not {self.seconds:g}.")
        if self.repeats < 1:
            raise UserError(f"--repeats must be 1 or more, not {self.repeats}.")
        if self.seeds < 0 or self.jobs < 1:
            raise UserError("--seeds and --jobs must be 1 or more.")
        if self.steps is not None and self.steps < 1:
            raise UserError(f"--steps must be 1 or more, not {self.steps}.")


@dataclass(frozen=True)
class Variant:
    """One thing that is timed: its name in the table and the task for its process."""

    name: str
    task: Task
    module: str = WORKER


class Conductor:
    """Asks the children and shows how far it is. `timed_seconds` is how long the timing takes; how long a run takes to
    train is known after the first of the `trained_runs`."""

    def __init__(self, what: str, timed_seconds: float, trained_runs: int = 0) -> None:
        self.children = Children()
        self._line = ShareLine(what)
        self._timed, self._runs = timed_seconds, trained_runs
        self._done = 0.0
        self._run_seconds = FIRST_GUESS_SECONDS

    def rounds(
        self,
        variants: Sequence[Variant],
        repeats: int,
        seconds: float,
        after_each: Callable[[dict[str, list[Answer]]], None],
    ) -> dict[str, list[Answer]]:
        """Variant -> its answers, one a round. `after_each` sees all answers so far, those of a round that goes on
        included: whoever stops it keeps what was measured."""
        answers: dict[str, list[Answer]] = {}
        after_each(answers)
        for number in range(repeats):
            self._round(variants if number % 2 == 0 else variants[::-1], number, repeats, seconds, answers, after_each)
            after_each(answers)
        return answers

    def _round(
        self,
        variants: Sequence[Variant],
        number: int,
        repeats: int,
        seconds: float,
        answers: dict[str, list[Answer]],
        after_each: Callable[[dict[str, list[Answer]]], None],
    ) -> None:
        turns = number_of_turns(seconds)
        before, began, refreshed = self._done, time.monotonic(), time.monotonic()
        seen: dict[str, int] = {}  # variant -> turns it has had

        def note(place: int, speed: Answer, final: bool) -> None:
            nonlocal refreshed, began
            name = variants[place].name
            answers.setdefault(name, [])[number:] = [speed]
            seen[name] = turns + 1 if final else seen.get(name, 0) + 1
            self._done = before + sum(_weight(had, turns, seconds) for had in seen.values())
            began = time.monotonic()
            to_be_told = final or seen[name] == 1
            if to_be_told:
                look = "" if final else ", a first look"
                self._line.say(f"  {name}: {speed['steps_per_second']:,.0f} steps/s{look}{_disturbed(speed)}")
            if to_be_told or time.monotonic() - refreshed > REFRESH_SECONDS:
                refreshed = time.monotonic()
                after_each(answers)

        def show() -> None:
            starting = len(seen) < len(variants)
            what = variants[len(seen)].name if starting else "all in turns"
            step = OVERHEAD_SECONDS if starting else seconds / turns
            self._show(min(0.95 * step, time.monotonic() - began), f"{what} ({number + 1} of {repeats})")

        self.children.ask_in_turns([(variant.task, variant.module) for variant in variants], turns, note, show)
        self._done = before + len(variants) * seconds_for(seconds)

    def ask(self, task: Task, doing: str, seconds: float, module: str = WORKER) -> Answer:
        """One measurement that should take about `seconds` and its overhead."""
        began, weight = time.monotonic(), seconds_for(seconds)

        def show() -> None:
            self._show(min(0.95, (time.monotonic() - began) / weight) * weight, doing)

        answer = self.children.ask(task, module, show)
        self._done += weight
        return answer

    def train_all(self, tasks: Sequence[Task], jobs: int, on_answer: Callable[[int, Answer], None]) -> None:
        """Trains all of them, `jobs` at a time."""
        finished, began = 0, time.monotonic()

        def note(number: int, answer: Answer) -> None:
            nonlocal finished
            finished += 1
            self._run_seconds = (time.monotonic() - began) / finished
            on_answer(number, answer)

        def show() -> None:
            self._show(finished * self._run_seconds, f"{finished} of {len(tasks)} runs trained")

        self.children.ask_all(tasks, jobs, note, show)

    def _show(self, more_done: float, doing: str) -> None:
        expected = self._timed + self._runs * self._run_seconds
        self._line.show(min(0.99, (self._done + more_done) / expected), doing)

    def say(self, line: str) -> None:
        self._line.say(line)

    def close(self) -> None:
        self.children.close()
        self._line.close()


def ask_ceiling(conductor: Conductor, task: Task) -> Answer:
    """What no run of this task can beat: its arithmetic at full speed, and the environment alone (measure_ceiling)."""
    return conductor.ask(task | {"task": "ceiling", "seconds": CEILING_SECONDS}, "the ceiling", CEILING_SECONDS)


def say_how_far(record: dict[str, Any], of: str, steps_per_second: float | None) -> None:
    """How much of the ceiling that is, under the name of what reached it."""
    if record.get("ceiling") and steps_per_second:
        record["ceiling"] |= {"share": steps_per_second / record["ceiling"]["steps_per_second"], "of": of}


def _disturbed(answer: Answer) -> str:
    others = answer.get("others_cpu_percent") or 0.0
    return f"  (other programs used {others:.0f} % of a core meanwhile)" if others > DISTURBING_PERCENT else ""


def _weight(had: int, turns: int, seconds: float) -> float:
    """Seconds of work behind a process that had so many turns; the first comes with all of the overhead."""
    return OVERHEAD_SECONDS + (had - 1) / turns * seconds if had else 0.0


def seconds_for(stretch: float) -> float:
    """What a measuring process takes for a timed stretch."""
    return stretch + OVERHEAD_SECONDS
