"""One tiny trained Snake for all tests that only look at a run."""

import importlib

import pytest

from tests.unit.tiny import train_tiny


@pytest.fixture(autouse=True)
def no_ceiling(monkeypatch):
    """The environment alone is not timed after each of the tiny runs: it takes longer than they do."""
    monkeypatch.setattr(importlib.import_module("fastdqn.train"), "CEILING_SECONDS", 0.0)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A finished run, to be read and not to be written to."""
    return train_tiny(run=str(tmp_path_factory.mktemp("trained") / "snake"))
