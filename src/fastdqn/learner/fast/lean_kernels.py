"""The compiled loops of lean.py. None of them allocates.

Outputs of hidden layers and gradients there, `out` and `grad_out`, are float32 or bfloat16 (bfloat16_kernel.py); the
network's values and the gradients that are summed here are float32.
"""

import numpy as np

from fastdqn.device.kernel import loose_kernel
from fastdqn.learner.fast.bfloat16_kernel import in_dtype_of, to_float32

ZERO = np.float32(0)


@loose_kernel
def first_layer(
    states: np.ndarray,
    scale: float,
    weight: np.ndarray,  # (inputs, width)
    bias: np.ndarray,
    floor: float,  # 0 for a ReLU, minus infinity for none
    line: np.ndarray,  # (width,): scratch space to sum a row in
    out: np.ndarray,
) -> None:
    """`out` = max(states * scale @ weight + bias, floor), skipping zeros of the states."""
    width = len(bias)
    for row in range(len(states)):
        for j in range(width):
            line[j] = bias[j]
        for i in range(states.shape[1]):
            if states[row, i] != 0:
                value = np.float32(states[row, i]) * np.float32(scale)
                for j in range(width):
                    line[j] += value * weight[i, j]
        for j in range(width):
            out[row, j] = in_dtype_of(out[row, j], max(line[j], np.float32(floor)))


@loose_kernel
def first_layer_back(states: np.ndarray, scale: float, grad_out: np.ndarray, weight: np.ndarray) -> None:
    """`weight` = (states * scale).T @ grad_out: the gradient of first_layer's weight, skipping zeros of the states."""
    width = grad_out.shape[1]
    weight[:] = ZERO
    for row in range(len(states)):
        for i in range(states.shape[1]):
            if states[row, i] != 0:
                value = np.float32(states[row, i]) * np.float32(scale)
                for j in range(width):
                    weight[i, j] += value * to_float32(grad_out[row, j])


@loose_kernel
def through_relu(grad_out: np.ndarray, out: np.ndarray, bias: np.ndarray) -> None:
    """The gradient at a ReLU's input from that at its output, in place; its sum over the rows is the bias gradient."""
    bias[:] = ZERO
    for row in range(len(grad_out)):
        for j in range(grad_out.shape[1]):
            value = to_float32(grad_out[row, j]) if to_float32(out[row, j]) > 0 else ZERO
            grad_out[row, j] = in_dtype_of(grad_out[row, j], value)
            bias[j] += value


@loose_kernel
def norm_and_relu(
    weight: np.ndarray,
    bias: np.ndarray,
    eps: float,
    out: np.ndarray,  # (rows, width): the input, overwritten with the output
    normed: np.ndarray,  # (rows, width): filled for the backward pass: (input - mean) / standard deviation
    spread: np.ndarray,  # (rows,): filled with 1 / standard deviation
) -> None:
    """Layer norm, then ReLU."""
    width = np.float32(out.shape[1])
    for row in range(len(out)):
        total, squares = ZERO, ZERO
        for j in range(out.shape[1]):
            total += to_float32(out[row, j])
        mean = total / width
        for j in range(out.shape[1]):
            normed[row, j] = to_float32(out[row, j]) - mean
            squares += normed[row, j] * normed[row, j]
        spread[row] = np.float32(1) / np.sqrt(squares / width + np.float32(eps))
        for j in range(out.shape[1]):
            normed[row, j] *= spread[row]
            out[row, j] = in_dtype_of(out[row, j], max(weight[j] * normed[row, j] + bias[j], ZERO))


@loose_kernel
def through_norm_and_relu(
    grad_out: np.ndarray,  # (rows, width): in place
    out: np.ndarray,
    weight: np.ndarray,
    normed: np.ndarray,
    spread: np.ndarray,
    of_weight: np.ndarray,  # outputs from here on
    of_bias: np.ndarray,
    of_bias_below: np.ndarray,  # of the layer that the norm follows
) -> None:
    width = np.float32(grad_out.shape[1])
    of_weight[:] = ZERO
    of_bias[:] = ZERO
    of_bias_below[:] = ZERO
    for row in range(len(grad_out)):
        total, along = ZERO, ZERO
        for j in range(grad_out.shape[1]):
            value = to_float32(grad_out[row, j]) if to_float32(out[row, j]) > 0 else ZERO
            of_weight[j] += value * normed[row, j]
            of_bias[j] += value
            total += value * weight[j]
            along += value * weight[j] * normed[row, j]
        for j in range(grad_out.shape[1]):
            value = to_float32(grad_out[row, j]) if to_float32(out[row, j]) > 0 else ZERO
            passed = spread[row] * (value * weight[j] - total / width - normed[row, j] * along / width)
            grad_out[row, j] = in_dtype_of(grad_out[row, j], passed)
            of_bias_below[j] += passed


@loose_kernel
def last_layer(below: np.ndarray, weight: np.ndarray, bias: np.ndarray, values: np.ndarray) -> None:
    """`values` = below @ weight.T + bias, in float32. `weight` is (actions, width)."""
    for row in range(len(below)):
        for action in range(len(weight)):
            total = ZERO
            for j in range(below.shape[1]):
                total += to_float32(below[row, j]) * weight[action, j]
            values[row, action] = total + bias[action]


@loose_kernel
def last_layer_back(
    grad_out: np.ndarray,  # (rows, actions): nonzero for the action taken
    below: np.ndarray,  # the layer's input, after a ReLU
    weight: np.ndarray,
    line: np.ndarray,  # (width,): scratch space to sum a row in
    grad_below: np.ndarray,  # outputs from here on: the gradient before that ReLU
    of_weight: np.ndarray,
    of_bias: np.ndarray,
    of_bias_below: np.ndarray,
) -> None:
    width = below.shape[1]
    of_weight[:] = ZERO
    of_bias[:] = ZERO
    of_bias_below[:] = ZERO
    for row in range(len(grad_out)):
        line[:] = ZERO
        for action in range(len(weight)):
            value = grad_out[row, action]
            if value != 0:  # also true for NaN
                of_bias[action] += value
                for j in range(width):
                    line[j] += value * weight[action, j]
                    of_weight[action, j] += value * to_float32(below[row, j])
        for j in range(width):
            passed = line[j] if to_float32(below[row, j]) > 0 else ZERO
            grad_below[row, j] = in_dtype_of(grad_below[row, j], passed)
            of_bias_below[j] += passed
