"""Where the time goes: one stacked bar per row, as shares or as microseconds per step."""

from typing import Any

from fastdqn.report import numbers
from fastdqn.report.bars import AXIS_ROOM, bar_layout, draw_column_heads, draw_figures, draw_name, draw_value_axis
from fastdqn.report.numbers import number
from fastdqn.report.speed_charts import row_name
from fastdqn.report.svg import CHARACTER, Drawing, tip

SECTIONS = ("env", "act", "store", "sample", "learn", "other")
WORDS = {
    "env": "env: stepping environments",
    "act": "act: choosing actions",
    "store": "store: writing replay",
    "sample": "sample: drawing batches",
    "learn": "learn: updates",
    "other": "other",
}


def has_split(row: dict[str, Any]) -> bool:
    split = row.get("split")
    return isinstance(split, dict) and sum(number(share) or 0.0 for share in split.values()) > 0


def sections_of(rows: list[dict[str, Any]]) -> list[str]:
    """The sections that occur, in the order of the data path, unknown ones behind."""
    found = {name for row in rows for name in row["split"]}
    return [name for name in SECTIONS if name in found] + sorted(found - set(SECTIONS))


def section_style(name: str) -> str:
    return f"section-{name}" if name in SECTIONS else "section-other"


def split_chart(rows: list[dict[str, Any]], per_step: bool, width: int) -> Drawing:
    """`per_step`: bars as long as a step takes; otherwise all bars are as long as the whole."""
    timed = any(_micros(row) is not None for row in rows)
    layout = bar_layout(width, [row_name(row) for row in rows], columns=1 if timed else 0)
    top = 6.0 if layout.narrow else 30.0
    bottom = top + len(rows) * layout.row_height
    totals = [_total(row, per_step) for row in rows]
    highest = max(totals) * (1.03 if per_step else 1.0)
    said = "; ".join(f"{row_name(row)}: {_spoken(row)}" for row in rows)
    title = "Time per step" if per_step else "Where the time goes"
    label = "microseconds per environment step" if per_step else "share of the time, per cent"
    drawing = Drawing(width, bottom + AXIS_ROOM, title, f"Share of the time by section. {said}.")
    draw_value_axis(drawing, layout, [(top, bottom)], highest, label)
    draw_column_heads(drawing, layout, top - 10, ["µs per step"] if timed else [])
    for index, (row, total) in enumerate(zip(rows, totals, strict=True)):
        y, x = top + index * layout.row_height, layout.left
        draw_name(drawing, layout, y, "", "", row_name(row))
        whole = sum(number(share) or 0.0 for share in row["split"].values())
        micros = _micros(row)
        for name in sections_of([row]):
            share = (number(row["split"][name]) or 0.0) / whole
            length = (layout.right - layout.left) * share * total / highest
            time = "" if micros is None else f"{numbers.microseconds(share * micros)} per step"
            drawing.open_group(section_style(name), tip(row_name(row), WORDS.get(name, name), numbers.percent(share), time))
            drawing.rect(x, layout.bar_y(y), max(length - 1, 0.5), layout.bar_height, "segment")
            for words in (f"{name} {numbers.percent(share)}", name):
                if length > len(words) * CHARACTER * 0.86 + 8:
                    drawing.text(x + length / 2, layout.middle(y) + 4, words, "inside", "middle")
                    break
            drawing.close_group()
            x += length
        draw_figures(drawing, layout, y, [numbers.shown(micros, numbers.microseconds)] if timed else [])
    return drawing


def _micros(row: dict[str, Any]) -> float | None:
    speed = number(row.get("steps_per_second"))
    return 1e6 / speed if speed else None


def _total(row: dict[str, Any], per_step: bool) -> float:
    return (_micros(row) or 0.0) if per_step else 100.0


def _spoken(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} {numbers.percent(number(row['split'][name]) or 0.0)}" for name in sections_of([row]))
