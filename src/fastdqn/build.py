"""Config and switches -> parts. The only file that asks whether a switch is on."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fastdqn import seeding
from fastdqn.actor.actor import Actor, Chooses
from fastdqn.actor.device_actor import DeviceActor
from fastdqn.actor.greedy import make_greedy, without_autograd
from fastdqn.actor.policy import Greedy, Policy
from fastdqn.actor.resident import Chooser, ResidentPolicy
from fastdqn.build_replay import build_launcher, build_replay
from fastdqn.config import Config
from fastdqn.env.base import LaneEnv
from fastdqn.env.device_snake import DeviceSnake
from fastdqn.env.kind import EnvKind
from fastdqn.env.serial import SerialLanes
from fastdqn.errors import UserError
from fastdqn.evaluator import Evaluator
from fastdqn.graphs import as_it_is, in_pieces
from fastdqn.hardware import lacks, use_device
from fastdqn.kept_memory import keep_freed_memory
from fastdqn.learner.compiled import compiled
from fastdqn.learner.flat import lay_flat
from fastdqn.learner.hand_written import HandWrittenUpdate, can_be_written_by_hand
from fastdqn.learner.lean import LeanUpdate, can_be_lean, lay_out_first_layer, make_lean_greedy
from fastdqn.learner.learner import Learner
from fastdqn.learner.loss import make_goal, make_loss, without_graph
from fastdqn.learner.network import MakeBody, QNetwork, choose_kind, make_network
from fastdqn.learner.one_pass import OnePassAdam, make_one_pass_optimizer
from fastdqn.learner.optimizer import make_optimizer
from fastdqn.learner.overlapped import Apart, OverlappedLearner
from fastdqn.learner.precision import ScaledUpdate, in_short_numbers, set_cudnn_search, set_tensor_cores
from fastdqn.learner.transfer import Transfer, no_transfer, pinned_transfer, plain_transfer
from fastdqn.learner.update import (
    Update,
    make_target_rule,
    make_update,
    most_together,
    updates_before_the_target_moves,
    weights_of,
)
from fastdqn.learner.wide_optimizer import Wide, make_wide_optimizer
from fastdqn.metrics import Meter, Timers
from fastdqn.replay.device_replay import DeviceReplay
from fastdqn.replay.ratio import Ratio
from fastdqn.replay.replay import Replay
from fastdqn.runner.ports import Parts, ReplaySink
from fastdqn.schedules import exploration, learning_rate
from fastdqn.streams import TwoStreams, queued
from fastdqn.switches import SWITCHES, Promise, resolve
from fastdqn.transition import Batch, EnvSpec

FOR_SOME_ONLY = {"lane_vector_env", "native_atari", "device_snake", "lean_mlp"}  # environments or networks
FOR_OUR_NETWORKS = {"cuda_graph"}  # a user's own may do what no graph can record: that is for the user to say
FOR_ONE_PROCESS = {"device_snake", "overlap"}  # actor and learner must share a device and a process
FOR_PICTURES_ONLY = {"channels_last", "folded_conv"}  # elsewhere it changes nothing


def build(
    config: Config, kind: EnvKind, device: str, own_network: MakeBody | None = None, folder: Path | None = None
) -> Parts:
    """All parts of one run, in the order a transition travels. `folder` is on the disk where a replay in a file goes."""
    switches, notes = active_switches(config, kind, device, own_network is not None)
    config = with_switches(config, switches)
    spec, stack = kind.spec, stack_of(config, kind)
    timers = Timers()
    use_device(device)
    set_process_flags(switches)

    torch.manual_seed(seeding.integer(config.seed, "weights"))
    online = build_network(config, kind, own_network, switches).to(device)
    greedy = build_greedy(online, device, switches)
    apart = build_overlap(online, device, switches)  # None: actor and learner share a queue and the weights

    replay = build_replay(config, spec, stack, device, switches, folder)
    acting = online if apart is None else apart.acting
    actor = build_actor(config, kind, acting, greedy, replay, device, timers, switches)
    learner = build_learner(config, spec, stack, online, replay, device, timers, switches, notes, apart)
    if apart is not None:
        actor.step = queued(apart.queues.acting, actor.step)  # type: ignore[method-assign]
        greedy = apart.after_updates(greedy)

    def make_evaluator(lanes: int) -> Evaluator:
        return build_evaluator(config, kind, greedy, lanes, switches)

    return Parts(
        config=config,
        spec=spec,
        stack=stack,
        device=device,
        switches=switches,
        env=actor.env,
        actor=actor,
        replay=replay,
        ratio=Ratio(config.learner.steps_per_update, config.replay.warmup_steps),
        learner=learner,
        lr_at=learning_rate(config),
        make_evaluator=make_evaluator,
        meter=Meter(timers, spec.frame_skip, config.learner.batch_size, config.log.window_episodes),
        notes=notes,
    )


def active_switches(
    config: Config, kind: EnvKind, device: str, own_network: bool = False
) -> tuple[frozenset[str], list[str]]:
    """What is on for this environment. A switch that cannot apply is refused when asked for, else left off."""
    wishes = config.switches
    beside_the_point = FOR_SOME_ONLY - applying(config, kind)
    for name in sorted(beside_the_point & set(wishes.on)):
        raise UserError(f"The switch {name} does not apply to {kind.spec.env_id}: {SWITCHES[name].summary}.")
    if config.runner == "processes":
        for name in sorted(FOR_ONE_PROCESS & set(wishes.on)):
            raise UserError(f"The switch {name} is for the runner inline: {SWITCHES[name].summary}.")
        beside_the_point = beside_the_point | FOR_ONE_PROCESS
    if config.dump.every:
        if "device_snake" in wishes.on:
            raise UserError("dump.every keeps games as the host sees them, and device_snake keeps them on the device.")
        beside_the_point = beside_the_point | {"device_snake"}
    if own_network:
        beside_the_point = beside_the_point | (FOR_OUR_NETWORKS - set(wishes.on))
    return resolve(wishes.on, [*wishes.off, *beside_the_point], wishes.prefer, device)


def applying(config: Config, kind: EnvKind) -> set[str]:
    """Those of FOR_SOME_ONLY that this environment and network can use."""
    network = choose_kind(config.network.kind, kind.spec.state_shape(stack_of(config, kind)))
    found = {kind.lanes_switch} if kind.make_lanes is not None else set()
    found |= {"device_snake"} if kind.make_on_device is not None else set()
    return found | ({"lean_mlp"} if network == "mlp" and config.learner.optimizer == "adam" else set())


def switches_to_try(config: Config, kind: EnvKind, device: str) -> list[str]:
    """The switches that win on one machine and lose on another: those that are no default and change no learning."""
    beside_the_point = FOR_SOME_ONLY - applying(config, kind)
    if choose_kind(config.network.kind, kind.spec.state_shape(stack_of(config, kind))) == "mlp":
        beside_the_point |= FOR_PICTURES_ONLY
    return [
        switch.name
        for switch in SWITCHES.values()
        if not switch.default
        and switch.promise is not Promise.TRADE
        and switch.name not in beside_the_point
        and not any(lacks(need, device) for need in switch.machine)
    ]


def with_switches(config: Config, switches: frozenset[str]) -> Config:
    """The config with the settings that a switch decides."""
    if "many_lanes" in switches:
        return config
    lanes = config.actor.count if config.runner == "processes" else 1  # one an actor
    return config.model_copy(update={"actor": config.actor.model_copy(update={"lanes": lanes, "groups": 1})})


def measures_threads(switches: frozenset[str]) -> bool:
    return "measured_threads" in switches


def stack_of(config: Config, kind: EnvKind) -> int:
    return config.replay.stack or kind.stack


def build_env(kind: EnvKind, lanes: int, groups: int, switches: frozenset[str]) -> LaneEnv:
    if kind.make_lanes is not None and kind.lanes_switch in switches:
        return kind.make_lanes(lanes, groups)
    return SerialLanes([kind.make_single] * lanes, kind.spec, groups)


def build_boards(kind: EnvKind, lanes: int, device: str, switches: frozenset[str]) -> DeviceSnake | None:
    """The lanes on the device, if they are to be played there."""
    if "device_snake" not in switches or kind.make_on_device is None:
        return None
    return kind.make_on_device(lanes, device)


def build_network(
    config: Config, kind: EnvKind, own: MakeBody | None = None, switches: frozenset[str] = frozenset()
) -> QNetwork:
    """The same weights and the same values whatever the switches; without any it is the textbook's."""
    spec = kind.spec
    shape = spec.state_shape(stack_of(config, kind))
    return dressed(make_network(config.network, shape, spec.obs_dtype, spec.num_actions, own), switches, own is not None)


