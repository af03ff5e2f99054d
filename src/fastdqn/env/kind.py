"""An EnvKind knows how to make one sort of environment; each file beside this one offers its own."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium

from fastdqn.env.base import LaneEnv
from fastdqn.transition import EnvSpec

MakeSingle = Callable[..., "gymnasium.Env[Any, Any]"]  # (render_mode: str | None = None) -> env
MakeLanes = Callable[[int, int], LaneEnv]  # (num_lanes, num_groups) -> lanes
MakeOnDevice = Callable[[int, str], Any]  # (num_lanes, device) -> boards as device_actor.DeviceActor moves them


@dataclass(frozen=True)
class EnvKind:
    """A name the user typed, resolved: its spec, its textbook maker and, where there is one, its fast maker."""

    spec: EnvSpec
    preset: str  # the preset to use when the user names none
    stack: int  # frames per state that this kind needs to be Markov
    make_single: MakeSingle  # one environment, as a book would write it; also the one that is filmed
    make_lanes: MakeLanes | None = None  # all lanes in one call
    make_on_device: MakeOnDevice | None = None  # all lanes in the memory of a device
    lanes_switch: str = "lane_vector_env"  # the switch that chooses make_lanes
    own: bool = False  # made by a function of the user's, which a run cannot keep
    settings: dict[str, Any] = field(default_factory=dict)  # resolved env settings, saved with the run
