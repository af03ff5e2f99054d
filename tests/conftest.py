"""Fixed seeds for hypothesis, one thread, a cache folder of the tests' own, and what is skipped without a GPU."""

import pytest
import torch
from hypothesis import settings

from fastdqn.device import hardware

settings.register_profile("fixed", derandomize=True, deadline=None, print_blob=False)
settings.load_profile("fixed")


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """What was measured on this machine before is not read, and what the tests measure is not kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FASTDQN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """A second thread of torch does nothing for networks this small but wait, which takes long on a busy machine."""
    torch.set_num_threads(1)


@pytest.fixture
def tensors_on_the_cpu(monkeypatch):
    """Lets the parts that live on a GPU be built on the CPU: the same tensors, the same rules. Gives, for the switches that
    a test asks for, those that must be off: what only a GPU understands, and boards on the device unless asked for."""
    monkeypatch.setitem(hardware.NEEDS, "cuda", lambda device: "")
    only_there = {"pinned_copies", "cudnn_benchmark", "tf32", "cuda_graph", "fused_draw", "device_snake", "wide_optimizer"}
    return lambda on: sorted(only_there - set(on))


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """An empty folder to work in, so that runs/ lands there."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"
