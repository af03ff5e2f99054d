"""ROLE: steps the environments, stores what happened, chooses the next actions."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from fastdqn.actor.games import Game, Games
from fastdqn.env.base import LaneEnv
from fastdqn.metrics import Timers
from fastdqn.transition import Block, Tick


class Sink(Protocol):
    """Where blocks go: the replay itself when inline, a shared-memory slot between processes."""

    def put(self, block: Block) -> None: ...


class Chooses(Protocol):
    """Owns the frame history and chooses actions: policy.Policy on the host, resident.ResidentPolicy on a device."""

    def observe(self, lanes: slice, tick: Tick) -> None: ...
    def act(self, lanes: slice, epsilon: float) -> np.ndarray: ...
    def state(self) -> dict[str, Any]: ...
    def load_state(self, state: dict[str, Any]) -> None: ...


class Actor:
    """One call of `step` moves one group of lanes by one tick: recv, store, act, send."""

    def __init__(self, env: LaneEnv, policy: Chooses, sink: Sink, epsilon: Callable[[int], float], timers: Timers) -> None:
        self.env, self.policy, self.sink, self.epsilon_at = env, policy, sink, epsilon
        self._env_time, self._store_time, self._act_time = timers["env"], timers["store"], timers["act"]
        self.games = Games(env.num_lanes, env.spec)
        self.steps = 0
        self._actions = np.zeros(env.num_lanes, np.int64)

    @property
    def epsilon(self) -> float:
        return self.epsilon_at(self.steps)

    def start(self, seeds: list[int]) -> None:
        self.env.reset(seeds)

    def step(self, group: int) -> tuple[int, list[Game]]:
        """Steps taken (dummy ticks after a game's end do not count) and the games that ended."""
        lanes = self.env.groups[group]
        with self._env_time:
            tick = self.env.recv(group)
        with self._store_time:
            terminal = tick.terminated | tick.life_lost
            self.sink.put(Block(lanes, self._actions[lanes], tick.reward, terminal, tick.first, tick.obs))
            ended = self.games.observe(lanes, tick)
        with self._act_time:
            self.policy.observe(lanes, tick)
            self._actions[lanes] = self.policy.act(lanes, self.epsilon)
        steps = len(tick.first) - int(tick.first.sum())  # before send: the tick is valid until then
        self.steps += steps
        with self._env_time:
            self.env.send(group, self._actions[lanes])
        return steps, ended

    @property
    def round_steps(self) -> int:
        """The most steps that are taken and not yet counted after one `step` of each group."""
        return self.env.num_lanes

    def settle(self) -> tuple[int, list[Game]]:
        """Returns results not yet reported: none, because `step` waits for its result."""
        return 0, []

    def state(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "actions": self._actions.copy(),
            "games": self.games.state(),
            "policy": self.policy.state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]
        self._actions[:] = state["actions"]
        self.games.load_state(state["games"])
        self.policy.load_state(state["policy"])
