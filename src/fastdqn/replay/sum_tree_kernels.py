"""The compiled loops of sum_tree.py and prioritised.py, in one file: Numba's cache checks the file of a loop only.

`nodes` holds a binary tree of n leaves: node 1 is the root, the children of node i are 2i and 2i + 1, leaf i is node n + i.
"""

import numpy as np

from fastdqn.device.kernel import kernel
from fastdqn.replay.prioritised import SMALLEST
from fastdqn.replay.ring import TAIL


@kernel
def add_up(nodes: np.ndarray) -> None:
    """Recomputes every inner node from its children."""
    for node in range(len(nodes) // 2 - 1, 0, -1):
        nodes[node] = nodes[2 * node] + nodes[2 * node + 1]


@kernel
def climb(nodes: np.ndarray, leaf: int) -> None:
    """Recomputes the nodes above a leaf from their children, up to the first that does not change."""
    node = (len(nodes) // 2 + leaf) // 2
    while node > 0:
        total = nodes[2 * node] + nodes[2 * node + 1]
        if nodes[node] == total:
            return
        nodes[node] = total
        node //= 2


@kernel
def write_leaf(nodes: np.ndarray, leaf: int, value: float) -> None:
    nodes[len(nodes) // 2 + leaf] = value
    climb(nodes, leaf)


@kernel
def write_leaves(nodes: np.ndarray, leaves: np.ndarray, values: np.ndarray) -> None:
    """Writes them one after the other."""
    for i in range(len(leaves)):
        write_leaf(nodes, leaves[i], values[i])


@kernel
def find(nodes: np.ndarray, numbers: np.ndarray, found: np.ndarray) -> None:
    """The leaves at which the running sum of all leaves passes the numbers, which are overwritten. Never a leaf that is 0,
    whatever the rounding, because an empty subtree is not entered; unless all are 0."""
    leaves, width = len(nodes) // 2, 1
    found[:] = 1
    while width < leaves:  # level by level: memory reads of all of them overlap, 6 us instead of 12 for 64
        for i in range(len(numbers)):
            node = found[i]
            if node < leaves:  # else it is a leaf already: the last level need not be full
                left, right = nodes[2 * node], nodes[2 * node + 1]
                to_the_right = (numbers[i] >= left) & (right > 0.0)  # as a number: a branch would be mispredicted
                numbers[i] -= left * to_the_right
                found[i] = 2 * node + to_the_right
        width *= 2
    found -= leaves


@kernel
def draw_rows(
    nodes: np.ndarray,
    shares: np.ndarray,  # (batches, batch_size) uniform in [0, 1); overwritten
    W: np.ndarray,  # (L,)
    length: int,  # rows per lane
    beta: float,
    lane: np.ndarray,  # (batches, batch_size); outputs from here on
    row: np.ndarray,
    weight: np.ndarray,
) -> None:
    """Weights are (N P) ** -beta divided by the largest of their batch, where N and the total cancel."""
    leaves, found = nodes[len(nodes) // 2 :], np.empty(shares.shape[1], np.int64)
    for batch in range(len(shares)):
        shares[batch] *= nodes[1]
        find(nodes, shares[batch], found)
        least = leaves[found].min()
        for b in range(len(found)):
            in_lane = found[b] // length
            newest, slot = W[in_lane] - 1, found[b] - in_lane * length
            lane[batch, b], row[batch, b] = in_lane, newest - (newest - slot) % length
            weight[batch, b] = (least / leaves[found[b]]) ** beta


@kernel
def open_rows(
    nodes: np.ndarray,
    maximum: np.ndarray,  # (1,)
    W: np.ndarray,  # (L,)
    flags: np.ndarray,  # (L, T)
    first_lane: int,
    end_lane: int,
    stack: int,
    n_step: int,
) -> None:
    """Each of these lanes got a new row: one more row has its n steps, and one has lost the oldest frame of its stack."""
    length = flags.shape[1]
    for lane in range(first_lane, end_lane):
        newest = W[lane] - 1
        ready = newest - n_step
        if ready >= 0 and (flags[lane, ready % length] & TAIL) == 0:
            write_leaf(nodes, lane * length + ready % length, maximum[0])
        lost = (newest + stack - 1) % length  # the slot of row newest - T + stack - 1
        if nodes[len(nodes) // 2 + lane * length + lost] != 0.0:
            write_leaf(nodes, lane * length + lost, 0.0)


@kernel
def take_feedback(
    nodes: np.ndarray,
    maximum: np.ndarray,  # (1,)
    index: np.ndarray,  # (B, 2): lane, absolute row
    priority: np.ndarray,  # (B,) float32
    W: np.ndarray,
    flags: np.ndarray,
    stack: int,
    n_step: int,
    alpha: float,
) -> None:
    """If a row occurs twice, the larger priority counts. Rows that are no longer valid starts are ignored, and so are
    negative or non-finite priorities."""
    leaves, size = len(nodes) // 2, len(index)
    known = np.empty(size, np.int64)
    for i in range(size):
        known[i] = _leaf_of(index[i, 0], index[i, 1], W, flags, stack, n_step)
        if not (priority[i] >= 0.0 and priority[i] < np.inf):
            known[i] = -1
        if known[i] >= 0:
            nodes[leaves + known[i]] = 0.0
    for i in range(size):
        if known[i] >= 0:
            node, stored = leaves + known[i], (np.float64(priority[i]) + SMALLEST) ** alpha
            nodes[node] = max(nodes[node], stored)
            maximum[0] = max(maximum[0], stored)
    for i in range(size):
        if known[i] >= 0:
            climb(nodes, known[i])


@kernel
def _leaf_of(lane: int, row: int, W: np.ndarray, flags: np.ndarray, stack: int, n_step: int) -> int:
    """The leaf of this row's priority; -1 if it is no valid start."""
    lanes, length = flags.shape
    if lane < 0 or lane >= lanes:
        return -1
    if row < max(0, W[lane] - length + stack - 1) or row > W[lane] - 1 - n_step:
        return -1
    return -1 if flags[lane, row % length] & TAIL else lane * length + row % length
