"""fastdqn: the fastest way to train a DQN, every speed-up switchable, measured, and proved not to hurt learning.

The data path, read in one direction (docs/data-path.md follows one transition through it):

    env/       lanes of environments: send actions, recv ticks
    actor/     chooses actions, stores ticks as blocks
    replay/    ring of rows -> sampler -> window -> batch; the ratio says how many updates are due
    learner/   loss -> update -> new weights, which the actor plays with
    evaluator  plays whole games without exploring
    runner/    runs these roles; switches.py lists every speed-up, build.py assembles the parts
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Agent", "Player", "Run", "UserError", "load", "train"]

if TYPE_CHECKING:
    from fastdqn.agent import Agent
    from fastdqn.errors import UserError
    from fastdqn.play.player import Player, load
    from fastdqn.train import Run, train

_HOMES = {
    "Agent": "fastdqn.agent",
    "Player": "fastdqn.play.player",
    "Run": "fastdqn.train",
    "UserError": "fastdqn.errors",
    "load": "fastdqn.play.player",
    "train": "fastdqn.train",
}


def __getattr__(name: str) -> Any:
    """Imports public names on first use, so that `fastdqn --help` does not import torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fastdqn' has no attribute '{name}'")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


class _Package(ModuleType):
    """Importing a submodule sets it as an attribute of the package; this keeps `fastdqn.train` the function."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _HOMES and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

from fastdqn.env.ids import register_all  # noqa: E402  (the package must know its version and names first)

register_all()
