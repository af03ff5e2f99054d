"""Lanes stepped one environment at a time in Python: the textbook way, and the only way for an arbitrary Gymnasium env."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from fastdqn.env.base import State, check_actions, split_lanes
from fastdqn.transition import EnvSpec, Tick

# What a single environment may add to `info`, read here and nowhere else:
#   life_lost: bool     learning treats this step as an end
#   game_goes_on: bool  this `terminated` was only a lost life; the game goes on after the reset (EpisodicLife)
#   raw_reward: float   the reward before a wrapper clipped it


class SerialLanes:
    """Wraps single Gymnasium environments. Observations are copied at the border: some envs reuse their buffer."""

    def __init__(self, makers: list[Callable[[], gymnasium.Env[Any, Any]]], spec: EnvSpec, num_groups: int = 1) -> None:
        self.spec = spec
        self.envs = [make() for make in makers]
        self.num_lanes = len(self.envs)
        self.groups = split_lanes(self.num_lanes, num_groups)
        self._needs_reset = np.zeros(self.num_lanes, bool)
        self._tick = Tick(
            obs=np.zeros((self.num_lanes, *spec.obs_shape), spec.obs_dtype),
            reward=np.zeros(self.num_lanes, np.float32),
            terminated=np.zeros(self.num_lanes, bool),
            truncated=np.zeros(self.num_lanes, bool),
            life_lost=np.zeros(self.num_lanes, bool),
            first=np.zeros(self.num_lanes, bool),
        )

    def reset(self, seeds: list[int]) -> None:
        for lane in range(self.num_lanes):
            self._reset_lane(lane, seeds[lane])

    def send(self, group: int, actions: np.ndarray) -> None:
        check_actions(actions, self.spec.num_actions)
        lanes = self.groups[group]
        for lane, action in zip(range(lanes.start, lanes.stop), actions.tolist(), strict=True):
            if self._needs_reset[lane]:
                self._reset_lane(lane, None)
            else:
                self._step_lane(lane, action)

    def recv(self, group: int) -> Tick:
        lanes = self.groups[group]
        return Tick(*(array[lanes] for array in self._tick))

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def state(self) -> State:
        if not all(can_be_saved(env) for env in self.envs):
            return {"exact": False}
        lanes = {str(lane): env.unwrapped.state() for lane, env in enumerate(self.envs)}  # type: ignore[attr-defined]
        arrays = {name: array.copy() for name, array in self._tick._asdict().items()}
        return {"exact": True, "lanes": lanes, "needs_reset": self._needs_reset.copy(), **arrays}

    def load_state(self, state: State) -> None:
        if not state["exact"]:
            return
        for lane, env in enumerate(self.envs):
            env.unwrapped.load_state(state["lanes"][str(lane)])  # type: ignore[attr-defined]
        self._needs_reset[:] = state["needs_reset"]
        for name, array in self._tick._asdict().items():
            array[:] = state[name]

    def _reset_lane(self, lane: int, seed: int | None) -> None:
        obs, _ = self.envs[lane].reset(seed=seed)
        self._fill(lane, obs, reward=0.0, terminated=False, truncated=False, life_lost=False, first=True)
        self._needs_reset[lane] = False

    def _step_lane(self, lane: int, action: int) -> None:
        obs, reward, terminated, truncated, info = self.envs[lane].step(action + self.spec.action_start)
        life_lost = bool(info.get("life_lost", False))
        self._needs_reset[lane] = terminated or truncated
        self._fill(
            lane,
            obs,
            reward=float(info.get("raw_reward", reward)),
            terminated=bool(terminated) and not info.get("game_goes_on", False),
            truncated=bool(truncated),
            life_lost=life_lost,
            first=False,
        )

    def _fill(
        self, lane: int, obs: Any, reward: float, terminated: bool, truncated: bool, life_lost: bool, first: bool
    ) -> None:
        self._tick.obs[lane] = np.reshape(obs, self.spec.obs_shape)
        self._tick.reward[lane] = reward
        self._tick.terminated[lane] = terminated
        self._tick.truncated[lane] = truncated
        self._tick.life_lost[lane] = life_lost
        self._tick.first[lane] = first


STATELESS_WRAPPERS = {"OrderEnforcing", "PassiveEnvChecker", "ToChannelsFirst"}


def can_be_saved(env: gymnasium.Env[Any, Any]) -> bool:
    """The environment itself can, and no wrapper around it (a time limit, say) holds anything back."""
    while isinstance(env, gymnasium.Wrapper):
        if type(env).__name__ not in STATELESS_WRAPPERS:
            return False
        env = env.env
    return hasattr(env, "state") and hasattr(env, "load_state")
