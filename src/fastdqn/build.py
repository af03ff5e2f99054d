"""Config and switches -> parts. The only file that asks whether a switch is on."""

import copy
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import nn

from fastdqn import seeding
from fastdqn.actor.actor import Actor
from fastdqn.actor.greedy import make_greedy, without_autograd
from fastdqn.actor.policy import Greedy, Policy, epsilon_at
from fastdqn.config import Config
from fastdqn.env.base import LaneEnv
from fastdqn.env.kind import EnvKind
from fastdqn.env.serial import SerialLanes
from fastdqn.errors import UserError
from fastdqn.evaluator import Evaluator
from fastdqn.learner.learner import Learner
from fastdqn.learner.network import MakeBody, QNetwork, choose_kind, make_network
from fastdqn.learner.update import make_optimizer, make_target_rule, make_update
from fastdqn.metrics import Meter, Timers
from fastdqn.replay.accumulate import Accumulator, bytes_per_transition
from fastdqn.replay.arrays import ArrayReplay
from fastdqn.replay.ratio import Ratio
from fastdqn.replay.replay import Replay, RingReplay
from fastdqn.replay.ring import Ring, bytes_per_row
from fastdqn.replay.sampler import UniformSampler
from fastdqn.replay.textbook import DequeReplay
from fastdqn.runner.ports import Parts, ReplaySink
from fastdqn.switches import SWITCHES, resolve
from fastdqn.transition import Batch, EnvSpec

BYTES_OF_PYTHON_OBJECTS = 350  # a tuple, two arrays and their numbers, per transition of the deque
MIN_ROWS_PER_WINDOW = 4  # a lane holds at least this many windows of (stack + n_step) rows


def build(config: Config, kind: EnvKind, device: str, own_network: MakeBody | None = None) -> Parts:
    """All parts of one run, in the order a transition travels."""
    switches, notes = active_switches(config, kind)
    spec, stack = kind.spec, stack_of(config, kind)
    timers = Timers()

    torch.manual_seed(seeding.integer(config.seed, "weights"))
    online = build_network(config, kind, own_network).to(device)
    greedy = build_greedy(online, device, switches)

    env = build_env(kind, config.actor.lanes, config.actor.groups, switches)
    replay = build_replay(config, spec, stack, switches)
    policy = Policy(greedy, spec, env.num_lanes, stack, seeding.stream(config.seed, "explore"))
    actor = Actor(env, policy, ReplaySink(replay), exploration(config), timers)
    learner = build_learner(config, online, replay, device, timers)

    def make_evaluator(lanes: int) -> Evaluator:
        return build_evaluator(config, kind, greedy, lanes, switches)

    return Parts(
        config=config,
        spec=spec,
        stack=stack,
        device=device,
        switches=switches,
        env=env,
        actor=actor,
        replay=replay,
        ratio=Ratio(config.learner.steps_per_update, config.replay.warmup_steps),
        learner=learner,
        lr_at=learning_rate(config),
        make_evaluator=make_evaluator,
        meter=Meter(timers, spec.frame_skip, config.learner.batch_size, config.log.window_episodes),
        notes=notes,
    )


def active_switches(config: Config, kind: EnvKind) -> tuple[frozenset[str], list[str]]:
    """What is on for this environment. A switch that cannot apply is refused when asked for, else left off."""
    active, notes = resolve(config.switches.on, config.switches.off)
    usable = {kind.lanes_switch} if kind.make_lanes is not None else set()
    for name in {"lane_vector_env", "native_atari"} - usable:
        if name in config.switches.on:
            raise UserError(f"The switch {name} does not apply to {kind.spec.env_id}: {SWITCHES[name].summary}.")
        active -= {name}
    return active, notes


def stack_of(config: Config, kind: EnvKind) -> int:
    return config.replay.stack or kind.stack


def exploration(config: Config) -> Callable[[int], float]:
    """Step -> epsilon: epsilon_start during the warm-up, then the schedule, which counts from the first step of all."""
    actor, warmup = config.actor, config.replay.warmup_steps
    schedule = partial(epsilon_at, start=actor.epsilon_start, end=actor.epsilon_end, steps=actor.epsilon_steps)
    return lambda step: actor.epsilon_start if step < warmup else schedule(step)


def learning_rate(config: Config) -> Callable[[int], float]:
    learner, steps = config.learner, config.limits.steps
    if learner.lr_end is None or steps is None:
        return lambda step: learner.lr
    end = learner.lr_end
    return lambda step: learner.lr + min(1.0, step / steps) * (end - learner.lr)


