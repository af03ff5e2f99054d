"""Snake's rules one by one, on the plain version; equivalence/test_lane_vector_env.py holds the compiled one to it."""

import itertools
import json
import subprocess
import sys
import warnings
import zlib
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from scipy import stats

from fastdqn.env.ids import register_all
from fastdqn.env.serial import SerialLanes
from fastdqn.env.snake import SnakeEnv
from fastdqn.env.snake_lanes import SnakeLanes, snake_kind
from fastdqn.env.snake_rules import _mix, draw
from fastdqn.errors import UserError

UP, RIGHT, DOWN, LEFT = range(4)
Cell = tuple[int, int]


def board(body: list[Cell], direction: int, food: Cell, dim: int = 6, **more: Any) -> SnakeEnv:
    """A game in the middle: `body` with the head first."""
    env = SnakeEnv(dim=dim, starting_blocks=2, dist_to_border=0, max_steps=more.pop("max_steps", 500))
    env.reset(seed=0)
    env.load_state(env.state() | {"body": np.array(body), "direction": direction, "food": list(food), **more})
    return env


def cells(plane: np.ndarray) -> set[Cell]:
    return {(int(row), int(column)) for row, column in np.argwhere(plane)}


def zigzag(dim: int) -> list[Cell]:
    """All cells of a board, each beside the one before it."""
    return [(row, column) for row in range(dim) for column in (range(dim) if row % 2 == 0 else range(dim - 1, -1, -1))]


# ---- the start


def test_starts_keep_their_distance_in_a_straight_line_and_all_occur() -> None:
    env = SnakeEnv(dim=8, starting_blocks=4, dist_to_border=2, max_steps=10)
    env.reset(seed=5)
    seen = set()
    for _ in range(600):
        obs, info = env.reset()
        (row, column), body = next(iter(cells(obs[0]))), obs[1]
        assert 2 <= row <= 5
        assert 2 <= column <= 5
        assert info == {"score": 0}
        blocks = [(int(r), int(c)) for r, c in np.argwhere(body)]
        blocks.sort(key=lambda cell: -int(body[cell]))  # from the neck to the tail
        down, right = row - blocks[0][0], column - blocks[0][1]
        assert blocks == [(row - i * down, column - i * right) for i in (1, 2, 3)]
        seen.add((row, column, down, right))
    # 4 x 4 heads; of the 4 directions, 2 rows (or columns) of 4 leave no room behind the head: 16 * 4 - 4 * 4
    assert len(seen) == 48


def test_starts_are_uniform() -> None:
    lanes = SnakeLanes(20_000, dim=10)
    lanes.reset(list(range(20_000)))
    obs = lanes.recv(0).obs
    head = obs[:, 0].reshape(len(obs), -1).argmax(1)
    neck = obs[:, 1].reshape(len(obs), -1).argmax(1)
    counts = np.unique(head * 1000 + (head - neck), return_counts=True)[1]
    assert len(counts) == 64  # 16 heads, 4 directions
    assert stats.chisquare(counts).pvalue > 0.001


# ---- moves


@pytest.mark.parametrize(("action", "cell"), [(UP, (1, 2)), (RIGHT, (2, 3)), (DOWN, (3, 2)), (LEFT, (2, 1))])
def test_actions_are_absolute(action: int, cell: Cell) -> None:
    env = board([(2, 2)], UP, food=(5, 5))  # a single block may go anywhere
    obs, reward, terminated, truncated, info = env.step(action)
    assert cells(obs[0]) == {cell}
    assert (reward, terminated, truncated, info) == (0.0, False, False, {"score": 0})


@pytest.mark.parametrize("action", [RIGHT, LEFT], ids=["straight", "reversal"])
def test_a_reversal_continues_straight(action: int) -> None:
    env = board([(2, 3), (2, 2)], RIGHT, food=(5, 5))
    obs = env.step(action)[0]
    assert cells(obs[0]) == {(2, 4)}
    assert cells(obs[1]) == {(2, 3)}


