"""The newest weights in shared memory, for every process to copy.

There are two copies. Version v is written into copy v % 2 while readers still read version v - 1 from the other one, so
the learner never waits. A reader that was too slow notices (`begun` has passed it) and copies again.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from fastdqn.processes.shared import Shared

HEADER = {"begun": ((1,), np.int64), "version": ((1,), np.int64), "marks": ((2, 2), np.int64)}  # marks: step, update


def weight_fields(network: nn.Module) -> dict[str, tuple[tuple[int, ...], object]]:
    """One byte field per tensor, as NumPy may not have its dtype."""
    sizes = {name: value.numel() * value.element_size() for name, value in network.state_dict().items()}
    return {**HEADER, **{f"weights.{name}": ((2, size), np.uint8) for name, size in sizes.items()}}


class SharedWeights:
    """`publish` is for one writer, `newer` for any number of readers."""

    def __init__(self, shared: Shared, network: nn.Module) -> None:
        self._begun, self._version, self._marks = (shared[name] for name in HEADER)
        self._copies: list[dict[str, Tensor]] = [{}, {}]
        for name, value in network.state_dict().items():
            for side, memory in enumerate(shared[f"weights.{name}"]):
                self._copies[side][name] = torch.from_numpy(memory).view(value.dtype).view(value.shape)

    @property
    def version(self) -> int:
        return int(self._version[0])

    @property
    def step(self) -> int:
        """Step of the newest version."""
        return int(self._marks[self.version % 2, 0])

    def publish(self, weights: Mapping[str, Tensor], step: int, update: int) -> None:
        version = self.version + 1
        side = version % 2
        self._begun[0] = version
        for name, place in self._copies[side].items():
            place.copy_(weights[name])
        self._marks[side] = step, update
        self._version[0] = version

    def newer(self, than: int, network: nn.Module) -> tuple[int, int, int] | None:
        """Loads the newest weights into the network if they are newer; returns their version, step and update."""
        if self.version <= than:  # called every round, mostly with nothing new: allocates nothing
            return None
        own = network.state_dict()
        while (version := self.version) > than:
            side = version % 2
            for name, place in self._copies[side].items():
                own[name].copy_(place)
            step, update = (int(mark) for mark in self._marks[side])
            if self._begun[0] <= version + 1:  # version + 2, which overwrites this copy, had not begun
                return version, step, update
        return None
