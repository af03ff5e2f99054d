"""A network as a chain of layers whose forward and backward passes are hand-written (used by hand_written.py).

    y = x W' + b        dx = dy W       dW = dy' x      db = sum of dy
    y = max(x, 0)       dx = dy where y > 0

Passes use the network's own weights in float32, and bfloat16 copies otherwise. If the network scales its input, the first
weights are scaled instead: they are fewer than the pixels, and bytes are exact in every dtype.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fastdqn.learner.dueling import Dueling
from fastdqn.learner.fast.folding import Folding, folding_of, split
from fastdqn.learner.fast.images import make_prepare
from fastdqn.learner.flat import flat_of, like_in
from fastdqn.learner.network import QNetwork

Layers = list[tuple[nn.Module, bool]]  # a layer with weights (or Flatten), and whether a ReLU follows it


def chain_of(network: QNetwork) -> Layers | None:
    """The network's layers, or None if they are no such chain, as in some user-defined networks."""
    return None if why_no_chain(network) else _with_relus(network.layers)


def why_no_chain(network: QNetwork) -> str:
    """Why the network is not a chain of supported layers, or the empty string."""
    if not network.layers:
        return network.why_no_layers
    strange = next((layer for layer in network.layers if not _is_known(layer)), None)
    if strange is not None:
        return f"it has a layer that is not hand-written ({type(strange).__name__})"
    chain = _with_relus(network.layers)
    if chain is None or type(chain[-1][0]) not in (nn.Linear, Dueling) or chain[-1][1]:
        return "it is no chain of layers and ReLUs that ends with a linear layer"
    kinds = [type(layer) for layer, _ in chain if type(layer) is not nn.Flatten]
    if kinds[0] not in (nn.Linear, nn.Conv2d):  # the first weights include the input's scale
        return f"its first layer is a {kinds[0].__name__}"
    if nn.Flatten in [type(layer) for layer, _ in chain[_first_product(chain) :]]:  # each sample would be a matrix there
        return "it has a linear layer before it flattens"
    weights = [weight for layer, _ in chain for weight in layer.parameters()]
    if len({id(weight) for weight in weights}) < len(weights):  # their gradients would have to be added
        return "two of its layers share weights"
    if len(weights) < len(list(network.parameters())):
        return "it has weights that its forward does not use"
    return ""


def _with_relus(layers: Sequence[nn.Module]) -> Layers | None:
    """ReLUs merged with the layers that they follow; None if one follows no layer."""
    chain: Layers = []
    for layer in layers:
        if type(layer) is not nn.ReLU:
            chain.append((layer, False))
        elif not chain or chain[-1][1]:
            return None
        else:
            chain[-1] = (chain[-1][0], True)
    return chain or None


def _first_product(chain: Layers) -> int:
    return next(number for number, (layer, _) in enumerate(chain) if type(layer) in (nn.Linear, Dueling))


def _is_known(layer: nn.Module) -> bool:
    """A linear layer or convolution with a bias, a layer norm or dueling layer of ours, a Flatten of all but the batch."""
    if type(layer) is nn.ReLU or type(layer) is Dueling:
        return True
    if type(layer) is nn.Flatten:
        return (layer.start_dim, layer.end_dim) == (1, -1)
    if type(layer) is nn.LayerNorm:
        return len(layer.normalized_shape) == 1 and layer.elementwise_affine and layer.bias is not None
    if type(layer) is nn.Conv2d and (layer.padding_mode != "zeros" or isinstance(layer.padding, str)):
        return False
    return type(layer) in (nn.Linear, nn.Conv2d) and layer.bias is not None


