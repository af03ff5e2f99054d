"""measured_threads promises SAME_NUMBERS: with one thread or two, equal losses and gradients at each of 200 updates."""

import pytest
import torch

from fastdqn.device.cores import usable_cores
from fastdqn.prepare import prepare, with_threads
from tests.equivalence.updates import SNAKE_CNN, Setup, parts_of, random_batches, same_updates

# A convolution's sums over the batch are shared out among the threads; little else, as two threads wait on a busy machine
SMALL_CNN = Setup("snake", SNAKE_CNN.settings | {"network.channels": [8], "network.hidden": []})


@pytest.fixture(autouse=True)
def same_number_afterwards():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.alone
def test_one_thread_or_two():
    one, two = parts_of(SMALL_CNN, double=False), parts_of(SMALL_CNN, double=False)
    used = []

    def with_count(count):
        def set_it():
            torch.set_num_threads(count)
            used.append(torch.get_num_threads())

        return set_it

    batches = ((batch, batch) for batch in random_batches(one, 200))
    same_updates(two.learner, one.learner, batches, before=(with_count(2), with_count(1)))
    assert used == [2, 1] * 200


def test_on_asks_the_trial_and_off_takes_every_core(monkeypatch):
    asked = []
    monkeypatch.setattr("fastdqn.prepare.measured_threads", lambda *job: asked.append(job) or 7)
    on, off = (
        prepare("snake", settings=SMALL_CNN.settings | {"switches.off": names}) for names in ([], ["measured_threads"])
    )
    assert on.threads == 0, "to be measured, and not before the run is sure to begin"
    assert off.threads == usable_cores()
    assert asked == []
    assert [with_threads(job).threads for job in (on, off)] == [7, usable_cores()]
    assert asked == [(on.config, on.kind, on.device, None)]


@pytest.mark.parametrize("off", [[], ["measured_threads"]])
def test_a_number_that_was_asked_for_is_taken(off, monkeypatch):
    monkeypatch.setattr("fastdqn.prepare.measured_threads", lambda *job: pytest.fail("nothing is to be measured"))
    job = prepare("snake", settings=SMALL_CNN.settings | {"switches.off": off, "learner.threads": 3})
    assert with_threads(job).threads == 3
