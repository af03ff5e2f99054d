"""The greedy actor: which games count, and what is said of them."""

import json

import numpy as np
import pytest

from fastdqn import seeding
from fastdqn.actor.games import Games
from fastdqn.actor.policy import Policy
from fastdqn.build import build
from fastdqn.env.base import split_lanes
from fastdqn.evaluator import Evaluator, bootstrap_interval
from fastdqn.prepare import prepare
from fastdqn.runner.inline import InlineRunner
from fastdqn.runner.limits import Every, Limits, evaluation_interval
from fastdqn.runner.ports import Stop
from fastdqn.transition import EnvSpec, Tick
from tests.unit.tiny import TINY_SNAKE

MAX_STEPS = 50


class ScriptedLanes:
    """Lane k plays games of lengths[k] steps; each step pays `rewards` in turn. NEXT_STEP autoreset."""

    def __init__(self, lengths, rewards=(1.0,), groups=1, max_eval_steps=MAX_STEPS, **more):
        self.spec = EnvSpec("scripted", (1,), np.dtype(np.float32), 2, max_eval_steps=max_eval_steps, **more)
        self.lengths, self.rewards = np.array(lengths), np.array(rewards, np.float32)
        self.num_lanes = len(lengths)
        self.groups = split_lanes(self.num_lanes, groups)
        self.resets = 0

    def reset(self, seeds):
        assert len(seeds) == self.num_lanes
        self.resets += 1
        self.played = np.full(self.num_lanes, -1)
        self.ticks = [self._advance(lanes) for lanes in self.groups]

    def _advance(self, lanes):
        played, lengths = self.played[lanes], self.lengths[lanes]
        fresh = (played < 0) | (played >= lengths)
        played[:] = np.where(fresh, 0, played + 1)
        over = played >= lengths
        reward = np.where(fresh, 0, self.rewards[(played - 1) % len(self.rewards)]).astype(np.float32)
        none = np.zeros(len(played), bool)
        return Tick(played[:, None].astype(np.float32), reward, over, none, none, fresh)

    def recv(self, group):
        return self.ticks[group]

    def send(self, group, actions):
        self.ticks[group] = self._advance(self.groups[group])

    def close(self): ...


def evaluator(env, epsilon=0.0):
    policy = Policy(lambda states: np.zeros(len(states), int), env.spec, env.num_lanes, 1, np.random.default_rng(0))
    return Evaluator(env, policy, epsilon)


def evaluate(env, episodes, **more):
    return evaluator(env).evaluate(episodes, list(range(env.num_lanes)), step=7, update=3, **more)


@pytest.mark.parametrize("groups", [1, 2])
def test_every_lane_plays_the_same_number_of_games(groups):
    """Two lanes of short games and two of long ones, a point a step: the mean is half way between. Whoever took the first
    eight games to finish would get short games only."""
    env = ScriptedLanes([2, 2, 20, 20], groups=groups)
    score = evaluate(env, 8)
    assert sorted(score.scores) == [2] * 4 + [20] * 4
    assert score.mean == 11

    env.reset([0] * 4)
    games, first_to_finish = Games(4, env.spec), []
    while len(first_to_finish) < 8:
        for group, lanes in enumerate(env.groups):
            first_to_finish += games.observe(lanes, env.recv(group))
            env.send(group, None)
    assert np.mean([game.score for game in first_to_finish[:8]]) == 2, "the bias this guards against"


def test_a_number_that_does_not_divide_is_spread():
    score = evaluate(ScriptedLanes([2, 3, 4]), 7)
    assert sorted(score.scores) == [2, 2, 2, 3, 3, 4, 4]
    assert score.episodes == len(score.scores) == len(score.steps) == 7


def test_what_a_score_says(capsys):
    score = evaluate(ScriptedLanes([1, 2, 3, 10], protocol="classic", details={"a": 1}), 4)
    assert (score.mean, score.median) == (4, 2.5)
    assert score.interval[0] <= score.mean <= score.interval[1]
    assert (score.step, score.update, score.epsilon, score.seeds) == (7, 3, 0.0, [0, 1, 2, 3])
    assert (score.protocol, score.protocol_details, score.max_steps) == ("classic", {"a": 1}, MAX_STEPS)
    assert {"protocol", "episodes", "seeds", "mean", "median", "interval"} <= set(json.loads(json.dumps(score.as_json())))


def test_games_that_are_too_long_are_cut():
    score = evaluate(ScriptedLanes([3, 10**9]), 4)
    assert sorted(score.steps) == [3, 3, MAX_STEPS, MAX_STEPS]
    assert sorted(score.scores) == [3, 3, MAX_STEPS, MAX_STEPS]
    assert score.cut == 2


def test_a_game_that_ends_at_the_very_limit_is_not_cut():
    score = evaluate(ScriptedLanes([MAX_STEPS]), 2)
    assert (score.cut, score.steps) == (0, [MAX_STEPS] * 2)


def test_the_rest_of_a_game_that_was_cut_is_no_game():
    """Games of 60 steps cut at 50: the 10 steps that are left would pass for a short game."""
    score = evaluate(ScriptedLanes([60, 60], max_eval_steps=50), 5)
    assert score.steps == [50] * 5
    assert score.cut == 5


def test_lanes_that_are_done_count_no_further():
    """The first lane is done long before the second, and is cut again and again meanwhile."""
    score = evaluate(ScriptedLanes([10**9, 49], max_eval_steps=50), 9)
    assert (score.cut, sorted(score.steps)) == (5, [49] * 4 + [50] * 5)


