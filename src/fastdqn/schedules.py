"""Schedules over the steps of a run: exploration, learning rate, and the beta of prioritised replay."""

from collections.abc import Callable
from functools import partial

from fastdqn.actor.policy import epsilon_at
from fastdqn.config import Config


def exploration(config: Config) -> Callable[[int], float]:
    """Step -> epsilon: epsilon_start during the warm-up, then the schedule, counted from step 0."""
    actor, warmup = config.actor, config.replay.warmup_steps
    schedule = partial(epsilon_at, start=actor.epsilon_start, end=actor.epsilon_end, steps=actor.epsilon_steps)
    return lambda step: actor.epsilon_start if step < warmup else schedule(step)


def learning_rate(config: Config) -> Callable[[int], float]:
    return _to_the_limit(config, config.learner.lr, config.learner.lr_end)


def priority_beta(config: Config) -> Callable[[int], float]:
    """How much of the bias of prioritised sampling the importance weights correct."""
    return _to_the_limit(config, config.replay.priority_beta, config.replay.priority_beta_end)


def _to_the_limit(config: Config, start: float, end: float | None) -> Callable[[int], float]:
    """Step -> linear from `start` to `end` at the step limit; constant if `end` or the limit is unset."""
    steps = config.limits.steps
    if end is None or steps is None:
        return lambda step: start
    change = end - start
    return lambda step: start + min(1.0, step / steps) * change
