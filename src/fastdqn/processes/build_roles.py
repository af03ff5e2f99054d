"""The parts of one role in its own process: what build.py makes, assembled as learner, actor or evaluator."""

from collections.abc import Callable
from pathlib import Path

from fastdqn import seeding
from fastdqn.actor.actor import Actor, Sink
from fastdqn.actor.policy import Policy
from fastdqn.build import (
    build_env,
    build_evaluator,
    build_greedy,
    build_online,
    stack_of,
    with_switches,
)
from fastdqn.build_learner import build_learner, in_effect
from fastdqn.build_replay import build_replay
from fastdqn.config import Config
from fastdqn.env.base import split_lanes
from fastdqn.env.kind import EnvKind
from fastdqn.evaluator import Evaluator
from fastdqn.learner.network import MakeBody, QNetwork
from fastdqn.metrics import Meter, Timers
from fastdqn.replay.ratio import Ratio
from fastdqn.runner.ports import Trainer


def build_trainer(
    config: Config, kind: EnvKind, device: str, own_network: MakeBody | None = None, folder: Path | None = None
) -> Trainer:
    """The learner's side of a run whose actors are in other processes."""
    online, switches, notes = build_online(config, kind, device, own_network)
    config = with_switches(config, switches)
    spec, stack, timers = kind.spec, stack_of(config, kind), Timers()
    replay = build_replay(config, spec, stack, device, switches, folder)
    learner = build_learner(config, spec, stack, online, replay, device, timers, switches, notes)
    return Trainer(
        config=config,
        spec=spec,
        stack=stack,
        switches=in_effect(switches, learner),
        replay=replay,
        ratio=Ratio(config.learner.steps_per_update, config.replay.warmup_steps),
        learner=learner,
        meter=Meter(timers, spec.frame_skip, config.learner.batch_size, config.log.window_episodes),
        timers=timers,
        notes=notes,
    )


def build_player(
    config: Config,
    kind: EnvKind,
    device: str,
    own_network: MakeBody | None,
    lanes: int,
    sink: Sink,
    epsilon: Callable[[int], float],
    purpose: str,
    timers: Timers,
) -> tuple[Actor, QNetwork]:
    """An actor for its own process, and the network it acts with; `purpose` names its random stream."""
    network, switches, _ = build_online(config, kind, device, own_network)
    env = build_env(kind, lanes, config.actor.groups, switches)
    rng = seeding.stream(config.seed, purpose)
    policy = Policy(build_greedy(network, device, switches), kind.spec, lanes, stack_of(config, kind), rng)
    return Actor(env, policy, sink, epsilon, timers), network


def build_greedy_player(
    config: Config, kind: EnvKind, device: str, own_network: MakeBody | None, lanes: int
) -> tuple[Evaluator, QNetwork]:
    """An evaluator for its own process, and the network it plays with."""
    network, switches, _ = build_online(config, kind, device, own_network)
    return build_evaluator(config, kind, build_greedy(network, device, switches), lanes, switches), network


def section_of(config: Config, actor: int) -> slice:
    """The lanes that one actor plays: its section of the ring."""
    return split_lanes(config.actor.lanes, config.actor.count)[actor]
