"""Faults planted in healthy parts: the verdicts must find them where the healthy run passes. If a fault in here could
hide, it could hide in a speed-up as well."""

import functools
import time
from dataclasses import dataclass

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from fastdqn.bench.learning import train_and_evaluate
from fastdqn.bench.measure import measure
from fastdqn.bench.rows import speed_columns
from fastdqn.bench.verdict import learning_verdict
from fastdqn.prepare import prepare
from fastdqn.replay.ring import TAIL
from fastdqn.runner.ports import Parts

pytestmark = pytest.mark.slow

FOUND = ("does not learn", "learns worse")
SEEDS, OTHER_SEEDS = range(8), range(8, 16)


# The tasks


class CorridorEnv(gymnasium.Env):
    """Five rooms in a row, three doors in each, one of which leads on and the others back into the room. Only leaving the
    last room pays, so that the first four are learned from the value of the next room and from nothing else. The right
    door differs from room to room: what holds in the last one is of no use in the others."""

    DOORS = (0, 2, 1, 0, 2)

    def __init__(self):
        self.observation_space = spaces.Box(0, 1, (6,), np.float32)
        self.action_space = spaces.Discrete(3)

    def _look(self):
        return np.eye(6, dtype=np.float32)[self.room]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.room, self.tries = 0, 0
        return self._look(), {}

    def step(self, action):
        self.tries += 1
        self.room += int(action == self.DOORS[self.room])
        out = self.room == len(self.DOORS)
        return self._look(), float(out), out, self.tries == 8, {}


class TightropeEnv(gymnasium.Env):
    """Leans to one of five sides; any action but that side's is a fall, and the end. Every step pays 1, the last one too:
    that falling is bad is learned from the end of the game and from nothing else. The sides of two lanes have nothing
    to do with each other, and a side nothing with the one before."""

    def __init__(self):
        self.observation_space = spaces.Box(0, 1, (5,), np.float32)
        self.action_space = spaces.Discrete(5)

    def _lean(self):
        self.side = int(self.np_random.integers(5))
        return np.eye(5, dtype=np.float32)[self.side]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._lean(), {}

    def step(self, action):
        self.steps += 1
        fell = bool(action != self.side)
        return self._lean(), 1.0, fell, self.steps == 20, {}


@dataclass(frozen=True)
class Task:
    env: type
    target: float  # what perfect play scores
    budget_steps: int  # the healthy run needs about a quarter of them
    games: int  # per evaluation; the corridor holds no chance, so that one game would do


TASKS = {
    "corridor": Task(CorridorEnv, target=1.0, budget_steps=2000, games=2),
    "tightrope": Task(TightropeEnv, target=20.0, budget_steps=1200, games=10),
}
SETTINGS = {
    "device": "cpu",
    "actor.lanes": 8,
    "actor.epsilon_steps": 1000,
    "actor.epsilon_end": 0.2,
    "replay.capacity": 4000,
    "replay.n_step": 1,
    "replay.warmup_steps": 200,
    "network.hidden": [32],
    "learner.batch_size": 32,
    "learner.steps_per_update": 4,
    "learner.gamma": 0.8,
    "learner.lr": 5e-3,
    "learner.target": "soft",
    "learner.target_tau": 0.05,
    "learner.clip_grad_norm": 0,
    "learner.threads": 1,
}


def job_of(name, seed=0, **settings):
    task = TASKS[name]
    own = {
        "seed": seed,
        "limits.steps": task.budget_steps,
        "evaluator.every_steps": 100,
        "evaluator.episodes": task.games,
        "evaluator.lanes": task.games,
    }
    return prepare(task.env, None, {**SETTINGS, **own, **settings})


def train(name, seeds, change=None):
    runs = [train_and_evaluate(job_of(name, seed), change) for seed in seeds]
    assert all(run.updates > 200 and len(run.points) >= 12 for run in runs)
    return runs


def judge(name, new, old):
    task, curves = TASKS[name], ([run.curve() for run in runs] for runs in (new, old))
    verdict = learning_verdict(*curves, task.target, old[0].random_score, task.budget_steps)
    print(
        f"{name}: {verdict.verdict}. {verdict.reason} Random play {old[0].random_score:.3g}, at the end "
        f"{verdict.final_new:.3g} against {verdict.final_old:.3g}, updates {new[0].updates}"
    )
    return verdict


# The faults


def next_state_is_the_state(parts: Parts) -> None:
    draw = parts.learner.draw

    def drawn(count):
        batch = draw(count)
        return batch._replace(next_state=batch.state)

    parts.learner.draw = drawn


