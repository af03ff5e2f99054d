"""CartPole, all lanes in one pass of NumPy: the numbers of Gymnasium's own environment, bit for bit.

Gymnasium steps one cart at a time, through three wrappers and several arrays of four numbers. Here a tick of all lanes is
some forty calls of NumPy, however many lanes there are. The physics is written in the same order of operations on the same
64-bit numbers, and every lane starts its games from a generator of its own, seeded as Gymnasium seeds it.
"""

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import seeding

from fastdqn.env.base import State, check_actions, split_lanes
from fastdqn.errors import UserError
from fastdqn.transition import EnvSpec, Tick

ENTRY_POINT = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
GRAVITY, MASS_POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 0.1, 0.5, 10.0, 0.02
MASS = MASS_POLE + 1.0
POLE_MASS_LENGTH = MASS_POLE * HALF_LENGTH
MOST_X, MOST_ANGLE = 2.4, 12 * 2 * math.pi / 360
START = 0.05  # each of the four numbers begins within so much of zero


def is_plain_cartpole(env_id: str, settings: dict[str, Any]) -> bool:
    """Whether this id is Gymnasium's own CartPole, with nothing changed about it."""
    spec = gymnasium.registry.get(env_id)
    return (
        not settings and spec is not None and spec.entry_point == ENTRY_POINT and not spec.kwargs
        and not spec.additional_wrappers and spec.max_episode_steps is not None
    )  # fmt: skip


class CartPoleLanes:
    """A LaneEnv. Lane with seed s plays the same games as `gymnasium.make(env_id)` reset with seed s."""

    def __init__(self, spec: EnvSpec, num_lanes: int, num_groups: int = 1) -> None:
        self.spec, self.num_lanes = spec, num_lanes
        self.groups = split_lanes(num_lanes, num_groups)
        self._max_steps = spec.max_eval_steps
        self._state = np.zeros((4, num_lanes))  # x, its speed, angle, its speed
        self._steps = np.zeros(num_lanes, np.int64)
        self._over = np.zeros(num_lanes, bool)  # the next action is ignored and starts the next game
        self._dice = [seeding.np_random(lane)[0] for lane in range(num_lanes)]
        self._tick = Tick(
            obs=np.zeros((num_lanes, 4), np.float32),
            reward=np.zeros(num_lanes, np.float32),
            terminated=np.zeros(num_lanes, bool),
            truncated=np.zeros(num_lanes, bool),
            life_lost=np.zeros(num_lanes, bool),
            first=np.zeros(num_lanes, bool),
        )
        self._views = [Tick(*(array[lanes] for array in self._tick)) for lanes in self.groups]

    def reset(self, seeds: list[int]) -> None:
        if len(seeds) != self.num_lanes:
            raise ValueError(f"{self.num_lanes} lanes need as many seeds, not {len(seeds)}")
        self._dice = [seeding.np_random(int(seed))[0] for seed in seeds]
        for lane in range(self.num_lanes):
            self._begin(lane)

    def send(self, group: int, actions: np.ndarray) -> None:
        lanes, tick = self.groups[group], self._views[group]
        if actions.shape != tick.first.shape or actions.dtype.kind not in "iu":
            raise ValueError(f"group {group} takes {len(tick.first)} whole numbers, not {actions.dtype} of {actions.shape}")
        check_actions(actions, 2)
        state, steps, over = self._state[:, lanes], self._steps[lanes], self._over[lanes].copy()
        move(state, actions)
        tick.obs[:] = state.T
        x, angle = state[0], state[2]
        tick.terminated[:] = (x < -MOST_X) | (x > MOST_X) | (angle < -MOST_ANGLE) | (angle > MOST_ANGLE)
        steps += 1
        tick.truncated[:] = steps >= self._max_steps
        tick.reward[:] = 1.0
        tick.first[:] = False
        np.logical_or(tick.terminated, tick.truncated, out=self._over[lanes])
        if over.any():
            for lane in lanes.start + np.flatnonzero(over):
                self._begin(int(lane))

    def recv(self, group: int) -> Tick:
        return self._views[group]

    def close(self) -> None:
        """Nothing to free."""

    def state(self) -> State:
        dice = {str(lane): dice.bit_generator.state for lane, dice in enumerate(self._dice)}
        arrays = {name: array.copy() for name, array in self._tick._asdict().items()}
        numbers = {"numbers": self._state.copy(), "steps": self._steps.copy(), "over": self._over.copy()}
        return {"exact": True, "dice": dice, **numbers, **arrays}

    def load_state(self, state: State) -> None:
        """The groups may be cut differently from those of the saved lanes. One environment after another cannot be saved
        exactly; after such a state the games begin anew."""
        if not state["exact"]:
            return
        if len(state["steps"]) != self.num_lanes:
            raise UserError(f"CartPole: the saved games are {len(state['steps'])} lanes, these are {self.num_lanes}.")
        self._state[:], self._steps[:], self._over[:] = state["numbers"], state["steps"], state["over"]
        for lane, dice in enumerate(self._dice):
            dice.bit_generator.state = state["dice"][str(lane)]
        for name, array in self._tick._asdict().items():
            array[:] = state[name]

    def _begin(self, lane: int) -> None:
        self._state[:, lane] = self._dice[lane].uniform(low=-START, high=START, size=(4,))
        self._steps[lane], self._over[lane] = 0, False
        tick = self._tick
        tick.obs[lane] = self._state[:, lane]
        tick.reward[lane], tick.terminated[lane], tick.truncated[lane], tick.first[lane] = 0.0, False, False, True


def move(state: np.ndarray, actions: np.ndarray) -> None:
    """One step of all carts in place, in Gymnasium's order of operations. `state` is (4, lanes)."""
    x, x_speed, angle, angle_speed = state
    force = np.where(actions == 1, FORCE, -FORCE)
    cos, sin = np.cos(angle), np.sin(angle)
    push = (force + POLE_MASS_LENGTH * np.square(angle_speed) * sin) / MASS
    turning = (GRAVITY * sin - cos * push) / (HALF_LENGTH * (4.0 / 3.0 - MASS_POLE * np.square(cos) / MASS))
    driving = push - POLE_MASS_LENGTH * turning * cos / MASS
    x += SECONDS * x_speed
    x_speed += SECONDS * driving
    angle += SECONDS * angle_speed
    angle_speed += SECONDS * turning
