"""The update with its backward pass written by hand (switch `hand_written`): the same numbers without autograd.

Autograd keeps a graph, allocates every gradient anew and walks Python objects that are as slow as the arithmetic of a
small network. The networks here are chains of convolutions, ReLUs and linear layers, whose gradients fit on a page:

    y = x W' + b        dx = dy W       dW = dy' x      db = sum of dy
    y = max(x, 0)       dx = dy where y > 0
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fastdqn.config import LearnerConfig
from fastdqn.learner.network import QNetwork, laid_out
from fastdqn.learner.td import make_td
from fastdqn.learner.update import weights_of
from fastdqn.transition import Batch

Layers = list[tuple[nn.Module, bool]]  # a layer with weights (or Flatten), and whether a ReLU follows it


def can_be_written_by_hand(network: QNetwork) -> bool:
    """Whether the network is such a chain with nothing frozen; a network of the user's own may be anything."""
    return chain_of(network) is not None and all(weight.requires_grad for weight in network.parameters())


def chain_of(network: QNetwork) -> Layers | None:
    body = getattr(network, "body", None)
    if not isinstance(body, nn.Sequential):
        return None
    chain: Layers = []
    for layer in body:
        if type(layer) is nn.ReLU and chain and not chain[-1][1]:
            chain[-1] = (chain[-1][0], True)
        elif _is_plain(layer):
            chain.append((layer, False))
        else:
            return None
    return chain if chain and type(chain[-1][0]) is nn.Linear and not chain[-1][1] else None


def _is_plain(layer: nn.Module) -> bool:
    """A linear layer or convolution with a bias, or a Flatten of everything but the batch."""
    if type(layer) is nn.Flatten:
        return (layer.start_dim, layer.end_dim) == (1, -1)
    if type(layer) is nn.Conv2d and (layer.padding_mode != "zeros" or isinstance(layer.padding, str)):
        return False
    return type(layer) in (nn.Linear, nn.Conv2d) and layer.bias is not None and not layer._forward_hooks


