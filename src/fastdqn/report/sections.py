"""From a record to its section: which charts and tables its kind has. A kind without data for a chart has no such chart."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from markupsafe import Markup

from fastdqn.report import headline, numbers
from fastdqn.report.curves import Series, curve_series
from fastdqn.report.line_charts import STYLES, curves_chart, lanes_chart, sweep_chart, sweep_label
from fastdqn.report.numbers import number
from fastdqn.report.records import Record
from fastdqn.report.speed_charts import ladder_chart, minutes_chart, ratio_chart, row_name, speed_bars
from fastdqn.report.split_chart import WORDS, has_split, section_style, sections_of, split_chart
from fastdqn.report.svg import both_widths
from fastdqn.report.tables import (
    Table,
    curves_table,
    measurement_table,
    peers_table,
    plain_table,
    profile_table,
    runs_table,
    split_table,
)
from fastdqn.report.verdicts import BASELINE, Verdict, is_baseline, learning_verdict, speed_verdict

WAVERING = "Whiskers: how much the speed wavers, the middle 80 % of all turns."
HALF = 520  # px of a chart that shares its line with another


@dataclass(frozen=True)
class Toggle:
    """A button that shows or hides one curve."""

    index: int
    style: int
    name: str
    on: bool
    verdict: Verdict


@dataclass(frozen=True)
class Figure:
    key: str
    heading: str
    caption: str
    views: list[tuple[str, Markup]]  # (name, image); with more than one the reader chooses
    legend: list[tuple[str, str, str]] = field(default_factory=list)  # (style, glyph, words)
    toggles: list[Toggle] = field(default_factory=list)
    table: Table | None = None  # the same as numbers, folded away
    half: bool = False
    kind: str = "figure"


@dataclass(frozen=True)
class Callout:
    words: str
    kind: str = "callout"


Element = Figure | Table | Callout


def blocks_of(record: Record, anchor: str) -> list[Element]:
    makers: dict[str, Callable[[Record, str], list[Element]]] = {
        "ladder": _ladder,
        "sweep": _sweep,
        "growth": _growth,
        "profile": _profile,
        "envs": _envs,
        "peers": _peers,
        "run": _run,
    }
    return makers.get(record.kind, _other)(record, anchor) if record.rows else [Callout("This record holds no rows.")]


def _verdict_legend(rows: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    verdicts = dict.fromkeys(speed_verdict(row) for row in rows if not row.get("skipped"))
    return [(verdict.style, verdict.glyph, verdict.word) for verdict in verdicts]


def _ladder(record: Record, anchor: str) -> list[Element]:
    rows, ceiling = record.rows, record.table("ceiling")
    caption = f"The full-coloured end of a bar is what its rung gained or lost. {WAVERING}"
    if words := str(ceiling.get("words") or ""):
        caption += f" The ceiling is {words}."
    blocks: list[Element] = []
    if _was_timed(rows):
        draw = partial(ladder_chart, rows, ceiling)
        blocks.append(_figure(anchor, "speed", "Speed by rung", caption, draw, _verdict_legend(rows)))
    blocks.append(measurement_table(f"{anchor}-table", "Every rung with its price and both verdicts", rows, "rung", "rungs"))
    split = _split_figure([row for row in rows if row.get("part") != "leave_one_out"], anchor)
    return blocks + split + _curves(record, anchor) + _minutes(record, anchor)


def _was_timed(rows: list[dict[str, Any]]) -> bool:
    return any(number(row.get("steps_per_second")) is not None for row in rows)


def _figure(anchor: str, name: str, heading: str, caption: str, draw: Any, legend: Any = (), half: bool = False) -> Figure:
    key = f"{anchor}-{name}"
    image = both_widths(key, draw, HALF) if half else both_widths(key, draw)
    return Figure(key, heading, caption, [("", image)], list(legend), half=half)


def _split_figure(rows: list[dict[str, Any]], anchor: str) -> list[Element]:
    rows = [row for row in rows if has_split(row)]
    if not rows:
        return []
    key = f"{anchor}-split"
    views = [("share of the time", both_widths(f"{key}-share", partial(split_chart, rows, False)))]
    if all(number(row.get("steps_per_second")) for row in rows):
        views.append(("time per step", both_widths(f"{key}-time", partial(split_chart, rows, True))))
    legend = [(section_style(name), "", WORDS.get(name, name)) for name in sections_of(rows)]
    caption = "Sections in the order of the data path, left to right."
    return [Figure(key, "Where the time goes", caption, views, legend, table=split_table(f"{key}-table", rows))]


def _curves(record: Record, anchor: str) -> list[Element]:
    by_steps = curve_series(record.metrics, "rung", "step")
    by_minutes = curve_series(record.metrics, "rung", "seconds", unit=60.0)
    return [_curves_figure(record, anchor, by_steps, by_minutes, _target(record))] if by_steps else []


def _minutes(record: Record, anchor: str) -> list[Element]:
    rows = [row for row in record.rows if _learning_was_measured(row)]
    if not any(number(row.get("minutes_to_target")) is not None for row in rows):
        return []
    caption = (
        "Median over seeds, from the first environment step, evaluations left out. The glyph is the verdict on learning."
    )
    return [_figure(anchor, "minutes", "Time to target", caption, partial(minutes_chart, rows, _target(record)))]


def _learning_was_measured(row: dict[str, Any]) -> bool:
    return number(row.get("minutes_to_target")) is not None or learning_verdict(row).word != "not measured"


def _curves_figure(
    record: Record, anchor: str, by_steps: list[Series], by_minutes: list[Series], target: float | None
) -> Figure:
    key, shown = f"{anchor}-curves", _first_shown(record, by_steps)
    judged = [row for row in record.rows if "learning_verdict" in row]
    verdicts = {row_name(row): BASELINE if is_baseline(row) else learning_verdict(row) for row in judged}
    unknown = Verdict("", "", "none")
    toggles = [
        Toggle(index, index % STYLES, one.name, one.name in shown, verdicts.get(one.name, unknown))
        for index, one in enumerate(by_steps)
    ]
    against_steps = partial(curves_chart, by_steps, shown, "environment steps", lambda x: f"{x:,.0f} steps", target)
    views = [("by environment steps", both_widths(f"{key}-steps", against_steps))]
    if by_minutes:
        draw = partial(curves_chart, by_minutes, shown, "minutes of training", numbers.minutes, target)
        views.append(("by minutes", both_widths(f"{key}-minutes", draw)))
    seeds = sorted({one.seeds for one in by_steps})
    many = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    band = f"Line: mean over seeds ({many}). Band: lowest to highest seed. A seed that ended early holds its last score."
    caption = f"{'One run a curve.' if seeds == [1] else band} Choose the curves with the buttons."
    table = curves_table(f"{key}-table", by_steps)
    return Figure(key, "Learning curves", caption, views, toggles=toggles, table=table)


def _first_shown(record: Record, series: list[Series]) -> list[str]:
    """Textbook and whole ladder, first and last of a sweep, all of kept runs; the others are one click away."""
    names = [one.name for one in series]
    if record.kind == "run":
        return names
    top = headline.top_rung(record) if record.kind == "ladder" else None
    last = row_name(top) if top and row_name(top) in names else names[-1]
    return [names[0], last]


def _target(record: Record) -> float | None:
    judged = [row["learning"].get("target") for row in record.rows if isinstance(row.get("learning"), dict)]
    wishes = [record.table("measuring").get("target"), *judged]
    return next((value for wish in wishes if (value := number(wish)) is not None), None)


def _sweep(record: Record, anchor: str) -> list[Element]:
    rows, settings = record.rows, record.rows[0].get("settings")
    swept = [row for row in rows if isinstance(row.get("settings"), dict)] or rows  # the environment alone has none
    setting = ", ".join(settings) if isinstance(settings, dict) else str(rows[0].get("key") or "value")

    def verdict_of(row: dict[str, Any]) -> Verdict:
        return speed_verdict(row, baseline=row is rows[0])

    blocks: list[Element] = []
    has_minutes = any(number(row.get("minutes_to_target")) is not None for row in rows)
    if _was_timed(rows):
        draw = partial(sweep_chart, swept, setting, "steps_per_second", "steps per second", verdict_of)
        legend = [(one.style, one.glyph, one.word) for one in dict.fromkeys(verdict_of(row) for row in swept)]
        caption = f"Change and verdict are against {sweep_label(rows[0])}. {WAVERING}"
        for row in rows:
            if row not in swept:
                caption += f" With {row_name(row)}: {numbers.shown(row.get('steps_per_second'), numbers.count)} steps/s."
        blocks.append(_figure(anchor, "speed", "Speed", caption, draw, legend, half=has_minutes))
    if has_minutes:
        draw = partial(sweep_chart, swept, setting, "minutes_to_target", "minutes to target", learning_verdict)
        legend = [(one.style, one.glyph, one.word) for one in dict.fromkeys(learning_verdict(row) for row in swept)]
        caption = "Median over seeds, evaluations left out; shorter is better. The glyph is the verdict on learning."
        blocks.append(_figure(anchor, "to-target", "Time to target", caption, draw, legend, half=_was_timed(rows)))
    title = "Every value with its price and both verdicts"
    blocks.append(measurement_table(f"{anchor}-table", title, rows, setting, "values", sweep_label))
    return blocks + _curves(record, anchor)


def _growth(record: Record, anchor: str) -> list[Element]:
    """A chart per setting that grew, each with the run as it is among its points."""
    base, blocks = next((row for row in record.rows if not row.get("setting")), None), list[Element]()

    def verdict_of(row: dict[str, Any]) -> Verdict:
        return speed_verdict(row, baseline=not row.get("setting"))

    for setting in dict.fromkeys(str(row["setting"]) for row in record.rows if row.get("setting")):
        rows = [_with_value(base, setting, record)] if base else []
        rows += [row for row in record.rows if row.get("setting") == setting]
        rows.sort(key=lambda row: float(row["settings"][setting]))
        name = setting.rsplit(".", 1)[-1].replace("_", " ")
        draw = partial(sweep_chart, rows, name, "steps_per_second", "steps per second", verdict_of)
        caption = f"All else as it is. {WAVERING}"
        blocks.append(_figure(anchor, name.replace(" ", "-"), f"Speed by {name}", caption, draw, half=True))
    if cost := number(record.data.get("bytes_per_row")):
        blocks.append(Callout(f"One more stored step takes {cost:,.0f} bytes of memory."))
    title = "Every point with its price; the changes are against the run as it is"
    return [*blocks, measurement_table(f"{anchor}-table", title, record.rows, "point", "points", row_name)]


def _with_value(base: dict[str, Any], setting: str, record: Record) -> dict[str, Any]:
    return base | {"settings": {setting: record.table("base").get(setting.rsplit(".", 1)[-1])}}


def _profile(record: Record, anchor: str) -> list[Element]:
    blocks: list[Element] = [Callout(advice)] if (advice := record.text("advice")) else []
    whole = next((row for row in record.rows if row.get("share") is None), {})
    run = {"label": "whole run", "split": record.table("split"), "steps_per_second": whole.get("steps_per_second")}
    if has_split(run):
        blocks += _split_figure([run], anchor)
    timed = [row | {"label": row.get("words") or row_name(row)} for row in record.rows]
    if _was_timed(timed):
        caption = f"What is left out is left out for timing only: such a run learns nothing. {WAVERING}"
        blocks.append(_figure(anchor, "parts", "With one part left out", caption, partial(speed_bars, timed)))
    return [*blocks, profile_table(f"{anchor}-table", record.rows)]


def _envs(record: Record, anchor: str) -> list[Element]:
    rows = [row for row in record.rows if number(row.get("steps_per_second")) is not None and number(row.get("lanes"))]
    plain = [{key: value for key, value in row.items() if key != "name"} for row in record.rows]
    table = plain_table(f"{anchor}-table", "The environment alone, by lanes and threads", plain)
    if not rows:
        return [table]
    caption = f"Neither acting nor learning: no training can be faster than this. {WAVERING}"
    return [_figure(anchor, "lanes", "The environment alone", caption, partial(lanes_chart, rows)), table]


def _peers(record: Record, anchor: str) -> list[Element]:
    rows, peer = record.rows, headline.peer_name(record)
    blocks: list[Element] = []
    if any(number(row.get("ratio")) is not None for row in rows):
        caption = f"Right of the line is faster than {peer}. Whiskers: 95 % interval of the ratio."
        draw = partial(ratio_chart, rows, peer)
        blocks.append(_figure(anchor, "ratio", f"Speed against {peer}", caption, draw))
    return [*blocks, peers_table(f"{anchor}-table", rows)]


def _run(record: Record, anchor: str) -> list[Element]:
    """Finished runs: their curves, and the last evaluation of each."""
    return [*_curves(record, anchor), runs_table(f"{anchor}-table", record.rows)]


def _other(record: Record, anchor: str) -> list[Element]:
    named = [{"label": f"repeat {place}"} | row for place, row in enumerate(record.rows, start=1)]
    rows = [row for row in named if number(row.get("steps_per_second")) is not None]
    table = plain_table(f"{anchor}-table", "What was measured", named)
    return [_figure(anchor, "speed", "Speed", "", partial(speed_bars, rows)), table] if rows else [table]


def anchor_of(record: Record, taken: set[str]) -> str:
    """An id for the section, unique on the page."""
    base = "record-" + (re.sub(r"[^A-Za-z0-9_-]+", "-", record.id).strip("-") or "unnamed")
    anchor, tried = base, 1
    while anchor in taken:
        tried += 1
        anchor = f"{base}-{tried}"
    taken.add(anchor)
    return anchor
