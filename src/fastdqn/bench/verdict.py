"""From measurements to words: is it faster, and does it learn as well? Numbers in, verdicts out, nothing is run here.

Every random stream is fixed: the same measurements always give the same verdict.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Repeats = Sequence[Sequence[float]]  # one entry per repeat: the speeds of its windows, steps per second
Curve = Sequence[Sequence[float]]  # evaluations of one seed in order: (step, score)
TimedCurve = Sequence[Sequence[float]]  # the same with the clock: (step, seconds, score)

SpeedVerdict = Literal["faster", "slower", "no clear difference"]
LearningVerdict = Literal[
    "not measured",
    "reference does not learn",
    "does not learn",
    "learns worse",
    "learns as well",
    "learns better",
    "undecided",
]

ENOUGH_SEEDS = 8  # what the promise SAME_LEARNING asks for
LEARNED_NOTHING = 0.25  # share of the way from random to target: a final score below it is hardly learning
LEARNED = 0.5  # at or above it a reference has learned
MANY_SEEDS = 100  # a hint that asks for more than this is no help


@dataclass(frozen=True)
class SpeedRatio:
    """Speed of the new variant over that of the old, with a 95 % interval."""

    value: float
    low: float
    high: float


def ratio_interval(new: Repeats, old: Repeats, resamples: int = 2_000) -> SpeedRatio:
    """How many times as fast is `new`?

    Repeat i of both was measured in round i, one right after the other, so a machine that is slow for a minute slows both
    and leaves their ratio. A repeat without a partner in its round says nothing about the ratio: where one side has more
    repeats, its surplus at the end is left out.

    The speed of a repeat is the mean of its windows. The value is the median over rounds of the ratio, taken of its
    logarithm, so that swapping the two gives exactly the inverse, also for the interval.

    The interval is a hierarchical bootstrap: draw rounds, then windows within each repeat, with replacement. With a single
    round only windows are drawn. That misses whatever changes from process to process (memory layout, autotuning, the
    neighbours of the hour) and is too narrow by that much. Few rounds show it coarsely: of three, the interval is about the
    range from the slowest to the fastest, and where processes waver by as much as windows do, 2 %, it holds the truth in
    86 % of trials; of five rounds in 95 %.
    """
    rounds = min(len(new), len(old))
    if not rounds:
        raise ValueError("no round was measured on both sides: there is no ratio")
    new_windows, old_windows = _windows(new[:rounds]), _windows(old[:rounds])
    log_ratios = [math.log(a.mean() / b.mean()) for a, b in zip(new_windows, old_windows, strict=True)]
    half = max(1, resamples // 2)  # the second half swaps the streams: neither side is the one with the lucky draws
    resampled = [_resampled_log_ratios(new_windows, old_windows, *streams, half) for streams in ((1, 2), (2, 1))]
    low, high = np.quantile(np.concatenate(resampled), [0.025, 0.975])
    return SpeedRatio(value=math.exp(np.median(log_ratios)), low=math.exp(low), high=math.exp(high))


def speed_verdict(ratio: SpeedRatio, margin: float = 0.02) -> SpeedVerdict:
    """A difference must be both certain (1 lies outside the interval) and worth a word (at least the margin).

    Slower is the mirror of faster: what is slower by this rule is faster when the two are swapped.

    Simulated with 3 rounds of 10 windows, windows that waver by 2 % and processes by 1 %: a planted loss of 5 % is "slower"
    in 99.8 % of trials, equal variants are "no clear difference" in 97.8 %. Where processes waver by 2 % as well, these
    are 80 % and 91 %: take more rounds there.
    """
    if ratio.low > 1 and ratio.value >= 1 + margin:
        return "faster"
    if ratio.high < 1 and ratio.value <= 1 / (1 + margin):
        return "slower"
    return "no clear difference"


def _windows(repeats: Repeats) -> list[np.ndarray]:
    windows = [np.asarray(repeat, dtype=float) for repeat in repeats]
    for number, speeds in enumerate(windows):
        if not len(speeds) or not np.isfinite(speeds).all() or speeds.min() <= 0:
            raise ValueError(f"repeat {number} must hold speeds above 0, not {speeds.tolist()}")
    return windows


def _resampled_log_ratios(
    new: list[np.ndarray], old: list[np.ndarray], new_stream: int, old_stream: int, count: int
) -> np.ndarray:
    """Medians over rounds of `count` resamples. A drawn round takes any of the resamples of its windows."""
    if all(len(a) == len(b) for a, b in zip(new, old, strict=True)):
        old_stream = new_stream  # window i of both was measured at about the same time, in turns: they are drawn together
    pool = _resampled_log_means(new, new_stream, count) - _resampled_log_means(old, old_stream, count)  # [rounds, count]
    rng = np.random.default_rng(0)
    shape = (count, len(new))
    return np.median(pool[rng.integers(len(new), size=shape), rng.integers(count, size=shape)], axis=1)


def _resampled_log_means(windows: list[np.ndarray], stream: int, count: int) -> np.ndarray:
    rng = np.random.default_rng(stream)
    draws = [rng.integers(len(speeds), size=(count, len(speeds))) for speeds in windows]
    return np.log([speeds[drawn].mean(axis=1) for speeds, drawn in zip(windows, draws, strict=True)])


@dataclass(frozen=True)
class Learning:
    """What the curves of two variants say. Scores are raw; None where it was not measured."""

    verdict: LearningVerdict
    reason: str  # a sentence or two: what decided, or what would
    seeds: int  # of the side with fewer
    enough_seeds: bool
    margin_score: float  # the margin in score
    area_new: float | None = None  # mean over seeds of the mean height of the curve
    area_old: float | None = None
    difference: float | None = None  # area_new - area_old
    low: float | None = None  # 95 % interval of the difference; None with a single seed, which shows no spread
    high: float | None = None
    final_new: float | None = None  # mean over seeds of the last quarter of the curve
    final_old: float | None = None


def area(curve: Curve, budget_steps: float) -> float:
    """Mean height of a curve from its first evaluation to the budget, by the trapezoid rule over steps.

    A run that ended early, as it had reached its target, holds its last score to the budget. What was evaluated beyond
    the budget does not count. Of two evaluations at one step the later counts.
    """
    steps, scores = _columns(curve, budget_steps)
    return _mean_height(steps, scores, steps[0], budget_steps)


def learning_verdict(
    new: Sequence[Curve],
    old: Sequence[Curve],
    target: float,
    random_score: float,
    budget_steps: float,
    margin: float = 0.10,
) -> Learning:
    """Does `new` learn as well as `old`? One curve per seed and side; scores count in units of target - random_score.

    The burden of proof is on the new variant: "learns as well" means that a loss of area beyond the margin is ruled out,
    not merely that none was seen. Only "learns as well" and "learns better" keep a promise; "undecided" keeps none.

    - "reference does not learn": its final score is below a quarter of the way from random to target. Nothing follows.
    - "does not learn": that holds for the new one, while the reference came at least half of the way.
    - "learns better": the whole interval lies above the margin.
    - "learns as well": the whole interval lies above minus the margin.
    - "learns worse": the whole interval lies below 0 and the loss seen is larger than the margin.
    - "undecided": anything else; the reason says about how many seeds would decide it.

    Simulated with 8 seeds: equal variants, spread between seeds 15 % of the scale: "learns worse" in 3 % of trials. A
    planted loss of 20 %, spread 8 %: "learns worse" in all of 400, "learns as well" in none; spread 15 %: 70 % and none.
    Equal variants are called "learns as well" in 99 % of trials with a spread of 4 %, 65 % with 8 %, 26 % with 15 %, and
    else mostly "undecided": a spread of 8 % needs 16 seeds to pass in 95 %, one of 15 % about 60.

    What it cannot see: a loss on rare seeds. If one seed in five fails wholly, 8 seeds hold no failure in 17 % of cases.
    """
    scale, margin_score = target - random_score, margin * (target - random_score)
    if not margin_score > 0:
        raise ValueError(f"target {target} must be above the random score {random_score}, and margin {margin} above 0")
    seeds = min(len(new), len(old))
    if not seeds:
        missing = " and ".join(side for side, curves in (("the new variant", new), ("the reference", old)) if not curves)
        return Learning("not measured", f"There are no curves of {missing}.", 0, False, margin_score)

    areas_new, areas_old = ([area(curve, budget_steps) for curve in curves] for curves in (new, old))
    difference = statistics.fmean(areas_new) - statistics.fmean(areas_old)
    half_width = welch_half_width(areas_new, areas_old)
    final_new, final_old = (statistics.fmean(_final_score(curve, budget_steps) for curve in curves) for curves in (new, old))
    share_new, share_old = (final_new - random_score) / scale, (final_old - random_score) / scale

    verdict, reason = _judge_finals(share_new, share_old) or _judge_areas(difference, half_width, margin_score, seeds)
    if seeds < ENOUGH_SEEDS:
        reason += f" Fewer seeds ({seeds}) than the {ENOUGH_SEEDS} that the promise asks for."
    return Learning(
        verdict=verdict,
        reason=reason,
        seeds=seeds,
        enough_seeds=seeds >= ENOUGH_SEEDS,
        margin_score=margin_score,
        area_new=statistics.fmean(areas_new),
        area_old=statistics.fmean(areas_old),
        difference=difference,
        low=None if half_width is None else difference - half_width,
        high=None if half_width is None else difference + half_width,
        final_new=final_new,
        final_old=final_old,
    )


def welch_half_width(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Half the width of the 95 % interval of the difference of two means; None with fewer than two values on a side.

    Welch's t interval rather than a bootstrap over seeds: with 8 normal values a side, the percentile bootstrap holds the
    truth in 91 % of trials and this in 95 %; with a skewed (exponential) spread in 90 % and 96 %.
    """
    if min(len(first), len(second)) < 2:
        return None
    parts = [(statistics.variance(values) / len(values), len(values) - 1) for values in (first, second)]
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return 0.0
    freedom = 1 / sum((part / variance) ** 2 / less_one for part, less_one in parts)
    return _student_t(freedom) * math.sqrt(variance)


