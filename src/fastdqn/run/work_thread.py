"""One thread computes with several cores, and no other: where it runs, and how the others keep out of its way.

torch's kernels share out their work by libgomp, which gives each thread that calls it workers of its own. As long as there
are no more of them than cores, workers spin from one kernel to the next. A second thread with workers is enough, though it
never computes again, and all of them sleep between kernels and must be woken for each (docs/decisions/0019). So
whoever builds, asks or shows computes with one thread, which needs no workers, and a trial is made in a thread that ends,
and its workers with it.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from fastdqn.device.cores import usable_cores
from fastdqn.runner.ports import Stop

Answer = TypeVar("Answer")


@contextmanager
def without_workers() -> Iterator[None]:
    """The calling thread computes alone from here on, and as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_in_thread(work: Callable[[], None], stop: Stop, threads: int, while_waiting: Callable[[], None]) -> None:
    """Runs `work` beside the main thread, which stays free to hear signals. A fault in it comes home with its traceback;
    a fault while waiting (the terminal is gone) ends the work first."""
    faults: list[BaseException] = []

    def guarded() -> None:
        torch.set_num_threads(threads)
        try:
            work()
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=guarded, name="fastdqn-inline", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.1)
            while_waiting()
    except (Exception, SystemExit):  # rich ends the program when its pipe is closed
        stop.ask("the view failed")
        thread.join()
        raise
    if faults:
        raise faults[0]


def ask_in_thread(question: Callable[[], Answer]) -> Answer:
    """The answer of a trial, whose workers end with its thread."""

    def asked() -> Answer:
        torch.set_num_threads(usable_cores())
        return question()

    with without_workers(), ThreadPoolExecutor(1) as thread:  # leaving it waits, also after Ctrl-C: it may not go on alone
        return thread.submit(asked).result()
