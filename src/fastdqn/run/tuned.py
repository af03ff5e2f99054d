"""Profiles of `fastdqn tune`: the fastest settings of this machine for one workload, kept in the user's cache folder.

A profile applies to the machine and the workload it was measured with: the same environment, network, batch and samples
per step, starting from the same lanes, threads and switches. It is applied as a whole or not at all.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from fastdqn import __version__
from fastdqn.config import Config
from fastdqn.device.cores import usable_cores
from fastdqn.env.kind import EnvKind
from fastdqn.errors import UserError
from fastdqn.run.machine import cpu_name
from fastdqn.run.measured import cache_folder
from fastdqn.run.usage import DISTURBING_PERCENT

AUTO, NONE = "auto", "none"
TUNED = (
    "device",
    "runner",
    "actor.count",
    "actor.lanes",
    "actor.groups",
    "env.threads",
    "learner.threads",
    "switches.on",
    "switches.off",
)


@dataclass(frozen=True)
class Tuned:
    """One profile. `settings` are dotted, as `--set` takes them."""

    env_id: str
    work: dict[str, Any]
    machine: dict[str, Any]
    untuned: dict[str, Any]  # what the tuned settings were before
    settings: dict[str, Any]
    steps_per_second: float
    untuned_steps_per_second: float
    samples_per_step: float
    date: str
    others_cpu_percent: float = 0.0  # of one core, used by other programs while it was measured
    trials: list[dict[str, Any]] = field(default_factory=list)

    @property
    def gain(self) -> float:
        return self.steps_per_second / self.untuned_steps_per_second

    def lines(self) -> list[str]:
        """The result, for the user to read."""
        found = f"{self.steps_per_second:,.0f} steps/s at {self.samples_per_step:.3g} samples per step"
        if self.gain == 1.0:
            found += ": nothing that was tried is clearly faster than the defaults"
        else:
            found += f", untuned {self.untuned_steps_per_second:,.0f}: {self.gain:.2f}x, measured in turns"
        lines = [f"speed     {found}", f"settings  {self.words()}"]
        if self.others_cpu_percent > DISTURBING_PERCENT:
            busy = f"{self.others_cpu_percent:.0f} % of a core"
            lines.append(f"careful   other programs used {busy} meanwhile: better tune again when the machine is quiet")
        return lines

    def words(self) -> str:
        return ", ".join(f"{key}={_text(value)}" for key, value in self.settings.items() if value not in ([], None))

    def save(self, path: Path) -> None:
        """Written to a temporary file and renamed: a reader sees the old one or the new one."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(path.name + ".new")
            beside.write_text(json.dumps(asdict(self), indent=1) + "\n")
            beside.replace(path)
        except OSError as error:
            raise UserError(f"The profile cannot be written to {path}: {error.strerror}.") from None


def work_of(config: Config, kind: EnvKind, stack: int) -> dict[str, Any]:
    """What the speed depends on besides the machine and the tuned settings."""
    work = {
        "env": [kind.spec.env_id, list(kind.spec.state_shape(stack))],
        "env_settings": {name: value for name, value in kind.settings.items() if name != "threads"},
        "network": config.network.model_dump(),
        "learner": config.learner.model_dump(
            include={"batch_size", "steps_per_update", "double", "munchausen", "loss", "atoms", "optimizer", "target"}
        ),
        "replay": config.replay.model_dump(include={"n_step", "prioritised"}),
        "prefer": config.switches.prefer,
        "device": config.device if torch.cuda.is_available() else "cpu",
    }
    plain: dict[str, Any] = json.loads(json.dumps(work, default=str))  # as read back from a file
    return plain


def untuned_of(config: Config, kind: EnvKind) -> dict[str, Any]:
    """The settings that `tune` changes, as the user and the preset have them."""
    return {
        "runner": config.runner,
        "actor.count": config.actor.count,
        "actor.lanes": config.actor.lanes,
        "actor.groups": config.actor.groups,
        "env.threads": kind.settings.get("threads"),
        "learner.threads": config.learner.threads,
        "switches.on": list(config.switches.on),
        "switches.off": list(config.switches.off),
    }


def this_machine() -> dict[str, Any]:
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    versions = {"torch": torch.__version__, "fastdqn": __version__}
    return {"cpu": cpu_name(), "usable_cores": usable_cores(), "gpu": gpu, **versions}


def profile_path(work: Mapping[str, Any]) -> Path:
    env_id = "".join(letter if letter.isalnum() else "-" for letter in work["env"][0])
    digest = hashlib.sha256(json.dumps(work, sort_keys=True).encode()).hexdigest()[:8]
    return cache_folder() / "profiles" / f"{env_id}-{digest}.json"


def load_profile(path: Path) -> Tuned:
    try:
        tuned = Tuned(**json.loads(path.read_text()))
    except OSError as error:
        raise UserError(f"The profile {path} cannot be read: {error.strerror}.") from None
    except (ValueError, TypeError):
        raise UserError(f"{path} is no profile of fastdqn tune.") from None
    parts = (tuned.work, tuned.machine, tuned.untuned, tuned.settings)
    if not all(isinstance(part, dict) for part in parts) or not set(tuned.settings) <= set(TUNED):
        raise UserError(f"{path} is no profile of fastdqn tune.")
    return tuned


def find_profile(profile: str, work: Mapping[str, Any]) -> Tuned | None:
    """The profile in the file of that name; for `auto` the one of this workload, if there is one."""
    if profile != AUTO:
        return load_profile(Path(profile))
    try:
        return load_profile(profile_path(work))
    except UserError:
        return None  # there is none, or it is unreadable or half written: a broken cache is not the user's fault


def why_not(tuned: Tuned, work: Mapping[str, Any], untuned: Mapping[str, Any], by_hand: Mapping[str, Any]) -> str:
    """Why a profile does not apply to this run, or the empty string. What is set by hand is never changed."""
    here = this_machine()
    if different := [name for name in here if tuned.machine.get(name) != here[name]]:
        facts = ", ".join(f"{name} {tuned.machine.get(name)}, here {here[name]}" for name in different)
        return f"it was measured on another machine ({facts})"
    if tuned.work != work:
        return "it was measured with another environment, network, batch or number of samples per step"
    for name in TUNED:
        if by_hand.get(name, "auto") not in ("auto", tuned.settings.get(name)):
            return f"{name} is set by hand"
    for name, value in untuned.items():
        if value not in (tuned.untuned.get(name), tuned.settings.get(name)):
            return f"{name} is {_text(value)}, and was {_text(tuned.untuned.get(name))} when it was measured"
    return ""


def _text(value: Any) -> str:
    return ("+".join(map(str, value)) or "nothing") if isinstance(value, list) else str(value)