class HandWrittenUpdate:
    """One update, and before several of them the target network's values for all."""

    def __init__(
        self,
        online: QNetwork,
        target: QNetwork,
        optimizer: torch.optim.Optimizer,
        config: LearnerConfig,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """`dtype` is what the passes are computed in; weights, their gradients and the loss are float32."""
        self._mine = Chain(online, dtype)
        self._theirs = self._mine if target is online else Chain(target, dtype)
        self._optimizer, self._config, self._dtype = optimizer, config, dtype
        self._weights = weights_of(optimizer)
        self._td = make_td(config, self._weights[0].device.type)

    @torch.no_grad()
    def look_ahead(self, batch: Batch) -> tuple[Tensor, ...]:
        """What __call__ takes beside the batch, or a part of it: the target network's values (switch `target_ahead`)."""
        self.follow_target()
        return (self._theirs.values(self._mine.shortened(batch.next_state)),)

    @torch.no_grad()
    def __call__(self, batch: Batch, next_values: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`next_values`: the target network's for the next states, (B, actions), where they are known already."""
        mine, theirs, size = self._mine, self._theirs, len(batch.action)
        mine.take_weights()
        self.follow_target()
        if self._config.double:  # one pass for both states: the second half is the next one's
            both = mine.forward(mine.shortened(torch.cat([batch.state, batch.next_state])))
            passed, choosing, next_state = [values[:size] for values in both], both[-1][size:], both[0][size:]
        else:
            passed, choosing, next_state = mine.forward(mine.shortened(batch.state)), None, None
        if next_values is None:
            next_values = theirs.values(mine.shortened(batch.next_state) if next_state is None else next_state)
        slope, loss, q_mean = self._td(passed[-1], next_values, choosing, batch)
        mine.backward(passed, slope.to(self._dtype))
        if self._config.clip_grad_norm > 0:
            clip_norm([weight.grad for weight in self._weights if weight.grad is not None], self._config.clip_grad_norm)
        self._optimizer.step()
        return loss, q_mean

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


class Chain:
    """A network as a list of layers, with the weights as they are computed with: the network's own in float32, shortened
    copies otherwise. Where the network scales its input, the first weights are scaled instead: they are fewer than the
    pixels, and bytes are exact in every format."""

    def __init__(self, network: QNetwork, dtype: torch.dtype) -> None:
        chain = chain_of(network)
        assert chain is not None, "build.py asks can_be_written_by_hand first"
        self._chain, self._dtype = chain, dtype
        self._scale = network.scale
        self._network = network
        self._own: list[list[Tensor]] = [list(layer.parameters(recurse=False)) for layer, _ in chain]
        short = dtype != torch.float32
        self._taken = [[weight.data.to(dtype) if short else weight.data for weight in own] for own in self._own]
        self._first = next(number for number, own in enumerate(self._own) if own)  # the first layer with weights
        if self._scale != 1.0:
            self._taken[self._first][0] = torch.empty_like(self._own[self._first][0].data, dtype=dtype)
        pairs = [pair for some in zip(self._own, self._taken, strict=True) for pair in zip(*some, strict=True)]
        to_shorten = [pair for pair in pairs if short and (self._scale == 1.0 or pair[0] is not self._own[self._first][0])]
        self._long, self._short = [long for long, _ in to_shorten], [short for _, short in to_shorten]
        self._versions: list[int] = []
        self.take_weights()

    def take_weights(self) -> None:
        """The weights anew, shortened and scaled where they are not computed with as they are."""
        if self._scale != 1.0:
            torch.mul(self._own[self._first][0].data, self._scale, out=self._taken[self._first][0])
        if self._short:
            torch._foreach_copy_(self._short, self._long)

    def has_moved(self) -> bool:
        """Whether a target network was changed since this was last asked. Only for those: torch counts the changes that
        copying and mixing make, but not those of a fused optimizer."""
        before, self._versions = self._versions, [weight._version for own in self._own for weight in own]
        return before != self._versions

    def shortened(self, state: Tensor) -> Tensor:
        """The state in the format and layout that is computed in; not scaled, the first weights are."""
        return laid_out(state.to(self._dtype), self._network.memory_format)

    def values(self, x: Tensor) -> Tensor:
        return self.forward(x)[-1]

    def forward(self, x: Tensor) -> list[Tensor]:
        """What goes into each layer, and last what comes out."""
        passed = [x]
        for (layer, relu), taken in zip(self._chain, self._taken, strict=True):
            x = _through(layer, taken, x)
            if relu:
                x.relu_()
            passed.append(x)
        return passed

    def backward(self, passed: Sequence[Tensor], slope: Tensor) -> None:
        """Fills the gradients of the network's weights from the slope of the loss at its output."""
        for number in range(len(self._chain) - 1, -1, -1):
            layer, relu = self._chain[number]
            into, out = passed[number], passed[number + 1]
            if relu:
                slope = torch.ops.aten.threshold_backward(slope, out, 0)
            if isinstance(layer, nn.Flatten):
                slope = slope.view(into.shape) if into.is_contiguous() else slope.reshape(into.shape)
                continue
            goes_on = any(self._own[:number])  # below the first weights nobody asks
            slope = _back_through(layer, self._own[number], self._taken[number], into, slope, goes_on)
            if not goes_on:
                break
        first = self._own[self._first][0].grad
        if self._scale != 1.0 and first is not None:
            first *= self._scale


def _through(layer: nn.Module, taken: list[Tensor], x: Tensor) -> Tensor:
    if isinstance(layer, nn.Linear):
        return torch.nn.functional.linear(x, taken[0], taken[1])
    if isinstance(layer, nn.Conv2d):
        return torch.conv2d(x, taken[0], taken[1], layer.stride, layer.padding, layer.dilation, layer.groups)
    return x.flatten(1)


def _back_through(
    layer: nn.Module, own: list[Tensor], taken: list[Tensor], into: Tensor, slope: Tensor, goes_on: bool
) -> Tensor:
    """Leaves the gradients of the layer's weights and gives the slope at its input (if anybody needs it)."""
    if isinstance(layer, nn.Linear):
        _leave(own[0], slope.t() @ into)
        _leave(own[1], slope.sum(0, dtype=torch.float32))
        return slope @ taken[0] if goes_on else slope
    assert isinstance(layer, nn.Conv2d)
    back, kernel, bias = torch.ops.aten.convolution_backward(
        slope, into, taken[0], [own[1].numel()], layer.stride, layer.padding, layer.dilation, False, [0, 0], layer.groups,
        [goes_on, True, True],
    )  # fmt: skip
    _leave(own[0], kernel)
    _leave(own[1], bias)
    return back if goes_on else slope


def _leave(weight: Tensor, gradient: Tensor) -> None:
    """Into the gradient's own memory once there is some: nothing is allocated for it after the first update."""
    if weight.grad is None:
        weight.grad = torch.empty_like(weight)
    weight.grad.copy_(gradient)
