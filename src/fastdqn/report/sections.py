"""From a record to its section: which charts and tables its kind has. A kind without data for a chart has no such chart."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from markupsafe import Markup

from fastdqn.report import headline, numbers
from fastdqn.report.curves import Series, curve_series
from fastdqn.report.line_charts import STYLES, curves_chart, lanes_chart, run_chart, sweep_chart
from fastdqn.report.numbers import number
from fastdqn.report.records import Record
from fastdqn.report.speed_charts import ladder_chart, minutes_chart, ratio_chart, row_name, speed_bars
from fastdqn.report.split_chart import WORDS, has_split, section_style, sections_of, split_chart
from fastdqn.report.svg import both_widths
from fastdqn.report.tables import Table, curves_table, measurement_table, peers_table, plain_table, split_table
from fastdqn.report.verdicts import BASELINE, Verdict, is_baseline, learning_verdict, speed_verdict

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
    views: list[tuple[str, Markup]]  # (name, picture); with more than one the reader chooses
    legend: list[tuple[str, str, str]] = field(default_factory=list)  # (style, glyph, words)
    toggles: list[Toggle] = field(default_factory=list)
    table: Table | None = None  # the same as numbers, folded away
    half: bool = False
    kind: str = "figure"


@dataclass(frozen=True)
class Callout:
    words: str
    kind: str = "callout"


Block = Figure | Table | Callout


def blocks_of(record: Record, anchor: str) -> list[Block]:
    makers: dict[str, Callable[[Record, str], list[Block]]] = {
        "ladder": _ladder,
        "sweep": _sweep,
        "profile": _profile,
        "envs": _envs,
        "peers": _peers,
        "run": _run,
    }
    return makers.get(record.kind, _other)(record, anchor) if record.rows else [Callout("This record holds no rows.")]


def _verdict_legend(rows: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    verdicts = dict.fromkeys(speed_verdict(row) for row in rows if not row.get("skipped"))
    return [(verdict.style, verdict.glyph, verdict.word) for verdict in verdicts]


def _ladder(record: Record, anchor: str) -> list[Block]:
    rows, ceiling = record.rows, record.table("ceiling")
    caption = "Whiskers: 95 % interval. The full-coloured end of a bar is what its rung gained or lost."
    if words := str(ceiling.get("words") or ""):
        caption += f" The ceiling is {words}."
    blocks: list[Block] = [
        _figure(anchor, "speed", "Speed by rung", caption, partial(ladder_chart, rows, ceiling), _verdict_legend(rows)),
        measurement_table(f"{anchor}-table", "Every rung with its price and both verdicts", rows, "rung", "rungs"),
    ]
    return blocks + _split_figure(rows, anchor) + _learning_figures(record, anchor, "rung")


def _figure(anchor: str, name: str, heading: str, caption: str, draw: Any, legend: Any = (), half: bool = False) -> Figure:
    key = f"{anchor}-{name}"
    picture = both_widths(key, draw, HALF) if half else both_widths(key, draw)
    return Figure(key, heading, caption, [("", picture)], list(legend), half=half)


def _split_figure(rows: list[dict[str, Any]], anchor: str) -> list[Block]:
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


def _learning_figures(record: Record, anchor: str, name_key: str) -> list[Block]:
    """Curves and the minutes until the target, where they were measured."""
    blocks: list[Block] = []
    target = _target(record)
    by_steps = curve_series(record.metrics, name_key, "step")
    by_minutes = curve_series(record.metrics, name_key, "seconds", unit=60.0)
    if by_steps:
        blocks.append(_curves_figure(record, anchor, by_steps, by_minutes, target))
    timed = [row for row in record.rows if _learning_was_measured(row)]
    if any(number(row.get("minutes_to_target")) is not None for row in timed):
        caption = "Median over seeds. The glyph is the verdict on learning."
        draw = partial(minutes_chart, timed, target)
        blocks.append(_figure(anchor, "minutes", "Time to target", caption, draw))
    return blocks


def _learning_was_measured(row: dict[str, Any]) -> bool:
    return number(row.get("minutes_to_target")) is not None or learning_verdict(row).word != "not measured"


def _curves_figure(
    record: Record, anchor: str, by_steps: list[Series], by_minutes: list[Series], target: float | None
) -> Figure:
    key, shown = f"{anchor}-curves", _first_shown(record, by_steps)
    verdicts = {row_name(row): BASELINE if is_baseline(row) else learning_verdict(row) for row in record.rows}
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
    caption = (
        f"Line: mean over seeds ({many}). Band: lowest to highest seed. A seed that ended early holds its last score. "
        "Choose the curves with the buttons."
    )
    return Figure(
        key, "Learning curves", caption, views, toggles=toggles, table=curves_table(f"{key}-table", by_steps)
    )  # fmt: skip


def _first_shown(record: Record, series: list[Series]) -> list[str]:
    """The textbook and the whole ladder, the first and the last of a sweep; the others are one click away."""
    names = [one.name for one in series]
    top = headline.top_rung(record) if record.kind == "ladder" else None
    last = row_name(top) if top and row_name(top) in names else names[-1]
    return [names[0], last]


def _target(record: Record) -> float | None:
    limits = record.table("config").get("limits")
    wishes = [record.table("measuring").get("target"), limits.get("target") if isinstance(limits, dict) else None]
    return next((value for wish in wishes if (value := number(wish)) is not None), None)


def _sweep(record: Record, anchor: str) -> list[Block]:
    rows = record.rows
    setting = str(rows[0].get("key") or "value")

    def verdict_of(row: dict[str, Any]) -> Verdict:
        return speed_verdict(row, baseline=row is rows[0])

    draw = partial(sweep_chart, rows, setting, "steps_per_second", "steps per second", verdict_of)
    legend = [(one.style, one.glyph, one.word) for one in dict.fromkeys(verdict_of(row) for row in rows)]
    caption = f"Change and verdict are against {row_name(rows[0])}. Whiskers: 95 % interval."
    has_minutes = any(number(row.get("minutes_to_target")) is not None for row in rows)
    blocks: list[Block] = [_figure(anchor, "speed", "Speed", caption, draw, legend, half=has_minutes)]
    if has_minutes:
        draw = partial(sweep_chart, rows, setting, "minutes_to_target", "minutes to target", learning_verdict)
        legend = [(one.style, one.glyph, one.word) for one in dict.fromkeys(learning_verdict(row) for row in rows)]
        blocks.append(_figure(anchor, "to-target", "Time to target", "Shorter is better.", draw, legend, half=True))
    blocks.append(
        measurement_table(f"{anchor}-table", "Every value with its price and both verdicts", rows, setting, "values")
    )
    name_key = next((key for key in ("value", "rung") if any(key in point for point in record.metrics)), "rung")
    return blocks + [block for block in _learning_figures(record, anchor, name_key) if block.kind == "figure"][:1]


def _profile(record: Record, anchor: str) -> list[Block]:
    blocks: list[Block] = [Callout(advice)] if (advice := record.text("advice")) else []
    split = record.table("split")
    whole = {"rung": "whole run", "split": split, "steps_per_second": record.data.get("steps_per_second")}
    if has_split(whole):
        blocks += _split_figure([whole], anchor)
    return [*blocks, plain_table(f"{anchor}-table", "What each part costs", record.rows)]


def _envs(record: Record, anchor: str) -> list[Block]:
    rows = [row for row in record.rows if number(row.get("steps_per_second")) is not None and number(row.get("lanes"))]
    table = plain_table(f"{anchor}-table", "The environment alone, by lanes and threads", record.rows)
    if not rows:
        return [table]
    caption = "Neither acting nor learning: no training can be faster than this. Whiskers: 95 % interval."
    return [_figure(anchor, "lanes", "The environment alone", caption, partial(lanes_chart, rows)), table]


def _peers(record: Record, anchor: str) -> list[Block]:
    rows, peer = record.rows, headline.peer_name(record)
    blocks: list[Block] = []
    if any(number(row.get("ratio")) is not None for row in rows):
        caption = f"Right of the line is faster than {peer}. Whiskers: 95 % interval of the ratio."
        draw = partial(ratio_chart, rows, peer)
        blocks.append(_figure(anchor, "ratio", f"Speed against {peer}", caption, draw))
    return [*blocks, peers_table(f"{anchor}-table", rows)]


def _run(record: Record, anchor: str) -> list[Block]:
    if not any(number(row.get("score_mean")) is not None and number(row.get("step")) is not None for row in record.rows):
        return _other(record, anchor)
    figure = _figure(anchor, "score", "Score", "Mean score of the games played.", partial(run_chart, record.rows))
    last = plain_table(f"{anchor}-table", "The end of the run", record.rows[-1:])
    return [figure, last]


def _other(record: Record, anchor: str) -> list[Block]:
    rows = [row for row in record.rows if number(row.get("steps_per_second")) is not None]
    table = plain_table(f"{anchor}-table", "What was measured", record.rows)
    if not rows:
        return [table]
    return [_figure(anchor, "speed", "Speed", "Whiskers: 95 % interval.", partial(speed_bars, rows)), table]


def anchor_of(record: Record, taken: set[str]) -> str:
    """An id for the section, unique on the page."""
    base = "record-" + (re.sub(r"[^A-Za-z0-9_-]+", "-", record.id).strip("-") or "unnamed")
    anchor, number_tried = base, 1
    while anchor in taken:
        number_tried += 1
        anchor = f"{base}-{number_tried}"
    taken.add(anchor)
    return anchor
