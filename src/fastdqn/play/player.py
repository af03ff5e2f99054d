"""A trained model that plays: `fastdqn.load(run).act(obs)`."""

from collections.abc import Iterable
from os import PathLike
from typing import Any

import numpy as np
import torch

from fastdqn.actor.greedy import make_greedy, without_autograd
from fastdqn.build import build_evaluator, build_network, stack_of
from fastdqn.config import Config
from fastdqn.env.kind import EnvKind
from fastdqn.env.registry import EnvName, find_env
from fastdqn.errors import UserError
from fastdqn.evaluator import Evaluator
from fastdqn.learner.network import MakeBody, choose_kind
from fastdqn.run import folder as folders
from fastdqn.run.folder import RunFolder
from fastdqn.run.model import load_model
from fastdqn.run.preflight import choose_device
from fastdqn.switches import resolve


class Player:
    """Greedy actions from a saved model. Keeps the frame history of one game: call `reset()` when a game begins."""

    def __init__(self, folder: RunFolder, config: Config, kind: EnvKind, own: MakeBody | None, device: str) -> None:
        self.folder, self.config, self.kind = folder, config, kind
        self.network = build_network(config, kind, own)
        self.facts = load_model(folder.model_path, self.network)
        self.network.to(device).eval()
        self.greedy = without_autograd(make_greedy(self.network, device))
        self._stack = stack_of(config, kind)
        self._history = np.zeros((self._stack, *kind.spec.obs_shape), kind.spec.obs_dtype)

    def reset(self) -> None:
        self._history[:] = 0

    def act(self, obs: Any) -> int:
        """The greedy action, in the environment's numbering, for its newest observation (or for a whole stacked state)."""
        return int(self._values(obs).argmax()) + self.kind.spec.action_start

    def values(self, obs: Any) -> np.ndarray:
        """One Q-value per action. Like `act`, it adds the observation to the frame history."""
        return self._values(obs)

    def evaluator(self, lanes: int) -> Evaluator:
        switches, _ = resolve((), ())
        return build_evaluator(self.config, self.kind, self.greedy, lanes, switches)

    def _values(self, obs: Any) -> np.ndarray:
        spec = self.kind.spec
        if self._stack > 1 and np.shape(obs) == spec.state_shape(self._stack):
            state = np.asarray(obs, spec.obs_dtype)
        else:
            self._history[:-1] = self._history[1:]
            self._history[-1] = spec.stored(obs)
            state = self._history.reshape(spec.state_shape(self._stack))
        with torch.inference_mode():
            device = next(self.network.parameters()).device
            return np.asarray(self.network(torch.from_numpy(state[None].copy()).to(device))[0].cpu())


def load(
    run: str | PathLike[str],
    *,
    env: EnvName | None = None,
    network: MakeBody | None = None,
    imports: Iterable[str] = (),
    device: str = "cpu",
) -> Player:
    """The trained model of a run. Your own env maker, network or imports must be passed again: a run folder stores no code
    and executes none."""
    folder, imports = folders.find(run), tuple(imports)
    config = folder.config()
    if env is None and config.own_env:
        raise UserError(f"{folder.path} was trained on an environment of your own. Hand it over: load(run, env=maker).")
    if env is None:
        check_imports(config, imports)
    kind = find_env(env or config.env_id, dict(config.env), imports)
    large = choose_kind(config.network.kind, kind.spec.state_shape(stack_of(config, kind))) == "nature"
    return Player(folder, config, kind, network, choose_device(device, large))


def check_imports(config: Config, given: tuple[str, ...]) -> None:
    """A run folder from someone else may name any module, so a module is imported only if the user names it too."""
    named = list(config.imports)
    if ":" in config.env_id:  # Gymnasium imports the part before the colon
        named.append(config.env_id.partition(":")[0])
    for module in named:
        if module not in given:
            raise UserError(
                f"This run needs the module '{module}', and a run imports nothing by itself. "
                f"If you trust it, add --import {module}."
            )