def dressed(network: QNetwork, switches: frozenset[str], own: bool) -> QNetwork:
    """The network with the switches that concern it. A ReLU of the user's own is left as it is."""
    if "inplace_relu" in switches and not own:
        network.relu_in_place()
    if "lean_mlp" in switches and can_be_lean(network):
        lay_out_first_layer(network)
    return network.keep_channels_last() if "channels_last" in switches else network


def set_process_flags(switches: frozenset[str]) -> None:
    """What a process has only one of."""
    if "keep_memory" in switches:
        keep_freed_memory()
    set_tensor_cores("tf32" in switches)
    set_cudnn_search("cudnn_benchmark" in switches)


def build_greedy(network: QNetwork, device: str, switches: frozenset[str]) -> Greedy:
    if "lean_mlp" in switches and can_be_lean(network):
        return make_lean_greedy(network)
    greedy = make_greedy(network, device)
    return without_autograd(greedy) if "inference_mode" in switches else greedy


def build_actor(
    config: Config,
    kind: EnvKind,
    network: QNetwork,
    greedy: Greedy,
    replay: Replay,
    device: str,
    timers: Timers,
    switches: frozenset[str],
) -> Actor | DeviceActor:
    """Environments and actor, in one of three places: all on the host, the ring on the device, or the boards too."""
    lanes, stack, spec = config.actor.lanes, stack_of(config, kind), kind.spec
    seed, launcher = seeding.integer(config.seed, "explore"), build_launcher(switches)
    boards = build_boards(kind, lanes, device, switches)
    if boards is not None and isinstance(replay, DeviceReplay):
        chooser = Chooser(network, replay.ring, slice(0, lanes), spec.num_actions, stack, seed)
        return DeviceActor(boards, chooser, replay.ring, exploration(config), timers, launcher)
    env = build_env(kind, lanes, config.actor.groups, switches)
    policy: Chooses
    if isinstance(replay, DeviceReplay):
        policy = ResidentPolicy(network, replay.ring, env.groups, spec, stack, seed, launcher)
    else:
        policy = Policy(greedy, spec, lanes, stack, seeding.stream(config.seed, "explore"))
    return Actor(env, policy, ReplaySink(replay), exploration(config), timers)


