"""Config and switches -> parts. Only this file, build_learner.py and build_replay.py ask whether a switch is on."""

import copy
from pathlib import Path

import torch

from fastdqn import seeding
from fastdqn.actor.actor import Actor, Chooses
from fastdqn.actor.device_actor import DeviceActor
from fastdqn.actor.greedy import make_greedy, without_autograd
from fastdqn.actor.policy import Greedy, Policy
from fastdqn.actor.resident import Chooser, ResidentPolicy
from fastdqn.build_learner import build_learner, in_effect
from fastdqn.build_replay import build_launcher, build_replay
from fastdqn.config import Config
from fastdqn.device.hardware import lacks, use_device
from fastdqn.device.kept_memory import keep_freed_memory
from fastdqn.device.streams import TwoStreams, on_stream
from fastdqn.env.base import LaneEnv
from fastdqn.env.device_snake import DeviceSnake
from fastdqn.env.kind import EnvKind
from fastdqn.env.serial import SerialLanes
from fastdqn.errors import UserError
from fastdqn.evaluator import Evaluator
from fastdqn.learner.fast.hand_written import why_not_by_hand
from fastdqn.learner.fast.lean import can_be_lean, lay_out_first_layer, make_lean_greedy
from fastdqn.learner.fast.overlapped import Apart
from fastdqn.learner.fast.precision import set_cudnn_search, set_tensor_cores
from fastdqn.learner.loss import make_head
from fastdqn.learner.network import MakeBody, QNetwork, choose_kind, has_convolutions, make_network
from fastdqn.metrics import Meter, Timers
from fastdqn.replay.fast.device_replay import DeviceReplay
from fastdqn.replay.ratio import Ratio
from fastdqn.replay.replay import Replay
from fastdqn.runner.ports import Parts, ReplaySink
from fastdqn.schedules import exploration, learning_rate, priority_beta
from fastdqn.switches import SWITCHES, Promise, resolve

FOR_PLAIN_NETWORKS = ("hand_written", "inplace_relu", "cuda_graph")  # may have to stay off for a user's own network
FOR_ONE_PROCESS = ("device_snake", "overlap")  # actor and learner must share a device and a process


def build(
    config: Config, kind: EnvKind, device: str, own_network: MakeBody | None = None, folder: Path | None = None
) -> Parts:
    """All parts of a run, in data-path order. `folder` is on the disk that holds a file-backed replay."""
    online, switches, notes = build_online(config, kind, device, own_network)
    config = with_switches(config, switches)
    spec, stack = kind.spec, stack_of(config, kind)
    timers = Timers()
    greedy = build_greedy(online, device, switches)
    apart = build_overlap(online, device, switches)  # None: actor and learner share a stream and the weights

    replay = build_replay(config, spec, stack, device, switches, folder)
    acting = online if apart is None else apart.acting
    actor = build_actor(config, kind, acting, greedy, replay, device, timers, switches)
    learner = build_learner(config, spec, stack, online, replay, device, timers, switches, notes, apart)
    if apart is not None:
        actor.step = on_stream(apart.streams.acting, actor.step)  # type: ignore[method-assign]
        greedy = apart.after_updates(greedy)

    def make_evaluator(lanes: int) -> Evaluator:
        return build_evaluator(config, kind, greedy, lanes, switches)

    return Parts(
        config=config,
        spec=spec,
        stack=stack,
        device=device,
        switches=in_effect(switches, learner),
        env=actor.env,
        actor=actor,
        replay=replay,
        ratio=Ratio(config.learner.steps_per_update, config.replay.warmup_steps),
        learner=learner,
        lr_at=learning_rate(config),
        beta_at=priority_beta(config),
        make_evaluator=make_evaluator,
        meter=Meter(timers, spec.frame_skip, config.learner.batch_size, config.log.window_episodes),
        notes=notes,
    )


