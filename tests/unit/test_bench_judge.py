"""Judging learning: the columns from made-up runs, the target of an environment, and one real run in small."""

import importlib.util

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from scipy import stats

from fastdqn.bench import judge as judge_module
from fastdqn.bench.children import Children
from fastdqn.bench.conduct import Measuring
from fastdqn.bench.identity import subject_of_job
from fastdqn.bench.judge import EVALUATION_GAMES, NOT_MEASURED, Judge
from fastdqn.bench.ladder import run_ladder, rungs
from fastdqn.bench.learning import default_target, score_of_random_play, train_and_evaluate
from fastdqn.bench.record import Keeper
from fastdqn.bench.sweep import run_sweep
from fastdqn.bench.verdict import learning_verdict
from fastdqn.bench.work import make_work
from fastdqn.errors import UserError
from fastdqn.prepare import prepare
from fastdqn.run.preflight import RESERVE_BYTES
from tests.unit.tiny import TINY, TINY_SNAKE, everything_in

needs_atari = pytest.mark.skipif(importlib.util.find_spec("ale_py") is None, reason="needs ale-py")
BUDGET, TARGET, RANDOM = 1000, 10.0, 1.0


@pytest.fixture(scope="module")
def work():
    return make_work("snake", None, TINY_SNAKE)


def judge_of(work, runs, **measuring):
    """A judge that has seen `runs`: name -> one list of scores a seed, at evenly spaced steps, ten steps a second."""
    judge = Judge(work, Measuring(**{"seeds": 8, "target": TARGET, "steps": BUDGET, **measuring}))
    for name, seeds in runs.items():
        judge.trained[name] = [made_up_run(seed, scores) for seed, scores in enumerate(seeds)]
    return judge


