"""One body over every vector environment: NEXT_STEP autoreset, groups, seeds, fresh answers."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from fastdqn.env.base import split_lanes
from fastdqn.env.kind import EnvKind
from fastdqn.env.registry import find_env
from fastdqn.env.serial import SerialLanes


class CountingEnv(gymnasium.Env):
    """Observation = (episode, step); episodes of 1, 2, 3, 4, 1, ... steps; actions start at 5; reuses its buffer."""

    def __init__(self):
        self.observation_space = spaces.Box(0, 10_000, (2,), np.int64)
        self.action_space = spaces.Discrete(3, start=5)
        self.buffer = np.zeros(2, np.int64)
        self.episode = -1

    def reset(self, *, seed=None, options=None):
        self.episode = 0 if seed is not None else self.episode + 1
        self.buffer[:] = self.episode, 0
        return self.buffer, {}

    def step(self, action):
        assert action in (5, 6, 7)
        self.buffer[1] += 1
        over = self.buffer[1] > self.episode % 4
        return self.buffer, float(action), bool(over and self.episode % 2), bool(over and not self.episode % 2), {}


def serial(kind: EnvKind, lanes, groups):
    return SerialLanes([kind.make_single] * lanes, kind.spec, groups)


def fast(kind: EnvKind, lanes, groups):
    return kind.make_lanes(lanes, groups)


def on_device(kind: EnvKind, lanes, groups):
    """On the CPU, whose tensors follow the same rules as a GPU's."""
    if groups > 1:
        pytest.skip("boards on a device are one group")
    return kind.make_on_device(lanes, "cpu")


ENVS = {
    "counting": (lambda: find_env(CountingEnv, {}), serial),
    "cartpole": (lambda: find_env("CartPole-v1", {}), serial),
    "cartpole lanes": (lambda: find_env("CartPole-v1", {}), fast),
    "catch": (lambda: find_env("catch", {}), serial),
    "snake one by one": (lambda: find_env("snake", {"max_steps": 30}), serial),
    "snake lanes": (lambda: find_env("snake", {"max_steps": 30}), fast),
    "snake on a device": (lambda: find_env("snake", {"max_steps": 30}), on_device),
    "atari textbook": (lambda: find_env("pong", {"max_frames_per_game": 60, "noop_max": 3}), serial),
    "atari native": (lambda: find_env("pong", {"max_frames_per_game": 60, "noop_max": 3}), fast),
}


@pytest.fixture(params=ENVS)
def make(request):
    find, build = ENVS[request.param]
    kind = find()
    made = []

    def build_one(lanes=4, groups=1):
        made.append(build(kind, lanes, groups))
        return made[-1]

    yield build_one
    for env in made:
        env.close()