def time_to_target(curve: TimedCurve, target: float) -> tuple[int, float] | None:
    """Step and seconds of the first evaluation at or above the target; None if there is none."""
    return next(((int(step), seconds) for step, seconds, score in curve if score >= target), None)


def median_time(times: Sequence[float | None]) -> float | None:
    """Median over seeds, where None is a seed that never got there and counts as infinite.

    None when the median is infinite, as leaving such seeds out would favour the variant that fails more often; None also
    of no seeds at all.
    """
    if not times:
        return None
    median = statistics.median(math.inf if seconds is None else seconds for seconds in times)
    return None if math.isinf(median) else median


def _columns(curve: Curve, budget_steps: float) -> tuple[np.ndarray, np.ndarray]:
    if not len(curve):
        raise ValueError("a curve without evaluations has no height")
    steps, scores = np.asarray(curve, dtype=float).T
    if not np.isfinite(scores).all() or (np.diff(steps) < 0).any():
        raise ValueError("a curve must hold finite scores in the order of their steps")
    if steps[0] > budget_steps:
        raise ValueError(f"the first evaluation, at step {steps[0]:.0f}, lies beyond the budget of {budget_steps:.0f}")
    return steps, scores


def _mean_height(steps: np.ndarray, scores: np.ndarray, start: float, end: float) -> float:
    if start >= end:
        return float(np.interp(end, steps, scores))
    grid = np.concatenate([[start], steps[(steps > start) & (steps < end)], [end]])
    return float(np.trapezoid(np.interp(grid, steps, scores), grid) / (end - start))  # interp holds the last score


