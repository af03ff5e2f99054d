"""Munchausen DQN (Vieillard et al. 2020): the policy's own log-probability is part of the reward.

    target = return + alpha * max(tau log pi(a|s), least) + discount * sum over a' of pi(a'|s') (q(a') - tau log pi(a'|s'))

with pi the softmax of the target network's values over the temperature tau. With n-step returns only the first action's
log-probability is added, as in Beyond The Rainbow.
"""

from torch import Tensor

from fastdqn.transition import Batch


def munchausen_target(values: Tensor, next_values: Tensor, batch: Batch, alpha: float, tau: float, least: float) -> Tensor:
    """(B,): the TD target from the target network's values of state and next state."""
    log_policy = tau_log_softmax(values.float(), tau).gather(1, batch.action.unsqueeze(1)).squeeze(1)
    next_values = next_values.float()
    next_log_policy = tau_log_softmax(next_values, tau)
    next_value = ((next_log_policy / tau).exp() * (next_values - next_log_policy)).sum(1)
    td_target: Tensor = batch.returns + alpha * log_policy.clamp(min=least, max=0.0) + batch.discount * next_value
    return td_target


def tau_log_softmax(values: Tensor, tau: float) -> Tensor:
    """`tau` times the log of the softmax of values / tau."""
    return tau * (values / tau).log_softmax(1)
