"""A drawing: shapes with classes that the style sheet colours, so that one image serves light, dark and paper."""

from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

WIDE, NARROW = 1080, 350  # each image is drawn for both widths; the style sheet shows the one that fits
CHARACTER = 7.8  # px a character of 13 px takes in the widest of the usual fonts


class Drawing:
    """Collects shapes in drawing order. Coordinates are px of an image `width` wide."""

    def __init__(self, width: int, height: float, title: str, description: str) -> None:
        self.width, self.height, self.title, self.description = width, height, title, description
        self._parts: list[Markup] = []

    def text(self, x: float, y: float, words: str, style: str = "", anchor: str = "start") -> None:
        self._add('<text x="{}" y="{}" class="{}" text-anchor="{}">{}</text>', _px(x), _px(y), style, anchor, words)

    def turned_text(self, x: float, y: float, words: str, style: str = "") -> None:
        """Reads upwards: the label of a y axis."""
        shape = '<text class="{}" text-anchor="middle" transform="translate({} {}) rotate(-90)">{}</text>'
        self._add(shape, style, _px(x), _px(y), words)

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        self._add('<line x1="{}" y1="{}" x2="{}" y2="{}" class="{}"/>', _px(x1), _px(y1), _px(x2), _px(y2), style)

    def rect(self, x: float, y: float, width: float, height: float, style: str, radius: float = 0) -> None:
        shape = '<rect x="{}" y="{}" width="{}" height="{}" rx="{}" class="{}"/>'
        self._add(shape, _px(x), _px(y), _px(max(width, 0)), _px(height), _px(radius), style)

    def circle(self, x: float, y: float, radius: float, style: str) -> None:
        self._add('<circle cx="{}" cy="{}" r="{}" class="{}"/>', _px(x), _px(y), _px(radius), style)

    def polyline(self, points: Sequence[tuple[float, float]], style: str) -> None:
        self._add('<polyline points="{}" class="{}"/>', _points(points), style)

    def polygon(self, points: Sequence[tuple[float, float]], style: str) -> None:
        self._add('<polygon points="{}" class="{}"/>', _points(points), style)

    def whisker(self, low_x: float, high_x: float, y: float, reach: float = 4) -> None:
        """A lying interval."""
        for style in ("halo", "whisker"):
            self.line(low_x, y, high_x, y, style)
            for x in (low_x, high_x):
                self.line(x, y - reach, x, y + reach, style)

    def standing_whisker(self, x: float, low_y: float, high_y: float, reach: float = 4) -> None:
        self.line(x, low_y, x, high_y, "whisker")
        for y in (low_y, high_y):
            self.line(x - reach, y, x + reach, y, "whisker")

    def open_group(self, style: str, tip: str = "") -> None:
        """With a tip the group is a mark: pointing at it, or walking to it with the arrow keys, shows the tip."""
        if tip:
            self._add('<g class="mark {}" data-tip="{}">', style, tip)
        else:
            self._add('<g class="{}">', style)

    def close_group(self) -> None:
        self._parts.append(Markup("</g>"))

    def markup(self, key: str) -> Markup:
        """`key` is unique on the page."""
        head = Markup(
            '<svg viewBox="0 0 {w} {h}" role="img" tabindex="0" aria-labelledby="{k}-t {k}-d" data-width="{w}">'
            '<title id="{k}-t">{title}</title><desc id="{k}-d">{description}</desc>'
        ).format(w=self.width, h=_px(self.height), k=key, title=self.title, description=self.description)
        return head + Markup("\n").join(self._parts) + Markup("</svg>")

    def _add(self, shape: str, *values: object) -> None:
        self._parts.append(Markup(shape).format(*values))


Draw = Callable[[int], Drawing]


def both_widths(key: str, draw: Draw, wide: int = WIDE) -> Markup:
    """The image for a wide and for a narrow place."""
    images = [(name, draw(width).markup(f"{key}-{name}")) for name, width in (("wide", wide), ("narrow", NARROW))]
    return Markup("").join(Markup('<div class="{}">{}</div>').format(name, image) for name, image in images)


def shortened(words: str, room: float, character: float = CHARACTER) -> str:
    """What fits into `room` px; the whole of it belongs into the tip."""
    fits = max(int(room / character), 3)
    return words if len(words) <= fits else words[: fits - 1].rstrip() + "…"


def tip(*lines: str) -> str:
    return "\n".join(line for line in lines if line)


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _points(points: Sequence[tuple[float, float]]) -> str:
    return str(escape(" ".join(f"{_px(x)},{_px(y)}" for x, y in points)))
