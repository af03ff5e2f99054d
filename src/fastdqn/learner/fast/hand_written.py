"""A hand-written backward pass (switch `hand_written`): the same gradients without autograd.

Autograd builds a graph, allocates every gradient anew and goes through Python objects, which takes as long as the
arithmetic of a small network. Most networks here are chains of convolutions, ReLUs and linear layers, whose gradients fit
on a page (chain.py).
"""

import torch
from torch import Tensor

from fastdqn.learner.backprop import Learned
from fastdqn.learner.fast.chain import Chain, why_no_chain
from fastdqn.learner.fast.one_pass import OnePass
from fastdqn.learner.fast.output_gradient import make_output_gradient
from fastdqn.learner.loss import Loss
from fastdqn.learner.network import QNetwork
from fastdqn.learner.passes import Passes
from fastdqn.transition import Batch


def why_not_by_hand(network: QNetwork) -> str:
    """Why this network is no such chain, as a user-defined one may not be; or the empty string."""
    if not all(weight.requires_grad for weight in network.parameters()):
        return "some of its weights are frozen"
    if any(weight.dtype != torch.float32 for weight in network.parameters()):
        return "some of its weights are not float32"
    return why_no_chain(network)


class HandWritten:
    """Backprop for chains. It joins passes where that makes one matrix product of two."""

    def __init__(
        self,
        online: QNetwork,
        target: QNetwork,
        loss: Loss,
        optimizer: torch.optim.Optimizer,
        dtype: torch.dtype = torch.float32,
        fold: bool = False,
    ) -> None:
        """`dtype` is that of the passes; weights and loss are float32, and so are gradients unless the optimizer takes
        bfloat16. `fold`: the first convolution is folded (folding.py)."""
        self._mine = Chain(online, dtype, fold, bfloat16_gradients=isinstance(optimizer, OnePass))
        self._theirs = self._mine if target is online else Chain(target, dtype, fold)
        self._rule, self._dtype = loss.bootstrap, dtype
        self._weight = next(online.parameters())
        self._output_gradient = make_output_gradient(loss, self._weight.device.type)
        self._cast_weights = self._mine.cast_weights
        if isinstance(optimizer, OnePass):
            optimizer.take(self._mine.weights, self._mine.gradients, self._mine.copies)
            self._cast_weights = self._mine.keep_up

    @torch.no_grad()
    def look_ahead(self, batch: Batch) -> tuple[Tensor, ...]:
        """The target network's outputs (switch `target_ahead`)."""
        self.follow_target()
        states = (batch.next_state, batch.state) if self._rule.needs_target else (batch.next_state,)
        return tuple(self._theirs.outputs(self._mine.prepared(state)) for state in states)

    @torch.no_grad()
    def __call__(self, batch: Batch, *known: Tensor) -> Learned:
        mine, theirs, size = self._mine, self._theirs, len(batch.action)
        self._cast_weights()
        self.follow_target()
        if self._rule.needs_online_next:  # one pass for both: the second half is the next states
            both = mine.forward(mine.prepared(torch.cat([batch.state, batch.next_state])))
            passed, next_state = [values[:size] for values in both], both[0][size:]
            online_next = mine.shaped(both[-1][size:])
        else:
            passed, online_next, next_state = mine.forward(mine.prepared(batch.state)), None, None
        if not known:
            next_state = mine.prepared(batch.next_state) if next_state is None else next_state
            known = (theirs.outputs(next_state),)
            if self._rule.needs_target:
                known = (*known, theirs.outputs(passed[0]))
        target_next, *target = known
        passes = Passes(mine.shaped(passed[-1]), target_next, online_next, *target)
        gradient, learned = self._output_gradient(passes, batch)
        mine.backward(passed, gradient.flatten(1).to(self._dtype))
        return learned

    def follow_target(self) -> None:
        """Casts the target network's weights again if they changed. Not during graph capture, which would fix the choice."""
        recording = self._weight.is_cuda and torch.cuda.is_current_stream_capturing()
        if self._theirs is not self._mine and not recording and self._theirs.has_moved():
            self._theirs.cast_weights()
