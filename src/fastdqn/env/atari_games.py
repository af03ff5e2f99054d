"""The Atari games inside the ale-py wheel and the names they go by. Judging a name needs no ale-py."""

import re
from typing import Any, Literal

from fastdqn.errors import UserError, missing_package, nearest

ProtocolName = Literal["classic", "machado"]

# Checked against the wheel by tests/unit/test_atari.py, so that names can be listed and suggested without ale-py
_GAMES = """
adventure air_raid alien amidar assault asterix asteroids atlantis atlantis2 backgammon bank_heist basic_math
battle_zone beam_rider berzerk blackjack bowling boxing breakout carnival casino centipede chopper_command
crazy_climber crossbow darkchambers defender demon_attack donkey_kong double_dunk earthworld elevator_action enduro
entombed et fishing_derby flag_capture freeway frogger frostbite galaxian gopher gravitar hangman haunted_house hero
human_cannonball ice_hockey jamesbond journey_escape kaboom kangaroo keystone_kapers king_kong klax koolaid krull
kung_fu_master laser_gates lost_luggage mario_bros miniature_golf montezuma_revenge mr_do ms_pacman name_this_game
othello pacman phoenix pitfall pitfall2 pong pooyan private_eye qbert riverraid road_runner robotank seaquest
sir_lancelot skiing solaris space_invaders space_war star_gunner superman surround tennis tetris tic_tac_toe_3d
time_pilot trondead turmoil tutankham up_n_down venture video_checkers video_chess video_cube video_pinball
wizard_of_wor word_zapper yars_revenge zaxxon
"""
ATARI_GAMES: tuple[str, ...] = tuple(_GAMES.split())
# Also in the wheel, for two or more players only: loading one of these here ends the whole process
MULTIPLAYER_GAMES: tuple[str, ...] = ("combat", "joust", "maze_craze", "warlords")

_GAME_BY_KEY = {game.replace("_", ""): game for game in ATARI_GAMES + MULTIPLAYER_GAMES}
# Versions 0, 4 and 5 are the only ones Atari ids ever had; Blackjack-v1 is Gymnasium's card game
_ATARI_ID = re.compile(r"(ale/)?(?P<name>\w+?)(noframeskip|deterministic)?(-v(?P<version>[045]))?", re.IGNORECASE)
_ONLY_ATARI = re.compile(r"^ale/|noframeskip|deterministic-v|-ram(-|$)", re.IGNORECASE)


def atari_game(env_id: str) -> str | None:
    """The rom name behind pong, Pong, PongNoFrameskip-v4, Pong-v4 or ALE/Pong-v5; None when it is no Atari game."""
    match = _ATARI_ID.fullmatch(env_id)
    return _GAME_BY_KEY.get(match["name"].lower().replace("_", "")) if match else None


def looks_like_atari(env_id: str) -> bool:
    """Whether an id can only be meant as Atari, even when no such game exists."""
    return atari_game(env_id) is not None or _ONLY_ATARI.search(env_id) is not None


def protocol_of(env_id: str) -> ProtocolName:
    """The rules an id stands for: v0, v5 and ALE/ ids have sticky actions, plain names and v4 ids have none."""
    match = _ATARI_ID.fullmatch(env_id)
    version = match["version"] if match else None
    sticky = version in ("0", "5") or (version is None and env_id.lower().startswith("ale/"))
    return "machado" if sticky else "classic"


def playable_game(env_id: str) -> str:
    """The rom name of an id that looks like Atari, or a sentence that says why it cannot be played."""
    game = atari_game(env_id)
    if game is None:
        if "-ram" in env_id.lower():
            raise UserError(f"{env_id}: playing from the console's memory is not supported, only from its image.")
        bare_name = re.sub(r"^ale/|(noframeskip|deterministic)?(-v\d+)?$", "", env_id, flags=re.IGNORECASE)
        raise UserError(f"Unknown Atari game: {env_id!r}.{nearest(bare_name, ATARI_GAMES)}")
    if game in MULTIPLAYER_GAMES:
        raise UserError(f"{game} is for two or more players; ale-py has no single-player version of it.")
    return game


def load_ale(game: str) -> Any:
    """The module ale_py with its env and vector_env, or a sentence that says how to install it."""
    try:
        import ale_py
        import ale_py.env
        import ale_py.vector_env
    except ImportError:
        raise missing_package(f"The Atari game {game}", "ale-py", "atari") from None
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # else the first emulator prints a banner
    return ale_py
