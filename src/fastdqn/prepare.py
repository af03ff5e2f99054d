"""Turns the user's request into a checked Job: environment found, config resolved, device chosen, memory counted.

Nothing of the run is allocated or written here, so bad input is refused before anything is left half-done. If the machine
has a GPU and no device was requested, a trial of a few seconds decides, once per machine and workload.
"""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
import torch

from fastdqn.build import (
    active_switches,
    build_network,
    measures_threads,
    stack_of,
    with_switches,
)
from fastdqn.build_replay import (
    priority_bytes,
    replay_bytes_per_row,
    replay_on_device,
    replay_on_host,
    rows_per_lane,
    with_replay_in_ram,
)
from fastdqn.config import Config, load_preset, make_config, parse_number
from fastdqn.device.cores import usable_cores
from fastdqn.env.kind import EnvKind
from fastdqn.env.registry import EnvName, find_env
from fastdqn.errors import UserError
from fastdqn.learner.network import MakeBody, QNetwork
from fastdqn.processes.build_roles import section_of
from fastdqn.processes.shared import size_of
from fastdqn.processes.slots import push_of, slot_fields
from fastdqn.run.preflight import Need, check_device, check_memory, device_memory
from fastdqn.run.probe import measured_device, measured_threads
from fastdqn.run.tuned import AUTO, NONE, Tuned, find_profile, untuned_of, why_not, work_of
from fastdqn.runner.limits import evaluation_interval
from fastdqn.transition import EnvSpec

BYTES_OF_A_ROLE = 250 * 2**20  # a process that has imported torch
IGNORED = "the profile of fastdqn tune is ignored"


@dataclass(frozen=True)
class Job:
    config: Config
    kind: EnvKind
    device: str
    switches: frozenset[str]
    threads: int  # CPU threads of torch; 0: to be measured, see with_threads
    parameters: int
    needs: tuple[Need, ...]
    own_network: MakeBody | None
    notes: tuple[str, ...]  # what was decided for the user, one line each
    asked: Config  # the config before these decisions; profiles are looked up by it
    env: EnvName = ""  # as passed in

    @property
    def judges(self) -> bool:
        """Whether the run evaluates, during training or at the end."""
        return self.config.evaluator.at_end or evaluation_interval(self.config) > 0


def prepare(
    env: EnvName,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    imports: Iterable[str] = (),
    network: MakeBody | None = None,
    from_run: str | PathLike[str] | None = None,
    profile: str = NONE,
) -> Job:
    """`settings` have dotted keys, such as {'learner.batch_size': 128, 'env.dim': 6}. A run that starts from trained
    weights (`from_run`) starts at epsilon_end unless epsilon_start is set. `profile` is a profile of `fastdqn tune`:
    a file, or `auto` for this machine's."""
    settings, imports = dict(settings or {}), tuple(imports)
    resolved = _resolve(env, preset, settings, imports, from_run)
    tuned, line = (None, "") if profile == NONE else _tuned_for(*resolved[:2], settings, profile, network)
    if tuned is not None:
        try:
            job = _job(*_resolve(env, preset, settings | tuned.settings, imports, from_run), network)
            check_memory_of(job)
            return replace(job, notes=(*job.notes, line), env=env)
        except UserError as fault:  # a switch that no longer exists, or a replay that does not fit where the profile puts it
            line = f"{IGNORED}: {fault}"
    job = _job(*resolved, network)
    return replace(job, notes=(*job.notes, *[line] * bool(line)), env=env)


def _job(config: Config, kind: EnvKind, notes: tuple[str, ...], network: MakeBody | None) -> Job:
    asked, device = config, config.learner.device or config.device
    if device == "auto":
        device = measured_device(config, kind, network)
    for place in (device, config.actor.device, config.evaluator.device):
        check_device(place or "cpu")
    example = _network_to_look_at(config, kind, network)
    parameters = sum(parameter.numel() for parameter in example.parameters())
    config = replay_on_host(config, active_switches(config, kind, device, example)[0])
    config, more = _replay_where_it_fits(config, kind, device, parameters, example)
    switches, _ = active_switches(config, kind, device, example)
    config, notes = with_switches(config, switches), (*notes, *more)
    needs = memory_needs(config, kind.spec, stack_of(config, kind), switches, parameters)
    threads = config.learner.threads or (0 if measures_threads(switches) else usable_cores())
    return Job(config, kind, device, switches, threads, parameters, needs, network, notes, asked)


def _replay_where_it_fits(
    config: Config, kind: EnvKind, device: str, parameters: int, network: QNetwork
) -> tuple[Config, tuple[str, ...]]:
    """A replay that does not fit on the GPU stays in RAM, with a note, unless the GPU was requested by name."""
    switches, _ = active_switches(config, kind, device, network)
    free, in_ram = device_memory(device), with_replay_in_ram(config)
    if free is None or in_ram is None or not replay_on_device(switches):
        return config, ()
    needs = memory_needs(with_switches(config, switches), kind.spec, stack_of(config, kind), switches, parameters)
    try:
        check_memory([need for need in needs if need.on_device], free, where=f"memory on {device}")
    except UserError as fault:
        return in_ram, (f"the replay stays in RAM. {fault}",)
    return config, ()


def check_memory_of(job: Job) -> None:
    """Raises if the job does not fit into free memory: RAM, and that of a device with its own memory."""
    free, in_memory = device_memory(job.device), [need for need in job.needs if not need.on_disk]
    if free is None:
        return check_memory(in_memory)
    check_memory([need for need in in_memory if not need.on_device])
    check_memory([need for need in in_memory if need.on_device], free, where=f"memory on {job.device}")


