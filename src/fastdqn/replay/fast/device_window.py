"""Drawing and the window on a device: sampler.py and window.py in tensors, the same bits from the same rows."""

import torch
from torch import Tensor

from fastdqn.device.counter_rng import CounterRng, remainder
from fastdqn.replay.fast.device_ring import DeviceRing, stacked
from fastdqn.replay.ring import TAIL, TERMINAL
from fastdqn.replay.sampler import CANDIDATES
from fastdqn.transition import Batch


def sample(
    ring: DeviceRing, rng: CounterRng, batch_size: int, *, stack: int, n_step: int, gamma: float, clip_rewards: bool
) -> Batch:
    lane, row, weight = draw(ring, rng, batch_size, stack, n_step)
    return window(ring, lane, row, weight, stack=stack, n_step=n_step, gamma=gamma, clip_rewards=clip_rewards)


def draw(ring: DeviceRing, rng: CounterRng, batch_size: int, stack: int, n_step: int) -> tuple[Tensor, Tensor, Tensor]:
    """(lane, row, weight), each (batch_size,): UniformSampler.draw with random numbers that a CUDA graph can draw."""
    low, count = ring.valid_starts(stack, n_step)
    ends = count.cumsum(0)
    u = remainder(rng.bits(CANDIDATES * batch_size), ends[-1]).view(CANDIDATES, batch_size)
    lane = torch.searchsorted(ends, u, right=True)
    row = low[lane] + u - (ends[lane] - count[lane])
    usable = (ring.flags[lane * ring.T + row % ring.T] & int(TAIL)) == 0
    chosen_lane, chosen_row = lane[0], row[0]
    for candidate in range(CANDIDATES - 1, -1, -1):  # the first usable one is written last
        chosen_lane = torch.where(usable[candidate], lane[candidate], chosen_lane)
        chosen_row = torch.where(usable[candidate], row[candidate], chosen_row)
    return chosen_lane, chosen_row, usable.any(0).to(torch.float32)


def window(
    ring: DeviceRing,
    lane: Tensor,  # (B,)
    row: Tensor,  # (B,) absolute; valid starts, never TAIL
    weight: Tensor,  # (B,) float32
    *,
    stack: int,
    n_step: int,
    gamma: float,
    clip_rewards: bool,
) -> Batch:
    base = lane * ring.T
    returns = torch.zeros_like(weight)
    discount = torch.ones_like(weight)
    steps = torch.zeros_like(row)
    running = torch.ones_like(row, dtype=torch.bool)
    for k in range(n_step):
        slot = base + (row + k) % ring.T
        flags, reward = ring.flags[slot], ring.reward[slot]
        if clip_rewards:
            reward = reward.clamp(-1.0, 1.0)
        running = running & ((flags & int(TAIL)) == 0)
        returns = returns + torch.where(running, discount * reward, 0.0)
        discount = torch.where(running, discount * gamma, discount)
        steps = steps + running
        terminal = running & ((flags & int(TERMINAL)) != 0)
        discount = discount.masked_fill(terminal, 0.0)
        running = running & ~terminal
    return Batch(
        state=stacked(ring, lane, row, stack),
        action=ring.action[base + row % ring.T],
        returns=returns,
        discount=discount,
        next_state=stacked(ring, lane, row + steps, stack),
        weight=weight,
        index=torch.stack([lane, row], 1),
    )
