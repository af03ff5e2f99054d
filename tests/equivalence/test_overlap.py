"""overlap promises SAME_LEARNING: the same updates, and actions with weights that are one round old, always.

What two streams may do to each other is tried without a GPU: every access to something shared is logged with what its stream
knows of the other one (a vector clock), and two accesses that nothing orders are a race.
"""

import copy
from contextlib import contextmanager, nullcontext

import pytest
import torch

import fastdqn
from fastdqn.build import build
from fastdqn.device.graphs import as_it_is
from fastdqn.learner.fast.overlapped import OverlappedLearner
from fastdqn.metrics import Timers
from fastdqn.prepare import prepare
from fastdqn.runner.inline import InlineRunner
from fastdqn.runner.ports import Stop
from tests.equivalence.updates import SNAKE_CNN, parts_of, random_batches, weights

DUE = (3, 1, 16, 15, 2, 2, 16, 16)  # updates of one call of train after the other


class OneQueue:
    """The same roles one after the other, in whatever stream we are in: the order that two streams must not be told from."""

    def acting(self):
        return nullcontext()

    def learning(self):
        return nullcontext()

    def event(self):
        return NoMark()

    def settle(self):
        if torch.cuda.is_available():
            torch.cuda.synchronize()


class NoMark:
    def record(self): ...
    def wait(self): ...


def overlapped(learner, streams):
    """This learner's work by a learner of two streams, and the network that the actor would ask."""
    acting = copy.deepcopy(learner.online)
    names = ("online", "target", "optimizer", "update", "draw", "look_ahead")
    how = {name: getattr(learner, name) for name in names} | {"follow": learner._follow, "together": learner._together}
    timers = Timers()
    return OverlappedLearner(
        streams=streams, acting=acting, launcher=as_it_is, before=lambda: None, timers=timers, **how
    ), acting


def feed(learner, batches):
    """Lets it draw these, several at once."""
    supply = iter(batches)

    def draw(count):
        drawn = [next(supply) for _ in range(count)]
        joined = [None if column[0] is None else torch.cat(column) for column in zip(*drawn, strict=True)]
        return type(drawn[0])(*joined)

    learner.draw = draw
    return learner


def make_learner(batches, **how):
    return feed(parts_of(SNAKE_CNN, ["hand_written", "target_ahead"], **how).learner, batches)


