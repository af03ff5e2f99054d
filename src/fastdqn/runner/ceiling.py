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
    return sum(play_at_random(env, group, rng) for group in range(len(env.groups)))


def play_at_random(env: LaneEnv, group: int, rng: np.random.Generator) -> int:
    """One tick of one group; how many steps it was."""
    tick, lanes = env.recv(group), env.groups[group]
    steps = int((~tick.first).sum())  # before send: the tick is valid until then
    env.send(group, rng.integers(env.spec.num_actions, size=lanes.stop - lanes.start))
    return steps