def build_env(kind: EnvKind, lanes: int, groups: int, switches: frozenset[str]) -> LaneEnv:
    if kind.make_lanes is not None and kind.lanes_switch in switches:
        return kind.make_lanes(lanes, groups)
    return SerialLanes([kind.make_single] * lanes, kind.spec, groups)


def build_network(config: Config, kind: EnvKind, own: MakeBody | None = None) -> QNetwork:
    spec = kind.spec
    return make_network(config.network, spec.state_shape(stack_of(config, kind)), spec.obs_dtype, spec.num_actions, own)


def build_greedy(network: nn.Module, device: str, switches: frozenset[str]) -> Greedy:
    greedy = make_greedy(network, device)
    return without_autograd(greedy) if "inference_mode" in switches else greedy


def build_evaluator(config: Config, kind: EnvKind, greedy: Greedy, lanes: int, switches: frozenset[str]) -> Evaluator:
    """The greedy actor: lanes of its own, so that a game in training is never disturbed."""
    epsilon = kind.spec.eval_epsilon if config.evaluator.epsilon is None else config.evaluator.epsilon
    env = build_env(kind, lanes, 1, switches)
    rng = seeding.stream(config.seed, "evaluator")
    return Evaluator(env, Policy(greedy, kind.spec, lanes, stack_of(config, kind), rng), epsilon)


def rows_per_lane(config: Config, stack: int) -> int:
    smallest = MIN_ROWS_PER_WINDOW * (stack + config.replay.n_step)
    rows = config.replay.capacity // config.actor.lanes
    if rows < smallest:
        raise UserError(
            f"replay.capacity={config.replay.capacity:,} is too small for {config.actor.lanes} lanes: "
            f"stack {stack} and n_step {config.replay.n_step} need at least {smallest * config.actor.lanes:,}."
        )
    return rows


def build_replay(config: Config, spec: EnvSpec, stack: int, switches: frozenset[str]) -> Replay:
    lanes, n_step, gamma, clip = config.actor.lanes, config.replay.n_step, config.learner.gamma, spec.clip_rewards
    rows = rows_per_lane(config, stack)
    if "frame_ring" in switches:
        ring = Ring(lanes, rows, spec.obs_shape, spec.obs_dtype)
        sampler = UniformSampler(stack, n_step, seeding.stream(config.seed, "sample"))
        return RingReplay(ring, sampler, gamma=gamma, clip_rewards=clip)
    accumulator = Accumulator(lanes, stack, n_step, gamma, clip)
    if "array_replay" in switches:
        rng = seeding.stream(config.seed, "sample")
        return ArrayReplay(config.replay.capacity, spec.state_shape(stack), accumulator, rng)
    return DequeReplay(config.replay.capacity, accumulator, seeding.integer(config.seed, "sample"))


def replay_bytes_per_row(spec: EnvSpec, stack: int, switches: frozenset[str]) -> int:
    """For preflight: what one row of capacity costs under these switches."""
    if "frame_ring" in switches:
        return bytes_per_row(spec.obs_shape, spec.obs_dtype)
    if "array_replay" in switches:
        return bytes_per_transition(spec.state_shape(stack), 4)
    return bytes_per_transition(spec.state_shape(stack), spec.obs_dtype.itemsize) + BYTES_OF_PYTHON_OBJECTS


def build_learner(config: Config, online: QNetwork, replay: Replay, device: str, timers: Timers) -> Learner:
    target = online if config.learner.target == "none" else copy.deepcopy(online).requires_grad_(False)
    optimizer = make_optimizer(config.learner, online)
    return Learner(
        online=online,
        target=target,
        optimizer=optimizer,
        update=make_update(online, target, optimizer, config.learner),
        follow=make_target_rule(online, target, config.learner),
        draw=lambda: to_device(replay.sample(config.learner.batch_size), device),
        timers=timers,
    )


def to_device(batch: Batch, device: str) -> Batch:
    """Arrays become tensors without a copy on the CPU; `index` stays behind, the update does not need it."""
    tensors = {
        name: (torch.from_numpy(value) if isinstance(value, np.ndarray) else value).to(device)
        for name, value in batch._asdict().items()
        if name != "index"
    }
    return Batch(**tensors, index=batch.index)


def default_threads(config: Config, state_shape: tuple[int, ...], device: str, cores: int) -> int:
    """Torch CPU threads: an idle OpenMP pool steals the emulator's cores, so only large convolutions get them all."""
    if config.learner.threads:
        return config.learner.threads
    network = choose_kind(config.network.kind, state_shape)
    return cores if device == "cpu" and network == "nature" else 1
