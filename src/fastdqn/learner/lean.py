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
from fastdqn.learner.chain import Copies, Moves
from fastdqn.learner.hand_written import can_be_written_by_hand
from fastdqn.learner.network import QNetwork
from fastdqn.learner.one_pass import OnePassAdam, as_array
from fastdqn.transition import Batch


def can_be_lean(network: QNetwork) -> bool:
    """Whether it is Flatten, then linear layers with ReLUs between them, and nothing frozen or shared by two of them."""
    return linear_layers(network) is not None and can_be_written_by_hand(network)


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

    def __init__(self, rows: int, width: int, dtype: torch.dtype = torch.float32) -> None:
        self.tensor = torch.zeros(rows, width, dtype=dtype)
        self.array = as_array(self.tensor)

    def part(self, start: int, stop: int) -> "Buffer":
        view = Buffer.__new__(Buffer)
        view.tensor, view.array = self.tensor[start:stop], self.array[start:stop]
        return view


class LeanNetwork:
    """A forward pass into buffers of its own, which the next pass of as many rows overwrites."""

    def __init__(self, network: QNetwork, dtype: torch.dtype = torch.float32) -> None:
        """`dtype` is that of the products and of what goes into them. The first layer, most of whose inputs are zero, and
        the last one, which has few outputs, are no products: they are summed in float32."""
        from fastdqn.learner import lean_kernels  # here, because importing numba takes half a second

        self._kernels = lean_kernels
        layers = linear_layers(network)
        assert layers is not None, "build.py asks can_be_lean first"
        self.layers = layers
        self.dtype = dtype if len(layers) > 2 else torch.float32  # where there is no product nothing is shortened
        self.scale = float(network.scale)
        self.widths = [layer.out_features for layer in layers]
        self._first = (layers[0].weight.data.t().numpy(), layers[0].bias.data.numpy())  # (inputs, width) contiguous
        self.last = (layers[-1].weight.data.numpy(), layers[-1].bias.data.numpy())  # (actions, width)
        own = [weight for layer in layers[1:-1] for weight in (layer.weight, layer.bias)]
        self._copies, self._moves = Copies(own, self.dtype), Moves(own)
        self.weights, self._biases = self._copies.taken[::2], self._copies.taken[1::2]  # of the products: (width, inputs)
        self._turned = [weight.t() for weight in self.weights]
        self.line = np.zeros(max(self.widths), np.float32)
        self._buffers: dict[int, list[Buffer]] = {}

    @property
    def copies(self) -> list[Tensor | None]:
        """The shortened weights, for whoever keeps them up; None where there are none."""
        short = self._copies.taken if self.dtype != torch.float32 else [None] * len(self._copies.taken)
        return [None, None, *short, None, None]

    def follow(self) -> None:
        """Shortens the weights anew if others have moved them."""
        if self._moves.seen():
            self._copies.take()

    def forward(self, *states: np.ndarray) -> list[Buffer]:
        """What comes out of each layer, for all states one after the other: (rows, width), the last (rows, actions)."""
        outs = self.buffers(sum(len(some) for some in states))
        start = 0
        for some in states:
            stop = start + len(some)
            flat = some.reshape(len(some), -1)
            self._kernels.first_layer(flat, self.scale, *self._first, self.line, outs[0].array[start:stop])
            start = stop
        for below, out, weight, bias in zip(outs, outs[1:-1], self._turned, self._biases, strict=False):
            torch.addmm(bias, below.tensor, weight, out=out.tensor)
            out.tensor.relu_()
        self._kernels.last_layer(outs[-2].array, *self.last, outs[-1].array)
        return outs

    def buffers(self, rows: int) -> list[Buffer]:
        """For what comes out of each layer, or for the slopes there."""
        if rows not in self._buffers:
            self._buffers[rows] = self.new_buffers(rows)
        return self._buffers[rows]

    def new_buffers(self, rows: int) -> list[Buffer]:
        *hidden, actions = self.widths
        return [*(Buffer(rows, width, self.dtype) for width in hidden), Buffer(rows, actions)]


