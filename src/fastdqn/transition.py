"""The types of the data path: what an environment returns (Tick), what is stored (Block), what is learned from (Batch).

Axes: L lanes of a group, B rows of a batch. A lane is one environment; a step is one agent decision in one lane.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np


@dataclass(frozen=True)
class EnvSpec:
    """All that the rest of the system knows about an environment."""

    env_id: str
    obs_shape: tuple[int, ...]  # one observation as stored: pixels are (channels, height, width), newest frame only
    obs_dtype: np.dtype[Any]
    num_actions: int
    action_start: int = 0  # actions are 0 .. num_actions-1 inside fastdqn; a Discrete space may start elsewhere
    frame_skip: int = 1  # emulator frames per step
    clip_rewards: bool = False  # learn from rewards clipped to [-1, 1]; scores always use raw rewards
    protocol: str = "plain"  # named evaluation rules of a score: plain, classic, machado
    score: str = "rewards"  # what a game's score sums: 'rewards' (all, raw) or 'gains' (positive ones: a snake's food)
    eval_epsilon: float = 0.0  # the evaluator's exploration: 0.01 on Atari, 0 elsewhere
    max_eval_steps: int = 27_000  # the evaluator cuts a longer game
    has_film: bool = True  # a single environment of this kind can be rendered
    details: dict[str, Any] = field(default_factory=dict)  # written into the records, never read

    @property
    def is_image(self) -> bool:
        return len(self.obs_shape) == 3

    def state_shape(self, stack: int) -> tuple[int, ...]:
        """What the network sees: `stack` observations joined along their first axis, oldest first."""
        return (stack * self.obs_shape[0], *self.obs_shape[1:])

    def stored(self, obs: Any) -> np.ndarray:
        """Converts a user's observation to its stored form: dtype, shape, and channels first."""
        array = np.asarray(obs, self.obs_dtype)
        if self.is_image and array.shape == (*self.obs_shape[1:], self.obs_shape[0]) != self.obs_shape:
            array = np.moveaxis(array, -1, 0)
        if array.size != np.prod(self.obs_shape):
            raise ValueError(f"{self.env_id} has observations of shape {self.obs_shape}, not {array.shape}")
        return array.reshape(self.obs_shape)


class Tick(NamedTuple):
    """One result of one group of lanes. The autoreset rule is NEXT_STEP: after a tick that ended a game, the lane's next
    action is ignored and its next tick is `first` (a reset observation, reward 0). Such a tick is not a step."""

    obs: np.ndarray  # (L, *obs_shape): the observation after the action; valid until the group's next send
    reward: np.ndarray  # (L,) float32, raw
    terminated: np.ndarray  # (L,) bool: the game is over
    truncated: np.ndarray  # (L,) bool: the game was cut; the TD target still bootstraps
    life_lost: np.ndarray  # (L,) bool: an end for learning, but the game continues
    first: np.ndarray  # (L,) bool: obs came from a reset


class Block(NamedTuple):
    """What the replay stores: one tick of one group. It closes the open row of each lane and opens the next one."""

    lanes: slice  # which lanes of the ring, contiguous
    action: np.ndarray  # (L,) int64: the action that led here (ignored where `first`)
    reward: np.ndarray  # (L,) float32, raw
    terminal: np.ndarray  # (L,) bool: the learning episode ended (game over or a lost life), so discount 0
    first: np.ndarray  # (L,) bool: no action led here; the row before it is a TAIL
    obs: np.ndarray  # (L, *obs_shape)


class DeviceBlock(NamedTuple):
    """A Block whose fields are tensors on a device."""

    lanes: slice
    action: Any  # (L,) int64
    reward: Any  # (L,) float32
    terminal: Any  # (L,) bool
    first: Any  # (L,) bool
    obs: Any  # (L, *obs_shape)


class Batch(NamedTuple):
    """The input of the loss. `discount` combines gamma, n and the episode's end: target = returns + discount * q_next."""

    state: Any  # (B, *state_shape), in the dtype it was stored in
    action: Any  # (B,) int64
    returns: Any  # (B,) float32: discounted sum of up to n rewards ('return' is a Python keyword)
    discount: Any  # (B,) float32: gamma ** steps taken, 0 after a terminal
    next_state: Any  # (B, *state_shape)
    weight: Any  # (B,) float32: weight in the loss, 0 for a sample to be ignored
    index: Any  # (B, 2) int64: lane and absolute row of the start

    def rows(self, which: slice) -> "Batch":
        return Batch(*(None if field is None else field[which] for field in self))