def next_states_of_other_rows(parts: Parts) -> None:
    """The rows of a batch are swapped on one side."""
    draw = parts.learner.draw

    def drawn(count):
        batch = draw(count)
        return batch._replace(next_state=batch.next_state.roll(1, 0))

    parts.learner.draw = drawn


def rewards_flipped(parts: Parts) -> None:
    append = parts.replay.append
    parts.replay.append = lambda block: append(block._replace(reward=-block.reward))


def actions_of_other_lanes(parts: Parts) -> None:
    append = parts.replay.append
    parts.replay.append = lambda block: append(block._replace(action=np.roll(block.action, 1)))


def target_never_syncs(parts: Parts) -> None:
    parts.learner._follow = lambda update: None


def ends_forgotten(parts: Parts) -> None:
    """The discount of a step that ended the game is not 0."""
    draw, gamma = parts.learner.draw, parts.config.learner.gamma

    def drawn(count):
        batch = draw(count)
        return batch._replace(discount=torch.full_like(batch.discount, gamma))

    parts.learner.draw = drawn


def only_the_oldest_rows(parts: Parts) -> None:
    sampler = parts.replay.sampler

    def oldest(ring, batch_size, batches=1):
        age, lane = np.divmod(np.arange(batch_size * batches), ring.num_lanes)
        row = ring.valid_starts(sampler.stack, sampler.n_step)[0][lane] + age
        usable = (ring.flags[lane, row % ring.T] & TAIL) == 0
        return lane, row, usable.astype(np.float32)

    sampler.draw = oldest


# Each on a task that shows it. On the tightrope a next state is as good as any other, and in the corridor only the right
# door leads to an end: there the wrong next states and the forgotten ends learn as well as the healthy run.
FAULTS = [
    (next_state_is_the_state, "corridor"),
    (next_states_of_other_rows, "corridor"),
    (rewards_flipped, "corridor"),
    (actions_of_other_lanes, "tightrope"),
    (target_never_syncs, "corridor"),
    (ends_forgotten, "tightrope"),
    (only_the_oldest_rows, "corridor"),
]


# Does it learn?


@pytest.fixture(scope="module")
def healthy():
    """Name of a task -> the healthy runs that everything on it is judged against, trained once."""
    return functools.cache(lambda name: train(name, SEEDS))


@pytest.mark.parametrize("name", TASKS)
def test_the_healthy_run_passes_with_other_seeds(name, healthy):
    verdict = judge(name, train(name, OTHER_SEEDS), healthy(name))
    assert verdict.verdict == "learns as well"
    assert verdict.enough_seeds
    assert min(verdict.final_new, verdict.final_old) > 0.9 * TASKS[name].target
    assert max(run.random_score for run in healthy(name)) < 0.25 * TASKS[name].target


@pytest.mark.parametrize("name", TASKS)
def test_a_change_that_changes_nothing_leaves_the_run_as_it_was(name, healthy):
    """Otherwise what is found below could be found in the planting, not in the fault."""

    def nothing(parts: Parts) -> None:
        draw, append, follow = parts.learner.draw, parts.replay.append, parts.learner._follow
        parts.learner.draw, parts.replay.append = lambda count: draw(count), lambda block: append(block)
        parts.learner._follow = lambda update: follow(update)

    assert train(name, SEEDS[:1], nothing)[0].curve() == healthy(name)[0].curve()


@pytest.mark.parametrize(("fault", "name"), FAULTS, ids=lambda given: given if isinstance(given, str) else given.__name__)
def test_a_planted_fault_is_found(fault, name, healthy):
    verdict = judge(name, train(name, SEEDS, fault), healthy(name))
    assert verdict.verdict in FOUND


# Is it slower?


def sleeps_while_drawing(parts: Parts) -> None:
    """For several times as long as an update takes: a busy machine cannot hide it."""
    draw = parts.learner.draw

    def drawn(count):
        time.sleep(0.002 * count)
        return draw(count)

    parts.learner.draw = drawn


@pytest.mark.alone
def test_a_sleep_in_a_part_is_called_slower():
    job = job_of("corridor", **{"replay.capacity": 2000})  # all of which is filled before the clock starts
    healthy, sleepy = [], []
    for _ in range(3):
        healthy.append(measure(job, seconds=0.75).as_json())
        sleepy.append(measure(job, seconds=0.75, change=sleeps_while_drawing).as_json())
    row = speed_columns(sleepy, against=healthy)
    print(f"{row['change']:.2f} times as fast ({row['change_interval']}), {row['steps_per_second']:.0f} steps/s")
    assert all(speed["updates"] > 0 for speed in healthy + sleepy)
    assert row["speed_verdict"] == "slower"
