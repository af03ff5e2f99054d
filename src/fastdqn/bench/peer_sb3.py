"""The peer stable-baselines3: its DQN on the same environment, with the same network, batch and samples per step.

It gets its best: no Monitor, no logging, no deterministic cuDNN, the Atari chain that is faster for it (ours), any
number of environments in its process or in processes of their own, any number of threads.

`python -m fastdqn.bench.peer_sb3` measures it. The task (child.py says how it arrives):
    {"env": "snake", "preset": null, "settings": {"learner.batch_size": 64}, "seconds": 5.0,
     "envs": 4, "workers": "dummy" or "subproc", "threads": 2 (0: torch's own choice)}
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import metadata
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from fastdqn.bench.child import Stretch, serve
from fastdqn.bench.clock import Clock
from fastdqn.bench.turns import turns_of
from fastdqn.bench.work import parts_beyond_plain
from fastdqn.config import Config
from fastdqn.env.kind import EnvKind
from fastdqn.errors import UserError, missing_package
from fastdqn.learner.network import DEFAULT_CHANNELS, DEFAULT_HIDDEN, choose_kind, make_network
from fastdqn.learner.optimizer import OPTIMIZERS, options_of
from fastdqn.prepare import Job, prepare
from fastdqn.run.preflight import Need, check_memory

WORKERS = ("dummy", "subproc")
FINEST_RATIO = 100  # updates: a ratio that comes out even only after more than this is none that anybody means
FOREVER = 10**12  # steps: the stretch ends long before


@dataclass(frozen=True)
class Rhythm:
    """When stable-baselines3 trains: `gradient_steps` updates after every `train_freq` steps of all environments."""

    train_freq: int
    gradient_steps: int
    target_interval: int  # in single steps; stable-baselines3 rounds it down to whole steps of all environments
    tau: float  # 1: the target network is copied


def find_rhythm(config: Config, envs: int) -> Rhythm:
    """The shortest cycle whose samples per step are exactly those of the config."""
    learner = config.learner
    wanted = Fraction(learner.steps_per_update).limit_denominator(FINEST_RATIO)
    if float(wanted) != learner.steps_per_update:
        raise UserError(
            "stable-baselines3 trains a whole number of times after a whole number of steps of all its environments, so it "
            f"cannot keep learner.steps_per_update={learner.steps_per_update} exactly. Use a whole number."
        )
    per_round = envs / wanted  # updates per step of all environments
    train_freq, gradient_steps = per_round.denominator, per_round.numerator
    if learner.target == "hard":
        return Rhythm(train_freq, gradient_steps, max(1, round(learner.target_every * wanted)), 1.0)
    if gradient_steps != 1:
        raise UserError(
            f"stable-baselines3 moves its target network at most once per step of its environments, and {envs} of them earn "
            f"{gradient_steps} updates at once. Use learner.target=hard or fewer environments."
        )
    return Rhythm(train_freq, 1, train_freq * envs, learner.target_tau)


def refuse_what_it_cannot_do(config: Config) -> None:
    learner = config.learner
    if beyond := parts_beyond_plain(config):
        raise UserError(f"The DQN of stable-baselines3 has no {beyond}. Compare without it.")
    if learner.double:
        raise UserError("stable-baselines3 has no double DQN. Compare with learner.double=false.")
    if learner.loss != "huber":
        raise UserError(
            f"The DQN of stable-baselines3 has the loss huber only. Compare without learner.loss={learner.loss}."
        )
    if learner.target == "none":
        raise UserError("The DQN of stable-baselines3 always has a target network. Compare with learner.target=hard.")


class LifeEndsEpisode(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A lost life as `terminated`, which is all that stable-baselines3 understands. The reset after it only hands the last
    image over again: unlike Baselines' way, no step is lost and every step counts, as in ours."""

    def __init__(self, env: "gymnasium.Env[Any, Any]") -> None:
        super().__init__(env)
        self._last_obs: Any = None
        self._game_goes_on = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self._game_goes_on and seed is None:
            self._game_goes_on = False
            return self._last_obs, {}
        self._game_goes_on = False
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if info.get("life_lost", False) and not (terminated or truncated):
            self._last_obs, self._game_goes_on = obs, True
            return obs, reward, True, False, info
        return obs, reward, terminated, truncated, info


