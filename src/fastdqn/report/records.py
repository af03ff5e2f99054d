"""Finds and reads the records of a report. Whatever is no record is refused with its name."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastdqn.errors import UserError

RECORD_FILE, METRICS_FILE = "record.json", "metrics.jsonl"
RECORD_VERSION = 1
DEFAULT_PLACE = "benchmarks/records"  # where `fastdqn bench` writes


@dataclass(frozen=True)
class Record:
    """One measured record: the file's content, where it lies, and the points of its learning curves."""

    data: dict[str, Any]
    path: Path
    metrics: list[dict[str, Any]]

    @property
    def kind(self) -> str:
        return str(self.data["kind"])

    @property
    def id(self) -> str:
        return str(self.data.get("id") or self.path.parent.name)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for row in self.data["rows"] if isinstance(row, dict)]

    @property
    def machine(self) -> dict[str, Any]:
        return self.table("machine")

    @property
    def complete(self) -> bool:
        return self.data.get("complete", True) is not False

    def table(self, key: str) -> dict[str, Any]:
        """A part of the record that is a table of its own; empty where it is missing."""
        value = self.data.get(key)
        return value if isinstance(value, dict) else {}

    def text(self, key: str) -> str:
        value = self.data.get(key)
        return "" if value is None else str(value)


def load_records(paths: Sequence[str]) -> list[Record]:
    """Record folders, record files and folders of records, each record once."""
    files = list(dict.fromkeys(path.resolve() for path in find_record_files(paths)))
    return [Record(_read_record(path), path, _read_metrics(path.with_name(METRICS_FILE))) for path in files]


def find_record_files(paths: Sequence[str]) -> list[Path]:
    if not paths:
        if found := list(_files_under(Path(DEFAULT_PLACE))):
            return found
        raise UserError(
            f"There are no records to report: looked for {RECORD_FILE} in {DEFAULT_PLACE} and the folders below it. "
            "Make one with fastdqn bench, or name a record: fastdqn report FOLDER."
        )
    files = []
    for path in map(Path, paths):
        if not path.exists():
            raise UserError(f"There is no record '{path}'.")
        found = [path] if path.is_file() else list(_files_under(path))
        if not found:
            raise UserError(f"There are no records in '{path}': no {RECORD_FILE} in it or in any folder below it.")
        files += found
    return files


def _files_under(folder: Path) -> Iterator[Path]:
    if (folder / RECORD_FILE).is_file():
        yield folder / RECORD_FILE
    else:
        yield from sorted(path for path in folder.rglob(RECORD_FILE) if path.is_file())


def _read_record(path: Path) -> dict[str, Any]:
    name = _shown(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"'{name}' is no record: it is not valid JSON ({error}).") from None
    except OSError as error:
        raise UserError(f"'{name}' cannot be read: {error.strerror}.") from None
    if not isinstance(data, dict) or not isinstance(data.get("version"), int):
        raise UserError(f"'{name}' is no record of fastdqn: it has no version.")
    if data["version"] > RECORD_VERSION:
        raise UserError(
            f"'{name}' was made by a newer fastdqn (record version {data['version']}, this one reads {RECORD_VERSION})."
        )
    if not isinstance(data.get("kind"), str) or not isinstance(data.get("rows"), list):
        raise UserError(f"'{name}' is no record of fastdqn: it has no kind or no rows.")
    return data


def _read_metrics(path: Path) -> list[dict[str, Any]]:
    """Points of learning curves; none where there is no such file. A last line that was cut off is left out."""
    if not path.is_file():
        return []
    points = []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        try:
            point = json.loads(line) if line.strip() else None
        except json.JSONDecodeError as error:
            if number == len(lines) and not line.endswith("\n"):
                break  # the run ended while it wrote this line
            raise UserError(f"Line {number} of '{_shown(path)}' is not valid JSON ({error.msg}).") from None
        if isinstance(point, dict):
            points.append(point)
    return points


def _shown(path: Path) -> Path:
    """As short as the user knows it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
