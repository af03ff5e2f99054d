"""many_lanes promises SAME_LEARNING: learning curves of 8 seeds on a task of seconds, at the same samples per step."""

import pytest

from fastdqn.bench.verdict import learning_verdict
from fastdqn.build import build
from fastdqn.prepare import prepare
from fastdqn.runner.inline import InlineRunner
from fastdqn.runner.ports import Stop
from tests.learning.test_small_tasks import SMALL, MatchEnv

LANES, STEPS, SEEDS = 8, 1200, 8
RANDOM, PERFECT = 1.25, 5.0  # scores of a game of five rounds with four actions
SETTINGS = SMALL | {
    "actor.lanes": LANES,
    "actor.epsilon_steps": STEPS // 2,
    "replay.capacity": 5000,
    "replay.warmup_steps": 100,
    "learner.batch_size": 16,
    "learner.steps_per_update": 4,
    "limits.steps": STEPS,
    "evaluator.every_steps": STEPS // 10,
    "evaluator.episodes": 20,
    "evaluator.lanes": 20,
    "log.every_steps": STEPS,
}


def parts_for(seed, off):
    job = prepare(MatchEnv, settings=SETTINGS | {"seed": seed, "switches.off": list(off)})
    return build(job.config, job.kind, "cpu")


def curves(off):
    """Per seed: (step, score) of ten evaluations, and the last line of the log."""
    found = []
    for seed in range(SEEDS):
        rows, scores = [], []
        runner = InlineRunner(parts_for(seed, off), Stop(), rows.append, scores.append)
        runner.run()
        runner.close()
        found.append(([(score.step, score.mean) for score in scores], rows[-1]))
    return found


@pytest.mark.parametrize(("off", "lanes"), [((), LANES), (("many_lanes",), 1)])
def test_off_is_one_environment_and_one_state_at_a_time(off, lanes):
    parts = parts_for(0, off)
    assert parts.config.actor.lanes == parts.env.num_lanes == lanes
    asked = []
    policy, greedy = parts.actor.policy, parts.actor.policy._greedy
    policy._greedy = lambda states: asked.append(len(states)) or greedy(states)
    parts.actor.start(list(range(lanes)))
    parts.actor.steps = STEPS  # past the warm-up: the network is asked
    for _ in range(5):
        parts.actor.step(0)
    assert asked == [lanes] * 5


def test_groups_go_with_the_lanes():
    job = prepare(MatchEnv, settings=SETTINGS | {"actor.groups": 2, "switches.off": ["many_lanes"]})
    assert (job.config.actor.lanes, job.config.actor.groups) == (1, 1)
    assert job.config.evaluator.lanes == 20, "an evaluation is no training: it keeps its lanes"


@pytest.mark.slow
def test_many_lanes_learn_as_well_as_one():
    many, one = curves(()), curves(("many_lanes",))
    for (_, row), (_, other) in zip(many, one, strict=True):
        assert row["samples_per_step"] == other["samples_per_step"] > 3
        assert row["update"] == other["update"] > 200
    new, old = ([curve for curve, _ in side] for side in (many, one))
    assert new != old
    learning = learning_verdict(new, old, PERFECT, RANDOM, STEPS)
    assert learning.enough_seeds
    assert learning.verdict in ("learns as well", "learns better"), learning.reason
    assert learning.final_new > 0.9 * PERFECT

    planted = [[(step, score - 0.2 * (PERFECT - RANDOM)) for step, score in curve] for curve in new]
    assert learning_verdict(planted, old, PERFECT, RANDOM, STEPS).verdict == "learns worse", "a loss of 20 % must be seen"
