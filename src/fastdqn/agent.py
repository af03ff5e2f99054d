"""An agent for your own training loop: act, remember, learn, save, load.

    agent = Agent(env.observation_space, env.action_space.n)
    action = agent.act(obs)
    agent.remember(obs, action, reward, next_obs, terminated, truncated)
    agent.learn()

It uses the same replay, loss and update as `fastdqn train`, with one lane; your loop replaces the runner.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from fastdqn import seeding
from fastdqn.actor.policy import explore
from fastdqn.build import (
    build_greedy,
    dressed,
    guess_threads,
    set_process_flags,
    settle_switches,
    why_not_for,
)
from fastdqn.build_learner import build_learner, build_transfer, in_effect
from fastdqn.build_replay import build_replay, with_replay_in_ram
from fastdqn.config import Config, make_config
from fastdqn.device.cores import usable_cores
from fastdqn.env.gymnasium import is_channels_last, stored_shape
from fastdqn.errors import UserError
from fastdqn.learner.loss import make_head
from fastdqn.learner.network import MakeBody, choose_kind, make_network
from fastdqn.metrics import Timers
from fastdqn.prepare import memory_needs
from fastdqn.run.model import load_model, save_model
from fastdqn.run.preflight import check_memory, choose_device
from fastdqn.schedules import exploration, learning_rate, priority_beta
from fastdqn.transition import Block, EnvSpec

ONE_LANE = slice(0, 1)


class Agent:
    """A DQN agent. `observations` is a Gymnasium Box, a shape, or the length of a vector. `switches` are those in effect,
    `notes` says what was left off and why."""

    def __init__(
        self,
        observations: Any,
        num_actions: int,
        *,
        dtype: Any = None,
        preset: str = "default",
        settings: Mapping[str, Any] | None = None,
        network: MakeBody | None = None,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        shape, dtype = _shape_and_dtype(observations, dtype)
        self.spec = EnvSpec("own loop", shape, dtype, int(num_actions))
        overrides = dict(settings or {}) | {"actor.lanes": 1, "actor.groups": 1, "replay.stack": 1, "seed": seed}
        self.config: Config = make_config("own loop", preset, overrides)
        self.device = choose_device(device, choose_kind(self.config.network.kind, shape) == "nature")
        torch.set_num_threads(guess_threads(self.config, shape, self.device, usable_cores()))
        torch.manual_seed(seeding.integer(seed, "weights"))
        head = make_head(self.config.learner)
        online = make_network(self.config.network, shape, dtype, self.spec.num_actions, network, head)
        # One lane has nothing to gain from a replay on a GPU
        wishes = with_replay_in_ram(self.config) or self.config
        switches, self.notes = settle_switches(wishes, self.device, online, why_not_for(online, wishes))
        dressed(online, switches)
        set_process_flags(switches)
        parameters = sum(parameter.numel() for parameter in online.parameters())
        check_memory(memory_needs(self.config, self.spec, 1, switches, parameters))
        self._rng = seeding.stream(seed, "explore")
        self._replay = build_replay(self.config, self.spec, 1, self.device, switches)
        self._transfer = build_transfer(self.device, switches)
        self._learner = build_learner(
            self.config, self.spec, 1, online.to(self.device), self._replay, self.device, Timers(), switches, self.notes
        )
        self.switches = in_effect(switches, self._learner)
        self._greedy = build_greedy(online, self.device, switches)
        self._epsilon, self._lr_at = exploration(self.config), learning_rate(self.config)
        self._beta_at = priority_beta(self.config)
        self._newest: np.ndarray | None = None  # observation of the open row; None before the first and after an episode
        self.steps = 0

    @property
    def memory(self) -> Any:
        """The replay; len(agent.memory) is about the number of transitions that can be sampled (the last observation of
        each episode counts too)."""
        return self._replay

    @property
    def updates(self) -> int:
        return self._learner.updates

    @property
    def epsilon(self) -> float:
        return self._epsilon(self.steps)

    def act(self, obs: Any, explore_too: bool = True) -> int:
        """Epsilon-greedy. The schedule counts the steps passed to `remember`: epsilon_start for the first
        replay.warmup_steps of them. Greedy with explore_too=False."""
        epsilon = self.epsilon if explore_too else 0.0
        if epsilon >= 1.0:
            return int(self._rng.integers(self.spec.num_actions))
        greedy = self._greedy(self.spec.stored(obs)[None])
        return int(explore(greedy, epsilon, self.spec.num_actions, self._rng)[0])

    def remember(
        self, obs: Any, action: int, reward: float, next_obs: Any, terminated: bool, truncated: bool = False
    ) -> None:
        """Stores one step. Consecutive steps share an observation; a different `obs` begins a new episode."""
        if not 0 <= action < self.spec.num_actions:
            raise ValueError(f"action {action} is not one of 0..{self.spec.num_actions - 1}")
        obs, next_obs = self.spec.stored(obs), self.spec.stored(next_obs)
        if self._newest is None or not np.array_equal(self._newest, obs):
            self._append(obs, first=True)
        self._append(next_obs, action, reward, terminated)
        self._newest = None if terminated or truncated else next_obs.copy()
        self.steps += 1

    def learn(self, batch_size: int | None = None) -> float | None:
        """One update; returns its loss, or None while the memory holds less than a batch."""
        size = batch_size or self.config.learner.batch_size
        if len(self._replay) < size:
            return None
        self._learner.set_lr(self._lr_at(self.steps))
        self._replay.set_beta(self._beta_at(self.steps))
        self._learner.train_on(self._transfer(self._replay.sample(size)))
        return self._learner.read_means()[0]

    def save(self, path: str | Path) -> None:
        """Saves the weights only; `fastdqn train` keeps a whole run folder."""
        facts = {
            "env_id": self.spec.env_id,
            "step": self.steps,
            "update": self.updates,
            "state_shape": list(self.spec.obs_shape),
            "num_actions": self.spec.num_actions,
        }
        save_model(Path(path), self._learner.online, facts)

    def load(self, path: str | Path) -> None:
        """Loads the weights and the position in the exploration and learning-rate schedules."""
        facts = load_model(Path(path), self._learner.online)
        self.steps, self._learner.updates = facts["step"], facts["update"]
        self._learner.target.load_state_dict(self._learner.online.state_dict())

    def _append(
        self, obs: np.ndarray, action: int = 0, reward: float = 0.0, terminal: bool = False, first: bool = False
    ) -> None:
        self._replay.append(
            Block(
                lanes=ONE_LANE,
                action=np.array([action]),
                reward=np.array([reward], np.float32),
                terminal=np.array([terminal]),
                first=np.array([first]),
                obs=obs[None],
            )
        )


def _shape_and_dtype(observations: Any, dtype: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype as stored: images are channels first."""
    if isinstance(observations, spaces.Space):
        if not isinstance(observations, spaces.Box):
            raise UserError(f"The agent needs a Box of observations, not {type(observations).__name__}.")
        box = observations
    else:
        shape = (observations,) if isinstance(observations, (int, np.integer)) else observations
        box = spaces.Box(0, 1, tuple(int(side) for side in shape), np.dtype(dtype or np.float32).type)
    kind = np.dtype(dtype or box.dtype)
    if is_channels_last(box):
        return (box.shape[2], *box.shape[:2]), kind
    return stored_shape(box), kind
