"""The compiled loops of one_pass.py: a step of Adam or RMSprop over flat weights, each number read once and written once.

Gradients are float32 or bfloat16 (bfloat16_kernel.py); `copy`, if there is one, gets the new weights as bfloat16.
"""

import numpy as np

from fastdqn.device.kernel import loose_kernel
from fastdqn.learner.fast.bfloat16_kernel import to_bfloat16, to_float32


@loose_kernel
def adam(
    weight: np.ndarray,
    gradient: np.ndarray,
    mean: np.ndarray,
    square: np.ndarray,
    copy: np.ndarray | None,
    step_size: float,  # lr / (1 - beta1 ** step)
    root: float,  # sqrt(1 - beta2 ** step)
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,  # AdamW's: lr * weight_decay; 0 for Adam
) -> None:
    step, eps_ = np.float32(step_size * root), np.float32(eps * root)
    keep1, take1 = np.float32(beta1), np.float32(1.0 - beta1)
    keep2, take2 = np.float32(beta2), np.float32(1.0 - beta2)
    kept = np.float32(1.0 - decay)
    for i in range(len(weight)):
        g = to_float32(gradient[i])
        m = keep1 * mean[i] + take1 * g
        v = keep2 * square[i] + take2 * g * g
        mean[i] = m
        square[i] = v
        moved = kept * weight[i] - step * m / (np.sqrt(v) + eps_)  # one division: it and the root take most of the time
        weight[i] = moved
        if copy is not None:
            copy[i] = to_bfloat16(moved)


@loose_kernel
def rmsprop(
    weight: np.ndarray,
    gradient: np.ndarray,
    square: np.ndarray,
    mean: np.ndarray,
    copy: np.ndarray | None,
    lr: float,
    alpha: float,
    eps: float,
) -> None:
    """Centred: divides by the gradients' standard deviation around their mean."""
    step, eps_ = np.float32(lr), np.float32(eps)
    keep, take = np.float32(alpha), np.float32(1.0 - alpha)
    for i in range(len(weight)):
        g = to_float32(gradient[i])
        s = keep * square[i] + take * g * g
        m = mean[i] + take * (g - mean[i])
        square[i] = s
        mean[i] = m
        spread = np.sqrt(max(s - m * m, np.float32(0)))  # rounding may make it negative
        moved = weight[i] - step * g / (spread + eps_)
        weight[i] = moved
        if copy is not None:
            copy[i] = to_bfloat16(moved)


@loose_kernel
def squares(gradient: np.ndarray) -> float:
    total = np.float32(0)
    for i in range(len(gradient)):
        g = to_float32(gradient[i])
        total += g * g
    return float(total)
