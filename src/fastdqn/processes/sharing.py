"""How roles share the machine: threads, cores, and whether the user's functions can be sent to a process."""

import sys
from dataclasses import dataclass
from multiprocessing import current_process
from multiprocessing.reduction import ForkingPickler
from pickle import PicklingError
from typing import Any

from fastdqn.config import Config
from fastdqn.errors import UserError
from fastdqn.prepare import Job

NO_GUARD = 4  # exit code of a child that would start a run while it imports the main script


def leave_if_begun_by_import() -> None:
    """A script without `if __name__ == '__main__':` is imported again by every role and would train there, too. Such a role
    exits at once and silently; the parent says why."""
    if getattr(current_process(), "_inheriting", False):
        sys.exit(NO_GUARD)


def check_that_it_travels(job: Job) -> None:
    """A user's function is pickled by name, and the new process must be able to import it."""
    for own in (job.env, job.own_network):
        try:
            ForkingPickler.dumps(own)
        except (PicklingError, AttributeError, TypeError) as fault:
            raise UserError(
                f"The runner processes cannot hand your function over to its processes ({fault}): define it at the top of a "
                "module, or use the runner inline."
            ) from None


@dataclass(frozen=True)
class Threads:
    learner: int  # of torch
    env: int  # of one actor's emulators


def thread_plan(cores: int, learner: int, actors: int, asked: bool = False) -> Threads:
    """Each actor has a core as long as there are enough, and one torch thread: an idle thread pool takes cores from
    threads that work. The learner has the remaining cores, unless the user asked for a number; what it does not use is
    shared by the emulators of all actors."""
    learner = learner if asked else min(learner, max(1, cores - actors))
    return Threads(learner, max(1, (cores - min(learner, cores - 1)) // actors))


def core_plan(cores: list[int], actors: int) -> list[tuple[int, ...]]:
    """Cores by role: the learner and the evaluator use the first half, the actors share the rest, each with its own cores
    if there are enough."""
    if len(cores) < 2:
        return [()] * (2 + actors)
    first, rest = tuple(cores[: len(cores) // 2]), cores[len(cores) // 2 :]
    own = [tuple(rest[number::actors]) or (rest[number % len(rest)],) for number in range(actors)]
    return [first, first, *own]


def with_env_threads(config: Config, settings: dict[str, Any], threads: int) -> Config:
    """Sets the threads of environments that have their own, unless the user has set them."""
    if settings.get("threads") != 0:
        return config
    return config.model_copy(update={"env": {**config.env, "threads": threads}})
