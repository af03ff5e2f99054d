"""Every speed-up: its name, its file, what it promises, what it needs. LADDER is the order they are measured in.

A switch says nothing about how it works; only build.py, build_learner.py and build_replay.py ask whether one is on.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from fastdqn.device.hardware import lacks
from fastdqn.errors import UserError, nearest


class Promise(Enum):
    """What turning the switch on does to the numbers; it decides which test applies."""

    SAME_NUMBERS = "bit-equal batches, or losses and gradients equal to 1e-5"
    SAME_DISTRIBUTION = "a statistical test cannot tell the two apart"
    SAME_LEARNING = "the same learning curve within 10 % over seeds"
    TRADE = "changes what is learned; its cost is reported and it is never a default"


@dataclass(frozen=True)
class Switch:
    name: str
    file: str  # under src/fastdqn/
    promise: Promise
    summary: str  # one line: what it does, and what happens when it is off
    default: bool = True
    needs: tuple[str, ...] = ()  # other switches
    machine: tuple[str, ...] = ()  # what the machine must have: keys of hardware.NEEDS
    clashes: tuple[str, ...] = ()


LADDER = (
    Switch(
        "no_grad",
        "learner/backprop.py",
        Promise.SAME_NUMBERS,
        "the TD target is computed under torch.no_grad; off: it builds an autograd graph that is thrown away",
    ),
    Switch(
        "inference_mode",
        "actor/greedy.py",
        Promise.SAME_NUMBERS,
        "acts under torch.inference_mode; off: every action builds an autograd graph that nobody uses",
    ),
    Switch(
        "array_replay",
        "replay/textbook/arrays.py",
        Promise.SAME_NUMBERS,
        "whole transitions in arrays, a batch is one gather; off: a deque of tuples, tensors made one by one",
    ),
    Switch(
        "frame_ring",
        "replay/ring.py",
        Promise.SAME_NUMBERS,
        "each frame stored once in its own dtype, stacks made when drawn; off: float32 stacks, each frame 2 x stack times",
        needs=("array_replay",),
    ),
    Switch(
        "compiled_draw",
        "replay/fast/compiled_draw.py",
        Promise.SAME_NUMBERS,
        "a batch is drawn and put together in two compiled calls; off: some thirty calls of NumPy",
        needs=("frame_ring",),
    ),
    Switch(
        "many_lanes",
        "actor/policy.py",
        Promise.SAME_LEARNING,
        "actor.lanes environments act in one batched forward pass; off: one environment, one state at a time",
    ),
    Switch(
        "lane_vector_env",
        "env/snake_lanes.py",
        Promise.SAME_NUMBERS,
        "all lanes of Snake or CartPole stepped in one call; off: one Gymnasium environment after another in Python",
    ),
    Switch(
        "native_atari",
        "env/atari.py",
        Promise.SAME_NUMBERS,
        "ale-py's C++ vector environment; off: the textbook chain of Python wrappers around each game",
    ),
    Switch(
        "grads_to_none",
        "learner/backprop.py",
        Promise.SAME_NUMBERS,
        "gradients are dropped before each update; off: they are filled with zeros and added to",
    ),
    Switch(
        "inplace_relu",
        "learner/network.py",
        Promise.SAME_NUMBERS,
        "ReLU overwrites its input; off: it allocates its output",
    ),
    Switch(
        "fused_optimizer",
        "learner/optimizer.py",
        Promise.SAME_NUMBERS,
        "all weights stepped in one call (fused Adam, foreach RMSprop); off: the optimizer as torch makes it by default",
    ),
    Switch(
        "hand_written",
        "learner/fast/hand_written.py",
        Promise.SAME_NUMBERS,
        "the backward pass of our own networks hand-written; off: autograd",
        clashes=("compile", "fp16"),
    ),
    Switch(
        "target_ahead",
        "learner/backprop.py",
        Promise.SAME_NUMBERS,
        "the target network's values for all updates that are due in one pass; off: batch by batch",
        clashes=("compile",),
    ),
    Switch(
        "keep_memory",
        "device/kept_memory.py",
        Promise.SAME_NUMBERS,
        "freed memory stays with the process; off: large blocks go back to the system and are cleared anew each update",
        machine=("glibc",),
    ),
    Switch(
        "measured_threads",
        "run/probe.py",
        Promise.SAME_NUMBERS,
        "torch gets the number of CPU threads that a short trial found fastest; off: one per core",
    ),
    Switch(
        "channels_last",
        "learner/network.py",
        Promise.SAME_NUMBERS,
        "convolutions keep the channels of a pixel together in memory; off: channel planes",
        default=False,
    ),
    Switch(
        "pinned_copies",
        "learner/transfer.py",
        Promise.SAME_NUMBERS,
        "batches go to the GPU from pinned memory, asynchronously; off: from pageable memory, waiting for each copy",
        machine=("cuda",),
    ),
    Switch(
        "cudnn_benchmark",
        "learner/fast/precision.py",
        Promise.SAME_NUMBERS,
        "cuDNN tries its convolution algorithms once and keeps the fastest; off: it guesses",
        machine=("cuda",),
    ),
    Switch(
        "tf32",
        "learner/fast/precision.py",
        Promise.SAME_DISTRIBUTION,
        "matrix products on tensor cores with 10 bits of mantissa; off: full float32",
        machine=("cuda",),
    ),
    Switch(
        "bf16",
        "learner/fast/precision.py",
        Promise.SAME_DISTRIBUTION,
        "forward and backward passes in bfloat16 (autocast), weights and optimizer in float32; off: all float32",
        default=False,
        machine=("bf16",),
    ),
    Switch(
        "fp16",
        "learner/fast/precision.py",
        Promise.SAME_DISTRIBUTION,
        "passes in float16 (autocast) with a loss scaler, weights and optimizer in float32; off: all float32",
        default=False,
        machine=("cuda",),
        clashes=("bf16",),
    ),
    Switch(
        "one_pass_optimizer",
        "learner/fast/one_pass.py",
        Promise.SAME_NUMBERS,
        "weights, moments and bfloat16 weights in one walk through memory; off: torch's steps, and copies before and after",
        needs=("fused_optimizer",),
        machine=("cpu",),
    ),
    Switch(
        "lean_mlp",
        "learner/fast/lean.py",
        Promise.SAME_NUMBERS,
        "a fully connected network acts and learns in twenty calls, skipping zero inputs; off: a hundred calls of torch",
        needs=("hand_written", "fused_optimizer"),
        machine=("cpu",),
    ),
    Switch(
        "shadow_weights",
        "learner/fast/shadow.py",
        Promise.SAME_DISTRIBUTION,
        "autograd through bfloat16 copies of the weights that the optimizer keeps up; off: autocast casts at every use",
        needs=("bf16",),
        machine=("cpu",),
        clashes=("compile",),
    ),
    Switch(
        "device_ring",
        "replay/fast/device_ring.py",
        Promise.SAME_DISTRIBUTION,
        "the ring lives in GPU memory and batches are drawn there; off: they are drawn on the host and copied",
        needs=("frame_ring",),
        machine=("cuda",),
    ),
    Switch(
        "fused_draw",
        "replay/fast/fused_draw.py",
        Promise.SAME_NUMBERS,
        "a batch is drawn from the ring on the GPU in three kernels; off: dozens of torch",
        needs=("device_ring",),
        machine=("cuda", "compiler"),
    ),
    Switch(
        "cuda_graph",
        "device/graphs.py",
        Promise.SAME_NUMBERS,
        "acting, storing, and drawing with its updates are one launch each; off: kernel by kernel",
        needs=("device_ring", "fused_optimizer"),
        machine=("cuda",),
        clashes=("fp16", "compile"),
    ),
    Switch(
        "device_snake",
        "env/device_snake.py",
        Promise.SAME_NUMBERS,
        "Snake's boards live in GPU memory and are stepped there; off: they are stepped on the host and copied",
        needs=("device_ring", "lane_vector_env"),
        machine=("cuda",),
    ),
    Switch(
        "wide_optimizer",
        "learner/fast/wide_optimizer.py",
        Promise.SAME_NUMBERS,
        "one kernel steps all weights on the whole GPU; off: torch's fused Adam, which keeps most of a GPU waiting",
        needs=("hand_written", "fused_optimizer"),
        machine=("cuda", "compiler"),
    ),
    Switch(
        "folded_conv",
        "learner/fast/folding.py",
        Promise.SAME_NUMBERS,
        "a first convolution with long strides reads blocks of pixels as channels; off: few channels, and slow products",
        needs=("hand_written",),
        machine=("cuda",),
    ),
    Switch(
        "overlap",
        "learner/fast/overlapped.py",
        Promise.SAME_LEARNING,
        "acts beside the updates, with weights one round old; off: an action waits for the updates queued before it",
        default=False,
        needs=("cuda_graph",),
        machine=("cuda",),
    ),
    Switch(
        "compile",
        "learner/fast/compiled.py",
        Promise.SAME_NUMBERS,
        "the loss and its gradients compiled by torch.compile; off: one kernel after another",
        default=False,
        machine=("compiler",),
    ),
)
SWITCHES = {switch.name: switch for switch in LADDER}
KEEPS_BYTES = "frame_ring"  # stores each frame once, in its own dtype
LOW_PRECISION = ("bf16", "fp16", "tf32")  # compute in less than float32


def resolve(
    on: Iterable[str], off: Iterable[str], prefer: Iterable[str] = (), device: str = "cpu"
) -> tuple[frozenset[str], list[str]]:
    """The switches that are on, and a line for each default or preferred switch that was left off.
    Requests by name (`on`, `off`) win; a request that cannot be met raises UserError."""
    on, off, prefer = list(on), list(off), list(prefer)
    for name in [*on, *off, *prefer]:
        if name not in SWITCHES:
            raise UserError(f"Unknown switch '{name}'.{nearest(name, SWITCHES)} All switches: fastdqn switches.")
    if both := set(on) & set(off):
        raise UserError(f"The switch {sorted(both)[0]} is both turned on and turned off.")
    active = ({switch.name for switch in LADDER if switch.default} | set(prefer)) - set(off) | set(on)
    notes = _leave_what_the_machine_lacks(active, on, prefer, device)
    while troubled := [switch.name for switch in LADDER if switch.name in active and _trouble(switch, active)]:
        gives_way = next((name for name in troubled if name not in on), None)
        if gives_way is None:
            raise UserError(f"The switch {troubled[0]} {_trouble(SWITCHES[troubled[0]], active)}.")
        if gives_way in prefer or not _belongs_to_another(SWITCHES[gives_way], active):
            notes.append(f"{gives_way} is left off: it {_trouble(SWITCHES[gives_way], active)}")
        active.discard(gives_way)
    return frozenset(active), notes


def dependents(name: str) -> set[str]:
    """The switches that need this one, directly or indirectly."""
    found = {switch.name for switch in LADDER if name in switch.needs}
    return found.union(*(dependents(other) for other in found))


def _leave_what_the_machine_lacks(active: set[str], on: list[str], prefer: list[str], device: str) -> list[str]:
    """Removes from `active` what this machine cannot do. Preferred switches get a line; defaults are removed silently,
    such as those that need a GPU."""
    lacking: dict[str, list[str]] = {}
    for switch in [switch for switch in LADDER if switch.name in active]:
        missing = next(filter(None, (lacks(need, device) for need in switch.machine)), "")
        if missing and switch.name in on:
            raise UserError(f"The switch {switch.name} needs {missing}, which is not there (device {device}).")
        if missing:
            active.discard(switch.name)
        if missing and switch.name in prefer:
            lacking.setdefault(missing, []).append(switch.name)
    return [f"left off, for want of {missing}: {', '.join(names)}" for missing, names in lacking.items()]


def _belongs_to_another(switch: Switch, active: set[str]) -> bool:
    """Whether it only adds to a switch that is off by default: nobody misses it without that one."""
    return any(name not in active and not SWITCHES[name].default for name in switch.needs)


def _trouble(switch: Switch, active: set[str]) -> str:
    """Why this switch cannot be on together with the others, or the empty string. A clash may be declared on either side."""
    for name in switch.needs:
        if name not in active:
            return f"needs {name}"
    for name in sorted(active - {switch.name}):
        if name in switch.clashes or switch.name in SWITCHES[name].clashes:
            return f"does not go together with {name}"
    return ""
