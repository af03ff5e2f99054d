"""Fixed seeds for hypothesis, and one place that says what is skipped without a GPU."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None, print_blob=False)
settings.load_profile("fixed")


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """An empty folder to work in, so that runs/ lands there."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"