def make_vec_env(config: Config, kind: EnvKind, envs: int, workers: str) -> Any:
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecFrameStack

    makers: list[Callable[[], gymnasium.Env[Any, Any]]] = [env_maker(kind) for _ in range(envs)]
    vec_env: VecEnv = SubprocVecEnv(makers) if workers == "subproc" else DummyVecEnv(makers)
    vec_env.seed(config.seed % 2**31)
    vec_env.action_space.seed(config.seed % 2**31)
    stack = config.replay.stack or kind.stack
    return VecFrameStack(vec_env, stack, channels_order="first") if stack > 1 else vec_env


def env_maker(kind: EnvKind) -> "Callable[[], gymnasium.Env[Any, Any]]":
    """Our own textbook environment: for Atari it is faster than the chain of stable-baselines3, which emulates in
    colour, and plays by our protocol. Without Monitor, whose bookkeeping nobody reads here."""
    tells_lives = kind.spec.protocol == "classic"

    def make() -> "gymnasium.Env[Any, Any]":
        env = kind.make_single()
        return LifeEndsEpisode(env) if tells_lives else env

    return make


def network_arguments(config: Config, kind: EnvKind) -> tuple[str, dict[str, Any]]:
    """(policy, policy_kwargs) for the same layers as ours: a features extractor, then fully connected layers. Wherever
    stable-baselines3 has these layers itself, its own are used."""
    from stable_baselines3.common.torch_layers import NatureCNN

    state_shape = kind.spec.state_shape(config.replay.stack or kind.stack)
    network = choose_kind(config.network.kind, state_shape)
    hidden = list(DEFAULT_HIDDEN[network] if config.network.hidden is None else config.network.hidden)
    channels = DEFAULT_CHANNELS[network] if config.network.channels is None else config.network.channels
    if network == "mlp":
        return "MlpPolicy", {"net_arch": hidden}
    if network == "nature" and hidden and channels == DEFAULT_CHANNELS["nature"] and kind.spec.obs_dtype == np.uint8:
        extractor = {"features_extractor_class": NatureCNN, "features_extractor_kwargs": {"features_dim": hidden[0]}}
        return "CnnPolicy", {**extractor, "net_arch": hidden[1:]}
    return "CnnPolicy", {"features_extractor_class": convolutions(config, kind, state_shape), "net_arch": hidden}


def convolutions(config: Config, kind: EnvKind, state_shape: tuple[int, ...]) -> type[Any]:
    """A features extractor of the layers of our network up to where it is flat."""
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    class Convolutions(BaseFeaturesExtractor):
        def __init__(self, observation_space: Any) -> None:
            body: Any = make_network(config.network, state_shape, kind.spec.obs_dtype, kind.spec.num_actions).body
            flat = next(place for place, layer in enumerate(body) if isinstance(layer, nn.Flatten))
            super().__init__(observation_space, features_dim=body[flat + 1].in_features)
            self.layers = body[: flat + 1]

        def forward(self, observations: Tensor) -> Tensor:
            features: Tensor = self.layers(observations)
            return features

    return Convolutions


def optimizer_arguments(config: Config) -> dict[str, Any]:
    learner = config.learner
    return {"optimizer_class": OPTIMIZERS[learner.optimizer], "optimizer_kwargs": options_of(learner)}


