"""The Triton kernels without a GPU: Triton's interpreter walks them program by program on CPU tensors, slowly.

`TRITON_INTERPRET=1 pytest tests/equivalence/test_triton_interpreted.py`, as .ci/run does. The variable is read when a kernel
is defined, so that it must be there from the start.
"""

import importlib.util
import os

import pytest
import torch
from torch import nn

from fastdqn.device import hardware
from tests.equivalence.test_fused_draw import SHAPES, check_fused_draw, check_fused_window
from tests.equivalence.updates import SNAKE_CNN, SNAKE_MLP, check_switch, parts_of, random_batches, weights

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs the package triton"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1 from the start"),
]

OPTIMIZERS = pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop"])


@pytest.fixture
def off(tensors_on_the_cpu, monkeypatch):
    """The interpreter compiles nothing. Gives what a GPU alone understands."""
    monkeypatch.setitem(hardware.NEEDS, "compiler", lambda device: "")
    return tensors_on_the_cpu(["device_ring"])


def test_the_kernels_are_interpreted():
    from fastdqn.learner.fast import wide_kernels
    from fastdqn.replay.fast import fused_kernels

    for kernel in (wide_kernels._adam, wide_kernels._rmsprop, fused_kernels._choose, fused_kernels._copy_frames):
        assert "Interpreted" in type(kernel).__name__


@OPTIMIZERS
@pytest.mark.parametrize("size", [1, 1024, 3333])
def test_a_kernel_steps_as_torch_does(optimizer, size):
    """Weights and both moments, over steps with other gradients and another learning rate; beyond the weights nothing is
    written."""
    from fastdqn.learner.fast import wide_kernels
    from fastdqn.learner.optimizer import ALPHA

    torch.manual_seed(size)
    beyond = 50
    room = torch.randn(size + beyond)
    first, gradient = room.clone(), torch.zeros(size)
    plain = nn.Parameter(room[:size].clone())
    decay = 0.1 if optimizer == "adamw" else 0.0
    if optimizer != "rmsprop":
        kind = torch.optim.AdamW if decay else torch.optim.Adam
        torchs, names = kind([plain], lr=1e-2, eps=1e-3, weight_decay=decay), ("exp_avg", "exp_avg_sq")
    else:
        torchs = torch.optim.RMSprop([plain], lr=1e-2, eps=1e-3, alpha=ALPHA, centered=True)
        names = ("square_avg", "grad_avg")
    moments, steps, lr = (torch.zeros(size), torch.zeros(size)), torch.zeros(1), torch.tensor(1e-2)
    for step in range(20):
        gradient = torch.randn(size) * 10.0 ** (step % 3 - 1)
        plain.grad = gradient.clone()
        rate = 1e-2 if step < 10 else 3e-3
        lr.fill_(rate)
        torchs.param_groups[0]["lr"] = rate
        steps += 1
        if optimizer != "rmsprop":
            wide_kernels.adam(room[:size], gradient, *moments, steps, lr, 1e-3, decay=decay)
        else:
            wide_kernels.rmsprop(room[:size], gradient, *moments, steps, lr, 1e-3, ALPHA)
        torchs.step()
        torch.testing.assert_close(room[:size], plain.data, rtol=1e-5, atol=1e-6)
        for name, moment in zip(names, moments, strict=True):
            torch.testing.assert_close(moment, torchs.state[plain][name], rtol=1e-5, atol=1e-6)
    assert (room[:size] - first[:size]).abs().min() > 0, "every weight has moved"
    assert torch.equal(room[size:], first[size:])


@OPTIMIZERS
@pytest.mark.parametrize("clip_grad_norm", [0.0, 0.1])
@pytest.mark.parametrize("setup", [SNAKE_MLP, SNAKE_CNN], ids=["mlp", "cnn"])
def test_wide_optimizer(setup, optimizer, clip_grad_norm, off):
    how = {"optimizer": optimizer, "clip_grad_norm": clip_grad_norm, "optimizer_eps": 1e-3}
    fast, _ = check_switch(setup, "wide_optimizer", on=["hand_written"], off=off, updates=20, **how)
    assert type(fast.optimizer).__name__ == {"adam": "WideAdam", "adamw": "WideAdamW", "rmsprop": "WideRMSprop"}[optimizer]


@OPTIMIZERS
def test_a_state_of_either_optimizer_goes_on_with_the_other(optimizer, off):
    settings = {"optimizer": optimizer, "optimizer_eps": 1e-3}
    wide, plain = (parts_of(SNAKE_CNN, ["hand_written", *on], off, **settings) for on in (["wide_optimizer"], []))
    batches = list(random_batches(plain, 40))
    for one, other in ((wide, plain), (plain, wide)):
        for batch in batches[:20]:
            one.learner.train_on(batch)
        other.learner.load_state(one.learner.state())
        before = weights(one.learner)
        for batch in batches[20:]:
            one.learner.train_on(batch)
            other.learner.train_on(batch)
        after = weights(one.learner)
        torch.testing.assert_close(after, weights(other.learner), rtol=1e-3, atol=1e-4)
        assert max((after[name] - before[name]).abs().max().item() for name in after) > 1e-3


@pytest.mark.parametrize("ticks", [8, 30, 60])
@pytest.mark.parametrize(("lanes", "rows", "shape", "dtype", "stack", "n_step", "clip"), SHAPES)
def test_fused_draw(lanes, rows, shape, dtype, stack, n_step, clip, ticks):
    check_fused_draw(lanes, rows, shape, dtype, stack, n_step, clip, ticks, "cpu", batch_sizes=(7, 70), draws=1)


@pytest.mark.parametrize(("lanes", "rows", "shape", "dtype", "stack", "n_step", "clip"), SHAPES)
def test_fused_window(lanes, rows, shape, dtype, stack, n_step, clip):
    check_fused_window(lanes, rows, shape, dtype, stack, n_step, clip, 30, "cpu")
