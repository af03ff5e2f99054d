"""Roles in processes with a GPU between them, and batches that are copied there ahead."""

from functools import partial

import pytest
import torch

import fastdqn
from fastdqn import seeding
from fastdqn.build import build
from fastdqn.learner.transfer import plain_transfer
from fastdqn.prepare import prepare
from fastdqn.runner.inline import InlineRunner
from fastdqn.runner.ports import Stop
from tests.equivalence.test_prefetch import Lagging
from tests.unit.tiny import TINY_SNAKE

pytestmark = pytest.mark.gpu

PLACES = {
    "all on the GPU": {},
    "only the learner on the GPU": {"actor.device": "cpu", "evaluator.device": "cpu"},
    "two actors, batches copied ahead": {"actor.count": 2, "learner.prefetch": 2},
    "the GPU for the actors only": {"learner.device": "cpu", "actor.device": "cuda", "evaluator.device": "cuda"},
}


@pytest.mark.parametrize("place", PLACES)
def test_it_learns_wherever_the_roles_compute(place, runs):
    run = fastdqn.train("catch", steps=8_000, device="cuda", runner="processes", settings=PLACES[place], quiet=True)
    assert run.updates > 100
    assert run.score is not None
    assert run.score.mean >= 0.9
    last = run.metrics()[-1]
    assert last["restarts"] == last["hung"] == 0
    assert run.updates * 32 / run.steps < 4.1


def test_batches_copied_ahead_are_those_of_a_lag_on_the_device():
    """Games of chance, so that both runs play the same; what the learner is given is compared, value by value."""
    told = []
    for lag_without_thread in (False, True):
        chance = {"actor.epsilon_end": 1.0, "actor.epsilon_start": 1.0, "learner.prefetch": 2, "device": "cuda"}
        job = prepare("snake", settings=TINY_SNAKE | chance)
        parts = build(job.config, job.kind, "cuda")
        size = job.config.learner.batch_size
        if lag_without_thread:
            plain = parts.replay.replay
            parts.replay = Lagging(plain, 2, seeding.integer(job.config.seed, "sample"), plain_transfer("cuda"))
            parts.actor.sink._replay = parts.replay
            parts.learner.draw = partial(lambda replay, size, count: replay.sample(count * size), parts.replay, size)
        drawn, draw = [], parts.learner.draw

        def remember(count, drawn=drawn, draw=draw):
            batch = draw(count)
            drawn.append([field.cpu() for field in batch[:-1]])
            return batch

        parts.learner.draw = remember
        runner = InlineRunner(parts, Stop(), lambda row: None, lambda score: None)
        runner.start()
        for _ in range(200):
            runner.round()
        runner.close()
        told.append(drawn)
    assert len(told[0]) == len(told[1]) > 100
    for one, other in zip(*told, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
