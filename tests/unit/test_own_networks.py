"""Networks of the user's own are trained and played as they are, and what does not apply to them is told."""

import copy
import json
import re

import numpy as np
import pytest
import torch
from torch import nn

import fastdqn
from fastdqn.build import build, build_greedy
from fastdqn.errors import UserError
from fastdqn.learner.sequence import differs, read_layers
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


class Tutorial(nn.Module):
    """As most are written; its layers are registered in another order than they are used in."""

    def __init__(self, state_shape, outputs):
        super().__init__()
        self.last = nn.Linear(16, outputs)
        self.first = nn.Linear(300, 16)

    def forward(self, state):
        return self.last(torch.relu(self.first(state.view(state.size(0), -1))))


class Convolutions(nn.Module):
    def __init__(self, state_shape, outputs):
        super().__init__()
        self.convolutions = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
        self.dense = nn.Sequential(nn.Linear(4 * 64, 16), nn.Sequential(nn.LayerNorm(16), nn.ReLU()), nn.Linear(16, outputs))

    def forward(self, state):
        return self.dense(torch.flatten(self.convolutions(state), 1))


@pytest.mark.parametrize(("network", "way"), [(Tutorial, "Lean"), (Convolutions, "HandWritten")])
def test_a_forward_that_goes_from_layer_to_layer_is_as_fast_as_ours(network, way):
    fast, _ = built(network)
    plain, _ = built(network, **{"switches.off": ["hand_written", "one_pass_optimizer", "target_ahead"]})
    assert fast.notes == []
    assert [type(parts.learner.update.backprop).__name__ for parts in (fast, plain)] == [way, "Autograd"]
    assert {"inplace_relu", "one_pass_optimizer"} <= fast.switches
    same_updates(fast.learner, plain.learner, ((batch, batch) for batch in random_batches(plain, 20)))
    states = torch.randint(0, 256, (20, 3, 10, 10), dtype=torch.uint8)
    torch.testing.assert_close(fast.learner.online(states), fast.learner.online.body(states / 255))
    for batch in random_batches(plain, 3):  # steps included, which find each gradient by its weight
        fast.learner.train_on(batch), plain.learner.train_on(batch)
    for ours, theirs in zip(fast.learner.online.parameters(), plain.learner.online.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


class Views(nn.Module):
    """Flattens by a view, which does not take images whose channels lie side by side."""

    def __init__(self, state_shape, outputs):
        super().__init__()
        self.convolution, self.last = nn.Conv2d(3, 4, 3), nn.Linear(256, outputs)

    def forward(self, state):
        features = torch.relu(self.convolution(state))
        return self.last(features.view(features.size(0), -1))


class ViewsOfTwo(Views):
    def forward(self, state):
        features = torch.relu(self.convolution(state)) + torch.relu(self.convolution(-state))
        return self.last(features.view(features.size(0), -1))


@pytest.mark.parametrize(("network", "is_kept"), [(Views, True), (ViewsOfTwo, False)])
def test_channels_last_is_for_networks_that_take_it(network, is_kept):
    parts, _ = built(network, **{"switches.prefer": ["channels_last"]})
    assert ("channels_last" in parts.switches) == is_kept
    line = "channels_last is left off: its forward does not take images in that layout (RuntimeError)"
    assert (line in parts.notes) != is_kept
    for batch in random_batches(parts, 1):
        parts.learner.train_on(batch)
    build_greedy(parts.learner.online, "cpu", parts.switches)(np.zeros((3, 3, 10, 10), np.uint8))


class Branches(nn.Module):
    def __init__(self, state_shape, outputs):
        super().__init__()
        self.left, self.right = nn.Linear(300, outputs), nn.Linear(300, outputs)

    def forward(self, state):
        return self.left(state.flatten(1)) + self.right(state.flatten(1))


class Unused(Tutorial):
    def __init__(self, state_shape, outputs):
        super().__init__(state_shape, outputs)
        self.for_later = nn.Linear(2, 2)


class Counts(Tutorial):
    """Another network from its fifth call on."""

    calls = 0

    def forward(self, state):
        self.calls += 1
        return super().forward(state if self.calls < 5 else 0 * state)


class ThrowsDice(Tutorial):
    def forward(self, state):
        features = state.flatten(1)
        return self.last(torch.relu(self.first(features)) if np.random.rand() < 0.5 else self.first(features))


class AsksTheState(Tutorial):
    def forward(self, state):
        return super().forward(state) if state.mean() > 0.5 else super().forward(state + 1)


class StopsGradients(Tutorial):
    def forward(self, state):
        with torch.no_grad():
            features = torch.relu(self.first(state.flatten(1)))
        return self.last(features)


class NoGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values):
        return values

    @staticmethod
    def backward(ctx, gradient):
        return 0 * gradient


class OwnBackward(Tutorial):
    def forward(self, state):
        return self.last(NoGradient.apply(torch.relu(self.first(state.flatten(1)))))


