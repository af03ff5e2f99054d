"""Images in the format and layout of the passes: one compiled walk gives what torch gives in two."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastdqn.learner.fast.chain import Chain
from fastdqn.learner.fast.images import compiled_prepare, make_prepare, plain_prepare
from tests.equivalence.updates import CATCH_NATURE, SNAKE_CNN, parts_of

PLAIN = plain_prepare(torch.bfloat16, torch.channels_last)


@given(size=st.integers(1, 3), channels=st.integers(1, 6), height=st.integers(1, 9), width=st.integers(1, 9))
def test_bytes_become_short_numbers_with_their_channels_last(size, channels, height, width):
    images = torch.randint(256, (size, channels, height, width), dtype=torch.uint8)
    prepared = compiled_prepare()(images)
    assert prepared.dtype == torch.bfloat16
    assert prepared.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(prepared, PLAIN(images))


def test_every_byte_is_exact():
    every = torch.arange(256, dtype=torch.uint8).reshape(1, 4, 8, 8)
    assert torch.equal(compiled_prepare()(every).float(), every.float())


@pytest.mark.parametrize(
    "states",
    [
        torch.rand(2, 4, 5, 5),  # floats of another environment
        torch.randint(256, (2, 5, 5, 4), dtype=torch.uint8).permute(0, 3, 1, 2),  # not as the replay lays them out
        torch.rand(2, 7),  # no images
    ],
    ids=["floats", "turned", "vectors"],
)
def test_what_the_walk_is_not_made_for_goes_torchs_way(states):
    assert torch.equal(compiled_prepare()(states), PLAIN(states))


def test_the_passes_take_it_where_it_fits():
    network = parts_of(CATCH_NATURE, ["channels_last"]).learner.online
    images = torch.randint(256, (2, 4, 84, 84), dtype=torch.uint8)
    for dtype in (torch.bfloat16, torch.float32):
        assert torch.equal(Chain(network, dtype).prepared(images), PLAIN(images).to(dtype))
    assert make_prepare(torch.bfloat16, torch.channels_last, "cpu").__name__ == "prepare"
    boards = parts_of(SNAKE_CNN).learner.online
    assert Chain(boards, torch.bfloat16).prepared(images).is_contiguous(), "channel planes stay planes"
