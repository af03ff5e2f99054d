"""Tables of the page: cells with a text to read, a value to sort by and, where there is one, an interval below."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fastdqn.report import numbers
from fastdqn.report.curves import Series
from fastdqn.report.numbers import MISSING, number, shown, span
from fastdqn.report.speed_charts import ratio_verdict, row_name
from fastdqn.report.split_chart import sections_of
from fastdqn.report.verdicts import Verdict, learning_verdict, speed_verdict

HEADS = {"steps_per_second": "steps/s", "by_the_logs_formula": "steps/s by the log's formula", "label": "repeat"}
DISTURBING_PERCENT = 25.0  # of one core
PROMISES = {
    "SAME_NUMBERS": "same numbers",
    "SAME_DISTRIBUTION": "same distribution",
    "SAME_LEARNING": "same learning",
    "TRADE": "a trade",
}


@dataclass(frozen=True)
class Cell:
    text: str
    sort: float | str | None = None  # None sorts last, whichever way
    note: str = ""
    verdict: Verdict | None = None
    tip: str = ""


@dataclass(frozen=True)
class Row:
    cells: list[Cell]
    words: str = ""  # what the text filter searches
    speed: str = ""
    learning: str = ""


@dataclass(frozen=True)
class Table:
    key: str
    caption: str
    heads: list[str]
    rows: list[Row]
    numeric: list[bool] = field(default_factory=list)
    thing: str = "rows"  # what a row is, for the count beside the filter
    filters: bool = False
    notes: list[tuple[str, str]] = field(default_factory=list)  # what the tips say, for those who cannot point
    notes_heading: str = ""
    kind: str = "table"

    def verdicts(self, which: str) -> list[str]:
        return list(dict.fromkeys(getattr(row, which) for row in self.rows))


RowName = Callable[[dict[str, Any]], str]
Measure = tuple[str, Callable[[dict[str, Any]], Cell]]


def measured(row: dict[str, Any], key: str, write: numbers.Write, interval_key: str = "") -> Cell:
    return Cell(shown(row.get(key), write), number(row.get(key)), span(row.get(interval_key), write))


def _memory(row: dict[str, Any]) -> Cell:
    on_gpu = number(row.get("gpu_memory_mb"))
    note = "" if on_gpu is None else f"GPU {numbers.megabytes(on_gpu)}"
    return Cell(shown(row.get("rss_mb"), numbers.megabytes), number(row.get("rss_mb")), note)


def _versus_textbook(row: dict[str, Any]) -> Cell:
    around = span(row.get("vs_textbook_interval"), numbers.times)
    return Cell(shown(row.get("vs_textbook"), numbers.times), number(row.get("vs_textbook")), tip=around)


def _cpu(row: dict[str, Any]) -> Cell:
    """Other programs are named where they took enough to disturb."""
    others = number(row.get("others_cpu_percent"))
    note = f"others {others:.0f} %" if others is not None and others > DISTURBING_PERCENT else ""
    return Cell(shown(row.get("cpu_percent"), numbers.whole_percent), number(row.get("cpu_percent")), note)


def _verdict_cell(verdict: Verdict) -> Cell:
    return Cell(verdict.word, verdict.word, verdict=verdict, tip=verdict.tip)


def _minutes(row: dict[str, Any], baseline: bool) -> Cell:
    change = None if baseline else number(row.get("minutes_change"))
    note = "" if change is None else f"{numbers.times(change)} as long"
    return Cell(shown(row.get("minutes_to_target"), numbers.minutes), number(row.get("minutes_to_target")), note)


def _change(row: dict[str, Any], baseline: bool) -> Cell:
    cell = measured(row, "change", numbers.times, "change_interval")
    return Cell(MISSING, 1.0) if baseline else cell


def measurement_table(
    key: str, caption: str, rows: list[dict[str, Any]], first: str, thing: str, name_of: RowName = row_name
) -> Table:
    """Ladders and sweeps. Columns in which nothing was measured are left out."""
    base = [speed_verdict(row).style == "base" or (first != "rung" and index == 0) for index, row in enumerate(rows)]
    is_base = {id(row): flag for row, flag in zip(rows, base, strict=True)}
    measures: list[Measure] = [
        ("steps/s", lambda row: measured(row, "steps_per_second", numbers.count, "interval")),
        ("change", lambda row: _change(row, is_base[id(row)])),
        ("× textbook", _versus_textbook),
        ("updates/s", lambda row: measured(row, "updates_per_second", numbers.count)),
        ("samples per step", lambda row: measured(row, "samples_per_step", numbers.plain)),
        ("CPU %", _cpu),
        ("GPU %", lambda row: measured(row, "gpu_percent", numbers.whole_percent)),
        ("memory", _memory),
        ("speed", lambda row: _verdict_cell(speed_verdict(row, is_base[id(row)]))),
        ("learning", lambda row: _verdict_cell(learning_verdict(row))),
        ("minutes to target", lambda row: _minutes(row, is_base[id(row)])),
    ]
    measures = [(head, make) for head, make in measures if any(_says_something(make(row)) for row in rows)]
    table_rows = []
    for index, row in enumerate(rows):
        promise = PROMISES.get(str(row.get("promise") or ""), "")
        note = f"skipped: {row['skipped']}" if row.get("skipped") else promise
        whole = name_of(row).replace("+ ", "+\N{NO-BREAK SPACE}")
        name = Cell(whole, float(index), note, tip=str(row.get("summary") or ""))
        cells = [name, *(make(row) for _, make in measures)]
        speed, learning = speed_verdict(row, is_base[id(row)]).word, learning_verdict(row).word
        words = " ".join([name_of(row), note, str(row.get("summary") or ""), speed, learning])
        table_rows.append(Row(cells, words.lower(), speed, learning))
    numeric = [False, *(head not in ("speed", "learning") for head, _ in measures)]
    heads = [first, *(head for head, _ in measures)]
    notes = [(name_of(row), words) for row in rows if (words := _explained(row))]
    heading = f"What the {thing} do, and why learning was judged so"
    return Table(key, caption, heads, table_rows, numeric, thing, filters=True, notes=notes, notes_heading=heading)


def _explained(row: dict[str, Any]) -> str:
    summary, learning = str(row.get("summary") or ""), learning_verdict(row)
    return ". ".join(
        part for part in (summary, f"Learning: {learning.word}. {learning.tip}" if learning.tip else "") if part
    )


def _says_something(cell: Cell) -> bool:
    return cell.verdict is not None or cell.text != MISSING


def peers_table(key: str, rows: list[dict[str, Any]]) -> Table:
    heads = ["program", "steps/s", "times the peer", "speed", "samples per step", "precision", "CPU %", "memory"]
    table_rows = []
    for index, row in enumerate(rows):
        cells = [
            Cell(row_name(row), float(index), tip=_flat_words(row.get("details"))),
            measured(row, "steps_per_second", numbers.count, "interval"),
            measured(row, "ratio", numbers.times, "ratio_interval"),
            _verdict_cell(ratio_verdict(row)),
            measured(row, "samples_per_step", numbers.plain),
            Cell(str(row.get("precision") or MISSING), str(row.get("precision") or "")),
            _cpu(row),
            _memory(row),
        ]
        table_rows.append(Row(cells, row_name(row).lower()))
    numeric = [False, True, True, False, True, False, True, True]
    return Table(key, "Every program that was measured, in one run, taking turns", heads, table_rows, numeric, "programs")


def split_table(key: str, rows: list[dict[str, Any]]) -> Table:
    sections = sections_of(rows)
    table_rows = [
        Row([Cell(row_name(row), float(index)), *(measured(row["split"], name, numbers.percent) for name in sections)])
        for index, row in enumerate(rows)
    ]
    numeric = [False, *([True] * len(sections))]
    return Table(key, "Share of the time by section", ["row", *sections], table_rows, numeric)


def profile_table(key: str, rows: list[dict[str, Any]]) -> Table:
    heads = ["left out", "what was run", "steps/s", "change", "share of the time"]
    table_rows = []
    for index, row in enumerate(rows):
        words = str(row.get("words") or MISSING)
        cells = [
            Cell(str(row.get("part") or row_name(row)), float(index)),
            Cell(words, words),
            measured(row, "steps_per_second", numbers.count, "interval"),
            measured(row, "change", numbers.times, "change_interval"),
            measured(row, "share", numbers.percent),
        ]
        table_rows.append(Row(cells))
    return Table(key, "What each part costs: the run with it left out", heads, table_rows, [False, False, True, True, True])


def runs_table(key: str, rows: list[dict[str, Any]]) -> Table:
    heads = ["run", "score", "games", "steps", "minutes", "steps/s", "samples per step", "seed"]
    table_rows = []
    for index, row in enumerate(rows):
        cells = [
            Cell(row_name(row), float(index)),
            measured(row, "mean", numbers.plain, "interval"),
            measured(row, "episodes", numbers.count),
            measured(row, "steps", numbers.count),
            measured(row, "minutes", numbers.minutes),
            measured(row, "steps_per_second", numbers.count),
            measured(row, "samples_per_step", numbers.plain),
            Cell(shown(row.get("seed"), numbers.plain), number(row.get("seed"))),
        ]
        table_rows.append(Row(cells))
    return Table(key, "The last evaluation of each run", heads, table_rows, [False] + [True] * 7, "runs")


def curves_table(key: str, series: list[Series]) -> Table:
    heads = ["rung", "seeds", "environment steps", "final score, mean", "lowest seed", "highest seed"]
    table_rows = []
    for index, one in enumerate(series):
        figures = [float(one.seeds), one.xs[-1], one.means[-1], one.lows[-1], one.highs[-1]]
        cells = [Cell(numbers.plain(value), value) for value in figures]
        table_rows.append(Row([Cell(one.name, float(index)), *cells]))
    return Table(key, "Where the curves end", heads, table_rows, [False, True, True, True, True, True])


def plain_table(key: str, caption: str, rows: list[dict[str, Any]]) -> Table:
    """Whatever single values the rows hold: for kinds that need no table of their own."""
    held = {name for row in rows for name, value in row.items() if isinstance(value, (int, float, str)) and value != ""}
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name in held]
    table_rows = [Row([_plain_cell(name, row) for name in names]) for row in rows]
    numeric = [any(number(row.get(name)) is not None for row in rows) for name in names]
    return Table(key, caption, [HEADS.get(name, name.replace("_", " ")) for name in names], table_rows, numeric)


def _plain_cell(name: str, row: dict[str, Any]) -> Cell:
    """An interval that belongs to the value stands below it."""
    value, known = row.get(name), number(row.get(name))
    if known is not None:
        around = row.get(f"{name}_interval", row.get("interval") if name == "steps_per_second" else None)
        return Cell(numbers.count(known), known, span(around, numbers.count))
    return Cell(MISSING if value is None or value == "" else str(value), None if value is None else str(value))


def flat_items(table: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as dotted names and texts."""
    items: list[tuple[str, str]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            items += flat_items(value, f"{prefix}{key}.")
        else:
            text = ", ".join(str(one) for one in value) if isinstance(value, list) else str(value)
            items.append((f"{prefix}{key}", MISSING if value is None or text == "" else text))
    return items


def _flat_words(table: Any) -> str:
    return ", ".join(f"{key} {value}" for key, value in flat_items(table)) if isinstance(table, dict) else ""