def test_food_is_eaten_grows_the_snake_and_moves() -> None:
    env = board([(2, 3), (2, 2)], RIGHT, food=(2, 4))
    obs, reward, terminated, _, info = env.step(RIGHT)
    assert (reward, terminated, info["score"]) == (1.0, False, 1)
    assert cells(obs[0]) == {(2, 4)}
    assert cells(obs[1]) == {(2, 3), (2, 2)}
    assert len(cells(obs[2])) == 1
    assert not cells(obs[2]) & {(2, 4), (2, 3), (2, 2)}


@pytest.mark.parametrize(
    ("body", "direction", "action"),
    [
        ([(0, 2), (1, 2)], UP, UP),
        ([(2, 5), (2, 4)], RIGHT, RIGHT),
        ([(5, 2), (4, 2)], DOWN, DOWN),
        ([(2, 0), (2, 1)], LEFT, LEFT),
        ([(0, 2), (0, 1)], RIGHT, UP),
        ([(2, 2), (2, 3), (3, 3), (3, 2), (3, 1)], LEFT, DOWN),  # into a block that stays
    ],
)
def test_walls_and_body_kill_and_the_board_stays(body: list[Cell], direction: int, action: int) -> None:
    env = board(body, direction, food=(5, 5))
    before = env._observe()
    obs, reward, terminated, truncated, info = env.step(action)
    assert (reward, terminated, truncated, info["score"]) == (-1.0, True, False, 0)
    np.testing.assert_array_equal(obs, before)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(action)


def test_the_cell_the_tail_leaves_is_free() -> None:
    env = board([(2, 2), (2, 3), (3, 3), (3, 2)], LEFT, food=(5, 5))
    obs, reward, terminated, *_ = env.step(DOWN)
    assert (reward, terminated) == (0.0, False)
    assert cells(obs[0]) == {(3, 2)}
    assert cells(obs[1]) == {(2, 2), (2, 3), (3, 3)}


def almost_full(dim: int, **more: Any) -> SnakeEnv:
    """One free cell, straight ahead, with the food on it."""
    *body, last = zigzag(dim)
    body.reverse()
    direction = RIGHT if dim % 2 == 1 else LEFT
    return board(body, direction, food=last, dim=dim, score=dim * dim - 3, **more)


@pytest.mark.parametrize("dim", [4, 5, 12])
def test_a_full_board_is_a_win(dim: int) -> None:
    env = almost_full(dim)
    obs, reward, terminated, truncated, info = env.step(env.state()["direction"])
    assert (reward, terminated, truncated, info["score"]) == (1.0, True, False, dim * dim - 2)
    assert not obs[2].any()
    assert (obs[0] | obs[1]).all()  # even the tail of the longest snake is above 0


def test_max_steps_truncates() -> None:
    env = board([(2, 2), (2, 1)], RIGHT, food=(5, 5), max_steps=2)
    assert env.step(RIGHT)[1:4] == (0.0, False, False)
    assert env.step(RIGHT)[1:4] == (0.0, False, True)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(RIGHT)


def test_food_at_the_last_step_counts_and_truncates() -> None:
    assert board([(2, 2), (2, 1)], RIGHT, food=(2, 3), max_steps=1).step(RIGHT)[1:4] == (1.0, False, True)


def test_a_death_or_win_at_the_last_step_is_no_truncation() -> None:
    assert board([(0, 2), (1, 2)], UP, food=(5, 5), max_steps=1).step(UP)[1:4] == (-1.0, True, False)
    assert almost_full(4, max_steps=1).step(LEFT)[1:4] == (1.0, True, False)


@pytest.mark.parametrize("action", [-1, 4])
def test_an_unknown_action_is_refused(action: int) -> None:
    env = SnakeEnv()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="action must be"):
        env.step(action)


def test_a_game_must_be_started() -> None:
    with pytest.raises(gymnasium.error.ResetNeeded):
        SnakeEnv().step(UP)


# ---- the observation


def test_the_observation_formula() -> None:
    env = board([(1, 1), (1, 2), (1, 3), (2, 3)], LEFT, food=(4, 0))
    expected = np.zeros((3, 6, 6), np.uint8)
    expected[0, 1, 1] = 255
    expected[1, 1, 2], expected[1, 1, 3], expected[1, 2, 3] = 192, 128, 64  # 255 * 3/4, 2/4, 1/4, rounded up
    expected[2, 4, 0] = 255
    np.testing.assert_array_equal(env._observe(), expected)


