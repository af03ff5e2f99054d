"""ROLE: plays whole games without exploring and returns the score."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fastdqn.actor.games import Game, Games
from fastdqn.actor.policy import Policy
from fastdqn.actor.recorder import Recorder
from fastdqn.env.base import LaneEnv
from fastdqn.transition import Block


@dataclass(frozen=True)
class Score:
    """The evaluation result of one version of the weights."""

    env_id: str
    protocol: str
    protocol_details: dict[str, Any]
    step: int
    update: int
    epsilon: float
    episodes: int
    seeds: list[int]  # one per lane
    mean: float
    median: float
    interval: tuple[float, float]  # 95 % bootstrap interval of the mean
    scores: list[float]
    steps: list[int]  # steps of each game
    cut: int  # games cut at max_steps: their score so far counts, the rest does not
    max_steps: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Evaluator:
    """Every lane plays the same number of games: taking the first N to finish would favour short ones."""

    def __init__(self, env: LaneEnv, policy: Policy, epsilon: float) -> None:
        self.env, self._policy, self._epsilon = env, policy, epsilon
        self.recorder: Recorder | None = None  # sees every game that is played
        self._actions = np.zeros(env.num_lanes, np.int64)

    def evaluate(
        self,
        episodes: int,
        seeds: list[int],
        step: int,
        update: int,
        stopped: Callable[[], bool] = lambda: False,
        on_tick: Callable[[float], None] = lambda share: None,
    ) -> Score | None:
        """None when stopped before the end: a partial evaluation does not count. `on_tick` receives the share of games
        that are done."""
        env, spec = self.env, self.env.spec
        games = Games(env.num_lanes, spec)
        quota = np.full(env.num_lanes, episodes // env.num_lanes)
        quota[: episodes % env.num_lanes] += 1
        finished: list[Game] = []
        cut = 0
        waits = np.zeros(env.num_lanes, bool)  # the lane's game was cut; the lane counts again from its next game
        env.reset(seeds)
        if self.recorder is not None:
            self.recorder.forget()
        while quota.any():
            if stopped():
                return None
            on_tick(len(finished) / episodes)
            if waits[quota > 0].all():  # games that do not end: reset all lanes
                waits[:] = False
                games = Games(env.num_lanes, spec)
                env.reset([(seed + len(finished)) % 2**31 for seed in seeds])
            for group, lanes in enumerate(env.groups):
                tick = env.recv(group)
                ended = games.observe(lanes, tick)
                whole = [game for game in ended if not waits[game.lane]]
                waits[[game.lane for game in ended]] = False
                over_long = (games.steps_of(lanes) >= spec.max_eval_steps) & ~waits[lanes]
                too_long = lanes.start + np.flatnonzero(over_long)
                waits[too_long] = True
                cut += int((quota[too_long] > 0).sum())
                for game in whole + [games.take(int(lane)) for lane in too_long]:
                    if quota[game.lane]:
                        quota[game.lane] -= 1
                        finished.append(game)
                if self.recorder is not None:
                    terminal = tick.terminated | tick.life_lost
                    self.recorder.see(Block(lanes, self._actions[lanes], tick.reward, terminal, tick.first, tick.obs))
                self._policy.observe(lanes, tick)
                self._actions[lanes] = self._policy.act(lanes, self._epsilon)
                env.send(group, self._actions[lanes])
        scores = np.array([game.score for game in finished])
        return Score(
            env_id=spec.env_id,
            protocol=spec.protocol,
            protocol_details=spec.details,
            step=step,
            update=update,
            epsilon=self._epsilon,
            episodes=episodes,
            seeds=seeds,
            mean=float(scores.mean()),
            median=float(np.median(scores)),
            interval=bootstrap_interval(scores),
            scores=scores.tolist(),
            steps=[game.steps for game in finished],
            cut=cut,
            max_steps=spec.max_eval_steps,
        )


def bootstrap_interval(values: np.ndarray, resamples: int = 10_000, level: float = 0.95) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean, with a fixed seed: the same games give the same interval."""
    rng = np.random.default_rng(0)
    rows = max(1, 1_000_000 // len(values))  # per chunk: all resamples of very many games would not fit in memory
    sizes = [min(rows, resamples - done) for done in range(0, resamples, rows)]
    means = np.concatenate([rng.choice(values, size=(size, len(values))).mean(axis=1) for size in sizes])
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
