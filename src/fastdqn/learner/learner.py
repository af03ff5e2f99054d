"""ROLE: draws batches and trains on them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fastdqn.learner.feedback import FeedbackAtOnce, FeedbackFromGpu, NoFeedback
from fastdqn.learner.update import FollowOnline, Update
from fastdqn.metrics import Timers
from fastdqn.transition import Batch

LookAhead = Callable[[Batch], tuple[Tensor, ...]]  # inputs of the update besides the batch, row by row


def look_at_nothing(batch: Batch) -> tuple[Tensor, ...]:
    return ()


class Learner:
    """`train(k)` does k updates. It never waits for the device: losses are summed as tensors."""

    def __init__(
        self,
        online: nn.Module,
        target: nn.Module,
        optimizer: torch.optim.Optimizer,
        update: Update,
        follow: FollowOnline,
        draw: Callable[[int], Batch],
        timers: Timers,
        look_ahead: LookAhead = look_at_nothing,
        together: Callable[[int], int] = lambda done: 1,
        feedback: FeedbackAtOnce | FeedbackFromGpu | NoFeedback | None = None,
        advice: Callable[[], str] = lambda: "",
    ) -> None:
        """`draw(count)` returns the batches of `count` updates as one; `together(updates done)` is how many may be drawn at
        once, and `look_ahead` gets them before the first of these updates. `advice` may return a message for the user."""
        self.online, self.target, self.optimizer = online, target, optimizer
        self.update, self._follow, self.draw = update, follow, draw  # public: a benchmark may leave one of them out
        self.look_ahead, self._together, self._feedback, self.advice = look_ahead, together, feedback or NoFeedback(), advice
        self._sample_time, self._learn_time = timers["sample"], timers["learn"]
        self.updates = 0
        device = next(online.parameters()).device
        # Of loss and q_mean since the last read. On a GPU they stay where they are, because a graph adds to them there
        self._sums: list[Tensor | float] = [
            torch.zeros((), device=device) if device.type == "cuda" else 0.0 for _ in range(2)
        ]
        self._summed = 0

    def train(self, updates: int) -> None:
        while updates > 0:
            count = min(updates, self._together(self.updates))
            self.update_together(count)
            self._count(count)
            updates -= count

    def train_on(self, batch: Batch) -> None:
        self._update_on(batch)
        self._count(1)

    def update_together(self, count: int) -> None:
        """All device work of the next `count` updates. A CUDA graph may replace it (device/graphs.py)."""
        with self._sample_time:
            self._feedback.arrive()
            drawn = self.draw(count)
        self.learn_from(drawn, count)

    def learn_from(self, drawn: Batch, count: int) -> None:
        """`count` updates on batches that were drawn together."""
        with self._learn_time:
            if count == 1:
                self._update_on(drawn)
                return
            known = self.look_ahead(drawn)
            size = len(drawn.action) // count
            for start in range(0, size * count, size):
                rows = slice(start, start + size)
                self._update_on(drawn.rows(rows), *(values[rows] for values in known))

    def _update_on(self, batch: Batch, *known: Tensor) -> None:
        learned = self.update(batch, *known)
        self._sums[0] += learned.loss
        self._sums[1] += learned.q_mean
        self._feedback(batch.index, learned.error)

    def _count(self, updates: int) -> None:
        """Host-side work after the updates."""
        self.updates += updates
        self._summed += updates
        self._follow(self.updates)

    def set_lr(self, lr: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):  # in place: a CUDA graph reads it
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr

    def read_means(self) -> tuple[float | None, float | None]:
        """Mean loss and mean value since the last call. Waits for the device: call it once per log line."""
        if not self._summed:
            return None, None
        loss, q_mean = (float(total) / self._summed for total in self._sums)
        self._sums = [total.zero_() if isinstance(total, Tensor) and total.is_cuda else 0.0 for total in self._sums]
        self._summed = 0
        return loss, q_mean

    def weights_were_loaded(self) -> None:
        """To be called after loading weights into the online network: everything that follows it starts from them too."""
        self.target.load_state_dict(self.online.state_dict())

    def settle(self) -> None:
        """Waits for pending work: nothing that reading the weights would not wait for anyway."""
        self._feedback.arrive()

    def state(self) -> dict[str, Any]:
        return {
            "updates": self.updates,
            "online": _copied(self.online.state_dict()),
            "target": _copied(self.target.state_dict()),
            "optimizer": _copied(self.optimizer.state_dict()),
            "update": self.update.step.state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.updates = state["updates"]
        self.online.load_state_dict(state["online"])
        self.target.load_state_dict(state["target"])
        _load_in_place(self.optimizer, _copied(state["optimizer"]))
        self.update.step.load_state(state.get("update"))


HOW = ("capturable", "fused", "foreach", "differentiable")  # how an optimizer computes: not part of a saved state


def _load_in_place(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Existing tensors are filled in place, because a CUDA graph reads them."""
    own = {weight: dict(moments) for weight, moments in optimizer.state.items()}
    rates = [group["lr"] for group in optimizer.param_groups]
    how = [{name: group[name] for name in HOW if name in group} for group in optimizer.param_groups]
    optimizer.load_state_dict(saved)
    _lay_out_like_weights(optimizer)
    for weight, moments in own.items():
        saved_moments = optimizer.state[weight] or dict.fromkeys(moments, 0.0)  # nothing saved: no step was taken
        optimizer.state[weight] = {name: _filled(moments.get(name), new) for name, new in saved_moments.items()}
    for group, rate, own_ways in zip(optimizer.param_groups, rates, how, strict=True):
        group["lr"] = _filled(rate, group["lr"])
        group.update(own_ways)


def _filled(old: Any, new: Any) -> Any:
    if not isinstance(old, Tensor):
        return new
    return old.copy_(new) if isinstance(new, Tensor) else old.fill_(new)


def _lay_out_like_weights(optimizer: torch.optim.Optimizer) -> None:
    """A fused optimizer reads a weight and its moments in memory order, so a state that was saved with another memory layout
    of the weights (channels first, channels last) must be converted to theirs."""
    for weight, moments in optimizer.state.items():
        for name, moment in moments.items():
            if isinstance(moment, Tensor) and moment.shape == weight.shape and moment.stride() != weight.stride():
                moments[name] = torch.empty_like(weight).copy_(moment)


def _copied(tree: Any) -> Any:
    """The same dicts and lists with every tensor copied: the saved state must not change with the live one."""
    if isinstance(tree, Tensor):
        return tree.detach().clone()
    if isinstance(tree, dict):
        return {key: _copied(value) for key, value in tree.items()}
    return [_copied(value) for value in tree] if isinstance(tree, list) else tree
