"""The compiled loops of compiled_draw.py: choosing rows and reading them. window.py and sampler.py explain the rules."""

import numpy as np

from fastdqn.device.kernel import kernel
from fastdqn.replay.ring import FIRST, TAIL, TERMINAL


@kernel
def choose_rows(
    drawn: np.ndarray,  # (candidates, B): numbers of valid starts, counted over all lanes
    low: np.ndarray,  # (L,) first valid start
    count: np.ndarray,  # (L,) how many
    ends: np.ndarray,  # (L,) their running sum
    flags: np.ndarray,  # (L, T)
    lane: np.ndarray,  # (B,); outputs from here on
    row: np.ndarray,
    weight: np.ndarray,
) -> None:
    """Takes the first candidate that is no TAIL; if all are, the first one with weight 0."""
    length = flags.shape[1]
    for b in range(drawn.shape[1]):
        weight[b] = 0.0
        for candidate in range(drawn.shape[0]):
            number = drawn[candidate, b]
            in_lane = np.searchsorted(ends, number, side="right")
            start = low[in_lane] + number - (ends[in_lane] - count[in_lane])
            usable = (flags[in_lane, start % length] & TAIL) == 0
            if candidate == 0 or usable:
                lane[b], row[b] = in_lane, start
            if usable:
                weight[b] = 1.0
                break


@kernel
def look_at_rows(
    stored_action: np.ndarray,  # (L, T), as the next two
    stored_reward: np.ndarray,
    flags: np.ndarray,
    lane: np.ndarray,  # (B,)
    row: np.ndarray,
    n_step: int,
    gamma: np.float32,
    clip_rewards: bool,
    action: np.ndarray,  # (B,); outputs from here on
    returns: np.ndarray,
    discount: np.ndarray,
    frames: np.ndarray,  # (2, B, stack): slots of the frames of the state and of the next state, counted over all lanes
    foreign: np.ndarray,  # (2, B, stack): whether such a frame belongs to another game and must be zero
) -> bool:
    """Returns whether there is any foreign frame."""
    length, any_foreign = flags.shape[1], False
    for b in range(len(row)):
        total, share, steps = np.float32(0.0), np.float32(1.0), 0
        for k in range(n_step):
            slot = (row[b] + k) % length
            if flags[lane[b], slot] & TAIL:
                break
            reward = stored_reward[lane[b], slot]
            if clip_rewards:
                reward = min(max(reward, np.float32(-1.0)), np.float32(1.0))
            total += share * reward
            share *= gamma
            steps += 1
            if flags[lane[b], slot] & TERMINAL:
                share = np.float32(0.0)
                break
        action[b], returns[b], discount[b] = stored_action[lane[b], row[b] % length], total, share
        any_foreign |= _stack(flags, lane[b], row[b], frames[0, b], foreign[0, b])
        any_foreign |= _stack(flags, lane[b], row[b] + steps, frames[1, b], foreign[1, b])
    return any_foreign


@kernel
def _stack(flags: np.ndarray, lane: int, newest: int, frames: np.ndarray, foreign: np.ndarray) -> bool:
    """The newest frame last. Frames older than a FIRST one belong to another game."""
    length, stack, in_another = flags.shape[1], len(frames), False
    for place in range(stack - 1, -1, -1):
        slot = (newest - (stack - 1 - place)) % length
        frames[place], foreign[place] = lane * length + slot, in_another
        in_another |= (flags[lane, slot] & FIRST) != 0
    return foreign[0]
