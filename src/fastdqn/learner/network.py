"""Networks: state in (as stored), one value per action out."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fastdqn.config import NetworkConfig
from fastdqn.errors import UserError

MakeBody = Callable[[tuple[int, ...], int], nn.Module]  # (state_shape, num_actions) -> module on float32 states

DEFAULT_HIDDEN: dict[str, tuple[int, ...]] = {"mlp": (256, 256), "cnn": (256,), "nature": (512,)}
DEFAULT_CHANNELS: dict[str, tuple[int, ...]] = {"mlp": (), "cnn": (32, 64), "nature": (32, 64, 64)}
NATURE_SMALLEST_SIDE = 36  # three unpadded convolutions (8/4, 4/2, 3/1) need at least this


class QNetwork(nn.Module):
    """Scales bytes to [0, 1], then asks the body. `scale` is fixed by the environment's dtype, not by the tensor's,
    so a replay that keeps bytes as floats gives the same numbers."""

    def __init__(self, body: nn.Module, obs_dtype: Any) -> None:
        super().__init__()
        self.body = body
        self.scale = 1.0 / 255.0 if np.dtype(obs_dtype) == np.uint8 else 1.0
        self.memory_format = torch.preserve_format

    def forward(self, state: Tensor) -> Tensor:
        values: Tensor = self.body(laid_out(state.to(torch.float32), self.memory_format) * self.scale)
        return values

    def keep_channels_last(self) -> "QNetwork":
        """Weights and pictures with the channels of a pixel side by side (switch `channels_last`)."""
        if any(isinstance(layer, nn.Conv2d) for layer in self.modules()):
            self.memory_format = torch.channels_last
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in torch's own types
        return self

    def relu_in_place(self) -> "QNetwork":
        """ReLU overwrites its input (switch `inplace_relu`): no memory for its output."""
        for layer in self.modules():
            if isinstance(layer, nn.ReLU):
                layer.inplace = True
        return self


def laid_out(state: Tensor, layout: torch.memory_format) -> Tensor:
    """Pictures in this layout. Their dtype must be right already: torch changes both at once many times slower."""
    if state.dim() != 4 or layout is torch.preserve_format:
        return state
    return state.contiguous(memory_format=layout)


def make_network(
    config: NetworkConfig, state_shape: tuple[int, ...], obs_dtype: Any, num_actions: int, own: MakeBody | None = None
) -> QNetwork:
    """The configured network, or the user's own body."""
    if own is not None:
        return _checked(QNetwork(own(state_shape, num_actions), obs_dtype), state_shape, num_actions)
    kind = choose_kind(config.kind, state_shape)
    hidden = DEFAULT_HIDDEN[kind] if config.hidden is None else config.hidden
    channels = DEFAULT_CHANNELS[kind] if config.channels is None else config.channels
    if kind == "mlp":
        return QNetwork(_mlp(state_shape, hidden, num_actions), obs_dtype)
    if len(state_shape) != 3:
        raise UserError(f"network.kind={kind} needs pictures (channels, height, width), not shape {state_shape}.")
    if kind == "cnn":
        return QNetwork(_small_cnn(state_shape, channels, hidden, num_actions), obs_dtype)
    if min(state_shape[1:]) < NATURE_SMALLEST_SIDE:
        side = NATURE_SMALLEST_SIDE
        raise UserError(f"network.kind=nature needs pictures of {side}x{side} or more, not {state_shape}. Use cnn.")
    if len(channels) != 3:
        raise UserError(f"network.kind=nature has three convolutions, and network.channels names {len(channels)}.")
    return QNetwork(_nature_cnn(state_shape, channels, hidden, num_actions), obs_dtype)


def _checked(network: QNetwork, state_shape: tuple[int, ...], num_actions: int) -> QNetwork:
    """A network of the user's own is tried once: what it answers must be one value per action."""
    with torch.no_grad():
        answer = network(torch.zeros(2, *state_shape))
    if tuple(answer.shape) != (2, num_actions):
        raise UserError(
            f"Your network answers 2 states of shape {state_shape} with a tensor of shape {tuple(answer.shape)}; it must be "
            f"(2, {num_actions}), one value per action. It is made by network(state_shape, num_actions)."
        )
    return network


def choose_kind(kind: str, state_shape: tuple[int, ...]) -> str:
    if kind != "auto":
        return kind
    if len(state_shape) != 3:
        return "mlp"
    return "nature" if min(state_shape[1:]) >= NATURE_SMALLEST_SIDE else "cnn"


def _dense(inputs: int, hidden: tuple[int, ...], outputs: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return [*layers, nn.Linear(inputs, outputs)]


def _mlp(state_shape: tuple[int, ...], hidden: tuple[int, ...], num_actions: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), *_dense(int(np.prod(state_shape)), hidden, num_actions))


def _small_cnn(
    state_shape: tuple[int, ...], channels: tuple[int, ...], hidden: tuple[int, ...], num_actions: int
) -> nn.Module:
    """3x3 convolutions that keep the size: for boards of a few cells, where every cell counts."""
    layers: list[nn.Module] = []
    inputs, height, width = state_shape
    for outputs in channels:
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
        inputs = outputs
    return nn.Sequential(*layers, nn.Flatten(), *_dense(inputs * height * width, hidden, num_actions))


def _nature_cnn(
    state_shape: tuple[int, ...], channels: tuple[int, ...], hidden: tuple[int, ...], num_actions: int
) -> nn.Module:
    first, second, third = channels
    layers = [
        nn.Conv2d(state_shape[0], first, 8, stride=4),
        nn.ReLU(),
        nn.Conv2d(first, second, 4, stride=2),
        nn.ReLU(),
        nn.Conv2d(second, third, 3),
        nn.ReLU(),
        nn.Flatten(),
    ]
    height, width = state_shape[1:]
    for kernel, stride in ((8, 4), (4, 2), (3, 1)):
        height, width = ((side - kernel) // stride + 1 for side in (height, width))
    features = third * height * width  # by arithmetic: a pass to find out would import half of torch
    return nn.Sequential(*layers, *_dense(features, hidden, num_actions))
