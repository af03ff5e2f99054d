"""The compiled Snake against the plain one: every value of every tick is the same, whoever plays."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fastdqn.env.base import LaneEnv
from fastdqn.env.serial import SerialLanes
from fastdqn.env.snake_lanes import SnakeLanes, snake_kind

Player = Callable[[np.ndarray], np.ndarray]  # observations (L, 3, dim, dim) -> actions (L,)
MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])
DIMS = range(4, 13)


def both(lanes: int, groups: int = 1, **settings: int) -> tuple[SerialLanes, SnakeLanes]:
    kind = snake_kind(settings)
    return SerialLanes([kind.make_single] * lanes, kind.spec, groups), SnakeLanes(lanes, groups, **settings)


def assert_same_tick(plain: LaneEnv, fast: LaneEnv, group: int) -> None:
    expected, got = plain.recv(group), fast.recv(group)
    for name in expected._fields:
        a, b = getattr(expected, name), getattr(got, name)
        assert a.dtype == b.dtype, name
        np.testing.assert_array_equal(a, b, err_msg=name)


def play(plain: SerialLanes, fast: SnakeLanes, player: Player, ticks: int) -> Counter[str]:
    """Sends the same actions to both, compares every tick, and counts what happened."""
    seen: Counter[str] = Counter()
    for group in range(len(plain.groups)):
        assert_same_tick(plain, fast, group)
    for _ in range(ticks):
        for group in range(len(plain.groups)):
            before = plain.recv(group).obs.copy()
            actions = player(before)
            plain.send(group, actions)
            fast.send(group, actions)
            assert_same_tick(plain, fast, group)
            tick = plain.recv(group)
            seen["death"] += int((tick.terminated & (tick.reward < 0)).sum())
            seen["win"] += int((tick.terminated & (tick.reward > 0)).sum())
            seen["truncation"] += int(tick.truncated.sum())
            seen["food"] += int((tick.reward > 0).sum())
            seen["reset"] += int(tick.first.sum())
            seen["reversal"] += int((turns_back(before, actions) & ~tick.first).sum())
    return seen


def cell_of(plane: np.ndarray) -> np.ndarray:
    """(L, dim, dim) -> (L, 2): row and column of the brightest cell."""
    return np.stack(np.unravel_index(plane.reshape(len(plane), -1).argmax(1), plane.shape[1:]), axis=1)


def turns_back(obs: np.ndarray, actions: np.ndarray) -> np.ndarray:
    neck_is_there = obs[:, 1].any(axis=(1, 2))
    return neck_is_there & (cell_of(obs[:, 0]) + MOVES[actions] == cell_of(obs[:, 1])).all(1)


def random_player(seed: int) -> Player:
    rng = np.random.default_rng(seed)
    return lambda obs: rng.integers(0, 4, len(obs))


def cycle_player(dim: int) -> Player:
    """Walks a fixed round trip through all cells of an even board: out along the zigzag, home along column 0."""
    route = [(0, 0)]
    for row in range(dim):
        route += [(row, column) for column in (range(1, dim) if row % 2 == 0 else range(dim - 1, 0, -1))]
    route += [(row, 0) for row in range(dim - 1, 0, -1)]
    assert sorted(route) == [(row, column) for row in range(dim) for column in range(dim)]
    action_at = np.zeros((dim, dim), np.int64)
    for here, there in zip(route, route[1:] + route[:1], strict=True):
        action_at[here] = [tuple(move) for move in MOVES].index((there[0] - here[0], there[1] - here[1]))
    return lambda obs: action_at[tuple(cell_of(obs[:, 0]).T)]


def greedy_player(dim: int) -> Player:
    """Towards the food if the next cell is free, else to any free cell. Traps itself sooner or later."""

    def choose(board: np.ndarray) -> int:
        head, food = cell_of(board[:1])[0], cell_of(board[2:])[0]
        options = []
        for action, move in enumerate(MOVES):
            row, column = head + move
            if 0 <= row < dim and 0 <= column < dim and board[1, row, column] == 0:
                options.append((abs(row - food[0]) + abs(column - food[1]), action))
        return min(options)[1] if options else 0

    return lambda obs: np.array([choose(board) for board in obs])


def settings_for(dim: int, **more: int) -> dict[str, int]:
    return {"dim": dim, "starting_blocks": 3, "dist_to_border": 1 if dim < 8 else 3, **more}


@pytest.mark.parametrize("dim", DIMS)
def test_random_play_is_the_same(dim: int) -> None:
    plain, fast = both(12, groups=3, **settings_for(dim, max_steps=15))
    seeds = [dim * 1000 + lane for lane in range(12)]
    plain.reset(seeds)
    fast.reset(seeds)
    seen = play(plain, fast, random_player(seed=dim), ticks=250)
    assert min(seen[what] for what in ("death", "truncation", "food", "reset", "reversal")) > 0, seen


@pytest.mark.parametrize(
    "dim", [4, 6, 8, pytest.param(10, marks=pytest.mark.slow), pytest.param(12, marks=pytest.mark.slow)]
)
def test_full_boards_are_the_same(dim: int) -> None:
    plain, fast = both(2, **settings_for(dim, max_steps=dim**4))
    plain.reset([dim, dim + 100])
    fast.reset([dim, dim + 100])
    # A food is half a round away on average, so a game takes about cells ** 2 / 2 steps and twice that is ample
    seen = play(plain, fast, cycle_player(dim), ticks=dim**4 + 500)
    assert seen["win"] >= 2, seen


@pytest.mark.parametrize("dim", [dim for dim in DIMS if dim % 2 == 1])
def test_greedy_play_on_odd_boards_is_the_same(dim: int) -> None:
    plain, fast = both(4, groups=2, **settings_for(dim, max_steps=10 * dim))
    plain.reset([1, 2, 3, 4])
    fast.reset([1, 2, 3, 4])
    seen = play(plain, fast, greedy_player(dim), ticks=1200)
    assert min(seen[what] for what in ("death", "truncation", "food", "reset")) > 0, seen


@pytest.mark.parametrize(
    "settings",
    [
        {"dim": 2, "starting_blocks": 1, "dist_to_border": 0, "max_steps": 9},
        {"dim": 2, "starting_blocks": 2, "dist_to_border": 0, "max_steps": 9},
        {"dim": 4, "starting_blocks": 2, "dist_to_border": 1, "max_steps": 40},
        {"dim": 5, "starting_blocks": 5, "dist_to_border": 0, "max_steps": 40},
        {"dim": 6, "starting_blocks": 1, "dist_to_border": 2, "max_steps": 1},
        {"dim": 17, "starting_blocks": 3, "dist_to_border": 8, "max_steps": 60},
    ],
    ids=str,
)
def test_unusual_boards_are_the_same(settings: dict[str, int]) -> None:
    plain, fast = both(8, groups=2, **settings)
    seeds = [2**64 - 1, 2**63, 0, 1, 2, 3, 2**31, 12345678901234567890]
    plain.reset(seeds)
    fast.reset(seeds)
    seen = play(plain, fast, random_player(seed=1), ticks=150)
    assert seen["reset"] > 0, seen


def test_a_board_of_four_cells_is_won_by_both() -> None:
    plain, fast = both(8, dim=2, starting_blocks=1, dist_to_border=0, max_steps=50)
    plain.reset(list(range(8)))
    fast.reset(list(range(8)))
    assert play(plain, fast, cycle_player(2), ticks=100)["win"] > 50


def test_bodies_longer_than_the_scale_of_brightness_are_the_same() -> None:
    """More than 255 blocks share 255 values: one version divides for each, the other carries the remainder along."""
    plain, fast = both(1, dim=18, starting_blocks=3, dist_to_border=3, max_steps=10**6)
    plain.reset([5])
    fast.reset([5])
    body = [(row, column) for row in range(18) for column in (range(18) if row % 2 == 0 else range(17, -1, -1))][:300]
    body.reverse()  # the head at the end of the zigzag, with room ahead
    game = plain.envs[0].unwrapped
    game.load_state(game.state() | {"body": np.array(body), "direction": 3, "food": [17, 17], "score": 297})
    state: dict[str, Any] = fast.state()
    ring = np.array([row * 18 + column for row, column in reversed(body)])
    state["ring"][0, :300] = ring
    state["head"][0], state["length"][0], state["direction"][0], state["food"][0] = 299, 300, 3, 17 * 18 + 17
    fast.load_state(state)
    actions = np.array([2])
    plain.send(0, actions)
    fast.send(0, actions)
    assert_same_tick(plain, fast, 0)
    assert plain.recv(0).obs[0, 1].astype(bool).sum() == 299


def test_saved_halfway_both_go_on_the_same() -> None:
    settings = settings_for(7, max_steps=40)
    plain, fast = both(6, groups=2, **settings)
    plain.reset([3] * 6)
    fast.reset([3] * 6)
    play(plain, fast, random_player(seed=2), ticks=77)
    fresh_plain, fresh_fast = both(6, groups=2, **settings)
    fresh_plain.load_state(plain.state())
    fresh_fast.load_state(fast.state())
    player = greedy_player(7)
    for _ in range(200):
        for group in range(2):
            actions = player(plain.recv(group).obs)
            for lanes in (plain, fast, fresh_plain, fresh_fast):
                lanes.send(group, actions)
            for other in (fast, fresh_plain, fresh_fast):
                assert_same_tick(plain, other, group)
