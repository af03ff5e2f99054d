"""Learner and actor concurrently on one GPU (switch `overlap`): updates run on their own CUDA stream.

    acting    .. act  store  draw(t)  take(t-1)  act  store  draw(t+1)  take(t) ..
    learning  ..... updates(t-1)  publish(t-1)  updates(t)  publish(t) ...........

The ring is read and written on the acting stream only: batches are drawn there, into slots that the learning stream reads.
The actor always uses a copy of the weights that is one call of `train` old: so a run is reproducible, whichever stream is
faster, and acting waits for updates only when it is a whole call ahead.
"""

from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fastdqn.actor.policy import Greedy
from fastdqn.device.graphs import Launcher, powers_of_two
from fastdqn.device.streams import Streams
from fastdqn.learner.learner import Learner
from fastdqn.learner.network import QNetwork
from fastdqn.transition import Batch


class Apart(NamedTuple):
    """What actor and learner need to run concurrently."""

    streams: Streams
    acting: QNetwork  # the actor's own copy of the weights

    def after_updates(self, greedy: Greedy) -> Greedy:
        """For evaluation: waits for all updates that were queued before."""

        def settled(states: np.ndarray) -> np.ndarray:
            self.streams.settle()
            return greedy(states)

        return settled


class OverlappedLearner(Learner):
    """As Learner. `acting` is the network that the actor uses."""

    def __init__(
        self, *, streams: Streams, acting: nn.Module, launcher: Launcher, before: Callable[[], None], **how: Any
    ) -> None:
        """`before`: host-side work before each launch, which a CUDA graph does not contain."""
        super().__init__(**how)
        self._streams, self._launcher, self._before = streams, launcher, before
        self._delayed = DelayedWeights(self.online, acting, streams)
        self._slots: dict[int, Iterator[Slot]] = {}  # by number of updates: two each, alternating

    def train(self, updates: int) -> None:
        if updates <= 0:
            return
        with self._streams.learning():
            super().train(updates)
            self._delayed.pass_on()

    def update_together(self, count: int) -> None:
        self._before()
        for size in powers_of_two(count):
            if size not in self._slots:
                self._slots[size] = cycle([Slot(self, size, self._streams, self._launcher) for _ in range(2)])
            next(self._slots[size]).fill_and_learn()

    def read_means(self) -> tuple[float | None, float | None]:
        with self._streams.learning():
            return super().read_means()

    def set_lr(self, lr: float) -> None:
        with self._streams.learning():
            super().set_lr(lr)

    def weights_were_loaded(self) -> None:
        super().weights_were_loaded()
        self._delayed.load_state(None)

    def settle(self) -> None:
        self._streams.settle()

    def state(self) -> dict[str, Any]:
        self.settle()
        return super().state() | {"board": self._delayed.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.settle()
        super().load_state(state)
        self._delayed.load_state(state.get("board"))
        self._streams.settle()


class Slot:
    """The batches of some updates: drawn on the acting stream, used on the learning stream."""

    def __init__(self, learner: Learner, size: int, streams: Streams, launcher: Launcher) -> None:
        self._learner, self._size, self._streams = learner, size, streams
        self._drawn, self._used = streams.event(), streams.event()
        self._draw, self._learn = launcher(self._draw_batches), launcher(self._learn_from_them)
        self._batches: Batch | None = None

    def fill_and_learn(self) -> None:
        with self._streams.acting():
            self._used.wait()
            self._draw()
            self._drawn.record()
        self._drawn.wait()
        self._learn()
        self._used.record()

    def _draw_batches(self) -> None:
        self._batches = self._learner.draw(self._size)

    def _learn_from_them(self) -> None:
        assert self._batches is not None, "drawn first"
        self._learner.learn_from(self._batches, self._size)


class DelayedWeights:
    """Passes weights from the learner to the actor: published on one stream, copied on the other."""

    def __init__(self, online: nn.Module, acting: nn.Module, streams: Streams) -> None:
        self._online, self._acting = _tensors(online), _tensors(acting)
        self._published = [tensor.clone() for tensor in self._online]
        self._streams, self._written, self._taken = streams, streams.event(), streams.event()

    @torch.no_grad()
    def pass_on(self) -> None:
        """The actor copies the weights that the last call published, then the newest weights are published."""
        with self._streams.acting():
            self._written.wait()
            torch._foreach_copy_(self._acting, self._published)
            self._taken.record()
        self._taken.wait()
        torch._foreach_copy_(self._published, self._online)
        self._written.record()

    def state(self) -> dict[str, list[Tensor]]:
        return {
            "acting": [tensor.clone() for tensor in self._acting],
            "published": [tensor.clone() for tensor in self._published],
        }

    @torch.no_grad()
    def load_state(self, state: dict[str, list[Tensor]] | None) -> None:
        """If None, from a run without delayed weights, the actor starts with the newest weights."""
        torch._foreach_copy_(self._acting, self._online if state is None else state["acting"])
        torch._foreach_copy_(self._published, self._online if state is None else state["published"])


def _tensors(network: nn.Module) -> list[Tensor]:
    return [tensor.detach() for tensor in (*network.parameters(), *network.buffers())]
