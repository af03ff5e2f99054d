"""Forward pass, loss and backward pass with torch.compile (switch `compile`), or without it if that fails."""

from typing import Any

import torch

from fastdqn.errors import first_line
from fastdqn.learner.backprop import Forward
from fastdqn.transition import Batch


def compiled(forward: Forward, example: Batch, weights: list[torch.Tensor]) -> tuple[Forward, str]:
    """The compiled function and an empty string, or the plain one and the reason. Compiles here, with a forward and backward
    pass on the example, so that it is not part of the training time; it takes 5 to 30 seconds."""

    def on_fields(known: tuple[torch.Tensor, ...], *fields: Any) -> Any:
        return forward(Batch._make([*fields, None]), *known)

    def call(batch: Batch, *known: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return fast(known, *batch[:-1])  # all but the index, which the loss does not need

    try:
        fast = torch.compile(on_fields, dynamic=False)
        call(example)[0].backward()  # type: ignore[no-untyped-call]
    except Exception as fault:  # whatever the compiler raises, training goes on without it
        return forward, f"compile is left off: torch.compile failed with {first_line(fault)}"
    finally:
        for weight in weights:
            weight.grad = None
    return call, ""
