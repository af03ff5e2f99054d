"""pinned_copies promises SAME_NUMBERS: the batches that arrive are those that were sent, bit for bit, although the copies
are made later and their buffers are used again."""

import numpy as np
import pytest
import torch

from fastdqn.build_learner import build_transfer
from fastdqn.learner.transfer import pinned_transfer
from fastdqn.transition import Batch
from tests.equivalence.updates import SNAKE_MLP, parts_of

FIELDS = [name for name in Batch._fields if name != "index"]


def made_up(rng, size=32, shape=(4, 84, 84)):
    """A batch as a replay gives it, other numbers each time."""
    return Batch(
        state=rng.integers(0, 256, (size, *shape), dtype=np.uint8),
        action=rng.integers(6, size=size),
        returns=rng.normal(size=size).astype(np.float32),
        discount=rng.random(size).astype(np.float32),
        next_state=rng.integers(0, 256, (size, *shape), dtype=np.uint8),
        weight=rng.random(size).astype(np.float32),
        index=rng.integers(100, size=(size, 2)),
    )


def assert_same(moved, sent):
    for name in FIELDS:
        ours, theirs = getattr(moved, name).cpu().numpy(), getattr(sent, name)
        assert ours.dtype == theirs.dtype, name
        np.testing.assert_array_equal(ours, theirs, err_msg=name)


def test_a_buffer_is_written_again_only_after_its_copy_was_made(monkeypatch):
    """Without a GPU: the copy to the device is none here, so a batch lives in its buffer and shows who writes there. What
    was copied before an event must still be in the buffer when somebody waits for that event."""
    pairs, waited = [], []  # (moved, sent) of every transfer; numbers of the transfers that were waited for

    class Event:
        number = None

        def record(self):
            self.number = len(pairs)

        def synchronize(self):
            if self.number is not None:
                waited.append(self.number)
                assert_same(*pairs[self.number])

    plain_empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *shape, pin_memory, **how: plain_empty(*shape, **how))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    transfer, rng = pinned_transfer("cpu"), np.random.default_rng(0)
    for number in range(50):
        batch = made_up(rng, size=16 if number < 40 else 8, shape=(2,))
        sent = Batch(*(np.copy(field) for field in batch))
        pairs.append((transfer(batch), sent))
        for field in batch:
            field[...] = 0  # the replay's own arrays are free as soon as the transfer returns
        for pair in pairs[-2:]:
            assert_same(*pair)
    assert waited == list(range(48))


@pytest.mark.gpu
def test_batches_arrive_as_they_were_sent_while_older_ones_are_in_use():
    """The GPU is kept busy, so that each copy waits in its queue while the next batches are prepared."""
    transfer, rng, pairs = pinned_transfer("cuda"), np.random.default_rng(0), []
    for number in range(50):
        batch = made_up(rng, size=32 if number < 40 else 16)
        sent = Batch(*(np.copy(field) for field in batch))
        torch.cuda._sleep(20_000_000)  # about 10 ms
        pairs.append((transfer(batch), sent))
        for field in batch:
            field[...] = 0
    torch.cuda.synchronize()
    for moved, sent in pairs:
        assert all(getattr(moved, name).is_cuda for name in FIELDS)
        assert_same(moved, sent)


@pytest.mark.gpu
def test_the_copy_is_not_waited_for():
    transfer, rng = pinned_transfer("cuda"), np.random.default_rng(0)
    for _ in range(3):  # both sets of buffers are there
        transfer(made_up(rng))
    torch.cuda.synchronize()
    torch.cuda._sleep(400_000_000)  # about 200 ms
    transfer(made_up(rng))
    assert not torch.cuda.current_stream().query(), "the GPU still sleeps, and the batch is on its way behind it"
    torch.cuda.synchronize()


@pytest.mark.gpu
@pytest.mark.parametrize("off", [[], ["frame_ring"], ["frame_ring", "array_replay"]])
def test_the_learner_draws_what_the_replay_holds(off):
    fast, plain = (parts_of(SNAKE_MLP, off=[*off, *more], device="cuda") for more in ([], ["pinned_copies"]))
    assert fast.switches ^ plain.switches == {"pinned_copies"}
    for parts in (fast, plain):
        parts.actor.start([1, 2, 3, 4])
        for _ in range(200):
            parts.actor.step(0)
    batches = [(fast.learner.draw(1), plain.learner.draw(1)) for _ in range(20)]
    torch.cuda.synchronize()
    for ours, theirs in batches:
        for name in FIELDS:
            assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    assert any((ours.returns != 0).any() for ours, _ in batches)


def test_the_switch_chooses(monkeypatch):
    monkeypatch.setattr("fastdqn.build_learner.pinned_transfer", lambda device: f"pinned to {device}")
    assert build_transfer("cuda", frozenset({"pinned_copies"})) == "pinned to cuda"
    batch = made_up(np.random.default_rng(0), shape=(2,))
    assert_same(build_transfer("cpu", frozenset())(batch), batch)
