"""The learning curve as an image."""

from pathlib import Path
from typing import Any

STEEL, CORAL, GREY = "#2b6cb0", "#dd5a43", "#718096"


def draw_curve(path: Path, title: str, rows: list[dict[str, Any]], scores: list[dict[str, Any]]) -> None:
    """Score while exploring, score of the evaluator with its interval, and the speed below."""
    from matplotlib.figure import Figure  # not pyplot: it would change the backend under a user's notebook

    figure = Figure(figsize=(8, 5.6), layout="constrained", dpi=130)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    played = [row for row in rows if row["score_mean"] is not None]
    steps = [row["step"] for row in played]
    top.plot(steps, [row["score_mean"] for row in played], color=STEEL, lw=1.8, label="while exploring")
    if scores:
        means = [score["mean"] for score in scores]
        below = [score["mean"] - score["interval"][0] for score in scores]
        above = [score["interval"][1] - score["mean"] for score in scores]
        at = [score["step"] for score in scores]
        top.errorbar(at, means, [below, above], fmt="o", color=CORAL, ms=5, capsize=3, label="evaluator, 95 % interval")
        last = scores[-1]
        top.annotate(
            f"{last['mean']:.2f}", (last["step"], last["mean"]), (-8, 8), textcoords="offset points", ha="right",
            color=CORAL, weight="bold",
        )  # fmt: skip
    top.set_ylabel("score per game")
    top.set_title(title, loc="left", fontsize=11)
    top.legend(frameon=False, loc="best")
    bottom.plot([row["step"] for row in rows], [row["steps_per_second"] for row in rows], color=GREY, lw=1.2)
    bottom.set_ylabel("steps / s")
    bottom.set_ylim(bottom=0)
    bottom.set_xlabel("environment steps")
    bottom.xaxis.set_major_formatter(lambda value, _: human_count(value))
    for axes in (top, bottom):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def human_count(value: float) -> str:
    for size, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{suffix}"
    return f"{value:g}"
