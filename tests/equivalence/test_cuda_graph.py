"""Whole runs with the ring, and Snake's boards, on a device: on the CPU here, on a GPU and in graphs where there is one.

The switch cuda_graph: with graphs and without, the same run."""

import numpy as np
import pytest
import torch

import fastdqn
from fastdqn.actor.device_actor import LAG
from fastdqn.build import build
from fastdqn.build_learner import build_transfer
from fastdqn.device.graphs import powers_of_two
from fastdqn.errors import UserError
from fastdqn.learner.transfer import no_transfer
from fastdqn.prepare import prepare
from fastdqn.runner.inline import InlineRunner
from fastdqn.runner.ports import Stop

SMALL = {
    "actor.lanes": 8,
    "replay.capacity": 4000,
    "replay.warmup_steps": 200,
    "learner.batch_size": 16,
    "learner.steps_per_update": 4,
    "learner.target": "hard",
    "learner.target_every": 10,
    "network.kind": "mlp",
    "network.hidden": [32],
    "evaluator.episodes": 4,
    "evaluator.lanes": 4,
    "log.every_steps": 500,
}
RING, BOARDS = ["device_ring"], ["device_ring", "device_snake"]


@pytest.mark.parametrize("on", [RING, BOARDS], ids=["ring", "boards"])
def test_a_run_keeps_its_ratio_and_its_limit(on, tensors_on_the_cpu, runs):
    settings = SMALL | {"switches.on": on, "switches.off": tensors_on_the_cpu(on)}
    run = fastdqn.train("snake", steps=3000, device="cpu", settings=settings, quiet=True)
    last = run.metrics()[-1]
    assert 3000 - (LAG + 2) * 8 <= last["step"] <= 3000, "never more steps than asked"
    assert abs(last["step"] - 200 - last["update"] * 4) <= (LAG + 2) * 8 + 4
    assert np.isfinite(last["loss"])
    assert run.score.episodes == 4


def test_the_replay_counts_to_the_memory_of_the_device(tensors_on_the_cpu):
    def where(on):
        off = {*tensors_on_the_cpu(on), *([] if on else BOARDS)}
        job = prepare("snake", settings=SMALL | {"switches.on": on, "switches.off": sorted(off)})
        return next(need for need in job.needs if need.name == "replay").on_device

    assert where(RING)
    assert not where([])


def test_what_is_drawn_on_the_device_is_copied_nowhere():
    assert build_transfer("cuda", frozenset({"device_ring", "pinned_copies"})) is no_transfer


def test_boards_on_a_device_are_for_snake_only(tensors_on_the_cpu):
    with pytest.raises(UserError, match="device_snake does not apply"):
        prepare("catch", settings={"switches.on": BOARDS, "switches.off": tensors_on_the_cpu(BOARDS)})


@pytest.mark.parametrize("count", range(1, 70))
def test_counts_are_put_together_from_powers_of_two(count):
    pieces = powers_of_two(count)
    assert sum(pieces) == count
    assert pieces == sorted(pieces, reverse=True)
    assert all(piece & (piece - 1) == 0 for piece in pieces)


# On a GPU


def make_runner(env, on, off, seed=1, **more):
    off = [*off, *({"device_snake"} - set(on))]
    job = prepare(env, settings=SMALL | {"device": "cuda", "seed": seed, "switches.on": on, "switches.off": off} | more)
    runner = InlineRunner(build(job.config, job.kind, "cuda"), Stop(), lambda row: None, lambda score: None)
    runner.start()
    return runner


@pytest.mark.gpu
@pytest.mark.parametrize("on", [RING, BOARDS], ids=["ring", "boards"])
@pytest.mark.parametrize("env", ["snake", "catch"])
def test_a_graph_does_what_its_kernels_do_one_by_one(env, on, monkeypatch):
    """Two runs of one seed, with graphs and without: the same rows, draws, losses and weights, while the learning rate,
    epsilon and the target network change on the way."""
    if env != "snake" and on is BOARDS:
        pytest.skip("only Snake has boards on a device")
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)  # else two runs without graphs differ as well
    more = {
        "actor.epsilon_steps": 1500,
        "learner.lr": 1e-3,
        "learner.lr_end": 0.0,
        "limits.steps": 4000,
        "network.kind": "auto",
    }
    off = ["tf32", "bf16", "cudnn_benchmark"]
    graphed, plain = make_runner(env, [*on, "cuda_graph"], off, **more), make_runner(env, on, [*off, "cuda_graph"], **more)
    for _ in range(400):
        for runner in (graphed, plain):
            runner.round()
    for runner in (graphed, plain):
        runner.settle()
    ours, theirs = graphed.parts, plain.parts
    assert ours.learner.updates == theirs.learner.updates > 500
    assert ours.actor.steps == theirs.actor.steps
    for mine, other in zip(ours.learner.online.parameters(), theirs.learner.online.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)
    assert ours.learner.read_means() == pytest.approx(theirs.learner.read_means(), rel=1e-2, abs=1e-3)


@pytest.mark.gpu
def test_a_frozen_learning_rate_or_epsilon_would_be_noticed():
    """The learning rate falls to 0: a graph that kept its first one would go on moving the weights."""
    runner = make_runner("snake", [*BOARDS, "cuda_graph"], ["bf16"])
    for _ in range(200):
        runner.round()
    learner = runner.parts.learner
    runner.parts.lr_at = lambda step: 0.0
    runner.round()
    before = [weight.detach().clone() for weight in learner.online.parameters()]
    updates = learner.updates
    for _ in range(20):
        runner.round()
    assert learner.updates > updates
    assert all(torch.equal(weight, old) for weight, old in zip(learner.online.parameters(), before, strict=True))
    actor = runner.parts.actor
    actor.epsilon_at = lambda step: 0.0
    chosen = []
    for _ in range(2):
        actor.policy.set_epsilon(0.0)
        actor.policy.choose_on_device()
        chosen.append(actor.policy.actions.clone())
    assert torch.equal(*chosen), "greedy twice on the same boards"


@pytest.mark.gpu
def test_a_graph_acts_with_the_newest_weights_and_target():
    runner = make_runner("snake", [*RING, "cuda_graph"], ["bf16"], **{"actor.epsilon_steps": 1})
    for _ in range(200):
        runner.round()
    learner, chooser = runner.parts.learner, next(iter(runner.parts.actor.policy._choosers.values()))
    with torch.no_grad():
        last = list(learner.online.parameters())[-1]
        for action in range(4):
            last.zero_()
            last[action] = 100.0
            assert set(chooser.act(0.0).tolist()) == {action}


@pytest.mark.gpu
def test_a_state_loaded_into_a_run_with_graphs_goes_on_exactly():
    """Loading must not move the tensors that graphs read."""
    first = make_runner("snake", [*BOARDS, "cuda_graph"], ["bf16", "tf32"])
    second = make_runner("snake", [*BOARDS, "cuda_graph"], ["bf16", "tf32"], seed=2)
    for _ in range(150):
        first.round()
        second.round()
    for runner in (first, second):
        runner.settle()
    for name, part in second.parts.stateful().items():
        part.load_state(first.parts.stateful()[name].state())
    for _ in range(40):
        first.round()
        second.round()
    for runner in (first, second):
        runner.settle()
    assert first.parts.learner.updates == second.parts.learner.updates
    for mine, other in zip(first.parts.learner.online.parameters(), second.parts.learner.online.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("env", ["snake", "catch"])
def test_gpu_memory_stays_where_it_is(env):
    runner = make_runner(env, [*RING, "cuda_graph"], [])
    for _ in range(150):
        runner.round()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(300):
        runner.round()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before + 1024
