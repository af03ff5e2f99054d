"""Keeps the running return, score and length of every lane, and returns the games that have ended."""

from typing import Any, NamedTuple

import numpy as np

from fastdqn.transition import EnvSpec, Tick


class Game(NamedTuple):
    lane: int
    returns: float  # sum of the rewards as learned from (clipped on Atari)
    score: float  # what people compare: raw rewards of the whole game, or the food a snake has eaten
    steps: int


class Games:
    def __init__(self, num_lanes: int, spec: EnvSpec) -> None:
        self._clip = spec.clip_rewards
        self._count_gains_only = spec.score == "gains"
        self._returns = np.zeros(num_lanes)
        self._scores = np.zeros(num_lanes)
        self._steps = np.zeros(num_lanes, np.int64)

    def observe(self, lanes: slice, tick: Tick) -> list[Game]:
        """The games that ended with this tick; a lost life does not end a game."""
        learned = tick.reward.clip(-1, 1) if self._clip else tick.reward
        self._returns[lanes] += learned
        self._scores[lanes] += tick.reward.clip(0) if self._count_gains_only else tick.reward
        self._steps[lanes] += ~tick.first
        over = tick.terminated | tick.truncated
        if not over.any():
            return []
        return [self.take(lanes.start + int(i)) for i in np.flatnonzero(over)]

    def take(self, lane: int) -> Game:
        """The lane's game so far; its counters are reset."""
        game = Game(lane, float(self._returns[lane]), float(self._scores[lane]), int(self._steps[lane]))
        self._returns[lane] = self._scores[lane] = self._steps[lane] = 0
        return game

    def steps_of(self, lanes: slice) -> np.ndarray:
        return self._steps[lanes]

    def state(self) -> dict[str, Any]:
        return {"returns": self._returns.copy(), "scores": self._scores.copy(), "steps": self._steps.copy()}

    def load_state(self, state: dict[str, Any]) -> None:
        self._returns[:], self._scores[:], self._steps[:] = state["returns"], state["scores"], state["steps"]
