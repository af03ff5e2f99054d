"""What all roles of a run share beside slots and weights: who is alive, how far, and whether the run ends.

Every word has one writer, so none needs a lock.
"""

from typing import Any

import numpy as np

from fastdqn.processes.bell import Bell
from fastdqn.processes.shared import Shared
from fastdqn.processes.slots import StoppedError

LEARNER, EVALUATOR, FIRST_ACTOR = 0, 1, 2  # places of the roles

ACTOR_WORK = ("env", "act", "store", "weights")  # what an actor's time goes into, beside waiting


def control_fields(actors: int) -> dict[str, tuple[tuple[int, ...], Any]]:
    roles = FIRST_ACTOR + actors
    return {
        "stop": ((1,), np.int64),  # by the parent: everybody ends
        "learner_stops": ((1,), np.int64),  # by the parent: the learner ends, saves, and the evaluator has a last game
        "pause": ((1,), np.int64),  # by the parent: nobody works while it is 1
        "save": ((1,), np.int64),  # by the parent: counts the wishes to have the model saved
        "asleep": ((roles,), np.int64),
        "beats": ((roles,), np.int64),  # counts up while a role lives
        "waited": ((roles,), np.float64),  # seconds: the learner for blocks, an actor for a free slot
        "spent": ((len(ACTOR_WORK), roles), np.float64),  # seconds of an actor, by what it did
        "played": ((roles,), np.int64),  # steps of an actor in this life
        "weights_step": ((roles,), np.int64),  # the step of the weights it plays with
        "step": ((1,), np.int64),  # of the run: steps that are in the replay
        "update": ((1,), np.int64),
        "episode": ((1,), np.int64),
        "rows": ((1,), np.int64),  # starts that can be drawn
        "final_version": ((1,), np.int64),  # of the weights when the learner had ended; 0 before
        "evaluated": ((1,), np.float64),  # the share of the evaluation that is going on, 0 between two
    }


class Pulse:
    """One role's side of it."""

    def __init__(self, control: Shared, role: int) -> None:
        self.control, self._role = control, role

    def beat(self) -> None:
        """Tells that the role lives; raises StoppedError when the run ends."""
        self.control["beats"][self._role] += 1
        if self.control["stop"][0]:
            raise StoppedError

    def rest(self, bell: Bell) -> None:
        """While the run pauses: a measurement has given the turn to another."""
        while self.control["pause"][0]:
            bell.wait_for(lambda: not self.control["pause"][0])
            self.beat()

    def tell(self, name: str, value: Any) -> None:
        self.control[name][self._role] = value
