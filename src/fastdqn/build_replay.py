"""The replay as config and switches want it. With build.py, the only file that asks whether a switch is on."""

from pathlib import Path

from fastdqn import seeding
from fastdqn.config import Config
from fastdqn.dice import Dice
from fastdqn.errors import UserError
from fastdqn.graphs import Graphed, Launcher, as_it_is
from fastdqn.learner.transfer import no_transfer, plain_transfer, transfer_ahead
from fastdqn.replay import device_window
from fastdqn.replay.accumulate import Accumulator, bytes_per_transition
from fastdqn.replay.arrays import ArrayReplay
from fastdqn.replay.compiled_draw import CompiledSampler, compiled_window
from fastdqn.replay.device_replay import DeviceReplay
from fastdqn.replay.device_ring import DeviceRing
from fastdqn.replay.fused_draw import fused_sample
from fastdqn.replay.place import in_file, in_memory
from fastdqn.replay.prefetch import Prefetched
from fastdqn.replay.replay import Replay, RingReplay
from fastdqn.replay.ring import Ring, bytes_per_row
from fastdqn.replay.sampler import UniformSampler
from fastdqn.replay.textbook import DequeReplay
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
    """`folder` is on the disk where a replay in a file goes."""
    lanes, n_step, gamma, clip = config.actor.lanes, config.replay.n_step, config.learner.gamma, spec.clip_rewards
    rows = rows_per_lane(config, stack)
    if "device_ring" in switches:
        return DeviceReplay(
            DeviceRing(lanes, rows, spec.obs_shape, spec.obs_dtype, device),
            Dice(seeding.integer(config.seed, "sample"), device),
            stack=stack,
            n_step=n_step,
            gamma=gamma,
            clip_rewards=clip,
            launcher=build_launcher(switches),
            sample=fused_sample if "fused_draw" in switches else device_window.sample,
        )
    if "frame_ring" in switches:
        allocate = in_memory if config.replay.place == "memory" else in_file(folder or Path())
        ring, rng = Ring(lanes, rows, spec.obs_shape, spec.obs_dtype, allocate), seeding.stream(config.seed, "sample")
        if "compiled_draw" in switches:
            replay = RingReplay(
                ring, CompiledSampler(stack, n_step, rng), gamma=gamma, clip_rewards=clip, window=compiled_window
            )
        else:
            replay = RingReplay(ring, UniformSampler(stack, n_step, rng), gamma=gamma, clip_rewards=clip)
        return build_prefetch(config, replay, device) if config.learner.prefetch else replay
    accumulator = Accumulator(lanes, stack, n_step, gamma, clip)
    if "array_replay" in switches:
        rng = seeding.stream(config.seed, "sample")
        return ArrayReplay(config.replay.capacity, spec.state_shape(stack), accumulator, rng)
    return DequeReplay(config.replay.capacity, accumulator, seeding.integer(config.seed, "sample"))


def build_prefetch(config: Config, replay: RingReplay, device: str) -> Prefetched:
    """Batches leave it as tensors of the device."""
    send, receive = (plain_transfer(device), no_transfer) if device == "cpu" else transfer_ahead(device)
    return Prefetched(replay, config.learner.prefetch, seeding.integer(config.seed, "sample"), send, receive)


def replay_bytes_per_row(spec: EnvSpec, stack: int, switches: frozenset[str]) -> int:
    """For preflight: what one row of capacity costs under these switches."""
    if "frame_ring" in switches:
        return bytes_per_row(spec.obs_shape, spec.obs_dtype)
    if "array_replay" in switches:
        return bytes_per_transition(spec.state_shape(stack), 4)
    return bytes_per_transition(spec.state_shape(stack), spec.obs_dtype.itemsize) + BYTES_OF_PYTHON_OBJECTS


def replay_on_device(switches: frozenset[str]) -> bool:
    return "device_ring" in switches


def replay_on_host(config: Config, switches: frozenset[str]) -> Config:
    """The config where the replay must be a ring on the host, because of a setting; refused where a switch says no."""
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
    """The config with the replay on the host; None where the device was asked for by name, or by what needs it."""
    resident, wishes = {"device_ring", *dependents("device_ring")}, config.switches
    if resident & set(wishes.on):
        return None
    off = (*wishes.off, *sorted(resident - set(wishes.off)))
    return config.model_copy(update={"switches": wishes.model_copy(update={"off": off})})


def build_launcher(switches: frozenset[str]) -> Launcher:
    return Graphed if "cuda_graph" in switches else as_it_is
