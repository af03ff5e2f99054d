"""Drawing and the window on a GPU in three kernels (switch `fused_draw`): device_window.py in Triton, the same bits.

In torch a batch is dozens of kernels of a few microseconds, and two passes over the images. Here one kernel counts the valid
starts of the lanes, one chooses the rows and computes returns and stacks, and one copies every frame once.
"""

from typing import Any

import torch
from torch import Tensor

from fastdqn.device.counter_rng import CounterRng
from fastdqn.replay.fast.device_ring import DeviceRing
from fastdqn.transition import Batch

WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}  # frames are copied in the widest word that fits


def fused_sample(ring: DeviceRing, rng: CounterRng, batch_size: int, *, stack: int, n_step: int, **how: Any) -> Batch:
    """As device_window.sample: draws uniformly."""
    from fastdqn.replay.fast import fused_kernels  # here, because most machines have no Triton

    ends = torch.empty(ring.num_lanes, dtype=torch.int64, device=ring.device)
    fused_kernels.count_starts(ring.W, ends, ring.T, stack, n_step)
    index = torch.empty(batch_size, 2, dtype=torch.int64, device=ring.device)
    weight = torch.empty(batch_size, device=ring.device)
    batch = _batch(ring, index, weight, (ends, rng.key, rng.calls), stack=stack, n_step=n_step, **how)
    rng.calls += 1
    return batch


def fused_window(ring: DeviceRing, lane: Tensor, row: Tensor, weight: Tensor, **how: Any) -> Batch:
    """As device_window.window: the rows were drawn already, by priority."""
    return _batch(ring, torch.stack([lane, row], 1), weight, None, **how)


def _batch(
    ring: DeviceRing,
    index: Tensor,
    weight: Tensor,
    draw: tuple[Tensor, Tensor, Tensor] | None,
    *,
    stack: int,
    n_step: int,
    gamma: float,
    clip_rewards: bool,
) -> Batch:
    """With `draw` (ends of the lanes' starts, the generator's key and calls), `index` and `weight` are drawn and filled."""
    from fastdqn.replay.fast import fused_kernels

    numbers: dict[str, Any] = {"dtype": torch.int64, "device": ring.device}
    action, slots = (
        torch.empty(len(index), **numbers),
        torch.empty(len(index), 2, stack, **numbers),
    )  # slot -1: an empty frame
    returns, discount = (torch.empty(len(index), device=ring.device) for _ in range(2))
    fused_kernels.choose(
        (ring.W, ring.flags, ring.reward, ring.action, *(draw or (ring.W, ring.W, ring.W))),  # not read without `draw`
        (slots, index, action, returns, discount, weight),
        T=ring.T,
        stack=stack,
        n_step=n_step,
        gamma=gamma,
        clip_rewards=clip_rewards,
        drawn=draw is None,
    )
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
