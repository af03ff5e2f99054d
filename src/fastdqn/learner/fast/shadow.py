"""Copies of the weights in bfloat16 for autograd (switch `shadow_weights`): any network, without autocast.

Autocast casts every weight at every use, and every gradient back. Here the passes use a copy of the network with bfloat16
weights, and the optimizer updates the bfloat16 copies. Norms, the last layer and everything that is not a plain linear
layer or convolution stay float32 and share their memory with the network's own.
"""

import copy
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

from fastdqn.learner.backprop import Autograd, Learned, PassesAndLoss
from fastdqn.learner.fast.chain import Moves
from fastdqn.learner.fast.one_pass import OnePass
from fastdqn.learner.network import QNetwork
from fastdqn.learner.sequence import has_weight_hooks, kept_by, random_states_kept
from fastdqn.transition import Batch


class Shadow:
    """The copy of a network that the passes use, and the pairs of own and copied weights."""

    def __init__(self, network: QNetwork, dtype: torch.dtype, example: Tensor) -> None:
        """`example`: a few states. Errors that a user-defined network raises in a pass are raised here."""
        if has_weight_hooks(network):
            raise ValueError("a weight of the network has a hook")
        self.network = copy.deepcopy(network)
        pairs = list(zip(network.parameters(), self.network.parameters(), strict=True))
        with random_states_kept():
            to_cast = _weights_to_cast(self.network, example)
        for own, weight in pairs:
            weight.data = own.data.to(dtype) if weight in to_cast else own.data
        self.pairs = [(own, weight) for own, weight in pairs if own.requires_grad]
        self._cast = [weight.data for _, weight in pairs if weight in to_cast]
        self._own: list[Tensor] = [own for own, weight in pairs if weight in to_cast]
        self._moves = Moves(self._own)
        with random_states_kept():
            self._try_out(example)
        for own_layer, layer in zip(network.modules(), self.network.modules(), strict=True):
            layer._buffers = own_layer._buffers  # shared running means

    def _try_out(self, example: Tensor) -> None:
        known, weights = kept_by(self.network), [weight for _, weight in self.pairs]
        with self.network.evaluating():
            total = self.network.outputs(example).sum()
        if weights and any(gradient is None for gradient in torch.autograd.grad(total, weights, allow_unused=True)):
            raise ValueError("the network has weights that its forward does not use")
        self.network.outputs(example)
        if kept_by(self.network) != known:
            raise ValueError("the forward of the network keeps something between calls")

    def follow(self) -> None:
        """Casts the weights again if anything but a one-pass optimizer has changed them."""
        if self._moves.seen():
            self.cast_again()

    @torch.no_grad()
    def cast_again(self) -> None:
        torch._foreach_copy_(self._cast, self._own)


class _Linear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x.to(self.weight.dtype), self.weight, self.bias)


class _Conv2d(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return self._conv_forward(x.to(self.weight.dtype), self.weight, self.bias)


_PLAIN: dict[type[nn.Module], type[nn.Module]] = {nn.Linear: _Linear, nn.Conv2d: _Conv2d}


def _weights_to_cast(network: QNetwork, example: Tensor) -> set[nn.Parameter]:
    """Makes every layer cast its input to the dtype of its weights; returns the weights that are to be bfloat16."""
    layers = [layer for layer in network.modules() if next(layer.parameters(recurse=False), None) is not None]
    plain = [layer for layer in layers if type(layer) in _PLAIN]
    last = _last_layers(network, plain, example)
    owners = Counter(weight for layer in layers for weight in layer.parameters(recurse=False))
    for layer in layers:
        if layer in plain:
            layer.__class__ = _PLAIN[type(layer)]
        else:
            layer.register_forward_pre_hook(_in_float32)
    shared = [layer for layer in plain if any(owners[weight] > 1 for weight in layer.parameters())]
    return {weight for layer in plain if layer not in [*last, *shared] for weight in layer.parameters()}


def _last_layers(network: QNetwork, layers: list[nn.Module], example: Tensor) -> list[nn.Module]:
    """The layer that a pass calls last, and linear layers as wide as the output or as one action's part of it: a dueling
    network ends with two of them."""
    called = list[nn.Module]()
    hooks = [layer.register_forward_hook(lambda layer, given, answer: called.append(layer)) for layer in layers]
    with torch.no_grad(), network.evaluating():
        answer = network.outputs(example)
    for hook in hooks:
        hook.remove()
    widths = (answer[0].numel(), network.head.outputs)
    return [*called[-1:], *(layer for layer in layers if isinstance(layer, nn.Linear) and layer.out_features in widths)]


def _in_float32(layer: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.float() if isinstance(value, Tensor) and value.is_floating_point() else value for value in given)


class ShadowAutograd(Autograd):
    """Autograd through the copies; their gradients are written where the optimizer reads them."""

    def __init__(self, online: Shadow, target: Shadow, passes: PassesAndLoss, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(passes, passes, clear=lambda: None)
        self._online, self._target = online, target
        self._weights = [weight for _, weight in online.pairs]
        self._gradients: list[Tensor] = [torch.zeros_like(weight.data) for weight in self._weights]
        self._keep_up = online.follow
        if isinstance(optimizer, OnePass):
            copies = [weight.data if weight.dtype != own.dtype else None for own, weight in online.pairs]
            optimizer.take([own for own, _ in online.pairs], self._gradients, copies)
        else:
            self._keep_up = online.cast_again  # torch's version counter misses updates by its fused optimizers
            for number, (own, _) in enumerate(online.pairs):
                own.grad = self._gradients[number] = torch.zeros_like(own)

    def look_ahead(self, batch: Batch) -> tuple[Tensor, ...]:
        self._target.follow()
        return super().look_ahead(batch)

    def __call__(self, batch: Batch, *known: Tensor) -> Learned:
        self._keep_up()
        self._target.follow()
        loss, q_mean, error = self._forward(batch, *known)
        found = torch.autograd.grad(loss, self._weights, allow_unused=True)  # a training pass may leave a layer out
        places = zip(self._gradients, found, strict=True)
        torch._foreach_copy_(self._gradients, [place.zero_() if new is None else new for place, new in places])
        return Learned(loss.detach(), q_mean, error)
