"""folded_conv promises SAME_NUMBERS: a convolution over blocks of pixels is the convolution over pixels."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from torch import nn

from fastdqn.device.hardware import lacks
from fastdqn.learner.fast.folding import MOST_CHANNELS, folding_of
from tests.equivalence.test_precision import compare_gradients, within_tolerance
from tests.equivalence.updates import CATCH_NATURE, check_switch, parts_of

DOUBLE = pytest.mark.parametrize("double", [False, True], ids=["single", "double"])


@given(
    side=some.integers(2, 5),
    blocks=some.integers(1, 3),
    more=some.tuples(some.integers(0, 9), some.integers(0, 9)),
    channels=some.integers(1, 5),
    size=some.integers(1, 3),
)
@settings(max_examples=60, deadline=None)
def test_a_folded_convolution_is_the_convolution(side, blocks, more, channels, size):
    """Also where the last pixels are no whole block, which the convolution does not reach."""
    layer = nn.Conv2d(channels, 6, side * blocks, stride=side).double()
    folding = folding_of(layer)
    images = torch.randint(0, 256, (size, channels, *(side * blocks + extra for extra in more)), dtype=torch.uint8)
    kernel = torch.empty(folding.kernel_shape(layer.weight), dtype=torch.float64)
    kernel = kernel.contiguous(memory_format=torch.channels_last)
    folding.as_blocks(kernel).copy_(folding.in_blocks(layer.weight.data))
    folded = torch.conv2d(folding.image(images, torch.float64), kernel, layer.bias)
    torch.testing.assert_close(folded, layer(images.double()), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 8, 3, padding=1),
        nn.Conv2d(4, 8, 7, stride=4),
        nn.Conv2d(4, 8, 8, stride=4, padding=2),
        nn.Conv2d(4, 8, 8, stride=(4, 2)),
        nn.Conv2d(4, 8, 4, stride=2, dilation=2),
        nn.Conv2d(MOST_CHANNELS * 2, 8, 4, stride=2),
        nn.Linear(4, 8),
    ],
    ids=["stride 1", "no whole blocks", "padded", "uneven", "spread", "many channels", "no convolution"],
)
def test_what_cannot_be_folded_is_left_alone(layer):
    assert folding_of(layer) is None


@DOUBLE
def test_folded_conv(double, tensors_on_the_cpu):
    fast, _ = check_switch(CATCH_NATURE, "folded_conv", on=["hand_written"], updates=30, double=double)
    assert fast.update.backprop._mine.prepared(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, 64, 21, 21)


def nearly_the_same_gradient(device, double):
    short, plain = (
        parts_of(CATCH_NATURE, ["hand_written", *on], ["tf32"], device=device, double=double)
        for on in (["folded_conv", "bf16"], [])
    )
    cosines, ratios, losses = compare_gradients(short, plain)
    assert within_tolerance(cosines, ratios, losses), (cosines, ratios, losses)


@pytest.mark.skipif(bool(lacks("bf16", "cpu")), reason="needs bfloat16 instructions")
def test_folded_conv_in_short_numbers(tensors_on_the_cpu):
    nearly_the_same_gradient("cpu", double=True)


@pytest.mark.gpu
@DOUBLE
def test_folded_conv_on_the_gpu(double):
    check_switch(CATCH_NATURE, "folded_conv", on=["hand_written"], off=["tf32"], device="cuda", updates=30, double=double)


@pytest.mark.gpu
@DOUBLE
def test_folded_conv_in_short_numbers_on_the_gpu(double):
    nearly_the_same_gradient("cuda", double)
