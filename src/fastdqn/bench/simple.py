"""The smaller measurements: where the time goes, the environment alone, and the Snake log's own benchmark."""

import statistics
from typing import Any

from fastdqn.bench.conduct import Conductor, Measuring, Variant, seconds_for
from fastdqn.bench.profile import COUNTERFACTUALS, advice_for, profile_rows
from fastdqn.bench.record import Keeper
from fastdqn.bench.rows import range_of
from fastdqn.bench.work import Work
from fastdqn.device.cores import powers_up_to, usable_cores


def run_profile(work: Work, measuring: Measuring, keeper: Keeper) -> None:
    names = ["nothing", *COUNTERFACTUALS]
    variants = [Variant(name, work.task({}, task="speed", seconds=measuring.seconds, without=name)) for name in names]

    def after_each(answers: dict[str, list[dict[str, Any]]]) -> None:
        if "nothing" in answers:
            keeper.record["rows"] = profile_rows(answers)
            keeper.record["split"] = keeper.record["rows"][0]["split"]
            if keeper.record["split"]:  # a first look has none
                keeper.record["advice"] = advice_for(keeper.record["split"])
        keeper.save()

    conductor = Conductor("profile", seconds_for(measuring.seconds) * len(variants) * measuring.repeats)
    try:
        conductor.rounds(variants, measuring.repeats, measuring.seconds, after_each)
        keeper.finish()
    finally:
        conductor.close()


def run_envs(work: Work, measuring: Measuring, lanes: list[int], keeper: Keeper) -> None:
    """By lanes and, where the environment has threads of its own, by threads; the textbook environment beside it."""
    variants, heads = [], {}
    for threads in env_threads(work):
        for count in lanes:
            settings = {"env.threads": threads} if threads else {}
            name = f"{count} lanes" + (f", {threads} threads" if threads else "")
            heads[name] = {"lanes": count, "threads": threads or 1, "path": "fast"}
            variants.append(Variant(name, work.task(settings, task="env", lanes=count, seconds=measuring.seconds)))
    switch = work.job.kind.lanes_switch
    if work.job.kind.make_lanes is not None and switch in work.job.switches:
        name = "1 lane, the textbook environment"
        heads[name] = {"lanes": 1, "threads": 1, "path": "textbook"}
        off = {"switches.off": [switch]}
        variants.append(Variant(name, work.task(off, task="env", lanes=1, seconds=measuring.seconds)))

    def after_each(answers: dict[str, list[dict[str, Any]]]) -> None:
        keeper.record["rows"] = [
            heads[name] | {"name": name, "steps_per_second": _median(found), "interval": range_of(found)}
            for name, found in answers.items()
        ]
        keeper.save()

    conductor = Conductor("envs", seconds_for(measuring.seconds) * len(variants) * measuring.repeats)
    try:
        conductor.rounds(variants, measuring.repeats, measuring.seconds, after_each)
        keeper.finish()
    finally:
        conductor.close()


def env_threads(work: Work) -> list[int]:
    """The numbers of threads to try; [0] where the environment has no threads of its own."""
    if "threads" not in work.job.kind.settings:
        return [0]
    return powers_up_to(usable_cores())


def run_throughput(episodes: int, steps: int, measuring: Measuring, keeper: Keeper) -> None:
    variant = Variant(f"{episodes} games", {"task": "throughput", "episodes": episodes, "steps": steps})

    def after_each(answers: dict[str, list[dict[str, Any]]]) -> None:
        keeper.record["rows"] = answers.get(variant.name, [])
        keeper.save()

    conductor = Conductor("throughput", seconds_for(5.0) * measuring.repeats)
    try:
        conductor.rounds([variant], measuring.repeats, 5.0, after_each)
        keeper.finish()
    finally:
        conductor.close()


def _median(answers: list[dict[str, Any]]) -> float:
    return statistics.median(float(answer["steps_per_second"]) for answer in answers)
