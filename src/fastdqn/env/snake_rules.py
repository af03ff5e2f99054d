"""What both versions of Snake share: the settings, where a snake may start, random numbers, the brightness of a body."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from fastdqn.errors import UserError, nearest
from fastdqn.transition import EnvSpec

NUM_ACTIONS = 4
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # (rows, columns) of 0 up, 1 right, 2 down, 3 left; 2 ^ action is opposite
MAX_DIM = 128  # cell numbers are stored as int16

CAMEL_CASE = {"startingBlocks": "starting_blocks", "distToBorder": "dist_to_border", "maxSteps": "max_steps"}

_MASK = 2**64 - 1


@dataclass(frozen=True)
class SnakeSettings:
    """A board of dim x dim cells and how a game on it begins and ends."""

    dim: int = 10
    starting_blocks: int = 3
    dist_to_border: int = 3  # the head starts with at least so many cells between itself and each wall
    max_steps: int = 500

    def __post_init__(self) -> None:
        if not 2 <= self.dim <= MAX_DIM:
            raise UserError(f"Snake: dim must lie between 2 and {MAX_DIM}, not {self.dim}.")
        if not 1 <= self.starting_blocks <= self.dim:
            raise UserError(
                f"Snake: starting_blocks must lie between 1 and dim ({self.dim}), because the snake starts as a "
                f"straight line; it is {self.starting_blocks}."
            )
        largest = largest_distance(self.dim, self.starting_blocks)
        if not 0 <= self.dist_to_border <= largest:
            raise UserError(
                f"Snake: dist_to_border must lie between 0 and {largest} for dim {self.dim} and starting_blocks "
                f"{self.starting_blocks}; it is {self.dist_to_border}."
            )
        if self.max_steps < 1:
            raise UserError(f"Snake: max_steps must be at least 1, not {self.max_steps}.")

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


def read_settings(given: Mapping[str, Any]) -> SnakeSettings:
    """Settings as a user writes them: snake_case or camelCase names, whole numbers or their text. A board too small for
    the usual distance to the border gets the largest that fits, unless the user asked for one."""
    known = [field.name for field in fields(SnakeSettings)]
    numbers: dict[str, int] = {}
    for written, value in given.items():
        name = CAMEL_CASE.get(written, written)
        if name not in known:
            raise UserError(f"Snake has no setting '{written}'; it has {', '.join(known)}.{nearest(written, known)}")
        if name in numbers:
            raise UserError(f"Snake: {name} is given twice, once as '{written}'.")
        numbers[name] = _whole_number(name, value)
    settings = SnakeSettings(**numbers | {"dist_to_border": numbers.get("dist_to_border", 0)})
    if "dist_to_border" in numbers:
        return settings
    fits = largest_distance(settings.dim, settings.starting_blocks)
    return replace(settings, dist_to_border=min(SnakeSettings.dist_to_border, fits))


def largest_distance(dim: int, starting_blocks: int) -> int:
    """The head needs a cell that far from both walls, and the body must fit behind it."""
    return min((dim - 1) // 2, dim - starting_blocks)


def make_spec(settings: SnakeSettings) -> EnvSpec:
    return EnvSpec(
        env_id="snake",
        obs_shape=(3, settings.dim, settings.dim),
        obs_dtype=np.dtype(np.uint8),
        num_actions=NUM_ACTIONS,
        frame_skip=1,
        score="gains",  # the food eaten; a death's -1 is for learning only
        max_eval_steps=settings.max_steps,
        details=settings.as_dict(),
    )


def start_positions(settings: SnakeSettings) -> list[tuple[int, int, int]]:
    """Every (row, column, direction) of a head that keeps its distance and whose straight body fits behind it."""
    allowed = range(settings.dist_to_border, settings.dim - settings.dist_to_border)
    starts = []
    for row in allowed:
        for column in allowed:
            for direction, (down, right) in enumerate(MOVES):
                tail_row = row - down * (settings.starting_blocks - 1)
                tail_column = column - right * (settings.starting_blocks - 1)
                if 0 <= tail_row < settings.dim and 0 <= tail_column < settings.dim:
                    starts.append((row, column, direction))
    return starts


def draw(seed: int, episode: int, number: int, choices: int) -> int:
    """A random one of range(choices), a pure function of where in the game it is drawn, so there is no state to save.

    Draw 0 of an episode places the snake, draw 1 + score places a food. The bias of the remainder is below 2**-50.
    """
    return _mix(_mix(_mix(seed) + episode) + number) % choices


def brightness(blocks_behind_head: int, length: int) -> int:
    """A body block's value in the observation: 255 * (length - i) / length rounded up, so never 0.

    Strictly falling from the neck to the tail up to a length of 255 blocks (all of a 15 x 15 board).
    """
    return -(-255 * (length - blocks_behind_head) // length)


def _mix(word: int) -> int:
    """The output function of splitmix64: every bit of the input stirs every bit of the output."""
    word = (word + 0x9E3779B97F4A7C15) & _MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)


def _whole_number(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool) or int(value) != float(value):
            raise ValueError
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"Snake: {name} must be a whole number, not {value!r}.") from None


def check_saved(state: Mapping[str, Any], settings: SnakeSettings, lanes: int) -> None:
    """Games that were saved under other settings, or in another number, are refused."""
    saved = (state["settings"], len(state["seed"]))
    if saved != (settings.as_dict(), lanes):
        raise UserError(
            f"Snake: the saved games are {saved[1]} lanes with settings {saved[0]}; "
            f"these are {lanes} lanes with {settings.as_dict()}."
        )
