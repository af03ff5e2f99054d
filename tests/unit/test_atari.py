"""Atari without the textbook comparison (tests/equivalence/test_native_atari.py): names, settings, lanes, wrappers."""

import os
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("ale_py")

import ale_py
from ale_py import roms
from ale_py.env import AtariEnv

from fastdqn.device.cores import usable_cores
from fastdqn.env import atari
from fastdqn.env.atari import ATARI_GAMES, AtariLanes, AtariSettings, atari_game, atari_kind, atari_spec, lost_lives
from fastdqn.env.atari_games import MULTIPLAYER_GAMES, protocol_of
from fastdqn.env.atari_settings import read_settings
from fastdqn.env.atari_wrappers import (
    ClipReward,
    EpisodicLife,
    FireReset,
    FrameLimit,
    FrameStack,
    LifeLossInfo,
    MaxAndSkip,
    NoopReset,
    WarpFrame,
    is_life_lost,
    make_textbook_atari,
)
from fastdqn.env.gymnasium import ToChannelsFirst
from fastdqn.env.kind import EnvKind
from fastdqn.env.serial import SerialLanes
from fastdqn.errors import UserError
from fastdqn.transition import Tick


def kind_of(env_id: str, **settings: Any) -> EnvKind:
    kind = atari_kind(env_id, settings)
    assert kind is not None
    return kind


def lanes_of(env_id: str, num_lanes: int, num_groups: int = 1, **settings: Any) -> AtariLanes:
    kind = kind_of(env_id, threads=1, **settings)
    return AtariLanes(str(kind.spec.details["game"]), AtariSettings(**kind.settings), kind.spec, num_lanes, num_groups)


def play(lanes: Any, steps: int, seeds: list[int], num_actions: int, action_seed: int = 0) -> list[Tick]:
    """Random play of group 0; the first tick is the reset's."""
    rng = np.random.default_rng(action_seed)
    lanes.reset(seeds)
    ticks = [copied(lanes.recv(0))]
    for _ in range(steps):
        lanes.send(0, rng.integers(0, num_actions, lanes.num_lanes))
        ticks.append(copied(lanes.recv(0)))
    return ticks


def copied(tick: Tick) -> Tick:
    return Tick(*(array.copy() for array in tick))


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("env_id", "game", "protocol"),
    [
        ("pong", "pong", "classic"),
        ("Pong", "pong", "classic"),
        ("PongNoFrameskip-v4", "pong", "classic"),
        ("PongDeterministic-v4", "pong", "classic"),
        ("Pong-v4", "pong", "classic"),
        ("Pong-v0", "pong", "machado"),
        ("PongNoFrameskip-v0", "pong", "machado"),
        ("ALE/Pong-v5", "pong", "machado"),
        ("ale/pong-v5", "pong", "machado"),
        ("ALE/Pong", "pong", "machado"),
        ("ms_pacman", "ms_pacman", "classic"),
        ("MsPacman", "ms_pacman", "classic"),
        ("MsPacmanNoFrameskip-v4", "ms_pacman", "classic"),
        ("ALE/TicTacToe3D-v5", "tic_tac_toe_3d", "machado"),
        ("Pitfall2", "pitfall2", "classic"),
        ("blackjack", "blackjack", "classic"),
    ],
)
def test_names_that_are_understood(env_id: str, game: str, protocol: str) -> None:
    assert atari_game(env_id) == game
    assert protocol_of(env_id) == protocol


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Blackjack-v1", "snake", "pongg", "", "Pong-v1", "fastdqn/Pong-v5"])
def test_names_that_are_not_atari(env_id: str) -> None:
    assert atari_game(env_id) is None
    assert atari_kind(env_id, {}) is None


