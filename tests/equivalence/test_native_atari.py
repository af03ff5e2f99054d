"""native_atari promises SAME_NUMBERS where no random draw is in play: ale-py's vector environment and the textbook
chain, one environment at a time, give the same ticks for the same actions, bit by bit. With no-op starts the draws come
from different generators, so there the set of possible starts must be the same."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("ale_py")
pytest.importorskip("cv2")

from fastdqn.env.atari import ATARI_GAMES, atari_kind
from fastdqn.env.atari_settings import AtariSettings
from fastdqn.env.atari_wrappers import make_textbook_atari
from fastdqn.env.kind import EnvKind
from fastdqn.env.serial import SerialLanes
from fastdqn.transition import Tick

LANES = 2


def kind_of(game: str, settings: dict[str, Any]) -> EnvKind:
    kind = atari_kind(game, settings)
    assert kind is not None
    return kind


def assert_same_tick(native: Tick, textbook: Tick, step: int) -> None:
    for name, ours, theirs in zip(Tick._fields, native, textbook, strict=True):
        assert ours.dtype == theirs.dtype, name
        np.testing.assert_array_equal(ours, theirs, err_msg=f"{name} at step {step}")


def play_both(kind: EnvKind, steps: int) -> dict[str, int]:
    """Plays the same random actions on both and compares every tick; counts what happened on the way."""
    assert kind.make_lanes is not None
    native = kind.make_lanes(LANES, 1)
    textbook = SerialLanes([kind.make_single] * LANES, kind.spec)
    native.reset([1, 2])
    textbook.reset([11, 12])  # without sticky actions and no-op starts the seed changes nothing
    rng = np.random.default_rng(0)
    counts = dict.fromkeys(("terminated", "truncated", "life_lost", "first", "reward"), 0)
    for step in range(steps):
        tick = native.recv(0)
        assert_same_tick(tick, textbook.recv(0), step)
        for name in counts:
            counts[name] += np.count_nonzero(getattr(tick, name))
        actions = rng.integers(0, kind.spec.num_actions, LANES)
        native.send(0, actions)
        textbook.send(0, actions)
    native.close()
    textbook.close()
    return counts


@pytest.mark.slow
def test_breakout_whole_games_with_lost_lives_and_dummy_ticks() -> None:
    counts = play_both(kind_of("breakout", {"noop_max": 0, "fire_reset": False}), steps=2000)
    assert counts["terminated"] >= 12
    assert counts["life_lost"] >= 4 * (counts["terminated"] - LANES)  # a game has 5 lives; the last one is its end
    assert counts["first"] >= counts["terminated"]
    assert counts["reward"] >= 20


@pytest.mark.slow
def test_pong_whole_games() -> None:
    counts = play_both(kind_of("pong", {"noop_max": 0, "fire_reset": False}), steps=2000)
    assert counts["terminated"] >= 2
    assert counts["life_lost"] == 0
    assert counts["reward"] >= 42


@pytest.mark.parametrize(
    ("game", "settings"),
    [
        ("breakout", {"fire_reset": True}),
        ("breakout", {"max_frames_per_game": 403}),  # cut in the middle of a skip
        ("pong", {"frame_skip": 3, "max_pool": False, "screen": 42}),
        pytest.param("pong", {"max_and_skip": False}, marks=pytest.mark.slow),
        pytest.param("qbert", {}, marks=pytest.mark.slow),  # shows 0 lives before its end
        pytest.param("seaquest", {"full_action_space": True}, marks=pytest.mark.slow),
        pytest.param("air_raid", {}, marks=pytest.mark.slow),  # a screen of 250 lines
        ("breakout", {"protocol": "machado", "repeat_action_probability": 0.0}),  # tells no lives
    ],
)
def test_same_ticks_under_other_settings(game: str, settings: dict[str, Any]) -> None:
    counts = play_both(kind_of(game, {"noop_max": 0} | settings), steps=400)
    if "max_frames_per_game" in settings:
        assert counts["truncated"] >= 6
    if settings.get("protocol") == "machado":
        assert counts["life_lost"] == 0
        assert counts["terminated"] >= 2


@pytest.mark.slow
@pytest.mark.parametrize("game", ATARI_GAMES)
def test_every_game_gives_the_same_ticks(game: str) -> None:
    play_both(kind_of(game, {"noop_max": 0}), steps=150)


def test_frame_stack_is_padded_with_zeros_like_the_native_one() -> None:
    kind = kind_of("breakout", {"noop_max": 0, "frame_stack": 4})
    assert kind.spec.obs_shape == (4, 84, 84)
    assert kind.stack == 1
    assert play_both(kind, steps=600)["first"] >= 4


@pytest.mark.parametrize(
    ("game", "fire_reset", "different_starts"),
    [pytest.param("freeway", False, 4, marks=pytest.mark.slow), ("breakout", True, 3)],
)
def test_no_op_starts_are_drawn_from_the_same_set(game: str, fire_reset: bool, different_starts: int) -> None:
    """Every start the textbook chain can make, and no other, comes up natively. The frame that presses FIRE counts as
    one of the frames drawn, so with FIRE a draw of 0 and a draw of 1 are the same start."""
    settings = {"noop_max": 3, "fire_reset": fire_reset}
    kind = kind_of(game, settings)
    assert kind.make_lanes is not None
    native = kind.make_lanes(16, 1)
    native.reset(list(range(16)))  # the draws follow from the seeds, so this cannot fail by chance
    native_starts = {image.tobytes() for image in native.recv(0).obs}

    env = make_textbook_atari(game, AtariSettings(**settings))
    textbook_starts = set()
    for frames in range(4):
        env.unwrapped.np_random = FixedDraw(frames, highest=3)
        textbook_starts.add(env.reset()[0].tobytes())
    assert len(textbook_starts) == different_starts
    assert native_starts == textbook_starts


class FixedDraw:
    """Stands in for a generator: the draw is known, and so is its range."""

    def __init__(self, value: int, highest: int) -> None:
        self.value, self.highest = value, highest

    def integers(self, low: int, high: int) -> int:
        assert (low, high) == (0, self.highest + 1)
        return self.value
