"""Builds the replay from config and switches. Like build.py, it may ask whether a switch is on."""

from pathlib import Path

from fastdqn import seeding
from fastdqn.config import Config
from fastdqn.device.counter_rng import CounterRng
from fastdqn.device.graphs import Graphed, Launcher, as_it_is
from fastdqn.errors import UserError
from fastdqn.learner.transfer import no_transfer, plain_transfer, transfer_ahead
from fastdqn.replay.fast import device_window
from fastdqn.replay.fast.compiled_draw import CompiledSampler, compiled_window
from fastdqn.replay.fast.device_priorities import DevicePriorities, bytes_of_blocks
from fastdqn.replay.fast.device_replay import DeviceReplay
from fastdqn.replay.fast.device_ring import DeviceRing
from fastdqn.replay.fast.fused_draw import fused_sample, fused_window
from fastdqn.replay.fast.prefetch import Prefetched
from fastdqn.replay.place import in_file, in_memory
from fastdqn.replay.prioritised import PrioritisedSampler
from fastdqn.replay.replay import Replay, RingReplay
from fastdqn.replay.ring import Ring, bytes_per_row
from fastdqn.replay.sampler import Sampler, UniformSampler
from fastdqn.replay.sum_tree import bytes_of_tree
from fastdqn.replay.textbook.accumulate import Accumulator, bytes_per_transition
from fastdqn.replay.textbook.arrays import ArrayReplay
from fastdqn.replay.textbook.deque_replay import DequeReplay
from fastdqn.replay.window import window
from fastdqn.switches import dependents
from fastdqn.transition import EnvSpec

BYTES_OF_PYTHON_OBJECTS = 350  # a tuple, two arrays and their numbers, per transition of the deque
MIN_ROWS_PER_WINDOW = 4  # a lane holds at least this many windows of (stack + n_step) rows


def rows_per_lane(config: Config, stack: int) -> int:
    smallest = MIN_ROWS_PER_WINDOW * (stack + config.replay.n_step)
    rows = config.replay.capacity // config.actor.lanes
    if rows < smallest:
        raise UserError(
            f"replay.capacity={config.replay.capacity:,} is too small for {config.actor.lanes} lanes: "
            f"stack {stack} and n_step {config.replay.n_step} need at least {smallest * config.actor.lanes:,}."
        )
    return rows


def build_replay(
    config: Config, spec: EnvSpec, stack: int, device: str, switches: frozenset[str], folder: Path | None = None
) -> Replay:
    """`folder` is on the disk that holds a file-backed replay."""
    lanes, n_step, gamma, clip = config.actor.lanes, config.replay.n_step, config.learner.gamma, spec.clip_rewards
    rows = rows_per_lane(config, stack)
    check_prioritised(config, switches)
    if "device_ring" in switches:
        ring = DeviceRing(lanes, rows, spec.obs_shape, spec.obs_dtype, device)
        return DeviceReplay(
            ring,
            CounterRng(seeding.integer(config.seed, "sample"), device),
            stack=stack,
            n_step=n_step,
            gamma=gamma,
            clip_rewards=clip,
            launcher=build_launcher(switches),
            sample=fused_sample if "fused_draw" in switches else device_window.sample,
            window=fused_window if "fused_draw" in switches else device_window.window,
            priorities=build_priorities(config, ring, stack),
        )
    if "frame_ring" in switches:
        allocate = in_memory if config.replay.place == "memory" else in_file(folder or Path())
        replay = RingReplay(
            Ring(lanes, rows, spec.obs_shape, spec.obs_dtype, allocate),
            build_sampler(config, rows * lanes, stack, switches),
            gamma=gamma,
            clip_rewards=clip,
            window=compiled_window if "compiled_draw" in switches else window,
        )
        return build_prefetch(config, replay, device) if config.learner.prefetch else replay
    accumulator = Accumulator(lanes, stack, n_step, gamma, clip)
    if "array_replay" in switches:
        rng = seeding.stream(config.seed, "sample")
        return ArrayReplay(config.replay.capacity, spec.state_shape(stack), accumulator, rng)
    return DequeReplay(config.replay.capacity, accumulator, seeding.integer(config.seed, "sample"))


