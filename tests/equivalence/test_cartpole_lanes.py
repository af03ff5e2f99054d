"""lane_vector_env on CartPole: every number of every tick is Gymnasium's own, whoever plays."""

import gymnasium
import numpy as np
import pytest

from fastdqn.env.cartpole_lanes import CartPoleLanes, is_plain_cartpole
from fastdqn.env.registry import find_env
from fastdqn.env.serial import SerialLanes


def balanced(obs: np.ndarray) -> np.ndarray:
    """Keeps the pole up for hundreds of steps."""
    return (obs @ np.array([0.1, 0.5, 5.0, 1.0], np.float32) > 0).astype(np.int64)


def random_player(seed: int):
    rng = np.random.default_rng(seed)
    return lambda obs: rng.integers(0, 2, len(obs))


@pytest.mark.parametrize(("env_id", "steps"), [("CartPole-v1", 1100), ("CartPole-v0", 450)])
@pytest.mark.parametrize("player", [balanced, random_player(3)], ids=["balanced", "random"])
@pytest.mark.parametrize("groups", [1, 3])
def test_every_tick_is_the_same(env_id, steps, player, groups):
    kind = find_env(env_id, {})
    plain, fast = SerialLanes([kind.make_single] * 7, kind.spec, groups), kind.make_lanes(7, groups)
    assert isinstance(fast, CartPoleLanes)
    seeds = [11, 2**40, 3, 4, 5, 6, 7]
    seen = {"terminated": 0, "truncated": 0, "first": 0}
    for env in (plain, fast):
        env.reset(seeds)
    for _ in range(steps):
        for group in range(groups):
            expected, got = plain.recv(group), fast.recv(group)
            for name in expected._fields:
                a, b = getattr(expected, name), getattr(got, name)
                assert a.dtype == b.dtype
                np.testing.assert_array_equal(a, b, err_msg=name)
            for name in seen:
                seen[name] += int(getattr(got, name).sum())
            actions = player(got.obs)
            plain.send(group, actions)
            fast.send(group, actions)
    assert seen["first"] > 7, "games have ended and begun"
    assert seen["truncated" if player is balanced else "terminated"] > 0
    plain.close()


def test_only_gymnasiums_own_cartpole_is_taken_for_it():
    assert is_plain_cartpole("CartPole-v1", {})
    assert not is_plain_cartpole("CartPole-v1", {"sutton_barto_reward": True})
    assert not is_plain_cartpole("Acrobot-v1", {})
    assert find_env("CartPole-v1", {"sutton_barto_reward": True}).make_lanes is None
    gymnasium.register("OtherCartPole-v1", "gymnasium.envs.classic_control.cartpole:CartPoleEnv", max_episode_steps=50,
                       kwargs={"sutton_barto_reward": True})  # fmt: skip
    try:
        assert not is_plain_cartpole("OtherCartPole-v1", {})
    finally:
        del gymnasium.registry["OtherCartPole-v1"]


def test_a_state_of_other_lanes_is_refused():
    kind = find_env("CartPole-v1", {})
    from fastdqn.errors import UserError

    with pytest.raises(UserError, match="3 lanes, these are 4"):
        kind.make_lanes(4, 1).load_state(kind.make_lanes(3, 1).state())


def test_a_state_goes_on_in_other_groups():
    kind = find_env("CartPole-v1", {})
    one, other = kind.make_lanes(6, 2), kind.make_lanes(6, 3)
    one.reset([1, 2, 3, 4, 5, 6])
    play = random_player(1)
    for _ in range(60):
        for group in range(2):
            one.send(group, play(one.recv(group).obs))
    other.load_state(one.state())
    for t in range(60):
        actions = np.arange(6) * t % 2
        seen = []
        for env in (one, other):
            for group, lanes in enumerate(env.groups):
                env.send(group, actions[lanes])
            seen.append(np.concatenate([env.recv(group).obs for group in range(len(env.groups))]))
        np.testing.assert_array_equal(*seen)


def test_actions_that_are_none_are_refused():
    env = find_env("CartPole", {}).make_lanes(3, 1)  # the id without its version is the same game
    for wrong in (np.zeros(2, np.int64), np.zeros(3), np.array([0, 1, 2])):
        with pytest.raises(ValueError, match=r"group 0 takes 3 whole numbers|out of range"):
            env.send(0, wrong)