def build_overlap(online: QNetwork, device: str, switches: frozenset[str]) -> Apart | None:
    return Apart(TwoStreams(device), copy.deepcopy(online).requires_grad_(False)) if "overlap" in switches else None


def build_evaluator(config: Config, kind: EnvKind, greedy: Greedy, lanes: int, switches: frozenset[str]) -> Evaluator:
    """The greedy actor: lanes of its own, so that a game in training is never disturbed."""
    epsilon = kind.spec.eval_epsilon if config.evaluator.epsilon is None else config.evaluator.epsilon
    env = build_env(kind, lanes, 1, switches)
    rng = seeding.stream(config.seed, "evaluator")
    return Evaluator(env, Policy(greedy, kind.spec, lanes, stack_of(config, kind), rng), epsilon)


def build_learner(
    config: Config,
    spec: EnvSpec,
    stack: int,
    online: QNetwork,
    replay: Replay,
    device: str,
    timers: Timers,
    switches: frozenset[str],
    notes: list[str],
    apart: Apart | None = None,
) -> Learner:
    """`notes` gets a line when something had to be left off."""
    target = online if config.learner.target == "none" else copy.deepcopy(online)
    if "no_grad" in switches and target is not online:
        target.requires_grad_(False)
    optimizer = build_optimizer(config, online, switches)
    if isinstance(optimizer, Wide) and target is not online:
        lay_flat(target)
    transfer = build_transfer(device, switches) if not config.learner.prefetch else no_transfer
    example = example_batch(config.learner.batch_size, spec, stack, device, switches)
    update = build_update(config, online, target, optimizer, example, switches, notes)
    ahead: dict[str, Any] = {}
    drawn_one_by_one = config.learner.prefetch > 0
    if "target_ahead" in switches and not drawn_one_by_one and isinstance(update, (HandWrittenUpdate, LeanUpdate)):
        most = most_together(config.learner, example.state[0].numel() * example.state.element_size())
        ahead = {"look_ahead": update.look_ahead, "together": updates_before_the_target_moves(config.learner, most)}
    how: dict[str, Any] = {
        "online": online,
        "target": target,
        "optimizer": optimizer,
        "update": update,
        "follow": make_target_rule(online, target, config.learner),
        "draw": lambda count: transfer(replay.sample(count * config.learner.batch_size)),
        "timers": timers,
        **ahead,
    }
    launcher = build_launcher(switches)
    follow_target = update.follow_target if isinstance(update, HandWrittenUpdate) else lambda: None
    if apart is not None:
        return OverlappedLearner(queues=apart.queues, acting=apart.acting, launcher=launcher, before=follow_target, **how)
    learner = Learner(**how)
    if launcher is not as_it_is:
        learner.update_together = in_pieces(learner.update_together, launcher, before=follow_target)  # type: ignore[method-assign,assignment]
    return learner


