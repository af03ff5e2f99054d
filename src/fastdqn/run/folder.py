"""The run folder: `runs/<env>-<date>-<suffix>/` or `runs/NAME`, made once, never shared between two runs."""

import json
import re
import secrets
import time
from os import PathLike
from pathlib import Path
from typing import Any

from fastdqn.config import Config, read_yaml, to_yaml, validate
from fastdqn.errors import UserError, nearest
from fastdqn.evaluator import Score
from fastdqn.metrics import read_rows
from fastdqn.run.machine import describe_machine

RUNS = Path("runs")
MACHINE = "machine.json"
CONFIG, METRICS, MODEL, CURVE, EVALUATIONS = (
    "config.yaml",
    "metrics.jsonl",
    "model.safetensors",
    "curve.png",
    "evaluations",
)


class RunFolder:
    """Paths and files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def metrics_path(self) -> Path:
        return self.path / METRICS

    @property
    def model_path(self) -> Path:
        return self.path / MODEL

    @property
    def curve_path(self) -> Path:
        return self.path / CURVE

    def config(self) -> Config:
        return validate(read_yaml(self.path / CONFIG))

    def metrics(self) -> list[dict[str, Any]]:
        return read_rows(self.metrics_path)

    def scores(self) -> list[dict[str, Any]]:
        """Every evaluation, by step."""
        files = sorted((self.path / EVALUATIONS).glob("*.json"))
        return sorted((json.loads(file.read_text()) for file in files), key=lambda score: score["step"])

    def write_score(self, score: Score, name: str = "") -> Path:
        folder = self.path / EVALUATIONS
        folder.mkdir(exist_ok=True)
        path = folder / f"step_{score.step:010d}{name}.json"
        path.write_text(json.dumps(score.as_json(), indent=1) + "\n")
        return path


def run_path(name: str | None, env_id: str) -> Path:
    """Where a new run goes. A plain name goes into runs/, a path is used as it is."""
    if name is None:
        slug = re.sub(r"[^a-z0-9]+", "-", env_id.lower()).strip("-")
        return RUNS / f"{slug}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    path = Path(name)
    if path.name in ("", ".."):
        raise UserError(f"'{name}' is no name for a run.")
    return path if len(path.parts) > 1 else RUNS / name


def check_new(path: Path) -> None:
    if _short_enough(path).exists() and (not path.is_dir() or any(path.iterdir())):
        raise _taken(path)


def create(path: Path, config: Config, decided: dict[str, Any] | None = None) -> RunFolder:
    """`decided` is what was chosen for the user: device, threads, switches. If two runs want the same folder at the
    same time, one gets it: the config is created, never replaced."""
    check_new(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with (path / CONFIG).open("x", encoding="utf-8") as file:
            file.write(to_yaml(config))
        (path / MACHINE).write_text(json.dumps(describe_machine() | {"run": decided or {}}, indent=1) + "\n")
    except FileExistsError:
        raise _taken(path) from None
    except OSError as error:
        raise UserError(f"The run folder {path} cannot be written: {error.strerror}.") from None
    return RunFolder(path)


def find(name: str | PathLike[str]) -> RunFolder:
    """An existing run by path, or by name in runs/."""
    given = _short_enough(Path(name))
    for path in (given, RUNS / given):
        if (path / CONFIG).is_file():
            return RunFolder(path)
    for path in (given, RUNS / given):
        if path.is_dir():
            raise UserError(f"{path} is not a run: it has no {CONFIG}.")
    names = sorted(file.parent.name for file in RUNS.glob(f"*/{CONFIG}"))
    known = f" Runs here: {', '.join(names[-8:])}." if names else " There are no runs in runs/ yet."
    raise UserError(f"There is no run '{name}'.{nearest(str(given.name), names)}{known}")


def _short_enough(path: Path) -> Path:
    if any(len(part.encode()) > 200 for part in path.parts):
        raise UserError(f"The name {path.name[:40]}... is too long for a run folder: 200 characters at most.")
    return path


def _taken(path: Path) -> UserError:
    return UserError(
        f"{path} already exists, and a run never writes over another. Choose another --run name, or start from its "
        f"weights with --from {path}."
    )