def _resolve(
    env: EnvName,
    preset: str | None,
    settings: dict[str, Any],
    imports: tuple[str, ...],
    from_run: str | PathLike[str] | None,
) -> tuple[Config, EnvKind, tuple[str, ...]]:
    """Finds the environment and makes the config, with a line for each decision made for the user."""
    settings = dict(settings)
    kind = find_env(env, _env_settings(preset, settings), imports)
    for key in [key for key in settings if key.startswith("env.")]:
        del settings[key]
    settings |= {"env": kind.settings, "imports": list(imports), "own_env": kind.own}
    if from_run is not None:
        settings["from_run"] = str(from_run)
    if {"limits.minutes", "limits.episodes"} & set(settings):  # --minutes 10 means ten minutes, not the preset's steps
        settings.setdefault("limits.steps", None)
    config = make_config(kind.spec.env_id, preset or kind.preset, settings)
    config, notes = _shorten_warmup(config, settings)
    if from_run is not None and "actor.epsilon_start" not in settings:
        actor = config.actor.model_copy(update={"epsilon_start": config.actor.epsilon_end})
        config = config.model_copy(update={"actor": actor})
    return config, kind, notes


def _tuned_for(
    config: Config, kind: EnvKind, settings: Mapping[str, Any], profile: str, network: MakeBody | None
) -> tuple[Tuned | None, str]:
    """The profile that applies to this run and a line that says so; or None, and the reason if there was one."""
    if kind.own or network is not None:  # functions cannot be compared
        return None, "" if profile == AUTO else f"{IGNORED}: an environment or network of your own has none"
    work, untuned = work_of(config, kind, stack_of(config, kind)), untuned_of(config, kind)
    tuned = find_profile(profile, work)
    if tuned is None:
        return None, ""
    if reason := why_not(tuned, work, untuned, settings):
        return None, f"{IGNORED}: {reason}"
    return tuned, f"tuned for this machine on {tuned.date} ({tuned.words()}); --profile none ignores it"


def with_threads(job: Job) -> Job:
    """The job with its thread count set, by a trial of a few seconds where it is to be measured."""
    if job.threads:
        return job
    return replace(job, threads=measured_threads(job.config, job.kind, job.device, job.own_network))


def memory_needs(config: Config, spec: EnvSpec, stack: int, switches: frozenset[str], parameters: int) -> tuple[Need, ...]:
    """Every buffer whose size depends on the settings."""
    row = replay_bytes_per_row(spec, stack, switches)
    rows = rows_per_lane(config, stack) * config.actor.lanes
    states = 2 * config.learner.batch_size * int(np.prod(spec.state_shape(stack)))  # states and next states, as float32
    lanes = config.actor.lanes + min(config.evaluator.lanes, config.evaluator.episodes)
    priorities = priority_bytes(config, rows, switches)
    frames = lanes * (stack + 2) * int(np.prod(spec.obs_shape)) * spec.obs_dtype.itemsize  # history, tick and its copy
    return (
        Need(
            "replay",
            rows * row,
            per_row=row,
            on_device=replay_on_device(switches),
            on_disk=config.replay.place == "file",
        ),
        *([Need("priorities", priorities, on_device=replay_on_device(switches))] if priorities else []),
        Need("frames of the lanes", frames),
        Need("network and optimizer", parameters * 4 * 5, on_device=True),  # online, target, gradients and two moments
        Need("batch", states * 4, on_device=True),
        *(_needs_of_processes(config, spec, parameters) if config.runner == "processes" else ()),
    )


def _needs_of_processes(config: Config, spec: EnvSpec, parameters: int) -> tuple[Need, ...]:
    """Shared memory, and the private memory of each process."""
    sections = [section_of(config, number) for number in range(config.actor.count)]
    lanes = [section.stop - section.start for section in sections]
    slots = sum(size_of(slot_fields(count, spec, push_of(config.actor.push, count, spec))) for count in lanes)
    copies = parameters * 4 * (2 + config.actor.count + 1)  # the two shared copies, and one per acting role
    return Need("slots", slots), Need("weights of the roles", copies), Need("processes", BYTES_OF_A_ROLE * (2 + len(lanes)))


def _network_to_look_at(config: Config, kind: EnvKind, own: MakeBody | None) -> QNetwork:
    """Without allocating weights, so that a network that is too large can still be refused; a user's own is built."""
    with torch.device("meta") if own is None else nullcontext():
        return build_network(config, kind, own)


def _shorten_warmup(config: Config, settings: Mapping[str, Any]) -> tuple[Config, tuple[str, ...]]:
    """Shortens a preset's warm-up that would take up the whole run. A warm-up set by the user stays."""
    steps, warmup = config.limits.steps, config.replay.warmup_steps
    if "replay.warmup_steps" in settings or steps is None or warmup < steps:
        return config, ()
    shorter = config.replay.model_copy(update={"warmup_steps": steps // 4})
    note = f"replay.warmup_steps is {steps // 4:,}, not {warmup:,}: the run has only {steps:,} steps"
    return config.model_copy(update={"replay": shorter}), (note,)


def _env_settings(preset: str | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The env section of the preset, overridden by env.* settings."""
    section = load_preset(preset).get("env", {}) if preset else {}
    if "env" in settings or not isinstance(section, dict):
        raise UserError("'env' is a section: set one of its settings, for example env.dim=6.")
    for name in ("env_id", "preset", "imports", "own_env", "from_run"):
        if name in settings:
            raise UserError(f"'{name}' is no setting: it follows from how the run is started.")
    section = {str(name): parse_number(value) for name, value in section.items()}
    for key, value in settings.items():
        name = key.removeprefix("env.")
        if name != key:
            section[name] = value
    return section
