"""What `fastdqn tune` found: the fastest settings of this machine for one work, kept in the user's cache folder.

A profile holds for the machine it was measured on and for the work it was measured with: the same environment, network,
batch and samples per step. It is taken as a whole or not at all.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from fastdqn.config import Config
from fastdqn.env.cores import usable_cores
from fastdqn.env.kind import EnvKind
from fastdqn.errors import UserError
from fastdqn.run.machine import cpu_name
from fastdqn.run.measured import cache_folder
from fastdqn.run.usage import DISTURBING_PERCENT

AUTO, NONE = "auto", "none"
TUNED = ("device", "actor.lanes", "actor.groups", "env.threads", "learner.threads", "switches.on", "switches.off")


@dataclass(frozen=True)
class Tuned:
    """One profile. `settings` are dotted, as `--set` takes them."""

    env_id: str
    work: dict[str, Any]
    machine: dict[str, Any]
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
        """What was found, for a user to read."""
        chosen = ", ".join(f"{key}={value}" for key, value in self.settings.items() if value not in ([], None))
        found = f"{self.steps_per_second:,.0f} steps/s at {self.samples_per_step:.3g} samples per step"
        if self.gain == 1.0:
            found += ": nothing that was tried is clearly faster than the defaults"
        else:
            found += f", untuned {self.untuned_steps_per_second:,.0f}: {self.gain:.2f}x, measured in turns"
        lines = [f"speed     {found}", f"settings  {chosen}"]
        if self.others_cpu_percent > DISTURBING_PERCENT:
            busy = f"{self.others_cpu_percent:.0f} % of a core"
            lines.append(f"careful   other programs used {busy} meanwhile: better tune again when the machine is quiet")
        return lines

    def save(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(path.name + ".new")
            beside.write_text(json.dumps(asdict(self), indent=1) + "\n")
            beside.replace(path)
        except OSError as error:
            raise UserError(f"The profile cannot be written to {path}: {error.strerror}.") from None


def work_of(config: Config, kind: EnvKind, stack: int) -> dict[str, Any]:
    """What a speed depends on beside the machine and the settings that are tuned."""
    return {
        "env": [kind.spec.env_id, list(kind.spec.state_shape(stack))],
        "network": config.network.model_dump(mode="json"),
        "learner": config.learner.model_dump(include={"batch_size", "steps_per_update", "double", "optimizer", "target"}),
        "n_step": config.replay.n_step,
    }


def this_machine() -> dict[str, Any]:
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return {"cpu": cpu_name(), "usable_cores": usable_cores(), "gpu": gpu, "torch": torch.__version__}


def profile_path(work: Mapping[str, Any]) -> Path:
    env_id = "".join(letter if letter.isalnum() else "-" for letter in work["env"][0])
    digest = hashlib.sha256(json.dumps(work, sort_keys=True).encode()).hexdigest()[:8]
    return cache_folder() / "profiles" / f"{env_id}-{digest}.json"


def load_profile(path: Path) -> Tuned:
    try:
        return Tuned(**json.loads(path.read_text()))
    except OSError as error:
        raise UserError(f"The profile {path} cannot be read: {error.strerror}.") from None
    except (ValueError, TypeError):
        raise UserError(f"{path} is no profile of fastdqn tune.") from None


def find_profile(profile: str, work: Mapping[str, Any]) -> Tuned | None:
    """The profile in the file of that name; for `auto` the one of this work, if there is one."""
    if profile != AUTO:
        return load_profile(Path(profile))
    path = profile_path(work)
    try:
        return load_profile(path) if path.is_file() else None
    except UserError:
        return None  # a half-written file in a cache is no fault of the user's


def why_not(tuned: Tuned, work: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Why a profile does not hold for this run, or the empty string."""
    here = this_machine()
    if tuned.machine != here:
        different = [name for name in here if tuned.machine.get(name) != here[name]]
        facts = ", ".join(f"{name} {tuned.machine.get(name)}, here {here[name]}" for name in different)
        return f"it was measured on another machine ({facts})"
    if tuned.work != json.loads(json.dumps(work)):
        return "it was measured with another environment, network, batch or number of samples per step"
    for name in TUNED:
        if name in settings and settings[name] != tuned.settings.get(name):
            return f"{name} is set by hand"
    return ""
