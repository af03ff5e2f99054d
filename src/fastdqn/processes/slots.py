"""Between an actor and the learner: a few slots in shared memory, filled by one and emptied by the other.

    actor    fills slot `filled % K`, then increments `filled`      the learner never sees a half-written slot
    learner  takes slot `emptied % K`, then increments `emptied`    the actor waits while filled - emptied == K

Slots also limit the actor: a slot is returned when the updates due for its steps are done, so an actor cannot run ahead of
the learner by more than its slots. A killed actor leaves a half-filled slot that was never counted; its successor refills it
from the start, and its first rows are `first`, which closes the games that were cut.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fastdqn.actor.games import Game
from fastdqn.metrics import Timer
from fastdqn.processes.bell import Bell
from fastdqn.processes.shared import Shared
from fastdqn.transition import Block, EnvSpec

SLOTS = 3  # per actor: one being filled, one being learned from, one in between
LARGEST_SLOT_BYTES = 64 * 2**20
MOST_ROUNDS = 1024  # in one slot: an endless game is pushed in pieces
GAME = ("lane", "returns", "score", "steps", "round")


class StoppedError(Exception):
    """Raised in a role when the run ends."""


class Push(NamedTuple):
    """When a slot is handed over: after `rounds` rounds, or when a game has ended."""

    rounds: int
    at_game_end: bool


def push_of(setting: int | str, lanes: int, spec: EnvSpec) -> Push:
    """`step`, a number of rounds, or `episode`. A round is one tick of every lane of the actor."""
    row = int(np.prod(spec.obs_shape)) * spec.obs_dtype.itemsize + 16 + 8 * len(GAME)
    most = max(1, min(MOST_ROUNDS, LARGEST_SLOT_BYTES // (row * lanes)))
    wanted = 1 if setting == "step" else most if setting == "episode" else int(setting)
    return Push(min(wanted, most), setting == "episode")


def slot_fields(lanes: int, spec: EnvSpec, push: Push) -> dict[str, tuple[tuple[int, ...], Any]]:
    rows = (SLOTS, push.rounds, lanes)
    return {
        "filled": ((1,), np.int64),
        "emptied": ((1,), np.int64),
        "rounds": ((SLOTS,), np.int64),
        "num_games": ((SLOTS,), np.int64),
        "games": ((SLOTS, push.rounds * lanes, len(GAME)), np.float64),
        "action": (rows, np.int64),
        "reward": (rows, np.float32),
        "terminal": (rows, np.bool_),
        "first": (rows, np.bool_),
        "obs": ((*rows, *spec.obs_shape), spec.obs_dtype),
    }


class SlotSink:
    """The actor's end. `put` and `add_games` fill a slot, `end_round` hands it over when it is due."""

    def __init__(
        self, shared: Shared, push: Push, room: Bell, work: Bell, alive: Callable[[], None], waiting: Timer
    ) -> None:
        """`alive` is called while waiting: it sends a heartbeat, and raises StoppedError when the run ends."""
        self._shared, self._push, self._room, self._work, self._alive = shared, push, room, work, alive
        self._waiting = waiting
        self._round = self._games = 0  # of the slot that is being filled

    def begin_round(self) -> None:
        """Waits for a free slot, before the environment is stepped."""
        while not self._has_room():
            with self._waiting:
                self._room.wait_for(self._has_room)
            self._alive()

    def put(self, block: Block) -> None:
        here = (self._slot, self._round, block.lanes)
        for name in ("action", "reward", "terminal", "first", "obs"):
            self._shared[name][here] = getattr(block, name)

    def add_games(self, games: list[Game]) -> None:
        for game in games:
            self._shared["games"][self._slot, self._games] = (*game, self._round)
            self._games += 1

    def end_round(self) -> None:
        self._round += 1
        if self._round >= self._push.rounds or (self._push.at_game_end and self._games):
            self.hand_over()

    def hand_over(self) -> None:
        if not self._round:
            return
        slot = self._slot
        self._shared["rounds"][slot], self._shared["num_games"][slot] = self._round, self._games
        self._work.fence()
        self._shared["filled"][0] += 1
        self._round = self._games = 0
        self._work.ring()

    @property
    def _slot(self) -> int:
        return int(self._shared["filled"][0] % SLOTS)

    def _has_room(self) -> bool:
        return bool(self._shared["filled"][0] - self._shared["emptied"][0] < SLOTS)


class SlotSource:
    """The learner's end of one actor's slots. `lanes` is the actor's section of the ring."""

    def __init__(self, shared: Shared, lanes: slice, room: Bell) -> None:
        self._shared, self._lanes, self._room = shared, lanes, room

    @property
    def waiting(self) -> int:
        """Slots that are filled and not emptied yet."""
        return int(self._shared["filled"][0] - self._shared["emptied"][0])

    def rounds(self) -> Iterator[tuple[Block, list[Game]]]:
        """The oldest filled slot round by round: what is stored, and the games that ended. Valid until `give_back`."""
        slot = self._slot
        told = self._shared["games"][slot, : int(self._shared["num_games"][slot])]
        ends = np.searchsorted(told[:, -1], np.arange(int(self._shared["rounds"][slot])), side="right")
        for number, (begin, end) in enumerate(itertools.pairwise([0, *ends])):
            here = (slot, number)
            columns = (self._shared[name][here] for name in ("action", "reward", "terminal", "first", "obs"))
            yield Block(self._lanes, *columns), [self._game(row) for row in told[begin:end]]

    def _game(self, told: np.ndarray) -> Game:
        lane, returns, score, steps, _ = told.tolist()
        return Game(self._lanes.start + int(lane), returns, score, int(steps))

    def give_back(self) -> None:
        self._shared["emptied"][0] += 1
        self.wake()

    def wake(self) -> None:
        self._room.ring()

    @property
    def _slot(self) -> int:
        return int(self._shared["emptied"][0] % SLOTS)
