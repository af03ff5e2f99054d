"""One body over every replay: what comes out equals the ground truth of the full history, drawn uniformly."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from fastdqn.device.counter_rng import CounterRng
from fastdqn.replay.fast.compiled_draw import CompiledSampler, compiled_window
from fastdqn.replay.fast.device_priorities import DevicePriorities
from fastdqn.replay.fast.device_replay import DeviceReplay
from fastdqn.replay.fast.device_ring import DeviceRing
from fastdqn.replay.prioritised import PrioritisedSampler
from fastdqn.replay.replay import RingReplay
from fastdqn.replay.ring import TAIL, Ring
from fastdqn.replay.sampler import UniformSampler
from fastdqn.replay.textbook.accumulate import Accumulator
from fastdqn.replay.textbook.arrays import ArrayReplay
from fastdqn.replay.textbook.deque_replay import DequeReplay
from tests.history import OBS_SHAPE, History

GAMMA = 0.9


def ring_replay(lanes, rows, stack, n_step, clip, seed=0):
    ring = Ring(lanes, rows, OBS_SHAPE, np.int32)
    sampler = UniformSampler(stack, n_step, np.random.default_rng(seed))
    return RingReplay(ring, sampler, gamma=GAMMA, clip_rewards=clip)


def compiled_replay(lanes, rows, stack, n_step, clip, seed=0):
    ring = Ring(lanes, rows, OBS_SHAPE, np.int32)
    sampler = CompiledSampler(stack, n_step, np.random.default_rng(seed))
    return RingReplay(ring, sampler, gamma=GAMMA, clip_rewards=clip, window=compiled_window)


def device_replay(lanes, rows, stack, n_step, clip, seed=0):
    """On the CPU: the same tensors and the same rules as on a GPU."""
    ring = DeviceRing(lanes, rows, OBS_SHAPE, np.int32, "cpu")
    return DeviceReplay(ring, CounterRng(seed), stack=stack, n_step=n_step, gamma=GAMMA, clip_rewards=clip)


def prioritised_replay(lanes, rows, stack, n_step, clip, seed=0, alpha=0.5, beta=0.4):
    ring = Ring(lanes, rows, OBS_SHAPE, np.int32)
    rng = np.random.default_rng(seed)
    sampler = PrioritisedSampler(stack, n_step, rng, slots=lanes * rows, alpha=alpha, beta=beta)
    return RingReplay(ring, sampler, gamma=GAMMA, clip_rewards=clip, window=compiled_window)


def prioritised_device_replay(lanes, rows, stack, n_step, clip, seed=0, alpha=0.5, beta=0.4, device="cpu", **more):
    ring = DeviceRing(lanes, rows, OBS_SHAPE, np.int32, device)
    priorities = DevicePriorities(ring, stack=stack, n_step=n_step, alpha=alpha, beta=beta)
    how = {"stack": stack, "n_step": n_step, "gamma": GAMMA, "clip_rewards": clip}
    return DeviceReplay(ring, CounterRng(seed, device), **how, **more, priorities=priorities)


def array_replay(lanes, rows, stack, n_step, clip, seed=0):
    accumulator = Accumulator(lanes, stack, n_step, GAMMA, clip)
    return ArrayReplay(lanes * rows, (stack,), accumulator, np.random.default_rng(seed))


def deque_replay(lanes, rows, stack, n_step, clip, seed=0):
    return DequeReplay(lanes * rows, Accumulator(lanes, stack, n_step, GAMMA, clip), seed)


WITH_A_RING = [ring_replay, compiled_replay, prioritised_replay, device_replay, prioritised_device_replay]
MAKERS = [*WITH_A_RING, array_replay, deque_replay]

worlds = st.fixed_dictionaries(
    {
        "lanes": st.integers(1, 4),
        "stack": st.integers(1, 4),
        "n_step": st.integers(1, 5),
        "spare_rows": st.integers(0, 12),
        "ticks": st.integers(1, 120),
        "clip": st.booleans(),
        "p_end": st.sampled_from([0.0, 0.05, 0.3, 0.9]),
        "p_truncate": st.sampled_from([0.0, 0.5, 1.0]),
        "p_life": st.sampled_from([0.0, 0.2]),
        "p_seal": st.sampled_from([0.0, 0.1]),
        "seed": st.integers(0, 2**20),
    }
)


def play(world, replay, history, rng):
    """Uneven lanes: each tick moves a random run of lanes, and now and then a lane is sealed."""
    for _ in range(world["ticks"]):
        first = int(rng.integers(history.num_lanes))
        last = int(rng.integers(first + 1, history.num_lanes + 1))
        replay.append(history.tick(slice(first, last)))
        if rng.random() < world["p_seal"]:
            lane = int(rng.integers(history.num_lanes))
            replay.seal(lane)
            history.seal(lane)


def make_world(world, maker):
    rng = np.random.default_rng(world["seed"])
    history = History(world["lanes"], rng, world["p_end"], world["p_truncate"], world["p_life"])
    rows = 4 * (world["stack"] + world["n_step"]) + world["spare_rows"]
    replay = maker(world["lanes"], rows, world["stack"], world["n_step"], world["clip"])
    play(world, replay, history, rng)
    return replay, history, rows


def check_batch(batch, history, stack, n_step, clip):
    for b, (lane, row) in enumerate(np.asarray(batch.index)):
        state, action, returns, discount, next_state = history.window(lane, row, stack, n_step, GAMMA, clip)
        assert np.asarray(batch.state[b]).ravel().tolist() == state, (lane, row)
        assert int(batch.action[b]) == action
        assert float(batch.returns[b]) == float(returns)
        assert float(batch.discount[b]) == float(discount)
        assert np.asarray(batch.next_state[b]).ravel().tolist() == next_state


@pytest.mark.parametrize("maker", WITH_A_RING)
def test_every_window_of_the_ring_equals_the_ground_truth(maker):
    @settings(max_examples=200)
    @given(world=worlds)
    def check(world):
        replay, history, rows = make_world(world, maker)
        starts = history.valid_starts(rows, world["stack"], world["n_step"])
        if starts:
            lanes, numbers = np.array(starts).T
            batch = replay.gather(lanes, numbers)
            check_batch(batch, history, world["stack"], world["n_step"], world["clip"])

    check()


@settings(max_examples=200)
@given(world=worlds)
def test_compiled_draws_are_the_same_bits(world):
    """The switch compiled_draw: every field of every draw, with TAIL rows frequent enough to run out of candidates."""
    plain, _, _ = make_world(world, ring_replay)
    compiled, _, _ = make_world(world, compiled_replay)
    if len(plain) == 0:
        with pytest.raises(ValueError, match="nothing to draw"):
            compiled.sample(1)
        return
    for size in (1, 32, 100):
        for ours, theirs in zip(compiled.sample(size), plain.sample(size), strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("maker", MAKERS)
def test_what_is_drawn_equals_the_ground_truth(maker):
    @settings(max_examples=60)
    @given(world=worlds)
    def check(world):
        replay, history, _ = make_world(world, maker)
        if len(replay) == 0:
            return
        batch = replay.sample(32)
        drawn = np.asarray(batch.weight) > 0
        kept = batch._replace(**{name: np.asarray(value)[drawn] for name, value in batch._asdict().items()})
        check_batch(kept, history, world["stack"], world["n_step"], world["clip"])

    check()


@pytest.mark.parametrize("maker", WITH_A_RING)
def test_the_ring_never_starts_at_a_tail_row_and_stays_in_the_valid_range(maker):
    @settings(max_examples=100)
    @given(world=worlds)
    def check(world):
        replay, history, rows = make_world(world, maker)
        valid = set(history.valid_starts(rows, world["stack"], world["n_step"]))
        if len(replay) == 0:
            return
        batch = replay.sample(64)
        flags = np.asarray(replay.ring.flags).reshape(world["lanes"], rows)
        for (lane, row), weight in zip(np.asarray(batch.index).tolist(), np.asarray(batch.weight), strict=True):
            assert weight == 0 or (lane, row) in valid
            if weight > 0:
                assert not flags[lane, row % rows] & TAIL

    check()


@pytest.mark.parametrize("maker", MAKERS)
def test_draws_are_uniform_over_uneven_lanes(maker):
    """Chi-square over every start; one lane has a tenth of the others' rows, games are short, so TAILs are frequent."""
    rng = np.random.default_rng(5)
    history = History(3, rng, p_end=0.3)
    replay = maker(3, 40, 2, 2, False)
    for tick in range(90):
        replay.append(history.tick(slice(0, 2)))
        if tick % 10 == 0:
            replay.append(history.tick(slice(2, 3)))
    counts: dict[tuple[int, int], float] = {}
    for _ in range(400):
        batch = replay.sample(100)
        for (lane, row), weight in zip(np.asarray(batch.index).tolist(), np.asarray(batch.weight).tolist(), strict=True):
            if weight > 0:
                counts[lane, row] = counts.get((lane, row), 0) + weight
    if maker in WITH_A_RING:
        assert set(counts) == set(history.valid_starts(40, 2, 2))
    assert len(counts) > 60
    assert chisquare(list(counts.values())).pvalue > 0.001


