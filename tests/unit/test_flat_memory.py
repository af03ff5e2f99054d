"""After the warm-up a run takes no more memory, however long it goes on: what grows with every step ends every long run."""

import gc
import tracemalloc

import pytest
import torch

from fastdqn.prepare import prepare
from fastdqn.run.probe import Probe

ROUNDS = {"snake": 150, "CartPole-v1": 400, "catch": 100}
BYTES_PER_STEP = 64  # Python's own small change; a frame of the smallest image here is 300 bytes


def warm(env, device="cpu", **settings):
    job = prepare(env, settings={"device": device, "learner.threads": 1, **settings})
    probe = Probe(job.config, job.kind, device)
    probe.warm_up(0.2)
    play(probe, 20)
    return probe


def play(probe, rounds):
    """Steps taken. Lines of metrics are kept by the probe, not by a run."""
    before, updates = probe.parts.actor.steps, probe.parts.learner.updates
    for _ in range(rounds):
        probe.runner.round()
    probe.runner.log()
    probe.rows.clear()
    assert probe.parts.learner.updates > updates
    return probe.parts.actor.steps - before


def growth_per_step(probe, rounds):
    """Bytes of Python and NumPy that a step leaves behind."""
    tracemalloc.start()
    try:
        play(probe, rounds // 4)  # what tracing itself sees for the first time
        gc.collect()  # else what waits to be collected counts, and when that happens is chance
        before, _ = tracemalloc.get_traced_memory()
        steps = play(probe, rounds)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / steps


@pytest.mark.slow
@pytest.mark.parametrize("env", ROUNDS)
def test_a_step_leaves_nothing_behind(env):
    probe = warm(env)
    try:
        assert growth_per_step(probe, ROUNDS[env]) < BYTES_PER_STEP
    finally:
        probe.close()


@pytest.mark.slow
def test_a_frame_kept_at_each_tick_would_be_noticed():
    probe = warm("snake")
    kept, observe = [], probe.parts.actor.policy.observe
    probe.parts.actor.policy.observe = lambda lanes, tick: (kept.append(tick.obs.copy()), observe(lanes, tick))
    try:
        assert growth_per_step(probe, ROUNDS["snake"]) > 4 * BYTES_PER_STEP
    finally:
        probe.close()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("env", "switches"),
    [
        ("catch", []),
        ("catch", ["device_ring", "cuda_graph"]),
        ("snake", ["device_ring", "cuda_graph"]),
        ("snake", ["device_ring", "cuda_graph", "device_snake"]),
        ("snake", []),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value) or "default",
)
def test_the_memory_of_the_gpu_stays_as_it_is(env, switches):
    off = ["device_snake"] if switches and "device_snake" not in switches else []
    probe = warm(env, "cuda", **{"switches.on": switches, "switches.off": off})
    try:
        play(probe, 100)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        play(probe, 200)
        torch.cuda.synchronize()
        assert torch.cuda.memory_allocated() <= before + 1024
    finally:
        probe.close()
