"""The rules of prioritised.py in tensors on a device: fixed shapes and nothing read back, so that a CUDA graph can hold it.

Instead of a tree there are two levels: blocks of 1,024 slots, and a sum for each. After a change the sums of the affected
blocks are recomputed; a draw scans the sums, then one block.
"""

from typing import Any

import torch
from torch import Tensor

from fastdqn.device.counter_rng import CounterRng, fine_fraction
from fastdqn.replay.fast.device_ring import DeviceRing
from fastdqn.replay.prioritised import SMALLEST, fitting
from fastdqn.replay.ring import TAIL

BLOCK = 1024
AT_ONCE = 4096  # draws whose blocks are copied at once: 32 MB


class DevicePriorities:
    """A float64 for each slot of the ring: (priority + 1e-6) ** alpha for valid starts, 0 elsewhere."""

    def __init__(self, ring: DeviceRing, *, stack: int, n_step: int, alpha: float, beta: float) -> None:
        self._ring, self.stack, self.n_step, self.alpha = ring, stack, n_step, alpha
        self.slots = ring.num_lanes * ring.T
        numbers: dict[str, Any] = {"dtype": torch.float64, "device": ring.device}
        blocks = blocks_for(self.slots)
        self._all = torch.zeros(blocks * BLOCK + 1, **numbers)  # the last one takes writes to be ignored
        self.blocks = self._all[:-1].view(blocks, BLOCK)
        self.sums = torch.zeros(blocks, **numbers)
        self.maximum = torch.ones((), **numbers)
        self.beta = torch.full((), beta, **numbers)

    @property
    def stored(self) -> Tensor:
        """(lanes * T,), by slot."""
        return self._all[: self.slots]

    def opened(self, lanes: slice) -> None:
        """Each of these lanes got a new row: one more row has its n steps, and one has lost the oldest frame of its
        stack."""
        ring, newest = self._ring, self._ring.W[lanes] - 1
        base, ready = ring.base[lanes], newest - self.n_step
        slot = base + ready % ring.T  # if there is no such row yet: one that is 0
        usable = (ready >= 0) & ((ring.flags[slot] & int(TAIL)) == 0)
        lost = base + (newest + self.stack - 1) % ring.T  # the slot of row newest - T + stack - 1
        slots = torch.cat([slot, lost])
        values = torch.cat([torch.where(usable, self.maximum, 0.0), torch.zeros_like(lost, dtype=torch.float64)])
        self._all.index_copy_(0, slots, values)
        self._add_up(slots)

    @torch.no_grad()
    def feedback(self, index: Tensor, priority: Tensor) -> None:
        """As PrioritisedSampler.feedback."""
        ring, (lane, row) = self._ring, (index[:, 0], index[:, 1])
        known = (lane >= 0) & (lane < ring.num_lanes)
        lane = lane.clamp(0, ring.num_lanes - 1)
        slot, W = lane * ring.T + row % ring.T, ring.W[lane]
        valid = (row >= (W - ring.T + self.stack - 1).clamp(min=0)) & (row <= W - 1 - self.n_step)
        valid &= known & ((ring.flags[slot] & int(TAIL)) == 0) & (priority >= 0) & (priority < torch.inf)
        value = torch.where(valid, (priority.to(torch.float64) + SMALLEST) ** self.alpha, 0.0)
        place = torch.where(valid, slot, len(self._all) - 1)
        # The largest if a row occurs twice: the one result that does not depend on the order of a GPU's threads
        self._all.index_fill_(0, place, 0.0)
        self._all.scatter_reduce_(0, place, value, "amax")
        self.maximum.copy_(torch.maximum(self.maximum, value.amax()))
        self._add_up(slot)

    def draw(self, rng: CounterRng, batch_size: int, batches: int = 1) -> tuple[Tensor, Tensor, Tensor]:
        """(lane, row, weight), each (batches * batch_size,). If all priorities are 0: some row, with weight 0."""
        ring = self._ring
        # Two rows, because a GPU's cumsum of a single long one is not deterministic
        ends = self.sums.expand(2, -1).cumsum(1)[0]
        number = fine_fraction(rng.bits(batches * batch_size)) * ends[-1]
        block = torch.searchsorted(ends, number, right=True).clamp(max=len(ends) - 1)
        block = torch.where(self.sums[block] > 0, block, self.sums.argmax())  # rounding may select an empty one
        number = number - (ends - self.sums)[block]
        parts = [slice(start, start + AT_ONCE) for start in range(0, len(block), AT_ONCE)]
        slot = torch.cat([self._find(block[part], number[part]) for part in parts])
        lane = slot // ring.T
        newest = ring.W[lane] - 1
        row = (newest - (newest - slot % ring.T) % ring.T).clamp(min=0)
        return lane, row, self._weight(self._all[slot].view(batches, batch_size)).flatten()

    def state(self) -> dict[str, Any]:
        """As the priorities in PrioritisedSampler.state."""
        return {"stored": self.stored.cpu().numpy().copy(), "maximum": float(self.maximum)}

    def load_state(self, state: dict[str, Any] | None) -> None:
        """The ring has loaded its own state already. None: from a uniform replay."""
        ring = self._ring
        flags = ring.flags.view(ring.num_lanes, ring.T).cpu().numpy()
        stored, maximum = fitting(state, ring.rows_opened, flags, self.stack, self.n_step)
        self.stored.copy_(torch.from_numpy(stored).flatten())
        self.maximum.fill_(maximum)
        self.sums.copy_(_added_up(self.blocks))

    def _find(self, block: Tensor, number: Tensor) -> Tensor:
        """The slots in these blocks (B,) at which the running sum passes the numbers (B,). Never one that is 0: if
        rounding leaves no other, the first that is not."""
        here = self.blocks[block]  # (B, BLOCK)
        passes = here.cumsum(1) > number.unsqueeze(1)
        return block * BLOCK + ((here > 0) * (1 + passes.to(torch.uint8))).argmax(1)

    def _weight(self, stored: Tensor) -> Tensor:
        """(batches, B): (N P) ** -beta divided by the largest of each batch, where N and the total cancel."""
        drawn = stored > 0
        least = torch.where(drawn, stored, torch.inf).amin(1, keepdim=True)
        return torch.where(drawn, (least / stored) ** self.beta, 0.0).to(torch.float32)

    def _add_up(self, slots: Tensor) -> None:
        """Sums the blocks of these slots, or all if that is less. A block that occurs twice gets the same sum twice."""
        if len(slots) >= len(self.sums):
            self.sums.copy_(_added_up(self.blocks))
        else:
            touched = slots // BLOCK
            self.sums.index_copy_(0, touched, _added_up(self.blocks[touched]))


def _added_up(blocks: Tensor) -> Tensor:
    """Adds halves to halves: the same bits for any number of blocks, which `sum` does not guarantee."""
    while blocks.shape[1] > 1:
        left, right = blocks.chunk(2, 1)
        blocks = left + right
    return blocks.squeeze(1)


def blocks_for(slots: int) -> int:
    return -(-slots // BLOCK)


def bytes_of_blocks(slots: int) -> int:
    return 8 * (blocks_for(slots) * (BLOCK + 1) + 1)
