"""Charts with an x and a y axis: learning curves, sweeps over a setting, environments alone, whole runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastdqn.report import numbers
from fastdqn.report.bars import NARROW_BELOW
from fastdqn.report.curves import Series
from fastdqn.report.numbers import number, tick_text, ticks_between
from fastdqn.report.speed_charts import row_name
from fastdqn.report.svg import Drawing, shortened, tip
from fastdqn.report.verdicts import Verdict, learning_verdict

LONG_NUMBER = 10_000  # is written with commas
STYLES = 8  # series styles of the style sheet: each a colour and a dash


@dataclass(frozen=True)
class Plot:
    """The field between the axes, and where a value stands in it."""

    left: float
    right: float
    top: float
    bottom: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    def x(self, value: float) -> float:
        low, high = self.x_range
        return self.left + (self.right - self.left) * (value - low) / ((high - low) or 1.0)

    def y(self, value: float) -> float:
        low, high = self.y_range
        return self.bottom - (self.bottom - self.top) * (value - low) / ((high - low) or 1.0)


def make_plot(drawing: Drawing, x_range: tuple[float, float], lowest: float, highest: float, right_room: float = 12) -> Plot:
    """The y axis ends at round numbers."""
    narrow = drawing.width < NARROW_BELOW
    marks = ticks_between(min(lowest, 0.0), highest, 4 if narrow else 5)
    plot = Plot(52 if narrow else 66, drawing.width - right_room, 14, drawing.height - 46, x_range, (marks[0], marks[-1]))
    for mark in marks:
        drawing.line(plot.left, plot.y(mark), plot.right, plot.y(mark), "axis" if mark == 0 else "grid")
        drawing.text(plot.left - 7, plot.y(mark) + 4, tick_text(mark, max(map(abs, marks)), narrow), "tick", "end")
    return plot


def draw_number_axis(drawing: Drawing, plot: Plot) -> None:
    narrow = drawing.width < NARROW_BELOW
    for mark in ticks_between(*plot.x_range, 4 if narrow else 8):
        if plot.x_range[0] <= mark <= plot.x_range[1] * 1.0001:
            x = plot.x(mark)
            drawing.line(x, plot.bottom, x, plot.bottom + 4, "axis")
            drawing.text(x, plot.bottom + 18, tick_text(mark, plot.x_range[1], narrow), "tick", "middle")


def draw_axis_labels(drawing: Drawing, plot: Plot, x_label: str, y_label: str) -> None:
    drawing.text((plot.left + plot.right) / 2, drawing.height - 8, x_label, "axis-label", "middle")
    drawing.turned_text(13, (plot.top + plot.bottom) / 2, y_label, "axis-label")


def curves_chart(
    series: Sequence[Series], shown: Sequence[str], x_label: str, x_words: Callable[[float], str], target: float | None,
    width: int,
) -> Drawing:  # fmt: skip
    """Mean over seeds as a line, lowest to highest seed as a band. Series that are not `shown` begin switched off."""
    said = "; ".join(f"{one.name}: {numbers.plain(one.means[-1])} after {x_words(one.xs[-1])}" for one in series)
    drawing = Drawing(
        width, 280 if width < NARROW_BELOW else 400, "Learning curves", f"Score against {x_label}. At the end: {said}."
    )
    highest = max([*(max(one.highs) for one in series), target or 0.0])
    lowest = min(min(one.lows) for one in series)
    plot = make_plot(drawing, (0.0, max(one.xs[-1] for one in series) or 1.0), lowest, highest)
    draw_number_axis(drawing, plot)
    draw_axis_labels(drawing, plot, x_label, "score per game")
    if target is not None:
        drawing.line(plot.left, plot.y(target), plot.right, plot.y(target), "target-line")
        drawing.text(plot.left + 6, plot.y(target) - 6, f"target {numbers.plain(target)}", "target-name")
    for index, one in enumerate(series):
        off = "" if one.name in shown else " off"
        drawing.open_group(f"series s{index % STYLES} n{index}{off}")
        above = [(plot.x(x), plot.y(score)) for x, score in zip(one.xs, one.highs, strict=True)]
        below = [(plot.x(x), plot.y(score)) for x, score in zip(one.xs, one.lows, strict=True)]
        if one.seeds > 1:
            drawing.polygon([*above, *reversed(below)], "band")
        means = [(plot.x(x), plot.y(mean)) for x, mean in zip(one.xs, one.means, strict=True)]
        drawing.polyline(means, "curve")
        for at, (x, y) in enumerate(means):
            spread = f"lowest seed {numbers.plain(one.lows[at])}, highest {numbers.plain(one.highs[at])}"
            seeds = f"mean over {one.seeds} seeds" if one.seeds > 1 else "one seed"
            words = tip(one.name, x_words(one.xs[at]), f"score {numbers.plain(one.means[at])}, {seeds}")
            drawing.open_group("point", tip(words, spread if one.seeds > 1 else ""))
            drawing.circle(x, y, 4.5, "point-dot")
            drawing.close_group()
        drawing.close_group()
    return drawing


def sweep_label(row: dict[str, Any]) -> str:
    """The value alone where one setting was swept, otherwise all of them with their names."""
    settings = row.get("settings")
    values = list(settings.values()) if isinstance(settings, dict) else []
    if len(values) != 1:
        return str(row.get("value", row_name(row)))
    value = values[0]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and float(value).is_integer():
        return f"{int(value):,}" if abs(value) >= LONG_NUMBER else str(int(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def sweep_chart(
    rows: list[dict[str, Any]], setting: str, value_key: str, label: str, verdict_of: Callable[[dict[str, Any]], Verdict],
    width: int,
) -> Drawing:  # fmt: skip
    """One point per value of the setting, evenly spaced, with the verdict's glyph above and on learning below."""
    write = numbers.count if value_key == "steps_per_second" else numbers.minutes
    tops = [(numbers.interval(row.get("interval")) or (0.0, 0.0))[1] if write is numbers.count else 0.0 for row in rows]
    highest = max([*tops, *(number(row.get(value_key)) or 0.0 for row in rows)])
    said = "; ".join(
        f"{sweep_label(row)}: {numbers.shown(row.get(value_key), write)}, {verdict_of(row).word}" for row in rows
    )
    drawing = Drawing(width, 320, f"{setting}: {label}", f"{label} by {setting}. {said}.")
    plot = make_plot(drawing, (-0.5, len(rows) - 0.5), 0.0, highest * 1.14)
    draw_axis_labels(drawing, plot, setting, label)
    room = (plot.right - plot.left) / max(len(rows), 1) - 4
    known = [(plot.x(at), plot.y(value)) for at, row in enumerate(rows) if (value := number(row.get(value_key))) is not None]
    if all(_is_number(sweep_label(row)) for row in rows):
        drawing.polyline(known, "join")
    for at, row in enumerate(rows):
        x, value, verdict, learning = plot.x(at), number(row.get(value_key)), verdict_of(row), learning_verdict(row)
        drawing.text(x, plot.bottom + 17, shortened(sweep_label(row), room), "tick strong", "middle")
        if value is None:
            drawing.text(x, plot.bottom - 8, "–", "quiet", "middle")
            continue
        around = numbers.span(row.get("interval"), write) if write is numbers.count else ""
        change = number(row.get("change")) if write is numbers.count else number(row.get("minutes_change"))
        drawing.open_group(verdict.style, tip(
            f"{setting} = {sweep_label(row)}",
            f"{write(value)}{' steps/s' if write is numbers.count else ''}" + (f" ({around})" if around else ""),
            "" if change is None or at == 0 else f"change {numbers.times(change)} against {sweep_label(rows[0])}",
            f"{numbers.shown(row.get('samples_per_step'), numbers.plain)} samples per step",
            f"{verdict.glyph} {verdict.word}; {learning.glyph} learning: {learning.word}",
        ))  # fmt: skip
        drawing.rect(x - room / 2, plot.top, room, plot.bottom - plot.top, "hit", 4)
        interval = numbers.interval(row.get("interval")) if write is numbers.count else None
        if interval:
            drawing.standing_whisker(x, plot.y(interval[0]), plot.y(interval[1]))
        drawing.circle(x, plot.y(value), 6, f"dot {verdict.style}")
        drawing.text(
            x, plot.y(max(value, interval[1] if interval else value)) - 11, verdict.glyph, f"glyph {verdict.style}", "middle"
        )
        drawing.close_group()
    return drawing


