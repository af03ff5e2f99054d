"""The layers of a network in the order of its forward pass, traced from a hand-written `forward`: so a user-defined class is
computed like the equivalent nn.Sequential."""

import copy
import operator
import random
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

_RELUS: tuple[Any, ...] = (torch.relu, torch.relu_, nn.functional.relu, nn.functional.relu_, "relu", "relu_")
_FLATTENS: tuple[Any, ...] = (torch.flatten, "flatten", torch.reshape, "reshape", "view")
_ASKS_FOR_A_SHAPE: tuple[Any, ...] = ("size", getattr, operator.getitem)
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
TRIED = ((2, True), (3, False), (5, True), (2, False)) * 2  # rows, training mode


def read_layers(body: nn.Module) -> tuple[tuple[nn.Module, ...], str]:
    """The layers, or none and the reason. A flatten or reshape is taken to be of all but the batch, whatever sizes it names:
    compare with the module itself (`differs`) before relying on it."""
    if next(body.buffers(), None) is not None:
        return (), "it has buffers"
    hooked = next((name for name, layer in body.named_modules() if _has_hooks(layer)), None)
    if hooked is not None:
        return (), f"it has a hook at {hooked or 'the whole'}"
    if has_weight_hooks(body):
        return (), "a weight of it has a hook"
    try:
        with random_states_kept():
            trained, evaluated = (_layers_on_the_way(body, training) for training in (True, False))
    except _NoSequence as reason:
        return (), str(reason)
    except Exception as error:  # a user-defined forward may raise anything when traced
        return (), f"its forward cannot be read ({type(error).__name__})"
    if [name for name, _ in trained] != [name for name, _ in evaluated]:
        return (), "its forward does something else when it is trained"
    return tuple(layer for _, layer in trained), ""


def differs(body: nn.Module, state_shape: tuple[int, ...]) -> bool:
    """Whether calling the module differs from applying its layers in order, in values or gradients: it may keep state, draw
    random numbers, or stop gradients. Only a copy is called, with random weights, so that none of them is 0."""
    body = copy.deepcopy(body)
    layers, _ = read_layers(body)
    generator = torch.Generator().manual_seed(0)
    for weight in body.parameters():  # of such a size that values stay near 1 from layer to layer
        inputs = weight[0].numel() if weight.dim() > 1 else 12
        weight.data = (torch.rand(weight.shape, generator=generator, dtype=weight.dtype) - 0.5) * (24 / inputs) ** 0.5
    weights = [weight for weight in body.parameters() if weight.requires_grad]
    known = kept_by(body)
    try:
        with random_states_kept(), torch.enable_grad():
            for rows, training in TRIED:
                state = torch.rand(rows, *state_shape, generator=generator)
                expected, answer = body.train(training)(state.clone()), _in_order(layers, state.clone())
                if not _close([expected, *_gradients(expected, weights)], [answer, *_gradients(answer, weights)]):
                    return True
    except Exception:  # a reshape that is no flatten, most often
        return True
    return kept_by(body) != known


def _in_order(layers: tuple[nn.Module, ...], state: Tensor) -> Tensor:
    for layer in layers:
        state = layer(state)
    return state


def _gradients(answer: Tensor, weights: list[nn.Parameter]) -> tuple[Tensor | None, ...]:
    return torch.autograd.grad(answer.sin().sum(), weights, allow_unused=True)


def _close(ours: list[Tensor | None], theirs: list[Tensor | None]) -> bool:
    for our, their in zip(ours, theirs, strict=True):
        if our is None or their is None:
            if our is not their:
                return False
        elif our.shape != their.shape or not torch.allclose(our, their, rtol=1e-3, atol=1e-4, equal_nan=True):
            return False
    return True


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Restores the global random states that a forward may change."""
    numpys, pythons = np.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        np.random.set_state(numpys)
        random.setstate(pythons)


def kept_by(body: nn.Module) -> list[dict[str, Any]]:
    """What the module and its submodules remember besides weights and buffers, to be compared."""
    return [
        {name: _fingerprint(value) for name, value in vars(part).items() if name not in _OF_EVERY_MODULE}
        for part in body.modules()
    ]


def _fingerprint(value: Any) -> Any:
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        return id(value), value._version
    if isinstance(value, np.ndarray):
        return id(value), value.tobytes()
    if isinstance(value, dict):
        return id(value), list(map(id, value)), list(map(id, value.values()))
    return (id(value), list(map(id, value))) if isinstance(value, (list, tuple, set, deque)) else id(value)


def has_weight_hooks(body: nn.Module) -> bool:
    return any(
        weight._backward_hooks or getattr(weight, "_post_accumulate_grad_hooks", None) for weight in body.parameters()
    )


def _has_hooks(layer: nn.Module) -> bool:
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks)


class _NoSequence(Exception):  # noqa: N818  (no error: most networks that branch are meant to)
    pass


def _layers_on_the_way(body: nn.Module, training: bool) -> list[tuple[str, nn.Module]]:
    """With a name for each layer, the same for the same layer."""
    if type(body) is nn.Sequential:  # a subclass may have its own forward
        return [(str(id(layer)), layer) for layer in _flattened(body)]
    layers: list[tuple[str, nn.Module]] = []
    newest: fx.Node | None = None
    for node in fx.symbolic_trace(copy.deepcopy(body).train(training)).graph.nodes:
        if node.op == "placeholder":
            if newest is not None:
                raise _NoSequence("its forward takes more than a state")
            newest = node
        elif node.op == "output":
            if node.args != (newest,):
                raise _NoSequence("its forward does not answer with what its last layer gives")
        elif node.target not in _ASKS_FOR_A_SHAPE:
            layer = _layer(node, body)
            if not node.args or node.args[0] is not newest or newest in [*node.args[1:], *node.kwargs.values()]:
                raise _NoSequence("its forward branches")
            layers.append((str(node.target) if node.op == "call_module" else type(layer).__name__, layer))
            newest = node
    return layers


def _flattened(body: nn.Module) -> Iterator[nn.Module]:
    for part in body.children():
        yield from _flattened(part) if type(part) is nn.Sequential else [part]


def _layer(node: fx.Node, body: nn.Module) -> nn.Module:
    if node.op == "call_module":
        return body.get_submodule(str(node.target))
    if node.target in _RELUS:
        return nn.ReLU()
    if node.target in _FLATTENS:
        return nn.Flatten()
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "?")
    raise _NoSequence(f"its forward is not only layers and ReLUs ({name})")
