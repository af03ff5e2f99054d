"""Batches drawn in two compiled calls (switch `compiled_draw`): the same rows and the same bits as sampler.py and window.py,
without the thirty small NumPy calls, which cost more than the work on the batch."""

import numpy as np

from fastdqn.replay.ring import Ring
from fastdqn.replay.sampler import UniformSampler
from fastdqn.transition import Batch


class CompiledSampler(UniformSampler):
    """Draws the same numbers from the same random stream."""

    def draw(self, ring: Ring, batch_size: int, batches: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        from fastdqn.replay.fast.draw_kernels import choose_rows  # here, because importing numba takes half a second

        rows = batches * batch_size
        drawn, low, count, ends = self.candidates(ring, rows)
        lane, row, weight = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.float32)
        choose_rows(drawn, low, count, ends, ring.flags, lane, row, weight)
        return lane, row, weight


def compiled_window(
    ring: Ring,
    lane: np.ndarray,
    row: np.ndarray,
    weight: np.ndarray,
    *,
    stack: int,
    n_step: int,
    gamma: float,
    clip_rewards: bool,
) -> Batch:
    """As window.window."""
    from fastdqn.replay.fast.draw_kernels import look_at_rows

    size, obs_shape = len(row), ring.obs.shape[2:]
    action, returns, discount = np.empty(size, np.int64), np.empty(size, np.float32), np.empty(size, np.float32)
    slots, foreign = np.empty((2, size, stack), np.int64), np.empty((2, size, stack), np.bool_)
    some_are_foreign = look_at_rows(
        ring.action,
        ring.reward,
        ring.flags,
        lane,
        row,
        n_step,
        np.float32(gamma),
        clip_rewards,
        action,
        returns,
        discount,
        slots,
        foreign,
    )
    # take() copies whole rows, several times faster than a compiled loop over their bytes
    frames = ring.obs.reshape(-1, *obs_shape).take(slots, axis=0)  # (2, B, stack, C, ...)
    if some_are_foreign:
        frames[foreign] = 0
    state, next_state = frames.reshape(2, size, stack * obs_shape[0], *obs_shape[1:])
    return Batch(state, action, returns, discount, next_state, weight, np.stack([lane, row], axis=1))
