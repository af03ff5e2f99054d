"""compile promises SAME_NUMBERS: equal losses and gradients at each of 200 updates, with the weights synced before each.
Where torch.compile fails, the plain loss does the work and a line says so."""

import pytest
import torch

from fastdqn import build_learner as building
from fastdqn.device import hardware
from tests.equivalence.updates import CATCH_NATURE, SNAKE_CNN, SNAKE_MLP, check_switch, gradients, parts_of, random_batches

MISSING = hardware.lacks("compiler", "cpu")
needs_compiler = pytest.mark.skipif(bool(MISSING), reason=f"compile needs {MISSING}")


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


@pytest.fixture
def losses_used(monkeypatch):
    """The passes and losses that updates are made of, as build.py hands them over."""
    used = []
    make = building.Autograd
    monkeypatch.setattr(
        building, "Autograd", lambda passes, forward, *rest: used.append(forward) or make(passes, forward, *rest)
    )
    return used


def is_compiled(loss, batch):
    return "CompiledFunction" in loss(batch)[0].grad_fn.name()


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("double", [False, True], ids=["single", "double"])
def test_compile(double, losses_used):
    check_switch(SNAKE_MLP, "compile", double=double)
    (batch,) = random_batches(parts_of(SNAKE_MLP), 1)
    assert [is_compiled(loss, batch) for loss in losses_used[:2]] == [True, False]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1, "compiled once, and never again on the way"


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("setup", "updates"), [(SNAKE_CNN, 200), (CATCH_NATURE, 30)], ids=["cnn", "nature"])
@pytest.mark.parametrize("double", [False, True], ids=["single", "double"])
def test_compile_of_convolutions(setup, updates, double):
    check_switch(setup, "compile", updates, double=double)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.fixture
def has_compiler(monkeypatch):
    monkeypatch.setitem(hardware.NEEDS, "compiler", lambda device: "")


def test_trying_it_out_leaves_no_gradients_behind(monkeypatch, has_compiler):
    monkeypatch.setattr(torch, "compile", lambda function, **how: function)
    parts = parts_of(SNAKE_MLP, on=["compile"])
    assert parts.notes == []
    assert all(weight.grad is None for weight in parts.learner.online.parameters())


def breaks_forwards(function, **how):
    def call(*fields):
        raise RuntimeError("no such compiler\nand many lines of its own")

    return call


def breaks_backwards(function, **how):
    def call(*fields):
        loss, *rest = function(*fields)
        return loss.detach(), *rest

    return call


@pytest.mark.parametrize("broken", [breaks_forwards, breaks_backwards])
def test_a_compiler_that_fails_is_left_out_with_a_line(broken, monkeypatch, has_compiler):
    monkeypatch.setattr(torch, "compile", broken)
    parts, plain = parts_of(SNAKE_MLP, on=["compile"]), parts_of(SNAKE_MLP)
    (note,) = parts.notes
    assert note.startswith("compile is left off: torch.compile failed with RuntimeError: ")
    assert "\n" not in note
    assert "compile" not in parts.switches
    (batch,) = random_batches(plain, 1)
    for each in (parts, plain):
        each.learner.train_on(batch)
    torch.testing.assert_close(gradients(parts.learner), gradients(plain.learner), rtol=0, atol=0)