def test_the_longest_snake_still_tells_its_direction() -> None:
    env = almost_full(12)
    env.step(LEFT)
    body = env._observe()[1]
    values = [int(body[cell]) for cell in zigzag(12)[:-1]]  # from the tail to the neck
    assert values[0] > 0
    assert all(a < b for a, b in itertools.pairwise(values))


def test_observations_are_new_arrays() -> None:
    env = SnakeEnv()
    first, _ = env.reset(seed=0)
    kept = first.copy()
    env.step(UP)
    np.testing.assert_array_equal(first, kept)


# ---- randomness


def test_the_dice_are_splitmix64() -> None:
    # The first outputs of the published generator seeded with 1234567
    gamma = 0x9E3779B97F4A7C15
    assert [_mix(1234567 + i * gamma) for i in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_a_seed_means_the_same_games_for_ever() -> None:
    """Records name seeds. If this fails, the games behind every published figure have changed."""
    lanes = SnakeLanes(8, dim=10)
    lanes.reset(list(range(8)))
    checksum = food = 0
    for tick in range(200):
        lanes.send(0, (np.arange(8) * 7 + tick * tick // 3) % 4)
        checksum = zlib.crc32(lanes.recv(0).obs.tobytes(), checksum)
        food += int((lanes.recv(0).reward > 0).sum())
    assert (checksum, food) == (185109268, 15)


def test_a_seed_restarts_and_no_seed_goes_on() -> None:
    env = SnakeEnv()
    first = [env.reset(seed=7)[0], env.reset()[0], env.reset()[0]]
    again = [env.reset(seed=7)[0], env.reset()[0], env.reset()[0]]
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], env.reset(seed=8)[0])
    with pytest.raises(gymnasium.error.Error):
        env.reset(seed=-1)


def test_without_any_seed_games_differ() -> None:
    games = {SnakeEnv(dim=30).reset()[0].tobytes() for _ in range(5)}
    assert len(games) == 5


@pytest.mark.parametrize("episode_by_episode", [False, True], ids=["over seeds", "over episodes"])
def test_food_is_uniform_over_the_free_cells(episode_by_episode: bool) -> None:
    lanes = SnakeLanes(100 if episode_by_episode else 20_000, dim=8, dist_to_border=0, max_steps=1)
    lanes.reset(list(range(lanes.num_lanes)))
    boards = [lanes.recv(0).obs.copy()]
    while sum(len(obs) for obs in boards) < 20_000:
        for _ in range(2):  # a step, which ends the game, and the tick that starts the next one
            lanes.send(0, np.zeros(lanes.num_lanes, np.int64))
        assert lanes.recv(0).first.all()
        boards.append(lanes.recv(0).obs.copy())
    obs = np.concatenate(boards).reshape(-1, 3, 64)
    food = obs[:, 2].argmax(1)
    is_free = (obs[:, 0] == 0) & (obs[:, 1] == 0)
    assert is_free[np.arange(len(food)), food].all()
    rank = (is_free.cumsum(1) - 1)[np.arange(len(food)), food]  # which of the 61 free cells
    assert stats.chisquare(np.bincount(rank, minlength=61)).pvalue > 0.001


def test_draws_of_one_game_are_independent() -> None:
    pairs = np.array([[draw(seed, 3, 1, 8), draw(seed, 3, 2, 8)] for seed in range(8000)])
    table = np.zeros((8, 8))
    np.add.at(table, (pairs[:, 0], pairs[:, 1]), 1)
    assert stats.chisquare(table.ravel()).pvalue > 0.001


# ---- images


def test_text_image() -> None:
    env = board([(1, 1), (1, 2), (2, 2)], LEFT, food=(0, 3), dim=4)
    env.render_mode = "ansi"
    assert env.render().splitlines() == [
        "score 0",
        "┌────────┐",
        "│      ()│",
        "│  ██▒▒  │",
        "│    ░░  │",
        "│        │",
        "└────────┘",
    ]
    env.step(LEFT)
    env.step(LEFT)
    assert env.render().startswith("score 0  crash\n")
    assert "XX" in env.render()


@pytest.mark.parametrize("dim", [4, 10])
def test_colour_image(dim: int) -> None:
    env = SnakeEnv(dim=dim, dist_to_border=0, render_mode="rgb_array")
    env.reset(seed=1)
    before = env.render()
    assert before.dtype == np.uint8
    assert before.shape == (dim * 24 + 48, dim * 24 + 16, 3)
    terminated = False
    while not terminated:
        terminated = env.step(UP)[2]
    assert not np.array_equal(before, env.render())


def test_a_image_has_no_more_colours_than_a_gif() -> None:
    env = board(zigzag(10)[40::-1], RIGHT, food=(8, 2), dim=10)
    env.render_mode = "rgb_array"
    assert 16 < len(np.unique(env.render().reshape(-1, 3), axis=0)) <= 256


def test_a_full_board_and_a_truncated_game_can_be_drawn() -> None:
    for env in (almost_full(4), board([(2, 2), (2, 1)], RIGHT, food=(0, 0), max_steps=1)):
        env.step(env.state()["direction"])
        env.render_mode = "rgb_array"
        assert env.render().ndim == 3
        env.render_mode = "ansi"
        assert ("full board!" in env.render()) or ("time is up" in env.render())


def test_rendering_without_a_mode_warns() -> None:
    env = SnakeEnv()
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None


# ---- states


def plain_json(state: dict[str, Any]) -> dict[str, Any]:
    """Arrays aside, a state must survive a JSON file."""
    arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
    rest = {name: value for name, value in state.items() if name not in arrays}
    return json.loads(json.dumps(rest)) | arrays


def test_a_single_game_goes_on_exactly() -> None:
    env, fresh = SnakeEnv(max_steps=9), SnakeEnv(max_steps=9)
    env.reset(seed=2**64 - 3)
    rng = np.random.default_rng(0)
    for i in range(300):
        if i % 7 == 0:
            fresh.load_state(plain_json(env.state()))
        action = int(rng.integers(4))
        a, b = env.step(action), fresh.step(action)
        np.testing.assert_array_equal(a[0], b[0])
        assert a[1:] == b[1:]
        if a[2] or a[3]:
            np.testing.assert_array_equal(env.reset()[0], fresh.reset()[0])


def test_a_state_before_the_first_reset_can_be_saved() -> None:
    fresh = SnakeEnv()
    fresh.load_state(plain_json(SnakeEnv().state()))
    fresh.reset()


def test_lanes_go_on_exactly_even_when_cut_into_other_groups() -> None:
    lanes = SnakeLanes(10, num_groups=3, dim=6, dist_to_border=1, max_steps=30)
    lanes.reset(list(range(10)))
    rng = np.random.default_rng(0)
    for tick in range(50):
        for group in range(tick % 3 + 1):  # groups need not be in step
            lanes.send(group, rng.integers(0, 4, len(lanes.recv(group).first)))
    state = plain_json(lanes.state())
    fresh = SnakeLanes(10, num_groups=1, dim=6, dist_to_border=1, max_steps=30)
    fresh.load_state(state)
    for _ in range(100):
        for group, part in enumerate(lanes.groups):
            for a, b in zip(lanes.recv(group), fresh.recv(0), strict=True):
                np.testing.assert_array_equal(a, b[part])
        actions = rng.integers(0, 4, 10)
        fresh.send(0, actions)
        for group, part in enumerate(lanes.groups):
            lanes.send(group, actions[part])


def test_a_state_is_a_copy() -> None:
    lanes = SnakeLanes(4)
    lanes.reset([1, 2, 3, 4])
    state = lanes.state()
    kept = {name: value.copy() for name, value in state.items() if isinstance(value, np.ndarray)}
    for _ in range(30):
        lanes.send(0, np.array([0, 1, 2, 3]))
    for name, value in kept.items():
        np.testing.assert_array_equal(state[name], value)


def test_a_state_of_another_game_is_refused() -> None:
    with pytest.raises(UserError, match="settings"):
        SnakeEnv(dim=8).load_state(SnakeEnv(dim=10).state())
    with pytest.raises(UserError, match="settings"):
        SnakeLanes(4, dim=8).load_state(SnakeLanes(4, dim=10).state())
    with pytest.raises(UserError, match="4 lanes"):
        SnakeLanes(5).load_state(SnakeLanes(4).state())


# ---- lanes


def test_a_dead_lane_ignores_its_next_action_and_starts_anew() -> None:
    lanes, up = SnakeLanes(1), np.array([UP])
    lanes.reset([1])
    assert lanes.recv(0).first.all()
    while not lanes.recv(0).terminated[0]:
        lanes.send(0, up)
        assert not lanes.recv(0).first[0]
    assert lanes.recv(0).reward[0] == -1
    last = lanes.recv(0).obs.copy()

    lanes.send(0, up)
    tick = lanes.recv(0)
    assert (tick.first[0], tick.reward[0], tick.terminated[0], tick.truncated[0]) == (True, 0, False, False)
    assert not np.array_equal(tick.obs, last)
    assert np.count_nonzero(tick.obs[0, 1]) == 2

    lanes.send(0, up)
    assert not lanes.recv(0).first[0]


def test_a_tick_stays_valid_until_the_next_recv() -> None:
    lanes = SnakeLanes(5)
    lanes.reset(list(range(5)))
    for _ in range(20):
        tick = lanes.recv(0)
        kept = [array.copy() for array in tick]
        lanes.send(0, np.full(5, UP))
        for array, copy in zip(tick, kept, strict=True):
            np.testing.assert_array_equal(array, copy)


def test_sending_to_one_group_leaves_the_others_alone() -> None:
    lanes = SnakeLanes(7, num_groups=2)
    lanes.reset(list(range(7)))
    assert lanes.groups == (slice(0, 3), slice(3, 7))
    kept = [array.copy() for array in lanes.recv(1)]
    for _ in range(20):
        lanes.send(0, np.full(3, LEFT))
    for array, copy in zip(lanes.recv(1), kept, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_a_lane_plays_the_same_game_whatever_the_others_do() -> None:
    many, alone = SnakeLanes(50), SnakeLanes(1)
    many.reset(list(range(50)))
    alone.reset([31])
    rng = np.random.default_rng(3)
    for _ in range(200):
        actions = rng.integers(0, 4, 50)
        many.send(0, actions)
        alone.send(0, actions[31:32])
        np.testing.assert_array_equal(many.recv(0).obs[31], alone.recv(0).obs[0])


@pytest.mark.parametrize("actions", [[0, 4], [-1, 0], [0], [0, 0, 0], [0.5, 1.0]], ids=str)
def test_lanes_refuse_bad_actions_and_go_on(actions: list[float]) -> None:
    lanes = SnakeLanes(2)
    lanes.reset([0, 1])
    before = [array.copy() for array in lanes.recv(0)]
    with pytest.raises((ValueError, TypeError)):
        lanes.send(0, np.array(actions))
    for array, copy in zip(lanes.recv(0), before, strict=True):
        np.testing.assert_array_equal(array, copy)
    lanes.send(0, np.array([0, 1], np.uint8))


def test_lanes_need_a_seed_each() -> None:
    with pytest.raises(ValueError, match="2 lanes"):
        SnakeLanes(2).reset([1])


# ---- arguments


def test_camel_case_is_understood() -> None:
    env = SnakeEnv(startingBlocks=2, dim=8, distToBorder=1, maxSteps=99)
    expected = {"dim": 8, "starting_blocks": 2, "dist_to_border": 1, "max_steps": 99}
    assert env.settings.as_dict() == expected
    assert SnakeLanes(2, 1, startingBlocks=2, dim=8, distToBorder=1, maxSteps=99).settings.as_dict() == expected
    assert snake_kind({"startingBlocks": "2", "dim": 8, "distToBorder": 1, "max_steps": "99"}).settings == expected


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"dim": 1}, "dim must lie between 2 and 128, not 1"),
        ({"dim": -4}, "dim must lie between 2 and 128"),
        ({"dim": 129}, "dim must lie between 2 and 128"),
        ({"dim": 6, "dist_to_border": 3}, "dist_to_border must lie between 0 and 2 for dim 6"),
        ({"starting_blocks": 8, "dist_to_border": 3}, "dist_to_border must lie between 0 and 2 for dim 10"),
        ({"dist_to_border": -1}, "between 0 and 4"),
        ({"dim": 4, "starting_blocks": 5}, "starting_blocks must lie between 1 and dim"),
        ({"starting_blocks": 0}, "starting_blocks must lie between 1"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"dim": "ten"}, "dim must be a whole number, not 'ten'"),
        ({"dim": 9.5}, "whole number"),
        ({"dim": True}, "whole number"),
        ({"dim": None}, "whole number"),
        ({"dim": float("inf")}, "whole number"),
        ({"strating_blocks": 3}, "Did you mean starting_blocks"),
        ({"render_fps": 3}, "Snake has no setting 'render_fps'"),
    ],
    ids=str,
)
def test_bad_settings_are_refused_in_a_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        snake_kind(settings)
    with pytest.raises(UserError, match=sentence):
        SnakeEnv(**settings)
    with pytest.raises(UserError, match=sentence):
        SnakeLanes(1, 1, **settings)


