"""Made what lies beside it: small runs and learner states, which every later version must be able to read.

`python -m tests.golden.make` made them once, at the commit that their machine.json names. Never make them again: add new
ones beside them. tests/unit/test_golden.py reads them, and shares the states and batches below.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fastdqn
from fastdqn.build import build
from fastdqn.learner.learner import Learner
from fastdqn.learner.transfer import plain_transfer
from fastdqn.prepare import prepare
from fastdqn.runner.inline import InlineRunner
from fastdqn.runner.ports import Parts, Stop
from fastdqn.switches import dependents
from fastdqn.transition import Batch, EnvSpec

HERE = Path(__file__).parent

COMMON: dict[str, Any] = {
    "actor.lanes": 4,
    "actor.epsilon_steps": 200,
    "replay.capacity": 1000,
    "replay.warmup_steps": 100,
    "learner.batch_size": 16,
    "learner.steps_per_update": 4,
    "evaluator.episodes": 4,
    "evaluator.lanes": 4,
    "log.every_steps": 100,
    "device": "cpu",
    "switches.prefer": [],
}
SNAKE = COMMON | {"env.dim": 6, "network.kind": "cnn", "network.channels": [4], "network.hidden": [16]}
CARTPOLE = COMMON | {"network.hidden": [16, 16]}
CATCH = COMMON | {"network.channels": [4, 4, 4], "network.hidden": [16]}
HARD = {"learner.target": "hard", "learner.target_every": 20}
SOFT = {"learner.target": "soft", "learner.target_tau": 0.01}

RUNS = {
    "snake-cnn": ("snake", SNAKE | HARD),
    "cartpole-mlp": ("CartPole-v1", CARTPOLE | HARD),
    "catch-nature": ("catch", CATCH | HARD),
    "snake-rmsprop": ("snake", SNAKE | HARD | {"learner.optimizer": "rmsprop", "learner.lr": 2.5e-4}),
    "cartpole-soft": ("CartPole-v1", CARTPOLE | SOFT),
}

# Learners by the way an update is computed: what makes it so, and the class of the update
PATHS: dict[str, tuple[list[str], str]] = {
    "hand_written": (["lean_mlp"], "HandWritten"),
    "lean": ([], "Lean"),
    "autograd": (["hand_written", *dependents("hand_written")], "Autograd"),
}
SHORT = {"replay.capacity": 200, "replay.warmup_steps": 60, "learner.target_every": 7, "seed": 1}
LEARNERS = {  # only an MLP under Adam has the lean way
    "cartpole": ("CartPole-v1", CARTPOLE | HARD | SHORT, ["hand_written", "lean", "autograd"]),
    "snake": ("snake", SNAKE | HARD | SHORT, ["hand_written", "autograd"]),
    "snake-rmsprop": ("snake", RUNS["snake-rmsprop"][1] | SHORT, ["hand_written", "autograd"]),
}
FURTHER = 3  # updates made after a state was saved, on `fixed_batch`


def fixed_states(spec: EnvSpec, stack: int, count: int = 6, turn: int = 0) -> np.ndarray:
    """Made by a rule that no library can change."""
    shape = (count, *spec.state_shape(stack))
    numbers = (np.arange(np.prod(shape)) * 7919 + 104_729 * turn) % 10_007
    if spec.obs_dtype == np.uint8:
        return (numbers % 256).astype(np.uint8).reshape(shape)
    return (numbers / 10_007 * 2 - 1).astype(np.float32).reshape(shape)


def fixed_batch(parts: Parts, turn: int) -> Batch:
    size, spec, rows = parts.config.learner.batch_size, parts.spec, np.arange(parts.config.learner.batch_size)
    states = fixed_states(spec, parts.stack, 2 * size, turn)
    batch = Batch(
        state=states[:size],
        action=rows % spec.num_actions,
        returns=(rows % 5 - 2).astype(np.float32) / 2,
        discount=np.where(rows % 4 == 0, 0, 0.97).astype(np.float32),
        next_state=states[size:],
        weight=(rows % 7 != 0).astype(np.float32),
        index=None,
    )
    return plain_transfer("cpu")(batch)


def parts_of(which: str, path: str) -> Parts:
    """The parts of one of LEARNERS whose updates are computed in the way `path`."""
    env, settings, _ = LEARNERS[which]
    off, update = PATHS[path]
    job = prepare(env, settings=settings | {"switches.off": off})
    parts = build(job.config, job.kind, "cpu")
    way = type(parts.learner.update.backprop).__name__
    assert way == update, (which, path, way)
    return parts


def update_further(parts: Parts) -> list[float]:
    """The losses of a few updates on fixed batches."""
    losses = []
    for turn in range(FURTHER):
        parts.learner.train_on(fixed_batch(parts, turn))
        losses.append(parts.learner.read_means()[0])
    return losses


def weights_of(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in learner.online.named_parameters()}


def make_run(name: str) -> None:
    env, settings = RUNS[name]
    run = fastdqn.train(env, steps=400, settings=settings, run=f"{HERE.name}/{name}", quiet=True)
    assert run.updates > 50
    run.folder.curve_path.unlink()
    player = fastdqn.load(run)
    states = fixed_states(player.kind.spec, player.config.replay.stack or player.kind.stack)
    said = []
    for state in states:
        player.reset()
        said.append({"values": player.values(state).tolist()})
        player.reset()
        said[-1]["action"] = player.act(state)
    (run.path / "expected.json").write_text(json.dumps(said, indent=1) + "\n")


def in_tensors(tree: Any) -> Any:
    """Arrays become tensors: a file of tensors and plain values loads without executing code."""
    if isinstance(tree, dict):
        return {key: in_tensors(value) for key, value in tree.items()}
    return torch.from_numpy(tree.copy()) if isinstance(tree, np.ndarray) else tree


def in_arrays(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: in_arrays(value) for key, value in tree.items()}
    return tree.numpy() if isinstance(tree, torch.Tensor) else tree


def make_learner(which: str, path: str) -> None:
    parts = parts_of(which, path)
    runner = InlineRunner(parts, Stop(), lambda row: None, lambda score: None)
    runner.start()
    while parts.learner.updates < 20:
        runner.round()
    runner.settle()
    saved: dict[str, Any] = {"learner": parts.learner.state(), "replay": in_tensors(parts.replay.state())}
    parts.learner.read_means()
    saved["losses"] = update_further(parts)
    saved["weights_after"] = weights_of(parts.learner)
    torch.save(saved, HERE / f"learner-{which}-{path}.pt")
    parts.close()


def main() -> None:
    os.chdir(HERE.parent)  # so that a run's path is a relative one
    for name in RUNS:
        make_run(name)
    for which, (_, _, paths) in LEARNERS.items():
        for path in paths:
            make_learner(which, path)


if __name__ == "__main__":
    main()
