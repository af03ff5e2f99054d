"""Adam and RMSprop on a CPU in one pass over memory (switch `one_pass_optimizer`).

The 1.7 million weights of the Nature network, their two moments and their gradients are 27 MB, more than a core's caches: a
step is bound by memory bandwidth. torch makes one pass over them in fused Adam and seven in RMSprop, after a pass that casts
the gradients to float32 and before another that casts the weights to bfloat16. Here it is one pass, by all threads, which
reads the gradients in the dtype of the backward pass and also writes the bfloat16 weights.
"""

import math
import operator
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fastdqn.config import LearnerConfig
from fastdqn.device.cores import usable_cores
from fastdqn.learner.optimizer import options_of

Views = tuple[np.ndarray | None, ...]  # weight, gradient, its two moments, bfloat16 copy or None; all flat
SMALL = 200_000  # weights: fewer are updated by one thread


class OnePass:
    """The common part: torch's results, and torch's state under its names, in compiled loops over each weight in memory
    order."""

    state: Any
    param_groups: list[dict[str, Any]]

    def lay_out(self, moments: tuple[str, str], kernel: Callable[..., None]) -> None:
        """`moments` are torch's names of the two moments kept for each weight."""
        from fastdqn.learner.fast import one_pass_kernels  # here, because importing numba takes half a second

        self._squares, self._kernel, self._moments = one_pass_kernels.squares, kernel, moments
        self._weights: list[Tensor] = self.param_groups[0]["params"]
        self._taken: Sequence[Tensor | None] | None = None  # gradients in fixed buffers
        self._copies: Sequence[Tensor | None] = [None] * len(self._weights)
        self._steps = torch.zeros(len(self._weights))  # of all weights; each weight's state has a view of its own
        self._shares: list[list[Views]] = []  # what each thread updates
        self._gradients: list[Tensor] = []
        self._flat_gradients: list[np.ndarray] = []
        self._seen: tuple[Any, int, Sequence[Any]] = (None, 0, ())  # state, threads and gradients the views were made for
        self._threads: ThreadPoolExecutor | None = None

    def take(self, weights: Sequence[Tensor], gradients: Sequence[Tensor], copies: Sequence[Tensor | None]) -> None:
        """For callers whose gradients are not in the weights' `grad`: from now on each weight's gradient is read from
        `gradients`, and its bfloat16 copy in `copies` is updated. The weights may come in any order;
        one that is not among them is not updated."""
        place = {weight: number for number, weight in enumerate(weights)}
        self._taken = [gradients[place[weight]] if weight in place else None for weight in self._weights]
        self._copies = [copies[place[weight]] if weight in place else None for weight in self._weights]
        self._seen = (None, 0, ())

    def clip(self, largest: float) -> None:
        """As nn.utils.clip_grad_norm_; gradients within the limit are not multiplied by 1."""
        self._look_again()
        norm = math.sqrt(sum(self._squares(gradient) for gradient in self._flat_gradients))
        if not norm + 1e-6 <= largest:  # also true for NaN
            torch._foreach_mul_(self._gradients, largest / (norm + 1e-6))

    def numbers(self, group: dict[str, Any], step: float) -> tuple[float, ...]:
        """The kernel's arguments after the views."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self._look_again()
        self._steps += 1.0
        numbers = self.numbers(self.param_groups[0], float(self._steps[0]))
        mine, *others = self._shares
        if others and self._threads is None:
            self._threads = ThreadPoolExecutor(usable_cores(), thread_name_prefix="fastdqn-optimizer")
        walking = [self._threads.submit(self._walk, share, numbers) for share in others if self._threads is not None]
        self._walk(mine, numbers)
        for walk in walking:
            walk.result()
        if self._taken is None:  # the next ones are in other memory, and these are freed
            self._seen, self._shares, self._gradients, self._flat_gradients = (*self._seen[:2], ()), [], [], []

    step.hooked = True  # type: ignore[attr-defined]  # torch wraps every other step for its profiler

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Nothing to do for fixed buffers: their gradients are overwritten, not accumulated, and the views stay valid."""
        if self._taken is None:
            for weight in self._weights:
                if weight.grad is not None:
                    weight.grad = None if set_to_none else weight.grad.detach().zero_()

    def _walk(self, share: list[Views], numbers: tuple[float, ...]) -> None:
        for views in share:
            self._kernel(*views, *numbers)

    def _look_again(self) -> None:
        """Makes views of the gradients and the state if they are not those last seen: loading a state replaces its tensors,
        and autograd allocates every gradient anew."""
        found = self._taken if self._taken is not None else [weight.grad for weight in self._weights]
        moment, threads, gradients = self._seen
        moved = moment is None or moment is not self._first_moment()
        same = len(gradients) == len(found) and all(map(operator.is_, gradients, found))
        if same and not moved and threads == torch.get_num_threads():
            return
        if moved:
            self._look_at_state()
        self._gradients, views = [], []
        for weight, gradient, (flat, *others) in zip(self._weights, found, self._state_views, strict=True):
            if gradient is not None:  # else the weight is skipped
                self._gradients.append(laid_out_as(weight, gradient))
                views.append((flat, flat_view(self._gradients[-1]), *others))
        self._flat_gradients = [some[1] for some in views if some[1] is not None]
        size = sum(weight.numel() for weight in self._weights)
        threads = torch.get_num_threads()
        self._shares = shared_out(views, threads if size >= SMALL else 1)
        self._seen = (self._first_moment(), threads, found)

    def _look_at_state(self) -> None:
        """Makes views of the state, which is created, as torch would, where there is none."""
        self._state_views: list[Views] = []  # of each weight: itself, its two moments, its copy
        for number, (weight, copy) in enumerate(zip(self._weights, self._copies, strict=True)):
            own = self.state[weight]
            for name in self._moments:
                if name not in own:
                    own[name] = torch.zeros_like(weight, memory_format=torch.preserve_format)
            self._steps[number] = own.get("step", 0.0)
            own["step"] = self._steps[number]
            tensors = (weight, *(own[name] for name in self._moments), copy)
            self._state_views.append(tuple(tensor if tensor is None else flat_view(tensor) for tensor in tensors))

    def _first_moment(self) -> Any:
        return self.state[self._weights[0]].get(self._moments[0])


