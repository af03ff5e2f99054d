"""From the name a user typed to an EnvKind."""

import importlib
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

from fastdqn.env.atari import ATARI_GAMES, atari_kind
from fastdqn.env.gymnasium import AnyEnv, gymnasium_kind, maker_kind
from fastdqn.env.kind import EnvKind
from fastdqn.errors import UserError

SNAKE_NAMES = ("snake", "fastdqn/Snake-v0")
CATCH_NAMES = ("catch", "fastdqn/Catch-v0")

EnvName = str | Callable[[], AnyEnv]


def find_env(env: EnvName, settings: dict[str, Any], imports: Iterable[str] = ()) -> EnvKind:
    """Raises UserError with the nearest names when there is no such environment."""
    for module in imports:
        import_module(module)
    if callable(env):
        if settings:
            raise UserError(
                f"env.{next(iter(settings))} does not reach an environment that you make yourself: set it there."
            )
        return maker_kind(env)
    if env.lower() in SNAKE_NAMES or env in SNAKE_NAMES:
        from fastdqn.env.snake_lanes import snake_kind

        return snake_kind(settings)
    if env.lower() in CATCH_NAMES or env in CATCH_NAMES:
        return gymnasium_kind("fastdqn/Catch-v0", settings, known_names=[])
    return atari_kind(env, settings) or gymnasium_kind(env, settings, known_names=["snake", "catch", *ATARI_GAMES])


def import_module(name: str) -> None:
    """A module on the Python path or in the current folder (which the `fastdqn` script does not have on its path)."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise UserError(f"--import takes the name of a module, such as my_package, not '{name}'.")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        importlib.import_module(name)
    except ImportError as fault:
        raise UserError(f"--import {name}: {fault}. The module must be on the Python path.") from None
    except Exception as fault:  # the user's module is at fault, whatever it raises
        raise UserError(f"--import {name} fails: {type(fault).__name__}: {fault}") from fault
