"""The child process of a role: what it is given, how it starts, and how its errors reach the parent.

No live objects are passed: a role is built from the config in its own process.
"""

import ctypes
import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fastdqn.actor.greedy import make_values
from fastdqn.actor.recorder import Recorder
from fastdqn.build import stack_of
from fastdqn.config import Config
from fastdqn.env.kind import EnvKind
from fastdqn.env.registry import EnvName, find_env
from fastdqn.errors import UserError, memory_ran_out
from fastdqn.learner.network import MakeBody, QNetwork
from fastdqn.processes.bell import Bell
from fastdqn.processes.control import EVALUATOR, Pulse
from fastdqn.processes.shared import Address, Shared, open_shared
from fastdqn.processes.slots import StoppedError
from fastdqn.run.dumps import DumpWriter

PR_SET_PDEATHSIG = 1
STACK_SIGNAL = signal.SIGUSR1
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

# Messages sent through the door (a pipe) are pairs that begin with one of these
HELLO, ROW, SCORE, NOTE, FAULT, DONE = "hello", "row", "score", "note", "fault", "done"


@dataclass(frozen=True)
class BellEnds:
    """A bell as it is sent to a child process."""

    reader: Connection
    writer: Connection
    role: int  # whose bell it is

    def bell(self, control: Shared) -> Bell:
        return Bell(self.reader, self.writer, control["asleep"][self.role : self.role + 1])


@dataclass(frozen=True)
class RoleTask:
    """Everything a role is given."""

    role: int  # its index in control.py
    number: int  # of the actor
    life: int  # how often it was restarted
    config: Config
    env: EnvName
    network: MakeBody | None
    device: str
    threads: int
    cores: tuple[int, ...]  # CPU affinity; empty: none
    stack_file: Path
    model_file: Path
    from_model: Path | None  # initial weights
    control: Address
    weights: Address
    slots: tuple[Address, ...]  # of all actors
    work: BellEnds  # the learner's
    room: tuple[BellEnds, ...]  # of all actors
    door: Connection

    def recorder(self, kind: EnvKind, network: QNetwork, number_of: Callable[[int], int] = lambda n: n) -> Recorder:
        """Dumps the role's games; its writer is not waited for and ends with the process."""
        role = "evaluator" if self.role == EVALUATOR else f"actor{self.number}"
        writer = DumpWriter(self.model_file.parent, role, kind.spec, self.config.dump.max_gb * 1e9)
        values, stack = make_values(network, self.device), stack_of(self.config, kind)
        return Recorder(kind.spec, stack, self.config.dump.every, values, writer.write, number_of)

    def kind(self) -> EnvKind:
        if callable(self.env):
            return find_env(self.env, {}, self.config.imports)
        return find_env(self.env, self.config.env, self.config.imports)


def live(role: Callable[[RoleTask, Pulse], None], task: RoleTask) -> None:
    """Main function of a child process. Errors are sent through the door, those the user can fix as a sentence."""
    _end_with_parent()
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent decides
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    stack_file = task.stack_file.open("w")  # kept open: the signal may come at any time
    faulthandler.register(STACK_SIGNAL, file=stack_file, all_threads=True)
    if task.cores:
        os.sched_setaffinity(0, task.cores)
    import torch

    try:
        torch.set_num_threads(task.threads)
        role(task, Pulse(open_shared(task.control), task.role))
    except StoppedError:
        pass
    except UserError as fault:
        task.door.send((FAULT, {"sentence": str(fault), "traceback": ""}))
        sys.exit(2)
    except (torch.OutOfMemoryError, MemoryError) as fault:
        task.door.send((FAULT, {"sentence": str(memory_ran_out(fault, task.device)), "traceback": ""}))
        sys.exit(2)
    except BaseException as fault:
        told = {"sentence": f"{type(fault).__name__}: {fault}", "traceback": traceback.format_exc()}
        task.door.send((FAULT, told))
        sys.exit(1)


def _end_with_parent() -> None:
    """On Linux the kernel kills us with the parent; a thread does on any system, even while the parent is being killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    parent = parent_process()
    assert parent is not None, "a role is a child"

    def watch(sentinel: Any) -> None:
        wait([sentinel])
        os._exit(3)

    threading.Thread(target=watch, args=(parent.sentinel,), daemon=True, name="fastdqn-parent").start()
