"""Atari by ale-py's own vector environment: many emulators in C++ threads, one call for all lanes of a group.

Traps of ale-py that this file stands in front of: an out-of-range action, a second recv and a fork each make recv
wait for ever; reward_clipping (on by default) loses the score; episodic_life restarts the whole game at a lost life.
"""

import os
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode

from fastdqn.device.cores import usable_cores
from fastdqn.env.atari_games import ATARI_GAMES, atari_game, load_ale, looks_like_atari, playable_game
from fastdqn.env.atari_settings import AtariSettings, read_settings
from fastdqn.env.atari_wrappers import make_textbook_atari
from fastdqn.env.base import State, check_actions, split_lanes
from fastdqn.env.kind import EnvKind
from fastdqn.errors import UserError
from fastdqn.transition import EnvSpec, Tick

__all__ = ["ATARI_GAMES", "AtariLanes", "AtariSettings", "atari_game", "atari_kind"]

MAX_SEED = 2**31 - 1  # ale-py takes a negative seed as 'draw one yourself'


def atari_kind(env_id: str, settings: dict[str, Any]) -> EnvKind | None:
    """An Atari id, resolved; None when the id is not Atari."""
    if not looks_like_atari(env_id):
        return None
    game = playable_game(env_id)
    resolved = read_settings(env_id, settings)
    spec = atari_spec(env_id, game, resolved)

    def make_lanes(num_lanes: int, num_groups: int) -> AtariLanes:
        return AtariLanes(game, resolved, spec, num_lanes, num_groups)

    return EnvKind(
        spec=spec,
        preset="atari",
        stack=4 if resolved.frame_stack == 1 else 1,  # a stacked observation is a state already
        make_single=partial(make_textbook_atari, game, resolved),
        make_lanes=None if resolved.only_textbook else make_lanes,
        lanes_switch="native_atari",
        settings=resolved.model_dump(),
    )


def atari_spec(env_id: str, game: str, settings: AtariSettings) -> EnvSpec:
    cartridge = _read_cartridge(game)
    height, width = (settings.screen, settings.screen) if settings.warp else cartridge.screen
    rules = ("noop_max", "fire_reset", "repeat_action_probability", "max_pool", "full_action_space")
    return EnvSpec(
        env_id=env_id,
        # Without to_channels_first a single environment gives (height, width, 1). With one grey channel both orders are
        # the same bytes, so that image is stored under this shape too, by a view and not by a copy
        obs_shape=(settings.frame_stack, height, width),
        obs_dtype=np.dtype(np.uint8),
        num_actions=cartridge.all_actions if settings.full_action_space else cartridge.own_actions,
        frame_skip=settings.frames_per_step,
        clip_rewards=settings.clip_reward,
        protocol=settings.protocol,
        eval_epsilon=0.01,
        max_eval_steps=27_000,
        details={
            "game": game,
            **{name: getattr(settings, name) for name in (*rules, "max_frames_per_game")},
            "departures_from_protocol": settings.departures,
        },
    )


class AtariLanes:
    """The fast lanes: each group is an AtariVectorEnv with its own threads, so groups run independently.

    Build it in the process that uses it: it can be neither pickled nor forked. A lane's game depends on its own seed
    only, not on the number of lanes, groups or threads.
    """

    def __init__(self, game: str, settings: AtariSettings, spec: EnvSpec, num_lanes: int, num_groups: int = 1) -> None:
        if settings.only_textbook:
            raise UserError(f"The native Atari lanes cannot follow {', '.join(settings.only_textbook)}.")
        if not 1 <= num_groups <= num_lanes:
            raise ValueError(f"{num_lanes} lanes cannot be split into {num_groups} groups")
        self.spec = spec
        self.num_lanes = num_lanes
        self.groups = split_lanes(num_lanes, num_groups)
        self._groups = [_Group(game, settings, lanes.stop - lanes.start) for lanes in self.groups]
        self._process = os.getpid()

    def reset(self, seeds: list[int]) -> None:
        self._check_process()
        if len(seeds) != self.num_lanes or not all(0 <= seed <= MAX_SEED for seed in seeds):
            raise ValueError(f"expected {self.num_lanes} seeds from 0 to {MAX_SEED}, got {seeds}")
        for lanes, group in zip(self.groups, self._groups, strict=True):
            group.reset(np.array(seeds[lanes], np.int64))

    def send(self, group: int, actions: np.ndarray) -> None:
        self._check_process()
        check_actions(actions, self.spec.num_actions)
        self._groups[group].send(actions)

    def recv(self, group: int) -> Tick:
        self._check_process()
        return self._groups[group].recv()

    def close(self) -> None:
        self._groups.clear()  # the emulators and their threads end with their last reference

    def state(self) -> State:
        return {"exact": False}  # ale-py's vector environment cannot be saved

    def load_state(self, state: State) -> None:
        pass

    def _check_process(self) -> None:
        if os.getpid() != self._process:  # the emulators' threads stayed behind in the parent
            raise RuntimeError("Atari lanes do not survive a fork: build them in the process that uses them")