@pytest.mark.parametrize(
    ("env_id", "sentence"),
    [
        ("ALE/Pongg-v5", "Did you mean pong"),
        ("BreakotNoFrameskip-v4", "Did you mean breakout"),
        ("Pong-ram-v4", "image"),
        ("combat", "two or more players"),
        ("ALE/MazeCraze-v5", "two or more players"),
    ],
)
def test_atari_names_that_cannot_be_played_are_refused_with_a_sentence(env_id: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        atari_kind(env_id, {})


def test_the_table_of_games_is_the_wheels() -> None:
    assert sorted(ATARI_GAMES + MULTIPLAYER_GAMES) == sorted(roms.get_all_rom_ids())


def test_every_id_that_ale_py_registers_is_understood() -> None:
    gymnasium.register_envs(ale_py)
    specs = [spec for spec in gymnasium.registry.values() if str(spec.entry_point).startswith("ale_py")]
    assert len(specs) > 300
    for spec in specs:
        assert atari_game(spec.id) == spec.kwargs["game"], spec.id


def test_without_ale_py_names_are_still_known_and_playing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    atari._read_cartridge.cache_clear()
    assert atari_game("ALE/Pong-v5") == "pong"
    with pytest.raises(UserError, match=r"pong needs the package ale-py.*pip install 'fastdqn\[atari\]'"):
        atari_kind("PongNoFrameskip-v4", {})
    with pytest.raises(UserError, match="Did you mean"):
        atari_kind("ALE/Pongg-v5", {})


def test_without_opencv_the_textbook_chain_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(UserError, match=r"opencv-python-headless.*'fastdqn\[image\]'"):
        make_textbook_atari("pong", AtariSettings())


# ---------------------------------------------------------------- settings


def test_protocols_fill_in_what_is_not_given() -> None:
    classic, machado = read_settings("pong", {}), read_settings("ALE/Pong-v5", {})
    assert (classic.repeat_action_probability, classic.noop_max, classic.fire_reset) == (0.0, 30, True)
    assert (machado.repeat_action_probability, machado.noop_max, machado.fire_reset) == (0.25, 0, False)
    assert classic.tells_lives
    assert not machado.tells_lives
    assert read_settings("pong", {"protocol": "machado"}) == machado
    assert read_settings("ALE/Pong-v5", {"protocol": "classic"}) == classic
    assert read_settings("ALE/Pong-v5", {"noop_max": 7}).departures == {"noop_max": 7}
    assert classic.departures == {}
    assert AtariSettings(**classic.model_dump()) == classic


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"noop_mx": 3}, "Unknown Atari setting 'noop_mx'. Did you mean noop_max"),
        ({"noop_max": -1}, "noop_max=-1: Input should be greater than or equal to 0"),
        ({"frame_skip": 0}, "frame_skip=0"),
        ({"repeat_action_probability": 1.5}, "repeat_action_probability=1.5"),
        ({"repeat_action_probability": float("nan")}, "repeat_action_probability=nan"),
        ({"protocol": "nature"}, "'classic' or 'machado'"),
        ({"screen": "wide"}, "screen='wide'"),
        ({"frame_stack": 4, "to_channels_first": False}, "frame_stack"),
        ({"protocol": "machado", "episodic_life": True}, "tells nothing of lives"),
        (
            {"resize": "lanczos"},
            "resize='lanczos': Input should be 'cv2_area', 'cv2_linear', 'cv2_nearest', 'pillow' or 'torch'",
        ),
        ({"resize": "pillow", "warp": False}, "resize=pillow would do nothing"),
    ],
)
def test_bad_settings_are_refused_with_a_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        atari_kind("pong", settings)
    assert sentence in str(caught.value)


def test_the_spec_and_the_kind() -> None:
    kind = kind_of("pong")
    assert (kind.preset, kind.stack, kind.lanes_switch) == ("atari", 4, "native_atari")
    spec = kind.spec
    assert (spec.obs_shape, spec.obs_dtype, spec.num_actions, spec.frame_skip) == ((1, 84, 84), np.uint8, 6, 4)
    assert (spec.clip_rewards, spec.eval_epsilon, spec.max_eval_steps, spec.protocol) == (True, 0.01, 27_000, "classic")
    assert spec.details["noop_max"] == 30
    assert kind.settings["protocol"] == "classic"
    assert kind_of("ALE/Pong-v5").spec.protocol == "machado"
    assert kind_of("pong", full_action_space=True).spec.num_actions == 18
    assert kind_of("pong", clip_reward=False).spec.clip_rewards is False


