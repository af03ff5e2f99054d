"""The parent process: starts the roles, reads their messages, restarts dead and hung ones, and ends them all.

It computes nothing and opens no environment, so nothing that hangs in C can block it.
"""

import contextlib
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from fastdqn.build import build_network
from fastdqn.device.cores import usable_cores
from fastdqn.errors import RoleError, UserError
from fastdqn.evaluator import Score
from fastdqn.prepare import Job
from fastdqn.processes.actor import play
from fastdqn.processes.build_roles import section_of
from fastdqn.processes.child import (
    DONE,
    FAULT,
    HELLO,
    NOTE,
    ROW,
    SCORE,
    STACK_SIGNAL,
    STOP_SIGNALS,
    BellEnds,
    RoleTask,
    live,
)
from fastdqn.processes.control import EVALUATOR, FIRST_ACTOR, LEARNER, control_fields
from fastdqn.processes.evaluator import judge
from fastdqn.processes.figures import Figures
from fastdqn.processes.learner import STOPPED, learn
from fastdqn.processes.lives import MOST_DEATHS_AT_BIRTH, Lives, Watch
from fastdqn.processes.shared import Shared, make_shared
from fastdqn.processes.sharing import NO_GUARD, check_that_it_travels, core_plan, thread_plan, with_env_threads
from fastdqn.processes.slots import push_of, slot_fields
from fastdqn.processes.weights import weight_fields
from fastdqn.runner.limits import Limits
from fastdqn.runner.ports import Stop

LOG, ROLES = "roles.log", "roles.json"
LISTEN_SECONDS = 0.1
WORDS_AT_ONCE = 10
ENDING_SECONDS = 5.0  # for a role to end by itself before it is killed
STACK_SECONDS = 1.0  # for a hung role to write its stack
TARGET_REACHED = "target reached"
MAIN_GUARD = (
    " The script calls fastdqn.train: the call must stand under `if __name__ == '__main__':`, because every process "
    "imports the script anew."
)


@dataclass
class Placed:
    """One role and its current process."""

    name: str
    role: int
    main: Callable[[RoleTask, Any], None]
    task: RoleTask
    lives: Lives
    process: BaseProcess | None = None
    door: Connection | None = None
    born_at_beats: int = 0
    fault: dict[str, str] | None = None
    greeted: bool = False
    scored: bool = False  # in this life
    due_at: float | None = None  # when it is restarted; None: it is running, or has ended for good
    played_before: int = 0  # steps of earlier lives

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None


