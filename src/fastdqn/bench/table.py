"""A record as a table in the terminal, with what to make of it underneath."""

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastdqn.run.usage import DISTURBING_PERCENT

Row = dict[str, Any]
Column = tuple[str, Callable[[Row], str]]
LOG_WIDTH = 170
VERDICT_STYLE = {
    "faster": "green",
    "slower": "red",
    "learns worse": "red",
    "does not learn": "bold red",
    "learns as well": "green",
    "learns better": "green",
}


def show(record: dict[str, Any], console: Console | None = None) -> None:
    console = console or Console()
    if console.width < LOG_WIDTH and not console.is_terminal:
        console.width = LOG_WIDTH  # a log file is not a narrow terminal
    columns = [column for column in COLUMNS_OF[record["kind"]](record) if _says_something(column, record["rows"])]
    table = Table(title=record["title"], title_justify="left", header_style="bold")
    for number, (name, _) in enumerate(columns):
        table.add_column(name, justify="left" if name in TEXT_COLUMNS else "right", no_wrap=number == 0)
    for row in record["rows"]:
        cells = [read(row) for _, read in columns]
        table.add_row(*(Text(cell, style=VERDICT_STYLE.get(cell, "")) for cell in cells))  # brackets are not markup
    console.print(table)
    for line in closing_lines(record):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _says_something(column: Column, rows: list[Row]) -> bool:
    return any(column[1](row) != "-" for row in rows)


def closing_lines(record: dict[str, Any]) -> list[str]:
    lines = list(record["notes"])
    best, ceiling = record.get("best"), record.get("ceiling")
    if best and best["vs_textbook"]:
        gain = 100 * (best["vs_textbook"] - 1)
        lines.append(f"best rung: {best['rung']}, {best['vs_textbook']:.2f}x the textbook's steps/s ({gain:+.0f} %)")
    if ceiling and ceiling.get("share"):
        lines.append(
            f"ceiling: {ceiling['steps_per_second']:,.0f} steps/s, {ceiling.get('of', 'the best rung')} is at "
            f"{ceiling['share']:.0%} of it"
        )
        lines.append(f"         ({ceiling['words']})")
    if record.get("bytes_per_row"):
        lines.append(f"one more stored step takes {record['bytes_per_row']:,.0f} bytes")
    if record.get("advice"):
        lines.append(record["advice"])
    noise = max((row.get("others_cpu_percent") or 0.0 for row in record["rows"]), default=0.0)
    if noise > DISTURBING_PERCENT:
        lines.append(f"other programs used up to {noise:.0f} % of a core meanwhile: measure again on a quiet machine")
    if not record["complete"]:
        lines.append("stopped before the end: the rows above are what was measured")
    return lines


def _number(key: str, form: str = ",.0f", scale: float = 1.0) -> Callable[[Row], str]:
    return lambda row: "-" if row.get(key) is None else format(row[key] * scale, form)


def _change(row: Row) -> str:
    if row.get("change") is None:
        return row.get("skipped") or "-"
    low, high = row["change_interval"]
    return f"{row['change']:.2f}x ({low:.2f}-{high:.2f})"


def _words(key: str) -> Callable[[Row], str]:
    return lambda row: str(row.get(key) or "-")


def _machine_columns(record: dict[str, Any]) -> list[Column]:
    columns: list[Column] = [("CPU %", _number("cpu_percent"))]
    gpu: list[Column] = [("GPU %", _number("gpu_percent")), ("GPU MB", _number("gpu_memory_mb"))]
    with_gpu = any(row.get("gpu_percent") is not None for row in record["rows"])
    return [*columns, *(gpu if with_gpu else []), ("RSS MB", _number("rss_mb"))]