class _Group:
    """One AtariVectorEnv and what must be remembered of its last tick."""

    def __init__(self, game: str, settings: AtariSettings, num_lanes: int) -> None:
        self.num_lanes = num_lanes
        self._emulators = _vector_env(game, settings, num_lanes)
        self._tells_lives = settings.tells_lives
        self._lives = np.zeros(num_lanes, np.int32)
        self._ended = np.zeros(num_lanes, bool)  # the lane's last tick ended a game, so its next one is `first`
        self._reset_tick: Tick | None = None  # made by reset, handed out by the first recv
        self._in_flight = False

    def reset(self, seeds: np.ndarray) -> None:
        if self._in_flight:
            self._emulators.recv()  # else the answers of the old game would be taken for the new one's
            self._in_flight = False
        obs, info = self._emulators.reset(seed=seeds)
        self._lives = info["lives"]
        self._ended = np.zeros(self.num_lanes, bool)
        none, every = np.zeros(self.num_lanes, bool), np.ones(self.num_lanes, bool)
        self._reset_tick = Tick(obs, np.zeros(self.num_lanes, np.float32), none, none.copy(), none.copy(), every)

    def send(self, actions: np.ndarray) -> None:
        if self._in_flight or self._reset_tick is not None:
            raise RuntimeError("send: the group's last answer has not been received yet")
        if actions.shape != (self.num_lanes,):
            raise ValueError(f"expected {self.num_lanes} actions, got an array of shape {actions.shape}")
        self._emulators.send(actions.astype(np.int64, copy=False))
        self._in_flight = True

    def recv(self) -> Tick:
        if self._reset_tick is not None:
            tick, self._reset_tick = self._reset_tick, None
            return tick
        if not self._in_flight:
            raise RuntimeError("recv: nothing was sent to this group")
        # ale-py hands over fresh arrays at every recv, so nothing is copied here
        obs, reward, terminated, truncated, info = self._emulators.recv()
        self._in_flight = False
        first, lives = self._ended, info["lives"]
        life_lost = np.zeros(self.num_lanes, bool)
        if self._tells_lives:
            life_lost = lost_lives(self._lives, lives, terminated, first)
        self._lives, self._ended = lives, terminated | truncated
        return Tick(obs, reward.astype(np.float32), terminated, truncated, life_lost, first)


def lost_lives(before: np.ndarray, lives: np.ndarray, terminated: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The rule of atari_wrappers.is_life_lost for all lanes at once; a reset may show fewer lives without any loss."""
    lost: np.ndarray = (lives > 0) & (lives < before) & ~terminated & ~first
    return lost


def _vector_env(game: str, settings: AtariSettings, num_lanes: int) -> Any:
    return load_ale(game).vector_env.AtariVectorEnv(
        game,
        num_envs=num_lanes,
        num_threads=settings.threads or min(num_lanes, usable_cores()),  # ale-py's own default ignores cgroups
        autoreset_mode=AutoresetMode.NEXT_STEP,
        frameskip=settings.frames_per_step,
        maxpool=settings.max_pool,
        stack_num=settings.frame_stack,
        img_height=settings.screen,
        img_width=settings.screen,
        grayscale=True,
        noop_max=settings.noop_max + 1 if settings.noop_max else 0,  # ale-py draws from 0 to its noop_max - 1
        use_fire_reset=settings.fire_reset,
        repeat_action_probability=settings.repeat_action_probability,
        full_action_space=settings.full_action_space,
        max_num_frames_per_episode=settings.max_frames_per_game,
        reward_clipping=False,
        episodic_life=False,
        life_loss_info=False,
    )


class _Cartridge(NamedTuple):
    screen: tuple[int, int]  # height, width
    own_actions: int  # the actions that do something in this game
    all_actions: int


@lru_cache
def _read_cartridge(game: str) -> _Cartridge:
    ale_py = load_ale(game)
    emulator = ale_py.ALEInterface()
    emulator.loadROM(ale_py.roms.get_rom_path(game))
    height, width = emulator.getScreenDims()
    own, every = emulator.getMinimalActionSet(), emulator.getLegalActionSet()
    return _Cartridge((int(height), int(width)), len(own), len(every))
