"""Every speed-up: its name, its file, what it promises, what it needs. LADDER is the order they are measured in.

A switch says nothing about how it works; build.py is the only file that asks whether one is on.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from fastdqn.errors import UserError, nearest


class Promise(Enum):
    """What turning the switch on does to the numbers; it chooses the test."""

    SAME_NUMBERS = "bit-equal batches, or losses and gradients equal to 1e-5"
    SAME_DISTRIBUTION = "a statistical test cannot tell the two apart"
    SAME_LEARNING = "the same learning curve within 10 % over seeds"
    TRADE = "changes what is learned; its cost is reported and it is never a default"


@dataclass(frozen=True)
class Switch:
    name: str
    file: str  # under src/fastdqn/
    promise: Promise
    summary: str  # one line: what it does, against what
    default: bool = True
    needs: tuple[str, ...] = ()
    clashes: tuple[str, ...] = ()


LADDER = (
    Switch(
        "inference_mode",
        "actor/greedy.py",
        Promise.SAME_NUMBERS,
        "acts under torch.inference_mode; off: every action builds an autograd graph that nobody uses",
    ),
    Switch(
        "array_replay",
        "replay/arrays.py",
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
        "lane_vector_env",
        "env/snake_lanes.py",
        Promise.SAME_NUMBERS,
        "all lanes stepped in one compiled call; off: one Gymnasium environment after another in Python",
    ),
    Switch(
        "native_atari",
        "env/atari.py",
        Promise.SAME_NUMBERS,
        "ale-py's C++ vector environment; off: the textbook chain of Python wrappers around each game",
    ),
)
SWITCHES = {switch.name: switch for switch in LADDER}


def resolve(on: Iterable[str], off: Iterable[str]) -> tuple[frozenset[str], list[str]]:
    """The set of switches that are on, and a line for each that had to follow another. Asked for by name wins over
    defaults; two wishes that contradict each other are refused."""
    on, off = list(on), list(off)
    for name in [*on, *off]:
        if name not in SWITCHES:
            raise UserError(f"Unknown switch '{name}'.{nearest(name, SWITCHES)} All switches: fastdqn switches.")
    if both := set(on) & set(off):
        raise UserError(f"The switch {sorted(both)[0]} is both turned on and turned off.")
    active = {switch.name for switch in LADDER if switch.default} - set(off) | set(on)
    notes = []
    while troubled := [switch.name for switch in LADDER if switch.name in active and _trouble(switch, active)]:
        gives_way = next((name for name in troubled if name not in on), None)
        if gives_way is None:
            raise UserError(f"The switch {troubled[0]} {_trouble(SWITCHES[troubled[0]], active)}.")
        notes.append(f"{gives_way} is left off: it {_trouble(SWITCHES[gives_way], active)}")
        active.discard(gives_way)
    return frozenset(active), notes


def _trouble(switch: Switch, active: set[str]) -> str:
    """Why this switch cannot be on beside the others, or the empty string. A clash may be declared on either side."""
    for name in switch.needs:
        if name not in active:
            return f"needs {name}"
    for name in sorted(active - {switch.name}):
        if name in switch.clashes or switch.name in SWITCHES[name].clashes:
            return f"does not go together with {name}"
    return ""
