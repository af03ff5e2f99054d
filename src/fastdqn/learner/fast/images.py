"""Images as the first layer needs them: in the dtype and memory layout of the passes.

On a CPU bytes become channels-last bfloat16 in one compiled pass over memory; torch needs two, the second of them across
the whole image.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fastdqn.learner.network import laid_out

Prepare = Callable[[Tensor], Tensor]


def make_prepare(dtype: torch.dtype, layout: torch.memory_format, device: str) -> Prepare:
    in_one_walk = device == "cpu" and dtype == torch.bfloat16 and layout == torch.channels_last
    return compiled_prepare() if in_one_walk else plain_prepare(dtype, layout)


def plain_prepare(dtype: torch.dtype, layout: torch.memory_format) -> Prepare:
    return lambda states: laid_out(states.to(dtype), layout)


def compiled_prepare() -> Prepare:
    from fastdqn.learner.fast.image_kernel import bytes_to_channels_last  # here, because importing numba takes half a second

    plain = plain_prepare(torch.bfloat16, torch.channels_last)

    def prepare(states: Tensor) -> Tensor:
        if states.dtype != torch.uint8 or states.dim() != 4 or not states.is_contiguous():
            return plain(states)
        prepared = torch.empty_like(states, dtype=torch.bfloat16, memory_format=torch.channels_last)
        by_row = prepared.permute(0, 2, 3, 1).flatten(2)  # (B, height, width * channels), a view
        bytes_to_channels_last(states.numpy(), by_row.view(torch.uint16).numpy())
        return prepared

    return prepare
