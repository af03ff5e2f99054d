"""From a batch to gradients: the passes through the networks, the loss, and the backward pass.

Autograd works for any module. Networks of a few plain layers can use a hand-written backward pass instead:
hand_written.py and lean.py.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from fastdqn.learner.loss import Loss
from fastdqn.learner.network import QNetwork
from fastdqn.learner.passes import Passes
from fastdqn.transition import Batch


class Learned(NamedTuple):
    """Results of one update. Scalars are tensors on the device, or plain numbers."""

    loss: Tensor | float
    q_mean: Tensor | float  # mean Q-value of the actions taken
    error: Tensor  # (B,): its absolute value is the sample's priority; valid until the next update


class Backprop(Protocol):
    """Called with a batch, and with the results of `look_ahead` for it if there are any, it computes the gradient of every
    weight: in the weight's own `grad`, or in a buffer that it has given to the optimizer."""

    def __call__(self, batch: Batch, *known: Tensor) -> Learned: ...

    def look_ahead(self, batch: Batch) -> tuple[Tensor, ...]:
        """Outputs that depend only on the target network, row by row: they can be computed for many updates at once."""
        ...

    def follow_target(self) -> None:
        """Host-side work after the target network has changed, which a CUDA graph does not contain."""
        ...


# (batch, results of `look_ahead`) -> (loss, mean value, error per sample)
Forward = Callable[..., tuple[Tensor, Tensor, Tensor]]


class PassesAndLoss:
    """The forward half: the networks' outputs for a batch, and its loss."""

    def __init__(
        self,
        online: QNetwork,
        target: QNetwork,
        loss: Loss,
        without_graph: bool = True,
        precision: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """`without_graph`: the TD target is computed under torch.no_grad (switch `no_grad`); otherwise, as in textbooks, an
        autograd graph is built and detached at its end. `precision` is the context that the passes run in."""
        self._online, self._target, self._loss = online, target, loss
        self._no_grad: Callable[[], AbstractContextManager[Any]] = torch.no_grad if without_graph else nullcontext
        self._precision = precision

    def look_ahead(self, batch: Batch) -> tuple[Tensor, ...]:
        with self._no_grad(), self._target.evaluating(), self._precision():
            states = (batch.next_state, batch.state) if self._loss.bootstrap.needs_target else (batch.next_state,)
            return tuple(self._target.outputs(state) for state in states)

    def __call__(self, batch: Batch, *known: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        target_next, *target = known or self.look_ahead(batch)
        online_next = None
        if self._loss.bootstrap.needs_online_next:
            with self._no_grad(), self._online.evaluating(), self._precision():
                online_next = self._online.outputs(batch.next_state)
        with self._precision():
            online = self._online.outputs(batch.state)
        per_sample = self._loss(Passes(online, target_next, online_next, *target), batch)
        return (batch.weight * per_sample.loss).mean(), per_sample.value.mean(), per_sample.error


class Autograd:
    """The general implementation: any module, any loss."""

    def __init__(
        self,
        passes: PassesAndLoss,
        forward: Forward,
        clear: Callable[[], None],
        scaled: Callable[[Tensor], Tensor] = lambda loss: loss,
    ) -> None:
        """`forward` is `passes` or its compiled version; `clear` removes the gradients of the last update; `scaled` scales
        the loss up for float16 gradients."""
        self._passes, self._forward, self._clear, self._scaled = passes, forward, clear, scaled

    @property
    def is_compiled(self) -> bool:
        return self._forward is not self._passes

    def look_ahead(self, batch: Batch) -> tuple[Tensor, ...]:
        return self._passes.look_ahead(batch)

    def __call__(self, batch: Batch, *known: Tensor) -> Learned:
        loss, q_mean, error = self._forward(batch, *known)
        self._clear()
        self._scaled(loss).backward()  # type: ignore[no-untyped-call]
        return Learned(loss.detach(), q_mean, error)

    def follow_target(self) -> None:
        """Nothing to do: the passes use the target network's own weights."""
