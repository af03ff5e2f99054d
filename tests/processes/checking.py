"""Learners that look closely and write down what they see, for runs whose learner is a process of its own.

A test puts `learn_and_...` in the place of `learn`; it is imported in the child by its name. What it has seen comes back
as a file in the run's folder.
"""

import json
from unittest import mock

import numpy as np
import torch

from fastdqn import seeding
from fastdqn.learner.learner import Learner
from fastdqn.metrics import Meter
from fastdqn.processes import learner
from fastdqn.processes.control import FIRST_ACTOR
from tests.processes.counting import GAME_STEPS, NUM_ACTIONS, OBS_SIZE, ROWS_OF_A_GAME, lane_number, reward_of

WINDOWS = 1_000_000
AT_A_TIME = 50_000
LANE, GAME, STEP, LED_BY = range(OBS_SIZE)


# ---------------------------------------------------------------- windows


def wrong_windows(batch, lane_numbers, stack, n_step, gamma):
    """For each window whether anything about it is wrong, worked out from nothing but where it starts: (lane, row)."""
    lane, row = np.asarray(batch.index).T
    size, every = len(row), np.arange(len(row))
    game, step = np.divmod(row, ROWS_OF_A_GAME)
    taken = np.minimum(n_step, GAME_STEPS - step)
    state, after = (np.asarray(states).reshape(size, stack, OBS_SIZE) for states in (batch.state, batch.next_state))

    wrong = (step == GAME_STEPS) | _wrong_frames(state, lane_numbers[lane], game, step)
    wrong |= _wrong_frames(after, lane_numbers[lane], game, step + taken)
    for back in range(stack):  # a frame that both states show is the same in both
        place = back + taken
        shown = place < stack
        seen_before, seen_after = state[:, stack - 1 - back], after[every, stack - 1 - np.minimum(place, stack - 1)]
        wrong |= shown & (seen_before != seen_after).any(axis=1)

    returns, discount = np.zeros(size, np.float32), np.ones(size, np.float32)
    for k in range(n_step):
        running = k < taken
        led_by = after[every, stack - np.where(running, taken - k, 1), LED_BY]
        reward = reward_of(lane_numbers[lane], game, step + k + 1, led_by).astype(np.float32)
        returns += np.where(running, discount * reward, np.float32(0))
        discount = np.where(running, discount * np.float32(gamma), discount)
        if k == 0:
            wrong |= np.asarray(batch.action) + 1 != led_by
    discount[(step + taken == GAME_STEPS) & (game % 2 == 1)] = 0
    wrong |= ~np.isclose(np.asarray(batch.returns), returns, rtol=0, atol=1e-5)
    return wrong | ~np.isclose(np.asarray(batch.discount), discount, rtol=0, atol=1e-6)


def _wrong_frames(frames, lane_number, game, newest):
    """(B, stack, OBS_SIZE) whose newest frame is this step of this game of this lane; zeros before the game began."""
    step = newest[:, None] - np.arange(frames.shape[1] - 1, -1, -1)
    begun = step >= 0
    led = np.where(step == 0, frames[..., LED_BY] == 0, (frames[..., LED_BY] >= 1) & (frames[..., LED_BY] <= NUM_ACTIONS))
    right = (frames[..., LANE] == lane_number[:, None]) & (frames[..., GAME] == game[:, None]) & (frames[..., STEP] == step)
    return ~np.where(begun, right & led, (frames == 0).all(axis=2)).all(axis=1)


class CheckingRole(learner.LearnerRole):
    """Checks every batch that is trained on, and a million windows more in the end."""

    def __init__(self, task, pulse):
        super().__init__(task, pulse)
        self._file = task.model_file.parent / "windows.json"
        config = task.config
        seeds = seeding.lane_seeds(config.seed, "env", config.actor.lanes)
        self._how = {
            "lane_numbers": np.array([lane_number(seed) for seed in seeds]),
            "stack": self.parts.stack,
            "n_step": config.replay.n_step,
            "gamma": config.learner.gamma,
        }
        self._sample = self.parts.replay.sample
        self.parts.replay.sample = self._sample_and_check
        self.checked = self.wrong = 0

    def _sample_and_check(self, batch_size, batches=1):
        batch = self._sample(batch_size, batches)
        drawn = np.asarray(batch.weight) > 0
        self.checked += int(drawn.sum())
        self.wrong += int((wrong_windows(batch, **self._how) & drawn).sum())
        return batch

    def run(self):
        reason = super().run()
        told = {"trained_on": self.checked, "wrong_in_training": self.wrong}
        self.checked = self.wrong = 0
        while self.checked < WINDOWS:
            self._sample_and_check(AT_A_TIME)
            self.pulse.beat()
        told |= {"checked": self.checked, "wrong": self.wrong, "lanes": len(set(self._how["lane_numbers"].tolist()))}
        self._file.write_text(json.dumps(told))
        return reason


def learn_and_check(task, pulse):
    with mock.patch.object(learner, "LearnerRole", CheckingRole):
        learner.learn(task, pulse)


# ---------------------------------------------------------------- weights


class TellingRole(learner.LearnerRole):
    """Writes down when weights were put up, and how old those are that the first actor plays with in the end."""

    def __init__(self, task, pulse):
        self.published = []
        super().__init__(task, pulse)
        self._file = task.model_file.parent / "published.json"

    def _publish(self):
        super()._publish()
        self.published.append((self.parts.ratio.steps, self.parts.learner.updates))

    def run(self):
        reason = super().run()
        played_with = int(self.pulse.control["weights_step"][FIRST_ACTOR])
        told = {"published": self.published, "version": self._shared.version, "played_with": played_with}
        self._file.write_text(json.dumps(told))
        return reason


def learn_and_tell(task, pulse):
    with mock.patch.object(learner, "LearnerRole", TellingRole):
        learner.learn(task, pulse)


# ---------------------------------------------------------------- time


def clock_of_games():
    """A clock that shows as many seconds as games have ended: a time limit that no machine is too slow for."""
    return mock.patch.object(Meter, "seconds", property(lambda meter: float(meter.episodes)))


def learn_by_the_clock_of_games(task, pulse):
    with clock_of_games():
        learner.learn(task, pulse)


# ---------------------------------------------------------------- faults


def _learn_until(fault, task, pulse):
    train = Learner.train

    def train_until_it_is_full(self, count):
        if self.updates > 20:
            raise fault
        train(self, count)

    with mock.patch.object(Learner, "train", train_until_it_is_full):
        learner.learn(task, pulse)


def learn_until_memory_runs_out(task, pulse):
    _learn_until(MemoryError(), task, pulse)


def learn_until_the_device_is_full(task, pulse):
    _learn_until(torch.OutOfMemoryError("CUDA out of memory"), task, pulse)
