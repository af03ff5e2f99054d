"""learner.prefetch=k is a sample lag of k, bit for bit: batch u is drawn with the stream (seed, u) from the rows that were
there when update u - k was due. Whatever the thread does meanwhile must not be seen."""

import threading
from collections import deque
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fastdqn
from fastdqn import seeding
from fastdqn.build import build
from fastdqn.learner.transfer import plain_transfer
from fastdqn.prepare import prepare
from fastdqn.replay.fast.prefetch import Prefetched
from fastdqn.runner.inline import InlineRunner
from fastdqn.runner.ports import Stop
from tests.contract.test_replay import compiled_replay, prioritised_replay, ring_replay
from tests.history import History
from tests.unit.tiny import TINY_SNAKE


class Lagging:
    """The rule in plain words, without a thread: the second opinion."""

    def __init__(self, replay, ahead, seed, finish=lambda batch: batch):
        self.replay, self._ahead, self._seed, self._finish = replay, ahead, seed, finish
        self._drawn, self._count = deque(), 0

    def append(self, block):
        self.replay.append(block)

    def sample(self, batch_size, batches=1):
        assert batches == 1, "what is prefetched is drawn one by one"
        while len(self._drawn) <= self._ahead:
            self.replay.sampler.rng = seeding.stream(self._seed, f"batch {self._count}")
            self._drawn.append(self._finish(self.replay.sample(batch_size)))
            self._count += 1
        return self._drawn.popleft()

    def feedback(self, index, priority):
        self.replay.feedback(index, priority)

    def set_beta(self, beta):
        self.replay.set_beta(beta)

    def __len__(self):
        return len(self.replay)


@pytest.mark.parametrize("maker", [ring_replay, compiled_replay, prioritised_replay])
def test_batches_are_those_of_a_lag(maker):
    @settings(max_examples=60)
    @given(
        ahead=st.integers(0, 3),
        seed=st.integers(0, 2**20),
        plan=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4)), min_size=1, max_size=12),
        n_step=st.integers(1, 3),
    )
    def check(ahead, seed, plan, n_step):
        rows = 4 * (2 + n_step)  # a short ring: rows are written over soon after they are drawn
        ours = Prefetched(maker(3, rows, 2, n_step, False), ahead, seed)
        theirs = Lagging(maker(3, rows, 2, n_step, False), ahead, seed)
        history = History(3, np.random.default_rng(seed))
        for ticks, updates in plan:
            for _ in range(ticks):
                block = history.tick(slice(0, 3))
                ours.append(block)
                theirs.append(block)
            for _ in range(updates if len(theirs) else 0):
                batch, expected = ours.sample(8), theirs.sample(8)
                for one, other in zip(batch, expected, strict=True):
                    np.testing.assert_array_equal(one, other)
                for replay in (ours, theirs):  # seen by the batches that are ordered from now on
                    replay.feedback(batch.index, batch.index[:, 1] % 5)

    check()


def test_several_batches_are_those_of_several_calls():
    replays = [Prefetched(prioritised_replay(2, 20, 2, 1, False), 2, seed=3) for _ in range(2)]
    history = History(2, np.random.default_rng(0))
    for _ in range(25):
        block = history.tick(slice(0, 2))
        for replay in replays:
            replay.append(block)
    joined = replays[0].sample(8, 3)
    single = [replays[1].sample(8) for _ in range(3)]
    for one, others in zip(joined, zip(*single, strict=True), strict=True):
        np.testing.assert_array_equal(one, np.concatenate(others))


