"""Action selection: the epsilon schedule and exploration as pure functions, and a Policy with the frame history."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastdqn.transition import EnvSpec, Tick

Greedy = Callable[[np.ndarray], np.ndarray]  # states (L, *state_shape) -> best actions (L,) int64


def epsilon_at(step: int, start: float, end: float, steps: int) -> float:
    """Linear from `start` at step 0 to `end` at step `steps`, then constant."""
    share = min(1.0, step / steps) if steps > 0 else 1.0
    return start + share * (end - start)


def explore(greedy: np.ndarray, epsilon: float, num_actions: int, rng: np.random.Generator) -> np.ndarray:
    """Each action replaced by a uniform one with probability epsilon."""
    uniform = rng.integers(num_actions, size=len(greedy))
    return np.where(rng.random(len(greedy)) < epsilon, uniform, greedy)


class Policy:
    """Epsilon-greedy over a group of lanes. Owns the frame history: the newest `stack` frames of every lane."""

    def __init__(self, greedy: Greedy, spec: EnvSpec, num_lanes: int, stack: int, rng: np.random.Generator) -> None:
        self._greedy = greedy
        self._num_actions = spec.num_actions
        self._rng = rng
        self._history = np.zeros((num_lanes, stack, *spec.obs_shape), spec.obs_dtype)
        self._state_shape = spec.state_shape(stack)

    def observe(self, lanes: slice, tick: Tick) -> None:
        """Adds the newest frame; a reset zeroes the frames before it."""
        history = self._history[lanes]  # (L, stack, *obs_shape), a view
        if history.shape[1] > 1:
            history[:, :-1] = history[:, 1:]
            history[tick.first, :-1] = 0
        history[:, -1] = tick.obs

    def act(self, lanes: slice, epsilon: float) -> np.ndarray:
        """(L,) int64. The network is not run when every action is random anyway."""
        num_lanes = lanes.stop - lanes.start
        if epsilon >= 1.0:
            return self._rng.integers(self._num_actions, size=num_lanes)
        greedy = self._greedy(self._history[lanes].reshape(num_lanes, *self._state_shape))
        return explore(greedy, epsilon, self._num_actions, self._rng) if epsilon > 0 else greedy

    def state(self) -> dict[str, Any]:
        return {"history": self._history.copy(), "rng": self._rng.bit_generator.state}

    def load_state(self, state: dict[str, Any]) -> None:
        self._history[...] = state["history"]
        self._rng.bit_generator.state = state["rng"]
