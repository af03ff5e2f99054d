"""The environment alone: the same lanes, groups, threads, send and recv as in training, with random actions and nothing
else. No training run can be faster, so its speed stands beside every other speed."""

import time

import numpy as np

from fastdqn import seeding
from fastdqn.env.base import LaneEnv


def env_alone(env: LaneEnv, seed: int, seconds: float = 2.0, warmup_ticks: int = 10) -> float:
    """Steps per second."""
    rng = seeding.stream(seed, "env alone")
    env.reset(seeding.lane_seeds(seed, "env alone", env.num_lanes))
    for _ in range(warmup_ticks):
        _tick(env, rng)
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        steps += _tick(env, rng)
    return steps / (time.perf_counter() - began)


def _tick(env: LaneEnv, rng: np.random.Generator) -> int:
    steps = 0
    for group, lanes in enumerate(env.groups):
        tick = env.recv(group)
        steps += int((~tick.first).sum())
        env.send(group, rng.integers(env.spec.num_actions, size=lanes.stop - lanes.start))
    return steps
