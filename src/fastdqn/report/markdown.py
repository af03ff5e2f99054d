"""Tables and figures in Markdown pages, written from records: `python -m fastdqn.report.markdown README.md` (make tables).

A table stands between two comments, a single figure too; what stands between them is never written by hand:

    <!-- table 2026-11-15-ladder-snake -->          | rung | steps/s | ... |          <!-- end -->
    <!--= 2026-11-15-ladder-snake; + bf16; vs_textbook; .1f -->4.2<!--/-->

A figure names its record, the row (empty: the record itself), the key (dotted) and the format; the format x is a ratio with
its interval: 1.46x (1.43 to 1.59).
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastdqn.errors import UserError
from fastdqn.report.records import Record, load_records

TABLE = re.compile(r"(<!-- table (\S+) -->\n).*?(\n?<!-- end -->)", re.DOTALL)
FIGURE = re.compile(r"(<!--= ([^;>]+); ?([^;>]*); ?([^;>]+); ?([^;>]+?) ?-->)(.*?)(<!--/-->)")
ROW_NAMES = ("rung", "value", "name", "part", "run")
Cells = list[str]


def rewrite(text: str, records: dict[str, Record], page_folder: Path) -> str:
    """The page with every marked table and figure as its record has it."""

    def table(found: re.Match[str]) -> str:
        record = _record(records, found[2])
        return f"{found[1]}\n{markdown_table(record, page_folder)}\n{found[3].lstrip()}"

    def figure(found: re.Match[str]) -> str:
        name, row, key, form = (found[place].strip() for place in (2, 3, 4, 5))
        value = look_up(_record(records, name), row, key)
        if form != "x":
            return f"{found[1]}{_formatted(value, form)}{found[7]}"
        low, high = look_up(_record(records, name), row, f"{key}_interval")
        return f"{found[1]}{value:.2f}x ({low:.2f} to {high:.2f}){found[7]}"

    return FIGURE.sub(figure, TABLE.sub(table, text))


def look_up(record: Record, row_name: str, key: str) -> Any:
    value: Any = record.data if not row_name else _row(record, row_name)
    for part in key.split("."):
        value = value[int(part)] if isinstance(value, list) else (value or {}).get(part)
    return value


def markdown_table(record: Record, page_folder: Path) -> str:
    rows = [row for row in record.rows if not row.get("skipped")]
    columns = [(name, cells) for name, read in COLUMNS[record.kind] if _tells(cells := [read(row) for row in rows])]
    lines = [_line([name for name, _ in columns]), _line(["---"] + ["---:"] * (len(columns) - 1))]
    lines += [_line(list(cells)) for cells in zip(*(cells for _, cells in columns), strict=True)]
    return "\n".join([*lines, "", source_line(record, page_folder) + ceiling_line(record)])


def _tells(cells: Cells) -> bool:
    """A column in which nothing was measured is left out."""
    return any(cell not in ("", "not measured") for cell in cells)


def source_line(record: Record, page_folder: Path) -> str:
    """Where the table comes from: machine, command, and a link to the record."""
    machine = record.machine
    where = f"{machine.get('usable_cores')} CPU cores" + (f" and {machine['gpu']}" if machine.get("gpu") else "")
    link = relative_link(record.path.parent, page_folder)
    return f"`{record.text('command')}` on {where} ({machine.get('cpu')}), record [{record.id}]({link})"


def ceiling_line(record: Record) -> str:
    """How far from the ceiling the record's own best is, where it was measured."""
    ceiling = record.table("ceiling")
    if not ceiling.get("share"):
        return ""
    return f"\n\n{ceiling.get('of', 'the best rung')} reaches {ceiling['share']:.0%} of its ceiling: {ceiling['words']}."


def relative_link(path: Path, page_folder: Path) -> str:
    """From the folder of the page to the record, both inside one repository."""
    parts, folder = path.resolve().parts, page_folder.resolve().parts
    common = 0
    while common < min(len(parts), len(folder)) and parts[common] == folder[common]:
        common += 1
    return "/".join([".."] * (len(folder) - common) + list(parts[common:]))


