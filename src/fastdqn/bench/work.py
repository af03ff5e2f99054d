"""The work that is measured: an environment with its settings, and the tasks made from it for measuring processes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastdqn.bench.children import Task
from fastdqn.config import Config
from fastdqn.prepare import Job, prepare

CORES = "cores"


@dataclass(frozen=True)
class Work:
    env: str
    preset: str | None
    settings: dict[str, Any]
    imports: tuple[str, ...]
    job: Job  # as it would be trained without a measurement

    def task(self, settings: Mapping[str, Any], **more: Any) -> Task:
        """`cores` among the settings is no setting of a run: the measuring process keeps to so many."""
        if CORES in settings:
            more[CORES], settings = settings[CORES], without_cores(settings)
        return {
            "env": self.env,
            "preset": self.preset,
            "settings": {**self.settings, "device": self.job.device, **settings},  # one device for all rows
            "imports": list(self.imports),
            **more,
        }


def parts_beyond_plain(config: Config) -> str:
    """A part of learning that no other program here has, or the empty string."""
    parts = {
        "replay.prioritised": config.replay.prioritised,
        "network.dueling": config.network.dueling,
        "network.norm": config.network.norm != "none",
        "network.kind=impala": config.network.kind == "impala",
        "learner.munchausen": config.learner.munchausen,
        "learner.optimizer=adamw": config.learner.optimizer == "adamw",
        f"learner.loss={config.learner.loss}": config.learner.loss not in ("huber", "mse"),
    }
    return next((name for name, is_set in parts.items() if is_set), "")


def without_cores(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != CORES}


def make_work(env: str, preset: str | None, settings: Mapping[str, Any], imports: Sequence[str] = ()) -> Work:
    """Checked at once: a wrong setting is refused before anything is measured."""
    return Work(env, preset, dict(settings), tuple(imports), prepare(env, preset, settings, imports))
