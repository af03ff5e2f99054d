"""Drawing and the window on a GPU in three kernels (switch `fused_draw`): device_window.py in Triton, the same bits.

In torch a batch is dozens of kernels of a few microseconds, and the images are walked twice. Here one kernel counts where
a lane's starts begin, one chooses the rows and works out returns and stacks, and one copies every frame once.
"""

from typing import Any

import torch
from torch import Tensor

from fastdqn.device.counter_rng import CounterRng
from fastdqn.replay.fast.device_ring import DeviceRing
from fastdqn.transition import Batch

WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}  # frames are copied in the widest that fits


def fused_sample(
    ring: DeviceRing, rng: CounterRng, batch_size: int, *, stack: int, n_step: int, gamma: float, clip_rewards: bool
) -> Batch:
    """As device_window.draw and device_window.window, one after the other."""
    from fastdqn.replay.fast import fused_kernels  # here, because most machines have no Triton

    device = ring.device
    numbers: dict[str, Any] = {"dtype": torch.int64, "device": device}
    ends = torch.empty(ring.num_lanes, **numbers)
    index, action = torch.empty(batch_size, 2, **numbers), torch.empty(batch_size, **numbers)
    returns, discount, weight = (torch.empty(batch_size, device=device) for _ in range(3))
    slots = torch.empty(batch_size, 2, stack, **numbers)  # of the frames of state and next state; -1: an empty one
    fused_kernels.count_starts(ring.W, ends, ring.T, stack, n_step)
    fused_kernels.choose(
        (ring.W, ends, ring.flags, ring.reward, ring.action, rng.key, rng.calls),
        (slots, index, action, returns, discount, weight),
        T=ring.T,
        stack=stack,
        n_step=n_step,
        gamma=gamma,
        clip_rewards=clip_rewards,
    )
    rng.calls += 1
    states = _frames(fused_kernels, ring.obs, slots)
    return Batch(states[0], action, returns, discount, states[1], weight, index)


def _frames(kernels: Any, obs: Tensor, slots: Tensor) -> Tensor:
    """(2, B, stack * C, ...): states and next states."""
    batch_size, _, stack = slots.shape
    shape = obs.shape[1:]
    states = torch.empty(2, batch_size, stack * shape[0], *shape[1:], dtype=obs.dtype, device=obs.device)
    frame_bytes = obs[0].numel() * obs.element_size()
    width = next(width for width in WORDS if frame_bytes % width == 0)
    source, target = (tensor.view(-1).view(torch.uint8).view(WORDS[width]) for tensor in (obs, states))
    kernels.copy_frames(source, slots, target, frame_bytes // width)
    return states
