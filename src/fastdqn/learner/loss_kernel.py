"""The compiled loops of output_gradient.py: huber, mse and c51, with the bootstrap rules max and double."""

import numpy as np

from fastdqn.kernel import kernel


@kernel
def gradient_of(
    values: np.ndarray,  # (B, actions)
    next_values: np.ndarray,
    choosing: np.ndarray,  # whose largest value says which of next_values counts
    action: np.ndarray,  # (B,)
    returns: np.ndarray,
    discount: np.ndarray,
    weight: np.ndarray,
    huber: bool,
    gradient: np.ndarray,  # (B, actions): filled
    error: np.ndarray,  # (B,): filled with the TD errors
) -> tuple[float, float]:
    """The loss and the mean value of the actions taken. Each number in float32, as torch computes it; sums in float64."""
    size = len(action)
    total, q_total = 0.0, 0.0
    for b in range(size):
        q = values[b, action[b]]
        td_target = returns[b] + discount[b] * next_values[b, np.argmax(choosing[b])]
        miss = q - td_target
        if huber:
            slope = miss if miss != miss else min(max(miss, np.float32(-1.0)), np.float32(1.0))
            distance = slope * (miss - np.float32(0.5) * slope)
        else:
            slope, distance = np.float32(2.0) * miss, miss * miss
        gradient[b] = 0.0
        gradient[b, action[b]] = weight[b] * slope / np.float32(size)
        error[b] = miss
        total += weight[b] * distance
        q_total += q
    return total / size, q_total / size


@kernel
def c51_gradient_of(
    next_chances: np.ndarray,  # (B, atoms): of the next action
    log_chances: np.ndarray,  # (B, atoms): of the action taken
    v_min: float,
    v_max: float,
    action: np.ndarray,  # (B,)
    returns: np.ndarray,
    discount: np.ndarray,
    weight: np.ndarray,
    gradient: np.ndarray,  # (B, actions, atoms)
    error: np.ndarray,  # (B,): filled with the cross entropies
) -> tuple[float, float]:
    """The loss, and the mass of all TD targets that lay beyond the range. `gradient` comes with the distribution of the
    action taken and zeros elsewhere; the gradient there is that less the TD target's."""
    size, atoms = next_chances.shape
    step = (v_max - v_min) / (atoms - 1)
    wanted = np.empty(atoms)
    loss, beyond = 0.0, 0.0
    for b in range(size):
        wanted[:] = 0.0
        for i in range(atoms):
            moved = returns[b] + discount[b] * (v_min + i * step)
            if moved < v_min or moved > v_max:
                beyond += next_chances[b, i]
            place = (min(max(moved, v_min), v_max) - v_min) / step
            low = min(int(place), atoms - 2)
            wanted[low] += next_chances[b, i] * (low + 1 - place)
            wanted[low + 1] += next_chances[b, i] * (place - low)
        miss = 0.0
        for i in range(atoms):
            miss -= wanted[i] * log_chances[b, i]
            gradient[b, action[b], i] = weight[b] / size * (gradient[b, action[b], i] - wanted[i])
        error[b] = miss
        loss += weight[b] * miss
    return loss / size, beyond
