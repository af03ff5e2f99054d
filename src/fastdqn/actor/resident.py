"""Acting on the ring's device (switch `device_ring`): stacks are read from it, only the actions are copied to the host."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from fastdqn.actor.greedy import evaluating_of
from fastdqn.device.counter_rng import CounterRng, fraction, remainder
from fastdqn.device.graphs import Launcher, as_it_is
from fastdqn.transition import DeviceBlock, EnvSpec, Tick


class History(Protocol):
    """The ring on the device, as the actor sees it. It holds the frames, so no other history is needed."""

    device: torch.device

    def write(self, block: DeviceBlock) -> None: ...
    def count(self, lanes: slice) -> None: ...
    def newest_states(self, lanes: slice, stack: int) -> Tensor: ...


class ResidentPolicy:
    """Epsilon-greedy over a group of lanes, like policy.Policy. The ring is the frame history, so `observe` does nothing."""

    def __init__(
        self,
        network: nn.Module,
        ring: History,
        groups: Sequence[slice],
        spec: EnvSpec,
        stack: int,
        seed: int,
        launcher: Launcher = as_it_is,
    ) -> None:
        self._choosers = {
            (lanes.start, lanes.stop): Chooser(network, ring, lanes, spec.num_actions, stack, seed + number, launcher)
            for number, lanes in enumerate(groups)
        }

    def observe(self, lanes: slice, tick: Tick) -> None:
        """Does nothing: the sink has already stored this tick in the ring."""

    def act(self, lanes: slice, epsilon: float) -> np.ndarray:
        return self._choosers[lanes.start, lanes.stop].act(epsilon)

    def state(self) -> dict[str, Any]:
        return {str(lanes): chooser.state() for lanes, chooser in self._choosers.items()}

    def load_state(self, state: dict[str, Any]) -> None:
        for lanes, chooser in self._choosers.items():
            chooser.load_state(state[str(lanes)])


class Chooser:
    """Chooses one group's actions. Everything that changes between calls is a tensor."""

    def __init__(
        self,
        network: nn.Module,
        ring: History,
        lanes: slice,
        num_actions: int,
        stack: int,
        seed: int,
        launcher: Launcher = as_it_is,
    ) -> None:
        count, device = lanes.stop - lanes.start, ring.device
        self._network, self._ring, self._lanes, self._num_actions, self._stack = network, ring, lanes, num_actions, stack
        self._evaluating = evaluating_of(network)
        self.device_rng = CounterRng(seed, device)
        self.rng = np.random.default_rng(seed)  # for fully random steps, which do not use the device
        self._epsilon = torch.ones((), device=device)
        self.actions = torch.zeros(count, dtype=torch.int64, device=device)
        on_gpu = device.type == "cuda"
        self._answer = torch.zeros(count, dtype=torch.int64, pin_memory=on_gpu)
        # blocking: a spinning wait would keep a core busy
        self._answered = torch.cuda.Event(blocking=True) if on_gpu else None  # type: ignore[no-untyped-call]
        self._choose = launcher(self.choose_on_device)

    def act(self, epsilon: float) -> np.ndarray:
        """(L,) int64; valid until the group acts again."""
        if epsilon >= 1.0:
            return self.rng.integers(self._num_actions, size=len(self._answer))
        self.set_epsilon(epsilon)
        self._choose()
        self._answer.copy_(self.actions, non_blocking=True)
        if self._answered is not None:
            self._answered.record()
            self._answered.synchronize()
        return np.asarray(self._answer.numpy())

    def set_epsilon(self, epsilon: float) -> None:
        self._epsilon.fill_(epsilon)

    def state(self) -> dict[str, Any]:
        return {"dice": self.device_rng.state(), "rng": self.rng.bit_generator.state}

    def load_state(self, state: dict[str, Any]) -> None:
        self.device_rng.load_state(state["dice"])
        self.rng.bit_generator.state = state["rng"]

    @torch.no_grad()
    def choose_on_device(self) -> None:
        with self._evaluating():
            greedy = self._network(self._ring.newest_states(self._lanes, self._stack)).argmax(1)
        self.actions.copy_(explore(greedy, self._epsilon, self._num_actions, self.device_rng))


def explore(greedy: Tensor, epsilon: Tensor, num_actions: int, rng: CounterRng) -> Tensor:
    """Each action replaced by a uniform one with probability epsilon."""
    words = rng.bits(2 * len(greedy)).view(2, -1)
    return torch.where(fraction(words[0]) < epsilon, remainder(words[1], num_actions), greedy)
