"""The pieces that roles in processes of their own are held together by, each on its own and in this process."""

import errno
import json
import multiprocessing
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fastdqn.actor.games import Game
from fastdqn.config import make_config
from fastdqn.env.base import split_lanes
from fastdqn.errors import UserError
from fastdqn.metrics import Timer
from fastdqn.processes import bell as bells
from fastdqn.processes import slots
from fastdqn.processes.bell import Bell
from fastdqn.processes.control import Pulse, control_fields
from fastdqn.processes.lives import DELAYS, LATE, MOST_DEATHS_AT_BIRTH, Lives, Watch
from fastdqn.processes.probe import ProcessProbe
from fastdqn.processes.shared import ALIGNMENT, make_shared, open_shared, size_of
from fastdqn.processes.sharing import Threads, core_plan, thread_plan, with_env_threads
from fastdqn.processes.slots import SLOTS, Push, SlotSink, SlotSource, StoppedError, push_of, slot_fields
from fastdqn.processes.weights import SharedWeights, weight_fields
from fastdqn.transition import Block, EnvSpec
from tests.processes import leftovers

A_MINUTE = 60.0  # that nothing here takes unless it has been lost for good


# ---------------------------------------------------------------- shared memory

CHILD = """
import json, sys
from fastdqn.processes.shared import Address, open_shared

shared = open_shared(Address(*json.loads(sys.argv[1])))
assert shared["words"].tolist() == [[1, 2, 3], [4, 5, 6]], shared["words"]
assert shared["more"].tolist() == [0.0] * 5, "zero when made"
shared["more"][:] = [0.5, 1.5, 2.5, 3.5, 4.5]
shared["words"][1, 2] = 60
print("written", flush=True)
sys.stdin.read()  # alive until it is told
assert shared["words"][0, 0] == 10
"""