def build_sampler(config: Config, slots: int, stack: int, switches: frozenset[str]) -> Sampler:
    wishes, rng = config.replay, seeding.stream(config.seed, "sample")
    if wishes.prioritised:
        alpha, beta = wishes.priority_alpha, wishes.priority_beta
        return PrioritisedSampler(stack, wishes.n_step, rng, slots=slots, alpha=alpha, beta=beta)
    return (CompiledSampler if "compiled_draw" in switches else UniformSampler)(stack, wishes.n_step, rng)


def build_priorities(config: Config, ring: DeviceRing, stack: int) -> DevicePriorities | None:
    wishes = config.replay
    if not wishes.prioritised:
        return None
    alpha, beta = wishes.priority_alpha, wishes.priority_beta
    return DevicePriorities(ring, stack=stack, n_step=wishes.n_step, alpha=alpha, beta=beta)


def check_prioritised(config: Config, switches: frozenset[str]) -> None:
    if config.replay.prioritised and "frame_ring" not in switches:
        raise UserError("replay.prioritised=true needs the switch frame_ring: leave it on, or draw uniformly.")


def priority_bytes(config: Config, slots: int, switches: frozenset[str]) -> int:
    """For preflight: bytes of the priorities, 0 with uniform sampling."""
    check_prioritised(config, switches)
    if not config.replay.prioritised:
        return 0
    return bytes_of_blocks(slots) if replay_on_device(switches) else bytes_of_tree(slots)


def build_prefetch(config: Config, replay: RingReplay, device: str) -> Prefetched:
    """Its batches are tensors on the device."""
    send, receive = (plain_transfer(device), no_transfer) if device == "cpu" else transfer_ahead(device)
    return Prefetched(replay, config.learner.prefetch, seeding.integer(config.seed, "sample"), send, receive)


def replay_bytes_per_row(spec: EnvSpec, stack: int, switches: frozenset[str]) -> int:
    """For preflight: bytes per row of capacity under these switches."""
    if "frame_ring" in switches:
        return bytes_per_row(spec.obs_shape, spec.obs_dtype)
    if "array_replay" in switches:
        return bytes_per_transition(spec.state_shape(stack), 4)
    return bytes_per_transition(spec.state_shape(stack), spec.obs_dtype.itemsize) + BYTES_OF_PYTHON_OBJECTS


def replay_on_device(switches: frozenset[str]) -> bool:
    return "device_ring" in switches


def replay_on_host(config: Config, switches: frozenset[str]) -> Config:
    """The config, with the replay on the host if a setting requires it; raises if a switch contradicts that setting."""
    setting = "learner.prefetch" if config.learner.prefetch else "replay.place=file" if config.replay.place == "file" else ""
    if not setting:
        return config
    if "frame_ring" not in switches:
        raise UserError(f"{setting} needs the switch frame_ring.")
    in_ram = with_replay_in_ram(config) if "device_ring" in switches else config
    if in_ram is None:
        raise UserError(f"{setting} keeps the replay on the host, and the switch device_ring on the device: choose one.")
    return in_ram


def with_replay_in_ram(config: Config) -> Config | None:
    """The config with the replay on the host; None if `device_ring` or a switch that needs it was requested by name."""
    resident, wishes = {"device_ring", *dependents("device_ring")}, config.switches
    if resident & set(wishes.on):
        return None
    off = (*wishes.off, *sorted(resident - set(wishes.off)))
    return config.model_copy(update={"switches": wishes.model_copy(update={"off": off})})


def build_launcher(switches: frozenset[str]) -> Launcher:
    return Graphed if "cuda_graph" in switches else as_it_is
