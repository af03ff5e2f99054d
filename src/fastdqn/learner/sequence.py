"""The layers of a network in the order of its forward pass, traced from a hand-written `forward`: so a user-defined class is
computed like the equivalent nn.Sequential."""

import copy
import operator
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import fx, nn

_RELUS: tuple[Any, ...] = (torch.relu, torch.relu_, nn.functional.relu, nn.functional.relu_, "relu", "relu_")
_FLATTENS: tuple[Any, ...] = (torch.flatten, "flatten", torch.reshape, "reshape", "view")
_ASKS_FOR_A_SHAPE: tuple[Any, ...] = ("size", getattr, operator.getitem)
TRIED = ((2, True), (3, False), (5, True), (2, False))  # rows, training mode


def read_layers(body: nn.Module) -> tuple[tuple[nn.Module, ...], str]:
    """The layers, or none and the reason. A flatten or reshape is taken to be of all but the batch, whatever sizes it names:
    compare with the module itself (`differs`) before relying on it."""
    if next(body.buffers(), None) is not None:
        return (), "it has buffers"
    hooked = next((name for name, layer in body.named_modules() if _has_hooks(layer)), None)
    if hooked is not None:
        return (), f"it has a hook at {hooked or 'the whole'}"
    try:
        with _random_states_kept():
            return _layers_on_the_way(body), ""
    except _NoSequence as reason:
        return (), str(reason)
    except Exception as error:  # a user-defined forward may raise anything when traced
        return (), f"its forward cannot be read ({type(error).__name__})"


def differs(layers: tuple[nn.Module, ...], body: nn.Module, state_shape: tuple[int, ...]) -> bool:
    """Whether calling the module differs from applying the layers in order: it may count its calls, keep state, draw random
    numbers, or behave differently in training mode. Only a copy of it is called."""
    body, generator = copy.deepcopy(body), torch.Generator().manual_seed(0)
    known = _kept_by(body)
    with _random_states_kept():
        for rows, training in TRIED:
            answer = state = torch.rand(rows, *state_shape, generator=generator)
            expected = body.train(training)(state)
            for layer in layers:
                answer = layer(answer)
            if answer.shape != expected.shape or not torch.allclose(answer, expected, rtol=1e-4, atol=1e-5, equal_nan=True):
                return True
    return _kept_by(body) != known


@contextmanager
def _random_states_kept() -> Iterator[None]:
    """Restores the global random states that a forward may change."""
    ours, pythons = np.random.get_state(), random.getstate()
    with torch.random.fork_rng(devices=[]):
        yield
    np.random.set_state(ours)
    random.setstate(pythons)


def _kept_by(body: nn.Module) -> list[dict[str, Any]]:
    """The state of the module and its submodules, besides weights."""
    return [
        {name: copy.copy(value) for name, value in vars(part).items() if name[0] != "_" and name != "training"}
        for part in body.modules()
    ]


def _has_hooks(layer: nn.Module) -> bool:
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks)


class _NoSequence(Exception):  # noqa: N818  (no error: most networks that branch are meant to)
    pass


def _layers_on_the_way(body: nn.Module) -> tuple[nn.Module, ...]:
    if type(body) is nn.Sequential:  # a subclass may have its own forward
        return tuple(layer for part in body for layer in _parts_of(part))
    layers: list[nn.Module] = []
    newest: fx.Node | None = None
    for node in fx.symbolic_trace(copy.deepcopy(body)).graph.nodes:
        if node.op == "placeholder":
            if newest is not None:
                raise _NoSequence("its forward takes more than a state")
            newest = node
        elif node.op == "output":
            if node.args != (newest,):
                raise _NoSequence("its forward does not answer with what its last layer gives")
        elif node.target not in _ASKS_FOR_A_SHAPE:
            layers.append(_layer(node, body))
            if not node.args or node.args[0] is not newest or newest in [*node.args[1:], *node.kwargs.values()]:
                raise _NoSequence("its forward branches")
            newest = node
    return tuple(layers)


def _parts_of(part: nn.Module) -> tuple[nn.Module, ...]:
    return _layers_on_the_way(part) if type(part) is nn.Sequential else (part,)


def _layer(node: fx.Node, body: nn.Module) -> nn.Module:
    if node.op == "call_module":
        return body.get_submodule(str(node.target))
    if node.target in _RELUS:
        return nn.ReLU()
    if node.target in _FLATTENS:
        return nn.Flatten()
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "?")
    raise _NoSequence(f"its forward is not only layers and ReLUs ({name})")