def _measured(record: dict[str, Any], first: Column) -> list[Column]:
    columns: list[Column] = [
        first,
        ("steps/s", _number("steps_per_second")),
        ("change", _change),
        ("updates/s", _number("updates_per_second")),
        ("samples/step", _number("samples_per_step", ".2f")),
        *_machine_columns(record),
        ("learner waits %", _number("learner_waits_percent")),
        ("actors wait %", _number("actors_wait_percent")),
        ("speed", _words("speed_verdict")),
        ("learning", _words("learning_verdict")),
    ]
    if any(row.get("learning") for row in record["rows"]):
        minutes: list[Column] = [("minutes to target", _number("minutes_to_target", ".2f")), ("change", _minutes_change)]
        columns += minutes
    return columns


def _minutes_change(row: Row) -> str:
    return "-" if row.get("minutes_change") is None else f"{100 * (row['minutes_change'] - 1):+.0f} %"


def _ladder(record: dict[str, Any]) -> list[Column]:
    columns = _measured(record, ("rung", _words("rung")))
    return [*columns[:3], ("x textbook", _number("vs_textbook", ".2f")), *columns[3:]]


def _sweep(record: dict[str, Any]) -> list[Column]:
    return _measured(record, ("value", _words("value")))


def _growth(record: dict[str, Any]) -> list[Column]:
    return _measured(record, ("point", _words("name")))


def _profile(record: dict[str, Any]) -> list[Column]:
    share: Column = ("share of the time", lambda row: "-" if row["share"] is None else f"{row['share']:.0%}")
    return [("left out", _words("words")), ("steps/s", _number("steps_per_second")), ("change", _change), share]


def _envs(record: dict[str, Any]) -> list[Column]:
    return [("environment", _words("name")), ("steps/s", _number("steps_per_second")), ("range", _range)]


def _range(row: Row) -> str:
    return f"{row['interval'][0]:,.0f} - {row['interval'][1]:,.0f}"


def _peers(record: dict[str, Any]) -> list[Column]:
    return [
        ("program", _words("name")),
        ("steps/s", _number("steps_per_second")),
        ("x stable-baselines3", _ratio),
        ("updates/s", _number("updates_per_second")),
        ("samples/step", _number("samples_per_step", ".2f")),
        ("precision", _words("precision")),
        *_machine_columns(record),
        ("threads", _number("threads")),
    ]


def _ratio(row: Row) -> str:
    if row["ratio"] is None:
        return "-"
    return f"{row['ratio']:.2f} ({row['ratio_interval'][0]:.2f}-{row['ratio_interval'][1]:.2f})"


def _throughput(record: dict[str, Any]) -> list[Column]:
    return [
        ("steps/s", _number("steps_per_second", ",.1f")),
        ("by the log's formula", _number("by_the_logs_formula", ",.1f")),
        ("steps taken", _number("steps")),
        ("samples/step", _number("samples_per_step", ".2f")),
    ]


def _runs(record: dict[str, Any]) -> list[Column]:
    return [
        ("run", _words("run")),
        ("steps", _number("steps")),
        ("minutes", _number("minutes", ".1f")),
        ("mean score", _number("mean", ".2f")),
        ("games", _number("episodes")),
        ("steps/s", _number("steps_per_second")),
        ("samples/step", _number("samples_per_step", ".2f")),
        ("MB a dumped game", _number("dump_mb_per_game", ".2f")),
        ("its steps", _number("steps_per_dumped_game")),
        ("memory grew %", _number("uss_growth_percent", ".2f")),
        ("samples strayed %", _number("samples_per_step_strayed_percent", ".2f")),
        ("restarts", _number("restarts")),
    ]


TEXT_COLUMNS = {"run", "rung", "value", "point", "left out", "environment", "program", "speed", "learning", "precision"}
COLUMNS_OF: dict[str, Callable[[dict[str, Any]], list[Column]]] = {
    "ladder": _ladder,
    "sweep": _sweep,
    "growth": _growth,
    "profile": _profile,
    "envs": _envs,
    "peers": _peers,
    "throughput": _throughput,
    "run": _runs,
}
