"""The plain script of the books: DQN as a student writes it today, in one file.

It shares the environment, the settings and the network with fastdqn and nothing else: no actor, no replay, no learner
of ours. So it is an independent yardstick: it shows that our own textbook variants are not slower than the real thing.

Slow where the books are slow: one environment, one forward pass per step, a deque of tuples, a tensor made of every
single state, autograd on even where nothing is learned, as many threads as torch likes.

`python -m fastdqn.bench.plain_script` measures it. The task (child.py says how it arrives):
    {"env": "snake", "preset": null, "settings": {"learner.batch_size": 64}, "seconds": 5.0}
`envs` may be there if it is 1; `workers` and `threads` are not looked at.
"""

import copy
import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  (the name everybody reads it by)
from torch import nn
from torch.nn.utils import parameters_to_vector

from fastdqn.bench.child import Stretch, serve
from fastdqn.bench.clock import Clock
from fastdqn.bench.turns import turns_of
from fastdqn.bench.work import parts_beyond_plain
from fastdqn.config import Config, LearnerConfig
from fastdqn.env.kind import EnvKind
from fastdqn.errors import UserError
from fastdqn.learner.network import make_network
from fastdqn.prepare import prepare

GoesOn = Callable[[int, int], bool]  # (steps, updates) -> whether there is to be another step


class Transition(NamedTuple):
    state: np.ndarray
    action: int
    reward: float
    next_state: np.ndarray
    end: bool  # no value follows: the game is over or a life is lost, but not: the time is up


def train(config: Config, kind: EnvKind, online: nn.Module, device: str, goes_on: GoesOn) -> list[float]:
    """Plays and learns while `goes_on` says so; the returns of the games that were finished, in order."""
    learner, num_actions = config.learner, kind.spec.num_actions
    target = online if learner.target == "none" else copy.deepcopy(online)
    optimizer = make_optimizer(online, learner)
    memory: deque[Transition] = deque(maxlen=config.replay.capacity)
    warmup = max(config.replay.warmup_steps, learner.batch_size)

    env = kind.make_single()
    obs, _ = env.reset(seed=config.seed % 2**31)
    frames: deque[np.ndarray] = deque(maxlen=config.replay.stack or kind.stack)
    state = first_state(frames, obs)
    game_return, returns = 0.0, []
    steps = updates = 0

    while goes_on(steps, updates):
        action = choose_action(online, state, epsilon_at(steps, config, warmup), num_actions, device)
        obs, reward, terminated, truncated, info = env.step(action)
        steps += 1
        frames.append(obs)
        next_state = np.concatenate(frames)
        memory.append(Transition(state, action, float(reward), next_state, terminated or info.get("life_lost", False)))
        state = next_state
        game_return += float(info.get("raw_reward", reward))
        if terminated or truncated:
            returns.append(game_return)
            game_return = 0.0
            obs, _ = env.reset()
            state = first_state(frames, obs)

        while updates + 1 <= (steps - warmup) / learner.steps_per_update:
            learn(online, target, optimizer, random.sample(memory, learner.batch_size), learner, device)
            updates += 1
            follow(online, target, learner, updates)
    env.close()
    return returns


def first_state(frames: deque[np.ndarray], obs: np.ndarray) -> np.ndarray:
    """A game begins: the frames before it are black."""
    for _ in range(frames.maxlen or 1):
        frames.append(np.zeros_like(obs))
    frames.append(obs)
    return np.concatenate(frames)


def epsilon_at(step: int, config: Config, warmup: int) -> float:
    """epsilon_start while the memory fills, then down a straight line that began at the first step."""
    actor = config.actor
    if step < warmup:
        return actor.epsilon_start
    if step >= actor.epsilon_steps:
        return actor.epsilon_end
    return actor.epsilon_start + (actor.epsilon_end - actor.epsilon_start) * step / actor.epsilon_steps


def choose_action(online: nn.Module, state: np.ndarray, epsilon: float, num_actions: int, device: str) -> int:
    if random.random() < epsilon:
        return random.randrange(num_actions)
    values = online(torch.tensor(state, dtype=torch.float32, device=device).unsqueeze(0))
    return int(values.argmax(1).item())


