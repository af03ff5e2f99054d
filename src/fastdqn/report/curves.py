"""Learning curves: from points of single seeds to a mean and a band over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastdqn.report.numbers import number

MOST_POINTS = 60  # of a drawn curve


@dataclass(frozen=True)
class Series:
    """The curve of one rung. Lows and highs are the lowest and the highest seed."""

    name: str
    xs: list[float]
    means: list[float]
    lows: list[float]
    highs: list[float]
    seeds: int


def curve_series(points: Sequence[dict[str, Any]], name_key: str, x_key: str, unit: float = 1.0) -> list[Series]:
    """One series per name, in order of appearance; x is divided by `unit`."""
    by_name: dict[str, dict[Any, list[tuple[float, float]]]] = {}
    for point in points:
        x, score = number(point.get(x_key)), number(point.get("score"))
        if x is not None and score is not None and point.get(name_key) is not None:
            seeds = by_name.setdefault(str(point[name_key]), {})
            seeds.setdefault(point.get("seed"), []).append((x / unit, score))
    return [_over_seeds(name, [sorted(curve) for curve in seeds.values()]) for name, seeds in by_name.items()]


def _over_seeds(name: str, curves: list[list[tuple[float, float]]]) -> Series:
    """Begins where the last seed begins. A seed that ended early, as it had reached its target, holds its last score."""
    grid = _common_grid(curves)
    scores = np.array([np.interp(grid, [x for x, _ in curve], [score for _, score in curve]) for curve in curves])
    return Series(
        name=name,
        xs=grid.tolist(),
        means=scores.mean(axis=0).tolist(),
        lows=scores.min(axis=0).tolist(),
        highs=scores.max(axis=0).tolist(),
        seeds=len(curves),
    )


def _common_grid(curves: list[list[tuple[float, float]]]) -> np.ndarray:
    start = max(curve[0][0] for curve in curves)
    end = max(curve[-1][0] for curve in curves)
    grid = np.unique([x for curve in curves for x, _ in curve if start <= x <= end])
    return grid if len(grid) <= MOST_POINTS else np.linspace(start, end, MOST_POINTS)
