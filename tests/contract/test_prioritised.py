"""One body over both prioritised replays, on the host and on a device (here the CPU): priorities against a reference that
keeps every row in a dictionary, draws and weights against theory. Planted faults show that these checks find something."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from scipy.stats import chisquare
from torch.utils._python_dispatch import TorchDispatchMode

from fastdqn.device.graphs import Graphed, as_it_is
from fastdqn.replay.fast.device_priorities import BLOCK, _added_up, bytes_of_blocks
from fastdqn.transition import DeviceBlock
from tests.contract.test_replay import (
    check_batch,
    compiled_replay,
    device_replay,
    prioritised_device_replay,
    prioritised_replay,
    ring_replay,
    worlds,
)
from tests.history import History

MAKERS = [prioritised_replay, prioritised_device_replay]
over_both = pytest.mark.parametrize("maker", MAKERS)
JUNK = [np.nan, np.inf, -np.inf, -1.0]


class Reference:
    """The rules in plain words: every valid start has a priority, and nothing else has one."""

    def __init__(self, history, rows, stack, n_step, alpha):
        self.history, self.alpha, self.where = history, alpha, (rows, stack, n_step)
        self.known, self.maximum = {}, 1.0

    def follow(self):
        """After each block: new starts get the maximum, those that are none any more are forgotten."""
        self.known = {start: self.known.get(start, self.maximum) for start in self.history.valid_starts(*self.where)}

    def feedback(self, index, priority):
        told = {}
        for (lane, row), error in zip(np.asarray(index).tolist(), np.asarray(priority).tolist(), strict=True):
            if (lane, row) in self.known and np.isfinite(error) and error >= 0:
                told[lane, row] = max(told.get((lane, row), 0.0), (error + 1e-6) ** self.alpha)
        self.known |= told
        self.maximum = max([self.maximum, *told.values()])

    def table(self):
        """(L, T), as the replays keep it."""
        table = np.zeros((self.history.num_lanes, self.where[0]))
        for (lane, row), value in self.known.items():
            table[lane, row % self.where[0]] = value
        return table


def stored(replay):
    """(L, T): what the replay has of it."""
    flat = replay.sampler.tree.leaves if hasattr(replay, "sampler") else replay.priorities.stored.numpy()
    return flat.reshape(replay.ring.num_lanes, replay.ring.T).copy()


def maximum(replay):
    return float(replay.sampler.maximum[0] if hasattr(replay, "sampler") else replay.priorities.maximum)


def tell(replay, index, priority):
    """Feedback as a learner beside this replay would give it."""
    index, priority = np.asarray(index, np.int64), np.asarray(priority, np.float32)
    if hasattr(replay, "sampler"):
        replay.feedback(index, priority)
    else:
        replay.feedback(torch.from_numpy(index), torch.from_numpy(priority))


def check_history(replay, history, reference, rng, ticks, p_seal, after=lambda: None):
    """Random blocks, seals and feedback, for rows old and new, some of them twice, some of it junk."""
    seen = np.zeros((1, 2), np.int64)
    for _ in range(ticks):
        first = int(rng.integers(history.num_lanes))
        replay.append(history.tick(slice(first, int(rng.integers(first + 1, history.num_lanes + 1)))))
        if rng.random() < p_seal:
            lane = int(rng.integers(history.num_lanes))
            replay.seal(lane)
            history.seal(lane)
        reference.follow()
        if len(replay) == 0:
            continue
        seen = np.concatenate([seen, np.asarray(replay.sample(4).index)])
        if rng.random() < 0.5:
            index = seen[rng.integers(len(seen), size=9)]
            index = np.concatenate([index, [[0, -1], [-1, 0], [history.num_lanes, 0], [0, 10**9]]])
            priority = (4 * rng.random(13)).astype(np.float32)
            priority[rng.integers(9)] = rng.choice(JUNK)
            tell(replay, index, priority)
            reference.feedback(index, priority)
        np.testing.assert_allclose(stored(replay), reference.table(), rtol=1e-12, atol=0)
        after()
    assert maximum(replay) == pytest.approx(reference.maximum, rel=1e-12)


def make(world, maker):
    rng, rows = np.random.default_rng(world["seed"]), 4 * (world["stack"] + world["n_step"]) + world["spare_rows"]
    history = History(world["lanes"], rng, world["p_end"], world["p_truncate"], world["p_life"])
    replay = maker(world["lanes"], rows, world["stack"], world["n_step"], world["clip"], alpha=0.7)
    reference = Reference(history, rows, world["stack"], world["n_step"], 0.7)
    return replay, history, reference, rng


@over_both
def test_priorities_are_those_of_the_reference_and_draws_are_valid_starts(maker):
    @settings(max_examples=60)
    @given(world=worlds)
    def check(world):
        replay, history, reference, rng = make(world, maker)

        def draw():
            batch = replay.sample(16)
            drawn = np.asarray(batch.weight) > 0
            assert drawn.all() == drawn.any() == bool(reference.known), "either every draw is usable, or none is there"
            kept = batch._replace(**{name: np.asarray(value)[drawn] for name, value in batch._asdict().items()})
            assert {(lane, row) for lane, row in kept.index.tolist()} <= set(reference.known)
            check_batch(kept, history, world["stack"], world["n_step"], world["clip"])

        check_history(replay, history, reference, rng, world["ticks"], world["p_seal"], draw)

    check()


def test_host_and_device_agree():
    """The same history and the same feedback: the same priorities, TAIL rows, seals and rows written over among them."""
    rng = np.random.default_rng(4)
    history = History(3, rng)
    host, device = (maker(3, 30, 2, 3, False) for maker in MAKERS)
    for tick in range(150):
        block = history.tick(slice(tick % 2, 3))
        for replay in (host, device):
            replay.append(block)
        if tick % 30 == 29:
            history.seal(1)
            host.seal(1)
            device.seal(1)
        if len(host):
            index = np.concatenate([host.sample(5).index, device.sample(5).index.numpy(), [[0, max(0, tick - 40)]]])
            priority = rng.random(11) * 5
            tell(host, index, priority)
            tell(device, index, priority)
            np.testing.assert_allclose(stored(host), stored(device), rtol=1e-13, atol=0)
    assert len(np.unique(stored(host))) > 40
    assert maximum(host) == pytest.approx(maximum(device), rel=1e-13)


def filled(maker, stack=2, n_step=2, seed=5, errors=True, **how):
    """Three lanes, one of them short; every start with a priority of its own."""
    rng = np.random.default_rng(seed)
    history, replay = History(3, rng, p_end=0.3), maker(3, 40, stack, n_step, False, **how)
    for tick in range(90):
        replay.append(history.tick(slice(0, 2)))
        if tick % 10 == 0:
            replay.append(history.tick(slice(2, 3)))
    starts = np.array(history.valid_starts(40, stack, n_step))
    if errors:
        tell(replay, starts, 0.05 + rng.random(len(starts)) * 2)
    return replay, history, starts


def check_frequencies(replay, starts, draws=400):
    """Chi-square over every start against p / sum of p."""
    table = stored(replay)
    expected = table[starts[:, 0], starts[:, 1] % 40]
    counts = dict.fromkeys(map(tuple, starts.tolist()), 0)
    for _ in range(draws):
        for start in np.asarray(replay.sample(100).index).tolist():
            counts[tuple(start)] += 1  # a KeyError: no valid start
    assert expected.max() > 3 * expected.min(), "else there is nothing to see"
    assert chisquare(list(counts.values()), expected / expected.sum() * draws * 100).pvalue > 0.001


@over_both
def test_draws_are_as_frequent_as_their_priorities(maker):
    replay, _, starts = filled(maker)
    check_frequencies(replay, starts)


@over_both
@pytest.mark.parametrize("stack", [1, 4])
def test_so_they_are_when_the_ring_has_come_around_and_learned(maker, stack):
    replay, history, _ = filled(maker, stack)
    rng = np.random.default_rng(0)
    for _ in range(200):
        replay.append(history.tick(slice(0, 3)))
        tell(replay, replay.sample(8).index, rng.random(8))
    check_frequencies(replay, np.array(history.valid_starts(40, stack, 2)))


def check_weights(replay, starts, beta, batches=3, batch_size=20):
    """(N P) ** -beta over the largest of each batch, by hand."""
    table = stored(replay)
    batch = replay.sample(batch_size, batches)
    index, weight = np.asarray(batch.index), np.asarray(batch.weight)
    assert weight.dtype == np.float32
    chance = table[index[:, 0], index[:, 1] % 40] / table.sum()
    expected = ((len(starts) * chance) ** -beta).reshape(batches, batch_size)
    expected /= expected.max(axis=1, keepdims=True)
    np.testing.assert_allclose(weight.reshape(batches, batch_size), expected, rtol=1e-6)
    return expected


@over_both
@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_weights_take_the_bias_back(maker, beta):
    replay, _, starts = filled(maker, beta=beta)
    seen = [check_weights(replay, starts, beta) for _ in range(20)]
    assert (np.std(seen) > 0.1) == (beta > 0)


@over_both
def test_beta_can_be_changed(maker):
    replay, _, starts = filled(maker, beta=0.2)
    replay.set_beta(0.9)
    check_weights(replay, starts, 0.9)


@over_both
def test_a_weighted_mean_is_that_of_all_rows(maker):
    """What beta = 1 is for: over many draws, each start counts as much as any other."""
    replay, _, starts = filled(maker, beta=1.0)
    table = stored(replay)
    batch = replay.sample(9000)  # the rarest row is in it; more than a device looks at in one go
    (lane, row), weight = np.asarray(batch.index).T, np.asarray(batch.weight, np.float64)
    value, expected = table[lane, row % 40], table.sum() / len(starts)
    assert np.average(value, weights=weight) == pytest.approx(expected, rel=0.02)
    assert value.mean() > 1.05 * expected, "without weights it is another"


@over_both
def test_alpha_of_zero_draws_all_alike(maker):
    replay, _, _ = filled(maker, alpha=0.0)
    assert set(stored(replay).ravel().tolist()) == {0.0, 1.0}
    assert (np.asarray(replay.sample(64).weight) == 1).all()


@over_both
def test_feedback_for_rows_that_are_gone_is_dropped(maker):
    replay, history, starts = filled(maker)
    for _ in range(25):
        replay.append(history.tick(slice(0, 3)))
    valid = set(history.valid_starts(40, 2, 2))
    gone = np.array([start for start in starts.tolist() if tuple(start) not in valid])
    open_rows = [[lane, len(history.rows[lane]) - back] for lane in range(3) for back in (1, 2)]
    tails = [[lane, i] for lane in range(3) for i, row in enumerate(history.rows[lane]) if row.tail]
    assert len(gone) > 30
    assert len(tails) > 20
    before, largest = stored(replay), maximum(replay)
    for index in (gone, open_rows, tails):
        tell(replay, index, np.full(len(index), 1e6))
    np.testing.assert_array_equal(stored(replay), before)
    assert maximum(replay) == largest, "what is dropped is not seen"


@over_both
@pytest.mark.parametrize("junk", JUNK)
def test_feedback_that_is_no_priority_is_dropped(maker, junk):
    replay, _, starts = filled(maker)
    before, largest = stored(replay), maximum(replay)
    tell(replay, starts[:8], [junk] * 8)
    np.testing.assert_array_equal(stored(replay), before)
    assert maximum(replay) == largest


@over_both
def test_of_a_row_that_comes_twice_the_larger_priority_counts(maker):
    """Also where both are smaller than the old one."""
    replay, _, starts = filled(maker, alpha=1.0)
    (lane, row), (other_lane, other) = starts[3].tolist(), starts[9].tolist()
    tell(replay, [starts[3], starts[9]], [50.0, 50.0])
    tell(replay, [starts[3], starts[9], starts[3], starts[9], starts[3]], [2.0, 7.0, 5.0, 6.0, 3.0])
    table = stored(replay)
    assert table[lane, row % 40] == pytest.approx(5.0 + 1e-6)
    assert table[other_lane, other % 40] == pytest.approx(7.0 + 1e-6)


@over_both
def test_new_rows_get_the_largest_priority_so_far(maker):
    replay, history, starts = filled(maker, errors=False)
    assert set(stored(replay).ravel().tolist()) == {0.0, 1.0}, "which is 1 at first"
    tell(replay, starts[:1], [0.3])
    assert maximum(replay) == 1.0
    tell(replay, starts[:1], [9.0])
    tell(replay, starts[:1], [0.1])
    assert maximum(replay) == pytest.approx(3.0, rel=1e-6)
    before = set(map(tuple, starts.tolist()))
    for _ in range(3):
        replay.append(history.tick(slice(0, 3)))
    table = stored(replay)
    new = [start for start in history.valid_starts(40, 2, 2) if start not in before]
    assert new
    assert all(table[lane, row % 40] == maximum(replay) for lane, row in new)


@over_both
def test_the_same_seed_and_feedback_draw_the_same(maker):
    """And another seed draws other rows."""

    def drawn(seed):
        replay, _, _ = filled(maker)
        replay_with_seed = maker(3, 40, 2, 2, False, seed=seed)
        own = replay_with_seed.state()
        replay_with_seed.load_state({**own, "ring": replay.ring.state()})
        rows = []
        for number in range(20):
            index = replay_with_seed.sample(16).index
            tell(replay_with_seed, index, np.arange(16) / (1 + number))
            rows.append(np.asarray(index))
        return np.concatenate(rows)

    np.testing.assert_array_equal(drawn(1), drawn(1))
    assert (drawn(1) != drawn(2)).any()


@over_both
def test_where_every_start_is_a_tail_nothing_is_learned(maker):
    """A game cut after its first observation, again and again."""
    history, replay = History(1, np.random.default_rng(0)), maker(1, 20, 2, 1, False)
    with pytest.raises(ValueError, match="nothing to draw"):
        replay.sample(4)
    for _ in range(4):
        replay.append(history.tick(slice(0, 1)))
        replay.seal(0)
        history.seal(0)
    assert len(replay) == 3
    batch = replay.sample(4, 2)
    assert np.asarray(batch.weight).tolist() == [0.0] * 8
    tell(replay, batch.index, np.ones(8))
    assert not stored(replay).any()


# ---------------------------------------------------------------- states


@over_both
def test_a_state_goes_on_exactly(maker):
    """Priorities, their sums and the maximum: the same draws, also after further rows and feedback."""
    replay, history, _ = filled(maker)
    again = maker(3, 40, 2, 2, False, seed=9)
    again.load_state(replay.state())
    rng = np.random.default_rng(0)
    for _ in range(60):
        block = history.tick(slice(0, 3))
        ours, theirs = again.sample(16), replay.sample(16)
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
        priority = rng.random(16) * 3
        for each in (again, replay):
            tell(each, ours.index, priority)
            each.append(block)
    np.testing.assert_array_equal(stored(again), stored(replay))
    assert maximum(again) == maximum(replay) > 1


@over_both
def test_a_saved_state_does_not_move(maker):
    replay, history, starts = filled(maker)
    saved = replay.state()
    find = saved["sampler"]["priorities"] if "sampler" in saved else saved["priorities"]
    before = find["stored"].copy()
    tell(replay, starts, np.full(len(starts), 8.0))
    replay.append(history.tick(slice(0, 3)))
    np.testing.assert_array_equal(find["stored"], before)


@pytest.mark.parametrize(
    ("uniform", "maker"),
    [
        (ring_replay, prioritised_replay),
        (compiled_replay, prioritised_replay),
        (device_replay, prioritised_device_replay),
    ],
)
def test_a_run_may_go_on_with_the_other_kind(uniform, maker):
    theirs, history = uniform(3, 40, 2, 2, False), History(3, np.random.default_rng(5), p_end=0.3)
    for _ in range(90):
        theirs.append(history.tick(slice(0, 3)))
    ours, old = filled(maker)[0], stored(filled(maker)[0])
    ours.load_state(theirs.state())
    reference = Reference(history, 40, 2, 2, 0.5)
    reference.follow()
    np.testing.assert_array_equal(stored(ours), reference.table())
    assert not np.array_equal(stored(ours), old)
    assert maximum(ours) == 1.0
    back = uniform(3, 40, 2, 2, False, seed=3)
    back.load_state(ours.state())
    for one, other in zip(back.ring.state().values(), ours.ring.state().values(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(back.sample(8).action) == 8


@over_both
@pytest.mark.parametrize("other", [(4, 2), (2, 5), (1, 1)])
def test_a_run_may_go_on_with_another_stack_or_n(maker, other):
    """What is a valid start for the new ones, and nothing else, can be drawn."""
    replay, history, _ = filled(maker)
    again = maker(3, 40, *other, False)
    again.load_state(replay.state())
    before, after, valid = stored(replay), stored(again), set(history.valid_starts(40, *other))
    assert {(lane, slot) for lane, slot in np.argwhere(after > 0)} == {(lane, row % 40) for lane, row in valid}
    kept = (before > 0) & (after > 0)
    np.testing.assert_array_equal(after[kept], before[kept])
    assert (after[(after > 0) & ~kept] == maximum(replay)).all()


# ---------------------------------------------------------------- planted faults


@over_both
def test_weights_that_are_ignored_would_be_noticed(maker, monkeypatch):
    replay, _, starts = filled(maker)
    chooser = replay.sampler if hasattr(replay, "sampler") else replay.priorities
    draw, ones = chooser.draw, torch.ones_like if maker is prioritised_device_replay else np.ones_like
    monkeypatch.setattr(chooser, "draw", lambda *given: (*(drawn := draw(*given))[:2], ones(drawn[2])))
    with pytest.raises(AssertionError):
        check_weights(replay, starts, 0.4)


@over_both
def test_weights_over_all_batches_at_once_would_be_noticed(maker, monkeypatch):
    replay, _, starts = filled(maker)
    sample = replay.sample
    monkeypatch.setattr(replay, "sample", lambda size, batches=1: sample(size * batches))
    with pytest.raises(AssertionError):
        check_weights(replay, starts, 0.4, batches=10)


@over_both
@pytest.mark.parametrize("fault", ["the neighbour", "the other lane", "one too early", "forgotten"])
def test_priorities_of_the_wrong_rows_would_be_noticed(maker, fault, monkeypatch):
    rng = np.random.default_rng(1)
    history, replay = History(3, rng), maker(3, 20, 2, 2, False)
    feedback = replay.feedback
    shift = {"the neighbour": [0, 1], "the other lane": [1, 0], "one too early": [0, -1]}.get(fault)
    if shift is None:
        monkeypatch.setattr(replay, "feedback", lambda index, priority: None)
    else:
        by = np.array([shift]) if hasattr(replay, "sampler") else torch.tensor([shift])
        monkeypatch.setattr(replay, "feedback", lambda index, priority: feedback(index + by, priority))
    with pytest.raises(AssertionError):
        check_history(replay, history, Reference(history, 20, 2, 2, 0.5), rng, 60, 0.0)


@over_both
def test_draws_that_ignore_priorities_would_be_noticed(maker):
    replay, _, starts = filled(maker, errors=False)
    uniform = replay.sample
    told, _, _ = filled(maker)
    told.sample = uniform
    with pytest.raises(AssertionError):
        check_frequencies(told, starts, draws=50)


# ---------------------------------------------------------------- on a device


def halved(block):
    """A block's sum in plain NumPy, in the order that the device adds up."""
    while len(block) > 1:
        block = block[: len(block) // 2] + block[len(block) // 2 :]
    return block[0]


@pytest.mark.parametrize(("lanes", "rows"), [(3, 40), (2, 5000), (70, 40)], ids=["one block", "some", "many lanes"])
def test_sums_of_blocks_are_those_of_new_ones(lanes, rows):
    """Bit for bit, at all times, over many powers of ten: where all blocks are added up, and where some are."""
    replay, rng = prioritised_device_replay(lanes, rows, 2, 2, False, alpha=1.0), np.random.default_rng(0)
    history, priorities = History(lanes, rng, p_end=0.05), replay.priorities

    def check():
        expected = [halved(block) for block in priorities.blocks.numpy()]
        np.testing.assert_array_equal(priorities.sums.numpy(), expected)

    for _ in range(300):
        replay.append(history.tick(slice(0, lanes)))
        check()
        if len(replay):
            index = replay.sample(2).index.numpy() if rng.random() < 0.5 else replay.sample(64).index.numpy()
            tell(replay, index, 10.0 ** rng.uniform(-6, 8, len(index)))
            check()
    assert np.count_nonzero(priorities.sums) > (lanes * rows > BLOCK)


def test_draws_from_many_blocks_are_as_frequent_as_their_priorities():
    """Chi-square over stretches of a hundred slots, the last block not full."""
    replay, rng = prioritised_device_replay(2, 1500, 1, 1, False), np.random.default_rng(2)
    history = History(2, rng, p_end=0.05)
    for _ in range(2000):
        replay.append(history.tick(slice(0, 2)))
    starts = np.array(history.valid_starts(1500, 1, 1))
    tell(replay, starts, 3 * rng.random(len(starts)) ** 2)
    for _ in range(300):  # these have the maximum, and their blocks were added up by writing alone
        replay.append(history.tick(slice(0, 2)))
    expected = stored(replay).reshape(-1, 100).sum(1)
    index = np.concatenate([replay.sample(500).index.numpy() for _ in range(100)])
    counts = np.bincount((index[:, 0] * 1500 + index[:, 1] % 1500) // 100, minlength=30)
    assert expected.max() > 1.5 * expected.min()
    assert chisquare(counts, expected / expected.sum() * len(index)).pvalue > 0.001


def test_no_slot_of_zero_is_drawn_wherever_a_number_falls(monkeypatch):
    """On the ends of blocks, on the total and beyond it, with sums that rounding has made larger than what is in them."""
    replay, rng = prioritised_device_replay(4, 1500, 1, 1, False), np.random.default_rng(0)
    priorities = replay.priorities
    replay.ring.W.fill_(1500)
    for _ in range(30):
        values = 10.0 ** rng.uniform(-17, 17, 6000) * (rng.random(6000) < 0.05)
        values[4000:] = 0.0
        values[rng.integers(4000)] = 1.0
        priorities.stored.copy_(torch.from_numpy(values))
        priorities.sums.copy_(_added_up(priorities.blocks) * rng.choice([1.0, 1.0 + 1e-9, 1.0 - 1e-9]))
        ends = torch.cumsum(priorities.sums, 0)
        shares = torch.cat([ends / ends[-1], torch.rand(20, dtype=torch.float64), torch.tensor([0.0, 1.0, 1.1])])
        monkeypatch.setattr("fastdqn.replay.fast.device_priorities.fine_fraction", lambda words, shares=shares: shares)
        lane, row, weight = priorities.draw(replay.device_rng, len(shares))
        assert (priorities.stored[lane * 1500 + row % 1500] > 0).all()
        assert (weight > 0).all()


class Watched(TorchDispatchMode):
    """Refuses what reads a number back or makes shapes from numbers: a CUDA graph could not hold it."""

    READ_BACK = ("_local_scalar_dense", "nonzero", "masked_select", "multinomial", "unique", "item", "is_nonzero", "equal")

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, function, types, given=(), named=None):
        self.calls += 1
        name = function.__name__.split(".")[0]
        assert name not in self.READ_BACK, name
        if name in ("index", "index_put", "index_put_"):
            assert all(part is None or part.dtype != torch.bool for part in given[1]), "a mask as an index"
        return function(*given, **(named or {}))


def test_the_device_is_never_asked_for_a_number():
    replay, history, _ = filled(prioritised_device_replay)
    block = history.tick(slice(0, 3))
    arrays = {name: torch.from_numpy(value) for name, value in block._asdict().items() if name != "lanes"}
    on_device, error = DeviceBlock(block.lanes, **arrays), torch.rand(16)
    with Watched() as watched:
        replay.ring.write(on_device)
        replay.ring.count(block.lanes)
        batch = replay.sample(8, 2)
        replay.feedback(batch.index, error)
        replay.set_beta(0.5)
    assert watched.calls > 50
    with pytest.raises(AssertionError), Watched():  # the watching itself
        _ = error[error > 0.5]


def test_feedback_with_a_gradient_does_not_keep_its_graph():
    replay, _, starts = filled(prioritised_device_replay)
    index, error = torch.from_numpy(starts[:4]), torch.full((4,), 9.0, requires_grad=True)
    replay.feedback(index, error * 2)
    assert maximum(replay) == pytest.approx(18**0.5, rel=1e-6)
    assert not replay.priorities.stored.requires_grad
    assert not replay.priorities.maximum.requires_grad


def test_every_tensor_stays_where_it_is():
    """A graph reads and writes them there."""
    replay, history, _ = filled(prioritised_device_replay)
    tensors = [getattr(replay.priorities, name) for name in ("blocks", "sums", "maximum", "beta", "stored")]
    places = [tensor.data_ptr() for tensor in tensors]
    tell(replay, replay.sample(8).index, np.ones(8))
    replay.append(history.tick(slice(0, 3)))
    replay.load_state(filled(prioritised_device_replay)[0].state())
    replay.set_beta(0.8)
    now = [getattr(replay.priorities, name) for name in ("blocks", "sums", "maximum", "beta", "stored")]
    assert [tensor.data_ptr() for tensor in now] == places


def test_its_bytes():
    priorities = prioritised_device_replay(3, 999, 1, 1, False).priorities
    assert bytes_of_blocks(3 * 999) == 8 * (len(priorities._all) + len(priorities.sums))


@pytest.mark.gpu
def test_a_graph_does_what_its_kernels_do_one_by_one():
    check_graphs("cuda", Graphed)


def check_graphs(device, launcher):
    """Two replays, one of which writes, draws and takes feedback in graphs: the same draws and priorities."""
    rng = np.random.default_rng(0)
    history, error = History(3, rng), torch.linspace(0, 3, 16, device=device)
    replays, learning, drawn = [], [], [{}, {}]
    for launch, found in zip((launcher, as_it_is), drawn, strict=True):
        replay = prioritised_device_replay(3, 1000, 2, 2, False, device=device, launcher=launch)

        def learn(replay=replay, found=found):
            found["batch"] = batch = replay.sample(8, 2)
            replay.feedback(batch.index, error * (1 + batch.index[:, 1] % 5))

        replays.append(replay)
        learning.append(launch(learn))
    for tick in range(1500):
        block = history.tick(slice(0, 3))
        for replay in replays:
            replay.append(block)
            replay.set_beta(tick / 1500)
        if tick > 10:
            for learn in learning:
                learn()
            for ours, theirs in zip(drawn[0]["batch"], drawn[1]["batch"], strict=True):
                assert torch.equal(ours, theirs)
    ours, theirs = (replay.priorities for replay in replays)
    for name in ("stored", "sums", "maximum"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    assert len(torch.unique(ours.stored)) > 20
