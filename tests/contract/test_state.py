"""Every part that holds state can save it and go on from it exactly: one body over all of them."""

import copy

import numpy as np
import pytest
import torch

from fastdqn.build import build
from fastdqn.prepare import prepare
from fastdqn.runner.inline import InlineRunner
from fastdqn.runner.ports import Stop

SETTINGS = {
    "actor.lanes": 4,
    "actor.groups": 2,
    "replay.capacity": 2000,
    "replay.warmup_steps": 50,
    "replay.n_step": 3,
    "learner.batch_size": 16,
    "learner.steps_per_update": 2,
    "learner.target": "hard",
    "learner.target_every": 7,
    "network.kind": "mlp",
    "network.hidden": [16],
    "actor.epsilon_steps": 200,
}

SMALLER = {"catch": {"replay.capacity": 600}}  # 2000 pairs of stacks in float32 are 450 MB


def make_runner(env, seed, off=(), on=(), more=()):
    switches = {"switches.off": list(off), "switches.on": list(on)}
    job = prepare(env, settings=SETTINGS | SMALLER.get(env, {}) | {"seed": seed} | switches | dict(more))
    rows = []
    parts = build(job.config, job.kind, "cpu")
    runner = InlineRunner(parts, Stop(), rows.append, lambda score: None)
    runner.start()
    return runner


def same(one, other, path=""):
    """Asserts that two state trees are equal, naming the first leaf that differs."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            same(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), path
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            same(a, b, f"{path}[{i}]")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), path
    elif isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other, err_msg=path)
    else:
        assert one == other, path


def states(parts):
    found = {name: part.state() for name, part in parts.stateful().items()}
    for timing in ("seconds", "eval_seconds"):
        found["meter"].pop(timing)
    return found


TEXTBOOK = ["frame_ring", "array_replay", "inference_mode"]


@pytest.mark.parametrize("off", [[], ["frame_ring"], [*TEXTBOOK, "lane_vector_env"]], ids=["fast", "arrays", "textbook"])
@pytest.mark.parametrize("env", ["snake", "catch"])
def test_a_copy_that_loads_every_state_goes_on_exactly(env, off):
    check_a_copy_goes_on_exactly(env, off)


@pytest.mark.parametrize("env", ["snake", "catch"])
@pytest.mark.parametrize("on", [["device_ring"], ["device_ring", "device_snake"]], ids=["ring", "boards"])
def test_so_does_one_whose_ring_is_on_a_device(env, on, tensors_on_the_cpu):
    if env != "snake" and "device_snake" in on:
        pytest.skip("only Snake has boards on a device")
    check_a_copy_goes_on_exactly(env, tensors_on_the_cpu(on), on)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_so_does_one_that_draws_by_priority(prefetch):
    check_a_copy_goes_on_exactly("snake", [], more={"replay.prioritised": True, "learner.prefetch": prefetch})


@pytest.mark.parametrize("on", [["device_ring"], ["device_ring", "device_snake"]], ids=["ring", "boards"])
def test_so_does_one_that_draws_by_priority_on_a_device(on, tensors_on_the_cpu):
    check_a_copy_goes_on_exactly("snake", tensors_on_the_cpu(on), on, {"replay.prioritised": True})


@pytest.mark.parametrize("off", [[], ["compiled_draw"]], ids=["compiled", "plain"])
def test_so_does_one_whose_batches_are_drawn_ahead(off):
    check_a_copy_goes_on_exactly("snake", off, more={"learner.prefetch": 2})


def check_a_copy_goes_on_exactly(env, off, on=(), more=()):
    """A run, and a fresh one of another seed that loads its states, do the same things from there on: games, draws,
    exploration, updates, target copies."""
    original = make_runner(env, 1, off, on, more)
    for _ in range(60):
        original.round()
    original.settle()
    assert original.parts.learner.updates > 20
    saved = {name: copy.deepcopy(part.state()) for name, part in original.parts.stateful().items()}

    restored = make_runner(env, 2, off, on, more)
    for _ in range(11):
        restored.round()
    restored.settle()
    for name, part in restored.parts.stateful().items():
        part.load_state(saved[name])

    for _ in range(40):
        original.round()
        restored.round()
    for runner in (original, restored):
        runner.settle()
    assert original.parts.learner.updates > 60
    same(states(original.parts), states(restored.parts))


def test_a_saved_state_does_not_move_with_the_live_part():
    runner = make_runner("snake", seed=1)
    for _ in range(60):
        runner.round()
    saved = {name: part.state() for name, part in runner.parts.stateful().items()}
    before = copy.deepcopy(saved)
    for _ in range(20):
        runner.round()
    saved["meter"] = before["meter"] = {}
    same(before, saved)
