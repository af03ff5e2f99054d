"""Lying bars with a name, a bar and figures per row: beside each other where there is room, stacked on a phone."""

from dataclasses import dataclass

from fastdqn.report.numbers import tick_text, ticks
from fastdqn.report.svg import CHARACTER, Drawing, shortened

NARROW_BELOW = 500
GLYPH_ROOM = 22


@dataclass(frozen=True)
class BarLayout:
    """Where things stand. `y` of a row is its top; the rows of a chart are `row_height` apart."""

    width: int
    left: float  # of the bars
    right: float
    row_height: float
    bar_offset: float  # from the top of a row to its bar
    bar_height: float
    columns: int

    @property
    def narrow(self) -> bool:
        return self.width < NARROW_BELOW

    def x(self, value: float, highest: float) -> float:
        return self.left + (self.right - self.left) * min(value / highest, 1.0)

    def bar_y(self, y: float) -> float:
        return y + self.bar_offset

    def middle(self, y: float) -> float:
        return y + self.bar_offset + self.bar_height / 2


COLUMN_ROOM = 84


def bar_layout(width: int, labels: list[str], columns: int) -> BarLayout:
    if width < NARROW_BELOW:
        return BarLayout(width, 2, width - 8, 50, 21, 17, columns)
    left = min(max(len(label) for label in labels) * CHARACTER + GLYPH_ROOM + 14, 290)
    return BarLayout(width, left, width - columns * COLUMN_ROOM - 10, 32, 6, 20, columns)


def draw_name(drawing: Drawing, layout: BarLayout, y: float, glyph: str, style: str, name: str) -> None:
    """The glyph of the verdict and the name of the row."""
    base = y + 14 if layout.narrow else layout.middle(y) + 4.5
    if glyph:
        drawing.text(layout.left if layout.narrow else 2, base, glyph, f"glyph {style}")
    start = (layout.left if layout.narrow else 2) + (0 if not glyph else 18 if layout.narrow else GLYPH_ROOM)
    room = layout.width - start - 106 if layout.narrow else layout.left - start - 8  # 106: the figures at the right
    drawing.text(start, base, shortened(name, room), "name")


def draw_figures(drawing: Drawing, layout: BarLayout, y: float, figures: list[str]) -> None:
    """Right-aligned columns beside the bar; above it, joined, on a phone. The first figure is the main one."""
    if layout.narrow:
        drawing.text(layout.width - 4, y + 14, " · ".join(figure for figure in figures if figure), "figure", "end")
        return
    for index, figure in enumerate(figures):
        x = layout.right + 10 + (index + 1) * COLUMN_ROOM - 4
        drawing.text(x, layout.middle(y) + 4.5, figure, "figure" if index == 0 else "figure quiet", "end")


def draw_column_heads(drawing: Drawing, layout: BarLayout, y: float, heads: list[str]) -> None:
    for index, head in enumerate(heads if not layout.narrow else []):
        drawing.text(layout.right + 10 + (index + 1) * COLUMN_ROOM - 4, y, head, "tick", "end")


def draw_value_axis(
    drawing: Drawing, layout: BarLayout, spans: list[tuple[float, float]], highest: float, label: str, suffix: str = ""
) -> None:
    """Grid lines from top to bottom of each span, ticks below the last, and the label with its unit below those."""
    bottom = spans[-1][1]
    for mark in (mark for mark in ticks(highest, 4 if layout.narrow else 7) if mark <= highest * 1.0001):
        x = layout.x(mark, highest)
        for top_of_span, bottom_of_span in spans:
            drawing.line(x, top_of_span, x, bottom_of_span, "axis" if mark == 0 else "grid")
        at_edge = layout.narrow and mark == 0, layout.narrow and x > layout.right - 12
        anchor = "start" if at_edge[0] else "end" if at_edge[1] else "middle"
        drawing.text(x, bottom + 17, tick_text(mark, highest, layout.narrow) + suffix, "tick", anchor)
    drawing.text((layout.left + layout.right) / 2, bottom + 37, label, "axis-label", "middle")


def draw_standing_line(drawing: Drawing, layout: BarLayout, x: float, top: float, ys: list[float], style: str) -> None:
    """A value that all bars are held against; `ys` are the tops of the rows. On a phone, where names stand above the bars,
    it crosses the bars only."""
    if layout.narrow:
        for y in ys:
            drawing.line(x, layout.bar_y(y) - 3, x, layout.bar_y(y) + layout.bar_height + 3, style)
    else:
        drawing.line(x, top, x, ys[-1] + layout.row_height, style)


AXIS_ROOM = 46  # px below the bars that ticks and label need