def test_gains_leave_out_what_was_lost():
    rewards = (1.0, -1.0, 0.5)
    assert evaluate(ScriptedLanes([3], rewards), 1).scores == [0.5]
    assert evaluate(ScriptedLanes([3], rewards, score="gains"), 1).scores == [1.5]


def test_scores_are_raw_even_where_learning_clips():
    env = ScriptedLanes([2], rewards=(7.0, -3.0), clip_rewards=True)
    assert evaluate(env, 1).scores == [4]
    games = Games(1, env.spec)
    env.reset([0])
    ended = []
    while not ended:
        ended = games.observe(slice(0, 1), env.recv(0))
        env.send(0, None)
    assert (ended[0].returns, ended[0].score, ended[0].steps) == (0, 4, 2)


def test_a_lost_life_ends_no_game():
    spec = EnvSpec("lives", (1,), np.dtype(np.float32), 2)
    games, none, yes = Games(1, spec), np.zeros(1, bool), np.ones(1, bool)
    reward = np.ones(1, np.float32)
    assert games.observe(slice(0, 1), Tick(np.zeros((1, 1)), reward, none, none, yes, none)) == []
    ended = games.observe(slice(0, 1), Tick(np.zeros((1, 1)), reward, yes, none, none, none))
    assert [(game.score, game.steps) for game in ended] == [(2, 2)]


def test_told_to_stop_on_the_way_there_is_no_score():
    asked = iter([False] * 5 + [True])
    assert evaluate(ScriptedLanes([2, 40]), 4, stopped=lambda: next(asked)) is None


def test_the_share_done_is_told():
    heard = []
    evaluate(ScriptedLanes([2, 4]), 4, on_tick=heard.append)
    assert heard[0] == 0
    assert heard == sorted(heard)
    assert 0.5 in heard
    assert all(0 <= share <= 1 for share in heard)


def test_the_same_seeds_give_the_same_games(trained):
    import fastdqn
    from fastdqn.commands.evaluate import evaluate_player

    player = fastdqn.load(trained)
    one, two, other = (evaluate_player(player, 6, seed) for seed in (3, 3, 4))
    assert one == two
    assert one.seeds != other.seeds
    assert (one.scores, one.steps) != (other.scores, other.steps)


# ---------------------------------------------------------------- interval


def test_the_interval_is_that_of_a_mean():
    """For many normal values it is close to mean plus or minus 1.96 standard errors."""
    values = np.random.default_rng(1).normal(10, 3, 400)
    low, high = bootstrap_interval(values)
    error = 1.96 * values.std() / np.sqrt(len(values))
    assert low == pytest.approx(values.mean() - error, abs=0.03)
    assert high == pytest.approx(values.mean() + error, abs=0.03)
    assert bootstrap_interval(values) == (low, high), "the same games give the same interval"


def test_intervals_at_the_edges():
    assert bootstrap_interval(np.array([5.0])) == (5, 5)
    assert bootstrap_interval(np.full(30, 2.0)) == (2, 2)
    low, high = bootstrap_interval(np.array([0.0, 10.0]))
    assert (low, high) == (0, 10)


def test_it_covers_the_true_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        low, high = bootstrap_interval(rng.exponential(1.0, 50), resamples=300)
        covered += low <= 1.0 <= high
    assert 0.86 <= covered / 200 <= 0.99


# ---------------------------------------------------------------- when


def test_evaluations_and_limits():
    job = prepare("snake", settings=TINY_SNAKE | {"limits.steps": 1000, "limits.target": 3})
    assert evaluation_interval(job.config) == 50, "every 20th of the run"
    assert evaluation_interval(prepare("snake", settings=TINY_SNAKE).config) == 0
    chosen = prepare("snake", settings=TINY_SNAKE | {"evaluator.every_steps": 123, "limits.target": 3}).config
    assert evaluation_interval(chosen) == 123

    limits = Limits(job.config.limits.model_copy(update={"episodes": 10, "minutes": 2.0}))
    assert limits.reached(999, 9, 119.9) == ""
    assert limits.reached(1000, 0, 0) == "step limit reached"
    assert limits.reached(0, 10, 0) == "episode limit reached"
    assert limits.reached(0, 0, 120) == "time limit reached"
    assert (limits.solved_by(3), limits.solved_by(2.99)) == (True, False)
    assert limits.share_done(100, 5, 24) == 0.5
    assert limits.share_done(5000, 5, 24) == 1.0
    only_target = job.config.limits.model_copy(update={"steps": None})
    assert Limits(only_target).share_done(10, 1, 1) is None


def test_every_passes_each_multiple_once():
    every = Every(10)
    assert [count for count in range(0, 50, 4) if every.passed(count)] == [12, 20, 32, 40]
    assert not any(Every(0).passed(count) for count in range(100))


def test_training_is_not_disturbed_by_evaluating():
    """The evaluator has lanes and random numbers of its own: the run goes on as if it had not been there."""

    def play(evaluating):
        job = prepare("snake", settings=TINY_SNAKE | {"evaluator.epsilon": 0.3})
        runner = InlineRunner(build(job.config, job.kind, "cpu"), Stop(), lambda row: None, lambda score: None)
        runner.start()
        for i in range(60):
            runner.round()
            if evaluating and i % 20 == 5:
                assert runner.evaluate() is not None
        return runner.parts

    alone, evaluated = play(False), play(True)
    assert alone.learner.updates == evaluated.learner.updates > 10
    for one, other in zip(alone.learner.online.parameters(), evaluated.learner.online.parameters(), strict=True):
        assert one.tolist() == other.tolist()


def test_evaluations_at_different_steps_play_different_starts():
    assert seeding.lane_seeds(0, "evaluate at 100", 4) != seeding.lane_seeds(0, "evaluate at 200", 4)
