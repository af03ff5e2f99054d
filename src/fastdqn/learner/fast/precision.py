"""Lower precision: passes in bfloat16 or float16 (switches `bf16`, `fp16`), tensor cores and cuDNN (`tf32`,
`cudnn_benchmark`). Weights, gradients of weights and optimizer stay float32."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch


def autocast(device: str, dtype: torch.dtype) -> Callable[[], AbstractContextManager[Any]]:
    """For the passes. No cache of cast weights: one made under no_grad, for the TD target, would be reused for the
    online network and carry no gradient."""
    device_type = device.partition(":")[0]
    return lambda: torch.autocast(device_type, dtype=dtype, cache_enabled=False)


def set_tensor_cores(tf32: bool) -> None:
    """For the whole process: float32 matrix products and convolutions on tensor cores, or in full precision."""
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32


def set_cudnn_search(on: bool) -> None:
    """For the whole process: cuDNN times its algorithms the first time it sees a shape. Batches have one shape here."""
    torch.backends.cudnn.benchmark = on
