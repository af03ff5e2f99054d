"""The parts that learning is made of, alone and in pairs, on a chain of five states whose values are known."""

import copy
import itertools

import numpy as np
import pytest
import torch

from fastdqn.agent import Agent

STATES = np.eye(5, dtype=np.float32)
SMALL = {
    "network.hidden": [32],
    "replay.capacity": 2000,
    "replay.n_step": 1,
    "replay.warmup_steps": 100,
    "actor.epsilon_steps": 1,
    "actor.epsilon_end": 0.5,
    "learner.gamma": 0.9,
    "learner.lr": 3e-3,
    "learner.batch_size": 32,
    "learner.target_every": 25,
    "learner.double": False,
}
PARTS = {
    "dueling": {"network.dueling": True},
    "norm": {"network.norm": "layer"},
    "prioritised": {"replay.prioritised": True, "replay.priority_beta": 1.0},
    "c51": {"learner.loss": "c51", "learner.atoms": 41, "learner.v_min": -0.5, "learner.v_max": 1.5},
    "double": {"learner.double": True},
    "adamw": {"learner.optimizer": "adamw", "learner.weight_decay": 1e-3},
}
PAIRS = [pytest.param(pair, marks=pytest.mark.slow) for pair in itertools.combinations(PARTS, 2)]
TOGETHER = [*((name,) for name in PARTS), *PAIRS]


def play(made, steps):
    """Right leads to the last state, which pays 1 and ends; left leads back."""
    state = 0
    for step in range(steps):
        action = made.act(STATES[state])
        next_state = state + 1 if action else max(0, state - 1)
        done = next_state == 4
        made.remember(STATES[state], action, float(done), STATES[next_state], done)
        state = 0 if done else next_state
        if step % 2 == 0:
            made.learn()


def values_of(made):
    with torch.no_grad():
        return made._learner.online(torch.from_numpy(STATES[:4])).numpy()


def right_values(made):
    """Of both actions in the four states that are played: Q of left and right."""
    left, right = [0.9**4, 0.9**4, 0.9**3, 0.9**2], [0.9**3, 0.9**2, 0.9, 1.0]
    return np.abs(values_of(made) - np.array([left, right]).T).max()


@pytest.mark.parametrize("names", TOGETHER, ids=lambda names: "+".join(names))
@pytest.mark.parametrize("off", [[], ["hand_written", "one_pass_optimizer", "target_ahead"]], ids=["fast", "plain"])
def test_values_are_learned_to_what_they_are(names, off):
    settings = SMALL | {"switches.off": off}
    for name in names:
        settings |= PARTS[name]
    made = Agent(5, 2, settings=settings, device="cpu")
    play(made, 2500)
    assert made.updates > 1000
    assert right_values(made) < 0.1, values_of(made)


def test_munchausen_prefers_the_right_way_and_the_smaller_values_are_its_policys():
    """Its values hold the policy's log-probabilities, so only their order is known."""
    made = Agent(5, 2, settings=SMALL | {"learner.munchausen": True}, device="cpu")
    play(made, 2500)
    assert (values_of(made).argmax(1) == 1).all(), values_of(made)


def test_target_and_online_swapped_would_be_noticed():
    """Planted: the TD target from the network that is trained. The target network asks for no gradient."""
    made = Agent(5, 2, settings=SMALL | {"switches.off": ["hand_written"]}, device="cpu")
    passes = made._learner.update.backprop._passes
    passes._online, passes._target = passes._target, passes._online
    with pytest.raises(RuntimeError, match="does not require grad"):
        play(made, 500)


@pytest.mark.parametrize("off", [[], ["hand_written"]], ids=["fast", "plain"])
def test_what_is_fed_back_is_the_error_of_what_was_drawn(off):
    """Rows and errors, sample by sample: priorities of another row, or weighted ones, would be seen."""
    made = Agent(5, 2, settings=SMALL | {"replay.prioritised": True, "switches.off": off}, device="cpu")
    play(made, 300)
    drawn, fed = [], []
    sample, feedback = made.memory.sample, made.memory.feedback
    made.memory.sample = lambda *given: drawn.append(sample(*given)) or drawn[-1]
    made.memory.feedback = lambda index, priority: fed.append((index, priority)) or feedback(index, priority)
    online, target = copy.deepcopy(made._learner.online), copy.deepcopy(made._learner.target)
    made.learn()
    ((batch,), ((index, priority),)) = drawn, fed
    with torch.no_grad():
        q = online(torch.from_numpy(batch.state)).gather(1, torch.from_numpy(batch.action)[:, None])[:, 0].numpy()
        error = q - (batch.returns + batch.discount * target(torch.from_numpy(batch.next_state)).amax(1).numpy())
    assert len(set(batch.weight.tolist())) > 2, "weights differ, and are no part of it"
    np.testing.assert_array_equal(index, batch.index)
    np.testing.assert_allclose(priority, np.abs(error), rtol=1e-4, atol=1e-5)