class ProcessRunner:
    """`run` is called in the main thread; `while_waiting` several times a second."""

    def __init__(
        self,
        job: Job,
        folder: Path,
        model_file: Path,
        from_model: Path | None,
    ) -> None:
        """All checks are made here; the folder need not exist yet."""
        check_that_it_travels(job)
        self.job, self._folder = job, folder
        self.config = config = job.config
        self.limits = Limits(config.limits)
        self._context = multiprocessing.get_context("spawn")
        self._shared: list[Shared] = []
        self.control = self._make(control_fields(config.actor.count), "the counters of the roles")
        self._began = time.monotonic()
        self.reason = ""
        self.restarts = 0
        self.hung = 0
        self._why_stopped = ""
        self._judged = False
        heartbeat = config.processes
        self._watch = Watch(heartbeat.heartbeat_seconds, heartbeat.first_heartbeat_seconds, self._began)
        self._slots: list[Shared] = []
        self._roles = self._plan(model_file, from_model)
        shared_bytes = sum(shared.nbytes for shared in self._shared)
        self._figures = Figures(self.control, config.actor.count, job.device, shared_bytes, folder)

    # --- setup -----------------------------------------------------------------------------------------------------

    def _make(self, fields: Any, what: str) -> Shared:
        shared = make_shared(fields, what)
        self._shared.append(shared)
        return shared

    def _plan(self, model_file: Path, from_model: Path | None) -> list[Placed]:
        job, config, actors = self.job, self.config, self.config.actor.count
        shared = self._make(weight_fields(build_network(config, job.kind, job.own_network)), "the shared weights")
        room = []
        for number in range(actors):
            lanes = section_of(config, number)
            push = push_of(config.actor.push, lanes.stop - lanes.start, job.kind.spec)
            fields = slot_fields(lanes.stop - lanes.start, job.kind.spec, push)
            self._slots.append(self._make(fields, f"the slots of actor {number}"))
            room.append(BellEnds(*self._context.Pipe(duplex=False), FIRST_ACTOR + number))
        work = BellEnds(*self._context.Pipe(duplex=False), LEARNER)
        self._ends = (work, *room)
        self._bells = [ends.bell(self.control) for ends in self._ends]
        threads = thread_plan(usable_cores(), job.threads, actors, asked=config.learner.threads > 0)
        shared_by_all: dict[str, Any] = {
            "number": 0,
            "life": 0,
            "env": job.env,
            "network": job.own_network,
            "model_file": model_file.absolute(),
            "from_model": from_model.absolute() if from_model is not None else None,
            "control": self.control.address,
            "weights": shared.address,
            "slots": tuple(shared.address for shared in self._slots),
            "work": work,
            "room": tuple(room),
            "door": None,
        }
        cores = core_plan(sorted(os.sched_getaffinity(0)), actors) if config.processes.affinity else [()] * (2 + actors)

        def placed(name: str, role: int, main: Callable[[RoleTask, Any], None], device: str, **more: Any) -> Placed:
            stack_file = (self._folder / f"{name}.stack").absolute()
            how = shared_by_all | {"role": role, "device": device, "stack_file": stack_file, "cores": cores[role]} | more
            return Placed(name, role, main, RoleTask(**how), Lives())

        alone = with_env_threads(config, job.kind.settings, 1)
        shared_env = with_env_threads(config, job.kind.settings, threads.env)
        roles = [placed("learner", LEARNER, learn, job.device, config=config, threads=threads.learner)]
        if job.judges:
            device = config.evaluator.device or job.device
            roles.append(placed("evaluator", EVALUATOR, judge, device, config=alone, threads=1))
        for number in range(actors):
            where = config.actor.device or job.device
            more = {"config": shared_env, "threads": 1, "number": number}
            roles.append(placed(f"actor{number}", FIRST_ACTOR + number, play, where, **more))
        return roles

    # --- the loop --------------------------------------------------------------------------------------------------

    def run(
        self,
        stop: Stop,
        on_row: Callable[[dict[str, Any]], None],
        on_score: Callable[[Score], None],
        say: Callable[[str], None],
        while_waiting: Callable[[], None],
    ) -> str:
        """Runs until a limit, the target or a stop; returns which. Raises the error of a role that cannot be restarted."""
        self.stop, self._on_row, self._on_score, self._say = stop, on_row, on_score, say
        try:
            for placed in self._roles:
                self._start(placed)
            while not self._ended():
                self._listen()
                self._look_after()
                self._heed_stop()
                while_waiting()
            return self.stop.reason or self.reason
        except (Exception, SystemExit):
            self._let_learner_save()
            raise
        finally:
            self._end_all()

    def _ended(self) -> bool:
        """The learner is done, and so is the evaluator, unless a stop was requested."""
        if not self.reason:
            return False
        return self._judged or self.stop.asked() or all(placed.role != EVALUATOR for placed in self._roles)

    def _start(self, placed: Placed) -> None:
        reader, writer = self._context.Pipe(duplex=True)
        placed.task = replace(placed.task, life=placed.lives.deaths, door=writer)
        placed.process = self._context.Process(
            target=live, args=(placed.main, placed.task), name=f"fastdqn-{placed.name}", daemon=True
        )
        placed.task.stack_file.unlink(missing_ok=True)
        resource_tracker.ensure_running()  # started later it would unblock the signals
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # the child inherits this until it ignores them
        try:
            placed.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        writer.close()
        placed.door, placed.fault, placed.due_at = reader, None, None
        placed.greeted = placed.scored = False
        placed.born_at_beats = int(self.control["beats"][placed.role])
        self._watch.born(placed.role, placed.born_at_beats, time.monotonic())
        self._write_roles()

    def _listen(self) -> None:
        """Reads the roles' messages; wakes early when a role sends one or dies."""
        doors = [placed.door for placed in self._roles if placed.door is not None]
        deaths = [placed.process.sentinel for placed in self._roles if placed.process is not None]
        wait([*doors, *deaths], LISTEN_SECONDS)
        for placed in self._roles:
            self._hear(placed, WORDS_AT_ONCE)

    def _hear(self, placed: Placed, most: int | None = None) -> None:
        """Reads at most `most` messages: a role that sends without end must not block out the others."""
        heard = 0
        while placed.door is not None and (most is None or heard < most):
            heard += 1
            try:
                if not placed.door.poll():
                    return
                word, told = placed.door.recv()
            except (EOFError, OSError):
                placed.door.close()
                placed.door = None
                return
            self._heed(placed, word, told)

    def _heed(self, placed: Placed, word: str, told: Any) -> None:
        if word == HELLO:
            placed.greeted = True
            if placed.role == LEARNER:
                self._figures.begin(self._pids())
            for line in told.get("notes", ()):
                self._say(line)
        elif word == ROW:
            self._on_row(told | self.figures(told["update"]))
        elif word == NOTE:
            self._say(told)
        elif word == SCORE and told is None:
            self._judged = True
        elif word == SCORE:
            placed.scored = True
            self._on_score(told)
            self.control["save"][0] += 1
            if self.limits.solved_by(told.mean) and not self.reason:
                self._stop_learner(TARGET_REACHED)
        elif word == FAULT:
            placed.fault = told
        elif word == DONE:
            self.reason = self._why_stopped or told["reason"]
            if self.reason == STOPPED:
                self.reason = self.stop.reason

    def _heed_stop(self) -> None:
        if self.stop.asked():
            self._stop_learner(self.stop.reason)

    def wake_all(self) -> None:
        """Wakes all roles when a pause begins or ends."""
        for bell in self._bells:
            bell.ring()

    def _stop_learner(self, why: str) -> None:
        self._why_stopped = self._why_stopped or why
        self.control["learner_stops"][0] = 1

    def _look_after(self) -> None:
        now = time.monotonic()
        for placed in self._roles:
            if placed.due_at is not None and now >= placed.due_at and not self._may_rest(placed):
                self._start(placed)
            elif placed.process is not None and not placed.process.is_alive():
                self._hear(placed)  # its last messages
                self._bury(placed, now)
        beats = {placed.role: self._beats(placed) for placed in self._roles}
        for role in self._watch.hung(beats, now):
            self._end_hung(next(placed for placed in self._roles if placed.role == role))

    def _may_rest(self, placed: Placed) -> bool:
        """An actor is not needed when the learner has ended."""
        return bool(self.reason) and placed.role >= FIRST_ACTOR

    def _beats(self, placed: Placed) -> tuple[int, bool]:
        """Its heartbeat count, and whether it has made progress in this life."""
        beats = int(self.control["beats"][placed.role])
        played = self.control["played"][placed.role] if placed.role >= FIRST_ACTOR else beats - placed.born_at_beats
        return beats, bool(played > 0)

    def _bury(self, placed: Placed, now: float) -> None:
        process = placed.process
        assert process is not None
        code = process.exitcode
        process.close()
        if placed.door is not None:
            placed.door.close()
        placed.process = placed.door = None
        self._watch.gone(placed.role)
        _, played = self._beats(placed)
        if placed.role == EVALUATOR:  # idling is not progress, and an evaluation always repeats the same games
            played = placed.scored or (placed.greeted and not self.control["evaluated"][0])
            self.control["evaluated"][0] = 0.0
        if self._judged if placed.role == EVALUATOR else self.reason:
            return
        text = self._obituary(placed, code)
        self._write_down(text + ("\n" + placed.fault["traceback"] if placed.fault else ""))
        delay = placed.lives.died(played) if placed.role != LEARNER else None
        if delay is None:
            raise self._fault_of(placed, text, code)
        self.restarts += 1
        placed.due_at = now + delay
        placed.played_before += int(self.control["played"][placed.role])
        self.control["played"][placed.role] = 0
        self._say(f"{text} It is replaced (time {placed.lives.deaths}); more in {self._folder / LOG}.")

    def _fault_of(self, placed: Placed, text: str, code: int | None) -> Exception:
        """The exception that ends the run: a sentence if the user can fix it, else the role's traceback."""
        if placed.fault is not None and not placed.fault["traceback"]:
            return UserError(placed.fault["sentence"])
        hint = MAIN_GUARD if code == NO_GUARD else ""
        again = f" It had failed {MOST_DEATHS_AT_BIRTH} times in a row without playing." if placed.role != LEARNER else ""
        traceback = f"\n{placed.fault['traceback']}" if placed.fault is not None else ""
        return RoleError(f"{text}{again}{hint}{traceback}")

    def _obituary(self, placed: Placed, code: int | None) -> str:
        if placed.fault is not None:
            return f"The {placed.name} has failed: {placed.fault['sentence'].removesuffix('.')}."
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return f"The {placed.name} was ended by {signal.Signals(-code).name}."
        return f"The {placed.name} has ended with code {code}."

    def _end_hung(self, placed: Placed) -> None:
        process = placed.process
        assert process is not None
        assert process.pid is not None
        self.hung += 1
        limits = self.config.processes
        seconds = limits.heartbeat_seconds if self._beats(placed)[1] else limits.first_heartbeat_seconds
        os.kill(process.pid, STACK_SIGNAL)
        process.join(STACK_SECONDS)
        process.kill()
        process.join()
        stack = ""
        with contextlib.suppress(OSError):
            stack = placed.task.stack_file.read_text()
        stack = stack or "(it wrote no stack)"
        self._write_down(f"The {placed.name} has been silent for {seconds:g} s. Its stack:\n{stack}")
        self._say(f"The {placed.name} has been silent for {seconds:g} s and is ended; its stack is in {self._folder / LOG}.")

    def _let_learner_save(self) -> None:
        """Lets the learner save its weights, whichever role has failed."""
        learner, ends = self._roles[0], time.monotonic() + ENDING_SECONDS
        self.control["learner_stops"][0] = 1
        while learner.process is not None and learner.process.is_alive() and time.monotonic() < ends:
            learner.process.join(LISTEN_SECONDS)
            self._hear(learner, WORDS_AT_ONCE)  # a full pipe would block it

    def _end_all(self) -> None:
        """Tells all roles to end and kills those that do not. Only processes that were started here."""
        self.control["stop"][0] = 1
        ends = time.monotonic() + ENDING_SECONDS
        for placed in self._roles:
            if placed.process is not None:
                placed.process.join(max(0.0, ends - time.monotonic()))
                if placed.process.is_alive():
                    placed.process.kill()
                    placed.process.join()
                placed.process.close()
                placed.process = None
            if placed.door is not None:
                placed.door.close()
                placed.door = None
            with contextlib.suppress(OSError):
                placed.task.stack_file.unlink(missing_ok=True)
        (self._folder / ROLES).unlink(missing_ok=True)

    def close(self) -> None:
        for ends in self._ends:
            ends.reader.close()
            ends.writer.close()
        self._bells.clear()
        for shared in self._shared:
            shared.close()

    # --- reporting -------------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        return int(self.control["step"][0])

    @property
    def update(self) -> int:
        return int(self.control["update"][0])

    @property
    def evaluated_share(self) -> float | None:
        return float(self.control["evaluated"][0]) or None

    def figures(self, updates: int) -> dict[str, Any]:
        """The metrics beyond those of the inline runner."""
        actors = [placed for placed in self._roles if placed.role >= FIRST_ACTOR]
        played = [placed.played_before + int(self.control["played"][placed.role]) for placed in actors]
        waiting = [int(slots["filled"][0] - slots["emptied"][0]) for slots in self._slots]
        told = self._figures.line(self._pids(), played, updates, waiting)
        return {**told, "restarts": self.restarts, "hung": self.hung}

    def time_spent(self) -> dict[str, float]:
        """Seconds since the roles started: waiting and work (actors: the mean), and CPU time."""
        return self._figures.time_spent(self._pids())

    def _pids(self) -> dict[str, int]:
        return {placed.name: placed.pid for placed in self._roles if placed.pid is not None}

    def _write_roles(self) -> None:
        """Writes the process ids, for users and scripts."""
        roles = {"parent": os.getpid()} | self._pids()
        beside = self._folder / f"{ROLES}.tmp"
        beside.write_text(json.dumps(roles, indent=1) + "\n")
        os.replace(beside, self._folder / ROLES)

    def _write_down(self, text: str) -> None:
        with contextlib.suppress(OSError), (self._folder / LOG).open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}\n")
