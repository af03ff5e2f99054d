"""Trains variants over several seeds and judges whether they learn as well as the first of them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fastdqn.bench.conduct import Conductor, Measuring
from fastdqn.bench.learning import default_target
from fastdqn.bench.verdict import learning_verdict, median_time, time_to_target
from fastdqn.bench.work import Work
from fastdqn.device.cores import usable_cores
from fastdqn.errors import UserError
from fastdqn.prepare import prepare
from fastdqn.run.preflight import check_memory, free_memory

EVALUATIONS = 20  # on the way of one run
EVALUATION_GAMES = 30  # what a target is judged by
TrainedJson = dict[str, Any]  # Trained.as_json()
NOT_MEASURED: dict[str, Any] = {
    "learning_verdict": "not measured",
    "learning": None,
    "minutes_to_target": None,
    "minutes_change": None,
}


class Judge:
    """Knows the target and the budget, keeps what was trained, and turns it into columns."""

    def __init__(self, work: Work, measuring: Measuring) -> None:
        self.work, self.measuring = work, measuring
        self.budget = measuring.steps or work.job.config.limits.steps or 100_000
        target = default_target(work.job) if measuring.target is None else measuring.target
        if target is None and measuring.seeds:
            raise UserError(f"No score is known at which {work.env} counts as solved: give it with --target.")
        self.target = target if target is not None else 0.0
        self.trained: dict[str, list[TrainedJson]] = {}

    def check(self, variants: Mapping[str, Mapping[str, Any]]) -> None:
        """Refuses, before anything is measured, what could not be trained: not every rung's replay fits where the
        default's does."""
        for name, settings in variants.items() if self.measuring.seeds else ():
            wanted = self.work.task({**settings, **self.settings(0)})["settings"]
            job = prepare(self.work.env, self.work.preset, wanted, self.work.imports)
            lanes = job.config.actor.lanes
            if self.budget < lanes:
                raise UserError(f"--steps must be {lanes} or more, one step of each lane, not {self.budget}.")
            filled = min(1.0, self.budget / job.config.replay.capacity)
            needs = [replace(need, bytes=int(need.bytes * filled)) if need.per_row else need for need in job.needs]
            try:
                check_memory(needs, free_memory() // self.measuring.jobs)
            except UserError as fault:
                raise UserError(f"{name} cannot be trained here. {fault}") from None

    def train(self, conductor: Conductor, variants: Mapping[str, Mapping[str, Any]], on_run: Callable[[], None]) -> None:
        """Every variant with every seed, seed by seed: if it is stopped, all variants have the seeds before."""
        runs = [(name, seed) for seed in range(self.measuring.seeds) for name in variants]
        tasks = [self.work.task({**variants[name], **self.settings(seed)}, task="learn") for name, seed in runs]

        def note(number: int, answer: dict[str, Any]) -> None:
            name, seed = runs[number]
            if answer["random_score"] >= self.target:
                played = f"{answer['random_score']:.4g}"
                raise UserError(
                    f"--target {self.target:g} is no goal: random play already scores {played} on {self.work.env}."
                )
            self.trained.setdefault(name, []).append(answer)
            last = answer["points"][-1]
            conductor.say(f"  {name}, seed {seed}: score {last['score']:.4g} after {last['step']:,} steps")
            on_run()

        conductor.train_all(tasks, self.measuring.jobs, note)

    def settings(self, seed: int) -> dict[str, Any]:
        """Trained to the budget, evaluated on the way as the target is defined. A run that ended at its first evaluation
        at the target would hide what goes wrong after it, and hold a lucky score for ever."""
        every = max(1, self.budget // EVALUATIONS)
        jobs = self.measuring.jobs
        return ({"learner.threads": max(1, usable_cores() // jobs)} if jobs > 1 else {}) | {
            "seed": seed,
            "limits.steps": self.budget,
            "limits.target": self.target if self.measuring.stop_at_target else None,
            "evaluator.every_steps": every,
            "evaluator.episodes": EVALUATION_GAMES,
            "evaluator.lanes": min(10, EVALUATION_GAMES),
        }

    def columns(self, name: str, reference: str) -> dict[str, Any]:
        runs, old = self.trained.get(name, []), self.trained.get(reference, [])
        if not runs or not old:
            return dict(NOT_MEASURED)
        verdict = learning_verdict(_curves(runs), _curves(old), self.target, old[0]["random_score"], self.budget)
        minutes, old_minutes = self.minutes(name), self.minutes(reference)
        return {
            "learning_verdict": "reference" if name == reference else verdict.verdict,
            "learning": {
                **vars(verdict),
                "target": self.target,
                "random_score": old[0]["random_score"],
                "budget_steps": self.budget,
                "reached": sum(self._time(run) is not None for run in runs),
                "updates": min(run["updates"] for run in runs),
            },
            "minutes_to_target": minutes,
            "minutes_change": minutes / old_minutes if minutes and old_minutes else None,
        }

    def minutes(self, name: str) -> float | None:
        """The median over seeds, evaluations left out; None where most seeds did not get there, or where runs shared the
        machine."""
        if self.measuring.jobs > 1:
            return None
        seconds = median_time([self._time(run) for run in self.trained.get(name, [])])
        return None if seconds is None else seconds / 60

    def curves(self) -> list[dict[str, Any]]:
        """Every evaluation as a line of metrics.jsonl."""
        return [
            {"rung": name, "seed": run["seed"], **point}
            for name, runs in self.trained.items()
            for run in runs
            for point in run["points"]
        ]

    def _time(self, run: TrainedJson) -> float | None:
        points = [(point["step"], point["seconds"], point["score"]) for point in run["points"]]
        reached = time_to_target(points, self.target)
        return None if reached is None else reached[1]


def _curves(runs: list[TrainedJson]) -> list[list[tuple[int, float]]]:
    """From random play at step 0 on: with many lanes the first evaluation comes later, which must not hide a poor start."""
    return [[(0, run["random_score"]), *((point["step"], point["score"]) for point in run["points"])] for run in runs]
