"""Only one thread computes with several cores: where it runs, and how the others stay out of its way.

torch's kernels run in parallel through libgomp, which gives each calling thread its own workers. As long as there are no
more of them than cores, workers spin from one kernel to the next. A second thread with workers, even if it never computes
again, makes all of them sleep between kernels, and each kernel must wake them (docs/decisions/0019). So threads that build,
prepare or show compute with one thread, which needs no workers, and a trial runs in a thread that ends with its workers.
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
    """The calling thread computes without workers inside, and as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_in_thread(work: Callable[[], None], stop: Stop, threads: int, while_waiting: Callable[[], None]) -> None:
    """Runs `work` in a thread, so that the main thread can handle signals. An error in it is raised here with its
    traceback; an error while waiting (the terminal is gone) ends the work first."""
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
    except (Exception, SystemExit):  # rich exits when its pipe is closed
        stop.ask("the view failed")
        thread.join()
        raise
    if faults:
        raise faults[0]


def ask_in_thread(question: Callable[[], Answer]) -> Answer:
    """Runs a trial in a thread and returns its answer; the workers end with the thread."""

    def asked() -> Answer:
        torch.set_num_threads(usable_cores())
        return question()

    with without_workers(), ThreadPoolExecutor(1) as thread:  # exiting waits, also after Ctrl-C: it must not go on alone
        return thread.submit(asked).result()
