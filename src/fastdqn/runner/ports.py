"""What a runner is given (Parts), and the small objects that connect roles in one process."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastdqn.actor.actor import Actor
from fastdqn.actor.device_actor import DeviceActor
from fastdqn.config import Config
from fastdqn.env.base import LaneEnv
from fastdqn.evaluator import Evaluator
from fastdqn.learner.learner import Learner
from fastdqn.metrics import Meter, Timers
from fastdqn.replay.ratio import Ratio
from fastdqn.replay.replay import Replay
from fastdqn.transition import Block, EnvSpec


class Stop:
    """Asks a run to end. Set by a signal, a key or a supervisor; polled by every loop."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.reason = ""

    def ask(self, reason: str) -> None:
        self.reason = self.reason or reason
        self._event.set()

    def asked(self) -> bool:
        return self._event.is_set()


class ReplaySink:
    """The actor's sink when actor and learner share a process."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    def put(self, block: Block) -> None:
        self._replay.append(block)


@dataclass
class Parts:
    """All parts of a run, built by build.py from config and switches."""

    config: Config
    spec: EnvSpec
    stack: int
    device: str
    switches: frozenset[str]
    env: LaneEnv
    actor: Actor | DeviceActor
    replay: Replay
    ratio: Ratio
    learner: Learner
    lr_at: Callable[[int], float]  # step -> learning rate
    beta_at: Callable[[int], float]  # step -> beta of prioritised replay
    make_evaluator: Callable[[int], Evaluator]  # lanes -> evaluator on the learner's weights
    meter: Meter
    notes: list[str]  # what was decided for the user, one line each

    def stateful(self) -> dict[str, Any]:
        """Every part that holds state, by name: what a checkpoint must save."""
        return {
            "env": self.env,
            "actor": self.actor,
            "replay": self.replay,
            "ratio": self.ratio,
            "learner": self.learner,
            "meter": self.meter,
        }

    def close(self) -> None:
        self.env.close()


@dataclass
class Trainer:
    """The parts of a learner in its own process."""

    config: Config
    spec: EnvSpec
    stack: int
    switches: frozenset[str]
    replay: Replay
    ratio: Ratio
    learner: Learner
    meter: Meter
    timers: Timers
    notes: list[str]
