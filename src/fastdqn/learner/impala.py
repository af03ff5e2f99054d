"""The residual network of IMPALA (Espeholt et al. 2018): per width a convolution, max pooling that halves the image, and
two residual blocks. Widths of 32, 64, 64 are the "x2" of Beyond The Rainbow."""

from torch import Tensor, nn

from fastdqn.errors import UserError

SMALLEST_SIDE = 2  # of the last pooling layer's output


class Residual(nn.Module):
    """Computes x + conv(relu(conv(relu(x)))). Its first ReLU must not be in place: x is used again."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        inner: Tensor = self.first(x.relu())
        return x + self.second(inner.relu())


def impala_blocks(state_shape: tuple[int, ...], channels: tuple[int, ...]) -> tuple[list[nn.Module], int]:
    """The layers, and the number of features they output."""
    if not channels:
        raise UserError("network.kind=impala needs at least one width in network.channels.")
    layers: list[nn.Module] = []
    inputs, height, width = state_shape
    for outputs in channels:
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
        layers += [Residual(outputs), Residual(outputs)]
        inputs, height, width = outputs, (height + 1) // 2, (width + 1) // 2
    if min(height, width) < SMALLEST_SIDE:
        raise UserError(
            f"network.kind=impala halves its images {len(channels)} times, and {state_shape[1:]} are too small for that. "
            "Name fewer widths in network.channels, or use cnn."
        )
    return [*layers, nn.ReLU()], inputs * height * width