class WeightHook(Tutorial):
    def __init__(self, state_shape, outputs):
        super().__init__(state_shape, outputs)
        self.first.weight.register_hook(lambda gradient: 0 * gradient)


class SlowCopy(Tutorial):
    """The same at the start, and another network when it is not trained."""

    def __init__(self, state_shape, outputs):
        super().__init__(state_shape, outputs)
        self.slow = copy.deepcopy(self.first)

    def forward(self, state):
        return self.last(torch.relu((self.first if self.training else self.slow)(state.flatten(1))))


class CountsInSecret(Tutorial):
    _calls = 0

    def forward(self, state):
        self._calls += 1
        return super().forward(state)


class KeepsArrays(Tutorial):
    """Things that cannot be compared by ==, and do not change."""

    def __init__(self, state_shape, outputs):
        super().__init__(state_shape, outputs)
        self.support, self.mean, self.rng = torch.linspace(-1, 1, 51), np.zeros(3), np.random.default_rng(0)


class Rows(nn.Module):
    """A reshape that is no flatten."""

    def __init__(self, state_shape, outputs):
        super().__init__()
        self.rows, self.last = nn.Linear(100, 8), nn.Linear(24, outputs)

    def forward(self, state):
        return self.last(torch.relu(self.rows(state.view(-1, 3, 100))).flatten(1))


class InDouble(nn.Module):
    def __init__(self, state_shape, outputs):
        super().__init__()
        self.layer = nn.Linear(300, outputs).double()

    def forward(self, state):
        return self.layer(state.flatten(1).double())


def norm_first(state_shape, outputs):
    return nn.Sequential(nn.Flatten(), nn.LayerNorm(300), nn.Linear(300, outputs))


def flattens_late(state_shape, outputs):
    return nn.Sequential(nn.Linear(10, 2), nn.ReLU(), nn.Flatten(), nn.Linear(60, outputs))


@pytest.mark.parametrize(
    ("network", "why"),
    [
        (subclass, r"its forward is not only layers and ReLUs \(mul\)"),
        (Branches, "its forward branches"),
        (Unused, "it has weights that its forward does not use"),
        (Counts, "its forward does more than going from layer to layer"),
        (ThrowsDice, "its forward does more than going from layer to layer"),
        (AsksTheState, r"its forward cannot be read \(TraceError\)"),
        (StopsGradients, "its forward does more than going from layer to layer"),
        (OwnBackward, "its forward does more than going from layer to layer"),
        (WeightHook, "a weight of it has a hook"),
        (SlowCopy, "its forward does something else when it is trained"),
        (CountsInSecret, "its forward does more than going from layer to layer"),
        (Rows, "its forward does more than going from layer to layer"),
        (InDouble, "some of its weights are not float32"),
        (norm_first, "its first layer is a LayerNorm"),
        (flattens_late, "it has a linear layer before it flattens"),
    ],
)
def test_any_other_forward_is_trained_by_autograd(network, why):
    np.random.seed(0)
    fast, _ = built(network)
    assert type(fast.learner.update.backprop).__name__ == "Autograd"
    assert re.search(rf"left off for your network: hand_written \({why}", fast.notes[0]), fast.notes
    fast.learner.train_on(next(iter(random_batches(parts_of(SNAKE_MLP), 1))))


