"""A made-up history whose every number is known, and what a window must be, worked out from the full history.

Observations are unique numbers, so a frame from the wrong lane, episode or time is seen at once.
"""

from dataclasses import dataclass, field

import numpy as np

from fastdqn.transition import Block

OBS_SHAPE = (1,)


@dataclass
class Row:
    obs: int
    first: bool
    action: int = -1
    reward: float = 0.0
    terminal: bool = False
    tail: bool = False
    closed: bool = False


@dataclass
class History:
    """Feeds a replay with blocks and keeps every row for ever."""

    num_lanes: int
    rng: np.random.Generator
    p_end: float = 0.2  # a game ends
    p_truncate: float = 0.3  # ... by truncation
    p_life: float = 0.1  # a life is lost, the game goes on
    rows: list[list[Row]] = field(default_factory=list)
    fresh: list[bool] = field(default_factory=list)  # the lane's next block must be `first`
    counter: int = 0

    def __post_init__(self):
        self.rows = [[] for _ in range(self.num_lanes)]
        self.fresh = [True] * self.num_lanes

    def tick(self, lanes: slice) -> Block:
        """One tick of the given lanes, written down and returned as a block."""
        columns = {name: [] for name in ("action", "reward", "terminal", "first", "obs")}
        for lane in range(lanes.start, lanes.stop):
            for name, value in self._tick_lane(lane).items():
                columns[name].append(value)
        return Block(
            lanes,
            np.array(columns["action"], np.int64),
            np.array(columns["reward"], np.float32),
            np.array(columns["terminal"], bool),
            np.array(columns["first"], bool),
            np.array(columns["obs"], np.int32).reshape(-1, *OBS_SHAPE),
        )

    def seal(self, lane: int) -> None:
        if self.rows[lane]:
            self.rows[lane][-1].tail = True
            self.fresh[lane] = True

    def _tick_lane(self, lane: int) -> dict:
        self.counter += 1
        history = self.rows[lane]
        if self.fresh[lane]:
            if history:
                history[-1].tail = history[-1].closed = True
            history.append(Row(self.counter, first=True))
            self.fresh[lane] = False
            return {"action": 99, "reward": 0.0, "terminal": False, "first": True, "obs": self.counter}
        ends = self.rng.random() < self.p_end
        truncated = ends and self.rng.random() < self.p_truncate
        terminal = (ends and not truncated) or self.rng.random() < self.p_life
        last = history[-1]
        last.action, last.reward = int(self.rng.integers(4)), float(self.rng.integers(-30, 31)) / 8
        last.terminal, last.closed = bool(terminal), True
        history.append(Row(self.counter, first=False))
        self.fresh[lane] = bool(ends)
        return {"action": last.action, "reward": last.reward, "terminal": terminal, "first": False, "obs": self.counter}

    def valid_starts(self, rows_per_lane: int, stack: int, n_step: int) -> list[tuple[int, int]]:
        """(lane, row) by the rule of the design, from the full history."""
        starts = []
        for lane, history in enumerate(self.rows):
            opened = len(history)
            low = max(0, opened - rows_per_lane + stack - 1)
            starts += [(lane, i) for i in range(low, opened - n_step) if not history[i].tail]
        return starts

    def window(self, lane: int, start: int, stack: int, n_step: int, gamma: float, clip: bool):
        """(state, action, returns, discount, next_state) by walking along the history one row at a time."""
        history = self.rows[lane]
        returns, discount, row = np.float32(0), np.float32(1), start
        for _ in range(n_step):
            if history[row].tail:
                break
            reward = np.float32(history[row].reward)
            returns = returns + discount * (min(max(reward, np.float32(-1)), np.float32(1)) if clip else reward)
            discount = discount * np.float32(gamma)
            ended = history[row].terminal
            row += 1
            if ended:
                discount = np.float32(0)
                break
        state, next_state = self.stacked(lane, start, stack), self.stacked(lane, row, stack)
        return state, history[start].action, returns, discount, next_state

    def stacked(self, lane: int, row: int, stack: int) -> list[int]:
        frames: list[int] = []
        while len(frames) < stack:
            frames.insert(0, self.rows[lane][row].obs)
            if self.rows[lane][row].first:
                break
            row -= 1
        return [0] * (stack - len(frames)) + frames