def _number(key: str, form: str = ",.0f") -> Callable[[dict[str, Any]], str]:
    return lambda row: _formatted(row.get(key), form)


def _text(key: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: str(row.get(key) or "")


def _with_interval(key: str, interval: str, form: str) -> Callable[[dict[str, Any]], str]:
    def read(row: dict[str, Any]) -> str:
        if row.get(key) is None:
            return ""
        low, high = (format(value, form) for value in row[interval])
        return f"{row[key]:{form}} ({low} to {high})"

    return read


def _change_of_minutes(row: dict[str, Any]) -> str:
    if row.get("minutes_change") is None or row.get("learning_verdict") == "reference":
        return ""
    return f"{100 * (row['minutes_change'] - 1):+.0f} %"


Columns = list[tuple[str, Callable[[dict[str, Any]], str]]]
_MEASURED: Columns = [
    ("steps/s", _number("steps_per_second")),
    ("change", _with_interval("change", "change_interval", ".2f")),
    ("samples per step", _number("samples_per_step", ".2f")),
    ("speed", _text("speed_verdict")),
    ("learning", _text("learning_verdict")),
    ("minutes to target", _number("minutes_to_target", ".2f")),
    ("change of minutes", _change_of_minutes),
    ("learner waits, %", _number("learner_waits_percent")),
    ("actors wait, %", _number("actors_wait_percent")),
]
COLUMNS: dict[str, Columns] = {
    "ladder": [
        ("rung", _text("rung")),
        *_MEASURED[:2],
        ("x textbook", _number("vs_textbook", ".2f")),
        *_MEASURED[2:],
    ],
    "sweep": [("value", _text("value")), *_MEASURED],
    "growth": [("point", _text("name")), *_MEASURED[:3], ("memory, MB", _number("rss_mb"))],
    "profile": [
        ("left out", _text("words")),
        ("steps/s", _number("steps_per_second")),
        ("share of the time", _number("share", ".0%")),
    ],
    "envs": [("environment alone", _text("name")), ("steps/s", _number("steps_per_second"))],
    "peers": [
        ("program", _text("name")),
        ("steps/s", _number("steps_per_second")),
        ("x stable-baselines3", _with_interval("ratio", "ratio_interval", ".2f")),
        ("samples per step", _number("samples_per_step", ".2f")),
        ("precision", _text("precision")),
    ],
    "throughput": [
        ("steps/s, steps really taken", _number("steps_per_second", ",.1f")),
        ("by the log's formula", _number("by_the_logs_formula", ",.1f")),
        ("steps taken", _number("steps")),
    ],
    "run": [
        ("run", _text("run")),
        ("steps", _number("steps")),
        ("minutes", _number("minutes", ".1f")),
        ("greedy mean score", _with_interval("mean", "interval", ".1f")),
        ("games", _number("episodes")),
        ("steps/s", _number("steps_per_second")),
        ("samples per step", _number("samples_per_step", ".2f")),
        ("MB a dumped game", _number("dump_mb_per_game", ".2f")),
        ("its steps", _number("steps_per_dumped_game")),
        ("memory grew, %", _number("uss_growth_percent", ".2f")),
        ("samples per step strayed, %", _number("samples_per_step_strayed_percent", ".2f")),
        ("restarts", _number("restarts")),
    ],
}


def _formatted(value: Any, form: str) -> str:
    return "" if value is None else str(value) if isinstance(value, str) or form == "s" else format(value, form)


def _line(cells: Cells) -> str:
    return "| " + " | ".join(cells) + " |"


def _record(records: dict[str, Record], name: str) -> Record:
    if name not in records:
        raise UserError(f"There is no record '{name}' among {len(records)} records.")
    return records[name]


def _row(record: Record, name: str) -> dict[str, Any]:
    for row in record.rows:
        if any(str(row.get(key)) == name for key in ROW_NAMES):
            return row
    raise UserError(f"The record {record.id} has no row '{name}'.")


def main(pages: list[str], folder: str = "benchmarks/records") -> int:
    records = {record.id: record for record in load_records([folder])}
    for page in map(Path, pages):
        page.write_text(rewrite(page.read_text(), records, page.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
