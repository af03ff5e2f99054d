"""one_pass_optimizer promises SAME_NUMBERS: torch's steps, with gradients taken and shortened weights written on the way."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastdqn.learner.fast import one_pass
from fastdqn.learner.fast.one_pass import flat_view, laid_out_as, shared_out
from tests.equivalence.updates import CATCH_NATURE, SNAKE_CNN, SNAKE_MLP, check_switch, parts_of, random_batches, weights

OPTIMIZERS = pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop"])
NAMES = {"adam": "OnePassAdam", "adamw": "OnePassAdamW", "rmsprop": "OnePassRMSprop"}
EPS = {"optimizer_eps": 1e-3}
SHORT = ["hand_written", "bf16", "channels_last"]
ON = "one_pass_optimizer"


@pytest.fixture
def two_threads(monkeypatch):
    """However small the network."""
    monkeypatch.setattr(one_pass, "SMALL", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def learners_of(setup, on, **how):
    """With the switch, and without."""
    return (
        parts_of(setup, [*on, ON], **how).learner,
        parts_of(setup, on, **how).learner,
    )


@OPTIMIZERS
@pytest.mark.parametrize("setup", [SNAKE_MLP, SNAKE_CNN, CATCH_NATURE], ids=["mlp", "cnn", "nature"])
@pytest.mark.parametrize("clip_grad_norm", [0.0, 0.1])
def test_one_pass_optimizer(setup, optimizer, clip_grad_norm):
    how = {"optimizer": optimizer, "clip_grad_norm": clip_grad_norm, **EPS}
    updates = 30 if setup is CATCH_NATURE else 200
    fast, plain = check_switch(setup, ON, updates, on=["hand_written"], off=["lean_mlp"], **how)
    assert (type(fast.optimizer).__name__, type(plain.update.backprop).__name__) == (NAMES[optimizer], "HandWritten")
    torch.testing.assert_close(weights(fast), weights(plain), rtol=0, atol=1e-5)  # both have just made the same step


@OPTIMIZERS
@pytest.mark.parametrize(
    ("on", "off"), [([], []), ([], ["grads_to_none"]), (["channels_last"], [])], ids=["dropped", "kept", "last"]
)
def test_it_serves_autograd_too(optimizer, on, off):
    """Gradients that are made anew, or added to; and laid out otherwise than their weights."""
    fast, plain = check_switch(SNAKE_CNN, ON, 60, on=on, off=off, optimizer=optimizer, clip_grad_norm=0.1, **EPS)
    assert type(fast.update.backprop).__name__ == "Autograd"
    torch.testing.assert_close(weights(fast), weights(plain), rtol=0, atol=1e-5)


def test_a_gradient_is_walked_in_the_order_of_its_weight():
    weight = torch.randn(5, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    gradient = torch.randn(5, 3, 4, 4)
    assert torch.equal(laid_out_as(weight, gradient), gradient)
    assert laid_out_as(weight, gradient).stride() == weight.stride()
    expanded = torch.ones(1).expand(5)
    assert flat_view(laid_out_as(torch.zeros(5), expanded)).tolist() == [1.0] * 5
    assert laid_out_as(weight, weight) is weight


@OPTIMIZERS
@pytest.mark.parametrize("setup", [SNAKE_MLP, CATCH_NATURE], ids=["mlp", "nature"])
@pytest.mark.parametrize("clip_grad_norm", [0.0, 0.1])
def test_beside_short_numbers_it_makes_the_same_steps(setup, optimizer, clip_grad_norm):
    """Gradients that stay short are the same numbers as lengthened ones; those that are clipped are rounded once more."""
    short = [name for name in SHORT if name != "channels_last" or setup is CATCH_NATURE]
    fast, plain = learners_of(setup, short, optimizer=optimizer, clip_grad_norm=clip_grad_norm, **EPS)
    assert type(fast.update.backprop).__name__ == "HandWritten"
    start = weights(fast)
    for batch in random_batches(parts_of(setup), 30):
        fast.load_state(plain.state())
        fast.train_on(batch)
        plain.train_on(batch)
        torch.testing.assert_close(weights(fast), weights(plain), rtol=0, atol=1e-5 if clip_grad_norm else 1e-6)
    assert max((weights(fast)[name] - start[name]).abs().max() for name in start) > 0.005
    linear = [layer.weight for layer in fast.online.modules() if isinstance(layer, torch.nn.Linear)]
    long = [weight.grad is not None for weight in linear]
    assert long == [setup is SNAKE_MLP, *[False] * (len(linear) - 1)], "taken short but for a first layer, which is scaled"


def short_copies(learner):
    chain = learner.update.backprop._mine
    named = zip(learner.online.parameters(), chain.copies, strict=True)
    return [(weight, copy) for weight, copy in named if copy is not None]


@OPTIMIZERS
def test_bfloat16_weights_are_those_of_the_newest_weights(optimizer):
    fast, other = (parts_of(CATCH_NATURE, [*SHORT, ON], optimizer=optimizer, **EPS).learner for _ in range(2))
    *batches, last = random_batches(parts_of(CATCH_NATURE), 6)
    for batch in batches:
        other.train_on(batch)
        fast.train_on(batch)
        assert len(short_copies(fast)) > 5
        for weight, copy in short_copies(fast):
            assert torch.equal(weight.data.bfloat16(), copy)
    with torch.no_grad():
        for weight in fast.online.parameters():
            weight.mul_(0.5)  # by somebody else: from a file, say
    fast.target.load_state_dict(fast.online.state_dict())
    other.load_state(fast.state())
    fresh = parts_of(CATCH_NATURE, SHORT, optimizer=optimizer, **EPS).learner
    fresh.load_state(fast.state())
    for learner in (fast, other, fresh):
        learner.read_means()
        learner.train_on(last)
    assert fast.read_means() == other.read_means() == fresh.read_means(), "one of them computed with old weights"


@OPTIMIZERS
def test_a_state_of_either_optimizer_goes_on_with_the_other(optimizer):
    one_passes, plain = learners_of(SNAKE_CNN, ["hand_written"], optimizer=optimizer, **EPS)
    batches = list(random_batches(parts_of(SNAKE_CNN), 60))
    for one, other in ((one_passes, plain), (plain, one_passes)):
        for batch in batches[:30]:
            one.train_on(batch)
        other.load_state(one.state())
        for batch in batches[30:]:
            one.train_on(batch)
            other.train_on(batch)
        torch.testing.assert_close(weights(one), weights(other), rtol=1e-3, atol=1e-4)


@OPTIMIZERS
@pytest.mark.parametrize("on", [["hand_written"], SHORT], ids=["float32", "bf16"])
def test_two_threads_make_the_same_steps_as_one(optimizer, on, two_threads):
    both, alone = (parts_of(SNAKE_CNN, [*on, ON], optimizer=optimizer, **EPS).learner for _ in range(2))
    for batch in random_batches(parts_of(SNAKE_CNN), 20):
        both.train_on(batch)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(one_pass, "SMALL", 10**9)
            alone.train_on(batch)
    assert len(both.optimizer._shares) == 2
    assert len(alone.optimizer._shares) == 1
    for ours, theirs in zip(both.online.parameters(), alone.online.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_whoever_clears_gradients_or_has_a_learning_rate_on_a_device_changes_nothing():
    fast, plain = learners_of(SNAKE_CNN, ["hand_written"], **EPS)
    for batch in random_batches(parts_of(SNAKE_CNN), 10):
        fast.optimizer.zero_grad()
        fast.optimizer.param_groups[0]["lr"] = torch.tensor(1e-3)  # as a run on a GPU saves it
        fast.train_on(batch)
        plain.train_on(batch)
    torch.testing.assert_close(weights(fast), weights(plain), rtol=0, atol=1e-5)


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=8), threads=st.integers(1, 9), copied=st.booleans())
def test_shares_are_equal_and_hold_every_number_once(sizes, threads, copied):
    numbers = np.arange(sum(sizes))
    views = []
    for size, end in zip(sizes, np.cumsum(sizes), strict=True):
        flat = numbers[end - size : end]
        views.append((flat, flat, flat if copied else None))
    shares = shared_out(views, threads)
    walked = [view for share in shares for view, _, _ in share]
    assert np.array_equal(np.concatenate([*walked, np.zeros(0, int)]), numbers)
    lengths = [sum(len(view) for view, _, _ in share) for share in shares]
    assert all(lengths)
    assert not lengths or max(lengths) - min(lengths) <= 1 or sum(sizes) < threads
    for view, again, copy in (some for share in shares for some in share):
        assert np.array_equal(view, again)
        assert copy is None if not copied else np.array_equal(copy, view)


def test_numbers_are_rounded_as_torch_does():
    """Every upper half of a float32 there is, with lower halves that are ties, nearly ties and neither."""
    from fastdqn.learner.fast.one_pass_kernels import adam

    upper = np.arange(2**16, dtype=np.uint32) << 16
    for lower in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        weight = torch.from_numpy((upper | np.uint32(lower)).view(np.float32))
        expected, copy = weight.bfloat16(), torch.zeros(len(weight), dtype=torch.bfloat16)
        nothing = np.zeros(len(weight), np.float32)
        adam(flat_view(weight), nothing, nothing.copy(), nothing.copy(), flat_view(copy), 0.0, 1.0, 0.9, 0.999, 1.0, 0.0)
        assert torch.equal(copy.isnan(), expected.isnan())
        numbers = ~expected.isnan()
        assert torch.equal(copy[numbers].view(torch.int16), expected[numbers].view(torch.int16))
        assert numbers.sum() > 65_000


def test_a_view_walks_a_weight_as_it_lies_in_memory():
    kernel = torch.randn(5, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    view = flat_view(kernel)
    assert np.shares_memory(view, kernel.numpy())
    assert torch.equal(torch.from_numpy(view), kernel.permute(0, 2, 3, 1).flatten())
    part = torch.randn(10)[3:7]
    assert flat_view(part).tolist() == part.tolist()
