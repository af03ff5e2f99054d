"""The ladder's rows for roles in processes: where they live, how they hand over, and what is drawn ahead."""

from typing import Any

from fastdqn.bench.ladder import TEXTBOOK, Rung, rungs
from fastdqn.bench.work import Work
from fastdqn.device.cores import usable_cores
from fastdqn.errors import UserError
from fastdqn.prepare import prepare
from fastdqn.switches import KEEPS_BYTES, dependents

APART = {"runner": "processes"}
IN_PROCESSES = "in processes"
NO_RING = [KEEPS_BYTES, *sorted(dependents(KEEPS_BYTES))]

# name -> settings beside the default's, and what it is
PLACEMENTS: dict[str, tuple[dict[str, Any], str]] = {
    IN_PROCESSES: (APART, "actor, learner and evaluator apart, slots in shared memory, a push at every step"),
    "in processes, float32": (APART | {"switches.off": NO_RING}, "the same, the replay in stacks of float32"),
    "in processes, push 16": (APART | {"actor.push": 16}, "a push after 16 steps of each lane"),
    "in processes, push an episode": (APART | {"actor.push": "episode"}, "a push at the end of a game"),
    "in processes, prefetch 1": (APART | {"learner.prefetch": 1}, "a batch drawn ahead by a thread"),
    "in processes, prefetch 2": (APART | {"learner.prefetch": 2}, "two batches ahead"),
    "in processes, prefetch 3": (APART | {"learner.prefetch": 3}, "three batches ahead"),
    "in processes, 2 actors": (APART | {"actor.count": 2}, "the lanes shared by two actors"),
    "in processes, replay in a file": (APART | {"replay.place": "file"}, "the rows on disk, in the system's cache"),
    "in processes, free": (APART | {"learner.ratio": "free"}, "updates whenever there is time: other samples per step"),
    "in one process, prefetch 2": ({"learner.prefetch": 2}, "two batches ahead, the roles in one loop"),
}
ON_A_CPU: dict[str, tuple[dict[str, Any], str]] = {
    "in processes, all cores learn": (
        APART | {"learner.threads": usable_cores()},
        "the learner computes with every core, the actor's included",
    ),
}
ON_A_GPU: dict[str, tuple[dict[str, Any], str]] = {
    "in processes, actors on the CPU": (APART | {"actor.device": "cpu"}, "only the learner has the GPU"),
}


def role_rungs(work: Work) -> list[Rung]:
    """The textbook, the default, and the placements that this environment and machine can have."""
    if work.job.config.runner != "inline" or work.job.config.learner.prefetch:
        raise UserError("The table of roles begins with a run in one process: leave runner and learner.prefetch to it.")
    ends = [rung for rung in rungs(work.job) if rung.part == "ladder"]
    top = Rung("default", "ladder", ends[-1].switches, None, TEXTBOOK, summary="all roles in one loop")
    placements = PLACEMENTS | (ON_A_GPU if work.job.device.startswith("cuda") else ON_A_CPU)
    apart = [_placed(work, name, settings, summary) for name, (settings, summary) in placements.items()]
    return [ends[0], top, *apart]


def _placed(work: Work, name: str, settings: dict[str, Any], summary: str) -> Rung:
    if "switches.off" in settings:
        settings = settings | {"switches.off": [*work.job.config.switches.off, *settings["switches.off"]]}
    try:
        prepare(work.env, work.preset, {**work.settings, **settings}, work.imports)
        skipped = ""
    except UserError as refused:
        skipped = str(refused)
    return Rung(name, "roles", frozenset(), None, "default", skipped, placed=settings, summary=summary)
