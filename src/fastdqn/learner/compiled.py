"""The loss and its gradients through torch.compile (switch `compile`), tried once; where that fails, the plain loss."""

from typing import Any

import torch

from fastdqn.learner.loss import Loss
from fastdqn.transition import Batch


def compiled(loss: Loss, example: Batch, weights: list[torch.Tensor]) -> tuple[Loss, str]:
    """The compiled loss and an empty string, or the plain one and why. Compiling happens here, forwards and backwards on
    the example, so that it takes no time of the training; it costs 5 to 30 seconds."""

    def on_fields(*fields: Any) -> Any:
        return loss(Batch._make([*fields, None]))

    def call(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        return fast(*batch[:-1])  # all but the index, which the loss does not need

    try:
        fast = torch.compile(on_fields, dynamic=False)
        call(example)[0].backward()  # type: ignore[no-untyped-call]
    except Exception as fault:  # whatever the compiler raises, training goes on without it
        first_line = (str(fault).strip().splitlines() or [""])[0]
        return loss, f"compile is left off: torch.compile failed with {type(fault).__name__}: {first_line[:120]}"
    finally:
        for weight in weights:
            weight.grad = None
    return call, ""