class _Adam(OnePass):
    def numbers(self, group: dict[str, Any], step: float) -> tuple[float, ...]:
        beta1, beta2 = group["betas"]
        decay = float(group["lr"]) * group["weight_decay"]
        return float(group["lr"]) / (1.0 - beta1**step), (1.0 - beta2**step) ** 0.5, beta1, beta2, group["eps"], decay


class OnePassAdam(_Adam, torch.optim.Adam):  # type: ignore[misc]
    """No weight decay here, which torch's Adam would add to the gradient; AdamW is the one that decays weights."""


class OnePassAdamW(_Adam, torch.optim.AdamW):  # type: ignore[misc]
    pass


class OnePassRMSprop(OnePass, torch.optim.RMSprop):  # type: ignore[misc]
    def numbers(self, group: dict[str, Any], step: float) -> tuple[float, ...]:
        return float(group["lr"]), group["alpha"], group["eps"]


ONE_PASS: dict[str, tuple[type[Any], tuple[str, str], str]] = {
    "adam": (OnePassAdam, ("exp_avg", "exp_avg_sq"), "adam"),
    "adamw": (OnePassAdamW, ("exp_avg", "exp_avg_sq"), "adam"),
    "rmsprop": (OnePassRMSprop, ("square_avg", "grad_avg"), "rmsprop"),
}


def make_one_pass_optimizer(config: LearnerConfig, network: nn.Module) -> torch.optim.Optimizer:
    from fastdqn.learner.fast import one_pass_kernels

    made_by, moments, kernel = ONE_PASS[config.optimizer]
    optimizer: torch.optim.Optimizer = made_by(network.parameters(), lr=config.lr, **options_of(config))
    assert isinstance(optimizer, OnePass), "as the table says"
    optimizer.lay_out(moments, getattr(one_pass_kernels, kernel))
    return optimizer


def laid_out_as(weight: Tensor, gradient: Tensor) -> Tensor:
    """The gradient in the weight's memory layout: both are read in memory order."""
    if gradient.stride() == weight.stride():
        return gradient
    return torch.empty_like(weight, dtype=gradient.dtype).copy_(gradient)


def shared_out(views: Sequence[Views], threads: int) -> list[list[Views]]:
    """Splits flat views into `threads` shares of equal size, in their order; empty ones are left out."""
    total = sum(_length(some) for some in views)
    ends = [total * (number + 1) // threads for number in range(threads)]
    shares: list[list[Views]] = [[] for _ in range(threads)]
    start = 0  # of these views, among all elements
    for some in views:
        stop = start + _length(some)
        for number, end in enumerate(ends):
            begin = ends[number - 1] if number else 0
            low, high = max(start, begin) - start, min(stop, end) - start
            if low < high:
                shares[number].append(tuple(view if view is None else view[low:high] for view in some))
        start = stop
    return [share for share in shares if share]


def _length(views: Views) -> int:
    assert views[0] is not None, "the weight itself"
    return len(views[0])


def flat_view(tensor: Tensor) -> np.ndarray:
    """All elements in memory order, no copy."""
    return as_array(tensor.detach().as_strided((tensor.numel(),), (1,)))


def as_array(tensor: Tensor) -> np.ndarray:
    """The same memory as an array for compiled loops, where bfloat16 is its bits (bfloat16_kernel.py)."""
    return np.asarray((tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy())
