"""Records: what was measured, on which machine, with which versions, by which command. Appended, never edited.

A record is a folder `benchmarks/records/<date>-<name>/` with `record.json` and, where runs were trained, `metrics.jsonl`
with their curves. docs/records.md explains every key.
"""

import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fastdqn.bench.identity import Subject
from fastdqn.errors import UserError

VERSION = 1
POINTS_PER_CURVE = 60  # a longer curve is thinned to so many
Record = dict[str, Any]


class Keeper:
    """One record on its way: saved after every row, so that a measurement that is stopped keeps what it has."""

    def __init__(self, kind: str, about: Subject, measuring: dict[str, Any], folder: str, name: str | None = None) -> None:
        day = time.strftime("%Y-%m-%d")
        self._wanted = _checked(Path(folder) / f"{day}-{_plain(name or f'{kind}-{about.config.env_id}')}")
        self.path, self._made = _fresh(self._wanted), False
        self.curves: list[dict[str, Any]] = []
        self.record: Record = {
            "version": VERSION,
            "kind": kind,
            "id": self.path.name,
            "title": about.title(kind),
            "command": command_line(),
            "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "complete": False,
            "notes": [],
            "machine": about.machine,
            "env_id": about.config.env_id,
            "protocol": about.protocol,
            "config": about.config.model_dump(mode="json"),
            "device": about.device,
            "switches": about.switches,
            "measuring": measuring,
            "rows": [],
            "ceiling": None,
        }

    def save(self) -> None:
        if not self._made:
            self._make_folder()
        _write_beside(self.path / "record.json", json.dumps(rounded(self.record), indent=1) + "\n")
        if self.curves:
            lines = "".join(json.dumps(rounded(point)) + "\n" for point in thinned(self.curves))
            _write_beside(self.path / "metrics.jsonl", lines)

    def finish(self) -> None:
        self.record["complete"] = True
        self.save()

    def _make_folder(self) -> None:
        """One of its own, also where another measurement of that name was begun at the same time."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while not self._made:
            try:
                self.path.mkdir()
                self._made = True
            except FileExistsError:
                self.path = _fresh(self._wanted)
        self.record["id"] = self.path.name


def command_line() -> str:
    """The command as it can be typed again anywhere: where the record went is left out."""
    words = [Path(sys.argv[0]).name if not sys.argv[0].endswith("__main__.py") else "fastdqn"]
    given = iter(sys.argv[1:])
    for word in given:
        if word == "--out":
            next(given, None)
        elif not word.startswith("--out="):
            words.append(word)
    return " ".join(word if re.fullmatch(r"[\w./:=,\[\]+-]+", word) else shlex.quote(word) for word in words)


def thinned(points: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most POINTS_PER_CURVE points of each run, its first and last among them."""
    runs: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for point in points:
        runs.setdefault((point.get("rung"), point.get("seed")), []).append(point)
    kept = []
    for run in runs.values():
        step = max(1.0, (len(run) - 1) / (POINTS_PER_CURVE - 1))
        numbers = sorted({round(i * step) for i in range(POINTS_PER_CURVE)} & set(range(len(run))))
        kept += [run[number] for number in numbers]
    return kept


def rounded(value: Any) -> Any:
    """Six significant digits are more than any clock here gives, and keep the files small."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _checked(path: Path) -> Path:
    """Refused before anything is measured: a place where the record could not be written."""
    if any(len(part.encode()) > 200 for part in path.parts):
        raise UserError(f"The name {path.name[:40]}... is too long for a record: 200 characters at most.")
    existing = next(place for place in path.parents if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise UserError(f"Records cannot be written into {path.parent}: {existing} is no folder that can be written to.")
    return path


def _fresh(path: Path) -> Path:
    """The path, or with a number behind it: a record is never written over."""
    number, fresh = 2, path
    while fresh.exists():
        fresh, number = path.with_name(f"{path.name}-{number}"), number + 1
    return fresh


def _write_beside(path: Path, text: str) -> None:
    beside = path.with_suffix(".part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
