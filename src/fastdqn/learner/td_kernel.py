"""The compiled loop of td.py."""

import numpy as np

from fastdqn.kernel import kernel


@kernel
def slopes_of(
    values: np.ndarray,  # (B, actions)
    next_values: np.ndarray,
    choosing: np.ndarray,  # whose largest value says which of next_values counts
    action: np.ndarray,  # (B,)
    returns: np.ndarray,
    discount: np.ndarray,
    weight: np.ndarray,
    huber: bool,
    slopes: np.ndarray,  # (B, actions): filled
) -> tuple[float, float]:
    """The loss and the mean value of the actions taken. Each number in float32, as torch computes it; sums in float64."""
    size = len(action)
    total, q_total = 0.0, 0.0
    for b in range(size):
        q = values[b, action[b]]
        goal = returns[b] + discount[b] * next_values[b, np.argmax(choosing[b])]
        miss = q - goal
        if huber:
            slope = miss if miss != miss else min(max(miss, np.float32(-1.0)), np.float32(1.0))
            error = slope * (miss - np.float32(0.5) * slope)
        else:
            slope, error = np.float32(2.0) * miss, miss * miss
        slopes[b] = 0.0
        slopes[b, action[b]] = weight[b] * slope / np.float32(size)
        total += weight[b] * error
        q_total += q
    return total / size, q_total / size