def test_feedback_and_beta_reach_the_replay_while_the_thread_works():
    """They wait for nothing, and change nothing of what was ordered."""
    replay = prioritised_replay(2, 20, 1, 1, False)
    history = History(2, np.random.default_rng(0))
    for _ in range(25):
        replay.append(history.tick(slice(0, 2)))
    open_gate, look = threading.Event(), replay.look

    def slow(*rows):
        assert open_gate.wait(60)
        return look(*rows)

    replay.look = slow
    ahead = Prefetched(replay, 1, seed=3)
    ahead._order(16)  # the thread stands before the gate
    starts = np.array(history.valid_starts(20, 1, 1))
    ahead.feedback(starts, np.arange(len(starts)))
    ahead.set_beta(0.9)
    assert replay.sampler.beta == 0.9
    assert len(np.unique(replay.sampler.tree.leaves)) == len(starts) + 1, "a priority each, and 0 elsewhere"
    open_gate.set()
    assert (ahead.sample(16).weight == 1).all(), "all were alike when they were chosen"
    assert not (ahead.sample(16).weight == 1).all(), "and no more when the next were"


def test_rows_are_not_written_over_while_they_are_copied():
    replay = ring_replay(2, 20, 1, 1, False)
    history = History(2, np.random.default_rng(0))
    for _ in range(25):
        replay.append(history.tick(slice(0, 2)))
    open_gate, look = threading.Event(), replay.look

    def slow(*rows):
        assert open_gate.wait(60)
        return look(*rows)

    replay.look = slow
    ahead = Prefetched(replay, 1, seed=3)
    ahead._order(16)  # the thread stands before the gate
    appending = threading.Thread(target=ahead.append, args=(history.tick(slice(0, 2)),))
    before = replay.ring.W.copy()
    appending.start()
    appending.join(0.2)
    assert appending.is_alive(), "the ring was written while a batch was being copied from it"
    np.testing.assert_array_equal(replay.ring.W, before)
    open_gate.set()
    appending.join(60)
    np.testing.assert_array_equal(replay.ring.W, before + 1)


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_a_run_learns_what_a_lagging_one_learns(ahead):
    """Weights after hundreds of updates, to the last bit."""
    runners = []
    for lag_without_thread in (False, True):
        job = prepare("snake", settings=TINY_SNAKE | {"learner.prefetch": ahead, "learner.threads": 1, "device": "cpu"})
        parts = build(job.config, job.kind, "cpu")
        if lag_without_thread:
            plain = parts.replay.replay
            parts.replay = Lagging(plain, ahead, seeding.integer(job.config.seed, "sample"), plain_transfer("cpu"))
            parts.actor.sink._replay = parts.replay
            size = job.config.learner.batch_size
            parts.learner.draw = partial(lambda replay, size, count: replay.sample(count * size), parts.replay, size)
        runner = InlineRunner(parts, Stop(), lambda row: None, lambda score: None)
        runner.start()
        for _ in range(300):
            runner.round()
        runners.append(runner)
    one, other = (runner.parts.learner for runner in runners)
    assert one.updates == other.updates > 200
    for name, value in one.online.state_dict().items():
        assert torch.equal(value, other.online.state_dict()[name]), name


def test_another_lag_is_another_run():
    """Else the tests above would compare nothing."""
    weights = []
    for ahead in (1, 2):
        job = prepare("snake", settings=TINY_SNAKE | {"learner.prefetch": ahead, "learner.threads": 1, "device": "cpu"})
        runner = InlineRunner(build(job.config, job.kind, "cpu"), Stop(), lambda row: None, lambda score: None)
        runner.start()
        for _ in range(100):
            runner.round()
        weights.append(torch.cat([value.flatten() for value in runner.parts.learner.online.state_dict().values()]))
    assert not torch.equal(*weights)


def test_what_does_not_go_together_is_refused():
    with pytest.raises(fastdqn.UserError, match="frame_ring"):
        prepare("snake", settings={"learner.prefetch": 1, "switches.off": ["frame_ring"]})


def test_a_replay_on_a_device_gives_way_unless_it_was_asked_for(tensors_on_the_cpu):
    settings = {"device": "cpu", "learner.prefetch": 1, "switches.off": tensors_on_the_cpu([])}
    assert "device_ring" not in prepare("snake", settings=settings).switches
    with pytest.raises(fastdqn.UserError, match="choose one"):
        prepare("snake", settings=settings | {"switches.on": ["device_ring"]})