def test_reading_a_forward_leaves_no_trace():
    counts, throws = Counts((3, 10, 10), 4), ThrowsDice((3, 10, 10), 4)
    plain = Tutorial((3, 10, 10), 4)
    np.random.seed(0)
    before = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    layers, why = read_layers(counts)
    assert (len(layers), why) == (4, "")
    assert differs(counts, (3, 10, 10))
    assert differs(throws, (3, 10, 10))
    assert not differs(plain, (3, 10, 10))
    assert counts.calls == 0
    assert (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before


def test_what_does_not_apply_is_told_and_not_listed_as_on(runs):
    parts, job = built(subclass)
    assert parts.switches == job.switches, "prepare knows what build does"
    (line,) = parts.notes
    assert line.startswith(
        "left off for your network: hand_written (its forward is not only layers and ReLUs (mul)), inplace_relu"
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


def test_what_the_user_has_frozen_in_eval_mode_stays_there():
    parts, _ = built(Noisy)
    online = parts.learner.online
    online.body.layer.eval()
    with online.evaluating():
        assert not online.training
        assert not online.body.training
    assert online.training
    assert online.body.training
    assert not online.body.layer.training


def test_what_cannot_be_compared_and_does_not_change_is_no_reason():
    assert type(built(KeepsArrays)[0].learner.update.backprop).__name__ == "Lean"


@pytest.mark.parametrize("network", [StopsGradients, OwnBackward, WeightHook])
@pytest.mark.parametrize("prefer", [[], ["bf16"]], ids=["float32", "bfloat16"])
def test_what_a_network_does_to_its_gradients_is_done(network, prefer):
    parts, _ = built(network, **{"switches.prefer": prefer})
    before = {name: weight.detach().clone() for name, weight in parts.learner.online.body.named_parameters()}
    for batch in random_batches(parts, 3):
        parts.learner.train_on(batch)
    moved = {name for name, weight in parts.learner.online.body.named_parameters() if not torch.equal(weight, before[name])}
    assert "last.weight" in moved
    assert "first.weight" not in moved


class LaidOut(Tutorial):
    """Weights as they come from elsewhere: transposed, or a part of a larger tensor."""

    def __init__(self, state_shape, outputs):
        super().__init__(state_shape, outputs)
        self.last.weight.data = self.last.weight.data.t().contiguous().t()
        self.first.weight = nn.Parameter(torch.cat([self.first.weight.data, torch.ones(16, 300)], 1)[:, :300])


@pytest.mark.parametrize("off", [[], ["hand_written"]], ids=["lean", "autograd"])
def test_weights_may_come_in_any_layout(off):
    fast, _ = built(LaidOut, **{"switches.off": off})
    plain, _ = built(LaidOut, **{"switches.off": ["hand_written", "one_pass_optimizer", "fused_optimizer", "target_ahead"]})
    plain.learner.online.load_state_dict(fast.learner.online.state_dict())
    for batch in random_batches(plain, 5):
        fast.learner.train_on(batch), plain.learner.train_on(batch)
    for ours, theirs in zip(fast.learner.online.parameters(), plain.learner.online.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


class OwnTrain(Tutorial):
    noise = 100.0

    def train(self, mode=True):
        self.noise = 100.0 if mode else 0.0
        return super().train(mode)

    def forward(self, state):
        return super().forward(state) + self.noise


def test_a_train_method_of_ones_own_is_called():
    online = built(OwnTrain)[0].learner.online
    states = torch.zeros(1, 3, 10, 10)
    with torch.no_grad(), online.evaluating():
        assert online(states).abs().max() < 50
    assert online(states).min() > 50


class Assigns(nn.Module):
    def __init__(self, state_shape, outputs):
        super().__init__()
        self.layer = nn.Linear(300, outputs)
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, state):
        if self.training:
            self.mean = self.mean * 0.9 + 0.1
        return self.layer(state.flatten(1)) + self.mean


@pytest.mark.parametrize("rule", ["hard", "soft"])
def test_a_buffer_that_is_assigned_anew_reaches_the_target_network(rule):
    parts, _ = built(Assigns, **{"learner.target": rule, "learner.target_every": 1})
    for batch in random_batches(parts, 3):
        parts.learner.train_on(batch)
    assert parts.learner.target.body.mean == parts.learner.online.body.mean > 0.2


def in_a_tuple(state_shape, outputs):
    class Pair(nn.Linear):
        def forward(self, state):
            return super().forward(state.flatten(1)), None

    return Pair(300, outputs)


def scripted(state_shape, outputs):
    return torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(300, outputs)))


@pytest.mark.parametrize(("network", "sentence"), [(in_a_tuple, "answers with a tuple"), (scripted, "is TorchScript")])
def test_what_cannot_be_trained_is_refused_with_a_sentence(network, sentence):
    with pytest.raises(UserError, match=sentence):
        built(network)


def test_numbers_of_half_the_size_are_learned_from():
    agent = fastdqn.Agent(
        (4,), 2, dtype=np.float16, device="cpu", settings={"replay.warmup_steps": 40, "learner.batch_size": 32}
    )
    for step in range(80):
        agent.remember(np.ones(4, np.float16), step % 2, 1.0, np.ones(4, np.float16), step % 10 == 9)
        agent.learn()
    assert agent.updates > 0


def test_an_agent_tells_what_is_in_effect_too():
    agent = fastdqn.Agent((3, 10, 10), 4, dtype=np.uint8, network=Branches, device="cpu")
    assert "hand_written" not in agent.switches
    assert agent.notes[0].startswith("left off for your network: hand_written (its forward branches)")
    assert {"hand_written", "lean_mlp"} <= fastdqn.Agent(4, 2, device="cpu").switches


class Deep(nn.Module):
    def __init__(self, state_shape, outputs):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, 256) for width in (300, *[256] * 11))
        self.last = nn.Linear(256, outputs)

    def forward(self, state):
        features = state.flatten(1)
        for layer in self.layers:
            features = torch.relu(layer(features))
        return self.last(features)


class Large(nn.Module):
    def __init__(self, state_shape, outputs):
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 32, 8, stride=4), nn.Conv2d(32, 64, 4, stride=2)
        self.hidden, self.last = nn.Linear(5184, 512), nn.Linear(512, outputs)

    def forward(self, state):
        features = torch.relu(self.second(torch.relu(self.first(state))))
        return self.last(torch.relu(self.hidden(features.view(features.size(0), -1))))


@pytest.mark.parametrize(("network", "shape"), [(Deep, (3, 10, 10)), (Large, (4, 84, 84))])
def test_rounding_in_deep_and_large_networks_is_no_difference(network, shape):
    made = network(shape, 4)
    assert read_layers(made)[1] == ""
    assert not differs(made, shape)
