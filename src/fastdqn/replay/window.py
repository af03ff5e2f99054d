"""The window: from (lane, row) to a transition. The only code that knows stacks, n-step returns and episode ends."""

import numpy as np

from fastdqn.replay.ring import FIRST, TAIL, TERMINAL, Ring
from fastdqn.transition import Batch


def window(
    ring: Ring,
    lane: np.ndarray,  # (B,)
    row: np.ndarray,  # (B,) absolute; valid starts, never TAIL
    weight: np.ndarray,  # (B,) float32
    *,
    stack: int,
    n_step: int,
    gamma: float,
    clip_rewards: bool,
) -> Batch:
    """A batch of NumPy arrays for the given starts."""
    gamma32 = np.float32(gamma)
    returns = np.zeros(len(row), np.float32)
    discount = np.ones(len(row), np.float32)
    steps = np.zeros(len(row), np.int64)  # steps taken inside the window: n, or fewer where the episode ended
    running = np.ones(len(row), bool)
    for k in range(n_step):
        slot = (row + k) % ring.T
        flags, reward = ring.flags[lane, slot], ring.reward[lane, slot]
        if clip_rewards:
            reward = reward.clip(-1.0, 1.0)
        running &= (flags & TAIL) == 0  # cut by truncation or a seal: bootstrap from this TAIL row
        returns += np.where(running, discount * reward, np.float32(0))
        discount = np.where(running, discount * gamma32, discount)
        steps += running
        terminal = running & ((flags & TERMINAL) != 0)
        discount[terminal] = 0
        running &= ~terminal
    return Batch(
        state=stacked(ring, lane, row, stack),
        action=ring.action[lane, row % ring.T],
        returns=returns,
        discount=discount,
        next_state=stacked(ring, lane, row + steps, stack),
        weight=weight,
        index=np.stack([lane, row], axis=1),
    )


def stacked(ring: Ring, lane: np.ndarray, row: np.ndarray, stack: int) -> np.ndarray:
    """(B, stack * C, ...): the observations of rows row-stack+1 .. row, oldest first, zeros before the episode began."""
    obs_shape = ring.obs.shape[2:]
    flat_obs = ring.obs.reshape(-1, *obs_shape)  # a view: take() on it copies whole rows, faster than two-index gathers
    if stack == 1:
        return flat_obs.take(lane * ring.T + row % ring.T, axis=0)
    rows = row[:, None] - np.arange(stack - 1, -1, -1)  # (B, stack)
    slots = lane[:, None] * ring.T + rows % ring.T
    is_first = (ring.flags.reshape(-1).take(slots) & FIRST) != 0
    # Frame j belongs to another episode if any newer frame of the stack, j+1 .. stack-1, is FIRST
    foreign = np.zeros_like(is_first)
    foreign[:, :-1] = np.logical_or.accumulate(is_first[:, :0:-1], axis=1)[:, ::-1]
    frames = flat_obs.take(slots, axis=0)  # (B, stack, C, ...)
    frames[foreign] = 0
    return frames.reshape(len(row), stack * obs_shape[0], *obs_shape[1:])
