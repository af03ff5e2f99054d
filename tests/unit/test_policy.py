"""Exploration and the frame history."""

import numpy as np
import pytest
import torch
from torch import nn

from fastdqn import seeding
from fastdqn.actor.greedy import make_greedy, without_autograd
from fastdqn.actor.policy import Policy, epsilon_at, explore
from fastdqn.config import make_config
from fastdqn.schedules import exploration
from fastdqn.transition import EnvSpec, Tick
from tests.history import History


def spec(obs_shape=(1,), num_actions=4, dtype=np.int64):
    return EnvSpec("made up", obs_shape, np.dtype(dtype), num_actions)


def tick(obs, first):
    none = np.zeros(len(first), bool)
    return Tick(np.asarray(obs), np.zeros(len(first), np.float32), none, none, none, np.asarray(first, bool))


# ---------------------------------------------------------------- epsilon


@pytest.mark.parametrize(
    ("step", "epsilon"), [(0, 1.0), (1, 0.991), (50, 0.55), (99, 0.109), (100, 0.1), (101, 0.1), (10**9, 0.1)]
)
def test_epsilon_falls_in_a_line_and_stays(step, epsilon):
    assert epsilon_at(step, 1.0, 0.1, 100) == pytest.approx(epsilon)


def test_epsilon_without_a_schedule_is_its_end():
    assert epsilon_at(0, 1.0, 0.1, 0) == pytest.approx(0.1)


def test_the_warmup_keeps_the_start_and_the_schedule_counts_from_the_first_step():
    settings = {"replay.warmup_steps": 50, "actor.epsilon_steps": 100, "actor.epsilon_start": 0.8, "actor.epsilon_end": 0}
    epsilon = exploration(make_config("snake", "default", settings))
    assert [epsilon(step) for step in (0, 49)] == [0.8, 0.8]
    assert epsilon(50) == pytest.approx(0.4)
    assert epsilon(100) == 0


# ---------------------------------------------------------------- choice


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 0.9])
def test_the_share_of_random_actions(epsilon):
    """Of n actions, epsilon * 3/4 differ from the greedy one (a uniform draw may be the greedy one); 4 sigma allowed."""
    n, num_actions = 100_000, 4
    chosen = explore(np.zeros(n, np.int64), epsilon, num_actions, np.random.default_rng(0))
    counts = np.bincount(chosen, minlength=num_actions) / n
    expected = np.full(num_actions, epsilon / num_actions)
    expected[0] += 1 - epsilon
    np.testing.assert_allclose(counts, expected, atol=4 * np.sqrt(0.25 / n))


def test_the_ends_of_epsilon():
    greedy, rng = np.arange(1000) % 4, np.random.default_rng(0)
    assert (explore(greedy, 0.0, 4, rng) == greedy).all()
    assert 0.2 < (explore(greedy, 1.0, 4, rng) == greedy).mean() < 0.3


def test_each_lane_explores_on_its_own():
    chosen = explore(np.zeros(1000, np.int64), 0.5, 100, np.random.default_rng(0))
    assert 0.4 < (chosen != 0).mean() < 0.6


# ---------------------------------------------------------------- policy


def test_the_network_is_not_asked_when_every_action_is_random():
    def never(states):
        raise AssertionError("asked")

    policy = Policy(never, spec(), 3, 1, np.random.default_rng(0))
    policy.observe(slice(0, 3), tick(np.zeros((3, 1)), [True] * 3))
    actions = np.concatenate([policy.act(slice(0, 3), 1.0) for _ in range(200)])
    assert set(actions.tolist()) == {0, 1, 2, 3}
    with pytest.raises(AssertionError, match="asked"):
        policy.act(slice(0, 3), 0.999)


