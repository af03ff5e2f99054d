"""Networks: a state in (as stored), one value per action out."""

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fastdqn.config import NetworkConfig
from fastdqn.errors import UserError
from fastdqn.learner.dueling import Dueling
from fastdqn.learner.heads import Head, Values
from fastdqn.learner.impala import impala_blocks
from fastdqn.learner.sequence import differs, read_layers

MakeBody = Callable[[tuple[int, ...], int], nn.Module]  # (state_shape, outputs) -> module on float32 states

DEFAULT_HIDDEN: dict[str, tuple[int, ...]] = {"mlp": (256, 256), "cnn": (256,), "nature": (512,), "impala": (256,)}
DEFAULT_CHANNELS: dict[str, tuple[int, ...]] = {"mlp": (), "cnn": (32, 64), "nature": (32, 64, 64), "impala": (16, 32, 32)}
NATURE_SMALLEST_SIDE = 36  # three unpadded convolutions (8/4, 4/2, 3/1) need at least this


class QNetwork(nn.Module):
    """Scales bytes to [0, 1], calls the body, and turns its output into values. `scale` depends on the environment's dtype,
    not on the tensor's, so a replay that stores bytes as floats gives the same numbers."""

    def __init__(self, body: nn.Module, obs_dtype: Any, head: Head | None = None, own: bool = False) -> None:
        """`own`: the body is user-defined and may behave differently in training mode (dropout, batch norm)."""
        super().__init__()
        self.body = body
        self.head = Values() if head is None else head
        self.scale = 1.0 / 255.0 if np.dtype(obs_dtype) == np.uint8 else 1.0
        self.memory_format = torch.preserve_format
        self.own = own
        # In the order of the forward pass, empty if that is not a plain sequence of layers; a tuple, because the body has
        # registered them already
        self.layers: tuple[nn.Module, ...]
        self.layers, self.why_no_layers = read_layers(body)
        self.why_not_channels_last = ""

    def forward(self, state: Tensor) -> Tensor:
        """(B, actions): Q-values, for every role."""
        values: Tensor = self.head(self.outputs(state))
        return values

    def outputs(self, state: Tensor) -> Tensor:
        """The inputs of a loss: (B, actions), or (B, actions, outputs) if the head has several."""
        answer = laid_out(state.to(torch.float32), self.memory_format) * self.scale
        for part in (
            self.layers if self.own and self.layers else (self.body,)
        ):  # not the body: its view() may not take channels-last images
            answer = part(answer)
        return answer if self.head.outputs == 1 else torch.unflatten(answer, 1, (-1, self.head.outputs))

    def evaluating(self) -> AbstractContextManager[Any]:
        """A context in which the network is in eval mode. Built-in networks need no such change."""
        return _evaluating(self) if self.own and self.training else nullcontext()

    def keep_channels_last(self) -> "QNetwork":
        """Weights and images in channels-last memory layout (switch `channels_last`)."""
        if has_convolutions(self):
            self.memory_format = torch.channels_last
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in torch's own types
        return self

    def relu_in_place(self) -> "QNetwork":
        """ReLU overwrites its input (switch `inplace_relu`): no output is allocated."""
        for layer in self.modules():
            if isinstance(layer, nn.ReLU):
                layer.inplace = True
        return self


@contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    """Modules already in eval mode, because the user has frozen them, stay in it. Bypasses nn.Module's own setter, which
    takes longer than a small layer."""
    parts = list(network.modules())
    if any(type(part).train is not nn.Module.train for part in parts):  # the user's own does more than that
        network.eval()
        try:
            yield
        finally:
            network.train()
        return
    trained = [vars(part) for part in parts if part.training]
    for part in trained:
        part["training"] = False
    try:
        yield
    finally:
        for part in trained:
            part["training"] = True


def has_convolutions(network: nn.Module) -> bool:
    return any(isinstance(layer, nn.Conv2d) for layer in network.modules())


def laid_out(state: Tensor, layout: torch.memory_format) -> Tensor:
    """Images in this memory layout. Cast them first: torch is many times slower at changing dtype and layout at once."""
    if state.dim() != 4 or layout is torch.preserve_format:
        return state
    return state.contiguous(memory_format=layout)


def make_network(
    config: NetworkConfig,
    state_shape: tuple[int, ...],
    obs_dtype: Any,
    num_actions: int,
    own: MakeBody | None = None,
    head: Head | None = None,
) -> QNetwork:
    """The configured network, or the user's own body, with as many outputs per action as the head needs."""
    head = Values() if head is None else head
    if own is not None:
        body = own(state_shape, num_actions * head.outputs)
        return _checked(QNetwork(body, obs_dtype, head, own=True), state_shape, num_actions)
    kind = choose_kind(config.kind, state_shape)
    hidden = DEFAULT_HIDDEN[kind] if config.hidden is None else config.hidden
    channels = DEFAULT_CHANNELS[kind] if config.channels is None else config.channels
    if kind != "mlp" and len(state_shape) != 3:
        raise UserError(f"network.kind={kind} needs images (channels, height, width), not shape {state_shape}.")
    layers, features = _BEGINNINGS[kind](state_shape, channels)
    body = nn.Sequential(*layers, nn.Flatten(), *_dense(features, hidden, num_actions, head.outputs, config))
    return QNetwork(body, obs_dtype, head)


