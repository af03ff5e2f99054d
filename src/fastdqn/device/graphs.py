"""CUDA graphs (switch `cuda_graph`): a function's kernels recorded once, then launched together.

A network of a few layers is a hundred kernels of a few microseconds, and Python takes ten microseconds to launch one. A
graph launches them all at once. The addresses it reads and writes are fixed at capture: every number that changes between
calls must live in a tensor that keeps its address.
"""

from collections.abc import Callable

import torch

from fastdqn.errors import UserError, first_line

Recordable = Callable[[], None]  # reads and writes fixed tensors, returns nothing
Launcher = Callable[[Recordable], Recordable]


def as_it_is(work: Recordable) -> Recordable:
    return work


class Graphed:
    """Called like the function it wraps. The first call runs it kernel by kernel (libraries search, allocate and load), the
    second captures it, and from then on a call is one launch. Every call does its work exactly once."""

    def __init__(self, work: Recordable) -> None:
        self._work = work
        # Its own stream: two graphs captured on one stream share a cuBLAS workspace and may hang when both run
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
            # thread_local: CUDA calls of other threads (a view, a probe) do not affect the capture
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                self._work()
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:  # a user's own network that synchronises with the device
            why = first_line(error)
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
    """`work(count)`, where the count is split into powers of two, each with its own launcher. `before` is the host work
    that must be done first; a graph does not capture it."""
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
