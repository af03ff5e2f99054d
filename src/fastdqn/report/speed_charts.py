"""Bars of speed: the rungs of a ladder with their ceiling, plain speeds, ratios to a peer, minutes until solved."""

from typing import Any

from fastdqn.report import numbers
from fastdqn.report.bars import (
    AXIS_ROOM,
    BarLayout,
    bar_layout,
    draw_column_heads,
    draw_figures,
    draw_name,
    draw_standing_line,
    draw_value_axis,
)
from fastdqn.report.numbers import number
from fastdqn.report.svg import CHARACTER, Drawing, shortened, tip
from fastdqn.report.verdicts import BASELINE, Verdict, is_baseline, learning_verdict, speed_verdict

STEPS_PER_SECOND = "environment steps per second"
PART_HEADINGS = {
    "ladder": "The ladder: each rung on top of those above",
    "extra": "The default and one more, against the default",
    "leave_one_out": "The default without one, against the default",
    "roles": "Where the roles live, against the default",
}
FAR = 2.5  # a ceiling this many times beyond the fastest bar is named at the edge instead of squeezing all bars


def row_name(row: dict[str, Any]) -> str:
    for key in ("label", "rung", "value", "name", "run", "part"):
        if row.get(key) is not None:
            return str(row[key])
    return "row"