class Chain:
    """Passes through a network's layers, with its weights in the dtype of the passes."""

    def __init__(self, network: QNetwork, dtype: torch.dtype, fold: bool = False, bfloat16_gradients: bool = False) -> None:
        """`fold`: the first convolution reads blocks of pixels as channels (folding.py), if it can. `bfloat16_gradients`:
        those of linear layers' weights stay in `dtype`, in `gradients` and not in the weights' own `grad`."""
        chain = chain_of(network)
        assert chain is not None, "build.py asks why_not_by_hand first"
        self._outputs = network.head.outputs
        self._dtype, self._layout, self._scale = dtype, network.memory_format, network.scale
        self._own: list[list[Tensor]] = [list(layer.parameters()) for layer, _ in chain]
        self._first = next(number for number, own in enumerate(self._own) if own)  # the first layer with weights
        self._folding = folding_of(chain[self._first][0]) if fold else None
        self._layers = [
            _STEPS[type(layer)](layer, relu, self._folding if number == self._first else None)
            for number, (layer, relu) in enumerate(chain)
        ]
        self._copies = Copies(self.weights, dtype)
        cast = iter(self._copies.cast)
        self._cast = [[next(cast) for _ in own] for own in self._own]
        for number, (layer, _) in enumerate(chain):
            if isinstance(layer, nn.LayerNorm):  # computed in float32, with float32 weights
                self._cast[number] = [weight.data for weight in self._own[number]]
        first = self._own[self._first][0]
        self._prepare = make_prepare(dtype, self._layout, first.device.type)
        self._reworked = self._scale != 1.0 or self._folding is not None  # the first weights: more than a cast
        if self._reworked:
            shape = first.shape if self._folding is None else self._folding.kernel_shape(first)
            layout = self._layout if self._folding is None else torch.channels_last
            self._cast[self._first][0] = torch.empty(shape, dtype=dtype, device=first.device).contiguous(
                memory_format=layout if first.dim() == 4 else torch.preserve_format
            )
        self._bfloat16: dict[Tensor, Tensor] = {}  # weight -> its gradient, where that is bfloat16
        if bfloat16_gradients and dtype != torch.float32:
            products = [layer.weight for layer, _ in chain if isinstance(layer, nn.Linear)]
            if self._reworked and products and products[0] is first:  # its gradient is reworked too, in float32
                products = products[1:]
            self._bfloat16 = {weight: torch.zeros_like(weight.data, dtype=dtype) for weight in products}
        self._moves = Moves(self.weights)
        self.cast_weights()

    @property
    def weights(self) -> list[Tensor]:
        """In the order of the layers."""
        return [weight for own in self._own for weight in own]

    @property
    def gradients(self) -> list[Tensor]:
        """The buffers that the backward pass fills: one for each of the weights."""
        return [self._gradient_of(weight) for weight in self.weights]

    @property
    def copies(self) -> list[Tensor | None]:
        """The bfloat16 weights, for the optimizer to update; None where there is none, or where it is more than a cast."""
        first = self._own[self._first][0] if self._reworked else None
        pairs = [pair for own, cast in zip(self._own, self._cast, strict=True) for pair in zip(own, cast, strict=True)]
        return [None if own is first or cast.dtype == own.dtype else cast for own, cast in pairs]

    def cast_weights(self) -> None:
        """Casts, scales and folds the weights again, unless the passes use them directly."""
        self._copies.take()
        self._rework_first()

    def keep_up(self) -> None:
        """The same if the optimizer updates the `copies`: casts them only if others have changed the weights."""
        self.cast_weights() if self.has_moved() else self._rework_first()

    def _rework_first(self) -> None:
        if not self._reworked:
            return
        own, cast = self._own[self._first][0].data, self._cast[self._first][0]
        if self._folding is not None:
            own, cast = self._folding.in_blocks(own), self._folding.as_blocks(cast)
        torch.mul(own, self._scale, out=cast)

    def has_moved(self) -> bool:
        """Whether others have changed the weights since the last call."""
        return self._moves.seen()

    def prepared(self, state: Tensor) -> Tensor:
        """The state in the dtype and memory layout of the passes; not scaled, the first weights are."""
        if self._folding is not None:
            return self._folding.image(state, self._dtype)
        return self._prepare(state)

    def outputs(self, x: Tensor) -> Tensor:
        """As QNetwork.outputs: (B, actions), or (B, actions, outputs)."""
        return self.shaped(self.forward(x)[-1])

    def shaped(self, last: Tensor) -> Tensor:
        return last if self._outputs == 1 else split(last, 1, -1, self._outputs)

    def forward(self, x: Tensor) -> list[Tensor]:
        """The input of each layer, then the output of the last."""
        passed = [x]
        for layer, cast in zip(self._layers, self._cast, strict=True):
            passed.append(layer.forward(passed[-1], cast))
        return passed

    def backward(self, passed: Sequence[Tensor], grad_out: Tensor) -> None:
        """Fills the gradients of the network's weights from the gradient of the loss at its output."""
        for number in range(len(self._layers) - 1, self._first - 1, -1):
            layer, goes_on = self._layers[number], number > self._first  # no gradient is needed below the first weights
            if layer.relu:
                grad_out = torch.ops.aten.threshold_backward(grad_out, passed[number + 1], 0)
            gradients = [self._gradient_of(weight) for weight in self._own[number]]
            grad_out = layer.backward(passed[number], grad_out, self._cast[number], gradients, goes_on)
        first = self._own[self._first][0].grad
        if self._scale != 1.0 and first is not None:
            first *= self._scale

    def _gradient_of(self, weight: Tensor) -> Tensor:
        """The gradient's buffer: nothing is allocated for it after the first update."""
        if weight in self._bfloat16:
            return self._bfloat16[weight]
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        return weight.grad