def test_the_same_updates_and_weights_that_are_one_call_old():
    batches = list(random_batches(parts_of(SNAKE_CNN), sum(DUE)))
    plain = make_learner(batches)
    apart, acting = overlapped(make_learner(batches), OneQueue())
    before = [weight.clone() for weight in plain.online.parameters()]
    for due in DUE:
        plain.train(due)
        apart.train(due)
        # Batches are drawn in powers of two here: the order of sums differs
        torch.testing.assert_close(weights(apart), weights(plain), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(list(acting.parameters()), before, rtol=1e-4, atol=1e-5)
        before = [weight.detach().clone() for weight in apart.online.parameters()]
    assert apart.updates == plain.updates == sum(DUE)
    assert apart.read_means() == pytest.approx(plain.read_means(), rel=1e-3)
    kept = [weight.clone() for weight in acting.parameters()]
    apart.train(0)
    assert all(torch.equal(a, b) for a, b in zip(acting.parameters(), kept, strict=True)), "nothing due, nothing passed on"


def test_a_copy_that_loads_the_state_goes_on_exactly():
    batches = list(random_batches(parts_of(SNAKE_CNN), 60))
    first, acting = overlapped(make_learner(batches), OneQueue())
    for due in (3, 4, 5):
        first.train(due)
    second, other_acting = overlapped(make_learner(batches), OneQueue())
    second.train(2)
    second.load_state(copy.deepcopy(first.state()))
    assert not all(torch.equal(a, b) for a, b in zip(acting.parameters(), first.online.parameters(), strict=True))
    for learner in (first, second):
        feed(learner, batches[20:])
        learner.train(5)
    for mine, other in ((acting, other_acting), (first.online, second.online)):
        assert all(torch.equal(a, b) for a, b in zip(mine.parameters(), other.parameters(), strict=True))


def test_a_state_without_a_board_gives_the_actor_the_newest_weights():
    batches = list(random_batches(parts_of(SNAKE_CNN), 20))
    plain = make_learner(batches)
    plain.train(5)
    apart, acting = overlapped(make_learner(batches), OneQueue())
    apart.load_state(plain.state())
    assert all(torch.equal(a, b) for a, b in zip(acting.parameters(), plain.online.parameters(), strict=True))


def test_weights_loaded_from_elsewhere_reach_the_actor_at_once():
    apart, acting = overlapped(make_learner([]), OneQueue())
    with torch.no_grad():
        for weight in apart.online.parameters():
            weight.add_(1.0)
    apart.weights_were_loaded()
    for other in (acting, apart.target):
        assert all(torch.equal(a, b) for a, b in zip(other.parameters(), apart.online.parameters(), strict=True))


# ---------------------------------------------------------------- races


ROUNDS = (4, 4, 64, 4, 4)  # updates due; 64 are four slots of 16


class LoggedStreams:
    """Streams that know, for each access, what was certainly done before it in the other one."""

    def __init__(self, deaf=None):
        self.now, self.clocks = "outside", {name: {"acting": 0, "learning": 0} for name in ("acting", "learning")}
        self.accesses, self.events, self._deaf = [], 0, deaf

    def acting(self):
        return self._in("acting")

    def learning(self):
        return self._in("learning")

    @contextmanager
    def _in(self, name):
        before, self.now = self.now, name
        yield
        self.now = before

    def event(self):
        self.events += 1
        return LoggedEvent(self, deaf=self.events == self._deaf)

    def settle(self): ...

    def access(self, what, writes):
        clock = self.clocks[self.now]
        clock[self.now] += 1
        self.accesses.append((what, writes, self.now, dict(clock)))

    def races(self):
        """Pairs of accesses to the same thing, one of them writing, in different streams and ordered by no event."""
        found = []
        for number, (what, writes, stream, clock) in enumerate(self.accesses):
            for other_what, other_writes, other_stream, earlier in self.accesses[:number]:
                shared = what == other_what and stream != other_stream and (writes or other_writes)
                if shared and clock[other_stream] < earlier[other_stream]:
                    found.append((other_what, other_stream, stream))
        return found


class LoggedEvent:
    def __init__(self, streams, deaf):
        self._streams, self._deaf, self._clock = streams, deaf, {}

    def record(self):
        self._clock = dict(self._streams.clocks[self._streams.now])

    def wait(self):
        clock = self._streams.clocks[self._streams.now]
        for name, value in ({} if self._deaf else self._clock).items():
            clock[name] = max(clock[name], value)


def played(deaf=None):
    """The accesses of some rounds of acting and training; the event of this number is not waited for."""
    streams = LoggedStreams(deaf)
    batches = list(random_batches(parts_of(SNAKE_CNN), sum(ROUNDS)))
    learner, _ = overlapped(make_learner(batches, target_every=1000), streams)
    drawn, learn_from, board = learner.draw, learner.learn_from, learner._delayed

    def draw(count):
        streams.access("ring", writes=False)
        slot = next(slot for slot in slots_of(learner, count) if slot.filling)
        streams.access(slot, writes=True)
        return drawn(count)

    def learn(batch, count):
        slot = next(slot for slot in slots_of(learner, count) if slot.filling)
        streams.access(slot, writes=False)
        streams.access("online", writes=True)
        return learn_from(batch, count)

    copied = torch._foreach_copy_

    def copy_weights(to, source):
        names = {id(board._acting): "acting weights", id(board._published): "published", id(board._online): "online"}
        if id(to) in names:
            streams.access(names[id(source)], writes=False)
            streams.access(names[id(to)], writes=True)
        return copied(to, source)

    learner.draw, learner.learn_from = draw, learn
    torch._foreach_copy_ = copy_weights
    try:
        for due in ROUNDS:
            with streams.acting():
                streams.access("ring", writes=True)
                streams.access("acting weights", writes=False)
            learner.train(due)
    finally:
        torch._foreach_copy_ = copied
    return streams


def slots_of(learner, count):
    """The slots of this size, the one in use marked: `cycle` hands them out in turns, so they are met as they are used."""
    return learner.known_slots[count]


@pytest.fixture(autouse=True)
def slots_are_known(monkeypatch):
    """Remembers the slots of a learner by size, and which of them is in use."""
    from fastdqn.learner.fast import overlapped as module

    plain = module.Slot.fill_and_learn

    def fill_and_learn(slot):
        known = slot._learner.__dict__.setdefault("known_slots", {}).setdefault(slot._size, [])
        known += [slot] * (slot not in known)
        slot.filling = True
        plain(slot)
        slot.filling = False

    monkeypatch.setattr(module.Slot, "fill_and_learn", fill_and_learn)


def test_two_streams_never_touch_the_same_thing_at_once():
    streams = played()
    assert streams.races() == []
    stream_of_ring = {stream for what, _, stream, _ in streams.accesses if what == "ring"}
    assert stream_of_ring == {"acting"}, "the ring is read and written in one stream"
    assert {stream for what, _, stream, _ in streams.accesses if what == "published"} == {"acting", "learning"}
    assert len([what for what, *_ in streams.accesses if what == "acting weights"]) == 2 * len(ROUNDS)


BOARD, SLOTS_OF_4, SLOTS_OF_16 = (1, 2), ((3, 4), (5, 6)), ((7, 8), (9, 10))  # events in the order they are made


def test_every_mark_is_needed():
    """An event that nobody waits for is noticed as a race; so nothing above passes by chance. The exception: a slot that is
    filled once in two rounds is free again when the weights of the round between have been taken."""
    assert played().events == SLOTS_OF_16[-1][-1]
    silent = [number for number in range(1, SLOTS_OF_16[-1][-1] + 1) if not played(deaf=number).races()]
    assert silent == [used for _, used in SLOTS_OF_4]


# ---------------------------------------------------------------- on a GPU


def run_rounds(env, rounds, monkeypatch, streams=None, **more):
    if streams is not None:
        monkeypatch.setattr("fastdqn.build.TwoStreams", lambda device: streams)
    settings = {"actor.lanes": 16, "replay.capacity": 4000, "replay.warmup_steps": 300, "learner.batch_size": 32}
    settings |= {"learner.steps_per_update": 4, "learner.target_every": 50, "actor.epsilon_steps": 1500, "device": "cuda"}
    job = prepare(env, settings=settings | {"switches.on": ["overlap"], "switches.off": ["tf32", "bf16"]} | more)
    runner = InlineRunner(build(job.config, job.kind, "cuda"), Stop(), lambda row: None, lambda score: None)
    runner.start()
    for _ in range(rounds):
        runner.round()
    runner.settle()
    return runner


@pytest.mark.gpu
@pytest.mark.parametrize("env", ["snake", "catch"])
def test_two_streams_give_what_one_stream_gives(env, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    apart = run_rounds(env, 300, monkeypatch).parts
    in_turn = run_rounds(env, 300, monkeypatch, OneQueue()).parts
    assert apart.learner.updates == in_turn.learner.updates > 500
    assert apart.actor.steps == in_turn.actor.steps
    torch.testing.assert_close(weights(apart.learner), weights(in_turn.learner), rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
def test_catch_is_learned_with_overlap(runs):
    run = fastdqn.train("catch", device="cuda", on=["overlap"], quiet=True)
    assert run.updates > 500
    assert run.score.mean > 0.9
