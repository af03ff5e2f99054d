"""The compiled loops of output_gradient.py: huber, mse and c51, with the bootstrap rules max and double."""

import numpy as np

from fastdqn.device.kernel import kernel


@kernel
def gradient_of(
    values: np.ndarray,  # (B, actions)
    next_values: np.ndarray,
    choosing: np.ndarray,  # its argmax selects one of next_values
    action: np.ndarray,  # (B,)
    returns: np.ndarray,
    discount: np.ndarray,
    weight: np.ndarray,
    huber: bool,
    gradient: np.ndarray,  # (B, actions): filled
    error: np.ndarray,  # (B,): filled with the TD errors
) -> tuple[float, float]:
    """The loss and the mean value of the actions taken. Each sample is computed in float32, as in torch; sums in float64."""
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
    next_chances: np.ndarray,  # (B, actions, atoms)
    choosing: np.ndarray,  # (B, actions): its argmax is the next action
    log_chances: np.ndarray,  # (B, actions, atoms)
    support: np.ndarray,  # (atoms,)
    action: np.ndarray,  # (B,)
    returns: np.ndarray,
    discount: np.ndarray,
    weight: np.ndarray,
    gradient: np.ndarray,  # (B, actions, atoms): the probabilities, overwritten with the gradient
    error: np.ndarray,  # (B,): filled with the cross entropies
) -> tuple[float, float, float]:
    """The loss, the mean value of the actions taken, and the mass of all TD targets beyond the range."""
    size, _, atoms = next_chances.shape
    v_min, v_max = support[0], support[-1]
    step = (float(v_max) - float(v_min)) / (atoms - 1)
    wanted = np.empty(atoms)
    loss, value, beyond = 0.0, 0.0, 0.0
    for b in range(size):
        mass = next_chances[b, np.argmax(choosing[b])]
        wanted[:] = 0.0
        for i in range(atoms):
            moved = returns[b] + discount[b] * support[i]
            if moved != moved:  # NaN is not hidden by the clamp
                wanted[:] = np.nan
                break
            if moved < v_min or moved > v_max:
                beyond += mass[i]
            place = (min(max(moved, v_min), v_max) - v_min) / step
            low = min(int(place), atoms - 2)
            wanted[low] += mass[i] * (low + 1 - place)
            wanted[low + 1] += mass[i] * (place - low)
        miss = 0.0
        for a in range(gradient.shape[1]):
            if a != action[b]:
                gradient[b, a] = 0.0
                continue
            for i in range(atoms):
                miss -= wanted[i] * log_chances[b, a, i]
                value += gradient[b, a, i] * support[i]
                gradient[b, a, i] = weight[b] / size * (gradient[b, a, i] - wanted[i])
        error[b] = miss
        loss += weight[b] * miss
    return loss / size, value / size, beyond
