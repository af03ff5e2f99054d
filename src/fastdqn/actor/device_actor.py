"""ROLE: the actor for boards on a device. A tick is one launch, and its result is read later."""

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastdqn.actor.games import Game, Games
from fastdqn.actor.resident import Chooser, History
from fastdqn.device.graphs import Launcher, as_it_is
from fastdqn.env.device_snake import DeviceSnake
from fastdqn.metrics import Timers
from fastdqn.transition import DeviceBlock, Tick

LAG = 3  # ticks that may be in flight; results are counted when the oldest is done
OUTCOME = ("reward", "terminated", "truncated", "first")


class DeviceActor:
    """Like actor.Actor, for one group. Steps and games are reported `LAG` ticks late; `steps` counts the reported ones."""

    def __init__(
        self,
        env: DeviceSnake,
        chooser: Chooser,
        ring: History,
        epsilon: Callable[[int], float],
        timers: Timers,
        launcher: Launcher = as_it_is,
    ) -> None:
        self.env, self.policy, self._ring, self.epsilon_at = env, chooser, ring, epsilon
        self._act_time, self._env_time = timers["act"], timers["env"]
        self.games = Games(env.num_lanes, env.spec)
        self.steps = 0
        self._tick = launcher(self._tick_on_device)
        self._spare = [Outcome(env) for _ in range(LAG + 1)]
        self._under_way: deque[Outcome] = deque()

    @property
    def epsilon(self) -> float:
        return self.epsilon_at(self.steps)

    def start(self, seeds: list[int]) -> None:
        self.env.reset(seeds)

    def step(self, group: int) -> tuple[int, list[Game]]:
        """Queues one tick and returns the result of the one `LAG` ticks before it."""
        with self._act_time:
            self.policy.set_epsilon(self.epsilon)
            self._tick()
            self._ring.count(self.env.groups[group])
            outcome = self._spare.pop()
            outcome.copy_from(self.env)
            self._under_way.append(outcome)
        if len(self._under_way) <= LAG:
            return 0, []
        with self._env_time:
            return self._read_oldest()

    def _read_oldest(self) -> tuple[int, list[Game]]:
        oldest = self._under_way.popleft()
        tick = oldest.read()
        self._spare.append(oldest)
        steps = len(tick.first) - int(tick.first.sum())
        self.steps += steps
        return steps, self.games.observe(self.env.groups[0], tick)

    def _tick_on_device(self) -> None:
        """Moves the boards, stores what happened, chooses the next actions."""
        self.env.step(self.policy.actions)
        answer = self.env.answer
        lanes = self.env.groups[0]
        self._ring.write(DeviceBlock(lanes, self.policy.actions, answer.reward, answer.terminated, answer.first, answer.obs))
        self.policy.choose_on_device()

    @property
    def round_steps(self) -> int:
        """Steps of the ticks in flight are taken and not yet counted."""
        return (LAG + 1) * self.env.num_lanes

    def settle(self) -> tuple[int, list[Game]]:
        """Waits for the ticks in flight and returns their results."""
        told = [self._read_oldest() for _ in range(len(self._under_way))]
        return sum(steps for steps, _ in told), [game for _, games in told for game in games]

    def state(self) -> dict[str, Any]:
        """Call `settle` first: ticks in flight are part of this state."""
        assert not self._under_way, "settle first"
        return {
            "steps": self.steps,
            "actions": self.policy.actions.cpu().numpy().copy(),
            "games": self.games.state(),
            "policy": self.policy.state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]
        self.policy.actions.copy_(torch.from_numpy(state["actions"]))
        self.games.load_state(state["games"])
        self.policy.load_state(state["policy"])


class Outcome:
    """Host copy of one tick's results: everything but the images."""

    def __init__(self, env: DeviceSnake) -> None:
        on_gpu = env.answer.reward.is_cuda
        self._host: dict[str, Tensor] = {
            name: torch.empty_like(getattr(env.answer, name), device="cpu", pin_memory=on_gpu) for name in OUTCOME
        }
        self._arrived = torch.cuda.Event(blocking=True) if on_gpu else None  # type: ignore[no-untyped-call]

    def copy_from(self, env: DeviceSnake) -> None:
        for name, tensor in self._host.items():
            tensor.copy_(getattr(env.answer, name), non_blocking=True)
        if self._arrived is not None:
            self._arrived.record()

    def read(self) -> Tick:
        """Valid until this object is reused for another tick."""
        if self._arrived is not None:
            self._arrived.synchronize()
        arrays = {name: tensor.numpy() for name, tensor in self._host.items()}
        return Tick(obs=np.empty(0, np.uint8), life_lost=np.zeros_like(arrays["first"]), **arrays)
