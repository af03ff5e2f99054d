"""The update of a small fully connected network on a CPU (switch `lean_mlp`): torch's products, compiled loops between them.

An update of two layers of 256 is half a millisecond of matrix products, and as much again goes into the hundred small calls
around them. Here it is twenty calls into buffers that stay, and the first layer skips the zeros of its input: a snake's
board is empty but for a few cells. The numbers are those of hand_written.py up to the order of sums.

The weights stay torch's, in torch's memory: the evaluator, the model file and the checkpoint see no difference.
"""

import numpy as np
import torch
from torch import Tensor, nn

from fastdqn.actor.policy import Greedy
from fastdqn.config import LearnerConfig
from fastdqn.learner.network import QNetwork
from fastdqn.learner.one_pass import OnePassAdam
from fastdqn.transition import Batch


def can_be_lean(network: QNetwork) -> bool:
    """Whether it is Flatten, then linear layers with ReLUs between them, and nothing frozen."""
    return linear_layers(network) is not None and all(weight.requires_grad for weight in network.parameters())


def linear_layers(network: QNetwork) -> list[nn.Linear] | None:
    body = getattr(network, "body", None)
    if not isinstance(body, nn.Sequential) or len(body) < 4 or type(body[0]) is not nn.Flatten:
        return None
    kinds = [type(layer) for layer in list(body)[1:]]
    if kinds != [nn.Linear, nn.ReLU] * (len(kinds) // 2) + [nn.Linear]:
        return None
    layers = [layer for layer in body if isinstance(layer, nn.Linear)]
    return layers if all(layer.bias is not None and not layer._forward_hooks for layer in layers) else None


def lay_out_first_layer(network: QNetwork) -> None:
    """The weights of one input side by side in memory, so that a zero input skips a whole line of them."""
    layers = linear_layers(network)
    assert layers is not None, "build.py asks can_be_lean first"
    layers[0].weight.data = layers[0].weight.data.t().contiguous().t()


class Buffer:
    """The same numbers as torch's products and the compiled loops see them."""

    def __init__(self, rows: int, width: int) -> None:
        self.tensor = torch.empty(rows, width)
        self.array = self.tensor.numpy()

    def part(self, start: int, stop: int) -> "Buffer":
        view = Buffer.__new__(Buffer)
        view.tensor, view.array = self.tensor[start:stop], self.array[start:stop]
        return view


class LeanNetwork:
    """A forward pass into buffers of its own, which the next pass of as many rows overwrites."""

    def __init__(self, network: QNetwork) -> None:
        from fastdqn.learner import lean_kernels  # here, because importing numba takes half a second

        self._kernels = lean_kernels
        layers = linear_layers(network)
        assert layers is not None, "build.py asks can_be_lean first"
        self.layers = layers
        self.scale = float(network.scale)
        self.weights = [layer.weight.data for layer in layers]  # (width, inputs)
        self.biases = [layer.bias.data for layer in layers]
        self.widths = [len(bias) for bias in self.biases]
        self._turned = [weight.t() for weight in self.weights]
        self._first, self._first_bias = self._turned[0].numpy(), self.biases[0].numpy()  # (inputs, width) contiguous
        self._buffers: dict[int, list[Buffer]] = {}

    def forward(self, *states: np.ndarray) -> list[Buffer]:
        """What comes out of each layer, for all states one after the other: (rows, width), the last (rows, actions)."""
        outs = self._outs(sum(len(some) for some in states))
        start = 0
        for some in states:
            stop = start + len(some)
            self._kernels.first_layer(
                some.reshape(len(some), -1), self.scale, self._first, self._first_bias, outs[0].array[start:stop]
            )
            start = stop
        last = len(outs) - 1
        for number in range(1, len(outs)):
            out = outs[number].tensor
            torch.addmm(self.biases[number], outs[number - 1].tensor, self._turned[number], out=out)
            if number < last:
                out.relu_()
        return outs

    def _outs(self, rows: int) -> list[Buffer]:
        if rows not in self._buffers:
            self._buffers[rows] = [Buffer(rows, width) for width in self.widths]
        return self._buffers[rows]


def make_lean_greedy(network: QNetwork) -> Greedy:
    """As greedy.make_greedy."""
    lean = LeanNetwork(network)

    def greedy(states: np.ndarray) -> np.ndarray:
        return lean.forward(states)[-1].array.argmax(1)

    return greedy


class LeanUpdate:
    """One update, as hand_written.HandWrittenUpdate."""

    def __init__(self, online: QNetwork, target: QNetwork, optimizer: OnePassAdam, config: LearnerConfig) -> None:
        from fastdqn.learner import lean_kernels, td_kernel

        self._kernels, self._slopes_of = lean_kernels, td_kernel.slopes_of
        self._mine = LeanNetwork(online)
        self._theirs = self._mine if target is online else LeanNetwork(target)
        self._config = config
        inputs, widths = self._mine.weights[0].shape[1], self._mine.widths
        self._gradients = [Buffer(inputs, widths[0])]  # turned, as the first layer's weights lie in memory
        self._gradients += [Buffer(*weight.shape) for weight in self._mine.weights[1:]]
        self._bias_gradients = [np.zeros(width, np.float32) for width in widths]
        self._slopes: dict[int, list[Buffer]] = {}
        self._optimizer = optimizer

    def follow_target(self) -> None:
        """Nothing to do: the target network's own memory is read."""

    def look_ahead(self, batch: Batch) -> tuple[Tensor, ...]:
        """What __call__ takes beside the batch, or a part of it: the target network's values."""
        return (self._theirs.forward(batch.next_state.numpy())[-1].tensor,)

    def __call__(self, batch: Batch, next_values: Tensor | None = None) -> tuple[float, float]:
        state, next_state, size = batch.state.numpy(), batch.next_state.numpy(), len(batch.action)
        theirs = self._theirs.forward(next_state)[-1].array if next_values is None else next_values.numpy()
        if self._theirs is self._mine:
            theirs = theirs.copy()  # the next pass goes through the same buffers
        if self._config.double:  # one pass for both states: the second half is the next one's
            both = self._mine.forward(state, next_state)
            outs, choosing = [out.part(0, size) for out in both], both[-1].array[size:]
        else:
            outs, choosing = self._mine.forward(state), theirs
        if size not in self._slopes:
            self._slopes[size] = [Buffer(size, width) for width in self._mine.widths]
        slopes = self._slopes[size]
        loss, q_mean = self._slopes_of(
            outs[-1].array,
            theirs,
            choosing,
            batch.action.numpy(),
            batch.returns.numpy(),
            batch.discount.numpy(),
            batch.weight.numpy(),
            self._config.loss == "huber",
            slopes[-1].array,
        )
        self._backward(state, outs, slopes)
        if self._config.clip_grad_norm > 0:
            self._optimizer.clip(self._config.clip_grad_norm)
        self._optimizer.step()
        return loss, q_mean

    def _backward(self, state: np.ndarray, outs: list[Buffer], slopes: list[Buffer]) -> None:
        self._kernels.sum_rows(slopes[-1].array, self._bias_gradients[-1])
        for number in range(len(outs) - 1, 0, -1):
            below, slope = outs[number - 1], slopes[number].tensor
            torch.mm(slope.t(), below.tensor, out=self._gradients[number].tensor)
            torch.mm(slope, self._mine.weights[number], out=slopes[number - 1].tensor)
            self._kernels.through_relu(slopes[number - 1].array, below.array, self._bias_gradients[number - 1])
        self._kernels.first_layer_back(
            state.reshape(len(state), -1), self._mine.scale, slopes[0].array, self._gradients[0].array
        )

        if self._mine.layers[0].weight.grad is None:
            self._leave_gradients()

    def _leave_gradients(self) -> None:
        """Where torch keeps them: the buffers themselves, so once is enough."""
        for number, layer in enumerate(self._mine.layers):
            gradient = self._gradients[number].tensor
            layer.weight.grad = gradient if number else gradient.t()
            layer.bias.grad = torch.from_numpy(self._bias_gradients[number])
