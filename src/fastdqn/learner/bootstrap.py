"""Where the value of the next state comes from: the bootstrap rules max, double and munchausen."""

from typing import Protocol

from torch import Tensor

from fastdqn.config import LearnerConfig
from fastdqn.learner.munchausen import munchausen_target
from fastdqn.learner.passes import Passes
from fastdqn.transition import Batch


class Bootstrap(Protocol):
    name: str
    needs_online_next: bool
    needs_target: bool

    def td_target(self, passes: Passes, batch: Batch) -> Tensor:
        """TD target (B,) float32, from passes that are Q-values: return + discount * value of the next state."""
        ...

    def next_action(self, target_next: Tensor, online_next: Tensor | None) -> Tensor:
        """(B, 1): the action whose value is that of the next state, chosen from Q-values."""
        ...


class Max:
    """The target network's largest value."""

    name, needs_online_next, needs_target = "max", False, False

    def td_target(self, passes: Passes, batch: Batch) -> Tensor:
        td_target: Tensor = batch.returns + batch.discount * passes.target_next.amax(1).float()
        return td_target

    def next_action(self, target_next: Tensor, online_next: Tensor | None) -> Tensor:
        return target_next.argmax(1, keepdim=True)


class Double:
    """The online network chooses the action, the target network gives its value (van Hasselt et al. 2016)."""

    name, needs_online_next, needs_target = "double", True, False

    def td_target(self, passes: Passes, batch: Batch) -> Tensor:
        best = self.next_action(passes.target_next, passes.online_next)
        td_target: Tensor = batch.returns + batch.discount * passes.target_next.gather(1, best).squeeze(1).float()
        return td_target

    def next_action(self, target_next: Tensor, online_next: Tensor | None) -> Tensor:
        assert online_next is not None, "needs_online_next says so"
        return online_next.argmax(1, keepdim=True)


class Munchausen:
    """The mean over the softmax policy, and a share of its log-probability added to the reward (munchausen.py)."""

    name, needs_online_next, needs_target = "munchausen", False, True

    def __init__(self, config: LearnerConfig) -> None:
        self._share, self._tau, self._least = config.munchausen_alpha, config.munchausen_tau, config.munchausen_clip

    def td_target(self, passes: Passes, batch: Batch) -> Tensor:
        assert passes.target is not None, "needs_target says so"
        return munchausen_target(passes.target, passes.target_next, batch, self._share, self._tau, self._least)

    def next_action(self, target_next: Tensor, online_next: Tensor | None) -> Tensor:
        raise TypeError("a mean over the policy has no one action")


def make_bootstrap(config: LearnerConfig) -> Bootstrap:
    rules: dict[str, Bootstrap] = {rule.name: rule for rule in (Max(), Double(), Munchausen(config))}
    return rules[config.bootstrap]