def active_switches(
    config: Config, kind: EnvKind, device: str, network: QNetwork | None = None
) -> tuple[frozenset[str], list[str]]:
    """The switches in effect for this environment and network (or the configured one), and a line for each requested
    switch that is left off."""
    network = _network_on_paper(config, kind) if network is None else network
    return settle_switches(config, device, network, {**_why_not_here(config, kind), **why_not_for(network, config)})


def settle_switches(
    config: Config, device: str, network: QNetwork, reasons: dict[str, str]
) -> tuple[frozenset[str], list[str]]:
    """`reasons` maps each switch that cannot apply to the reason. If requested by name it raises, if preferred it gets a
    line; the defaults that a user's own network leaves off share one line."""
    wishes = config.switches
    for name in sorted(reasons.keys() & set(wishes.on)):
        raise UserError(f"The switch {name} does not apply to {config.env_id}: {reasons[name]}.")
    off, prefer = [*wishes.off, *reasons], [name for name in wishes.prefer if name not in reasons]
    switches, notes = resolve(wishes.on, off, prefer, device)
    missed = {name: reason for name, reason in reasons.items() if name not in wishes.off and not _lacking(name, device)}
    notes += [f"{name} is left off: {reason}" for name, reason in missed.items() if name in wishes.prefer]
    if network.own:
        aside = [f"{name} ({reasons[name]})" for name in FOR_PLAIN_NETWORKS if name in missed]
        notes += [f"left off for your network: {', '.join(aside)}"] * bool(aside)
    return switches, notes


def why_not(config: Config, kind: EnvKind) -> dict[str, str]:
    """The switches that do not apply to this environment and the configured network, each with the reason."""
    return {**_why_not_here(config, kind), **why_not_for(_network_on_paper(config, kind), config)}


def _network_on_paper(config: Config, kind: EnvKind) -> QNetwork:
    """The network's layers and shapes, without allocating weights."""
    with torch.device("meta"):
        return build_network(config, kind)


def _why_not_here(config: Config, kind: EnvKind) -> dict[str, str]:
    """The switches that do not apply to this environment and these settings, each with the reason."""
    env_id = kind.spec.env_id
    reasons = {
        name: f"{env_id} is another kind of environment"
        for name in ("lane_vector_env", "native_atari")
        if kind.make_lanes is None or name != kind.lanes_switch
    }
    if kind.make_on_device is None:
        reasons["device_snake"] = f"{env_id} is not played on a device"
    elif config.dump.every:
        reasons["device_snake"] = "dump.every keeps games as the host sees them"
    if config.runner == "processes":
        reasons |= dict.fromkeys(FOR_ONE_PROCESS, "it is for the runner inline")
    return reasons


def why_not_for(network: QNetwork, config: Config) -> dict[str, str]:
    """The switches that do not apply to this network and its learner, each with the reason."""
    reasons = {}
    if config.learner.target != "hard":
        reasons["target_ahead"] = f"with learner.target={config.learner.target} the target network moves at every update"
    elif config.learner.prefetch:
        reasons["target_ahead"] = "with learner.prefetch batches are drawn one by one"
    if config.replay.prioritised:
        reasons["overlap"] = "prioritised replay draws after what the last batch taught"
    by_hand = why_not_by_hand(network)
    if any(weight.dtype != torch.float32 for weight in network.parameters()):
        reasons |= dict.fromkeys(("one_pass_optimizer", "shadow_weights"), "some of its weights are not float32")
    if by_hand:
        reasons["hand_written"] = by_hand
    elif "hand_written" not in config.switches.off:
        reasons["shadow_weights"] = "hand_written has copies of its own"
    if not can_be_lean(network):
        reasons["lean_mlp"] = "it is for fully connected networks with a hidden layer"
    if network.own and by_hand:  # otherwise it is a chain of layers like ours
        reasons["inplace_relu"] = "a network of your own may need the input of its ReLU again"
        if "cuda_graph" not in config.switches.on:
            reasons["cuda_graph"] = "a network of your own may do what no graph can record; --on cuda_graph tries it"
    if not has_convolutions(network):
        reasons |= dict.fromkeys(("channels_last", "folded_conv"), "the network has no convolution")
    elif network.why_not_channels_last:
        reasons["channels_last"] = network.why_not_channels_last
    return reasons


