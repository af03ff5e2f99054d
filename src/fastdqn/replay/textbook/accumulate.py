"""Steps in, finished n-step transitions out, as in textbooks: built when they are stored.

The ring computes all of this when a batch is drawn (window.py). This file is the independent implementation that the
window is tested against, and the input of the two textbook replays.
"""

from collections import deque
from typing import Any, NamedTuple

import numpy as np

from fastdqn.transition import Block


class Transition(NamedTuple):
    index: tuple[int, int]  # type: ignore[assignment]  # (hides tuple.index) lane and absolute row of the start in the ring
    state: np.ndarray
    action: int
    returns: np.float32
    discount: np.float32
    next_state: np.ndarray


class Pending:
    """A transition that has not seen its n steps yet."""

    def __init__(self, index: tuple[int, int], state: np.ndarray, action: int) -> None:
        self.index, self.state, self.action = index, state, action
        self.returns, self.discount, self.steps = np.float32(0), np.float32(1), 0

    def add(self, reward: np.float32, gamma: np.float32) -> None:
        self.returns += self.discount * reward
        self.discount *= gamma
        self.steps += 1

    def finish(self, next_state: np.ndarray, terminal: bool) -> Transition:
        discount = np.float32(0) if terminal else self.discount
        return Transition(self.index, self.state, self.action, self.returns, discount, next_state)


class LaneAccumulator:
    """Steps of one lane in, finished n-step transitions out."""

    def __init__(self, lane: int, stack: int, n_step: int, gamma: float, clip_rewards: bool) -> None:
        self.lane, self.stack, self.n_step = lane, stack, n_step
        self.gamma, self.clip = np.float32(gamma), clip_rewards
        self.rows_opened = 0
        self.frames: deque[np.ndarray] = deque(maxlen=stack)
        self.pending: deque[Pending] = deque()
        self.state = np.zeros(0)

    def first(self, obs: np.ndarray) -> list[Transition]:
        """A reset: pending transitions were cut, and bootstrap from the last observation seen."""
        done = self.cut()
        self.frames.extend([np.zeros_like(obs)] * self.stack)
        self._see(obs)
        return done

    def step(self, action: int, reward: np.float32, terminal: bool, obs: np.ndarray) -> list[Transition]:
        self.pending.append(Pending((self.lane, self.rows_opened - 1), self.state, action))
        reward = np.float32(np.clip(reward, -1, 1)) if self.clip else reward
        for transition in self.pending:
            transition.add(reward, self.gamma)
        self._see(obs)
        ready = len(self.pending) if terminal else int(self.pending[0].steps == self.n_step)
        return [self.pending.popleft().finish(self.state, terminal) for _ in range(ready)]

    def cut(self) -> list[Transition]:
        done = [transition.finish(self.state, terminal=False) for transition in self.pending]
        self.pending.clear()
        return done

    def saved(self) -> dict[str, Any]:
        pending = [dict(vars(transition)) for transition in self.pending]
        return {"rows_opened": self.rows_opened, "frames": list(self.frames), "state": self.state, "pending": pending}

    def load(self, saved: dict[str, Any]) -> None:
        self.rows_opened, self.state = saved["rows_opened"], saved["state"]
        self.frames.clear()
        self.frames.extend(saved["frames"])
        self.pending.clear()
        for fields in saved["pending"]:
            transition = Pending(fields["index"], fields["state"], fields["action"])
            vars(transition).update(fields)
            self.pending.append(transition)

    def _see(self, obs: np.ndarray) -> None:
        self.frames.append(obs.copy())
        self.state = np.concatenate(self.frames, axis=0)
        self.rows_opened += 1


class Accumulator:
    """Blocks in, finished transitions out."""

    def __init__(self, num_lanes: int, stack: int, n_step: int, gamma: float, clip_rewards: bool) -> None:
        self.lanes = [LaneAccumulator(lane, stack, n_step, gamma, clip_rewards) for lane in range(num_lanes)]

    def add(self, block: Block) -> list[Transition]:
        done = []
        for i, lane in enumerate(self.lanes[block.lanes]):
            if block.first[i]:
                done += lane.first(block.obs[i])
            else:
                done += lane.step(int(block.action[i]), block.reward[i], bool(block.terminal[i]), block.obs[i])
        return done

    def seal(self, lane: int) -> list[Transition]:
        return self.lanes[lane].cut()

    def state(self) -> dict[str, Any]:
        return {str(lane.lane): lane.saved() for lane in self.lanes}

    def load_state(self, state: dict[str, Any]) -> None:
        for lane in self.lanes:
            lane.load(state[str(lane.lane)])


def bytes_per_transition(state_shape: tuple[int, ...], itemsize: int) -> int:
    return 2 * int(np.prod(state_shape)) * itemsize + 8 + 4 + 4 + 16
