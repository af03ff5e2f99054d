"""The compiled loops of lean.py. Each walks its arrays once and allocates nothing."""

import numpy as np

from fastdqn.kernel import loose_kernel


@loose_kernel
def first_layer(states: np.ndarray, scale: float, weight: np.ndarray, bias: np.ndarray, out: np.ndarray) -> None:
    """out = relu(states * scale @ weight + bias), skipping zeros of the states. `weight` is (inputs, width)."""
    width = len(bias)
    for row in range(len(states)):
        line = out[row]
        for j in range(width):
            line[j] = bias[j]
        for i in range(states.shape[1]):
            if states[row, i] != 0:
                value = np.float32(states[row, i]) * np.float32(scale)
                for j in range(width):
                    line[j] += value * weight[i, j]
        for j in range(width):
            line[j] = max(line[j], np.float32(0))


@loose_kernel
def first_layer_back(states: np.ndarray, scale: float, slope: np.ndarray, weight: np.ndarray) -> None:
    """weight = (states * scale).T @ slope: the gradient of first_layer's weight, skipping zeros of the states."""
    width = slope.shape[1]
    weight[:] = np.float32(0)
    for row in range(len(states)):
        for i in range(states.shape[1]):
            if states[row, i] != 0:
                value = np.float32(states[row, i]) * np.float32(scale)
                for j in range(width):
                    weight[i, j] += value * slope[row, j]


@loose_kernel
def through_relu(slope: np.ndarray, out: np.ndarray, bias: np.ndarray) -> None:
    """The slope before a ReLU from the one behind it, in place; and its sum over the rows, which is the bias's gradient."""
    bias[:] = np.float32(0)
    for row in range(len(slope)):
        for j in range(slope.shape[1]):
            value = slope[row, j] if out[row, j] > 0 else np.float32(0)
            slope[row, j] = value
            bias[j] += value


@loose_kernel
def sum_rows(slope: np.ndarray, out: np.ndarray) -> None:
    out[:] = np.float32(0)
    for row in range(len(slope)):
        for j in range(slope.shape[1]):
            out[j] += slope[row, j]


@loose_kernel
def squares(flat: np.ndarray) -> float:
    total = np.float32(0)
    for i in range(len(flat)):
        total += flat[i] * flat[i]
    return float(total)


@loose_kernel
def adam(
    weight: np.ndarray,
    gradient: np.ndarray,
    mean: np.ndarray,
    square: np.ndarray,
    step_size: float,  # lr / (1 - beta1 ** step)
    root: float,  # sqrt(1 - beta2 ** step)
    beta1: float,
    beta2: float,
    eps: float,
) -> None:
    """torch's Adam over one flat float32 array."""
    step, eps_ = np.float32(step_size * root), np.float32(eps * root)
    keep1, take1 = np.float32(beta1), np.float32(1.0 - beta1)
    keep2, take2 = np.float32(beta2), np.float32(1.0 - beta2)
    for i in range(len(weight)):
        g = gradient[i]
        m = keep1 * mean[i] + take1 * g
        v = keep2 * square[i] + take2 * g * g
        mean[i] = m
        square[i] = v
        weight[i] -= step * m / (np.sqrt(v) + eps_)  # one division: it and the root are what takes the time
