"""Environments for the drills: they raise, hang or take their time, each at a moment that the drill knows.

What they need is read from the variable DRILL: the folder for their notes, and how many seconds a step takes in which
role until the drill leaves a file `go` there.
"""

import ctypes
import json
import os
import time
from functools import cache
from multiprocessing import current_process
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces

DRILL = json.loads(os.environ["DRILL"])
FOLDER = Path(DRILL["folder"])
TROUBLE_AT = 25  # the step of an environment at which it does what it is named after


def role() -> str:
    """actor0, evaluator, learner, or something else in the parent."""
    return current_process().name.removeprefix("fastdqn-")


def in_actor() -> bool:
    return role().startswith("actor")


def note(word: str) -> bool:
    """Leaves a file of that name; whether it is the first of its kind, for things that happen once in a run."""
    try:
        os.close(os.open(FOLDER / word, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


class Walk(gymnasium.Env):
    """Twenty steps, worth 1 for every action 1. Notes the processes that play it."""

    def __init__(self):
        self.observation_space = spaces.Box(0, 1, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.steps = self.steps_of_game = 0
        self.pace = DRILL["pace"].get(role().rstrip("0123456789"), 0.0)

    def reset(self, *, seed=None, options=None):
        self.steps_of_game = 0
        return self._seen(), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 1:
            note(f"played-{os.getpid()}")
        if self.pace:
            self._take_time()
        self.trouble()
        self.steps_of_game += 1
        return self._seen(), float(action), self.steps_of_game == 20, False, {}

    def trouble(self):
        """Nothing; others make some."""

    def _seen(self):
        return np.array([self.steps_of_game / 20, 1], np.float32)

    def _take_time(self):
        if (FOLDER / "go").exists():
            self.pace = 0.0
        time.sleep(self.pace)


class Stumbles(Walk):
    """Every actor fails after a while, and the next one too; the first without a word."""

    def trouble(self):
        if in_actor() and self.steps == TROUBLE_AT:
            if note("quits"):
                os._exit(0)
            raise RuntimeError("stumbled over step 25")


class NeverPlays(Walk):
    """One of two actors never comes to play: it fails in the constructor or, every other time, at its first step."""

    def __init__(self):
        super().__init__()
        if role() == "actor1" and births() % 2:
            raise RuntimeError("there is no such walk")

    def trouble(self):
        if role() == "actor1":
            raise RuntimeError("stumbled over the first step")


@cache
def births() -> int:
    """In the run so far, this process among them."""
    note(f"born-{os.getpid()}")
    return len(list(FOLDER.glob("born-*")))


class BadJudge(Walk):
    """The first step of every evaluation fails."""

    def trouble(self):
        if role() == "evaluator":
            births()
            raise RuntimeError("nobody may judge this walk")


class Sleeps(Walk):
    """An actor sleeps for ever, once."""

    def trouble(self):
        if in_actor() and self.steps == TROUBLE_AT and note("hangs"):
            self.sleep_for_ever()

    def sleep_for_ever(self):
        while True:
            time.sleep(1000)


class SleepsWhileJudged(Sleeps):
    """The evaluator does, once."""

    def trouble(self):
        if role() == "evaluator" and self.steps == 5 and note("hangs"):
            self.sleep_for_ever()


class PausesInC(Walk):
    """An actor hangs in C and keeps the lock of the interpreter, once: no other thread of its process runs again."""

    def trouble(self):
        if in_actor() and self.steps == TROUBLE_AT and note("hangs"):
            self.pause_in_c()

    def pause_in_c(self):
        while True:
            ctypes.PyDLL(None).pause()


def send_wrong_actions():
    """Once in a run an Atari actor sends an action that does not exist, below the check that keeps them away from ale-py."""
    from fastdqn.env import atari

    send, sent = atari._Group.send, 0

    def send_wrongly(group, actions):
        nonlocal sent
        sent += 1
        if in_actor() and sent == TROUBLE_AT and note("hangs"):
            actions = np.full_like(actions, 99)
        send(group, actions)

    atari._Group.send = send_wrongly


if DRILL.get("wrong_actions"):
    send_wrong_actions()

for kind in (Walk, Stumbles, NeverPlays, BadJudge, Sleeps, SleepsWhileJudged, PausesInC):
    gymnasium.register(f"drills/{kind.__name__}-v0", kind, disable_env_checker=True)
