"""The one interface of all environments: groups of lanes, send and recv, autoreset rule NEXT_STEP.

    env.reset(seeds)                  # starts every group; the first recv of a group is all `first`
    tick = env.recv(group)            # waits for the group's answer
    env.send(group, actions)          # starts the next step of that group, may return before it is done

Between `recv(g)` and `send(g)` a group is idle; with two groups one can emulate while the other is in the network.
Each lane draws from its own seed, so lane 3 plays the same game whatever the other lanes do.
"""

from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from fastdqn.transition import EnvSpec, Tick

State = dict[str, Any]  # what state() returns: NumPy arrays and plain JSON values only, nested at most in dicts


class LaneEnv(Protocol):
    """A vector environment."""

    spec: EnvSpec
    num_lanes: int
    groups: tuple[slice, ...]  # the lanes of each group; together they cover range(num_lanes) in order

    def reset(self, seeds: list[int]) -> None: ...
    def send(self, group: int, actions: np.ndarray) -> None: ...
    def recv(self, group: int) -> Tick: ...
    def close(self) -> None: ...

    def state(self) -> State:
        """Everything needed to go on exactly from here, or {'exact': False} where the emulator cannot be saved."""

    def load_state(self, state: State) -> None: ...


def split_lanes(num_lanes: int, num_groups: int) -> tuple[slice, ...]:
    """Contiguous groups whose sizes differ by at most one."""
    edges = np.linspace(0, num_lanes, num_groups + 1).astype(int)
    return tuple(slice(int(a), int(b)) for a, b in pairwise(edges))


def check_actions(actions: np.ndarray, num_actions: int) -> None:
    """An out-of-range action hangs ale-py for ever and reads past the end elsewhere: refuse it before it is sent."""
    if actions.min(initial=0) < 0 or actions.max(initial=0) >= num_actions:
        raise ValueError(f"action out of range: {actions} (the environment has {num_actions} actions)")
