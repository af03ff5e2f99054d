"""From a network to greedy actions: the textbook way, and without autograd (switch `inference_mode`)."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

from fastdqn.actor.policy import Greedy
from fastdqn.actor.recorder import Values


def evaluating_of(network: nn.Module) -> Callable[[], AbstractContextManager[Any]]:
    """A context in which a network with dropout or batch norm behaves as in evaluation mode."""
    evaluating: Callable[[], AbstractContextManager[Any]] = getattr(network, "evaluating", nullcontext)
    return evaluating


def make_greedy(network: nn.Module, device: str) -> Greedy:
    """Textbook: the forward pass records an autograd graph that is thrown away."""
    evaluating = evaluating_of(network)

    def greedy(states: np.ndarray) -> np.ndarray:
        with evaluating():
            values = network(torch.from_numpy(states).to(device))
        actions: Any = values.argmax(1).cpu().numpy()
        return np.asarray(actions)

    return greedy


def without_autograd(greedy: Greedy) -> Greedy:
    """The same function under torch.inference_mode: no graph, no version counters."""

    def inference(states: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return greedy(states)

    return inference


def make_values(network: nn.Module, device: str) -> Values:
    """The Q-values of all actions, for recorded games."""
    evaluating = evaluating_of(network)

    def values(states: np.ndarray) -> np.ndarray:
        with torch.inference_mode(), evaluating():
            return np.asarray(network(torch.from_numpy(states).to(device)).float().cpu().numpy())

    return values
