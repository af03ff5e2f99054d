"""From what the user asked for to a checked Job: environment found, config resolved, device chosen, memory counted.

Nothing is allocated or written here, so every bad input ends before it can leave something half-done.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fastdqn.build import (
    active_switches,
    build_network,
    default_threads,
    replay_bytes_per_row,
    rows_per_lane,
    stack_of,
)
from fastdqn.config import Config, load_preset, make_config
from fastdqn.env.cores import usable_cores
from fastdqn.env.kind import EnvKind
from fastdqn.env.registry import EnvName, find_env
from fastdqn.errors import UserError
from fastdqn.learner.network import MakeBody, choose_kind
from fastdqn.run.preflight import Need, choose_device


@dataclass(frozen=True)
class Job:
    config: Config
    kind: EnvKind
    device: str
    threads: int
    parameters: int
    needs: tuple[Need, ...]
    own_network: MakeBody | None


def prepare(
    env: EnvName,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    imports: Iterable[str] = (),
    network: MakeBody | None = None,
) -> Job:
    """`settings` are dotted, such as {'learner.batch_size': 128, 'env.dim': 6}."""
    settings = dict(settings or {})
    env_settings = _env_settings(preset, settings)
    kind = find_env(env, env_settings, imports)
    for key in [key for key in settings if key.startswith("env.")]:
        del settings[key]
    settings |= {"env": kind.settings, "imports": list(imports)}
    config = make_config(kind.spec.env_id, preset or kind.preset, settings)
    switches, _ = active_switches(config, kind)
    stack = stack_of(config, kind)
    large = choose_kind(config.network.kind, kind.spec.state_shape(stack)) == "nature"
    device = choose_device(config.device, large)
    parameters = sum(p.numel() for p in build_network(config, kind, network).parameters())
    row = replay_bytes_per_row(kind.spec, stack, switches)
    rows = rows_per_lane(config, stack) * config.actor.lanes
    # online, target, gradients and two moments of the optimizer
    needs = (Need("replay", rows * row, per_row=row), Need("network and optimizer", parameters * 4 * 5))
    return Job(config, kind, device, default_threads(config, kind, device, usable_cores()), parameters, needs, network)


def _env_settings(preset: str | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The env section of the preset, overridden by env.* settings."""
    section = dict(load_preset(preset).get("env", {})) if preset else {}
    if "env" in settings:
        raise UserError("'env' is a section: set one of its settings, for example env.dim=6.")
    for key, value in settings.items():
        name = key.removeprefix("env.")
        if name != key:
            section[name] = value
    return section
