"""How roles share the machine: threads, cores, and whether what the user handed over can reach a process at all."""

import sys
from dataclasses import dataclass
from multiprocessing import current_process
from multiprocessing.reduction import ForkingPickler
from pickle import PicklingError
from typing import Any

from fastdqn.config import Config
from fastdqn.errors import UserError
from fastdqn.prepare import Job

NO_GUARD = 4  # exit code of a process that would begin a run while it imports the script that began the first


def leave_if_begun_by_import() -> None:
    """A script without `if __name__ == '__main__':` is imported anew by every role and would train there, too. Such a role
    ends at once and without a word; the parent says why."""
    if getattr(current_process(), "_inheriting", False):
        sys.exit(NO_GUARD)


def check_that_it_travels(job: Job) -> None:
    """A function of the user's is handed over by its name, which must be found where the process begins."""
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
    """Each actor has a core as long as there are enough, and one thread of torch: an idle pool of threads takes the cores
    from whoever works. The learner has what is left of them, unless the user asked for a number; and what it does not
    use is shared by the emulators of all actors."""
    learner = learner if asked else min(learner, max(1, cores - actors))
    return Threads(learner, max(1, (cores - min(learner, cores - 1)) // actors))


def core_plan(cores: list[int], actors: int) -> list[tuple[int, ...]]:
    """By role: the learner and the evaluator keep to the first half, the actors share the rest, each with cores of its own
    as far as there are enough."""
    if len(cores) < 2:
        return [()] * (2 + actors)
    first, rest = tuple(cores[: len(cores) // 2]), cores[len(cores) // 2 :]
    own = [tuple(rest[number::actors]) or (rest[number % len(rest)],) for number in range(actors)]
    return [first, first, *own]


def with_env_threads(config: Config, settings: dict[str, Any], threads: int) -> Config:
    """For environments with threads of their own, unless the user has set them."""
    if settings.get("threads") != 0:
        return config
    return config.model_copy(update={"env": {**config.env, "threads": threads}})