class Copies:
    """The weights in another dtype: in one buffer if the weights are, so that one kernel copies them."""

    def __init__(self, weights: list[Tensor], dtype: torch.dtype) -> None:
        own = [weight.data for weight in weights]
        self.cast, self._from, self._to = own, list[Tensor](), list[Tensor]()
        if dtype == torch.float32:
            return
        flat = flat_of(own)
        if flat is None:
            self._from, self._to = own, [weight.to(dtype) for weight in own]
            self.cast = list(self._to)
        else:
            self._from, self._to = [flat], [flat.to(dtype)]
            self.cast = [like_in(self._to[0], weight) for weight in own]

    def take(self) -> None:
        if self._to:
            torch._foreach_copy_(self._to, self._from) if len(self._to) > 1 else self._to[0].copy_(self._from[0])


class Moves:
    """Detects when weights are changed by copy or lerp, as a target network's are. torch's version counter misses updates by
    a fused optimizer or a compiled loop."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self._weights, self._versions = weights, list[int]()

    def seen(self) -> bool:
        """Whether there was a change since the last call; True on the first call."""
        before, self._versions = self._versions, [weight._version for weight in self._weights]
        return before != self._versions


class LayerPasses(Protocol):
    """One layer's passes. `cast` are its weights in the dtype of the passes, `gradients` are filled."""

    relu: bool  # whether one follows it

    def forward(self, x: Tensor, cast: list[Tensor]) -> Tensor: ...
    def backward(self, into: Tensor, grad_out: Tensor, cast: list[Tensor], gradients: list[Tensor], goes_on: bool) -> Tensor:
        """Returns the gradient at its input, if the backward pass `goes_on` from there."""
        ...


class FlattenLayer:
    def __init__(self, layer: nn.Module, relu: bool, folding: Folding | None) -> None:
        self.relu = relu

    def forward(self, x: Tensor, cast: list[Tensor]) -> Tensor:
        flat = x.flatten(1)
        return flat.relu() if self.relu else flat  # not in place: it may be the batch itself

    def backward(self, into: Tensor, grad_out: Tensor, cast: list[Tensor], gradients: list[Tensor], goes_on: bool) -> Tensor:
        return grad_out.view(into.shape) if into.is_contiguous() else grad_out.reshape(into.shape)


class LinearLayer:
    def __init__(self, layer: nn.Module, relu: bool, folding: Folding | None) -> None:
        self.relu = relu

    def forward(self, x: Tensor, cast: list[Tensor]) -> Tensor:
        weight, bias = cast
        if self.relu:
            return torch._addmm_activation(bias, x, weight.t())  # matrix product and ReLU in one kernel on a GPU
        return torch.nn.functional.linear(x, weight, bias)

    def backward(self, into: Tensor, grad_out: Tensor, cast: list[Tensor], gradients: list[Tensor], goes_on: bool) -> Tensor:
        of_weight, of_bias = gradients
        product(grad_out.t(), into, of_weight)
        torch.sum(grad_out, 0, dtype=torch.float32, out=of_bias)
        return grad_out @ cast[0] if goes_on else grad_out


