"""Does it still learn? One training run with evaluations on the way, and what comes out of several of them."""

import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from fastdqn import seeding
from fastdqn.bench.measure import Change
from fastdqn.build import build, build_evaluator
from fastdqn.errors import UserError
from fastdqn.evaluator import Score
from fastdqn.prepare import Job, with_threads
from fastdqn.processes.runner import ProcessRunner
from fastdqn.runner.inline import InlineRunner
from fastdqn.runner.ports import Stop

# The score that counts as solved, where Gymnasium does not say it itself (its reward_threshold); by a part of the name
TARGETS = {"fastdqn/catch": 0.9, "pong": 18.0, "breakout": 30.0}
SNAKE_FOOD_PER_CELL = 0.15  # 10x10: 15; 6x6: 5.4; random play eats about 0.2


@dataclass(frozen=True)
class Point:
    """One evaluation on the way."""

    step: int
    seconds: float  # since the first environment step, evaluations left out
    eval_seconds: float  # spent on evaluations, this one included
    score: float


@dataclass(frozen=True)
class Trained:
    """One seed's run. Clocks start at the first environment step; `start_seconds` is from the start of the process."""

    seed: int
    points: list[Point]
    random_score: float
    steps: int
    updates: int
    samples_per_step: float
    reason: str
    start_seconds: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def curve(self) -> list[tuple[int, float]]:
        return [(point.step, point.score) for point in self.points]


def train_and_evaluate(job: Job, change: Change | None = None) -> Trained:
    """Trains to the limits of the job's config, evaluating on the way and at the end; writes nothing."""
    job = with_threads(job)
    if job.config.runner == "processes":
        if change is not None:
            raise UserError("Parts can be changed in a run in one process only: use the runner inline.")
        return _train_apart(job)
    torch.set_num_threads(job.threads)
    parts = build(job.config, job.kind, job.device, job.own_network)
    points: list[Point] = []

    def note(score: Score) -> None:
        evaluated = parts.meter.eval_seconds
        points.append(Point(score.step, parts.meter.seconds - evaluated, evaluated, score.mean))

    runner = InlineRunner(parts, Stop(), lambda row: None, note)
    try:
        if change is not None:
            change(parts)
        start_seconds = time.time() - psutil.Process().create_time()
        random_score = score_of_random_play(job)
        reason = runner.run()
        if not points or points[-1].step < parts.actor.steps:
            runner.evaluate()
    finally:
        runner.close()
    steps, updates = parts.actor.steps, parts.learner.updates
    return Trained(
        seed=job.config.seed,
        points=points,
        random_score=random_score,
        steps=steps,
        updates=updates,
        samples_per_step=updates * job.config.learner.batch_size / max(1, steps),
        reason=reason,
        start_seconds=start_seconds,
    )


def _train_apart(job: Job) -> Trained:
    """The same with roles in processes of their own. The evaluator plays beside training, so nothing is left out of the
    time; a score belongs to the moment its weights were put up, not to the one it was known at."""
    random_score = score_of_random_play(job)
    at_end = job.config.evaluator.model_copy(update={"at_end": True})
    job = replace(job, config=job.config.model_copy(update={"evaluator": at_end}))
    seen_steps, seen_seconds = [0], [0.0]
    scores: list[Score] = []
    with tempfile.TemporaryDirectory(prefix="fastdqn-learning-") as place:
        folder = Path(place)
        runner = ProcessRunner(job, folder, folder / "model.safetensors", None)
        began = 0.0

        def look() -> None:
            nonlocal began
            if not runner.step:
                began = time.monotonic()
            elif runner.step > seen_steps[-1]:
                seen_steps.append(runner.step)
                seen_seconds.append(time.monotonic() - began)

        try:
            start_seconds = time.time() - psutil.Process().create_time()
            reason = runner.run(Stop(), lambda row: None, scores.append, lambda line: None, look)
            steps, updates = runner.step, runner.update
        finally:
            runner.close()
    when = np.interp([score.step for score in scores], seen_steps, seen_seconds)
    points = [Point(score.step, float(at), 0.0, score.mean) for score, at in zip(scores, when, strict=True)]
    spi = updates * job.config.learner.batch_size / max(1, steps)
    return Trained(job.config.seed, points, random_score, steps, updates, spi, reason, start_seconds)


def score_of_random_play(job: Job, episodes: int = 30) -> float:
    """The same games for every seed of a run: it is one number of the environment."""
    explore = job.config.evaluator.model_copy(update={"epsilon": 1.0})
    config = job.config.model_copy(update={"evaluator": explore, "seed": 0})
    lanes = min(10, episodes)
    evaluator = build_evaluator(config, job.kind, lambda states: np.zeros(len(states), np.int64), lanes, job.switches)
    try:
        score = evaluator.evaluate(episodes, seeding.lane_seeds(0, "random play", lanes), 0, 0)
    finally:
        evaluator.env.close()
    assert score is not None  # only a stop makes it None
    return score.mean


def default_target(job: Job) -> float | None:
    """The score that counts as solved in this environment, if there is a known one."""
    import gymnasium

    env_id = job.kind.spec.env_id
    if env_id == "snake":
        return SNAKE_FOOD_PER_CELL * int(job.kind.settings["dim"]) ** 2
    for name, target in TARGETS.items():
        if name in env_id.lower():
            return target
    try:
        threshold = gymnasium.spec(env_id).reward_threshold
    except gymnasium.error.Error:
        return None
    return None if threshold is None else float(threshold)