def made_up_run(seed, scores, seconds_per_step=0.1, random_score=RANDOM):
    steps = [BUDGET * (number + 1) // len(scores) for number in range(len(scores))]
    points = [
        {"step": step, "seconds": step * seconds_per_step, "eval_seconds": 500.0, "score": score}
        for step, score in zip(steps, scores, strict=True)
    ]
    return {"seed": seed, "points": points, "random_score": random_score, "steps": steps[-1], "updates": 100 + seed}


GOOD = [[2.0, 6.0, 9.5, 10.0 + 0.01 * seed] for seed in range(8)]
BAD = [[1.0, 2.0, 2.5, 5.0 + 0.01 * seed] for seed in range(8)]
HOPELESS = [[1.0, 1.1, 1.0, 0.9 + 0.01 * seed] for seed in range(8)]


# ---------------------------------------------------------------- columns


def test_nothing_trained_nothing_judged(work):
    judge = judge_of(work, {"new": GOOD})
    assert judge.columns("new", "old") == NOT_MEASURED, "without a reference there is no verdict"
    assert judge.columns("nobody", "new") == NOT_MEASURED
    judge.columns("nobody", "new")["learning"] = "mine"
    assert NOT_MEASURED["learning"] is None, "a copy each"


def test_the_reference_is_called_so_and_says_how_far_it_came(work):
    row = judge_of(work, {"textbook": GOOD}).columns("textbook", "textbook")
    assert row["learning_verdict"] == "reference"
    learning = row["learning"]
    assert (learning["target"], learning["random_score"], learning["budget_steps"]) == (TARGET, RANDOM, BUDGET)
    assert (learning["seeds"], learning["enough_seeds"], learning["reached"]) == (8, True, 8)
    assert learning["updates"] == 100, "the seed with the fewest"
    assert row["minutes_to_target"] == pytest.approx(BUDGET * 0.1 / 60)
    assert row["minutes_change"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("runs", "verdict"), [(GOOD, "learns as well"), (BAD, "learns worse"), (HOPELESS, "does not learn")]
)
def test_the_verdict_is_passed_on(work, runs, verdict):
    row = judge_of(work, {"old": GOOD, "new": runs}).columns("new", "old")
    assert row["learning_verdict"] == verdict
    curves = [
        [[(0, RANDOM), *((250 * (n + 1), score) for n, score in enumerate(scores))] for scores in side]
        for side in (runs, GOOD)
    ]
    expected = learning_verdict(*curves, TARGET, RANDOM, BUDGET)
    for name, value in vars(expected).items():
        assert row["learning"][name] == value, name


def test_the_reference_is_the_first_not_the_second(work):
    judge = judge_of(work, {"old": BAD, "new": GOOD})
    assert judge.columns("new", "old")["learning_verdict"] == "learns better"
    assert judge.columns("old", "new")["learning_verdict"] == "learns worse"


def test_minutes_are_the_median_over_seeds_and_a_seed_that_fails_counts_as_endless(work):
    never, at_250, at_500, at_1000 = [0.0] * 4, [10.0] * 4, [0.0, 11.0, 0.0, 0.0], [0.0, 0.0, 0.0, 10.0]
    minutes = {step: step * 0.1 / 60 for step in (250, 500, 1000)}
    for seeds, expected in [
        ([at_250, at_500, at_1000], minutes[500]),
        ([at_250, at_500, never], minutes[500]),
        ([at_250, never, never], None),
        ([at_250, at_500, at_1000, never], (minutes[500] + minutes[1000]) / 2),
        ([at_250, at_500, never, never], None),
        ([never], None),
    ]:
        judge = judge_of(work, {"old": [at_500], "new": seeds})
        row = judge.columns("new", "old")
        assert row["minutes_to_target"] == (expected and pytest.approx(expected))
        assert row["minutes_change"] == (expected and pytest.approx(expected / minutes[500]))
        assert row["learning"]["reached"] == sum(seed is not never for seed in seeds)


def test_no_change_where_the_reference_never_got_there(work):
    row = judge_of(work, {"old": BAD, "new": GOOD}).columns("new", "old")
    assert row["minutes_to_target"] is not None
    assert row["minutes_change"] is None


def test_runs_that_shared_the_machine_have_no_minutes(work):
    row = judge_of(work, {"old": GOOD, "new": GOOD}, jobs=2).columns("new", "old")
    assert row["learning_verdict"] == "learns as well"
    assert (row["minutes_to_target"], row["minutes_change"]) == (None, None)


def test_curves_are_lines_for_the_record(work):
    judge = judge_of(work, {"old": GOOD[:2], "new": BAD[:1]})
    lines = judge.curves()
    assert len(lines) == 3 * 4
    assert lines[0] == {"rung": "old", "seed": 0, "step": 250, "seconds": 25.0, "eval_seconds": 500.0, "score": 2.0}
    assert {(line["rung"], line["seed"]) for line in lines} == {("old", 0), ("old", 1), ("new", 0)}


# ---------------------------------------------------------------- what is trained


class Trainers:
    """In place of a conductor: notes the tasks and answers with made-up runs, the last of them first."""

    def __init__(self, random_score=RANDOM):
        self.tasks, self.jobs, self.said = [], 0, []
        self._random_score = random_score

    def train_all(self, tasks, jobs, on_answer):
        self.tasks, self.jobs = list(tasks), jobs
        for number, task in reversed(list(enumerate(tasks))):
            on_answer(number, made_up_run(task["settings"]["seed"], [5.0, 7.0], random_score=self._random_score))

    def say(self, line):
        self.said.append(line)


def test_every_variant_is_trained_with_every_seed(work):
    assert Judge(work, Measuring(seeds=3, target=TARGET, stop_at_target=True)).settings(0)["limits.target"] == TARGET
    judge = Judge(work, Measuring(seeds=3, target=TARGET, steps=BUDGET))
    trainers, seen = Trainers(), []
    variants = {"slow": {"learner.batch_size": 8}, "fast": {"learner.batch_size": 16}}
    judge.train(trainers, variants, lambda: seen.append({name: len(runs) for name, runs in judge.trained.items()}))
    settings = [task["settings"] for task in trainers.tasks]
    assert [(each["seed"], each["learner.batch_size"]) for each in settings] == [
        (0, 8), (0, 16), (1, 8), (1, 16), (2, 8), (2, 16),
    ], "seed by seed"  # fmt: skip
    for each in settings:
        assert (each["limits.steps"], each["limits.target"], each["evaluator.every_steps"]) == (BUDGET, None, BUDGET // 20)
        assert each["evaluator.episodes"] == EVALUATION_GAMES == 30
        assert each["env.dim"] == 5
    assert all(task["task"] == "learn" for task in trainers.tasks)
    assert {name: sorted(run["seed"] for run in runs) for name, runs in judge.trained.items()} == {
        "slow": [0, 1, 2],
        "fast": [0, 1, 2],
    }
    assert len(seen) == len(trainers.said) == 6
    assert "fast, seed 2: score 7 after 1,000 steps" in trainers.said[0]


def test_the_budget_is_the_presets_unless_it_is_given(work):
    assert Judge(work, Measuring(seeds=1)).budget == work.job.config.limits.steps
    assert Judge(work, Measuring(seeds=1, steps=777)).budget == 777


def test_runs_at_the_same_time_share_the_cores(work):
    assert "learner.threads" not in Judge(work, Measuring(seeds=1)).settings(0)
    assert Judge(work, Measuring(seeds=1, jobs=1000)).settings(0)["learner.threads"] == 1


def test_a_target_that_random_play_reaches_is_refused(work):
    judge = Judge(work, Measuring(seeds=1, target=TARGET, steps=BUDGET))
    for random_score in (TARGET, TARGET + 1):
        with pytest.raises(UserError, match=rf"target 10.*random play.*{random_score:g}"):
            judge.train(Trainers(random_score), {"old": {}}, lambda: None)


def test_a_budget_shorter_than_a_round_of_the_lanes_is_refused(work):
    """Its only evaluation would lie beyond the budget."""
    with pytest.raises(UserError, match="--steps must be 4 or more"):
        Judge(work, Measuring(seeds=1, steps=3)).check({"old": {}})
    with pytest.raises(UserError, match="--steps must be 8 or more"):
        Judge(work, Measuring(seeds=1, steps=5)).check({"old": {}, "new": {"actor.lanes": 8}})
    Judge(work, Measuring(seeds=1, steps=4)).check({"old": {}})
    Judge(work, Measuring(seeds=0, steps=3)).check({"old": {}})


def test_a_variant_that_does_not_fit_into_memory_is_refused(work, monkeypatch):
    """Whole transitions in arrays take many times what the ring takes: not every rung fits where the default does."""
    arrays = {"switches.off": ["frame_ring"], "replay.capacity": 100_000}  # 60 MB, as 75 + 75 float32 a row
    variants = {"default": {"replay.capacity": 100_000}, "arrays": arrays}
    monkeypatch.setattr(judge_module, "free_memory", lambda: 2 * (RESERVE_BYTES + 50_000_000))
    for jobs, steps, fits in [(1, 200_000, True), (2, 200_000, False), (2, 50_000, True)]:
        judge = Judge(work, Measuring(seeds=1, jobs=jobs, steps=steps))
        judge.check({"default": variants["default"]})
        if fits:
            judge.check(variants)
        else:
            with pytest.raises(UserError, match=r"arrays cannot be trained here.*--set replay.capacity="):
                judge.check(variants)
    Judge(work, Measuring(seeds=0)).check(variants)


@pytest.mark.parametrize(
    "run",
    [
        lambda work, how, keeper: run_ladder(work, how, rungs(work.job), keeper),
        lambda work, how, keeper: run_sweep(work, {"a": {"learner.lr": 0.1}, "b": {"learner.lr": 0.2}}, how, keeper),
    ],
    ids=["ladder", "sweep"],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_measured(work, tmp_path, monkeypatch, run):
    asked = []
    monkeypatch.setattr(Children, "ask", lambda self, task, *rest: asked.append(task))
    how = Measuring(seeds=1, steps=3)
    keeper = Keeper("ladder", subject_of_job(work.job), vars(how), str(tmp_path))
    with pytest.raises(UserError, match="--steps must be"):
        run(work, how, keeper)
    assert asked == []
    assert everything_in(tmp_path) == []


# ---------------------------------------------------------------- targets


@pytest.mark.parametrize(
    ("env", "settings", "target"),
    [
        ("snake", {}, 15.0),
        ("snake", {"env.dim": 6}, 5.4),
        ("CartPole-v1", {}, 475.0),
        ("catch", {}, 0.9),
        pytest.param("pong", {}, 18.0, marks=needs_atari),
        pytest.param("ALE/Pong-v5", {}, 18.0, marks=needs_atari),
        pytest.param("breakout", {}, 30.0, marks=needs_atari),
        pytest.param("freeway", {}, None, marks=needs_atari),
    ],
)
def test_the_score_that_counts_as_solved(env, settings, target):
    assert default_target(prepare(env, settings=settings)) == (target and pytest.approx(target))


class Mine(gymnasium.Env):
    """Takes a setting `dim` as Snake does, and is no Snake."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, dim=3):
        self.dim = dim

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.ones(2, np.float32), 1.0, True, False, {}


@pytest.fixture
def mine():
    gymnasium.register("MineOfTheTest-v0", entry_point=Mine)
    yield "MineOfTheTest-v0"
    gymnasium.registry.pop("MineOfTheTest-v0")


@pytest.mark.parametrize("settings", [{}, {"env.dim": 9}])
def test_an_environment_without_a_known_target(mine, settings):
    work = make_work(mine, None, {"device": "cpu", **settings})
    assert default_target(work.job) is None
    with pytest.raises(UserError, match=r"No score is known at which MineOfTheTest-v0 counts as solved.*--target"):
        Judge(work, Measuring(seeds=1))
    assert Judge(work, Measuring(seeds=1, target=3.0)).target == 3.0
    assert Judge(work, Measuring(seeds=0)).columns("a", "b") == NOT_MEASURED, "no target is needed where none is judged"


# ---------------------------------------------------------------- a real run in small

RUN = {"learner.threads": 1, "actor.lanes": 1, "limits.steps": 400, "evaluator.every_steps": 100, "device": "cpu"}


def test_a_run_is_evaluated_where_it_was_asked(runs):
    job = prepare("snake", settings={**TINY_SNAKE, **RUN, "seed": 5})
    trained = train_and_evaluate(job)
    assert [point.step for point in trained.points] == [100, 200, 300, 400]
    seconds = [point.seconds for point in trained.points]
    assert seconds == sorted(set(seconds))
    assert seconds[0] > 0
    spent = [point.eval_seconds for point in trained.points]
    assert spent == sorted(set(spent))
    assert spent[0] > 0
    assert (trained.seed, trained.steps, trained.reason) == (5, 400, "step limit reached")
    assert trained.updates == (400 - 50) // 4
    assert trained.samples_per_step == pytest.approx(16 * trained.updates / 400)
    assert trained.start_seconds > 0
    assert trained.curve() == [(point.step, point.score) for point in trained.points]
    assert not runs.exists(), "nothing is written"
    again = train_and_evaluate(job)
    assert again.curve() == trained.curve(), "the same seed, the same curve"


def test_the_end_is_evaluated_too():
    settings = {**TINY_SNAKE, **RUN, "limits.steps": 250}
    assert [point.step for point in train_and_evaluate(prepare("snake", settings=settings)).points] == [100, 200, 250]


def test_a_run_stops_at_its_target():
    settings = {**TINY, **RUN, "limits.target": 1.0}  # every game of CartPole lasts longer
    trained = train_and_evaluate(prepare("CartPole-v1", settings=settings))
    assert [point.step for point in trained.points] == [100]
    assert trained.points[0].score >= 1.0
    assert (trained.reason, trained.steps) == ("target reached", 100)
    assert trained.updates > 0


def test_a_change_of_the_parts_is_made_before_the_first_step():
    seen = []
    trained = train_and_evaluate(
        prepare("snake", settings={**TINY_SNAKE, **RUN}), lambda parts: seen.append(parts.actor.steps)
    )
    assert seen == [0]
    assert trained.updates > 0


def test_the_score_of_random_play_is_that_of_random_play():
    """Against games played here. Always the same action ends CartPole after nine or ten steps: that is found."""
    job = prepare("CartPole-v1", settings={**TINY, **RUN})
    env, rng, lengths, constant = gymnasium.make("CartPole-v1"), np.random.default_rng(0), [], []
    for game in range(200):
        for choose, kept in ((lambda: int(rng.integers(2)), lengths), (lambda: 0, constant)):
            env.reset(seed=game)
            ended, steps = False, 0
            while not ended:
                ended, steps = bool(np.any(env.step(choose())[2:4])), steps + 1
            kept.append(steps)
    scores = [score_of_random_play(job, 200), train_and_evaluate(job).random_score]
    for score, games in zip(scores, (200, 50), strict=True):
        spread = np.std(lengths) * np.sqrt(1 / 200 + 1 / games)
        assert abs(score - np.mean(lengths)) < stats.norm.ppf(0.9995) * spread
        assert abs(score - np.mean(constant)) > stats.norm.ppf(0.9995) * spread
