"""What changes with the steps of a run: how much is explored, and how fast is learned."""

from collections.abc import Callable
from functools import partial

from fastdqn.actor.policy import epsilon_at
from fastdqn.config import Config


def exploration(config: Config) -> Callable[[int], float]:
    """Step -> epsilon: epsilon_start during the warm-up, then the schedule, which counts from the first step of all."""
    actor, warmup = config.actor, config.replay.warmup_steps
    schedule = partial(epsilon_at, start=actor.epsilon_start, end=actor.epsilon_end, steps=actor.epsilon_steps)
    return lambda step: actor.epsilon_start if step < warmup else schedule(step)


def learning_rate(config: Config) -> Callable[[int], float]:
    learner, steps = config.learner, config.limits.steps
    if learner.lr_end is None or steps is None:
        return lambda step: learner.lr
    end = learner.lr_end
    return lambda step: learner.lr + min(1.0, step / steps) * (end - learner.lr)
