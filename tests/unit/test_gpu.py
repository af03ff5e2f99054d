"""What runs on the CPU in every other test, on a CUDA device. Skipped without one."""

import importlib
from functools import partial

import numpy as np
import pytest
import torch

import fastdqn
from fastdqn.prepare import prepare

pytestmark = pytest.mark.gpu

SMALL = {"replay.warmup_steps": 300, "evaluator.episodes": 4, "evaluator.lanes": 4, "log.every_steps": 500}


def test_snake_trains_on_the_gpu_and_its_model_plays_on_the_cpu(runs):
    run = fastdqn.train("snake", steps=4000, device="cuda", settings=SMALL, quiet=True)
    assert run.updates > 50
    on_gpu, on_cpu = fastdqn.load(run.path, device="cuda"), fastdqn.load(run.path, device="cpu")
    rng = np.random.default_rng(0)
    for _ in range(20):
        obs = rng.integers(0, 256, (3, 10, 10), dtype=np.uint8)
        np.testing.assert_allclose(on_gpu.values(obs), on_cpu.values(obs), rtol=1e-2, atol=1e-3)


def test_auto_takes_the_gpu_for_pixels():
    """Both are tried. For small networks either may win: with graphs an update of CartPole's waits for few launches.
    That the faster of the two is taken and remembered: test_probe.py."""
    assert prepare("pong").device == "cuda"


@pytest.mark.parametrize("off", [[], ["frame_ring"], ["frame_ring", "array_replay", "inference_mode"]])
def test_every_replay_feeds_the_gpu(runs, off):
    settings = SMALL | {"replay.capacity": 2000, "actor.lanes": 4}
    run = fastdqn.train("catch", steps=1000, device="cuda", off=off, settings=settings, quiet=True)
    assert run.updates > 50
    assert np.isfinite(run.metrics()[-1]["loss"])


def test_catch_is_learned_on_the_gpu(runs):
    run = fastdqn.train("catch", device="cuda", steps=8000, quiet=True)
    assert run.updates > 700
    assert run.score.mean >= 0.9


def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(fastdqn.UserError, match="is not there"):
        prepare("snake", settings={"device": f"cuda:{torch.cuda.device_count()}"})


def test_a_batch_larger_than_the_gpu_is_refused(runs, monkeypatch):
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (600 * 2**20, 0))
    with pytest.raises(fastdqn.UserError, match="memory on cuda"):
        fastdqn.train("catch", device="cuda", steps=100, settings={"learner.batch_size": 4096, "replay.warmup_steps": 10})
    assert not runs.exists()


def test_a_ring_larger_than_the_gpu_is_refused_with_the_largest_that_fits(runs):
    free, _ = torch.cuda.mem_get_info()
    rows = 2 * free // 7069  # of 84 x 84 bytes and what belongs to them
    with pytest.raises(fastdqn.UserError, match=r"memory on cuda .*The largest that fits: .*=\d+$") as refused:
        fastdqn.train("catch", device="cuda", on=["device_ring"], settings={"replay.capacity": rows})
    largest = int(str(refused.value).rpartition("=")[2])
    assert 0.4 * rows < largest < 0.51 * rows
    assert not runs.exists()


def test_memory_that_runs_out_during_the_run_ends_with_a_sentence(runs, monkeypatch):
    """Somebody else takes what is left, after the check."""
    monkeypatch.setattr(importlib.import_module("fastdqn.train"), "check_memory_of", lambda job: None)
    free, _ = torch.cuda.mem_get_info()
    rows = 2 * free // 7069
    with pytest.raises(fastdqn.UserError, match="The memory of cuda ran out"):
        fastdqn.train("catch", device="cuda", on=["device_ring"], settings={"replay.capacity": rows})


class WaitsForTheDevice(torch.nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, state):
        values = self.body(state)
        return values if float(values.sum()) > -1e9 else -values


def waiting_network(state_shape, num_actions):
    body = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(int(np.prod(state_shape)), num_actions))
    return WaitsForTheDevice(body)


def test_a_network_that_cannot_be_recorded_trains_and_is_refused_only_when_asked_for(runs):
    small = {"replay.capacity": 2000, "replay.warmup_steps": 200, "learner.steps_per_update": 4, "actor.epsilon_steps": 100}
    train = partial(fastdqn.train, "snake", steps=1500, device="cuda", network=waiting_network, settings=small, quiet=True)
    assert train().updates > 100
    with pytest.raises(fastdqn.UserError, match=r"^cuda_graph cannot record this network: .*--off cuda_graph$"):
        train(on=["cuda_graph"])
