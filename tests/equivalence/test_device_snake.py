"""The switch device_snake: the boards of a device against the compiled lanes of the host, bit for bit."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdqn.env.device_snake import DeviceSnake
from fastdqn.env.snake_lanes import SnakeLanes
from fastdqn.env.snake_rules import read_settings
from fastdqn.errors import UserError

LANES = 16
boards = st.sampled_from(
    [
        {},
        {"dim": 6, "dist_to_border": 1},
        {"dim": 4, "max_steps": 30},
        {"dim": 3, "starting_blocks": 2},
        {"dim": 2, "starting_blocks": 1},
    ]
)


def pair(board, seeds, device="cpu"):
    lanes = SnakeLanes(len(seeds), **board)
    on_device = DeviceSnake(len(seeds), read_settings(board), device)
    lanes.reset(seeds)
    on_device.reset(seeds)
    on_device.step(torch.zeros(len(seeds), dtype=torch.int64, device=device))
    return lanes, on_device


def check_same(lanes, on_device):
    tick = lanes.recv(0)
    for name, tensor in on_device.answer._asdict().items():
        np.testing.assert_array_equal(tensor.cpu().numpy(), getattr(tick, name), err_msg=name)


def towards_food(tick, rng):
    """Mostly the way to the food, so that snakes grow; sometimes anything."""
    heads, foods = (tick.obs[:, plane].reshape(len(tick.obs), -1).argmax(1) for plane in (0, 2))
    dim = tick.obs.shape[-1]
    down, right = foods // dim - heads // dim, foods % dim - heads % dim
    wanted = np.where(down < 0, 0, np.where(down > 0, 2, np.where(right > 0, 1, 3)))
    return np.where(rng.random(len(wanted)) < 0.15, rng.integers(4, size=len(wanted)), wanted)


def play(lanes, on_device, steps, rng):
    lengths = 0
    for _ in range(steps):
        actions = towards_food(lanes.recv(0), rng)
        lanes.send(0, actions)
        on_device.step(torch.from_numpy(actions).to(on_device.age.device))
        check_same(lanes, on_device)
        lengths = max(lengths, int(on_device.length.max()))
    return lengths


@settings(max_examples=30, deadline=None)
@given(board=boards, seed=st.integers(0, 2**40))
def test_the_same_games(board, seed):
    lanes, on_device = pair(board, [seed + i for i in range(LANES)])
    check_same(lanes, on_device)
    play(lanes, on_device, 60, np.random.default_rng(seed))


def test_long_snakes_too():
    lanes, on_device = pair({}, list(range(LANES)))
    assert play(lanes, on_device, 600, np.random.default_rng(0)) > 12


def test_a_full_board_is_won():
    """2 x 2 cells with a snake of 2: a few meals fill it."""
    lanes, on_device = pair({"dim": 2, "starting_blocks": 2}, list(range(LANES)))
    rng, won = np.random.default_rng(1), 0
    for _ in range(100):
        actions = rng.integers(4, size=LANES)
        lanes.send(0, actions)
        on_device.step(torch.from_numpy(actions))
        check_same(lanes, on_device)
        won += int((on_device.answer.terminated & (on_device.answer.reward > 0)).sum())
    assert won > 10


def test_large_seeds_are_the_same_seeds():
    lanes, on_device = pair({}, [2**64 - 1, 2**63, -5, 2**70 + 3])
    play(lanes, on_device, 40, np.random.default_rng(2))


def test_state_goes_on_exactly():
    _, on_device = pair({}, list(range(LANES)))
    rng = np.random.default_rng(3)
    actions = [torch.from_numpy(rng.integers(4, size=LANES)) for _ in range(80)]
    for action in actions[:40]:
        on_device.step(action)
    again = DeviceSnake(LANES, read_settings({}), "cpu")
    again.load_state(on_device.state())
    for one, other in zip(again.answer, on_device.answer, strict=True):
        assert torch.equal(one, other)
    for action in actions[40:]:
        on_device.step(action)
        again.step(action)
        for one, other in zip(again.answer, on_device.answer, strict=True):
            assert torch.equal(one, other)


@pytest.mark.gpu
def test_the_same_games_on_a_gpu():
    lanes, on_device = pair({}, list(range(256)), "cuda")
    assert play(lanes, on_device, 400, np.random.default_rng(0)) > 12


@pytest.mark.parametrize(("lanes", "board"), [(8, {}), (LANES, {"dim": 6})])
def test_games_of_other_boards_are_refused(lanes, board):
    _, on_device = pair({}, list(range(LANES)))
    with pytest.raises(UserError, match="the saved games are 16 lanes with settings"):
        DeviceSnake(lanes, read_settings(board), "cpu").load_state(on_device.state())
