"""The one exception meant for users: a sentence that says what is wrong and what to do. The CLI exits with 2."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input, described in a sentence. Never raised for our own bugs: those keep their traceback."""


class RoleError(Exception):
    """The process of a role has failed for good; the text holds its traceback."""


def nearest(word: str, known: Iterable[str], count: int = 3) -> str:
    """The end of an error sentence: ' Did you mean x or y?', or the empty string when nothing is close."""
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=count, cutoff=0.5)
    return f" Did you mean {' or '.join(by_lower[name] for name in close)}?" if close else ""


def first_line(fault: BaseException) -> str:
    """For a line to the user: the error's name and the beginning of what it says, if it says anything."""
    words = (str(fault).strip().splitlines() or [""])[0][:120]
    return f"{type(fault).__name__}: {words}" if words else type(fault).__name__


def missing_package(needed_for: str, package: str, extra: str | None = None) -> UserError:
    """For an optional package that is not installed: says what needs it and how to install it."""
    line = f"pip install 'fastdqn[{extra}]'" if extra else f"pip install {package}"
    return UserError(f"{needed_for} needs the package {package}, which is not installed. Install it with: {line}")


def memory_ran_out(fault: BaseException, device: str) -> UserError:
    """Out of memory during a run, on a device or the host: what other programs use cannot be predicted."""
    where = "this machine" if isinstance(fault, MemoryError) else device
    return UserError(
        f"The memory of {where} ran out. What was learned until then is saved in the run's folder, if it had "
        "begun. Lower learner.batch_size, actor.lanes or replay.capacity, or end what else uses the memory."
    )