def learn(
    online: nn.Module,
    target: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: list[Transition],
    config: LearnerConfig,
    device: str,
) -> None:
    """One update. The images are bytes; the network scales them itself."""
    states = torch.stack([torch.tensor(t.state, dtype=torch.float32) for t in batch]).to(device)
    actions = torch.tensor([t.action for t in batch]).to(device)
    rewards = torch.tensor([t.reward for t in batch]).to(device)
    next_states = torch.stack([torch.tensor(t.next_state, dtype=torch.float32) for t in batch]).to(device)
    ends = torch.tensor([float(t.end) for t in batch]).to(device)

    taken = online(states).gather(1, actions.unsqueeze(1)).squeeze(1)
    next_values = target(next_states)
    if config.double:
        best = online(next_states).argmax(1, keepdim=True)
        next_value = next_values.gather(1, best).squeeze(1)
    else:
        next_value = next_values.max(1).values
    goal = rewards + config.gamma * (1 - ends) * next_value.detach()
    loss = {"huber": F.smooth_l1_loss, "mse": F.mse_loss}[config.loss](taken, goal)

    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    if config.clip_grad_norm > 0:
        nn.utils.clip_grad_norm_(online.parameters(), config.clip_grad_norm)
    optimizer.step()


def make_optimizer(network: nn.Module, config: LearnerConfig) -> torch.optim.Optimizer:
    if config.optimizer == "rmsprop":
        return torch.optim.RMSprop(network.parameters(), lr=config.lr, alpha=0.95, eps=config.optimizer_eps, centered=True)
    return {"adam": torch.optim.Adam}[config.optimizer](network.parameters(), lr=config.lr, eps=config.optimizer_eps)


def follow(online: nn.Module, target: nn.Module, config: LearnerConfig, updates: int) -> None:
    """The target network after update number `updates`."""
    if config.target == "hard" and updates % config.target_every == 0:
        target.load_state_dict(online.state_dict())
    if config.target == "soft":
        for old, new in zip(target.parameters(), online.parameters(), strict=True):
            old.data.copy_(config.target_tau * new.data + (1 - config.target_tau) * old.data)


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """Prepares, warms up, times one stretch."""
    job = prepare(task["env"], task.get("preset"), task.get("settings"))
    refuse_what_it_cannot_do(job.config, job.kind, int(task.get("envs", 1)))
    config, kind = with_last_epsilon(job.config), job.kind
    clock = Clock(job.device, torch.get_num_threads(), config.learner.batch_size, turns_of(task))
    stretch = Stretch(clock, task["seconds"])

    random.seed(config.seed)
    torch.manual_seed(config.seed)
    shape = kind.spec.state_shape(config.replay.stack or kind.stack)
    network = make_network(config.network, shape, kind.spec.obs_dtype, kind.spec.num_actions).to(job.device)
    before = parameters_to_vector(network.parameters()).detach().clone()
    returns = train(config, kind, network, job.device, stretch.goes_on)

    assert stretch.speed is not None
    moved = (parameters_to_vector(network.parameters()).detach() - before).norm() / before.norm()
    details = {
        "peer": "plain script",
        "envs": 1,
        "parameters": before.numel(),
        "weights_moved": float(moved),  # distance from the first weights, in lengths of the first weights
        "games": len(returns),
        "mean_return": float(np.mean(returns[-100:])) if returns else None,
        "learning_rate": "constant",
    }
    return replace(stretch.speed, details=details).as_json()


def refuse_what_it_cannot_do(config: Config, kind: EnvKind, envs: int) -> None:
    if envs != 1:
        raise UserError(f"The plain script plays one environment, not {envs}.")
    if config.replay.n_step != 1:
        raise UserError(f"The plain script learns from single steps, not from replay.n_step={config.replay.n_step}.")
    if beyond := parts_beyond_plain(config):
        raise UserError(f"The plain script has no {beyond}. Compare without it.")
    if config.replay.capacity < config.learner.batch_size:
        raise UserError(f"replay.capacity={config.replay.capacity} does not hold learner.batch_size transitions.")
    env = kind.make_single()
    env.close()
    if env.observation_space.shape != kind.spec.obs_shape or kind.spec.action_start != 0:
        raise UserError(
            f"The plain script plays environments as they are, with observations of shape {kind.spec.obs_shape} and actions "
            f"from 0; {kind.spec.env_id} has {env.observation_space} and {env.action_space}."
        )


def with_last_epsilon(config: Config) -> Config:
    """Random actions cost no forward pass, so a speed is taken with the exploration that most of a run has."""
    actor = config.actor.model_copy(update={"epsilon_start": 1.0, "epsilon_steps": 0})
    return config.model_copy(update={"actor": actor})


if __name__ == "__main__":
    raise SystemExit(serve(measure))
