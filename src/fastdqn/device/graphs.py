"""CUDA graphs (switch `cuda_graph`): a function's kernels recorded once, then launched together.

A network of a few layers is a hundred kernels of a few microseconds, and Python needs ten microseconds to launch one. A
graph launches them all at once. What it reads and writes is fixed when it is recorded: every number that changes from one
call to the next must live in a tensor that stays where it is.
"""

from collections.abc import Callable

import torch

from fastdqn.errors import UserError

Recordable = Callable[[], None]  # reads and writes fixed tensors, answers nothing
Launcher = Callable[[Recordable], Recordable]


def as_it_is(work: Recordable) -> Recordable:
    return work


class Graphed:
    """Called like the work it holds. The first call runs it kernel by kernel (libraries search, allocate and load), the
    second records it, and from then on a call is one launch. So no call is done in vain, and none is done twice."""

    def __init__(self, work: Recordable) -> None:
        self._work = work
        # A stream of its own: two graphs recorded on one stream share a cuBLAS workspace, and may hang when both run
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._has_run = False

    def __call__(self) -> None:
        if self._graph is None and self._has_run:
            self._graph = self._recorded()
        if self._graph is not None:
            self._graph.replay()
        else:
            self._run_as_it_is()

    def _recorded(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        try:
            # thread_local: what another thread asks of CUDA meanwhile (a view, a probe) is no part of this
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                self._work()
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:  # something that waits for the device, in a network of the user's own
            why = str(error).splitlines()[0]
            raise UserError(f"cuda_graph cannot record this network: {why} Turn it off: --off cuda_graph") from error
        return graph

    def _run_as_it_is(self) -> None:
        caller = torch.cuda.current_stream()
        self._stream.wait_stream(caller)
        with torch.cuda.stream(self._stream):
            self._work()
        caller.wait_stream(self._stream)
        self._has_run = True


def in_pieces(work: Callable[[int], None], launcher: Launcher, before: Recordable) -> Callable[[int], None]:
    """`work(count)`, where a count is put together from powers of two, each with a launcher of its own. `before` is what
    must be done on the host first; a graph leaves that out."""
    pieces: dict[int, Recordable] = {}

    def launch(count: int) -> None:
        before()
        for size in powers_of_two(count):
            if size not in pieces:
                pieces[size] = launcher(lambda size=size: work(size))  # type: ignore[misc]
            pieces[size]()

    return launch


def powers_of_two(count: int) -> list[int]:
    """Largest first; their sum is `count`."""
    return [1 << bit for bit in range(count.bit_length() - 1, -1, -1) if count >> bit & 1]
