"""Replay on a device: blocks are copied from the host through pinned memory, batches stay on the device."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastdqn.device.counter_rng import CounterRng
from fastdqn.device.graphs import Launcher, as_it_is
from fastdqn.replay.fast import device_window
from fastdqn.replay.fast.device_priorities import DevicePriorities
from fastdqn.replay.fast.device_ring import DeviceRing
from fastdqn.transition import Batch, Block, DeviceBlock


class DeviceReplay:
    """A Replay whose batches are tensors on the ring's device."""

    def __init__(
        self,
        ring: DeviceRing,
        rng: CounterRng,
        *,
        stack: int,
        n_step: int,
        gamma: float,
        clip_rewards: bool,
        launcher: Launcher = as_it_is,
        sample: Callable[..., Batch] = device_window.sample,
        window: Callable[..., Batch] = device_window.window,
        priorities: DevicePriorities | None = None,
    ) -> None:
        """With `priorities`, they draw the rows and `window` makes a batch of them; otherwise `sample` does both."""
        self._sample, self._window, self.priorities = sample, window, priorities
        if priorities is not None:
            ring.after_write.append(priorities.opened)  # for every writer: a block's graph, or the actor's
        self.ring, self.device_rng, self.stack, self.n_step, self._launcher = ring, rng, stack, n_step, launcher
        self._how: dict[str, Any] = {"stack": stack, "n_step": n_step, "gamma": gamma, "clip_rewards": clip_rewards}
        self._lobbies: dict[tuple[int, int], Lobby] = {}  # by group of lanes

    def append(self, block: Block) -> None:
        lanes = (block.lanes.start, block.lanes.stop)
        if lanes not in self._lobbies:
            self._lobbies[lanes] = Lobby(block, self.ring, self._launcher)
        self._lobbies[lanes].append(block)

    def seal(self, lane: int) -> None:
        self.ring.seal(lane)

    def sample(self, batch_size: int, batches: int = 1) -> Batch:
        if len(self) == 0:
            raise ValueError("nothing to draw yet: no row has a full window")
        if self.priorities is not None:
            return self._window(self.ring, *self.priorities.draw(self.device_rng, batch_size, batches), **self._how)
        return self._sample(self.ring, self.device_rng, batches * batch_size, **self._how)

    def feedback(self, index: Tensor, priority: Tensor) -> None:
        """Takes tensors on the ring's device. Ignored if draws are uniform."""
        if self.priorities is not None:
            self.priorities.feedback(index, priority)

    def set_beta(self, beta: float) -> None:
        if self.priorities is not None:
            self.priorities.beta.fill_(beta)

    def gather(self, lane: np.ndarray, row: np.ndarray) -> Batch:
        device = self.ring.device
        lanes, rows = (torch.as_tensor(numbers, device=device) for numbers in (lane, row))
        return device_window.window(self.ring, lanes, rows, torch.ones(len(row), device=device), **self._how)

    def __len__(self) -> int:
        return self.ring.startable(self.stack, self.n_step)

    def state(self) -> dict[str, Any]:
        state = {"ring": self.ring.state(), "dice": self.device_rng.state()}
        return state if self.priorities is None else state | {"priorities": self.priorities.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.ring.load_state(state["ring"])
        self.device_rng.load_state(state["dice"])
        if self.priorities is not None:
            self.priorities.load_state(state.get("priorities"))


class Lobby:
    """Staging buffers for one group's blocks: a pinned buffer on the host, and its twin on the device.

    The pinned buffer may be overwritten once the device has read it (the event `_read`); the twin at any time, because the
    copy into it is queued behind everything that read the last one."""

    def __init__(self, example: Block, ring: DeviceRing, launcher: Launcher) -> None:
        self._ring = ring
        on_gpu = ring.device.type == "cuda"
        self._host = {name: _like(value, on_gpu) for name, value in _arrays(example).items()}
        self._twin = {name: torch.empty_like(tensor, device=ring.device) for name, tensor in self._host.items()}
        self._read = torch.cuda.Event(blocking=True) if on_gpu else None  # type: ignore[no-untyped-call]
        block = DeviceBlock(example.lanes, **self._twin)
        self._write = launcher(lambda: ring.write(block))

    def append(self, block: Block) -> None:
        if self._read is not None:
            self._read.synchronize()  # returns at once if the event was never recorded
        for name, value in _arrays(block).items():
            self._host[name].numpy()[...] = value
            self._twin[name].copy_(self._host[name], non_blocking=True)
        if self._read is not None:
            self._read.record()
        self._write()
        self._ring.count(block.lanes)


def _arrays(block: Block) -> dict[str, np.ndarray]:
    return {name: value for name, value in block._asdict().items() if name != "lanes"}


def _like(array: np.ndarray, pinned: bool) -> Tensor:
    tensor = torch.empty(array.shape, dtype=torch.from_numpy(array).dtype)
    return tensor.pin_memory() if pinned else tensor
