"""Backprop of a small fully connected network on a CPU (switch `lean_mlp`): torch's matrix products and compiled loops.

An update of two layers of 256 is half a millisecond of matrix products, and the hundred small calls around them take as
long again. Here it is twenty calls into fixed buffers, and the first layer skips zeros in its input: a Snake board is
empty but for a few cells. The results are those of hand_written.py up to the order of summation.

The weights stay in torch's tensors: the evaluator, the model file and the checkpoint see no difference.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fastdqn.actor.policy import Greedy
from fastdqn.learner.backprop import Learned
from fastdqn.learner.dueling import Dueling
from fastdqn.learner.fast.chain import Copies, Moves
from fastdqn.learner.fast.hand_written import why_not_by_hand
from fastdqn.learner.fast.one_pass import OnePass, as_array
from fastdqn.learner.fast.output_gradient import make_output_gradient
from fastdqn.learner.loss import Loss
from fastdqn.learner.network import QNetwork
from fastdqn.learner.passes import Passes
from fastdqn.transition import Batch

MANY = 16  # outputs of the last layer: with more it is a matrix product


def can_be_lean(network: QNetwork) -> bool:
    """Whether it is an optional Flatten, then hidden layers, each followed by a ReLU or by a layer norm and a ReLU, then a
    linear or dueling layer."""
    if why_not_by_hand(network):
        return False
    letters = {nn.Flatten: "F", nn.Linear: "L", nn.LayerNorm: "N", nn.ReLU: "R", Dueling: "D"}
    return bool(re.fullmatch("F?(LN?R)+[LD]", "".join(letters.get(type(layer), "?") for layer in network.layers)))


class Hidden(NamedTuple):
    linear: nn.Linear
    norm: nn.LayerNorm | None  # before the ReLU

    def parameters(self) -> list[nn.Parameter]:
        return [*self.linear.parameters(), *(self.norm.parameters() if self.norm is not None else ())]


def layers_of(network: QNetwork) -> tuple[list[Hidden], nn.Linear | Dueling]:
    """The hidden layers, and the last one."""
    *layers, last = network.layers
    assert isinstance(last, (nn.Linear, Dueling)), "can_be_lean asks"
    pairs = [(layer, follows) for layer, follows in pairwise(layers) if isinstance(layer, nn.Linear)]
    return [Hidden(layer, follows if isinstance(follows, nn.LayerNorm) else None) for layer, follows in pairs], last


def lay_out_first_layer(network: QNetwork) -> None:
    """Makes the weights of one input contiguous in memory, so that a zero input skips a whole row of them."""
    first = layers_of(network)[0][0].linear
    first.weight.data = first.weight.data.t().contiguous().t()


class Buffer:
    """The same memory as a tensor for torch and as an array for the compiled loops."""

    def __init__(self, rows: int, width: int, dtype: torch.dtype = torch.float32) -> None:
        self.tensor = torch.zeros(rows, width, dtype=dtype)
        self.array = as_array(self.tensor)

    def part(self, start: int, stop: int) -> "Buffer":
        view = Buffer.__new__(Buffer)
        view.tensor, view.array = self.tensor[start:stop], self.array[start:stop]
        return view


def flattened(states: np.ndarray) -> np.ndarray:
    """(rows, inputs), in a dtype that Numba knows."""
    flat = states.reshape(len(states), -1)
    return flat.astype(np.float32) if flat.dtype == np.float16 else flat


class Norm:
    """A layer norm with the ReLU after it, and what its backward pass needs from the last forward pass."""

    def __init__(self, layer: nn.LayerNorm, rows: int) -> None:
        from fastdqn.learner.fast import lean_kernels

        self._kernels, self._eps = lean_kernels, layer.eps
        self._weight, self._bias = layer.weight.data.numpy(), layer.bias.data.numpy()
        self._normed, self._spread = Buffer(rows, len(self._weight)).array, np.zeros(rows, np.float32)

    def forward(self, out: np.ndarray) -> None:
        self._kernels.norm_and_relu(self._weight, self._bias, self._eps, out, self._normed, self._spread)

    def backward(
        self, grad_out: np.ndarray, out: np.ndarray, gradients: Sequence[np.ndarray], bias_below: np.ndarray
    ) -> None:
        """For the first rows of the last forward pass."""
        rows, (of_weight, of_bias) = len(grad_out), gradients
        passed = (self._weight, self._normed[:rows], self._spread[:rows])
        self._kernels.through_norm_and_relu(grad_out, out, *passed, of_weight, of_bias, bias_below)


class LeanNetwork:
    """A forward pass into its own buffers, which the next pass of as many rows overwrites."""

    def __init__(self, network: QNetwork, dtype: torch.dtype = torch.float32) -> None:
        """`dtype` is that of the matrix products and their inputs. The first layer, most of whose inputs are zero, and a
        last layer of few outputs are no matrix products: they are summed in float32, as is that of a larger last layer."""
        from fastdqn.learner.fast import lean_kernels  # here, because importing numba takes half a second

        self._kernels = lean_kernels
        self.hidden, self.end = layers, end = layers_of(network)
        self.dtype = dtype if len(layers) > 1 else torch.float32  # without a matrix product there is nothing to cast
        self.scale = float(network.scale)
        self.head = network.head
        outputs = end.num_actions * end.outputs if isinstance(end, Dueling) else end.out_features
        self.widths = [*(layer.linear.out_features for layer in layers), outputs]
        self.many = outputs > MANY
        first = layers[0].linear
        floor = 0.0 if layers[0].norm is None else -np.inf
        self._first = (first.weight.data.t().numpy(), first.bias.data.numpy(), floor)  # (inputs, width) contiguous
        self.own_weights: list[Tensor] = [weight for layer in (*layers, end) for weight in layer.parameters()]
        self._of_end = [weight.data for weight in end.parameters()]
        self._take_last_layer()
        own: list[Tensor] = [weight for layer in layers[1:] for weight in layer.linear.parameters()]
        self._of_products, self._copies, self._moves = own, Copies(own, self.dtype), Moves(own)
        self.weights, self._biases = self._copies.cast[::2], self._copies.cast[1::2]  # of the products: (width, inputs)
        self._turned = [weight.t() for weight in self.weights]
        self.line = np.zeros(max(self.widths), np.float32)
        self._buffers: dict[int, list[Buffer]] = {}
        self._norms: dict[int, list[Norm | None]] = {}

    @property
    def copies(self) -> list[Tensor | None]:
        """The bfloat16 weights, for the optimizer to update; None where there is none."""
        short = dict(zip(self._of_products, self._copies.cast, strict=True)) if self.dtype != torch.float32 else {}
        return [short.get(weight) for weight in self.own_weights]

    def follow(self) -> None:
        """Casts the weights again if others have changed them."""
        if self._moves.seen():
            self._copies.take()

    def _take_last_layer(self) -> None:
        """Weight (outputs, width) and bias; of a dueling layer those of the equivalent linear layer."""
        self.last = self._of_end if isinstance(self.end, nn.Linear) else self.end.as_linear(self._of_end)
        self.last_arrays = self.last[0].numpy(), self.last[1].numpy()

    def shaped(self, last: Tensor) -> Tensor:
        """As QNetwork.outputs: (B, actions), or (B, actions, outputs)."""
        return last if self.head.outputs == 1 else torch.unflatten(last, 1, (-1, self.head.outputs))

    def forward(self, *states: np.ndarray) -> list[Buffer]:
        """The output of each layer, for all states concatenated: (rows, width), the last (rows, actions)."""
        if isinstance(self.end, Dueling):
            self._take_last_layer()
        rows = sum(len(some) for some in states)
        outs, norms = self.buffers(rows), self.norms(rows)
        start = 0
        for some in states:
            stop = start + len(some)
            flat = flattened(some)
            self._kernels.first_layer(flat, self.scale, *self._first, self.line, outs[0].array[start:stop])
            start = stop
        if norms[0] is not None:
            norms[0].forward(outs[0].array)
        for below, out, weight, bias, norm in zip(outs, outs[1:-1], self._turned, self._biases, norms[1:], strict=False):
            torch.addmm(bias, below.tensor, weight, out=out.tensor)
            out.tensor.relu_() if norm is None else norm.forward(out.array)
        if self.many:
            torch.addmm(self.last[1], outs[-2].tensor.float(), self.last[0].t(), out=outs[-1].tensor)
        else:
            self._kernels.last_layer(outs[-2].array, *self.last_arrays, outs[-1].array)
        return outs

    def buffers(self, rows: int) -> list[Buffer]:
        """For the output of each layer, or for the gradients there."""
        if rows not in self._buffers:
            self._buffers[rows] = self.new_buffers(rows)
        return self._buffers[rows]

    def norms(self, rows: int) -> list[Norm | None]:
        """The norm of each hidden layer, if it has one."""
        if rows not in self._norms:
            self._norms[rows] = [None if layer.norm is None else Norm(layer.norm, rows) for layer in self.hidden]
        return self._norms[rows]

    def new_buffers(self, rows: int) -> list[Buffer]:
        *hidden, actions = self.widths
        return [*(Buffer(rows, width, self.dtype) for width in hidden), Buffer(rows, actions)]


def make_lean_greedy(network: QNetwork) -> Greedy:
    """As greedy.make_greedy."""
    lean = LeanNetwork(network)

    def greedy(states: np.ndarray) -> np.ndarray:
        outputs = lean.forward(states)[-1]
        return (
            outputs.array.argmax(1) if lean.head.outputs == 1 else lean.head(lean.shaped(outputs.tensor)).argmax(1).numpy()
        )

    return greedy


class Views(NamedTuple):
    """Views of the last forward pass, for one batch size: made once, because the buffers are fixed."""

    outs: list[Buffer]  # of each layer, for the states
    norms: list[Norm | None]
    grads_out: list[Buffer]  # at each layer: filled by the backward pass
    online: Tensor  # the outputs for the states
    online_next: Tensor | None  # and for the next states, if the bootstrap rule needs them


class Lean:
    """Backprop, as hand_written.HandWritten."""

    def __init__(
        self,
        online: QNetwork,
        target: QNetwork,
        loss: Loss,
        optimizer: OnePass,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        from fastdqn.learner.fast import lean_kernels

        self._kernels, self._rule, self._output_gradient = lean_kernels, loss.bootstrap, make_output_gradient(loss, "cpu")
        self._mine = LeanNetwork(online, dtype)
        self._theirs = self._mine if target is online else LeanNetwork(target, dtype)
        self._optimizer = optimizer
        layers, widths, dtype = self._mine.hidden, self._mine.widths, self._mine.dtype
        inputs = layers[0].linear.in_features
        self._gradients = [Buffer(inputs, widths[0])]  # transposed, as the first layer's weights are in memory
        self._gradients += [Buffer(out, into, dtype) for into, out in pairwise(widths[:-1])]
        self._gradients += [Buffer(widths[-1], widths[-2])]
        self._bias_gradients = [np.zeros(width, np.float32) for width in widths]
        normed = [*(layer.norm is not None for layer in layers), False]
        self._norm_gradients = [list(np.zeros((2 * has, n), np.float32)) for has, n in zip(normed, widths, strict=True)]
        self._end_bias_gradient = torch.from_numpy(self._bias_gradients[-1])
        self._views: dict[int, Views] = {}
        self._leave_gradients()

    def _leave_gradients(self) -> None:
        """Gives the gradient buffers to the optimizer, and float32 ones to the weights' `grad`; they are fixed, so once."""
        gradients: list[Tensor] = []
        for number, bias in enumerate(self._bias_gradients):
            gradient = self._gradients[number].tensor
            gradients += [gradient if number else gradient.t(), torch.from_numpy(bias)]
            gradients += map(torch.from_numpy, self._norm_gradients[number])
        end = self._mine.end
        if isinstance(end, Dueling):  # gradients of its own weights are computed from those of its linear layer
            gradients[-2:] = self._of_end = [torch.zeros_like(weight.data) for weight in end.parameters()]
        weights = self._mine.own_weights
        for weight, its_gradient in zip(weights, gradients, strict=True):
            if its_gradient.dtype == weight.dtype:
                weight.grad = its_gradient
        self._optimizer.take(weights, gradients, self._mine.copies)

    def follow_target(self) -> None:
        """Nothing to do: the target network is checked before every pass."""

    def look_ahead(self, batch: Batch) -> tuple[Tensor, ...]:
        """The target network's values; valid until the next call."""
        self._theirs.follow()
        if not self._rule.needs_target:
            return (self._theirs.shaped(self._theirs.forward(batch.next_state.numpy())[-1].tensor),)
        both = self._theirs.shaped(self._theirs.forward(batch.next_state.numpy(), batch.state.numpy())[-1].tensor)
        return both[: len(batch.action)], both[len(batch.action) :]

    def __call__(self, batch: Batch, *known: Tensor) -> Learned:
        state, size = batch.state.numpy(), len(batch.action)
        self._mine.follow()
        known = known or self.look_ahead(batch)
        if self._theirs is self._mine:
            known = tuple(values.clone() for values in known)  # the next pass overwrites the same buffers
        target_next, *target = known
        if self._rule.needs_online_next:  # one pass for both: the second half is the next states
            self._mine.forward(state, batch.next_state.numpy())
        else:
            self._mine.forward(state)
        if size not in self._views:
            self._views[size] = self._make_views(size)
        views = self._views[size]
        gradient, learned = self._output_gradient(Passes(views.online, target_next, views.online_next, *target), batch)
        self._backward(state, views, gradient if gradient.dim() == 2 else gradient.flatten(1))
        return learned

    def _make_views(self, size: int) -> Views:
        mine = self._mine
        passed = mine.buffers(2 * size if self._rule.needs_online_next else size)
        last = passed[-1].tensor
        online_next = mine.shaped(last[size:]) if self._rule.needs_online_next else None
        outs = [out.part(0, size) for out in passed]
        return Views(outs, mine.norms(len(last)), mine.new_buffers(size), mine.shaped(last[:size]), online_next)

    def _backward(self, state: np.ndarray, views: Views, gradient: Tensor) -> None:
        mine, kernels, of_biases = self._mine, self._kernels, self._bias_gradients
        outs, norms, grads_out = views.outs, views.norms, views.grads_out
        of_end, of_end_bias = self._gradients[-1], self._end_bias_gradient
        if mine.many:
            torch.mm(gradient.t(), outs[-2].tensor.float(), out=of_end.tensor)
            torch.sum(gradient, 0, out=of_end_bias)
            grads_out[-2].tensor.copy_(gradient @ mine.last[0])
            self._through_relu(-2, grads_out[-2].array, outs[-2].array, norms[-1])
        else:
            known = (outs[-2].array, mine.last_arrays[0], mine.line)
            filled = (grads_out[-2].array, of_end.array, of_biases[-1], of_biases[-2])
            kernels.last_layer_back(gradient.numpy(), *known, *filled)
            if norms[-1] is not None:
                self._through_relu(-2, grads_out[-2].array, outs[-2].array, norms[-1])
        if isinstance(mine.end, Dueling):
            mine.end.split_gradients(of_end.tensor, of_end_bias, self._of_end)
        for number in range(len(outs) - 2, 0, -1):
            below, grad_out = outs[number - 1], grads_out[number].tensor
            torch.mm(grad_out.t(), below.tensor, out=self._gradients[number].tensor)
            torch.mm(grad_out, mine.weights[number - 1], out=grads_out[number - 1].tensor)
            self._through_relu(number - 1, grads_out[number - 1].array, below.array, norms[number - 1])
        kernels.first_layer_back(flattened(state), mine.scale, grads_out[0].array, self._gradients[0].array)

    def _through_relu(self, number: int, grad_out: np.ndarray, out: np.ndarray, norm: Norm | None) -> None:
        """Backward pass through the ReLU of a hidden layer, and through the norm before it."""
        of_bias = self._bias_gradients[number]
        if norm is None:
            self._kernels.through_relu(grad_out, out, of_bias)
        else:
            norm.backward(grad_out, out, self._norm_gradients[number], of_bias)
