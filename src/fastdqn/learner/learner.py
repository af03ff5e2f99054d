"""ROLE: draws batches and trains on them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fastdqn.learner.update import FollowOnline, StatefulUpdate, Update
from fastdqn.metrics import Timers
from fastdqn.transition import Batch


class Learner:
    """`train(k)` does k updates. Nothing on its path waits for the device: losses are summed as tensors."""

    def __init__(
        self,
        online: nn.Module,
        target: nn.Module,
        optimizer: torch.optim.Optimizer,
        update: Update,
        follow: FollowOnline,
        draw: Callable[[], Batch],
        timers: Timers,
    ) -> None:
        self.online, self.target, self.optimizer = online, target, optimizer
        self.update, self._follow, self.draw = update, follow, draw  # public: a measurement may leave one of them out
        self._sample_time, self._learn_time = timers["sample"], timers["learn"]
        self.updates = 0
        self._sums: list[Tensor] = []  # [loss, q_mean] summed since the last read
        self._summed = 0

    def train(self, updates: int) -> None:
        for _ in range(updates):
            with self._sample_time:
                batch = self.draw()
            with self._learn_time:
                self.train_on(batch)

    def train_on(self, batch: Batch) -> None:
        values = self.update(batch)
        self.updates += 1
        self._follow(self.updates)
        self._add(values)

    def set_lr(self, lr: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def read_means(self) -> tuple[float | None, float | None]:
        """Mean loss and mean value since the last call. This waits for the device: call it once a log line."""
        if not self._summed:
            return None, None
        loss, q_mean = (float(total) / self._summed for total in self._sums)
        self._sums, self._summed = [], 0
        return loss, q_mean

    def _add(self, values: tuple[Tensor, Tensor]) -> None:
        if self._sums:
            for total, value in zip(self._sums, values, strict=True):
                total += value
        else:
            self._sums = [value.clone() for value in values]
        self._summed += 1

    def state(self) -> dict[str, Any]:
        return {
            "updates": self.updates,
            "online": _copied(self.online.state_dict()),
            "target": _copied(self.target.state_dict()),
            "optimizer": _copied(self.optimizer.state_dict()),
            "update": self.update.state() if isinstance(self.update, StatefulUpdate) else None,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.updates = state["updates"]
        self.online.load_state_dict(state["online"])
        self.target.load_state_dict(state["target"])
        self.optimizer.load_state_dict(_copied(state["optimizer"]))
        _lay_out_like_weights(self.optimizer)
        if state.get("update") is not None and isinstance(self.update, StatefulUpdate):
            self.update.load_state(state["update"])


def _lay_out_like_weights(optimizer: torch.optim.Optimizer) -> None:
    """A fused optimizer walks a weight and its moments in the order they lie in memory, so a state that was saved with
    another layout of the weights (channel planes, channels last) must be laid out as theirs."""
    for weight, moments in optimizer.state.items():
        for name, moment in moments.items():
            if isinstance(moment, Tensor) and moment.shape == weight.shape and moment.stride() != weight.stride():
                moments[name] = torch.empty_like(weight).copy_(moment)


def _copied(tree: Any) -> Any:
    """The same dicts and lists with every tensor copied: the saved state must not move with the live one."""
    if isinstance(tree, Tensor):
        return tree.detach().clone()
    if isinstance(tree, dict):
        return {key: _copied(value) for key, value in tree.items()}
    return [_copied(value) for value in tree] if isinstance(tree, list) else tree
