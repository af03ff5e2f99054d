"""A sum tree over the slots of a ring: finds the leaf of a number, and updates a leaf, in log2(slots) steps.

Sums are float64, and a parent is always left + right, never updated by a difference: so rounding errors do not accumulate,
and the tree is always, bit for bit, the one that would be rebuilt from its leaves.
"""

from collections.abc import Iterable

import numpy as np


class SumTree:
    def __init__(self, leaves: int) -> None:
        self.nodes = np.zeros(2 * leaves)  # node 1 is the root, the last half are the leaves (sum_tree_kernels.py)
        self.leaves = self.nodes[leaves:]

    @property
    def total(self) -> float:
        return float(self.nodes[1])

    def write(self, leaves: Iterable[int], values: Iterable[float]) -> None:
        from fastdqn.replay.sum_tree_kernels import write_leaves  # here, because importing numba takes half a second

        write_leaves(self.nodes, np.asarray(leaves, np.int64), np.asarray(values, np.float64))

    def fill(self, values: np.ndarray) -> None:
        """Sets all leaves at once."""
        from fastdqn.replay.sum_tree_kernels import add_up

        self.leaves[...] = values
        add_up(self.nodes)

    def find(self, numbers: Iterable[float]) -> np.ndarray:
        """The leaves at which the running sum passes these numbers; never one that is 0."""
        from fastdqn.replay.sum_tree_kernels import find

        wanted = np.array(numbers, np.float64)
        found = np.empty(len(wanted), np.int64)
        find(self.nodes, wanted, found)
        return found


def bytes_of_tree(leaves: int) -> int:
    return 2 * leaves * 8