def _final_score(curve: Curve, budget_steps: float) -> float:
    """Mean height of the last quarter of the way to the budget.

    Not of the last quarter of the evaluations made: a run that leaps to its target and stops there made most of them
    before it could do anything.
    """
    steps, scores = _columns(curve, budget_steps)
    return _mean_height(steps, scores, budget_steps - (budget_steps - steps[0]) / 4, budget_steps)


def _judge_finals(share_new: float, share_old: float) -> tuple[LearningVerdict, str] | None:
    """Shares of the way from random to target. None when both learn, so that their areas decide."""
    at_the_end = f"in the last quarter the new variant is {share_new:.0%} of the way from random to target"
    if share_old < LEARNED_NOTHING:
        return "reference does not learn", f"The reference came {share_old:.0%} of the way; {at_the_end}."
    if share_new < LEARNED_NOTHING and share_old >= LEARNED:
        return "does not learn", f"The reference came {share_old:.0%} of the way; {at_the_end}."
    return None


def _judge_areas(
    difference: float, half_width: float | None, margin_score: float, seeds: int
) -> tuple[LearningVerdict, str]:
    if half_width is None:
        return "undecided", "A single seed shows no spread, so there is no interval; more seeds decide it."
    low, high = difference - half_width, difference + half_width
    seen = f"Difference of areas {difference:.3g} ({low:.3g} to {high:.3g}), margin {margin_score:.3g}"
    if low > margin_score:
        return "learns better", f"{seen}: a gain beyond the margin."
    if low > -margin_score:
        return "learns as well", f"{seen}: a loss beyond the margin is ruled out."
    if high < 0 and difference < -margin_score:
        return "learns worse", f"{seen}: a loss is certain, and the loss seen is beyond the margin."
    to_bridge = difference + margin_score if difference > -margin_score else -difference  # > 0, at most half_width
    if half_width > to_bridge * math.sqrt(MANY_SEEDS / seeds):  # the width shrinks with the root of the seeds
        needed = f"more than {MANY_SEEDS}"
    else:
        needed = f"about {max(seeds + 1, math.ceil(seeds * (half_width / to_bridge) ** 2))}"
    return "undecided", f"{seen}: {needed} seeds a side would decide it if the difference stays as it is."


# Student's t at 97.5 %, by degrees of freedom
_T_FREEDOM = [math.inf, 60, 30, 20, 15, 12, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]
_T_975 = [1.960, 2.000, 2.042, 2.086, 2.131, 2.179, 2.228, 2.262, 2.306, 2.365, 2.447, 2.571, 2.776, 3.182, 4.303, 12.706]


def _student_t(freedom: float) -> float:
    """Interpolated over 1 / freedom, nearly straight: between the entries a little too wide, never too narrow."""
    return float(np.interp(1 / freedom, [1 / entry for entry in _T_FREEDOM], _T_975))