def test_what_one_process_writes_the_other_sees():
    shared = make_shared({"words": ((2, 3), np.int32), "more": ((5,), np.float64)}, "numbers")
    shared["words"][:] = [[1, 2, 3], [4, 5, 6]]
    command = [sys.executable, "-c", CHILD, json.dumps(shared.address)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "written\n"
        assert shared["more"].tolist() == [0.5, 1.5, 2.5, 3.5, 4.5]
        assert shared["words"].tolist() == [[1, 2, 3], [4, 5, 60]]
        shared["words"][0, 0] = 10
        child.stdin.close()
        assert child.wait(A_MINUTE) == 0
    assert shared["words"][1, 2] == 60, "the memory stays when a process that opened it has ended"
    shared.close()


dtypes = st.sampled_from(["?", "u1", "i2", "i4", "i8", "f2", "f4", "f8"])
shapes = st.lists(st.integers(0, 5), min_size=0, max_size=3).map(tuple)


@settings(max_examples=150)
@given(kinds=st.lists(st.tuples(shapes, dtypes), min_size=1, max_size=8))
def test_fields_do_not_overlap(kinds):
    fields = {f"field {number}": kind for number, kind in enumerate(kinds)}
    shared = make_shared(fields, "fields")
    assert shared.nbytes == size_of(fields) >= ALIGNMENT
    for name, (shape, dtype) in fields.items():
        assert (shared[name].shape, shared[name].dtype) == (shape, np.dtype(dtype))
        assert not shared[name].any(), "zero when made"
        assert shared[name].ctypes.data % ALIGNMENT == 0 or not shared[name].size
    for name in fields:
        shared[name][...] = 1
        for other in fields:
            assert shared[other].all() if other == name else not shared[other].any(), (name, other)
        shared[name][...] = 0
    again = open_shared(shared.address)
    for number, name in enumerate(fields):
        shared[name][...] = number
    for number, (name, (shape, dtype)) in enumerate(fields.items()):
        np.testing.assert_array_equal(again[name], np.full(shape, number, dtype))
    again.close()
    shared.close()


def test_nothing_is_left_behind():
    names, descriptors = leftovers.names(), len(os.listdir("/proc/self/fd"))
    shared = make_shared({"words": ((1000,), np.int64)}, "numbers")
    other = open_shared(shared.address)
    assert not leftovers.left_since(names), "it has no name, so nobody has to take it away"
    shared.close()
    other.close()
    del shared, other
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert not leftovers.left_since(names)


def test_memory_that_is_not_there_is_refused_at_once(monkeypatch):
    def no_room(descriptor, offset, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    descriptors = os.listdir("/proc/self/fd")
    with pytest.raises(UserError, match=r"no room for the slots of actor 3 \(8\.0 MB\): No space left on device"):
        make_shared({"words": ((1_000_000,), np.int64)}, "the slots of actor 3")
    assert os.listdir("/proc/self/fd") == descriptors


# ---------------------------------------------------------------- the bell


class Rung:
    """A bell whose two ends are both here."""

    def __init__(self):
        self.reader, self.writer = multiprocessing.Pipe(duplex=False)
        self.asleep = np.zeros(1, np.int64)
        self.bell = Bell(self.reader, self.writer, self.asleep)

    def close(self):
        self.reader.close()
        self.writer.close()


@pytest.fixture
def rung():
    rung = Rung()
    yield rung
    rung.close()


def test_a_ring_without_a_sleeper_writes_nothing(rung):
    rung.bell.ring()
    assert not rung.reader.poll()
    rung.asleep[0] = 1
    rung.bell.ring()
    assert rung.reader.poll()


def test_rings_that_nobody_hears_do_not_hold_up_the_ringer(rung):
    rung.asleep[0] = 1
    for _ in range(100_000):  # more than a pipe holds
        rung.bell.ring()
    assert rung.bell.wait_for(lambda: True)


def test_who_is_ready_does_not_sleep(rung, monkeypatch):
    def no_sleep(*_):
        raise AssertionError("it is ready")

    monkeypatch.setattr(bells.select, "select", no_sleep)
    assert rung.bell.wait_for(lambda: True)
    assert rung.asleep[0] == 0


def test_without_a_ring_the_wait_ends_by_itself(rung):
    assert not rung.bell.wait_for(lambda: False)
    assert rung.asleep[0] == 0
    seen = iter([False, True])
    assert rung.bell.wait_for(lambda: next(seen)), "a lost ring costs one wait"


def test_a_fault_while_looking_leaves_nobody_asleep(rung):
    with pytest.raises(ZeroDivisionError):
        rung.bell.wait_for(lambda: 1 // 0)
    assert rung.asleep[0] == 0


def test_a_ring_between_the_last_look_and_the_sleep_is_heard(rung, monkeypatch):
    said, select = [], bells.select.select

    def ready():
        if said:
            return True
        said.append("it is there")  # by the other one, just after this look
        rung.bell.ring()
        return False

    def no_long_sleep(readers, writers, faults, seconds):
        heard = select(readers, writers, faults, 0)
        assert heard[0], "nothing has been written: it would sleep on"
        return heard

    monkeypatch.setattr(bells.select, "select", no_long_sleep)
    assert rung.bell.wait_for(ready)


def test_a_ring_wakes_the_sleeper(rung, monkeypatch):
    """The wait itself would take ten minutes: whoever is awake before was woken. Half of the rings come when the sleeper
    says that it sleeps, the others at any moment, also between its last look and its sleep."""
    monkeypatch.setattr(bells, "WAIT_SECONDS", 10 * A_MINUTE)
    rounds = 400
    said, heard = np.zeros(1, np.int64), []

    def sleep():
        for number in range(1, rounds + 1):
            while not rung.bell.wait_for(lambda number=number: said[0] >= number):
                pass
            heard.append(number)

    sleeper = threading.Thread(target=sleep, daemon=True)
    sleeper.start()
    ringer = Bell(rung.reader, rung.writer, rung.asleep)  # its own object, as in another process
    for number in range(1, rounds + 1):
        while number % 2 and not rung.asleep[0] and sleeper.is_alive():
            pass
        said[0] = number
        ringer.ring()
    sleeper.join(A_MINUTE)
    assert not sleeper.is_alive()
    assert heard == list(range(1, rounds + 1))


# ---------------------------------------------------------------- slots

OBS_SHAPE = (2,)
SPEC = EnvSpec("made up", OBS_SHAPE, np.dtype(np.int32), 4)
COLUMNS = ("action", "reward", "terminal", "first", "obs")


class Channel:
    """One actor's slots with both ends in this process. What goes in is written down as it should come out."""

    def __init__(self, lanes, groups, setting, first_lane=0, spec=SPEC):
        self.push = push_of(setting, lanes, spec)
        self.shared = make_shared(slot_fields(lanes, spec, self.push), "slots")
        self.room, self.work = Rung(), Rung()
        self.lanes, self.groups, self.first_lane = lanes, split_lanes(lanes, groups), first_lane
        self.section = slice(first_lane, first_lane + lanes)
        self.source = SlotSource(self.shared, self.section, self.room.bell)
        self.count = 0  # every number that goes in is another one
        self.begun, self.handed, self.held = [], [], None  # rounds of the slot being filled; whole slots; what was looked at
        self.be_born()

    def be_born(self):
        """A new actor in the place of the old one, which may have been in the middle of a slot."""
        self.sink = SlotSink(self.shared, self.push, self.room.bell, self.work.bell, self._alive, Timer())
        self.begun = []

    def _alive(self):
        raise StoppedError

    def play(self, ending):
        """A round of all groups, in which the games of these lanes end; False if there was no room for it."""
        try:
            self.sink.begin_round()
        except StoppedError:
            return False
        columns, games = [], []
        for group in self.groups:
            block, ended = self._tick(group, ending)
            self.sink.put(block)
            self.sink.add_games(ended)
            columns.append([getattr(block, name).copy() for name in COLUMNS])
            games += [game._replace(lane=game.lane + self.first_lane) for game in ended]
            for name in COLUMNS:
                getattr(block, name)[...] = 0  # the environment writes its next answer into the same memory
        self.sink.end_round()
        self.begun.append(([np.concatenate(parts) for parts in zip(*columns, strict=True)], games))
        if len(self.begun) == self.push.rounds or (self.push.at_game_end and any(games for _, games in self.begun)):
            self.handed.append(self.begun)
            self.begun = []
        return True

    def _tick(self, group, ending):
        lanes = np.arange(group.start, group.stop)
        numbers = self.count + np.arange(len(lanes) * 2, dtype=np.int32).reshape(-1, *OBS_SHAPE)
        self.count += 2 * len(lanes)
        first = numbers[:, 0]
        block = Block(
            group, first.astype(np.int64) * 3, first.astype(np.float32) / 8, first % 3 == 0, first % 5 == 0, numbers
        )
        ended = [Game(int(lane), float(self.count), self.count / 2, self.count) for lane in lanes if lane in ending]
        return block, ended

    def look(self):
        """The learner takes a slot and keeps it; nothing is copied."""
        if self.held is None and self.source.waiting:
            rounds = list(self.source.rounds())
            self.held = [block for block, _ in rounds], [game for _, games in rounds for game in games]

    def give_back(self):
        """What it looked at is still what was put in, and then it lets go of it."""
        if self.held is None:
            return
        (blocks, games), expected = self.held, self.handed.pop(0)
        assert len(blocks) == len(expected)
        for block, (columns, _) in zip(blocks, expected, strict=True):
            assert block.lanes == self.section
            for name, column in zip(COLUMNS, columns, strict=True):
                got = getattr(block, name)
                assert got.dtype == column.dtype
                np.testing.assert_array_equal(got, column)
        assert games == [game for _, games in expected for game in games]
        assert all(type(game.lane) is int and type(game.steps) is int for game in games)
        self.held = None
        self.source.give_back()

    def close(self):
        self.held = None
        self.room.close()
        self.work.close()
        self.shared.close()


@pytest.fixture
def no_waits():
    """Who finds no room is told at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bells, "WAIT_SECONDS", 0.0)
        yield


moves = st.tuples(
    st.sampled_from(["play", "play", "play", "look", "give back", "die"]),
    st.one_of(st.just(frozenset()), st.frozensets(st.integers(0, 5), max_size=3)),  # lanes whose games end, if it plays
)


@pytest.mark.usefixtures("no_waits")
def test_slots_give_what_was_put_in():
    """Any interleaving of an actor that plays and dies and a learner that looks and gives back."""
    seen = dict.fromkeys(("slots", "no room", "deaths in a slot", "games"), 0)

    @settings(max_examples=300)
    @given(
        lanes=st.integers(1, 6),
        groups=st.integers(1, 3),
        setting=st.one_of(st.just("step"), st.just("episode"), st.integers(1, 6)),
        first_lane=st.integers(0, 9),
        script=st.lists(moves, min_size=5, max_size=80),
    )
    def check(lanes, groups, setting, first_lane, script):
        channel = Channel(lanes, min(groups, lanes), setting, first_lane)
        for move, ending in script:
            if move == "play":
                full = channel.source.waiting == SLOTS
                assert channel.play(ending) is not full, "there is room unless all slots are out"
                seen["no room"] += full
            elif move == "look":
                channel.look()
            elif move == "give back":
                channel.give_back()
            else:
                seen["deaths in a slot"] += bool(channel.begun)
                channel.be_born()
            assert channel.source.waiting == len(channel.handed) <= SLOTS
        while channel.handed:
            seen["slots"] += 1
            seen["games"] += sum(len(games) for _, games in channel.handed[0])
            channel.look()
            channel.give_back()
        assert channel.source.waiting == 0
        channel.close()

    check()
    assert all(count > 20 for count in seen.values()), seen


@pytest.mark.usefixtures("no_waits")
def test_a_killed_actor_loses_only_what_it_had_not_handed_over():
    channel = Channel(lanes=3, groups=2, setting=4)
    for _ in range(6):  # a slot, and half of another
        assert channel.play(set())
    half = {name: channel.shared[name][1].copy() for name in COLUMNS}
    channel.be_born()
    assert channel.source.waiting == 1
    assert all((channel.shared[name][1] == half[name]).all() for name in COLUMNS), "nobody has touched it"
    for _ in range(4):
        assert channel.play({1})
    assert channel.source.waiting == 2
    for _ in range(2):
        channel.look()
        channel.give_back()
    assert not channel.handed
    channel.close()


@pytest.mark.usefixtures("no_waits")
def test_an_endless_game_is_handed_over_when_the_slot_is_full():
    channel = Channel(lanes=2, groups=1, setting="episode")
    assert channel.push == Push(slots.MOST_ROUNDS, True)
    for _ in range(channel.push.rounds - 1):
        assert channel.play(set())
    assert channel.source.waiting == 0
    assert channel.play(set())
    assert channel.source.waiting == 1
    channel.look()
    channel.give_back()
    channel.close()


@pytest.mark.usefixtures("no_waits")
def test_the_learner_is_rung_for_when_it_sleeps():
    channel = Channel(lanes=1, groups=1, setting=2)
    channel.work.asleep[0] = channel.room.asleep[0] = 1
    channel.play(set())
    assert not channel.work.reader.poll(), "half a slot is nothing yet"
    channel.play(set())
    assert channel.work.reader.poll()
    assert not channel.room.reader.poll()
    channel.look()
    channel.give_back()
    assert channel.room.reader.poll(), "and so is the actor when its slot comes back"
    channel.close()


def test_an_actor_without_room_waits_and_lives():
    """It beats while it waits, its waiting is timed, and a slot that comes back lets it go on."""
    channel = Channel(lanes=1, groups=1, setting="step")
    for _ in range(SLOTS):
        channel.sink.begin_round()
        channel.sink.end_round()
    beats, waited = [], Timer()

    def alive():
        beats.append(1)
        if len(beats) == 3:
            channel.source.give_back()

    sink = SlotSink(channel.shared, channel.push, channel.room.bell, channel.work.bell, alive, waited)
    sink.begin_round()
    assert len(beats) == 3
    assert waited.seconds > 0
    channel.close()


def test_resting_is_not_waiting(monkeypatch):
    """An actor that is paused while it has no room: a measurement counts its waiting, not the turns of others."""
    channel, waited, rests, now = Channel(lanes=1, groups=1, setting="step"), Timer(), [], [0.0]
    monkeypatch.setattr("fastdqn.metrics.time.perf_counter", lambda: now[0])
    for _ in range(SLOTS):
        channel.sink.begin_round()
        channel.sink.end_round()

    def rest():
        rests.append(1)
        now[0] += 100.0
        if len(rests) == 3:
            channel.source.give_back()

    sink = SlotSink(channel.shared, channel.push, channel.room.bell, channel.work.bell, rest, waited)
    sink.begin_round()
    assert len(rests) == 3
    assert waited.seconds == 0.0
    channel.close()


def test_a_pause_wakes_who_waits():
    rung = []
    probe = ProcessProbe.__new__(ProcessProbe)
    probe.runner = SimpleNamespace(control={"pause": np.zeros(1)}, wake_all=lambda: rung.append("all"))
    probe._worked, probe._resumed_at = 0.0, 0.0
    probe.pause()
    assert probe.runner.control["pause"][0] == 1
    assert rung == ["all"]
    probe.resume()
    assert probe.runner.control["pause"][0] == 0
    assert rung == ["all", "all"]


# ---------------------------------------------------------------- how much is pushed


@given(
    setting=st.one_of(st.just("step"), st.just("episode"), st.integers(1, 100_000)),
    lanes=st.integers(1, 65_536),
    shape=st.lists(st.integers(1, 256), min_size=1, max_size=3).map(tuple),
    dtype=st.sampled_from(["u1", "f4", "f8"]),
)
def test_a_slot_is_bounded(setting, lanes, shape, dtype):
    spec = EnvSpec("made up", shape, np.dtype(dtype), 4)
    push = push_of(setting, lanes, spec)
    assert 1 <= push.rounds <= slots.MOST_ROUNDS
    assert push.at_game_end is (setting == "episode")
    frames = push.rounds * lanes * int(np.prod(shape)) * np.dtype(dtype).itemsize
    assert push.rounds == 1 or frames <= slots.LARGEST_SLOT_BYTES
    if setting == "step":
        assert push.rounds == 1
    elif setting != "episode":
        assert push.rounds <= setting


def test_pushes_at_the_edges():
    small, large = (EnvSpec("made up", shape, np.dtype(np.uint8), 4) for shape in ((4,), (4, 84, 84)))
    assert push_of("step", 8, small) == Push(1, False)
    assert push_of(7, 8, small) == Push(7, False)
    assert push_of(100_000, 8, small) == Push(slots.MOST_ROUNDS, False)
    assert push_of("episode", 8, small) == Push(slots.MOST_ROUNDS, True)
    fitting = slots.LARGEST_SLOT_BYTES // (64 * (4 * 84 * 84 + 16))
    assert 1 < fitting < slots.MOST_ROUNDS
    assert push_of("episode", 64, large) == Push(fitting, True)
    assert push_of(1000, 65_536, large) == Push(1, False), "a round is never split"


# ---------------------------------------------------------------- the shared weights


class AnyTensors(nn.Module):
    """One weight or buffer of each sort that a network may have."""

    def __init__(self):
        super().__init__()
        self.plain = nn.Linear(3, 5)
        self.norm = nn.BatchNorm1d(5)  # its num_batches_tracked is a single int64
        for name, dtype in (("f16", torch.float16), ("bf16", torch.bfloat16), ("f64", torch.float64)):
            self.register_buffer(name, torch.zeros(7, dtype=dtype))
        self.register_buffer("flags", torch.zeros(3, dtype=torch.bool))
        self.register_buffer("bytes", torch.zeros(2, 3, dtype=torch.uint8))


def make_board(network):
    shared = make_shared(weight_fields(network), "the shared weights")
    return shared, SharedWeights(shared, network)


def filled(network, seed):
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randint(0, 2 if value.dtype == torch.bool else 100, value.shape, generator=generator).to(value.dtype)
        for name, value in network.state_dict().items()
    }


def test_the_newest_weights_are_loaded_exactly():
    writer, reader = AnyTensors(), AnyTensors()
    shared, board = make_board(writer)
    theirs = SharedWeights(shared, reader)
    assert theirs.newer(0, reader) is None, "nothing has been put up yet"
    for version in range(1, 6):
        weights = filled(writer, version)
        board.publish(weights, step=100 * version, update=10 * version)
        assert (theirs.version, theirs.step) == (version, 100 * version)
        assert theirs.newer(version, reader) is None
        assert theirs.newer(version - 1, reader) == (version, 100 * version, 10 * version)
        for name, value in reader.state_dict().items():
            assert value.dtype == weights[name].dtype
            assert torch.equal(value, weights[name]), name
    assert reader.norm.num_batches_tracked.shape == ()
    shared.close()


class Reader:
    """Stands in for a network: something may happen while it copies."""

    def __init__(self, meanwhile):
        self.weights, self._meanwhile = torch.zeros(4), meanwhile

    def state_dict(self):
        return {"weights": SimpleNamespace(copy_=self._copy)}

    def _copy(self, place):
        self.weights[:2] = place[:2]
        if self._meanwhile:
            self._meanwhile.pop(0)()
        self.weights[2:] = place[2:]


@pytest.mark.parametrize(("published", "expected"), [(0, 1), (1, 1), (2, 3), (3, 4), (5, 6)])
def test_a_reader_that_was_too_slow_copies_again(published, expected):
    """The next version goes into the other copy and disturbs nobody; the next but one goes into this one."""
    network = nn.Module()
    network.weights = nn.Parameter(torch.zeros(4))
    shared, board = make_board(network)

    def publish():
        version = board.version + 1
        board.publish({"weights": torch.full((4,), float(version))}, step=version * 10, update=version * 100)

    publish()
    reader = Reader([lambda: [publish() for _ in range(published)]])
    assert board.newer(0, reader) == (expected, expected * 10, expected * 100)
    assert reader.weights.tolist() == [expected] * 4
    shared.close()


def test_a_reader_never_sees_two_versions_mixed():
    """Version v consists of nothing but v. One thread puts up ten thousand, the other copies as fast as it can."""
    versions = 10_000
    network = nn.Module()
    for number, size in enumerate((60_000, 1, 30_000, 300)):
        network.register_buffer(f"part{number}", torch.zeros(size))
    network.register_buffer("count", torch.zeros((), dtype=torch.int64))
    shared, board = make_board(network)
    done = threading.Event()

    def write():
        for version in range(1, versions + 1):
            weights = {name: torch.full_like(value, version) for name, value in network.state_dict().items()}
            board.publish(weights, step=version * 3, update=version * 7)
        done.set()

    own = nn.Module()
    for name, value in network.state_dict().items():
        own.register_buffer(name, torch.zeros_like(value))
    theirs, seen, version = SharedWeights(shared, own), 0, 0
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    writer = threading.Thread(target=write, daemon=True)
    try:
        writer.start()
        while version < versions:
            assert writer.is_alive() or done.is_set()
            newest = theirs.newer(version, own)
            if newest is None:
                continue
            assert newest[0] > version
            version, step, update = newest
            seen += 1
            assert (step, update) == (version * 3, version * 7), "the marks belong to the weights"
            for name, value in own.state_dict().items():
                assert (float(value.min()), float(value.max())) == (version, version), name
    finally:
        sys.setswitchinterval(interval)
        writer.join(A_MINUTE)
    assert not writer.is_alive()
    assert seen > 20
    shared.close()


# ---------------------------------------------------------------- the pulse


def test_a_role_beats_for_itself_until_the_run_ends():
    control = make_shared(control_fields(actors=3), "the counters of the roles")
    pulse = Pulse(control, role=3)
    for _ in range(5):
        pulse.beat()
    pulse.tell("played", 77)
    assert control["beats"].tolist() == [0, 0, 0, 5, 0], "learner, evaluator, actors"
    assert control["played"].tolist() == [0, 0, 0, 77, 0]
    control["stop"][0] = 1
    with pytest.raises(StoppedError):
        pulse.beat()
    assert control["beats"][3] == 6
    control.close()


def test_who_rests_beats_and_hears_the_end_of_the_run(rung):
    control = make_shared(control_fields(actors=1), "the counters of the roles")
    pulse = Pulse(control, role=2)
    pulse.rest(rung.bell)
    assert control["beats"][2] == 0, "nobody pauses"
    control["pause"][0] = control["stop"][0] = 1
    with pytest.raises(StoppedError):
        pulse.rest(rung.bell)
    assert control["beats"][2] == 1
    control.close()


# ---------------------------------------------------------------- lives


def test_a_role_that_keeps_dying_is_tried_again_later_and_later_and_then_given_up():
    lives = Lives()
    waits = [lives.died(played=False) for _ in range(MOST_DEATHS_AT_BIRTH)]
    assert waits == [*DELAYS, None]
    assert list(DELAYS) == sorted(DELAYS)
    assert DELAYS[0] == 0
    assert lives.deaths == MOST_DEATHS_AT_BIRTH


def test_a_life_that_has_played_makes_good_for_the_deaths_before():
    lives = Lives()
    for _ in range(20):
        assert lives.died(played=True) == 0, "at once"
        assert [lives.died(played=False) for _ in DELAYS[1:]] == list(DELAYS[1:]), "one more would be too many"
    assert [lives.died(played=True) for _ in range(100)] == [0] * 100
    assert lives.deaths == 20 * len(DELAYS) + 100


ROLE = 4


class Asked:
    """A Watch that is asked every second, as the parent does several times a second."""

    def __init__(self, seconds=10.0, first_seconds=100.0):
        self.now = 1000.0
        self.watch = Watch(seconds, first_seconds, self.now)
        self.watch.born(ROLE, 0, self.now)

    def silent_for(self, beats, played, longest=500):
        """Seconds after which the role counts as hung when its count stays where it is."""
        for second in range(1, longest + 1):
            self.now += 1
            if self.watch.hung({ROLE: (beats, played)}, self.now):
                return second
        return None

    def hear(self, beats, played):
        self.now += 1
        assert self.watch.hung({ROLE: (beats, played)}, self.now) == []


def test_a_silent_role_is_hung_after_the_limit():
    asked = Asked()
    asked.hear(beats=1, played=True)
    assert asked.silent_for(beats=1, played=True) == 11, "the first second beyond ten"
    asked.hear(beats=2, played=True)
    assert asked.silent_for(beats=2, played=True) == 11


def test_before_it_has_played_it_has_longer():
    asked = Asked()
    assert asked.silent_for(beats=0, played=False) == 101
    asked.hear(beats=1, played=False)
    assert asked.silent_for(beats=1, played=False) == 101, "a beat is no step yet"


def test_a_role_that_beats_is_never_hung():
    asked = Asked()
    for beats in range(1, 200):
        asked.hear(beats, played=beats > 150)


def test_a_late_parent_blames_nobody():
    """The machine slept, or the parent was stopped: everybody gets that time as well."""
    asked = Asked()
    asked.hear(beats=1, played=True)
    asked.now += 10_000
    asked.hear(beats=1, played=True)
    assert asked.silent_for(beats=1, played=True) == 11, "as if nothing had been"
    watch = Watch(LATE / 2, LATE / 2, 0.0)
    watch.born(ROLE, 0, 0.0)
    assert watch.hung({ROLE: (0, True)}, LATE) == [ROLE], "a parent that is not late does blame"


def test_who_is_gone_or_born_again_begins_anew():
    asked = Asked()
    asked.hear(beats=7, played=True)
    asked.watch.gone(ROLE)
    assert asked.silent_for(beats=7, played=True, longest=50) is None
    asked.watch.born(ROLE, 7, asked.now)
    assert asked.silent_for(beats=7, played=False) == 101


def test_only_the_silent_one_is_blamed():
    watch = Watch(10.0, 10.0, 0.0)
    for role in (0, 1, 2):
        watch.born(role, 0, 0.0)
    hung = []
    for second in range(1, 12):
        hung = watch.hung({0: (second, True), 1: (0, True), 2: (second, True)}, float(second))
    assert hung == [1]


# ---------------------------------------------------------------- who gets which cores


def test_threads_are_shared_out():
    """Each actor has a core as far as there are enough, the learner what is left, the emulators what nobody uses."""
    assert thread_plan(cores=8, learner=2, actors=3) == Threads(learner=2, env=2)
    assert thread_plan(cores=8, learner=1, actors=1) == Threads(learner=1, env=7)
    assert thread_plan(cores=8, learner=8, actors=3) == Threads(learner=5, env=1)
    assert thread_plan(cores=2, learner=2, actors=1) == Threads(learner=1, env=1)
    assert thread_plan(cores=1, learner=1, actors=1) == Threads(learner=1, env=1)
    assert thread_plan(cores=4, learner=4, actors=64) == Threads(learner=1, env=1)
    assert thread_plan(cores=4, learner=4, actors=2, asked=True) == Threads(learner=4, env=1), "as the user says"


@given(cores=st.integers(1, 256), learner=st.integers(1, 256), actors=st.integers(1, 256), asked=st.booleans())
def test_nobody_is_without_a_thread_and_nobody_crowds_the_others(cores, learner, actors, asked):
    threads = thread_plan(cores, learner, actors, asked)
    assert 1 <= threads.learner <= learner
    assert threads.env >= 1
    assert threads.env == 1 or threads.env * actors <= cores
    if asked:
        assert threads.learner == learner
    else:
        assert threads.learner == 1 or threads.learner + actors <= cores


@given(cores=st.sets(st.integers(0, 300), min_size=1, max_size=40).map(sorted), actors=st.integers(1, 50))
def test_every_role_has_cores_of_its_own_as_far_as_there_are_enough(cores, actors):
    plan = core_plan(cores, actors)
    assert len(plan) == 2 + actors
    if len(cores) == 1:
        assert not any(plan), "nothing to share out"
        return
    learner, evaluator, *others = plan
    assert learner == evaluator == tuple(cores[: len(cores) // 2])
    assert all(own and not set(own) & set(learner) for own in others)
    used = [core for own in others for core in own]
    assert set(used) == set(cores) - set(learner)
    assert len(used) == len(set(used)) or len(used) == actors > len(set(used)), "shared only where there are too few"


def test_environments_with_threads_get_their_number():
    config = make_config("snake", "default", {"env": {"threads": 0, "dim": 7}})
    assert with_env_threads(config, {"threads": 0, "dim": 7}, 3).env == {"threads": 3, "dim": 7}
    assert with_env_threads(config, {"threads": 5}, 3) is config, "the user has set them"
    assert with_env_threads(config, {"dim": 7}, 3) is config, "it has none"
    assert config.env["threads"] == 0
