"""Where a step's time goes: the run with one part left out at a time, beside the run's own clocks.

A clock around a part misses what the part costs elsewhere (a cold cache, a queue on the GPU); leaving it out does not.
What is left out is left out for timing only: such a run learns nothing.
"""

import math
from typing import Any

import torch

from fastdqn.actor.games import Game
from fastdqn.bench.measure import Change
from fastdqn.learner.backprop import Learned
from fastdqn.learner.learner import look_at_nothing
from fastdqn.runner.ceiling import player_of
from fastdqn.runner.ports import Parts
from fastdqn.transition import Batch


def buffer_fill_only(parts: Parts) -> None:
    """Plays and stores; no update ever becomes due."""
    parts.ratio.due = lambda: 0  # type: ignore[method-assign]


def constant_batch(parts: Parts) -> None:
    """Every update gets the first batch that was drawn for as many."""
    draw, drawn = parts.learner.draw, dict[int, Batch]()

    def once(count: int) -> Batch:
        if count not in drawn:
            drawn[count] = draw(count)
        return drawn[count]

    parts.learner.draw = once


def no_optimizer_step(parts: Parts) -> None:
    """Losses and gradients are worked out, the weights stay."""
    parts.learner.optimizer.step = lambda *given, **more: None  # type: ignore[assignment]


def no_loss(parts: Parts) -> None:
    """Batches are drawn and moved to the device, and nothing is done with them."""
    nothing = torch.zeros((), device=parts.device)
    learner, learned = parts.learner, Learned(nothing, nothing, nothing)
    learner.look_ahead = look_at_nothing
    learner.update = lambda batch: learned  # type: ignore[assignment]


def random_actions(parts: Parts) -> None:
    """The network is never asked for an action."""
    parts.actor.epsilon_at = lambda step: 1.0


def environment_alone(parts: Parts) -> None:
    """Only the environment is left, played at random with its lanes, groups and threads: no run can be faster."""
    actor, play = parts.actor, player_of(parts.env, parts.config.seed)

    def step(group: int) -> tuple[int, list[Game]]:
        """All groups at once, when it is the first one's turn."""
        steps = play() if group == 0 else 0
        actor.steps += steps
        return steps, []

    actor.step = step  # type: ignore[method-assign]
    buffer_fill_only(parts)


COUNTERFACTUALS: dict[str, Change] = {
    "updates": buffer_fill_only,
    "sampling": constant_batch,
    "the optimizer step": no_optimizer_step,
    "the loss": no_loss,
    "the network when acting": random_actions,
}
ALL_BUT_THE_ENVIRONMENT = "all but the environment"
LEFT_OUT: dict[str, Change] = {**COUNTERFACTUALS, ALL_BUT_THE_ENVIRONMENT: environment_alone}
WORDS = {
    "updates": "buffer fill only, no updates",
    "sampling": "training on one constant batch",
    "the optimizer step": "without the optimizer step",
    "the loss": "without loss, gradients and optimizer step",
    "the network when acting": "random actions",
}
ADVICE = {
    "env": "The environment takes most of the time: more lanes, or `fastdqn bench envs` to see how many it can feed.",
    "act": "Choosing actions takes most of the time: raise actor.lanes, so that one forward pass serves more of them.",
    "store": "Storing takes most of the time: turn frame_ring on.",
    "sample": "Drawing batches takes most of the time: turn array_replay and frame_ring on, or use a smaller stack.",
    "learn": "Learning takes most of the time: a shorter precision (bf16), another number of threads or a GPU help; "
    "fewer samples per step are a trade that `fastdqn bench sweep` can put a price on.",
    "other": "Most of the time goes to none of the parts: please report it with this record.",
}


def share_of(whole: float, without: float) -> float:
    """The share of a step's time that goes when a part is left out; both in steps per second."""
    return 1.0 - whole / without if without > 0 and math.isfinite(without) else 0.0


def advice_for(split: dict[str, float]) -> str:
    largest = max(split, key=lambda name: split[name])
    return f"{split[largest]:.0%} of the time is '{largest}'. {ADVICE[largest]}"


def profile_rows(speeds: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """One row for the whole run and one for each part left out, from their repeats."""
    from fastdqn.bench.rows import speed_columns

    whole = speed_columns(speeds["nothing"])
    rows = [whole | {"part": "nothing left out", "share": None, "words": "the run as it is"}]
    for part in COUNTERFACTUALS:
        if part in speeds:
            row = speed_columns(speeds[part], against=speeds["nothing"])
            share = share_of(whole["steps_per_second"], row["steps_per_second"])
            rows.append(row | {"part": part, "share": share, "words": WORDS[part]})
    return rows
