"""All roles in one loop. The reference runner: read it to know what a run does."""

import time
from collections.abc import Callable
from typing import Any

from fastdqn import seeding
from fastdqn.actor.games import Game
from fastdqn.device.hardware import use_device
from fastdqn.evaluator import Evaluator, Score
from fastdqn.runner.limits import Every, Limits, evaluation_interval
from fastdqn.runner.ports import Parts, Stop


class InlineRunner:
    """Runs in its own thread, so that the main thread can handle signals while an emulator is busy in C."""

    def __init__(
        self,
        parts: Parts,
        stop: Stop,
        on_row: Callable[[dict[str, Any]], None],
        on_score: Callable[[Score], None],
        on_note: Callable[[str], None] = lambda note: None,
    ) -> None:
        self.parts, self.stop = parts, stop
        self.limits = Limits(parts.config.limits, parts.actor.round_steps)
        self._on_row, self._on_score, self._on_note = on_row, on_score, on_note
        self._evaluator: Evaluator | None = None
        self._logged_step = 0
        self.evaluated_share: float | None = None  # of the games of the current evaluation

    def run(self) -> str:
        """Plays and learns until a limit, the target or a stop; returns which."""
        actor, meter = self.parts.actor, self.parts.meter
        log_due = Every(self.parts.config.log.every_steps)
        evaluation_due = Every(evaluation_interval(self.parts.config))
        self.start()
        while True:
            self.round()
            if log_due.passed(actor.steps):
                self.log()
            if evaluation_due.passed(actor.steps):
                score = self.evaluate()
                if score is not None and self.limits.solved_by(score.mean):
                    self.log()
                    return "target reached"
            reason = self.stop.reason or self.limits.reached(actor.steps, meter.episodes, meter.seconds)
            if reason:
                self.settle()
                self.log()
                return reason

    def start(self) -> None:
        parts = self.parts
        use_device(parts.device)  # this thread is not the one that built the parts
        parts.actor.start(seeding.lane_seeds(parts.config.seed, "env", parts.env.num_lanes))
        parts.meter.start()

    def round(self) -> None:
        """One tick of every group, and the updates that are due."""
        parts, actor, learner, ratio = self.parts, self.parts.actor, self.parts.learner, self.parts.ratio
        for group in range(len(parts.env.groups)):
            self._count(*actor.step(group))
            due = ratio.due()
            if due and len(parts.replay):
                learner.set_lr(parts.lr_at(actor.steps))
                parts.replay.set_beta(parts.beta_at(actor.steps))
                learner.train(due)
                ratio.trained(due)

    def settle(self) -> None:
        """Waits for work in flight, so that the parts can be saved."""
        self._count(*self.parts.actor.settle())
        self.parts.learner.settle()

    def _count(self, steps: int, games: list[Game]) -> None:
        for game in games:
            self.parts.meter.add_game(game.returns, game.score)
        self.parts.ratio.inserted(steps)

    def log(self) -> None:
        actor, learner = self.parts.actor, self.parts.learner
        if actor.steps == self._logged_step:
            return
        self._logged_step = actor.steps
        loss, q_mean = learner.read_means()
        if (advice := learner.advice()) and advice not in self.parts.notes:
            self.parts.notes.append(advice)
            self._on_note(advice)
        self._on_row(self.parts.meter.row(actor.steps, learner.updates, actor.epsilon, loss, q_mean))

    def evaluate(self) -> Score | None:
        """Plays new games with the current weights; training waits."""
        parts, config = self.parts, self.parts.config.evaluator
        began = time.perf_counter()
        lanes = min(config.lanes, config.episodes)
        self._evaluator = self._evaluator or parts.make_evaluator(lanes)
        seeds = seeding.lane_seeds(parts.config.seed, f"evaluate at {parts.actor.steps}", lanes)
        score = self._evaluator.evaluate(
            config.episodes, seeds, parts.actor.steps, parts.learner.updates, self.stop.asked, self._note_share
        )
        self.evaluated_share = None
        parts.meter.eval_seconds += time.perf_counter() - began
        if score is not None:
            self._on_score(score)
        return score

    def _note_share(self, share: float) -> None:
        self.evaluated_share = share

    def close(self) -> None:
        if self._evaluator is not None:
            self._evaluator.env.close()
        self.parts.close()
