"""The model file: weights as safetensors, plain float32 under plain names, so it loads under any set of switches."""

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fastdqn.errors import UserError
from fastdqn.transition import EnvSpec

FORMAT = "fastdqn-model-1"


def facts_of(spec: EnvSpec, stack: int, step: int, update: int) -> dict[str, Any]:
    """The metadata of a model file."""
    return {
        "env_id": spec.env_id,
        "protocol": spec.protocol,
        "step": step,
        "update": update,
        "state_shape": list(spec.state_shape(stack)),
        "num_actions": spec.num_actions,
        "saved_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def save_model(path: Path, network: nn.Module, facts: dict[str, Any]) -> None:
    """Written to a temporary file and renamed, so that the file is always either the old one or the new one."""
    from safetensors.torch import save_file

    # Cloned, because safetensors refuses tensors that share memory, and tied weights of a user's own network do
    tensors = {
        name: value.detach().to("cpu", torch.float32).contiguous().clone() for name, value in network.state_dict().items()
    }
    facts = facts | _head_facts(network)
    beside = path.with_suffix(".tmp")
    save_file(tensors, beside, metadata={"format": FORMAT, "facts": json.dumps(facts)})
    os.replace(beside, path)


def read_facts(path: Path) -> dict[str, Any]:
    """The file's metadata: step, update, environment, shapes."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise UserError(f"There is no model at {path}. Was the run stopped before it saved one?")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except SafetensorError as error:
        raise UserError(f"{path} is damaged or no model file: {error}.") from None
    if metadata.get("format") != FORMAT:
        raise UserError(f"{path} was not written by this version of fastdqn (format {metadata.get('format')!r}).")
    facts: dict[str, Any] = json.loads(metadata["facts"])
    return facts


def load_model(path: Path, network: nn.Module) -> dict[str, Any]:
    """Loads the weights and returns the file's metadata; raises with the first difference if the shapes do not fit."""
    from safetensors.torch import load_file

    facts = read_facts(path)
    saved = load_file(path)
    wanted = network.state_dict()
    for name in [*wanted, *saved]:
        here = tuple(wanted[name].shape) if name in wanted else "nothing"
        there = tuple(saved[name].shape) if name in saved else "nothing"
        if here != there:
            raise UserError(
                f"The model {path} does not fit this network: at '{name}' it has {there} where {here} is needed. It was "
                f"trained on {facts.get('env_id')} with states {tuple(facts.get('state_shape', ()))} and "
                f"{facts.get('num_actions')} actions."
            )
    for name, here in _head_facts(network).items():
        if facts.get(name) != here:
            raise UserError(f"The model {path} was trained with {name} {facts.get(name)}, and this network has {here}.")
    network.load_state_dict(saved)
    return facts


def _head_facts(network: nn.Module) -> dict[str, Any]:
    """What the outputs mean if they are not Q-values: loss, atoms, support."""
    head = getattr(network, "head", None)
    return {} if head is None else head.facts()
