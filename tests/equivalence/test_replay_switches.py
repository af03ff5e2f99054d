"""array_replay, frame_ring and compiled_draw promise SAME_NUMBERS: the same transitions from the same blocks, every bit."""

import numpy as np
import pytest
import torch

from fastdqn.build import active_switches, build
from fastdqn.build_replay import build_replay
from fastdqn.errors import UserError
from fastdqn.learner.transfer import plain_transfer
from fastdqn.prepare import prepare
from tests.equivalence.updates import same_updates

SETTINGS = {
    "actor.lanes": 3,
    "replay.capacity": 3000,
    "replay.n_step": 3,
    "replay.warmup_steps": 0,
    "learner.batch_size": 32,
    "learner.target_every": 50,
    "switches.prefer": [],  # float32 on both sides
    "network.kind": "mlp",
    "network.hidden": [32],
}
TEXTBOOK = ["frame_ring", "array_replay"]
to_tensors = plain_transfer("cpu")


def filled(env, off, ticks=300):
    """A replay of the given switches, fed with the same games."""
    job = prepare(env, settings=SETTINGS | {"switches.off": off})
    parts = build(job.config, job.kind, "cpu")
    parts.actor.start([1, 2, 3])
    for _ in range(ticks):
        parts.actor.step(0)
    return parts


def check_same_transitions(env):
    deque_parts, array_parts, ring_parts = filled(env, TEXTBOOK), filled(env, ["frame_ring"]), filled(env, [])
    kinds = [type(parts.replay).__name__ for parts in (deque_parts, array_parts, ring_parts)]
    assert kinds == ["DequeReplay", "ArrayReplay", "RingReplay"]
    stored = np.array([t.index for t in deque_parts.replay.memory])
    opened = ring_parts.replay.ring.W[stored[:, 0]]
    stored = stored[stored[:, 1] <= opened - 1 - 3]  # the ring offers a start once all its n rows are there
    assert len(stored) > 200
    lane, row = stored.T
    batches = [to_tensors(parts.replay.gather(lane, row)) for parts in (deque_parts, array_parts, ring_parts)]
    for name in ("state", "action", "returns", "discount", "next_state"):
        fields = [getattr(batch, name).to(torch.float64) for batch in batches]
        assert torch.equal(fields[0], fields[1]), name
        assert torch.equal(fields[0], fields[2]), name
    assert (batches[0].discount == 0).any()
    assert (batches[0].returns != 0).any()


def test_same_transitions_from_snake():
    check_same_transitions("snake")


def test_same_transitions_from_stacked_frames():
    """Catch with a stack of 4: every frame is kept once in the ring and eight times in the textbook replays."""
    job = prepare("catch", settings=SETTINGS | {"network.kind": "mlp"})
    assert job.config.replay.stack == 4
    check_same_transitions("catch")


def test_same_losses_and_gradients_at_200_updates():
    """The same batches through the ring (bytes) and through the textbook deque (floats): equal losses and gradients at
    every update, with the parameters synced before each."""
    ring_parts, deque_parts = filled("snake", []), filled("snake", TEXTBOOK)
    rng = np.random.default_rng(0)
    stored = np.array([t.index for t in deque_parts.replay.memory])
    stored = stored[stored[:, 1] <= ring_parts.replay.ring.W[stored[:, 0]] - 4]

    def pairs():
        for _ in range(200):
            lane, row = stored[rng.integers(len(stored), size=32)].T
            yield tuple(to_tensors(parts.replay.gather(lane, row)) for parts in (ring_parts, deque_parts))

    same_updates(ring_parts.learner, deque_parts.learner, pairs())
    assert ring_parts.learner.updates == 200


def test_compiled_draws_train_the_same_network():
    """The same games and the same draws: every batch bit for bit, over a stretch in which the ring comes around."""
    compiled, plain = filled("catch", []), filled("catch", ["compiled_draw"])
    assert [type(parts.replay.sampler).__name__ for parts in (compiled, plain)] == ["CompiledSampler", "UniformSampler"]
    for _ in range(20):
        for _ in range(100):
            compiled.actor.step(0)
            plain.actor.step(0)
        for ours, theirs in zip(compiled.replay.sample(32), plain.replay.sample(32), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert compiled.replay.ring.W.min() > compiled.replay.ring.T, "it came around"


@pytest.mark.parametrize("off", [["frame_ring"], TEXTBOOK])
def test_only_a_ring_draws_by_priority(off):
    job = prepare("snake", settings=SETTINGS | {"switches.off": off})
    replay = job.config.replay.model_copy(update={"prioritised": True})
    config = job.config.model_copy(update={"replay": replay})
    with pytest.raises(UserError, match=r"replay\.prioritised=true needs the switch frame_ring: leave it on"):
        build_replay(config, job.kind.spec, 1, "cpu", job.switches)
    with pytest.raises(UserError, match="needs the switch frame_ring"):  # before anything is allocated
        prepare("snake", settings=SETTINGS | {"switches.off": off, "replay.prioritised": True})


@pytest.mark.parametrize("off", [[], ["compiled_draw"]])
def test_prioritised_draws_do_not_depend_on_compiled_draw(off):
    wishes = {"replay.prioritised": True, "replay.priority_alpha": 0.3, "replay.priority_beta": 0.6}
    job = prepare("snake", settings=SETTINGS | wishes | {"switches.off": off})
    parts = build(job.config, job.kind, "cpu")
    sampler = parts.replay.sampler
    assert (type(sampler).__name__, sampler.alpha, sampler.beta, sampler.n_step) == ("PrioritisedSampler", 0.3, 0.6, 3)
    parts.actor.start([1, 2, 3])
    for _ in range(300):
        parts.actor.step(0)
    index = np.asarray(parts.replay.sample(500).index)
    parts.replay.feedback(index, index[:, 1] % 7)
    plain = filled("snake", ["compiled_draw"])
    batch = parts.replay.sample(64)
    expected = plain.replay.gather(*batch.index.T)
    for name in ("state", "action", "returns", "discount", "next_state"):
        np.testing.assert_array_equal(getattr(batch, name), getattr(expected, name), err_msg=name)


def test_priorities_on_a_device_have_their_settings():
    by_priority = prepare("snake", settings=SETTINGS | {"replay.prioritised": True}).config
    on = frozenset({"frame_ring", "device_ring"})
    replay = build_replay(by_priority, prepare("snake", settings=SETTINGS).kind.spec, 1, "cpu", on)
    assert (replay.priorities.alpha, float(replay.priorities.beta)) == (0.5, 0.4)


def test_the_ring_is_the_small_one():
    """What frame_ring is for: a stack of 4 takes 32 times less memory than float32 stacks of state and next state."""
    from fastdqn.build_replay import replay_bytes_per_row

    job = prepare("catch", settings=SETTINGS)
    sizes = {}
    for off in ([], ["frame_ring"], TEXTBOOK):
        config = job.config.model_copy(update={"switches": job.config.switches.model_copy(update={"off": tuple(off)})})
        switches, _ = active_switches(config, job.kind, "cpu")
        sizes[len(off)] = replay_bytes_per_row(job.kind.spec, 4, switches)
        replay = build_replay(config, job.kind.spec, 4, "cpu", switches)
        assert len(replay) == 0
    assert 7056 <= sizes[0] <= 7056 * 1.05
    assert sizes[1] > 31 * sizes[0]
    assert sizes[2] > 7 * sizes[0]