def play(env, ticks, seeds, action_seed=0, lanes_kept=None):
    """Every tick as copies, (ticks, lanes, ...) per field. Actions depend on lane and tick only."""
    env.reset(seeds)
    columns = {name: [] for name in ("obs", "reward", "terminated", "truncated", "life_lost", "first", "action")}
    for t in range(ticks):
        parts = {name: [] for name in columns}
        for group, lanes in enumerate(env.groups):
            tick = env.recv(group)
            numbers = np.arange(lanes.start, lanes.stop)
            actions = (numbers * 7 + t * 3 + t // 5 + action_seed) % env.spec.num_actions
            for name, value in tick._asdict().items():
                parts[name].append(value.copy())
            parts["action"].append(actions)
            env.send(group, actions.astype(np.int64))
        for name, values in parts.items():
            columns[name].append(np.concatenate(values)[:lanes_kept])
    return {name: np.stack(values) for name, values in columns.items()}


def test_shapes_and_types(make):
    env = make(3)
    env.reset([1, 2, 3])
    tick = env.recv(0)
    assert tick.obs.shape == (3, *env.spec.obs_shape)
    assert tick.obs.dtype == env.spec.obs_dtype
    assert tick.reward.dtype == np.float32
    for flag in (tick.terminated, tick.truncated, tick.life_lost, tick.first):
        assert flag.shape == (3,)
        assert flag.dtype == bool


def test_next_step_autoreset(make):
    """The first tick of all is `first`; after an end comes exactly one `first` tick with reward 0, and only then."""
    seen = play(make(4), 120, [1, 2, 3, 4])
    ended = seen["terminated"] | seen["truncated"]
    assert ended.sum() >= 4, "the play must contain ends, else this shows nothing"
    assert seen["first"][0].all()
    np.testing.assert_array_equal(seen["first"][1:], ended[:-1])
    assert (seen["reward"][seen["first"]] == 0).all()
    assert not (ended & seen["first"]).any()


def test_same_seeds_same_games(make):
    one, two = play(make(3), 60, [5, 6, 7]), play(make(3), 60, [5, 6, 7])
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


def test_a_lane_plays_the_same_game_whatever_the_others_do(make):
    alone = play(make(1), 60, [5])
    among = play(make(4), 60, [5, 9, 10, 11], lanes_kept=1)
    for name in alone:
        np.testing.assert_array_equal(alone[name], among[name], err_msg=name)


def test_groups_cut_the_lanes_and_nothing_else(make):
    whole, cut = play(make(5, 1), 40, [1, 2, 3, 4, 5]), play(make(5, 2), 40, [1, 2, 3, 4, 5])
    for name in whole:
        np.testing.assert_array_equal(whole[name], cut[name], err_msg=name)


def test_groups_may_be_in_flight_together(make):
    env = make(4, 2)
    env.reset([1, 2, 3, 4])
    for group in (0, 1):
        env.recv(group)
    for _ in range(5):
        for group in (0, 1):
            env.send(group, np.zeros(2, np.int64))
        for group in (1, 0):
            env.recv(group)


def test_reset_in_the_middle_starts_anew(make):
    env = make(2)
    fresh = play(env, 20, [3, 4])
    again = play(env, 20, [3, 4])  # the last send of the first play is still unanswered here
    for name in fresh:
        np.testing.assert_array_equal(fresh[name], again[name], err_msg=name)


def test_illegal_actions_are_refused_and_do_no_harm(make):
    env = make(2)
    env.reset([1, 2])
    env.recv(0)
    for bad in (-1, env.spec.num_actions):
        with pytest.raises(ValueError, match="action out of range"):
            env.send(0, np.array([0, bad]))
    env.send(0, np.zeros(2, np.int64))
    env.recv(0)


def test_state_goes_on_exactly_where_it_says_so(make):
    env = make(3, 1)
    play(env, 25, [1, 2, 3])
    env.recv(0)
    state = env.state()
    if not state["exact"]:
        pytest.skip("this environment cannot be saved, and says so")
    actions = [np.full(3, t % env.spec.num_actions) for t in range(30)]

    def go_on(lanes):
        rows = []
        for action in actions:
            lanes.send(0, action)
            rows.append([field.copy() for field in lanes.recv(0)])
        return rows

    expected = go_on(env)
    other = make(3, 1)
    other.reset([7, 8, 9])
    other.recv(0)
    other.load_state(state)
    for ours, theirs in zip(expected, go_on(other), strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


def test_an_environment_behind_a_time_limit_does_not_claim_to_be_exact():
    """Its wrapper counts steps that the environment itself knows nothing of."""
    spec = find_env("catch", {}).spec
    plain = SerialLanes([lambda: gymnasium.make("fastdqn/Catch-v0")], spec)
    limited = SerialLanes([lambda: gymnasium.make("fastdqn/Catch-v0", max_episode_steps=5)], spec)
    assert plain.state()["exact"]
    assert not limited.state()["exact"]


@pytest.mark.parametrize(("lanes", "groups"), [(1, 1), (7, 2), (8, 3), (64, 5)])
def test_split_lanes_covers_all_in_order(lanes, groups):
    parts = split_lanes(lanes, groups)
    assert [lane for part in parts for lane in range(part.start, part.stop)] == list(range(lanes))
    sizes = [part.stop - part.start for part in parts]
    assert max(sizes) - min(sizes) <= 1
