"""C51 (Bellemare et al. 2017): a distribution over returns per action instead of their mean.

The network outputs logits of `atoms` returns, evenly spaced from v_min to v_max. The next state's distribution is shifted
by the reward, scaled by the discount and projected back onto the atoms; the loss is the cross entropy to it.
"""

from typing import Any

import torch
from torch import Tensor

from fastdqn.config import LearnerConfig
from fastdqn.learner.bootstrap import Bootstrap
from fastdqn.learner.heads import Head
from fastdqn.learner.passes import Passes, PerSample
from fastdqn.transition import Batch

TOO_MUCH_MASS = 0.05  # share of the TD targets' mass beyond the first or last atom: with more, the range is too narrow


class Categorical(Head):
    """Turns the logits of the atoms into the mean of their softmax."""

    def __init__(self, atoms: int, v_min: float, v_max: float) -> None:
        super().__init__()
        self.outputs, self.v_min, self.v_max = atoms, v_min, v_max
        # Not saved with the weights: the model file has it in its `facts`
        self.register_buffer("support", torch.linspace(v_min, v_max, atoms), persistent=False)
        self.support: Tensor

    @staticmethod
    def of(config: LearnerConfig) -> "Categorical":
        return Categorical(config.atoms, config.v_min, config.v_max)

    def forward(self, outputs: Tensor) -> Tensor:
        return outputs.float().softmax(2) @ self.support

    def facts(self) -> dict[str, Any]:
        return {"loss": "c51", "atoms": self.outputs, "support": [self.v_min, self.v_max]}


class CategoricalLoss:
    """The cross entropy between the predicted distribution of the action taken and the projected TD target."""

    name = "c51"

    def __init__(self, head: Categorical, bootstrap: Bootstrap) -> None:
        self.head, self.bootstrap = head, bootstrap
        self.beyond = torch.zeros(2, device=head.support.device)  # running sums: mass beyond the range, samples

    def __call__(self, passes: Passes, batch: Batch) -> PerSample:
        head, support = self.head, self.head.support
        best = self.bootstrap.next_action(
            head(passes.target_next), None if passes.online_next is None else head(passes.online_next)
        )
        chances = _of_action(passes.target_next.float(), best).softmax(1)
        returns = batch.returns.unsqueeze(1) + batch.discount.unsqueeze(1) * support  # (B, atoms)
        td_target = project(returns, chances, support).detach()
        outside = (chances * ((returns < support[0]) | (returns > support[-1]))).sum()
        self.beyond += torch.stack([outside.detach(), torch.full_like(outside, len(returns))])
        logits = _of_action(passes.online.float(), batch.action.unsqueeze(1))
        loss = -(td_target * logits.log_softmax(1)).sum(1)
        value = (logits.detach().softmax(1) * support).sum(1)
        return PerSample(loss, loss.detach(), value)

    def advice(self) -> str:
        """A message for the user if too much mass was beyond the range; resets the sums. Waits for the device."""
        outside, samples = (float(number) for number in self.beyond)
        self.beyond.zero_()
        share = outside / samples if samples else 0.0
        if share <= TOO_MUCH_MASS:
            return ""
        head = self.head
        return (
            f"c51: {share:.0%} of the TD targets' mass lies beyond learner.v_min={head.v_min:g} and "
            f"learner.v_max={head.v_max:g} and is cut to them: widen the range"
        )


def cross_entropy(config: LearnerConfig, head: Head, bootstrap: Bootstrap) -> CategoricalLoss:
    assert isinstance(head, Categorical), "made by the same row of the table"
    return CategoricalLoss(head, bootstrap)


def project(returns: Tensor, chances: Tensor, support: Tensor) -> Tensor:
    """Projects mass at `returns` (B, atoms) onto the support: each share is split between its two neighbours by distance,
    and mass beyond an end goes to that end. Fixed shapes: a hat function around every atom."""
    step = support[1] - support[0]
    inside = returns.clamp(support[0], support[-1])
    nearness = (1.0 - (inside.unsqueeze(1) - support.unsqueeze(1)).abs() / step).clamp(min=0.0)  # (B, atom, mass)
    return (nearness * chances.unsqueeze(1)).sum(2)


def _of_action(outputs: Tensor, action: Tensor) -> Tensor:
    """(B, actions, atoms), (B, 1) -> (B, atoms)."""
    return outputs.gather(1, action.unsqueeze(2).expand(-1, 1, outputs.shape[2])).squeeze(1)
