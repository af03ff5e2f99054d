"""The environment alone: the same lanes, groups, threads, send and recv as in training, with random actions and nothing
else. No training run can be faster, so its speed is reported beside every other speed."""

import time
from collections.abc import Callable

import numpy as np
import torch

from fastdqn import seeding
from fastdqn.device.counter_rng import CounterRng, remainder
from fastdqn.device.graphs import Graphed, as_it_is
from fastdqn.env.base import LaneEnv
from fastdqn.env.device_snake import DeviceSnake

TICKS_AT_ONCE = 20  # of boards on a device: their step count is read once per so many ticks


def env_alone(env: LaneEnv, seed: int, seconds: float = 2.0, warmup_ticks: int = 10) -> float:
    """Steps per second."""
    env.reset(seeding.lane_seeds(seed, "env alone", env.num_lanes))
    play = player_of(env, seed)
    for _ in range(warmup_ticks):
        play()
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        steps += play()
    return steps / (time.perf_counter() - began)


def player_of(env: LaneEnv, seed: int) -> Callable[[], int]:
    """A function that plays every lane at random and returns the number of steps."""
    if isinstance(env, DeviceSnake):
        return BoardsAlone(env, seed).play
    rng = seeding.stream(seed, "env alone")
    return lambda: sum(play_at_random(env, group, rng) for group in range(len(env.groups)))


def play_at_random(env: LaneEnv, group: int, rng: np.random.Generator) -> int:
    """One tick of one group; returns its number of steps."""
    tick, lanes = env.recv(group), env.groups[group]
    steps = int((~tick.first).sum())  # before send: the tick is valid until then
    env.send(group, rng.integers(env.spec.num_actions, size=lanes.stop - lanes.start))
    return steps


class BoardsAlone:
    """Boards on a device: actions are drawn and steps are counted there."""

    def __init__(self, boards: DeviceSnake, seed: int) -> None:
        device = boards.answer.reward.device
        self._boards, self._rng = boards, CounterRng(seeding.integer(seed, "env alone"), device)
        self._steps = torch.zeros((), dtype=torch.int64, device=device)
        self._tick = (Graphed if device.type == "cuda" else as_it_is)(self._tick_on_device)

    def _tick_on_device(self) -> None:
        actions = remainder(self._rng.bits(self._boards.num_lanes), self._boards.spec.num_actions)
        self._boards.step(actions)
        self._steps += (~self._boards.answer.first).sum()

    def play(self) -> int:
        before = int(self._steps)
        for _ in range(TICKS_AT_ONCE):
            self._tick()
        return int(self._steps) - before