def _is_number(words: str) -> bool:
    try:
        float(words.replace("_", "").replace(",", ""))
    except ValueError:
        return False
    return True


def lanes_chart(rows: list[dict[str, Any]], width: int) -> Drawing:
    """The environment alone: one line per number of threads, and the textbook's, over the number of lanes, evenly spaced."""
    lanes = sorted({int(row["lanes"]) for row in rows})
    lines: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(
        rows, key=lambda row: (row.get("path") != "textbook", int(row.get("threads") or 1), int(row["lanes"]))
    ):
        lines.setdefault(_line_name(row), []).append(row)
    highest = max((numbers.interval(row.get("interval")) or (0.0, row["steps_per_second"]))[1] for row in rows)
    best = max(rows, key=lambda row: float(row["steps_per_second"]))
    said = f"Fastest: {numbers.count(best['steps_per_second'])} steps per second with {best['lanes']} lanes"
    drawing = Drawing(width, 280 if width < NARROW_BELOW else 360, "The environment alone", f"{said}.")
    plot = make_plot(drawing, (-0.3, len(lanes) - 0.7), 0.0, highest, 78 if width < NARROW_BELOW else 96)
    draw_axis_labels(drawing, plot, "lanes (environments stepped together)", "environment steps per second")
    for at, value in enumerate(lanes):
        drawing.text(plot.x(at), plot.bottom + 17, f"{value:,}", "tick", "middle")
    ends = []
    for index, (name, line) in enumerate(lines.items()):
        points = [(plot.x(lanes.index(int(row["lanes"]))), plot.y(row["steps_per_second"])) for row in line]
        drawing.open_group(f"series s{index % STYLES}")
        drawing.polyline(points if len(points) > 1 else [*points, (plot.right, points[0][1])], "curve")  # one point: a level
        for row, (x, y) in zip(line, points, strict=True):
            around = numbers.span(row.get("interval"), numbers.count)
            speed = f"{numbers.count(row['steps_per_second'])} steps/s" + (f" ({around})" if around else "")
            drawing.open_group("point", tip(f"{int(row['lanes']):,} lanes, {name}", speed))
            if known := numbers.interval(row.get("interval")):
                drawing.standing_whisker(x, plot.y(known[0]), plot.y(known[1]))
            drawing.circle(x, y, 4.5, "point-dot shown")
            drawing.close_group()
        drawing.close_group()
        ends.append((points[-1][1], index, name))
    for y, index, words in _apart(ends, 16):
        drawing.text(plot.right + 6, y + 4, words, f"end-name t{index % STYLES}")
    return drawing


def _line_name(row: dict[str, Any]) -> str:
    if row.get("path") == "textbook":
        return "textbook"
    threads = int(row.get("threads") or 1)
    return "1 thread" if threads == 1 else f"{threads} threads"


def _apart(labels: list[tuple[float, int, str]], gap: float) -> list[tuple[float, int, str]]:
    """Moved downwards until none covers another."""
    placed: list[tuple[float, int, str]] = []
    for y, index, words in sorted(labels):
        placed.append((max(y, placed[-1][0] + gap) if placed else y, index, words))
    return placed