def learns_lean(config: Config, online: QNetwork, switches: frozenset[str]) -> bool:
    return "lean_mlp" in switches and config.learner.optimizer == "adam" and can_be_lean(online)


def build_optimizer(config: Config, online: QNetwork, switches: frozenset[str]) -> torch.optim.Optimizer:
    if learns_lean(config, online, switches):
        return OnePassAdam(online.parameters(), config.learner.lr, config.learner.optimizer_eps)
    if "wide_optimizer" in switches and can_be_written_by_hand(online):
        return make_wide_optimizer(config.learner, online)
    if "one_pass_optimizer" in switches and can_be_written_by_hand(online):
        return make_one_pass_optimizer(config.learner, online)
    one_call, in_graph = "fused_optimizer" in switches, "cuda_graph" in switches
    return make_optimizer(config.learner, online, one_call=one_call, in_graph=in_graph)


def build_update(
    config: Config,
    online: QNetwork,
    target: QNetwork,
    optimizer: torch.optim.Optimizer,
    example: Batch,
    switches: frozenset[str],
    notes: list[str],
) -> Update:
    """Goal, loss and update, each wrapped by the switches that are on."""
    device, dtype = example.state.device.type, dtype_of_passes(switches)
    if isinstance(optimizer, OnePassAdam) and learns_lean(config, online, switches):
        return LeanUpdate(online, target, optimizer, config.learner, dtype or torch.float32)
    if "hand_written" in switches and can_be_written_by_hand(online):
        fold = "folded_conv" in switches
        return HandWrittenUpdate(online, target, optimizer, config.learner, dtype or torch.float32, fold)
    goal = make_goal(online, target, config.learner)
    if "no_grad" in switches:
        goal = without_graph(goal)
    loss = make_loss(online, goal, config.learner)
    if dtype is not None:
        loss = in_short_numbers(loss, device, dtype)
    if "compile" in switches:
        loss, why_not = compiled(loss, example, weights_of(optimizer))
        notes += [why_not] * bool(why_not)
    make: Callable[..., Update] = ScaledUpdate if "fp16" in switches else make_update
    return make(loss, optimizer, config.learner.clip_grad_norm, grads_to_none="grads_to_none" in switches)


def dtype_of_passes(switches: frozenset[str]) -> torch.dtype | None:
    """What forward and backward passes are computed in; None: float32, as everything else."""
    return torch.bfloat16 if "bf16" in switches else torch.float16 if "fp16" in switches else None


def build_transfer(device: str, switches: frozenset[str]) -> Transfer:
    if "device_ring" in switches:
        return no_transfer
    return pinned_transfer(device) if "pinned_copies" in switches else plain_transfer(device)


def example_batch(size: int, spec: EnvSpec, stack: int, device: str, switches: frozenset[str]) -> Batch:
    """A batch of zeros in the shapes and dtypes that the replay gives."""
    dtype = torch.from_numpy(np.zeros(1, spec.obs_dtype)).dtype if "frame_ring" in switches else torch.float32
    states = torch.zeros(size, *spec.state_shape(stack), dtype=dtype, device=device)
    numbers = torch.zeros(size, device=device)
    actions = torch.zeros(size, dtype=torch.int64, device=device)
    return Batch(states, actions, numbers, numbers.clone(), states.clone(), numbers.clone(), None)


def guess_threads(config: Config, state_shape: tuple[int, ...], device: str, cores: int) -> int:
    """Torch CPU threads where nothing can be measured: only large convolutions get all cores, because an idle OpenMP
    pool steals them from whatever else wants to run."""
    if config.learner.threads:
        return config.learner.threads
    network = choose_kind(config.network.kind, state_shape)
    return cores if device == "cpu" and network == "nature" else 1