def parts_of(rows: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Rows by part, the ladder first; a heading for each where there is more than one."""
    names = list(dict.fromkeys(str(row.get("part") or "ladder") for row in rows))
    names.sort(key=lambda name: list(PART_HEADINGS).index(name) if name in PART_HEADINGS else len(PART_HEADINGS))
    groups = [(name, [row for row in rows if str(row.get("part") or "ladder") == name]) for name in names]
    return [(PART_HEADINGS.get(name, name) if len(groups) > 1 else "", members) for name, members in groups]


def ladder_chart(rows: list[dict[str, Any]], ceiling: dict[str, Any], width: int) -> Drawing:
    groups = parts_of(rows)
    layout = bar_layout(width, [row_name(row) for row in rows], columns=2)
    top = y = 34.0
    spans = []  # top and bottom of the rows of each part
    for heading, members in groups:
        y += 30 if heading else 0
        spans.append((y, y + len(members) * layout.row_height))
        y = spans[-1][1]
    bottom = y
    fastest = max((_reach(row) for row in rows), default=0.0) or 1.0
    limit = number(ceiling.get("steps_per_second"))
    highest = max(fastest, limit) * 1.03 if limit and limit <= fastest * FAR else fastest * 1.05
    drawing = Drawing(width, bottom + AXIS_ROOM, "Speed by rung", _describe_speeds(rows, limit))
    draw_value_axis(drawing, layout, spans, highest, STEPS_PER_SECOND)
    draw_column_heads(drawing, layout, top - 12, ["steps/s", "change"])
    if limit:
        ys = [first_y + index * layout.row_height for (_, members), (first_y, _) in zip(groups, spans, strict=True)
              for index in range(len(members))]  # fmt: skip
        _draw_ceiling(drawing, layout, top, ys, limit, highest, ceiling)
    for (heading, members), (first_y, _) in zip(groups, spans, strict=True):
        drawing.text(2, first_y - 10, shortened(heading, width, 6.9), "part")
        for index, row in enumerate(members):
            _draw_rung(drawing, layout, first_y + index * layout.row_height, row, highest)
    return drawing


def _reach(row: dict[str, Any]) -> float:
    """The largest value a row draws: its interval, or the speed it was compared with."""
    known = numbers.interval(row.get("interval"))
    return max(number(row.get("steps_per_second")) or 0.0, known[1] if known else 0.0, _before(row) or 0.0)


def _before(row: dict[str, Any]) -> float | None:
    """The speed that `change` compares with."""
    speed, change = number(row.get("steps_per_second")), number(row.get("change"))
    return speed / change if speed and change else None


def speed_tip(row: dict[str, Any], verdict: Verdict) -> str:
    learning = learning_verdict(row)
    speed = numbers.shown(row.get("steps_per_second"), numbers.count)
    change = number(row.get("change"))
    return tip(
        row_name(row),
        f"{speed} steps/s" + _in_brackets(numbers.span(row.get("interval"), numbers.count)),
        ""
        if change is None
        else f"change {numbers.times(change)}" + _in_brackets(numbers.span(row.get("change_interval"), numbers.times)),
        f"{numbers.shown(row.get('samples_per_step'), numbers.plain)} samples per step",
        f"{verdict.glyph} {verdict.word}; {learning.glyph} learning: {learning.word}",
        str(row.get("summary") or ""),
    )


def _in_brackets(words: str) -> str:
    return f" ({words})" if words else ""


def _draw_rung(drawing: Drawing, layout: BarLayout, y: float, row: dict[str, Any], highest: float) -> None:
    verdict, speed = speed_verdict(row), number(row.get("steps_per_second"))
    name = row_name(row)
    if speed is None:
        draw_name(drawing, layout, y, verdict.glyph, verdict.style, name)
        why = f"skipped: {row['skipped']}" if row.get("skipped") else "not measured"
        drawing.text(layout.left + 8, layout.middle(y) + 4.5, shortened(why, layout.right - layout.left), "quiet")
        return
    drawing.open_group(verdict.style, speed_tip(row, verdict))
    drawing.rect(0, y, layout.width, layout.row_height, "hit", 4)
    draw_name(drawing, layout, y, verdict.glyph, verdict.style, name)
    bar_y, before = layout.bar_y(y), _before(row)
    end = layout.x(speed, highest)
    if verdict.style in ("up", "down") and before is not None:
        low, high = sorted((end, layout.x(before, highest)))
        drawing.rect(layout.left, bar_y, low - layout.left, layout.bar_height, f"bar pale {verdict.style}")
        drawing.rect(low, bar_y, high - low, layout.bar_height, f"bar {'gain' if end == high else 'loss'} {verdict.style}")
    else:
        drawing.rect(layout.left, bar_y, end - layout.left, layout.bar_height, f"bar {verdict.style}")
    if known := numbers.interval(row.get("interval")):
        drawing.whisker(layout.x(known[0], highest), layout.x(known[1], highest), layout.middle(y))
    draw_figures(drawing, layout, y, [numbers.count(speed), numbers.times(change) if (change := _change(row)) else ""])
    drawing.close_group()


def _change(row: dict[str, Any]) -> float | None:
    return None if speed_verdict(row).style == "base" else number(row.get("change"))


def _draw_ceiling(
    drawing: Drawing, layout: BarLayout, top: float, ys: list[float], limit: float, highest: float, ceiling: dict[str, Any]
) -> None:
    fits = limit <= highest
    x = layout.x(limit, highest)
    share = number(ceiling.get("share"))
    of_it = f"the fastest rung reaches {numbers.percent(share)} of it" if share else ""
    words = tip("Ceiling", f"{numbers.count(limit)} steps/s", str(ceiling.get("words") or ""), of_it)
    drawing.open_group("ceiling", words)
    draw_standing_line(drawing, layout, x, top - 8, ys, "ceiling-line" if fits else "ceiling-line far")
    name = f"ceiling {numbers.count(limit)}" + ("" if fits else " →")
    half, edge = len(name) * CHARACTER / 2, layout.width if layout.narrow else layout.right + 36  # before the column heads
    drawing.text(min(x, edge - half), top - 14, name, "ceiling-name", "middle")
    drawing.close_group()


def _describe_speeds(rows: list[dict[str, Any]], limit: float | None) -> str:
    said = [
        f"{row_name(row)}: {numbers.shown(row.get('steps_per_second'), numbers.count)} ({speed_verdict(row).word})"
        for row in rows
    ]
    above = f" The ceiling is {numbers.count(limit)}." if limit else ""
    return f"Environment steps per second. {'; '.join(said)}.{above}"


def speed_bars(rows: list[dict[str, Any]], width: int) -> Drawing:
    """Speeds without a comparison."""
    layout = bar_layout(width, [row_name(row) for row in rows], columns=1)
    top, bottom = 14.0, 14.0 + len(rows) * layout.row_height
    highest = (max(_reach(row) for row in rows) or 1.0) * 1.05
    drawing = Drawing(width, bottom + AXIS_ROOM, "Speed", _describe_speeds(rows, None))
    draw_value_axis(drawing, layout, [(top, bottom)], highest, STEPS_PER_SECOND)
    for index, row in enumerate(rows):
        y, speed = top + index * layout.row_height, number(row.get("steps_per_second")) or 0.0
        around = _in_brackets(numbers.span(row.get("interval"), numbers.count))
        drawing.open_group("flat", tip(row_name(row), f"{numbers.count(speed)} steps/s{around}"))
        drawing.rect(0, y, layout.width, layout.row_height, "hit", 4)
        draw_name(drawing, layout, y, "", "", row_name(row))
        drawing.rect(layout.left, layout.bar_y(y), layout.x(speed, highest) - layout.left, layout.bar_height, "bar flat")
        if known := numbers.interval(row.get("interval")):
            drawing.whisker(layout.x(known[0], highest), layout.x(known[1], highest), layout.middle(y))
        draw_figures(drawing, layout, y, [numbers.count(speed)])
        drawing.close_group()
    return drawing


def ratio_verdict(row: dict[str, Any]) -> Verdict:
    """Ours against the peer, by the interval of the ratio."""
    ratio, known = number(row.get("ratio")), numbers.interval(row.get("ratio_interval"))
    if ratio is None:
        return Verdict("the peer", "◆", "base")
    low, high = known or (ratio, ratio)
    if low > 1:
        return Verdict("faster", "▲", "up")
    return Verdict("slower", "▼", "down") if high < 1 else Verdict("no clear difference", "≈", "same")


def ratio_chart(rows: list[dict[str, Any]], peer: str, width: int) -> Drawing:
    """Times the speed of the peer: a bar from 1, the line where both are equally fast."""
    compared = [row for row in rows if number(row.get("ratio")) is not None]
    layout = bar_layout(width, [row_name(row) for row in compared], columns=1)
    top, bottom = 34.0, 34.0 + len(compared) * layout.row_height
    reach = [
        max(number(row["ratio"]) or 0.0, (numbers.interval(row.get("ratio_interval")) or (0, 0))[1]) for row in compared
    ]
    highest = max([*reach, 1.5]) * 1.05
    said = "; ".join(f"{row_name(row)}: {numbers.times(row['ratio'])}, {ratio_verdict(row).word}" for row in compared)
    drawing = Drawing(width, bottom + AXIS_ROOM, f"Speed against {peer}", f"Times as fast as {peer}. {said}.")
    draw_value_axis(drawing, layout, [(top, bottom)], highest, f"times the steps per second of {peer}", "×")
    one = layout.x(1.0, highest)
    ys = [top + index * layout.row_height for index in range(len(compared))]
    draw_standing_line(drawing, layout, one, top - 8, ys, "equal-line")
    drawing.text(
        2 if layout.narrow else one, top - 14, f"{peer} = 1", "ceiling-name", "start" if layout.narrow else "middle"
    )
    for index, row in enumerate(compared):
        y, ratio, verdict = top + index * layout.row_height, float(row["ratio"]), ratio_verdict(row)
        around = _in_brackets(numbers.span(row.get("ratio_interval"), numbers.times))
        speed = f"{numbers.shown(row.get('steps_per_second'), numbers.count)} steps/s"
        words = tip(row_name(row), f"{numbers.times(ratio)} {peer}{around}", speed, f"{verdict.glyph} {verdict.word}")
        drawing.open_group(verdict.style, words)
        drawing.rect(0, y, layout.width, layout.row_height, "hit", 4)
        draw_name(drawing, layout, y, verdict.glyph, verdict.style, row_name(row))
        low, high = sorted((one, layout.x(ratio, highest)))
        drawing.rect(low, layout.bar_y(y) + 3, high - low, layout.bar_height - 6, f"bar {verdict.style}")
        drawing.circle(layout.x(ratio, highest), layout.middle(y), 6, f"dot {verdict.style}")
        if known := numbers.interval(row.get("ratio_interval")):
            drawing.whisker(layout.x(known[0], highest), layout.x(known[1], highest), layout.middle(y))
        draw_figures(drawing, layout, y, [numbers.times(ratio)])
        drawing.close_group()
    return drawing


def minutes_chart(rows: list[dict[str, Any]], target: float | None, width: int) -> Drawing:
    """Minutes until the target score; shorter is better."""
    layout = bar_layout(width, [row_name(row) for row in rows], columns=2)
    top = 6.0 if layout.narrow else 30.0
    bottom = top + len(rows) * layout.row_height
    highest = (max(number(row.get("minutes_to_target")) or 0.0 for row in rows) or 1.0) * 1.05
    said = "; ".join(f"{row_name(row)}: {numbers.shown(row.get('minutes_to_target'), numbers.minutes)}" for row in rows)
    score = "" if target is None else f" of {numbers.plain(target)}"
    drawing = Drawing(width, bottom + AXIS_ROOM, "Time to target", f"Minutes until the target score{score}. {said}.")
    draw_value_axis(drawing, layout, [(top, bottom)], highest, f"minutes until the target score{score} (shorter is better)")
    draw_column_heads(drawing, layout, top - 10, ["minutes", "change"])
    for index, row in enumerate(rows):
        y, value = top + index * layout.row_height, number(row.get("minutes_to_target"))
        verdict = BASELINE if is_baseline(row) else learning_verdict(row)
        if value is None:
            draw_name(drawing, layout, y, verdict.glyph, verdict.style, row_name(row))
            drawing.text(layout.left + 8, layout.middle(y) + 4.5, "target not reached", "quiet")
            continue
        change = None if is_baseline(row) else number(row.get("minutes_change"))
        changed = "" if change is None else f"{numbers.times(change)} the minutes of the textbook"
        words = tip(row_name(row), numbers.minutes(value), changed, f"{verdict.glyph} learning: {verdict.word}")
        drawing.open_group("flat", words)
        drawing.rect(0, y, layout.width, layout.row_height, "hit", 4)
        draw_name(drawing, layout, y, verdict.glyph, verdict.style, row_name(row))
        drawing.rect(layout.left, layout.bar_y(y), layout.x(value, highest) - layout.left, layout.bar_height, "bar flat")
        draw_figures(drawing, layout, y, [numbers.minutes(value), "" if change is None else numbers.times(change)])
        drawing.close_group()
    return drawing