def _lacking(name: str, device: str) -> bool:
    return any(lacks(need, device) for need in SWITCHES[name].machine)


def switches_to_try(config: Config, kind: EnvKind, device: str) -> list[str]:
    """The switches that are faster on some machines and slower on others: not default, and no change to learning."""
    reasons = why_not(config, kind)
    return [
        switch.name
        for switch in SWITCHES.values()
        if not switch.default
        and switch.promise is not Promise.TRADE
        and switch.name not in reasons
        and not _lacking(switch.name, device)
    ]


def with_switches(config: Config, switches: frozenset[str]) -> Config:
    """The config with the settings that a switch overrides."""
    if "many_lanes" in switches:
        return config
    lanes = config.actor.count if config.runner == "processes" else 1  # one per actor
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
    """The lanes on the device, or None if they are played on the host."""
    if "device_snake" not in switches or kind.make_on_device is None:
        return None
    return kind.make_on_device(lanes, device)


def build_network(config: Config, kind: EnvKind, own: MakeBody | None = None) -> QNetwork:
    """The textbook network, before any switch is applied."""
    spec, head = kind.spec, make_head(config.learner)
    shape = spec.state_shape(stack_of(config, kind))
    return make_network(config.network, shape, spec.obs_dtype, spec.num_actions, own, head)


def build_online(
    config: Config, kind: EnvKind, device: str, own: MakeBody | None = None
) -> tuple[QNetwork, frozenset[str], list[str]]:
    """The online network and the switches in effect for it. Every role starts from the same weights."""
    use_device(device)
    torch.manual_seed(seeding.integer(config.seed, "weights"))
    network = build_network(config, kind, own)
    switches, notes = active_switches(config, kind, device, network)
    set_process_flags(switches)
    return dressed(network, switches).to(device), switches, [*config.learner.idle(), *notes]


def dressed(network: QNetwork, switches: frozenset[str]) -> QNetwork:
    """Applies the switches that concern the network; its weights and values stay the same."""
    if "inplace_relu" in switches:
        network.relu_in_place()
    if "lean_mlp" in switches:
        lay_out_first_layer(network)
    return network.keep_channels_last() if "channels_last" in switches else network


def set_process_flags(switches: frozenset[str]) -> None:
    """Sets process-wide flags."""
    if "keep_memory" in switches:
        keep_freed_memory()
    set_tensor_cores("tf32" in switches)
    set_cudnn_search("cudnn_benchmark" in switches)


def build_greedy(network: QNetwork, device: str, switches: frozenset[str]) -> Greedy:
    if "lean_mlp" in switches:
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
    """Environments and actor, placed in one of three ways: all on the host, the ring on the device, or the boards too."""
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
    """The greedy actor. It has its own lanes, so it never disturbs training games."""
    epsilon = kind.spec.eval_epsilon if config.evaluator.epsilon is None else config.evaluator.epsilon
    env = build_env(kind, lanes, 1, switches)
    rng = seeding.stream(config.seed, "evaluator")
    return Evaluator(env, Policy(greedy, kind.spec, lanes, stack_of(config, kind), rng), epsilon)


def guess_threads(config: Config, state_shape: tuple[int, ...], device: str, cores: int) -> int:
    """Torch CPU threads when they cannot be measured: only large convolutions get all cores, because an idle OpenMP
    pool takes them from other threads."""
    if config.learner.threads:
        return config.learner.threads
    network = choose_kind(config.network.kind, state_shape)
    return cores if device == "cpu" and network == "nature" else 1
