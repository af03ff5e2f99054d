"""The sum tree against plain sums: bit for bit where it says so, and never a leaf of 0."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdqn.replay.sum_tree import SumTree, bytes_of_tree


def built_anew(tree):
    """The same tree from its leaves alone, in plain Python."""
    nodes = tree.nodes.copy()
    for node in range(len(tree.leaves) - 1, 0, -1):
        nodes[node] = nodes[2 * node] + nodes[2 * node + 1]
    return nodes


@pytest.mark.parametrize("leaves", [1, 2, 3, 1000, 1024, 4097])
def test_sums_after_a_million_writes_are_those_of_a_new_tree(leaves):
    """Over twenty powers of ten, with zeros between: deltas would have drifted."""
    rng, tree = np.random.default_rng(leaves), SumTree(leaves)
    for _ in range(10):
        values = 10.0 ** rng.uniform(-12, 8, 100_000) * (rng.random(100_000) < 0.8)
        tree.write(rng.integers(leaves, size=100_000), values)
    expected = built_anew(tree)
    assert np.array_equal(tree.nodes[1:], expected[1:])
    assert tree.total == pytest.approx(tree.leaves.sum(), rel=1e-12)
    again = SumTree(leaves)
    again.fill(tree.leaves)
    assert np.array_equal(again.nodes[1:], expected[1:])


def test_deltas_would_have_drifted():
    """The same writes with parents corrected by differences: the test above would notice."""
    rng, leaves = np.random.default_rng(0), 64
    tree = SumTree(leaves)
    for leaf, value in zip(rng.integers(leaves, size=2000).tolist(), 10.0 ** rng.uniform(-12, 8, 2000), strict=True):
        change, node = value - tree.leaves[leaf], leaves + leaf
        while node > 0:
            tree.nodes[node] += change
            node //= 2
    assert not np.array_equal(tree.nodes[1:], built_anew(tree)[1:])


@settings(max_examples=200)
@given(
    values=st.lists(st.sampled_from([0.0, 0.0, 1.0, 2.0, 0.5, 7.0]), min_size=1, max_size=40),
    share=st.floats(0, 1, exclude_max=True),
)
def test_a_number_falls_on_the_leaf_where_the_running_sum_passes_it(values, share):
    """Small halves and wholes: every sum is exact, and the answer is one of a kind."""
    tree = SumTree(len(values))
    tree.fill(np.array(values))
    if tree.total == 0:
        return
    number = np.floor(share * tree.total * 4) / 4
    order = order_of_leaves(len(values))
    ends = np.cumsum(np.array(values)[order])
    assert tree.find([number]).tolist() == [order[int(np.searchsorted(ends, number, side="right"))]]


def order_of_leaves(leaves):
    """From left to right: in a tree that is not full, some leaves hang one level higher."""
    found, stack = [], [1]
    while stack:
        node = stack.pop()
        if node >= leaves:
            found.append(node - leaves)
        else:
            stack += [2 * node + 1, 2 * node]
    return found


@pytest.mark.parametrize("leaves", [2, 5, 64, 100, 1000])
def test_a_leaf_of_zero_is_never_found(leaves):
    """Numbers at the ends of all leaves, at the total and beyond it, where rounding would lead to empty leaves."""
    rng = np.random.default_rng(leaves)
    for _ in range(20):
        values = rng.random(leaves) * 10.0 ** rng.uniform(-15, 5, leaves) * (rng.random(leaves) < 0.3)
        values[rng.integers(leaves)] = 0.1
        tree = SumTree(leaves)
        tree.fill(values)
        ends = np.cumsum(values[order_of_leaves(leaves)])
        edges = np.concatenate([ends, np.nextafter(ends, np.inf), np.nextafter(ends, 0), [0.0, tree.total, 2 * tree.total]])
        assert (values[tree.find(edges)] > 0).all()


def test_its_bytes():
    assert SumTree(1000).nodes.nbytes == bytes_of_tree(1000)
