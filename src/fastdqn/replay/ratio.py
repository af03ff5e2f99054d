"""How many updates are due after the steps so far. The ratio only counts; it never blocks."""

import math
from typing import Any


class Ratio:
    """One update per `steps_per_update` inserted steps, counted from the end of the warm-up.

    At all times |steps - updates * steps_per_update| <= steps inserted at once + steps_per_update.
    """

    def __init__(self, steps_per_update: float, warmup_steps: int) -> None:
        self.steps_per_update = steps_per_update
        self.warmup_steps = warmup_steps
        self.steps = 0
        self.updates = 0

    def inserted(self, steps: int) -> None:
        self.steps += steps

    def trained(self, updates: int) -> None:
        self.updates += updates

    def due(self) -> int:
        earned = math.floor((self.steps - self.warmup_steps) / self.steps_per_update)
        return max(0, earned - self.updates)

    def state(self) -> dict[str, Any]:
        return {"steps": self.steps, "updates": self.updates}

    def load_state(self, state: dict[str, Any]) -> None:
        self.steps, self.updates = state["steps"], state["updates"]