def make_lean_greedy(network: QNetwork) -> Greedy:
    """As greedy.make_greedy."""
    lean = LeanNetwork(network)

    def greedy(states: np.ndarray) -> np.ndarray:
        return lean.forward(states)[-1].array.argmax(1)

    return greedy


class LeanUpdate:
    """One update, as hand_written.HandWrittenUpdate."""

    def __init__(
        self,
        online: QNetwork,
        target: QNetwork,
        optimizer: OnePassAdam,
        config: LearnerConfig,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        from fastdqn.learner import lean_kernels, td_kernel

        self._kernels, self._slopes_of = lean_kernels, td_kernel.slopes_of
        self._mine = LeanNetwork(online, dtype)
        self._theirs = self._mine if target is online else LeanNetwork(target, dtype)
        self._config, self._optimizer = config, optimizer
        layers, widths, dtype = self._mine.layers, self._mine.widths, self._mine.dtype
        self._gradients = [Buffer(layers[0].in_features, widths[0])]  # turned, as the first layer's weights lie in memory
        self._gradients += [Buffer(layer.out_features, layer.in_features, dtype) for layer in layers[1:-1]]
        self._gradients += [Buffer(widths[-1], layers[-1].in_features)]
        self._bias_gradients = [np.zeros(width, np.float32) for width in widths]
        self._slopes: dict[int, list[Buffer]] = {}
        self._leave_gradients()

    def _leave_gradients(self) -> None:
        """With the optimizer, and where torch keeps those that are float32: the buffers themselves, so once is enough."""
        gradients: list[Tensor] = []
        for number, layer in enumerate(self._mine.layers):
            gradient = self._gradients[number].tensor
            pair = (gradient if number else gradient.t(), torch.from_numpy(self._bias_gradients[number]))
            for weight, its_gradient in zip((layer.weight, layer.bias), pair, strict=True):
                gradients.append(its_gradient)
                if its_gradient.dtype == weight.dtype:
                    weight.grad = its_gradient
        self._optimizer.take(gradients, self._mine.copies)

    def follow_target(self) -> None:
        """Nothing to do here: it is looked at before every pass."""

    def look_ahead(self, batch: Batch) -> tuple[Tensor, ...]:
        """What __call__ takes beside the batch, or a part of it: the target network's values."""
        self._theirs.follow()
        return (self._theirs.forward(batch.next_state.numpy())[-1].tensor,)

    def __call__(self, batch: Batch, next_values: Tensor | None = None) -> tuple[float, float]:
        state, next_state, size = batch.state.numpy(), batch.next_state.numpy(), len(batch.action)
        self._mine.follow()
        theirs = self.look_ahead(batch)[0].numpy() if next_values is None else next_values.numpy()
        if self._theirs is self._mine:
            theirs = theirs.copy()  # the next pass goes through the same buffers
        if self._config.double:  # one pass for both states: the second half is the next one's
            both = self._mine.forward(state, next_state)
            outs, choosing = [out.part(0, size) for out in both], both[-1].array[size:]
        else:
            outs, choosing = self._mine.forward(state), theirs
        if size not in self._slopes:
            self._slopes[size] = self._mine.new_buffers(size)
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
        mine, kernels, of_biases = self._mine, self._kernels, self._bias_gradients
        kernels.last_layer_back(
            slopes[-1].array,
            outs[-2].array,
            mine.last[0],
            mine.line,
            slopes[-2].array,
            self._gradients[-1].array,
            of_biases[-1],
            of_biases[-2],
        )
        for number in range(len(outs) - 2, 0, -1):
            below, slope = outs[number - 1], slopes[number].tensor
            torch.mm(slope.t(), below.tensor, out=self._gradients[number].tensor)
            torch.mm(slope, mine.weights[number - 1], out=slopes[number - 1].tensor)
            kernels.through_relu(slopes[number - 1].array, below.array, of_biases[number - 1])
        kernels.first_layer_back(state.reshape(len(state), -1), mine.scale, slopes[0].array, self._gradients[0].array)
