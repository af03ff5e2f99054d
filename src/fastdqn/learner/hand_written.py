"""The update with its backward pass written by hand (switch `hand_written`): the same numbers without autograd.

Autograd keeps a graph, allocates every gradient anew and walks Python objects that are as slow as the arithmetic of a
small network. The networks here are chains of convolutions, ReLUs and linear layers, whose gradients fit on a page
(chain.py).
"""

import torch
from torch import Tensor

from fastdqn.config import LearnerConfig
from fastdqn.learner.chain import Chain, chain_of
from fastdqn.learner.flat import flat_of
from fastdqn.learner.network import QNetwork
from fastdqn.learner.one_pass import OnePass
from fastdqn.learner.td import make_td
from fastdqn.learner.update import weights_of
from fastdqn.transition import Batch


def can_be_written_by_hand(network: QNetwork) -> bool:
    """Whether the network is such a chain with nothing frozen; a network of the user's own may be anything."""
    return chain_of(network) is not None and all(weight.requires_grad for weight in network.parameters())


class HandWrittenUpdate:
    """One update, and before several of them the target network's values for all."""

    def __init__(
        self,
        online: QNetwork,
        target: QNetwork,
        optimizer: torch.optim.Optimizer,
        config: LearnerConfig,
        dtype: torch.dtype = torch.float32,
        fold: bool = False,
    ) -> None:
        """`dtype` is what the passes are computed in; weights, their gradients and the loss are float32. `fold`: the first
        convolution is folded (folding.py)."""
        self._mine = Chain(online, dtype, fold, short_gradients=isinstance(optimizer, OnePass))
        self._theirs = self._mine if target is online else Chain(target, dtype, fold)
        self._optimizer, self._config, self._dtype = optimizer, config, dtype
        self._weights = weights_of(optimizer)
        self._td = make_td(config, self._weights[0].device.type)
        self._take_weights, self._clip = self._mine.take_weights, self._clip_in_place
        if isinstance(optimizer, OnePass):
            optimizer.take(self._mine.gradients, self._mine.copies)
            self._take_weights, self._clip = self._mine.keep_up, optimizer.clip

    @torch.no_grad()
    def look_ahead(self, batch: Batch) -> tuple[Tensor, ...]:
        """What __call__ takes beside the batch, or a part of it: the target network's values (switch `target_ahead`)."""
        self.follow_target()
        return (self._theirs.values(self._mine.prepared(batch.next_state)),)

    @torch.no_grad()
    def __call__(self, batch: Batch, next_values: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`next_values`: the target network's for the next states, (B, actions), where they are known already."""
        mine, theirs, size = self._mine, self._theirs, len(batch.action)
        self._take_weights()
        self.follow_target()
        if self._config.double:  # one pass for both states: the second half is the next one's
            both = mine.forward(mine.prepared(torch.cat([batch.state, batch.next_state])))
            passed, choosing, next_state = [values[:size] for values in both], both[-1][size:], both[0][size:]
        else:
            passed, choosing, next_state = mine.forward(mine.prepared(batch.state)), None, None
        if next_values is None:
            next_values = theirs.values(mine.prepared(batch.next_state) if next_state is None else next_state)
        slope, loss, q_mean = self._td(passed[-1], next_values, choosing, batch)
        mine.backward(passed, slope.to(self._dtype))
        if self._config.clip_grad_norm > 0:
            self._clip(self._config.clip_grad_norm)
        self._optimizer.step()
        return loss, q_mean

    def _clip_in_place(self, largest: float) -> None:
        gradients = [weight.grad for weight in self._weights if weight.grad is not None]
        flat = flat_of(gradients)
        clip_norm(gradients if flat is None else [flat], largest)

    def follow_target(self) -> None:
        """Shortens the target network's weights anew if they moved. Not in a graph: its recording would decide for all."""
        recording = self._weights[0].is_cuda and torch.cuda.is_current_stream_capturing()
        if self._theirs is not self._mine and not recording and self._theirs.has_moved():
            self._theirs.take_weights()


def clip_norm(gradients: list[Tensor], largest: float) -> None:
    """As nn.utils.clip_grad_norm_ does, number for number; but where looking at the norm costs nothing, gradients that are
    short enough are not multiplied by 1."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    share = largest / (norm + 1e-6)
    if norm.device.type != "cpu" or not share >= 1.0:  # not a number is not short enough
        torch._foreach_mul_(gradients, share.clamp_(max=1.0))