@pytest.mark.parametrize("maker", MAKERS)
def test_several_batches_are_drawn_together(maker):
    """And uniform draws do not depend on how many batches they are for."""
    one, other = maker(2, 40, 2, 2, False), maker(2, 40, 2, 2, False)
    history = History(2, np.random.default_rng(3))
    for _ in range(60):
        block = history.tick(slice(0, 2))
        one.append(block)
        other.append(block)
    several, single = one.sample(8, 3), other.sample(24)
    assert len(several.action) == len(several.index) == 24
    for ours, theirs in zip(several, single, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


@pytest.mark.parametrize("maker", MAKERS)
def test_every_replay_takes_feedback_and_beta(maker):
    """Uniform ones ignore both."""
    replay, untold = maker(2, 40, 1, 2, False), maker(2, 40, 1, 2, False)
    history = History(2, np.random.default_rng(3))
    for _ in range(60):
        block = history.tick(slice(0, 2))
        replay.append(block)
        untold.append(block)
    for _ in range(20):
        index = replay.sample(16).index
        untold.sample(16)
        replay.feedback(index, 100.0 * (index[:, 1] % 2 == 0))
        replay.set_beta(0.7)
    same = np.array_equal(np.asarray(replay.sample(64).index), np.asarray(untold.sample(64).index))
    assert same == ("prioritised" not in maker.__name__)


def test_a_biased_sampler_would_be_noticed():
    """The chi-square test itself: drawing the neighbour of a TAIL instead of another row is seen."""

    class NeighbourSampler(UniformSampler):
        def draw(self, ring, batch_size, batches=1):
            low, count = ring.valid_starts(self.stack, self.n_step)
            ends = np.cumsum(count)
            u = self.rng.integers(ends[-1], size=batch_size)
            lane = np.searchsorted(ends, u, side="right")
            row = low[lane] + u - (ends[lane] - count[lane])
            row -= (ring.flags[lane, row % ring.T] & TAIL) != 0
            return lane, row, np.ones(batch_size, np.float32)

    history = History(1, np.random.default_rng(5), p_end=0.3, p_truncate=0)
    replay = ring_replay(1, 60, 1, 1, False)
    replay.sampler = NeighbourSampler(1, 1, np.random.default_rng(0))
    for _ in range(50):
        replay.append(history.tick(slice(0, 1)))
    counts: dict[int, int] = {}
    for _ in range(400):
        for _, row in replay.sample(100).index.tolist():
            counts[row] = counts.get(row, 0) + 1
    assert chisquare(list(counts.values())).pvalue < 1e-6


@pytest.mark.parametrize("maker", MAKERS)
def test_state_round_trip_draws_the_same_batches(maker):
    history = History(2, np.random.default_rng(1))
    replay = maker(2, 40, 2, 3, True)
    for _ in range(70):
        replay.append(history.tick(slice(0, 2)))
    saved = replay.state()
    expected = [replay.sample(16) for _ in range(3)]
    again = maker(2, 40, 2, 3, True, seed=9)
    again.load_state(saved)
    for batch in expected:
        other = again.sample(16)
        for ours, theirs in zip(batch, other, strict=True):
            np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def test_rows_since_gives_what_was_opened_and_still_lives():
    history = History(2, np.random.default_rng(1))
    ring = Ring(2, 12, OBS_SHAPE, np.int32)
    for _ in range(7):
        ring.append(history.tick(slice(0, 2)))
    ring.append(history.tick(slice(1, 2)))
    parts = ring.rows(np.array([5, 5]))
    assert parts[0]["row"].tolist() == [5, 6]
    assert parts[1]["row"].tolist() == [5, 6, 7]
    assert parts[1]["obs"].ravel().tolist() == [row.obs for row in history.rows[1][5:8]]
    for _ in range(20):
        ring.append(history.tick(slice(0, 2)))
    assert ring.rows(np.array([0, 0]))[0]["row"].tolist() == list(range(27 - 12, 27))


def test_a_copy_fed_with_rows_since_equals_the_ring():
    """Saving in increments: the rows since the last save, patched in by row number, rebuild the ring."""
    history = History(2, np.random.default_rng(2))
    ring, copy = (Ring(2, 16, OBS_SHAPE, np.int32) for _ in range(2))
    since = np.zeros(2, np.int64)
    for _ in range(9):
        for _ in range(5):
            ring.append(history.tick(slice(0, 2)))
        for lane, part in enumerate(ring.rows(since)):
            slots = part["row"] % ring.T
            for name in ("obs", "action", "reward", "flags"):
                getattr(copy, name)[lane, slots] = part[name]
        since = ring.W - 1
    # the open row's action and reward are whatever was there before: they do not count
    open_slot = (ring.W - 1) % ring.T
    for name in ("obs", "action", "reward", "flags"):
        ours, theirs = getattr(ring, name).copy(), getattr(copy, name).copy()
        if name in ("action", "reward"):
            ours[[0, 1], open_slot] = theirs[[0, 1], open_slot] = 0
        np.testing.assert_array_equal(ours, theirs)