class ConvLayer:
    def __init__(self, layer: nn.Module, relu: bool, folding: Folding | None) -> None:
        assert isinstance(layer, nn.Conv2d)
        self.relu, self._folding = relu, folding
        stride = (1, 1) if folding is not None else layer.stride
        padding: Any = layer.padding  # never a string: chain_of rejects those
        self._stride, self._padding, self._dilation, self._groups = stride, padding, layer.dilation, layer.groups
        self._ones: dict[int, Tensor] = {}

    def forward(self, x: Tensor, cast: list[Tensor]) -> Tensor:
        kernel, bias = cast
        if self.relu and x.is_cuda and self._groups == 1:
            return torch.cudnn_convolution_relu(x, kernel, bias, self._stride, self._padding, self._dilation, self._groups)
        out = torch.conv2d(x, kernel, bias, self._stride, self._padding, self._dilation, self._groups)
        return out.relu_() if self.relu else out

    def backward(self, into: Tensor, grad_out: Tensor, cast: list[Tensor], gradients: list[Tensor], goes_on: bool) -> Tensor:
        of_kernel, of_bias = gradients
        sums_apart = grad_out.is_cuda and grad_out.is_contiguous(memory_format=torch.channels_last)
        back, kernel, bias = torch.ops.aten.convolution_backward(
            grad_out, into, cast[0], [len(of_bias)], self._stride, self._padding, self._dilation, False, [0, 0],
            self._groups, [goes_on, True, not sums_apart],
        )  # fmt: skip
        if self._folding is not None:
            of_kernel, kernel = self._folding.in_blocks(of_kernel), self._folding.as_blocks(kernel)
        of_kernel.copy_(kernel)
        of_bias.copy_(self._sums(grad_out) if sums_apart else bias)
        return back if goes_on else grad_out

    def _sums(self, grad_out: Tensor) -> Tensor:
        """Sum per channel, as a matrix product with ones: torch's sum over images takes longer than the convolution."""
        by_channel = grad_out.permute(0, 2, 3, 1).flatten(0, 2)  # (B * height * width, channels), a view
        rows = len(by_channel)
        if rows not in self._ones:
            self._ones[rows] = torch.ones(1, rows, dtype=grad_out.dtype, device=grad_out.device)
        return (self._ones[rows] @ by_channel).squeeze(0)


class LayerNormLayer:
    def __init__(self, layer: nn.Module, relu: bool, folding: Folding | None) -> None:
        assert isinstance(layer, nn.LayerNorm)
        self.relu, self._shape, self._eps = relu, list(layer.normalized_shape), layer.eps

    def forward(self, x: Tensor, cast: list[Tensor]) -> Tensor:
        out = self._normed(x.float(), cast)[0].to(x.dtype)
        return out.relu_() if self.relu else out

    def backward(self, into: Tensor, grad_out: Tensor, cast: list[Tensor], gradients: list[Tensor], goes_on: bool) -> Tensor:
        """Mean and rstd of each row are recomputed: that is cheaper than keeping them."""
        _, mean, spread = self._normed(into.float(), cast)
        back, of_weight, of_bias = torch.ops.aten.native_layer_norm_backward(
            grad_out.float(), into.float(), self._shape, mean, spread, *cast, [goes_on, True, True]
        )
        gradients[0].copy_(of_weight)
        gradients[1].copy_(of_bias)
        return back.to(grad_out.dtype) if goes_on else grad_out

    def _normed(self, x: Tensor, cast: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        weight, bias = cast
        normed: tuple[Tensor, Tensor, Tensor] = torch.native_layer_norm(x, self._shape, weight, bias, self._eps)
        return normed


class DuelingLayer:
    relu = False

    def __init__(self, layer: nn.Module, relu: bool, folding: Folding | None) -> None:
        assert isinstance(layer, Dueling)
        self._layer = layer

    def forward(self, x: Tensor, cast: list[Tensor]) -> Tensor:
        return torch.nn.functional.linear(x, *self._layer.as_linear(cast))

    def backward(self, into: Tensor, grad_out: Tensor, cast: list[Tensor], gradients: list[Tensor], goes_on: bool) -> Tensor:
        weight, _ = self._layer.as_linear(cast)
        of_weight = torch.empty_like(weight, dtype=torch.float32)
        product(grad_out.t(), into, of_weight)
        self._layer.split_gradients(of_weight, torch.sum(grad_out, 0, dtype=torch.float32), gradients)
        return grad_out @ weight if goes_on else grad_out


_STEPS: dict[type[nn.Module], Callable[[nn.Module, bool, Folding | None], LayerPasses]] = {
    nn.Flatten: FlattenLayer,
    nn.Linear: LinearLayer,
    nn.Conv2d: ConvLayer,
    nn.LayerNorm: LayerNormLayer,
    Dueling: DuelingLayer,
}


def product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Computes a @ b into `out`, in its dtype, without a copy where torch can."""
    if a.dtype == out.dtype:
        torch.mm(a, b, out=out)
    elif a.is_cuda:
        torch.ops.aten.mm.dtype_out(a, b, out.dtype, out=out)
    else:
        out.copy_(a @ b)
