"""Copies batches from host memory to the learner's device: plainly, or asynchronously from pinned memory (switch
`pinned_copies`)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastdqn.transition import Batch

Transfer = Callable[[Batch], Batch]


def no_transfer(batch: Batch) -> Batch:
    """For a replay that draws on the device."""
    return batch


def plain_transfer(device: str) -> Transfer:
    """Arrays become tensors without a copy on the CPU; `index` is not copied, the update does not need it."""

    def transfer(batch: Batch) -> Batch:
        return _each(batch, lambda tensor: tensor.to(device))

    return transfer


def pinned_transfer(device: str) -> Transfer:
    """Each field is copied into a pinned buffer, and from there to the GPU asynchronously. Two sets of buffers alternate,
    and a set is overwritten only after the copy out of it has finished."""
    sets: list[dict[str, Tensor]] = [{}, {}]
    copied: list[Any] = [torch.cuda.Event() for _ in sets]  # type: ignore[no-untyped-call]
    turn = 0

    def transfer(batch: Batch) -> Batch:
        nonlocal turn
        turn = 1 - turn
        buffers, done = sets[turn], copied[turn]
        done.synchronize()  # returns at once if the event was never recorded
        names = iter(name for name in Batch._fields if name != "index")

        def move(tensor: Tensor) -> Tensor:
            name = next(names)
            if name not in buffers or buffers[name].shape != tensor.shape:
                buffers[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            buffers[name].copy_(tensor)
            return buffers[name].to(device, non_blocking=True)

        moved = _each(batch, move)
        done.record()
        return moved

    return transfer


def transfer_ahead(device: str) -> tuple[Callable[[Batch], Any], Callable[[Any], Batch]]:
    """For a thread that copies batches during updates: on its own CUDA stream, from pinned memory. The first function is for
    the thread; the second for the learner, whose stream waits for the copy while Python does not."""
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    transfer = pinned_transfer(device)

    def send(batch: Batch) -> Any:
        with torch.cuda.stream(stream):
            moved = transfer(batch)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record(stream)
        return moved, done

    def receive(sent: Any) -> Batch:
        moved, done = sent
        learning = torch.cuda.current_stream(device)
        learning.wait_event(done)
        for tensor in moved[:-1]:
            tensor.record_stream(learning)  # its memory is not reused before the learner is done with it
        return Batch(*moved)

    return send, receive


def _each(batch: Batch, move: Callable[[Tensor], Tensor]) -> Batch:
    fields: dict[str, Any] = {
        name: move(torch.from_numpy(value) if isinstance(value, np.ndarray) else value)
        for name, value in batch._asdict().items()
        if name != "index"
    }
    return Batch(**fields, index=batch.index)
