"""`python -m fastdqn.bench.worker`: one measurement in a process of its own, so that threads, global switches of torch
and memory of one measurement are not the next one's."""

import os
import sys
from typing import Any

from fastdqn.bench.child import serve
from fastdqn.bench.learning import train_and_evaluate
from fastdqn.bench.measure import measure, measure_ceiling, measure_env
from fastdqn.bench.profile import LEFT_OUT
from fastdqn.bench.throughput import throughput
from fastdqn.bench.turns import turns_of
from fastdqn.bench.work import CORES
from fastdqn.prepare import Job, prepare


def job_of(task: dict[str, Any]) -> Job:
    if cores := task.get(CORES):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])  # before anybody counts them
    return prepare(task["env"], task.get("preset"), task.get("settings", {}), task.get("imports", ()))


def speed(task: dict[str, Any]) -> dict[str, Any]:
    without, whole = LEFT_OUT.get(task.get("without", "")), task.get("whole_replay", False)
    return measure(job_of(task), task["seconds"], without, turns_of(task), whole).as_json()


def learn(task: dict[str, Any]) -> dict[str, Any]:
    return train_and_evaluate(job_of(task)).as_json()


def env(task: dict[str, Any]) -> dict[str, Any]:
    return measure_env(job_of(task), task["lanes"], task["seconds"])


def ceiling(task: dict[str, Any]) -> dict[str, Any]:
    return measure_ceiling(job_of(task), task["seconds"])


def seed_throughput(task: dict[str, Any]) -> dict[str, Any]:
    return throughput(task["episodes"], task["steps"])


TASKS = {"speed": speed, "learn": learn, "env": env, "ceiling": ceiling, "throughput": seed_throughput}

if __name__ == "__main__":
    sys.exit(serve(lambda task: TASKS[task["task"]](task)))
