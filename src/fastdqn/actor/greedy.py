"""From a network to greedy actions: the textbook way, and without autograd (switch `inference_mode`)."""

from typing import Any

import numpy as np
import torch
from torch import nn

from fastdqn.actor.policy import Greedy
from fastdqn.actor.recorder import Values


def make_greedy(network: nn.Module, device: str) -> Greedy:
    """Textbook: the forward pass records an autograd graph that is thrown away."""

    def greedy(states: np.ndarray) -> np.ndarray:
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
    """The values of all actions, for who wants to look at them."""

    def values(states: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return np.asarray(network(torch.from_numpy(states).to(device)).float().cpu().numpy())

    return values