def test_settings_that_only_the_textbook_chain_can_follow() -> None:
    for settings in ({"episodic_life": True}, {"warp": False}, {"to_channels_first": False}, {"resize": "pillow"}):
        kind = kind_of("pong", **settings)
        assert kind.make_lanes is None
        name, value = next(iter(settings.items()))
        with pytest.raises(UserError, match=f"cannot follow {name}={value}"):
            AtariLanes("pong", AtariSettings(**kind.settings), kind.spec, 2)


@pytest.mark.parametrize(
    ("settings", "given", "stored"),
    [
        ({}, (1, 84, 84), (1, 84, 84)),
        ({"warp": False}, (1, 220, 160), (1, 220, 160)),
        ({"to_channels_first": False}, (84, 84, 1), (1, 84, 84)),
        ({"warp": False, "to_channels_first": False}, (220, 160), (1, 220, 160)),
        ({"frame_stack": 3}, (3, 84, 84), (3, 84, 84)),
    ],
)
def test_what_the_textbook_chain_gives_and_how_it_is_stored(
    settings: dict[str, Any], given: tuple[int, ...], stored: tuple[int, ...]
) -> None:
    kind = kind_of("pooyan", **settings)  # a screen of 220 lines
    env = kind.make_single()
    obs, _ = env.reset(seed=0)
    assert obs.shape == env.step(0)[0].shape == env.observation_space.shape == given
    assert kind.spec.obs_shape == stored
    assert env.action_space.n == kind.spec.num_actions
    lanes = SerialLanes([kind.make_single], kind.spec)
    lanes.reset([0])
    np.testing.assert_array_equal(lanes.recv(0).obs.ravel(), obs.ravel())  # the same bytes in the same order