@pytest.mark.parametrize(("settings", "distance"), [({}, 3), ({"dim": 6}, 2), ({"dim": 4}, 1), ({"starting_blocks": 8}, 2)])
def test_a_small_board_gets_the_largest_distance_that_fits(settings: dict[str, int], distance: int) -> None:
    assert snake_kind(settings).settings["dist_to_border"] == distance
    assert SnakeEnv(**settings).settings.dist_to_border == distance
    assert SnakeLanes(1, 1, **settings).settings.dist_to_border == distance


def test_a_setting_given_twice_is_refused() -> None:
    with pytest.raises(UserError, match="max_steps is given twice"):
        snake_kind({"max_steps": 3, "maxSteps": 4})


def test_the_largest_distance_named_works() -> None:
    for dim in range(2, 13):
        for blocks in range(1, dim + 1):
            with pytest.raises(UserError, match="dist_to_border must lie between 0 and") as refusal:
                SnakeEnv(dim=dim, starting_blocks=blocks, dist_to_border=99)
            largest = int(str(refusal.value).split("between 0 and ")[1].split()[0])
            SnakeEnv(dim=dim, starting_blocks=blocks, dist_to_border=largest).reset(seed=0)
            with pytest.raises(UserError):
                SnakeEnv(dim=dim, starting_blocks=blocks, dist_to_border=largest + 1)


