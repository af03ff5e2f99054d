"""All weights in one buffer, so that one kernel can update them all (switch `wide_optimizer`)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

APART = 64  # a weight starts at a multiple of this: matrix products need aligned operands


def lay_flat(network: nn.Module) -> None:
    """Moves the weights of a network into one buffer, and allocates one for their gradients. Values are kept."""
    weights = list(network.parameters())
    assert len({weight.dtype for weight in weights}) == 1, "one buffer has one dtype"
    starts, end = [], 0
    for weight in weights:
        starts.append(end)
        end += -(-weight.numel() // APART) * APART
    flat, gradients = (torch.zeros(end, dtype=weights[0].dtype, device=weights[0].device) for _ in range(2))
    for weight, start in zip(weights, starts, strict=True):
        own = flat.as_strided(weight.shape, weight.stride(), start)
        own.copy_(weight.data)
        weight.data = own
        if weight.requires_grad:
            weight.grad = like_in(gradients, own)


def flat_of(tensors: Sequence[Tensor]) -> Tensor | None:
    """The one buffer that contains all of these, or None."""
    storage = tensors[0].untyped_storage()
    if len(tensors) < 2 or any(tensor.untyped_storage().data_ptr() != storage.data_ptr() for tensor in tensors):
        return None
    size = storage.nbytes() // tensors[0].element_size()
    return tensors[0].as_strided((size,), (1,), 0)


def like_in(flat: Tensor, tensor: Tensor) -> Tensor:
    """The part of `flat` with the shape, strides and offset that `tensor` has in its own buffer."""
    return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
