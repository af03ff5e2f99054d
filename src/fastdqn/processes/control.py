"""What all roles of a run share besides slots and weights: heartbeats, progress, and whether the run ends.

Every value has one writer, so none needs a lock.
"""

from typing import Any

import numpy as np

from fastdqn.processes.bell import Bell
from fastdqn.processes.shared import Shared
from fastdqn.processes.slots import StoppedError

LEARNER, EVALUATOR, FIRST_ACTOR = 0, 1, 2  # indices of the roles

ACTOR_WORK = ("env", "act", "store", "weights")  # what an actor spends its time on, besides waiting


def control_fields(actors: int) -> dict[str, tuple[tuple[int, ...], Any]]:
    roles = FIRST_ACTOR + actors
    return {
        "stop": ((1,), np.int64),  # by the parent: all roles end
        "learner_stops": ((1,), np.int64),  # by the parent: the learner ends and saves, then a last evaluation follows
        "pause": ((1,), np.int64),  # by the parent: all roles pause while it is 1
        "save": ((1,), np.int64),  # by the parent: counts the requests to save the model
        "asleep": ((roles,), np.int64),
        "beats": ((roles,), np.int64),  # heartbeats: counts up while a role is alive
        "waited": ((roles,), np.float64),  # seconds: the learner for blocks, an actor for a free slot
        "spent": ((len(ACTOR_WORK), roles), np.float64),  # seconds of an actor, by kind of work
        "played": ((roles,), np.int64),  # steps of an actor since its last start
        "weights_step": ((roles,), np.int64),  # the step of the weights it plays with
        "step": ((1,), np.int64),  # of the run: steps inserted into the replay
        "update": ((1,), np.int64),
        "episode": ((1,), np.int64),
        "rows": ((1,), np.int64),  # start rows that can be sampled
        "final_version": ((1,), np.int64),  # of the final weights; 0 until the learner has ended
        "evaluated": ((1,), np.float64),  # the share done of the current evaluation, 0 between two
    }


class Pulse:
    """One role's view of the shared values."""

    def __init__(self, control: Shared, role: int) -> None:
        self.control, self._role = control, role

    def beat(self) -> None:
        """Sends a heartbeat; raises StoppedError when the run ends."""
        self.control["beats"][self._role] += 1
        if self.control["stop"][0]:
            raise StoppedError

    def rest(self, bell: Bell) -> None:
        """Waits while the run is paused: a measurement is timing another run."""
        while self.control["pause"][0]:
            bell.wait_for(lambda: not self.control["pause"][0])
            self.beat()

    def tell(self, name: str, value: Any) -> None:
        self.control[name][self._role] = value