def test_usable_cores_obeys_the_cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert usable_cores(tmp_path) == 8
    for text, cores in (("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1), ("1600000 100000", 8)):
        (tmp_path / "cpu.max").write_text(text)
        assert usable_cores(tmp_path) == cores
    (tmp_path / "cpu.max").unlink()
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000")
    for text, cores in (("-1\n", 8), ("300000\n", 3)):
        (tmp_path / "cpu/cpu.cfs_quota_us").write_text(text)
        assert usable_cores(tmp_path) == cores


# ---------------------------------------------------------------- native lanes


@pytest.mark.parametrize("game", ["space_invaders", "freeway", "backgammon", "air_raid"])
def test_games_play_in_native_lanes(game: str) -> None:
    lanes = lanes_of(game, 2)
    ticks = play(lanes, 3, [0, 1], lanes.spec.num_actions)
    assert ticks[0].first.all()
    assert not ticks[1].first.any()
    assert ticks[-1].obs.shape == (2, 1, 84, 84)
    assert ticks[-1].obs.dtype == np.uint8
    assert ticks[-1].reward.dtype == np.float32


def test_a_breakout_game_loses_lives_one_by_one_and_ends_once() -> None:
    lanes = lanes_of("breakout", 1)
    learning_ends, games = 0, []
    for tick in play(lanes, 1500, [3], 4):
        assert not (tick.life_lost & tick.terminated).any()
        assert not (tick.life_lost & tick.first).any()
        learning_ends += int(tick.life_lost[0]) + int(tick.terminated[0])
        if tick.terminated[0]:
            games.append(learning_ends)
            learning_ends = 0
    assert len(games) >= 4
    assert games == [5] * len(games)  # lives 5 -> 4 -> 3 -> 2 -> 1 go on, 1 -> 0 is the end


def test_what_counts_as_a_lost_life() -> None:
    cases = [  # lives before, lives, terminated, first, lost
        (3, 3, False, False, False),
        (3, 2, False, False, True),
        (3, 2, True, False, False),  # games also end with lives left
        (1, 0, False, False, False),  # the end follows some frames later
        (2, 3, False, False, False),  # a bonus life
        (4, 3, False, True, False),  # a cut game had a bonus life more than the new one
    ]
    before, lives, terminated, first, lost = (np.array(column) for column in zip(*cases, strict=True))
    np.testing.assert_array_equal(lost_lives(before, lives, terminated, first), lost)
    for case in cases:
        if not case[3]:
            assert is_life_lost(*case[:3]) == case[4]


def test_the_dummy_tick_is_a_reset_and_takes_no_action() -> None:
    lanes = lanes_of("breakout", 1, noop_max=0, fire_reset=False)
    ticks = play(lanes, 900, [0], 4)
    start = ticks[0].obs
    ends = [index for index, tick in enumerate(ticks) if tick.terminated[0]]
    assert len(ends) >= 2
    for end in ends:
        after = ticks[end + 1]
        assert after.first[0]
        assert after.reward[0] == 0
        assert not after.terminated[0]
        np.testing.assert_array_equal(after.obs, start)
    assert sum(int(tick.first[0]) for tick in ticks) == len(ends) + 1 - int(ticks[-1].terminated[0])


def test_machado_tells_no_lives() -> None:
    ticks = play(lanes_of("ALE/Breakout-v5", 2), 400, [0, 1], 4)
    assert not any(tick.life_lost.any() for tick in ticks)
    assert any(tick.terminated.any() for tick in ticks)


def test_the_raw_score_is_kept() -> None:
    """One game of Qbert (25 points a cube), judged by the plain emulator."""
    lanes = lanes_of("qbert", 1, noop_max=0, fire_reset=False)
    judge = AtariEnv("qbert", frameskip=1, repeat_action_probability=0.0)
    judge.reset()
    rng = np.random.default_rng(0)
    lanes.reset([0])
    lanes.recv(0)
    score = judged_score = 0.0
    over = False
    while not over:
        actions = rng.integers(0, 6, 1)
        lanes.send(0, actions)
        tick = lanes.recv(0)
        score += float(tick.reward[0])
        for _ in range(4):
            _, reward, over, _, _ = judge.step(int(actions[0]))
            judged_score += float(reward)
            if over:
                break
        assert bool(tick.terminated[0]) == over
    assert score == judged_score >= 50


def test_a_game_is_truncated_at_the_frame_limit() -> None:
    settings = {"max_frames_per_game": 80, "noop_max": 0}
    kind = kind_of("pong", **settings)
    for lanes in (lanes_of("pong", 2, **settings), SerialLanes([kind.make_single] * 2, kind.spec)):
        ticks = play(lanes, 43, [0, 1], 6)
        cut = [index for index, tick in enumerate(ticks) if tick.truncated.all()]
        assert cut == [20, 41]  # 80 frames are 20 steps; tick 21 is the dummy tick
        assert [index for index, tick in enumerate(ticks) if tick.first.all()] == [0, 21, 42]
        assert not any(tick.terminated.any() for tick in ticks)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("action", [-1, 6, 2**40])
def test_an_illegal_action_is_refused_and_nothing_hangs(action: int) -> None:
    lanes = lanes_of("pong", 2)
    lanes.reset([0, 1])
    lanes.recv(0)
    with pytest.raises(ValueError, match="out of range"):
        lanes.send(0, np.array([0, action]))
    with pytest.raises(ValueError, match="expected 2 actions"):
        lanes.send(0, np.array([0]))
    lanes.send(0, np.array([0, 5]))
    assert not lanes.recv(0).first.any()


@pytest.mark.timeout(60)
def test_calls_that_would_wait_for_ever_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = lanes_of("breakout", 2)
    right = np.full(2, 2)
    with pytest.raises(RuntimeError, match="nothing was sent"):
        lanes.recv(0)
    lanes.reset([0, 1])
    with pytest.raises(RuntimeError, match="not been received"):
        lanes.send(0, right)
    start = lanes.recv(0)
    with pytest.raises(RuntimeError, match="nothing was sent"):
        lanes.recv(0)
    lanes.send(0, right)
    second = lanes.recv(0)
    lanes.send(0, right)
    with pytest.raises(RuntimeError, match="not been received"):
        lanes.send(0, right)
    lanes.reset([0, 1])  # with an answer still under way, which must not be taken for the new game's
    assert (second.obs != start.obs).any()
    np.testing.assert_array_equal(lanes.recv(0).obs, start.obs)
    lanes.send(0, right)
    np.testing.assert_array_equal(lanes.recv(0).obs, second.obs)
    with pytest.raises(ValueError, match="seeds"):
        lanes.reset([0, -1])
    with pytest.raises(ValueError, match="seeds"):
        lanes.reset([0])
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(RuntimeError, match="fork"):
        lanes.send(0, right)


def test_groups_are_independent_and_a_lanes_game_follows_from_its_seed() -> None:
    """Sticky actions make every game random; the same lane in other groups must still play the same game."""
    seeds = [5, 0, 7]
    rng = np.random.default_rng(1)
    actions = rng.integers(0, 6, (60, 3))
    one, two = lanes_of("ALE/Pong-v5", 3, 1), lanes_of("ALE/Pong-v5", 3, 2)
    assert [lanes.stop - lanes.start for lanes in two.groups] == [1, 2]
    one.reset(seeds)
    two.reset(seeds)
    first, second = two.groups
    one.recv(0)
    assert two.recv(1).first.all()
    assert two.recv(0).first.all()
    for step in range(60):
        one.send(0, actions[step])
        two.send(0, actions[step, first])
        two.send(1, actions[step, second])
        whole = one.recv(0)
        parts = (two.recv(0), two.recv(1)) if step % 2 else (two.recv(1), two.recv(0))[::-1]
        for name in Tick._fields:
            joined = np.concatenate([getattr(part, name) for part in parts])
            np.testing.assert_array_equal(getattr(whole, name), joined, err_msg=name)


def test_same_seeds_same_games_and_other_seeds_other_games() -> None:
    lanes = lanes_of("ALE/Breakout-v5", 2)
    frames = [np.stack([tick.obs for tick in play(lanes, 80, seeds, 4)]) for seeds in ([0, 1], [0, 1], [2, 3])]
    np.testing.assert_array_equal(frames[0], frames[1])
    assert (frames[0] != frames[2]).any()
    assert (frames[0][:, 0] != frames[0][:, 1]).any()


def test_answers_are_not_overwritten_and_the_state_is_not_exact() -> None:
    lanes = lanes_of("breakout", 2)
    lanes.reset([0, 1])
    held = [lanes.recv(0)]
    kept = [copied(held[0])]
    for _ in range(20):
        lanes.send(0, np.array([2, 3]))
        held.append(lanes.recv(0))
        kept.append(copied(held[-1]))
    for one, other in zip(held, kept, strict=True):
        np.testing.assert_array_equal(one.obs, other.obs)
    assert lanes.state() == {"exact": False}
    lanes.load_state(lanes.state())
    lanes.close()


def test_lanes_that_cannot_be_split_are_refused() -> None:
    spec = atari_spec("pong", "pong", AtariSettings())
    for num_lanes, num_groups in ((0, 1), (2, 3), (2, 0)):
        with pytest.raises(ValueError, match="cannot be split"):
            AtariLanes("pong", AtariSettings(), spec, num_lanes, num_groups)


# ---------------------------------------------------------------- wrappers, each alone


class FakeGame(gymnasium.Env[Any, Any]):
    """Frame t is a 6x4 image full of t; the script says how many lives are left and what is scored at each frame."""

    observation_space = gymnasium.spaces.Box(0, 255, (6, 4), np.uint8)

    def __init__(
        self,
        lives: list[int] | None = None,
        rewards: list[float] | None = None,
        length: int = 50,
        meanings: tuple[str, ...] = ("NOOP", "FIRE", "RIGHT"),
    ) -> None:
        self.lives = lives or [3] * (length + 1)
        self.rewards = rewards or [0.0] * (length + 1)
        self.length = length
        self.meanings = meanings
        self.action_space = gymnasium.spaces.Discrete(len(meanings))
        self.frame = 0
        self.resets = 0
        self.pressed: list[str] = []  # since the last reset

    def get_action_meanings(self) -> list[str]:
        return list(self.meanings)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.frame = 0
        self.resets += 1
        self.pressed = []
        return self._image(), self._info()

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.frame += 1
        self.pressed.append(self.meanings[action])
        return self._image(), self.rewards[self.frame], self.frame == self.length, False, self._info()

    def _image(self) -> Any:
        return np.full((6, 4), self.frame, np.uint8)

    def _info(self) -> dict[str, Any]:
        return {"lives": self.lives[self.frame], "episode_frame_number": self.frame}


def test_noop_reset_plays_up_to_noop_max_frames() -> None:
    game = FakeGame()
    env = NoopReset(game, 5)
    ages = set()
    for seed in range(60):
        obs, info = env.reset(seed=seed)
        assert set(game.pressed) <= {"NOOP"}
        assert obs[0, 0] == info["episode_frame_number"] == len(game.pressed)
        ages.add(len(game.pressed))
    assert ages == set(range(6))


def test_noop_reset_survives_a_game_that_ends_meanwhile_and_one_without_noop() -> None:
    short = FakeGame(length=2)
    for seed in range(20):
        _, info = NoopReset(short, 5).reset(seed=seed)
        assert info["episode_frame_number"] < 2
    no_noop = FakeGame(meanings=("FIRE", "RIGHT"))
    NoopReset(no_noop, 5).reset(seed=0)
    assert no_noop.pressed == []


def test_fire_reset_presses_fire_once_wherever_it_is() -> None:
    for meanings in (("NOOP", "FIRE", "RIGHT"), ("FIRE", "RIGHT")):
        game = FakeGame(meanings=meanings)
        obs, _ = FireReset(game).reset()
        assert game.pressed == ["FIRE"]
        assert obs[0, 0] == 1
    without = FakeGame(meanings=("NOOP", "RIGHT"))
    obs, _ = FireReset(without).reset()
    assert without.pressed == []
    assert obs[0, 0] == 0
    ends_at_once = FakeGame(length=1)
    obs, _ = FireReset(ends_at_once).reset()
    assert (obs[0, 0], ends_at_once.resets) == (0, 2)


def test_frame_limit_cuts_and_a_real_end_is_no_cut() -> None:
    env = FrameLimit(FakeGame(length=5), 3)
    env.reset()
    assert [env.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]
    env.reset()
    assert env.step(0)[3] is False
    env = FrameLimit(FakeGame(length=3), 3)
    env.reset()
    assert [env.step(0)[2:4] for _ in range(3)][-1] == (True, False)


def test_max_and_skip_joins_the_last_two_frames_and_sums_rewards() -> None:
    game = FakeGame(rewards=[float(t) for t in range(60)])
    game._image = lambda: np.full((6, 4), 100 - game.frame, np.uint8)  # type: ignore[method-assign]  # it gets darker
    env = MaxAndSkip(game, 4)
    env.reset()
    obs, reward, *_ = env.step(2)
    assert game.pressed == ["RIGHT"] * 4
    assert reward == 1 + 2 + 3 + 4
    assert obs[0, 0] == 97  # the brighter of frames 3 and 4
    env = MaxAndSkip(game, 4, max_pool=False)
    env.reset()
    assert env.step(2)[0][0, 0] == 96  # the last frame


def test_max_and_skip_stops_at_the_end_of_a_game_and_does_not_reuse_its_answer() -> None:
    game = FakeGame(length=6, rewards=[1.0] * 7)
    env = MaxAndSkip(game, 4)
    env.reset()
    obs, *_ = env.step(0)
    last, reward, terminated, _, _ = env.step(0)
    assert (len(game.pressed), reward, terminated) == (6, 2.0, True)
    assert obs[0, 0] == last[0, 0] == 4  # frames 5 and 6 came before the last two of this skip
    assert not np.shares_memory(obs, last)
    env.reset()
    game.length = 1
    assert env.step(0)[0][0, 0] == 0  # nothing of the game before
    env = MaxAndSkip(FakeGame(length=6), 1)
    env.reset()
    assert env.step(0)[0][0, 0] == 1


LIVES = [3, 3, 2, 2, 2, 1, 1, 0, 0]  # the game ends at frame 8, after a frame with 0 lives


def test_life_loss_info_tells_and_goes_on() -> None:
    env = LifeLossInfo(FakeGame(lives=LIVES, length=8))
    env.reset()
    steps = [env.step(0) for _ in range(8)]
    assert [step[4]["life_lost"] for step in steps] == [False, True, False, False, True, False, False, False]
    assert [step[2] for step in steps] == [False] * 7 + [True]


def test_episodic_life_ends_at_a_life_and_goes_on_with_a_no_op() -> None:
    game = FakeGame(lives=LIVES, length=8)
    env = EpisodicLife(game)
    env.reset()
    assert env.step(2)[2] is False
    _, _, terminated, _, info = env.step(2)
    assert (terminated, info["life_lost"], game.resets) == (True, True, 1)
    obs, _ = env.reset()
    assert (obs[0, 0], game.resets, game.pressed) == (3, 1, ["RIGHT", "RIGHT", "NOOP"])
    env.step(2)
    assert env.step(2)[2] is True  # the second life
    env.reset()
    assert env.step(2)[2] is False  # 0 lives, but the game is not over
    _, _, terminated, _, info = env.step(2)
    assert (terminated, info["life_lost"]) == (True, False)
    obs, _ = env.reset()
    assert (obs[0, 0], game.resets) == (0, 2)


def test_episodic_life_resets_when_asked_with_a_seed_or_when_the_no_op_ends_the_game() -> None:
    game = FakeGame(lives=[2, 1, 1], length=2)
    env = EpisodicLife(game)
    env.reset()
    env.step(2)
    obs, info = env.reset()  # the no-op is frame 2, the end of the game
    assert (obs[0, 0], info["lives"], game.resets) == (0, 2, 2)
    longer = FakeGame(lives=[2, 1, 1, 1, 1], length=4)
    env = EpisodicLife(longer)
    env.reset()
    env.step(2)
    obs, _ = env.reset(seed=1)
    assert (obs[0, 0], longer.resets) == (0, 2)


def test_warp_frame_averages_areas() -> None:
    pytest.importorskip("cv2")
    game = FakeGame()
    game._image = lambda: np.repeat(np.repeat([[0, 200], [100, 40]], 3, 0), 2, 1).astype(np.uint8)  # type: ignore[method-assign]
    env = WarpFrame(game, 2)
    for image in (env.reset()[0], env.step(0)[0]):
        np.testing.assert_array_equal(image, [[[0], [200]], [[100], [40]]])
    assert env.observation_space.shape == (2, 2, 1)


def test_to_channels_first() -> None:
    env = ToChannelsFirst(FakeGame())
    assert env.reset()[0].shape == env.step(0)[0].shape == env.observation_space.shape == (1, 6, 4)
    image = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
    game = FakeGame()
    game._image = lambda: image  # type: ignore[method-assign]
    game.observation_space = gymnasium.spaces.Box(0, 255, (4, 2, 3), np.uint8)
    obs, _ = ToChannelsFirst(game).reset()
    np.testing.assert_array_equal(obs, image.transpose(2, 0, 1))


def test_clip_reward_keeps_the_raw_one() -> None:
    env = ClipReward(FakeGame(rewards=[0, 0.0, 7.0, -3.0, 0.5]))
    env.reset()
    steps = [env.step(0) for _ in range(4)]
    assert [step[1] for step in steps] == [0.0, 1.0, -1.0, 0.5]
    assert [step[4]["raw_reward"] for step in steps] == [0.0, 7.0, -3.0, 0.5]


def test_frame_stack_is_oldest_first_and_padded_with_zeros() -> None:
    env = FrameStack(ToChannelsFirst(FakeGame()), 3)
    env.reset()
    stacks = [env.step(0)[0] for _ in range(4)]
    assert [stack[:, 0, 0].tolist() for stack in stacks] == [[0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert env.reset()[0].sum() == 0
    assert env.observation_space.shape == stacks[0].shape == (3, 6, 4)


# ---------------------------------------------------------------- the whole textbook chain


def layers_of(env: Any) -> list[str]:
    names = [type(env).__name__]
    while env is not env.unwrapped:
        env = env.env
        names.append(type(env).__name__)
    return names[::-1]


def test_the_chain_holds_what_the_settings_say() -> None:
    pytest.importorskip("cv2")
    full = "AtariEnv FireReset NoopReset FrameLimit MaxAndSkip LifeLossInfo WarpFrame ToChannelsFirst ClipReward"
    assert layers_of(make_textbook_atari("pong", AtariSettings())) == full.split()
    lives = "AtariEnv NoopReset FrameLimit MaxAndSkip EpisodicLife FireReset WarpFrame ToChannelsFirst FrameStack"
    baselines = AtariSettings(episodic_life=True, clip_reward=False, frame_stack=4)
    assert layers_of(make_textbook_atari("pong", baselines)) == lives.split()
    off = dict.fromkeys(("fire_reset", "max_and_skip", "warp", "to_channels_first", "clip_reward"), False)
    bare = make_textbook_atari("pong", AtariSettings(protocol="machado", **off))
    assert layers_of(bare) == ["AtariEnv", "FrameLimit"]


def test_a_film_shows_the_colour_screen() -> None:
    pytest.importorskip("cv2")
    env = kind_of("pong").make_single(render_mode="rgb_array")
    env.reset(seed=0)
    env.step(2)
    image = env.render()
    assert isinstance(image, np.ndarray)
    assert image.shape == (210, 160, 3)
    assert (image[..., 0] != image[..., 2]).any()


def test_textbook_scores_are_raw_though_rewards_are_clipped() -> None:
    pytest.importorskip("cv2")
    kind = kind_of("assault", noop_max=0)  # 21 points a hit
    env = kind.make_single()
    env.reset(seed=0)
    rng = np.random.default_rng(0)  # the actions of play()
    clipped = raw = 0.0
    for tick in play(SerialLanes([kind.make_single], kind.spec), 150, [0], 7)[1:]:
        _, reward, terminated, _, info = env.step(int(rng.integers(0, 7, 1)[0]))
        assert not terminated
        assert tick.reward[0] == info["raw_reward"]
        clipped += float(reward)
        raw += info["raw_reward"]
    assert raw == 21 * clipped > 0


def test_episodic_life_in_serial_lanes_ends_learning_but_not_the_game() -> None:
    pytest.importorskip("cv2")
    kind = kind_of("breakout", episodic_life=True)
    ticks = play(SerialLanes([kind.make_single], kind.spec), 600, [0], 4)
    learning_ends, games = 0, []
    for before, tick in pairwise(ticks):
        assert bool(tick.first[0]) == bool(before.life_lost[0] or before.terminated[0])
        learning_ends += int(tick.life_lost[0]) + int(tick.terminated[0])
        if tick.terminated[0]:
            games.append(learning_ends)
            learning_ends = 0
    assert len(games) >= 1
    assert games == [5] * len(games)