def _checked(network: QNetwork, state_shape: tuple[int, ...], num_actions: int) -> QNetwork:
    """Calls a user-defined network once: it must output one number per action, or as many as the head needs."""
    wanted = num_actions * network.head.outputs
    if any(isinstance(part, torch.jit.ScriptModule) for part in network.modules()):
        raise UserError("Your network is TorchScript, which cannot be trained here. Hand over the module it was made from.")
    for weight in network.parameters():  # a transposed one, or a slice of a larger tensor: optimizers go in memory order
        weight.data = weight.data.contiguous()
    with torch.no_grad(), network.evaluating():
        answer = network.body(torch.zeros(2, *state_shape))
        if network.layers and differs(network.body, state_shape):
            network.layers, network.why_no_layers = (), "its forward does more than going from layer to layer"
        network.why_not_channels_last = _why_not_channels_last(network, state_shape)
    if not isinstance(answer, Tensor):
        raise UserError(f"Your network answers with a {type(answer).__name__}; it must be a tensor of shape (2, {wanted}).")
    if tuple(answer.shape) != (2, wanted):
        each = "one value per action" if network.head.outputs == 1 else f"{network.head.outputs} per action"
        raise UserError(
            f"Your network answers 2 states of shape {state_shape} with a tensor of shape {tuple(answer.shape)}; it must be "
            f"(2, {wanted}), {each}. It is made by network(state_shape, {wanted})."
        )
    return network


def _why_not_channels_last(network: QNetwork, state_shape: tuple[int, ...]) -> str:
    """Why a user-defined forward fails on channels-last images, or the empty string; only a copy is called."""
    if not has_convolutions(network):
        return ""
    try:
        copy.deepcopy(network).keep_channels_last().outputs(torch.zeros(2, *state_shape))
    except Exception as fault:  # most often a view() of a convolution's output
        return f"its forward does not take images in that layout ({type(fault).__name__})"
    return ""


def choose_kind(kind: str, state_shape: tuple[int, ...]) -> str:
    if kind != "auto":
        return kind
    if len(state_shape) != 3:
        return "mlp"
    return "nature" if min(state_shape[1:]) >= NATURE_SMALLEST_SIDE else "cnn"


def _dense(inputs: int, hidden: tuple[int, ...], num_actions: int, outputs: int, config: NetworkConfig) -> list[nn.Module]:
    """The fully connected layers. The last hidden layer of a dueling network is two concatenated, one for each stream."""
    layers: list[nn.Module] = []
    for number, width in enumerate(hidden):
        streams = 2 if config.dueling and number == len(hidden) - 1 else 1
        norm = [nn.LayerNorm(streams * width)] if config.norm == "layer" else []
        layers += [nn.Linear(inputs, streams * width), *norm, nn.ReLU()]
        inputs = width
    if config.dueling and not hidden:
        raise UserError("network.dueling needs a hidden layer: its two streams begin there. Set network.hidden.")
    last = Dueling(inputs, num_actions, outputs) if config.dueling else nn.Linear(inputs, num_actions * outputs)
    return [*layers, last]


Beginning = Callable[[tuple[int, ...], tuple[int, ...]], tuple[list[nn.Module], int]]  # (layers, features they output)


def _nothing_before(state_shape: tuple[int, ...], channels: tuple[int, ...]) -> tuple[list[nn.Module], int]:
    return [], int(np.prod(state_shape))


def _small_convolutions(state_shape: tuple[int, ...], channels: tuple[int, ...]) -> tuple[list[nn.Module], int]:
    """Convolutions of 3x3 that keep the size: for boards of a few cells, where every cell counts."""
    layers: list[nn.Module] = []
    inputs, height, width = state_shape
    for outputs in channels:
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
        inputs = outputs
    return layers, inputs * height * width


def _nature_convolutions(state_shape: tuple[int, ...], channels: tuple[int, ...]) -> tuple[list[nn.Module], int]:
    if min(state_shape[1:]) < NATURE_SMALLEST_SIDE:
        side = NATURE_SMALLEST_SIDE
        raise UserError(f"network.kind=nature needs images of {side}x{side} or more, not {state_shape}. Use cnn.")
    if len(channels) != 3:
        raise UserError(f"network.kind=nature has three convolutions, and network.channels names {len(channels)}.")
    first, second, third = channels
    layers = [
        nn.Conv2d(state_shape[0], first, 8, stride=4),
        nn.ReLU(),
        nn.Conv2d(first, second, 4, stride=2),
        nn.ReLU(),
        nn.Conv2d(second, third, 3),
        nn.ReLU(),
    ]
    height, width = state_shape[1:]
    for kernel, stride in ((8, 4), (4, 2), (3, 1)):
        height, width = ((side - kernel) // stride + 1 for side in (height, width))
    return layers, third * height * width  # computed by hand: a trial pass would import half of torch


_BEGINNINGS: dict[str, Beginning] = {
    "mlp": _nothing_before,
    "cnn": _small_convolutions,
    "nature": _nature_convolutions,
    "impala": impala_blocks,
}