@pytest.mark.parametrize("dist", [0, 1])
def test_a_board_of_four_by_four(dist: int) -> None:
    SnakeEnv(dim=4, starting_blocks=2, dist_to_border=dist).reset(seed=0)


def test_an_unknown_render_mode_is_refused() -> None:
    with pytest.raises(UserError, match="render_mode"):
        SnakeEnv(render_mode="human")


# ---- the neighbours: Gymnasium and the rest of fastdqn


def test_gymnasium_approves() -> None:
    register_all()  # a second time
    env = gymnasium.make("fastdqn/Snake-v0", dim=8, dist_to_border=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
    assert env.observation_space.shape == (3, 8, 8)
    assert env.action_space.n == 4
    env.reset(seed=np.int64(3))
    env.step(env.action_space.sample())
    env.close()


def test_the_kind() -> None:
    kind = snake_kind({"dim": "8", "dist_to_border": 2, "max_steps": 123})
    assert (kind.preset, kind.stack, kind.lanes_switch) == ("snake", 1, "lane_vector_env")
    spec = kind.spec
    assert (spec.env_id, spec.obs_shape, spec.obs_dtype, spec.num_actions) == ("snake", (3, 8, 8), np.uint8, 4)
    assert (spec.frame_skip, spec.max_eval_steps, spec.score) == (1, 123, "gains")
    assert spec.details == kind.settings == {"dim": 8, "starting_blocks": 3, "dist_to_border": 2, "max_steps": 123}
    assert kind.make_single(render_mode="ansi").render_mode == "ansi"
    assert kind.make_lanes is not None
    lanes = kind.make_lanes(4, 2)
    assert lanes.spec == spec
    assert (lanes.num_lanes, len(lanes.groups)) == (4, 2)
    SerialLanes([kind.make_single] * 2, spec).reset([0, 1])


def test_numba_is_imported_only_when_lanes_are_made() -> None:
    code = (
        "import sys; from fastdqn.env.snake_lanes import snake_kind; kind = snake_kind({}); kind.make_single().reset();"
        "assert not {'numba', 'PIL', 'torch'} & set(sys.modules); kind.make_lanes(2, 1); assert 'numba' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