def make_model(job: Job, rhythm: Rhythm, vec_env: Any) -> Any:
    from stable_baselines3 import DQN

    config, spec = job.config, job.kind.spec
    policy, layers = network_arguments(config, job.kind)
    epsilon = config.actor.epsilon_end
    model = DQN(
        policy,
        vec_env,
        learning_rate=config.learner.lr,
        buffer_size=config.replay.capacity,
        learning_starts=config.replay.warmup_steps,
        batch_size=config.learner.batch_size,
        tau=rhythm.tau,
        gamma=config.learner.gamma,
        train_freq=rhythm.train_freq,
        gradient_steps=rhythm.gradient_steps,
        n_steps=config.replay.n_step,
        target_update_interval=rhythm.target_interval,
        exploration_initial_eps=epsilon,
        exploration_final_eps=epsilon,
        max_grad_norm=config.learner.clip_grad_norm or math.inf,  # it always clips
        policy_kwargs={**layers, **optimizer_arguments(config)},
        device=job.device,
        seed=None,  # a seed of its own would make cuDNN deterministic, which is slower
    )
    state_shape = spec.state_shape(config.replay.stack or job.kind.stack)
    if model.observation_space.shape != state_shape or spec.action_start != 0:
        raise UserError(
            f"stable-baselines3 takes {spec.env_id} otherwise than we do: states {model.observation_space.shape} instead of "
            f"{state_shape}, {model.action_space}."
        )
    return model


def replay_need(config: Config, kind: EnvKind) -> Need:
    """It keeps every state twice, frame stacks and all; NumPy hands the memory out only when it is written to."""
    state = int(np.prod(kind.spec.state_shape(config.replay.stack or kind.stack))) * kind.spec.obs_dtype.itemsize
    per_row = 2 * state + 20  # action, reward, done, timeout
    return Need("replay of stable-baselines3", config.replay.capacity * per_row, per_row)


def train(model: Any, goes_on: Callable[[int, int], bool]) -> None:
    """Trains while `goes_on(steps, updates)` says so; it is asked where a cycle begins, when all its updates are done."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Ask(BaseCallback):
        over = False

        def _on_rollout_start(self) -> None:
            self.over = not goes_on(model.num_timesteps, model._n_updates)

        def _on_step(self) -> bool:
            return not self.over

    model.learn(FOREVER, callback=Ask(), log_interval=FOREVER)


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """Prepares, warms up, times one stretch."""
    envs, workers, threads = int(task.get("envs", 1)), task.get("workers", "dummy"), int(task.get("threads", 0))
    if workers not in WORKERS or envs < 1:
        raise UserError(f"envs={envs} must be 1 or more and workers={workers!r} one of {', '.join(WORKERS)}.")
    try:
        version = metadata.version("stable-baselines3")
    except metadata.PackageNotFoundError:
        raise missing_package("The peer stable-baselines3", "stable-baselines3", "peers") from None
    job = prepare(task["env"], task.get("preset"), task.get("settings"))
    refuse_what_it_cannot_do(job.config)
    rhythm = find_rhythm(job.config, envs)
    check_memory([replay_need(job.config, job.kind)])
    if threads:
        torch.set_num_threads(threads)
    clock = Clock(job.device, torch.get_num_threads(), job.config.learner.batch_size, turns_of(task))
    stretch = Stretch(clock, task["seconds"])

    seed_everything(job.config.seed)
    vec_env = make_vec_env(job.config, job.kind, envs, workers)
    try:
        model = make_model(job, rhythm, vec_env)
        before = parameters_to_vector(model.q_net.parameters()).detach().clone()
        train(model, stretch.goes_on)
    finally:
        vec_env.close()
    assert stretch.speed is not None
    moved = (parameters_to_vector(model.q_net.parameters()).detach() - before).norm() / before.norm()
    details = {
        "peer": f"stable-baselines3 {version}",
        "envs": envs,
        "workers": workers,
        "train_freq": rhythm.train_freq,  # in steps of all environments
        "gradient_steps": rhythm.gradient_steps,
        "target_every_steps": max(rhythm.target_interval // envs, 1) * envs,
        "parameters": before.numel(),
        "weights_moved": float(moved),  # distance from the first weights, in lengths of the first weights
        "environment": "our textbook environment, without Monitor",
        "learning_rate": "constant",
    }
    return replace(stretch.speed, details=details).as_json()


def seed_everything(seed: int) -> None:
    """What stable-baselines3 draws from."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


if __name__ == "__main__":
    raise SystemExit(serve(measure))
