"""An environment that counts: every observation says which lane, which game and which step it belongs to, so a row from the
wrong place is seen at once. Games have a fixed length, so two runs that should be equal are equal exactly.

    observation   lane, game, step, what led here (0 after a reset, else the action + 1)
    reward        depends on all four
    end           games 0, 2, 4, ... are cut at the end (truncated), the others end there (terminated)
"""

import gymnasium
import numpy as np
from gymnasium import spaces

GAME_STEPS = 19
ROWS_OF_A_GAME = GAME_STEPS + 1
NUM_ACTIONS = 3
OBS_SIZE = 4
LANE_NUMBERS = 997


def lane_number(seed: int) -> int:
    """What a lane calls itself; never 0, which is what a frame before the beginning looks like."""
    return seed % LANE_NUMBERS + 1


def reward_of(lane, game, step, led_by):
    """Of the step that led to this observation; of numbers or arrays. Exact in float32."""
    return ((lane * 7 + game * 5 + step * 3 + led_by) % 16) / 8 - 1


class CountingEnv(gymnasium.Env):
    def __init__(self):
        self.observation_space = spaces.Box(0, 1e6, (OBS_SIZE,), np.float32)
        self.action_space = spaces.Discrete(NUM_ACTIONS)
        self._lane, self._game, self._step = 0, -1, 0

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self._lane, self._game = lane_number(seed), -1
        self._game, self._step = self._game + 1, 0
        return self._told(0), {}

    def step(self, action):
        self._step += 1
        obs = self._told(int(action) + 1)
        ends, cut = self._step == GAME_STEPS, self._game % 2 == 0
        return obs, float(reward_of(*obs.astype(int))), bool(ends and not cut), bool(ends and cut), {}

    def _told(self, led_by):
        return np.array([self._lane, self._game, self._step, led_by], np.float32)


def make_counting():
    return CountingEnv()
