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
