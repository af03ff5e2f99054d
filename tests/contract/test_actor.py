"""A counting env through env, actor and ring: every stored row pairs the observation with the action taken there and the
reward that action earned, whatever the lanes, groups and episode ends."""

import gymnasium
import numpy as np
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdqn.actor.actor import Actor
from fastdqn.actor.policy import Policy
from fastdqn.env.registry import find_env
from fastdqn.env.serial import SerialLanes
from fastdqn.metrics import Timers
from fastdqn.replay.replay import RingReplay
from fastdqn.replay.ring import FIRST, TAIL, TERMINAL, Ring
from fastdqn.replay.sampler import UniformSampler
from fastdqn.runner.ports import ReplaySink

ACTIONS = 5


class TellingEnv(gymnasium.Env):
    """The observation counts up by one for ever, from a number of the lane's own; the reward says where and by which
    action it was earned. Episode lengths, truncations and lost lives come from the seed."""

    def __init__(self):
        self.observation_space = spaces.Box(0, 10**9, (1,), np.int64)
        self.action_space = spaces.Discrete(ACTIONS)
        self.count = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.count = seed * 1001  # no two lanes ever show the same number, nor one that is equal modulo ACTIONS
        self.count += 1
        self.left = int(self.np_random.integers(1, 8))
        return np.array([self.count]), {}

    def step(self, action):
        reward = float(self.count * ACTIONS + action)
        self.count += 1
        self.left -= 1
        ends, cut = self.left == 0, bool(self.np_random.random() < 0.5)
        life_lost = not ends and bool(self.np_random.random() < 0.2)
        return np.array([self.count]), reward, ends and not cut, ends and cut, {"life_lost": life_lost}


@settings(max_examples=60)
@given(
    lanes=st.integers(1, 6),
    groups=st.integers(1, 3),
    stack=st.integers(1, 3),
    n_step=st.integers(1, 4),
    epsilon=st.sampled_from([0.0, 0.3, 1.0]),
    ticks=st.integers(2, 150),
    seed=st.integers(0, 1000),
)
def test_every_row_pairs_observation_action_and_reward(lanes, groups, stack, n_step, epsilon, ticks, seed):
    kind = find_env(TellingEnv, {})
    env = SerialLanes([kind.make_single] * lanes, kind.spec, min(groups, lanes))
    rows = 4 * (stack + n_step) + 5  # small: the ring wraps
    ring = Ring(lanes, rows, kind.spec.obs_shape, kind.spec.obs_dtype)
    replay = RingReplay(ring, UniformSampler(stack, n_step, np.random.default_rng(seed)), gamma=1.0, clip_rewards=False)
    # Greedy depends on the newest observation, so a state of another time or lane would choose another action
    policy = Policy(lambda states: states[:, -1] % ACTIONS, kind.spec, lanes, stack, np.random.default_rng(seed))
    actor = Actor(env, policy, ReplaySink(replay), lambda step: epsilon, Timers())
    actor.start(list(range(seed, seed + lanes)))
    games = 0
    for _ in range(ticks):
        for group in range(len(env.groups)):
            games += len(actor.step(group)[1])

    checked = tails = 0
    for lane in range(lanes):
        for row in range(max(0, int(ring.W[lane]) - rows), int(ring.W[lane]) - 1):  # every closed row
            slot, following = row % rows, (row + 1) % rows
            flags, obs = ring.flags[lane, slot], int(ring.obs[lane, slot, 0])
            assert int(ring.obs[lane, following, 0]) == obs + 1, "nothing is lost and nothing is mixed"
            tails += bool(flags & TAIL)
            if flags & TAIL:
                assert ring.flags[lane, following] & FIRST
                assert not flags & TERMINAL
                continue
            action = int(ring.action[lane, slot])
            assert ring.reward[lane, slot] == obs * ACTIONS + action
            if epsilon == 0.0:
                assert action == obs % ACTIONS
            checked += 1
    assert checked > 0
    assert tails <= games
