"""Records every n-th game as it is played: frames, actions, rewards and the Q-values of all actions.

It sits between an actor and its sink and sees what is stored. Only lanes whose game is recorded cost anything.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fastdqn.actor.actor import Sink
from fastdqn.transition import Block, EnvSpec

LARGEST_GAME_BYTES = 256 * 2**20  # of frames: a longer game is cut here

Values = Callable[[np.ndarray], np.ndarray]  # states (n, *state_shape) -> values (n, num_actions)


@dataclass
class Episode:
    """One game. `frames` has one more entry than the others: the observation that no action was taken on."""

    number: int
    frames: list[np.ndarray] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)  # raw
    values: list[np.ndarray] = field(default_factory=list)  # of the state each action was chosen in
    cut: bool = False  # the recording was cut, the game went on


class Recorder:
    """Games are numbered as they begin: `number_of(n)` is the number of the n-th game seen here."""

    def __init__(
        self,
        spec: EnvSpec,
        stack: int,
        every: int,
        values: Values,
        write: Callable[[Episode], None],
        number_of: Callable[[int], int] = lambda n: n,
    ) -> None:
        self._spec, self._stack, self._every, self._values, self._write = spec, stack, every, values, write
        self._number_of = number_of
        self._seen = 0
        self._kept: dict[int, Episode] = {}  # lane -> the game that is being recorded
        frame = int(np.prod(spec.obs_shape)) * spec.obs_dtype.itemsize
        self._most_frames = max(2, LARGEST_GAME_BYTES // frame)

    def see(self, block: Block) -> None:
        for place in np.flatnonzero(block.first):
            lane = block.lanes.start + int(place)
            if lane in self._kept:  # the frame before this one was its last
                self._finish(self._kept.pop(lane))
            self._seen += 1
            number = self._number_of(self._seen)
            if number % self._every == 0:
                self._kept[lane] = Episode(number)
        for lane, episode in list(self._kept.items()):
            if block.lanes.start <= lane < block.lanes.stop:
                self._add(lane, episode, block)

    def forget(self) -> None:
        """Drops games that were broken off."""
        self._kept.clear()

    def _add(self, lane: int, episode: Episode, block: Block) -> None:
        place = lane - block.lanes.start
        if not block.first[place]:
            episode.actions.append(int(block.action[place]))
            episode.rewards.append(float(block.reward[place]))
        episode.frames.append(block.obs[place].copy())
        if len(episode.frames) >= self._most_frames:
            episode.cut = True
            self._finish(self._kept.pop(lane))
            return
        episode.values.append(self._values(self._state(episode)[None])[0])

    def _state(self, episode: Episode) -> np.ndarray:
        newest = episode.frames[-self._stack :]
        empty = [np.zeros_like(newest[0])] * (self._stack - len(newest))
        return np.concatenate([*empty, *newest])

    def _finish(self, episode: Episode) -> None:
        if episode.actions:
            episode.values = episode.values[: len(episode.actions)]
            self._write(episode)


class RecordingSink:
    """A sink that shows every block to the recorder first."""

    def __init__(self, sink: Sink, recorder: Recorder) -> None:
        self._sink, self._recorder = sink, recorder

    def put(self, block: Block) -> None:
        self._recorder.see(block)
        self._sink.put(block)
