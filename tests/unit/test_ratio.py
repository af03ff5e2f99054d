"""Updates are earned by steps, never more and never fewer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdqn.build import build
from fastdqn.prepare import prepare
from fastdqn.replay.ratio import Ratio
from fastdqn.runner.inline import InlineRunner
from fastdqn.runner.ports import Stop
from tests.unit.tiny import TINY_SNAKE

spacings = st.one_of(st.integers(1, 50).map(float), st.floats(0.01, 100, allow_nan=False))


@given(steps_per_update=spacings, warmup=st.integers(0, 500), inserts=st.lists(st.integers(0, 64), max_size=80))
def test_the_promise_holds_after_every_insert(steps_per_update, warmup, inserts):
    ratio = Ratio(steps_per_update, warmup)
    updates = 0
    for block in inserts:
        ratio.inserted(block)
        due = ratio.due()
        assert due >= 0
        ratio.trained(due)
        updates += due
        assert ratio.due() == 0, "what was due is done"
        after_warmup = ratio.steps - warmup
        if after_warmup <= 0:
            assert updates == 0
        else:
            assert abs(after_warmup - updates * steps_per_update) <= block + steps_per_update + 1e-6
    assert ratio.updates == updates
    assert ratio.steps == sum(inserts)


@given(steps_per_update=spacings, inserts=st.lists(st.integers(0, 64), max_size=60), pause=st.integers(0, 60))
def test_updates_put_off_are_not_lost(steps_per_update, inserts, pause):
    """A learner that pauses catches up: the total depends on the steps alone."""
    prompt, late = Ratio(steps_per_update, 10), Ratio(steps_per_update, 10)
    for i, block in enumerate(inserts):
        for ratio in (prompt, late):
            ratio.inserted(block)
        prompt.trained(prompt.due())
        if i >= pause:
            late.trained(late.due())
    late.trained(late.due())
    assert late.updates == prompt.updates


def test_by_hand():
    ratio = Ratio(4, 10)
    seen = []
    for _ in range(6):
        ratio.inserted(3)
        seen.append(ratio.due())
    assert seen == [0, 0, 0, 0, 1, 2]
    ratio.trained(1)
    assert ratio.due() == 1


@given(steps_per_update=spacings, inserts=st.lists(st.integers(0, 64), min_size=1, max_size=30))
def test_state_round_trip(steps_per_update, inserts):
    ratio, again = Ratio(steps_per_update, 5), Ratio(steps_per_update, 5)
    for block in inserts:
        ratio.inserted(block)
        ratio.trained(min(1, ratio.due()))
    again.load_state(ratio.state())
    for block in inserts:
        for each in (ratio, again):
            each.inserted(block)
        assert again.due() == ratio.due()


@pytest.mark.parametrize(("lanes", "groups", "steps_per_update"), [(4, 1, 4), (5, 2, 3), (8, 1, 0.5), (4, 4, 2.5)])
def test_a_run_keeps_it_at_every_round(lanes, groups, steps_per_update):
    """The whole loop: steps as the actor counts them, updates as the learner counts them."""
    sizes = {"actor.lanes": lanes, "actor.groups": groups, "learner.steps_per_update": steps_per_update}
    job = prepare("snake", settings=TINY_SNAKE | sizes)
    runner = InlineRunner(build(job.config, job.kind, "cpu"), Stop(), lambda row: None, lambda score: None)
    runner.start()
    parts, warmup = runner.parts, job.config.replay.warmup_steps
    for _ in range(60):
        runner.round()
        earned = max(0, parts.actor.steps - warmup)
        assert parts.ratio.steps == parts.actor.steps
        assert abs(earned - parts.learner.updates * steps_per_update) <= lanes + steps_per_update
    assert parts.learner.updates > 20
