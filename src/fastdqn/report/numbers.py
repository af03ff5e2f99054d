"""How numbers are written on the page: thousands separated, units beside them, nothing invented where one is missing."""

import math
from collections.abc import Callable
from typing import Any

MISSING = "–"
Write = Callable[[float], str]


def number(value: Any) -> float | None:
    """A finite number, or None for whatever else a record may hold."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def interval(value: Any) -> tuple[float, float] | None:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        return None
    low, high = number(value[0]), number(value[1])
    return None if low is None or high is None else (min(low, high), max(low, high))


def count(value: float) -> str:
    """1234567.8 -> 1,234,568; small numbers keep three figures."""
    if abs(value) >= 100 or value == round(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def plain(value: float) -> str:
    """Up to two decimals, none that are zeros: 4, 0.5, 7.98."""
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def times(value: float) -> str:
    return f"{value:,.0f}×" if value >= 100 else f"{value:.1f}×" if value >= 10 else f"{value:.2f}×"


def headline_times(value: float) -> str:
    return times(value) if value < 1 or value >= 10 else f"{value:.1f}×"


def percent(share: float) -> str:
    """A share of 1 as a percentage."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 10 or value == 0 else f"{value:.1f} %"


def whole_percent(value: float) -> str:
    return f"{value:,.0f} %"


def minutes(value: float) -> str:
    return f"{_minute_figures(value)} min"


def _minute_figures(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def microseconds(value: float) -> str:
    return f"{value:,.0f} µs" if value >= 10 else f"{value:.1f} µs"


def megabytes(value: float) -> str:
    return f"{value:,.0f} MB" if value < 10_000 else f"{value / 1000:,.1f} GB"


def headline_minutes(value: float) -> str:
    return f"{value:.1f} min" if 1 <= value < 10 else minutes(value)


def shown(value: Any, write: Write) -> str:
    known = number(value)
    return MISSING if known is None else write(known)


def span(value: Any, write: Write) -> str:
    """'5,100 to 5,300', '1.04 to 1.10×', or nothing."""
    known = interval(value)
    return "" if known is None else f"{write(known[0]).removesuffix('×')} to {write(known[1])}"


def ticks(high: float, wanted: int) -> list[float]:
    """Round numbers from 0 to the first at or above `high`, about `wanted` of them."""
    if high <= 0:
        return [0.0, 1.0]
    rough = high / wanted
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= rough * 0.999)
    return [index * step for index in range(math.ceil(high / step - 1e-9) + 1)]


def ticks_between(low: float, high: float, wanted: int) -> list[float]:
    """The same where values may lie below 0, as scores do."""
    if low >= 0:
        return ticks(high, wanted)
    step = ticks(high - low, wanted)[1]
    first, last = math.floor(low / step), math.ceil(high / step)
    return [index * step for index in range(first, last + 1)]


def tick_text(value: float, highest: float, narrow: bool = False) -> str:
    """5,000 while it is short, 2.5M where it is not."""
    for size, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(highest) >= size and (size > 1e3 or narrow or highest >= 1e5) and value:
            return f"{value / size:g}{suffix}"
    return f"{value:,.0f}" if value == round(value) else f"{value:g}"
