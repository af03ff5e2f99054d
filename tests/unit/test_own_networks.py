"""Networks of the user's own are trained and played as they are, and what does not apply to them is told."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import fastdqn
from fastdqn.build import build, build_greedy
from fastdqn.errors import UserError
from fastdqn.prepare import prepare
from tests.equivalence.updates import SNAKE_MLP, parts_of, random_batches, same_updates

LAYERS = [nn.Flatten, lambda: nn.Linear(300, 16), nn.ReLU, lambda: nn.Linear(16, 4)]


class Doubled(nn.Sequential):
    """Looks like a chain of layers, and is none."""

    def forward(self, state):
        return 2 * super().forward(state) + 1


def subclass(state_shape, outputs):
    return Doubled(*(make() for make in LAYERS))


def hooked(state_shape, outputs):
    body = nn.Sequential(*(make() for make in LAYERS))
    body[3].register_forward_hook(lambda module, inputs, output: 2 * output + 1)
    return body


def hooked_before(state_shape, outputs):
    body = nn.Sequential(*(make() for make in LAYERS))
    body.register_forward_pre_hook(lambda module, inputs: (3 * inputs[0],))
    return body


def chain(state_shape, outputs):
    return nn.Sequential(*(make() for make in LAYERS))


def built(network, **settings):
    job = prepare("snake", settings=SNAKE_MLP.settings | settings, network=network)
    return build(job.config, job.kind, "cpu", network), job


@pytest.mark.parametrize("network", [subclass, hooked, hooked_before], ids=lambda maker: maker.__name__)
def test_a_network_that_only_looks_like_a_chain_is_trained_and_played_as_it_is(network):
    fast, _ = built(network)
    plain, _ = built(network, **{"switches.off": ["hand_written", "one_pass_optimizer", "target_ahead"]})
    assert not {"hand_written", "lean_mlp"} & fast.switches
    same_updates(fast.learner, plain.learner, ((batch, batch) for batch in random_batches(parts_of(SNAKE_MLP), 20)))
    states = np.random.default_rng(0).integers(0, 256, (50, 3, 10, 10), dtype=np.uint8)
    played = build_greedy(fast.learner.online, "cpu", fast.switches)(states)
    assert played.tolist() == fast.learner.online(torch.from_numpy(states)).argmax(1).tolist()
    values = fast.learner.online.body(torch.from_numpy(states).float() / 255)
    torch.testing.assert_close(fast.learner.online(torch.from_numpy(states)), values)


def test_a_plain_chain_of_ones_own_is_as_fast_as_ours():
    parts, _ = built(chain)
    assert {"hand_written", "lean_mlp", "one_pass_optimizer"} <= parts.switches
    assert type(parts.learner.update.backprop).__name__ == "Lean"


def test_what_does_not_apply_is_told_and_not_listed_as_on(runs):
    parts, job = built(subclass)
    assert parts.switches == job.switches, "prepare knows what build does"
    (line,) = parts.notes
    assert line.startswith(
        "left off for your network: hand_written (it is no plain nn.Sequential but Doubled), inplace_relu"
    )
    assert {"target_ahead", "one_pass_optimizer"} <= parts.switches, "those serve every network"
    settings = SNAKE_MLP.settings | {"evaluator.episodes": 1}
    run = fastdqn.train("snake", steps=300, settings=settings, network=subclass, quiet=True)
    told = json.loads((run.folder.path / "machine.json").read_text())
    assert told["run"]["switches"] == sorted(parts.switches)


@pytest.mark.parametrize("name", ["hand_written", "lean_mlp", "inplace_relu"])
def test_asked_for_by_name_it_is_refused(name):
    with pytest.raises(UserError, match=f"The switch {name} does not apply to snake: "):
        prepare("snake", settings=SNAKE_MLP.settings | {"switches.on": [name]}, network=subclass)


class Noisy(nn.Module):
    """Says how it was asked."""

    def __init__(self, state_shape, outputs):
        super().__init__()
        self.layer, self.asked = nn.Linear(300, outputs), []
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, state):
        self.asked.append(self.training)
        if self.training:
            self.seen += 1
        return self.layer(state.flatten(1))


@pytest.mark.parametrize("double", [False, True])
def test_it_learns_in_train_mode_and_acts_and_is_looked_up_in_eval_mode(double):
    parts, _ = built(Noisy, **{"learner.double": double, "learner.target_every": 1})
    online, target = parts.learner.online.body, parts.learner.target.body
    online.asked.clear(), target.asked.clear()
    for batch in random_batches(parts_of(SNAKE_MLP), 2):
        parts.learner.train_on(batch)
    assert online.asked == ([False, True] if double else [True]) * 2
    assert target.asked == [False] * 2
    online.asked.clear()
    build_greedy(parts.learner.online, "cpu", parts.switches)(np.zeros((3, 3, 10, 10), np.uint8))
    assert online.asked == [False]
    assert parts.learner.online.training, "and goes on learning"
    assert target.seen == online.seen == 2, "buffers reach the target network"
