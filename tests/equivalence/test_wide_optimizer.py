"""wide_optimizer promises SAME_NUMBERS: one kernel over all weights makes torch's steps. Its kernels need a GPU; how weights
are laid side by side is tried everywhere."""

import pytest
import torch
from torch import nn

from fastdqn.learner.flat import APART, flat_of, lay_flat, like_in
from tests.equivalence.updates import CATCH_NATURE, SNAKE_CNN, SNAKE_MLP, check_switch, parts_of, random_batches, weights

OPTIMIZERS = pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop"])


def network():
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.Flatten(), nn.Linear(5 * 16, 7), nn.Linear(7, 2))
    return layers.to(memory_format=torch.channels_last)


def test_weights_laid_flat_are_the_same_weights():
    plain, flat = network(), network()
    lay_flat(flat)
    x = torch.randn(2, 3, 4, 4)
    assert torch.equal(plain(x), flat(x))
    for own, other in zip(flat.parameters(), plain.parameters(), strict=True):
        assert own.stride() == other.stride(), "channels last stay last"
        assert own.storage_offset() % APART == 0
    stretch = flat_of([weight.data for weight in flat.parameters()])
    stretch.add_(1.0)
    for own, other in zip(flat.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own.data, other.data + 1.0)


def test_gradients_of_weights_laid_flat_lie_as_they_do():
    flat = network()
    lay_flat(flat)
    flat(torch.randn(2, 3, 4, 4)).sum().backward()
    gradients = flat_of([weight.grad for weight in flat.parameters()])
    for weight in flat.parameters():
        assert weight.grad.abs().sum() > 0
        assert torch.equal(like_in(gradients, weight), weight.grad)


def test_weights_apart_are_no_stretch():
    assert flat_of([weight.data for weight in network().parameters()]) is None


@pytest.mark.gpu
@OPTIMIZERS
@pytest.mark.parametrize("setup", [SNAKE_MLP, SNAKE_CNN, CATCH_NATURE], ids=["mlp", "cnn", "nature"])
@pytest.mark.parametrize("clip_grad_norm", [0.0, 0.1])
def test_wide_optimizer(setup, optimizer, clip_grad_norm):
    how = {"optimizer": optimizer, "clip_grad_norm": clip_grad_norm, "optimizer_eps": 1e-3}
    fast, _ = check_switch(setup, "wide_optimizer", on=["hand_written"], off=["tf32"], device="cuda", updates=50, **how)
    assert type(fast.optimizer).__name__ == {"adam": "WideAdam", "adamw": "WideAdamW", "rmsprop": "WideRMSprop"}[optimizer]


@pytest.mark.gpu
@OPTIMIZERS
def test_a_state_of_either_optimizer_goes_on_with_the_other(optimizer):
    settings = {"device": "cuda", "optimizer": optimizer, "optimizer_eps": 1e-3}
    wide, plain = (parts_of(SNAKE_CNN, ["hand_written", *on], ["tf32"], **settings) for on in (["wide_optimizer"], []))
    batches = list(random_batches(plain, 60))
    for one, other in ((wide, plain), (plain, wide)):
        for batch in batches[:30]:
            one.learner.train_on(batch)
        other.learner.load_state(one.learner.state())
        for batch in batches[30:]:
            one.learner.train_on(batch)
            other.learner.train_on(batch)
        torch.testing.assert_close(weights(one.learner), weights(other.learner), rtol=1e-3, atol=1e-4)
