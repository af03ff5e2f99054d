"""One thread of a run computes with several cores. Any other that did would put its workers to sleep between kernels."""

import os
import subprocess
import sys
import threading

import pytest
import torch

from fastdqn.device.cores import usable_cores
from fastdqn.run.work_thread import ask_in_thread, run_in_thread, without_workers
from fastdqn.runner.ports import Stop

RUN = """
import contextlib, os, sys
import fastdqn, fastdqn.train
from fastdqn.run import probe
from fastdqn.runner.inline import InlineRunner

if "planted" in sys.argv:  # the main thread makes the trial, and keeps its workers
    fastdqn.train.without_workers = contextlib.nullcontext
    probe.ask_in_thread = lambda question: question()
seen = []
log = InlineRunner.log

def count(self):
    log(self)
    seen.append(len(os.listdir("/proc/self/task")))

InlineRunner.log = count
probe.fewest_of_the_fastest = lambda rates: 2
fastdqn.train(
    "catch", steps=1400, run=sys.argv[1], quiet=True, off=["one_pass_optimizer"], device="cpu",
    settings={"learner.batch_size": 64, "evaluator.at_end": False, "log.every_steps": 700},
)
print("tasks", seen[-1])
"""


def tasks_of_a_run(folder, *how):
    """Threads that the system knows of when the run ends: those of Python, and the workers of those that computed."""
    alone = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "FASTDQN_CACHE": str(folder / "cache")}
    command = [sys.executable, "-c", RUN, str(folder / "run"), *how]
    done = subprocess.run(command, env=alone, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split("tasks")[1])


@pytest.mark.slow
@pytest.mark.skipif(usable_cores() < 2 or not os.path.isdir("/proc/self/task"), reason="needs two cores and Linux")
def test_only_the_thread_that_trains_has_workers(tmp_path):
    """After a trial of threads, as in the first run of a kind on a machine."""
    (tmp_path / "planted").mkdir()
    assert tasks_of_a_run(tmp_path / "planted", "planted") == tasks_of_a_run(tmp_path) + usable_cores() - 1


def test_the_calling_thread_computes_alone_and_then_as_before():
    before = torch.get_num_threads()
    with without_workers():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_work_has_its_threads_and_its_fault_comes_home():
    seen = []
    run_in_thread(lambda: seen.append((torch.get_num_threads(), threading.current_thread())), Stop(), 2, lambda: None)
    assert seen[0][0] == 2
    assert seen[0][1] is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        run_in_thread(lambda: 1 / 0, Stop(), 1, lambda: None)


def test_a_trial_is_asked_in_a_thread_that_ends():
    before = torch.get_num_threads()
    name, threads = ask_in_thread(lambda: (threading.current_thread(), torch.get_num_threads()))
    assert not name.is_alive()
    assert threads == usable_cores()
    assert torch.get_num_threads() == before
    with pytest.raises(ZeroDivisionError):
        ask_in_thread(lambda: 1 / 0)
