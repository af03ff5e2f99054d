"""Writes the page: records in, one HTML file out, with style and script inside and nothing loaded from elsewhere."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fastdqn import __version__
from fastdqn.errors import UserError
from fastdqn.report.headline import claims, headline, machine_key, machine_name
from fastdqn.report.records import Record, load_records
from fastdqn.report.sections import Element, anchor_of, blocks_of
from fastdqn.report.tables import flat_items

KINDS = {
    "ladder": "ladder",
    "peers": "peers",
    "sweep": "sweep",
    "growth": "growth",
    "profile": "profile",
    "envs": "environment alone",
    "throughput": "throughput",
    "run": "training run",
}


@dataclass(frozen=True)
class Section:
    record: Record
    anchor: str
    kind: str
    title: str
    date: str
    place: str
    path: str  # of the record's file, from the page
    href: str
    task: list[str]
    measuring: list[tuple[str, str]]
    settings: list[tuple[str, str]]
    notes: list[str]
    blocks: list[Element]


@dataclass(frozen=True)
class Machine:
    name: str
    facts: list[tuple[str, str]]
    sections: list[Section]


def write_report(paths: Sequence[str], out: str) -> Path:
    """One page of all records under `paths`; of the records in the usual places where none are named."""
    target = _checked_target(out)
    html = render_page(load_records(paths), target.parent)
    try:
        target.write_text(html, encoding="utf-8")
    except OSError as error:
        raise UserError(f"The report '{out}' cannot be written: {error.strerror}.") from None
    return target


def _checked_target(out: str) -> Path:
    target = Path(out)
    if target.is_dir():
        raise UserError(f"'{out}' is a folder; name the file that the report goes to, e.g. --out {target / 'report.html'}.")
    if not target.parent.is_dir():
        raise UserError(f"The folder '{target.parent}' does not exist; make it first, or choose another --out.")
    return target


def render_page(records: Sequence[Record], folder: Path) -> str:
    """The page as text; links to the records' files are made for a page in `folder`."""
    ordered = in_reading_order(records)
    taken: set[str] = set()
    titled = zip(ordered, titles_of(ordered), strict=True)
    sections = [_section(record, anchor_of(record, taken), folder, title) for record, title in titled]
    anchors = {id(section.record): section.anchor for section in sections}
    figures = claims(ordered)
    environment = Environment(
        loader=PackageLoader("fastdqn.report", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("page.html.j2").render(
        headline=headline(ordered),
        claims=figures,
        claim_anchors=[anchors[id(claim.record)] for claim in figures],
        sections=sections,
        machines=_machines(sections),
        dates=_dates(sections),
        version=__version__,
        style=_inline("style.css"),
        script=_inline("page.js"),
    )


def in_reading_order(records: Sequence[Record]) -> list[Record]:
    """By kind, and the newest of a kind first."""
    newest_first = sorted(records, key=lambda record: (record.text("date"), record.id), reverse=True)
    order = list(KINDS)
    return sorted(newest_first, key=lambda record: order.index(record.kind) if record.kind in order else len(order))


def _inline(name: str) -> Markup:
    return Markup(resources.files("fastdqn.report").joinpath(name).read_text(encoding="utf-8"))


def titles_of(records: Sequence[Record]) -> list[str]:
    """Records that would be called the same are told apart by what they vary, else by their own name."""
    plain = [record.text("title") or record.id for record in records]
    often = {title for title, count in Counter(plain).items() if count > 1}
    named = zip(records, plain, strict=True)
    return [f"{title}: {_told_apart(record)}" if title in often else title for record, title in named]


def _told_apart(record: Record) -> str:
    settings = dict.fromkeys(key for row in record.rows for key in re.findall(r"(\w+)=", str(row.get("value") or "")))
    if record.kind == "sweep" and settings:
        return ", ".join(name.replace("_", " ") for name in settings)
    return re.sub(r"^\d{4}-\d\d-\d\d-", "", record.id)


def _section(record: Record, anchor: str, folder: Path, title: str) -> Section:
    path = _relative(record.path, folder)
    notes = record.data.get("notes")
    protocol = record.text("protocol")
    return Section(
        record=record,
        anchor=anchor,
        kind=KINDS.get(record.kind, record.kind),
        title=title,
        date=_day_and_time(record.text("date")),
        place=machine_name(record.machine),
        path=path,
        href=quote(path, safe="/."),
        task=[text for text in (record.text("env_id"), f"protocol {protocol}" if protocol else "") if text],
        measuring=_how(record),
        settings=flat_items(record.table("config")),
        notes=[str(note) for note in notes] if isinstance(notes, list) else [],
        blocks=blocks_of(record, anchor),
    )


def _how(record: Record) -> list[tuple[str, str]]:
    chosen = {name: record.data[name] for name in ("device", "switches") if record.data.get(name)}
    return [(key.replace("_", " "), text) for key, text in flat_items(record.table("measuring") | chosen)]


def _relative(path: Path, folder: Path) -> str:
    try:
        return Path(os.path.relpath(path, folder.resolve())).as_posix()
    except ValueError:  # another drive of Windows
        return path.as_posix()


def _day_and_time(date: str) -> str:
    """2026-11-15T23:40:00+0000 -> 2026-11-15 23:40 UTC."""
    day, _, clock = date.partition("T")
    zone = " UTC" if clock.endswith(("+0000", "+00:00", "Z")) else ""
    return f"{day} {clock[:5]}{zone}".strip()


def _dates(sections: list[Section]) -> str:
    days = sorted({section.record.text("date")[:10] for section in sections} - {""})
    return "" if not days else days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def _machines(sections: list[Section]) -> list[Machine]:
    by_key: dict[tuple[str, ...], list[Section]] = {}
    for section in sections:
        by_key.setdefault(machine_key(section.record), []).append(section)
    return [Machine(machine_name(group[0].record.machine), _machine_facts(group), group) for group in by_key.values()]


def _machine_facts(group: list[Section]) -> list[tuple[str, str]]:
    """What is the same for all records of a machine, or all that occurs."""
    machine = group[0].record.machine
    cores, usable = machine.get("cores"), machine.get("usable_cores")
    facts: list[tuple[str, Any]] = [
        ("processor", machine.get("cpu")),
        ("cores", f"{usable} of {cores} usable" if usable and cores and usable != cores else cores),
        ("memory", f"{machine['memory_gb']} GB" if machine.get("memory_gb") else None),
        ("GPU", machine.get("gpu") or "none"),
        ("system", machine.get("system")),
        ("Python", _all_values(group, lambda machine: machine.get("python"))),
    ]
    packages = dict.fromkeys(name for section in group for name in _versions(section.record.machine))
    facts += [(name, _all_values(group, lambda machine, name=name: _versions(machine).get(name))) for name in packages]
    facts.append(("commit", _all_values(group, lambda machine: machine.get("commit"))))
    return [(name, str(value)) for name, value in facts if value]


def _versions(machine: dict[str, Any]) -> dict[str, Any]:
    versions = machine.get("versions")
    return versions if isinstance(versions, dict) else {}


def _all_values(group: list[Section], read: Any) -> str:
    values = [read(section.record.machine) for section in group]
    return ", ".join(dict.fromkeys(str(value) for value in values if value))