def test_without_exploration_the_network_decides_and_no_random_number_is_spent():
    rng = np.random.default_rng(0)
    policy = Policy(lambda states: states[:, 0] % 4, spec(), 2, 1, rng)
    policy.observe(slice(0, 2), tick([[5], [6]], [True, True]))
    before = rng.bit_generator.state
    assert policy.act(slice(0, 2), 0.0).tolist() == [1, 2]
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("stack", [1, 2, 3, 4])
@pytest.mark.parametrize("groups", [(slice(0, 3),), (slice(0, 1), slice(1, 3))])
def test_the_frame_history_equals_the_full_history(stack, groups):
    """Games end all over the place; what the network sees is worked out again from everything that ever happened."""
    history = History(3, np.random.default_rng(stack), p_end=0.25, p_truncate=0.4)
    seen = []
    policy = Policy(lambda states: seen.append(states.copy()) or np.zeros(len(states), int), spec(), 3, stack, None)
    resets_in_the_middle = 0
    for _ in range(80):
        for lanes in groups:
            block = history.tick(lanes)
            resets_in_the_middle += int(block.first.any() and not block.first.all())
            policy.observe(lanes, tick(block.obs, block.first))
            policy.act(lanes, 0.0)
            expected = [history.stacked(lane, len(history.rows[lane]) - 1, stack) for lane in range(lanes.start, lanes.stop)]
            assert seen[-1].tolist() == expected
    assert resets_in_the_middle > 5


def test_images_are_joined_along_their_channels_oldest_first():
    seen = []
    shape = (2, 3, 3)
    policy = Policy(lambda states: seen.append(states) or np.zeros(len(states), int), spec(shape), 1, 2, None)
    for value in (1, 2, 3):
        policy.observe(slice(0, 1), tick(np.full((1, *shape), value), [value == 1]))
        policy.act(slice(0, 1), 0.0)
    assert seen[-1].shape == (1, 4, 3, 3)
    assert seen[-1][0, :, 0, 0].tolist() == [2, 2, 3, 3]


def test_the_tick_is_copied():
    """An environment may write over its answer at the next step."""
    policy = Policy(lambda states: states[:, 0] % 4, spec(), 1, 1, None)
    obs = np.array([[3]])
    policy.observe(slice(0, 1), tick(obs, [True]))
    obs[:] = 0
    assert policy.act(slice(0, 1), 0.0).tolist() == [3]


def test_state_round_trip():
    def make(seed):
        return Policy(lambda states: states.sum(1) % 4, spec(), 2, 3, np.random.default_rng(seed))

    policy, again = make(1), make(2)
    for value in range(5):
        policy.observe(slice(0, 2), tick([[value], [value + 10]], [value == 0] * 2))
        policy.act(slice(0, 2), 0.5)
    again.load_state(policy.state())
    for _ in range(50):
        assert policy.act(slice(0, 2), 0.5).tolist() == again.act(slice(0, 2), 0.5).tolist()


# ---------------------------------------------------------------- greedy


def test_greedy_takes_the_largest_value_and_inference_changes_nothing():
    torch.manual_seed(0)
    network = nn.Linear(3, 5)
    states = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    plain, quick = make_greedy(network, "cpu"), without_autograd(make_greedy(network, "cpu"))
    by_hand = (states @ network.weight.detach().numpy().T + network.bias.detach().numpy()).argmax(1)
    assert plain(states).tolist() == quick(states).tolist() == by_hand.tolist()


# ---------------------------------------------------------------- seeds


def test_streams_are_independent_and_repeatable():
    assert seeding.stream(1, "explore").random(5).tolist() == seeding.stream(1, "explore").random(5).tolist()
    drawn = {(seed, purpose): seeding.integer(seed, purpose) for seed in range(50) for purpose in ("a", "b", "weights")}
    assert len(set(drawn.values())) == len(drawn)
    assert all(0 <= value < 2**31 for value in drawn.values())


def test_lanes_get_different_seeds_and_more_lanes_keep_the_first():
    seeds = seeding.lane_seeds(3, "env", 1000)
    assert len(set(seeds)) == 1000
    assert seeding.lane_seeds(3, "env", 10) == seeds[:10]
    assert all(0 <= seed < 2**31 for seed in seeds)
