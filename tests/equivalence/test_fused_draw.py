"""fused_draw promises SAME_NUMBERS: three kernels draw what dozens of torch draw, bit for bit. On a GPU only; on a CPU the
same kernels are interpreted in test_triton_interpreted.py."""

import numpy as np
import pytest
import torch

from fastdqn.device.counter_rng import CounterRng
from fastdqn.replay.fast import device_window
from fastdqn.replay.fast.device_priorities import DevicePriorities
from fastdqn.replay.fast.device_ring import DeviceRing
from fastdqn.replay.fast.fused_draw import fused_sample, fused_window
from fastdqn.transition import DeviceBlock

SHAPES = [
    # lanes, rows, observation, dtype, stack, n_step, clip
    (3, 20, (1, 4, 4), np.uint8, 4, 3, True),
    (5, 17, (3, 5, 5), np.uint8, 1, 1, False),
    (1, 40, (2,), np.float32, 2, 5, False),
    (8, 33, (1, 2, 3), np.uint8, 3, 2, False),
    (128, 40, (1, 84, 84), np.uint8, 4, 1, True),
    (4096, 9, (3, 10, 10), np.uint8, 1, 3, False),
]


def filled(lanes, rows, shape, dtype, ticks, seed, device):
    """A ring with games of all lengths; some of its rows are tails, some firsts, some terminal."""
    rng, ring = np.random.default_rng(seed), DeviceRing(lanes, rows, shape, dtype, device)
    first = np.ones(lanes, bool)
    for _ in range(ticks):
        terminal = (rng.random(lanes) < 0.15) & ~first
        block = {
            "action": rng.integers(0, 4, lanes),
            "reward": rng.normal(size=lanes).astype(np.float32),
            "terminal": terminal,
            "first": first,
            "obs": (rng.random((lanes, *shape)) * 255).astype(dtype),
        }
        tensors = {name: torch.from_numpy(value).to(device) for name, value in block.items()}
        ring.write(DeviceBlock(slice(0, lanes), **tensors))
        ring.count(slice(0, lanes))
        first = terminal | (rng.random(lanes) < 0.1)
    return ring


def check_fused_draw(lanes, rows, shape, dtype, stack, n_step, clip, ticks, device, batch_sizes=(7, 64, 500), draws=3):
    ring = filled(lanes, rows, shape, dtype, ticks, seed=ticks, device=device)
    how = {"stack": stack, "n_step": n_step, "gamma": 0.97, "clip_rewards": clip}
    ours, theirs = CounterRng(5, device), CounterRng(5, device)
    weights = []
    for batch_size in batch_sizes:
        for _ in range(draws):
            fused, plain = fused_sample(ring, ours, batch_size, **how), device_window.sample(ring, theirs, batch_size, **how)
            for name in plain._fields:
                assert torch.equal(getattr(fused, name), getattr(plain, name)), name
            weights.append(plain.weight)
    assert ours.state() == theirs.state()
    assert torch.cat(weights).mean() > 0.5, "most draws are usable"


def check_fused_window(lanes, rows, shape, dtype, stack, n_step, clip, ticks, device, batch_size=64):
    """Of rows that were drawn by priority."""
    ring = filled(lanes, rows, shape, dtype, ticks, seed=ticks, device=device)
    priorities = DevicePriorities(ring, stack=stack, n_step=n_step, alpha=0.6, beta=0.4)
    priorities.load_state(None)  # the ring is filled already
    how = {"stack": stack, "n_step": n_step, "gamma": 0.97, "clip_rewards": clip}
    lane, row, _ = priorities.draw(CounterRng(3, device), batch_size)
    drawn = lane, row, torch.rand(batch_size, device=device)
    fused, plain = fused_window(ring, *drawn, **how), device_window.window(ring, *drawn, **how)
    for name in plain._fields:
        assert torch.equal(getattr(fused, name), getattr(plain, name)), name


@pytest.mark.gpu
@pytest.mark.parametrize("ticks", [30, 60])
@pytest.mark.parametrize(("lanes", "rows", "shape", "dtype", "stack", "n_step", "clip"), SHAPES)
def test_fused_window(lanes, rows, shape, dtype, stack, n_step, clip, ticks):
    check_fused_window(lanes, rows, shape, dtype, stack, n_step, clip, ticks, "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("ticks", [8, 30, 60])
@pytest.mark.parametrize(("lanes", "rows", "shape", "dtype", "stack", "n_step", "clip"), SHAPES)
def test_fused_draw(lanes, rows, shape, dtype, stack, n_step, clip, ticks):
    check_fused_draw(lanes, rows, shape, dtype, stack, n_step, clip, ticks, "cuda")
