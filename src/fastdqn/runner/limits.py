"""When a run ends, and when it evaluates."""

from fastdqn.config import Config, LimitsConfig

EVALUATIONS_TOWARDS_TARGET = 20  # per run, when a target is set but no interval


class Limits:
    """`round_steps` is the most steps one round of the loop may take: a run ends before a round that could exceed its
    step limit, but there is always one round."""

    def __init__(self, config: LimitsConfig, round_steps: int = 1) -> None:
        self._limits = config
        steps = config.steps
        self._last_step = None if steps is None else steps if steps < round_steps else steps - round_steps + 1

    def reached(self, step: int, episodes: int, seconds: float) -> str:
        """Why the run ends now, or the empty string."""
        limits = self._limits
        if self._last_step is not None and step >= self._last_step:
            return "step limit reached"
        if limits.episodes is not None and episodes >= limits.episodes:
            return "episode limit reached"
        if limits.minutes is not None and seconds >= limits.minutes * 60:
            return "time limit reached"
        return ""

    def solved_by(self, mean_score: float) -> bool:
        return self._limits.target is not None and mean_score >= self._limits.target

    def share_done(self, step: int, episodes: int, seconds: float) -> float | None:
        """0..1 towards the limit that will be hit first; None when only a target is set."""
        limits = self._limits
        shares = [
            done / limit
            for done, limit in ((step, limits.steps), (episodes, limits.episodes), (seconds / 60, limits.minutes))
            if limit is not None
        ]
        return min(1.0, max(shares)) if shares else None


class Every:
    """True once each time a count passes a multiple of `interval`; never when the interval is 0."""

    def __init__(self, interval: int) -> None:
        self._interval, self._next = interval, interval

    def would_pass(self, count: int) -> bool:
        return bool(self._interval) and count >= self._next

    def passed(self, count: int) -> bool:
        if not self.would_pass(count):
            return False
        self._next = (count // self._interval + 1) * self._interval
        return True


def evaluation_interval(config: Config) -> int:
    """Steps between two evaluations, 0 for none during training."""
    if config.evaluator.every_steps or config.limits.target is None:
        return config.evaluator.every_steps
    return max(1, (config.limits.steps or 1_000_000) // EVALUATIONS_TOWARDS_TARGET)
