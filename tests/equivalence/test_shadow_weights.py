"""shadow_weights promises SAME_DISTRIBUTION: autograd through bfloat16 copies gives nearly the gradient of float32, for any
network; the copies are never old, and what they leave out (norms, the last layer, buffers) is the network's own."""

import copy

import pytest
import torch
from torch import nn

from fastdqn.build import build
from fastdqn.device.hardware import lacks
from fastdqn.errors import UserError
from fastdqn.learner.fast.shadow import Shadow, ShadowAutograd
from fastdqn.prepare import prepare
from tests.equivalence.test_precision import compare_gradients, taken_gradients, within_tolerance
from tests.equivalence.updates import CATCH_NATURE, SNAKE_CNN, SNAKE_MLP, parts_of, random_batches

pytestmark = pytest.mark.skipif(bool(lacks("bf16", "cpu")), reason="needs bfloat16 instructions")
ON = ["bf16", "shadow_weights"]
PARTS = {
    "mlp": (SNAKE_MLP, {}),
    "cnn": (SNAKE_CNN, {"network.dueling": True, "network.norm": "layer"}),
    "nature": (CATCH_NATURE, {"learner.double": True}),
    "c51": (SNAKE_CNN, {"learner.loss": "c51", "learner.double": True}),
    "munchausen": (SNAKE_MLP, {"learner.munchausen": True}),
}


class Own(nn.Module):
    """Branches, a norm that learns from what it sees, and the last layer registered first."""

    def __init__(self, state_shape, outputs):
        super().__init__()
        self.advantage = nn.Linear(16, outputs)
        self.value = nn.Linear(16, 1)
        self.first, self.norm, self.hidden = nn.Linear(300, 32), nn.BatchNorm1d(32), nn.Linear(32, 16)

    def forward(self, state):
        features = torch.relu(self.hidden(torch.relu(self.norm(self.first(state.flatten(1))))))
        advantage = self.advantage(features)
        return self.value(features) + advantage - advantage.mean(1, keepdim=True)


def built(network, **settings):
    job = prepare("snake", settings=SNAKE_MLP.settings | {"switches.prefer": ["bf16"]} | settings, network=network)
    return build(job.config, job.kind, "cpu", network)


def dtypes(parts):
    return {name: weight.dtype for name, weight in parts.learner.update.backprop._online.network.body.named_parameters()}


@pytest.mark.parametrize("optimizer", [[], ["one_pass_optimizer"]], ids=["torch", "one pass"])
@pytest.mark.parametrize("name", PARTS)
def test_the_gradient_is_nearly_the_same(monkeypatch, name, optimizer):
    setup, settings = PARTS[name]
    setup = setup._replace(settings=setup.settings | settings)
    if optimizer:  # its gradients are in no weight's `grad`
        monkeypatch.setattr("tests.equivalence.test_precision.gradients", taken_gradients)
    short, plain = parts_of(setup, [*ON, *optimizer]), parts_of(setup, optimizer)
    assert short.switches ^ plain.switches == set(ON)
    assert isinstance(short.learner.update.backprop, ShadowAutograd)
    if optimizer:
        for batch in random_batches(plain, 1):
            plain.learner.train_on(batch)
        plain.learner.optimizer.take(*_of_autograd(plain.learner))
    cosines, ratios, losses = compare_gradients(short, plain)
    assert within_tolerance(cosines, ratios, losses), (cosines, ratios, losses)
    assert losses.min() > 0, "the same to the last bit: nothing was cast"


def _of_autograd(learner):
    """Fixed places for the gradients that autograd makes anew, so that they can be looked at after the step."""
    weights = list(learner.online.parameters())
    places = [torch.zeros_like(weight) for weight in weights]
    backprop = learner.update.backprop

    def into_places(batch, *known):
        for weight in weights:
            weight.grad = None
        learned = backprop(batch, *known)
        for place, weight in zip(places, weights, strict=True):
            place.copy_(weight.grad)
        return learned

    learner.update.backprop = into_places
    return weights, places, [None] * len(weights)


@pytest.mark.parametrize("off", [[], ["one_pass_optimizer"], ["one_pass_optimizer", "fused_optimizer"]], ids=len)
def test_the_copies_are_never_old(off):
    parts = built(Own, **{"switches.off": off, "learner.target_every": 3})
    learner = parts.learner
    backprop = learner.update.backprop
    for batch in random_batches(parts, 7):
        learner.train_on(batch)
        backprop._keep_up(), backprop._target.follow()
        for shadow, network in ((backprop._online, learner.online), (backprop._target, learner.target)):
            for own, weight in zip(network.parameters(), shadow.network.parameters(), strict=True):
                assert torch.equal(own.to(weight.dtype), weight), "a weight and its copy"
    state = copy.deepcopy(learner.state())
    for batch in random_batches(parts, 2, seed=1):
        learner.train_on(batch)
    learner.load_state(state)
    (batch,) = random_batches(parts, 1, seed=2)
    backprop(batch)
    assert all(torch.equal(own.to(weight.dtype), weight) for own, weight in backprop._online.pairs), "a state was loaded"


def test_what_stays_float32_and_what_is_shared():
    parts = built(Own)
    short = {name for name, dtype in dtypes(parts).items() if dtype == torch.bfloat16}
    assert short == {"first.weight", "first.bias", "hidden.weight", "hidden.bias"}
    online, shadow = parts.learner.online, parts.learner.update.backprop._online.network
    before = online.body.norm.running_mean.clone()
    for batch in random_batches(parts, 1):
        parts.learner.train_on(batch)
    assert not torch.equal(online.body.norm.running_mean, before), "the norm has seen the batch"
    assert online.body.norm.running_mean is shadow.body.norm.running_mean
    assert online.body.norm.weight.data_ptr() == shadow.body.norm.weight.data_ptr()
    assert {tensor.dtype for tensor in parts.learner.state()["online"].values() if tensor.is_floating_point()} == {
        torch.float32
    }


class Shares(Own):
    def __init__(self, state_shape, outputs):
        super().__init__(state_shape, outputs)
        self.again = nn.Linear(32, 16)
        self.again.weight = self.hidden.weight

    def forward(self, state):
        features = torch.relu(self.norm(self.first(state.flatten(1))))
        return self.advantage(torch.relu(self.hidden(features)) + torch.relu(self.again(features))) + self.value(
            self.hidden(features)
        )


def test_a_weight_of_two_layers_stays_float32():
    assert dtypes(built(Shares))["hidden.weight"] == torch.float32


class Mixes(Own):
    """Multiplies by a weight of its own, which bfloat16 features do not go together with."""

    def __init__(self, state_shape, outputs):
        super().__init__(state_shape, outputs)
        self.matrix = nn.Parameter(torch.eye(16))

    def forward(self, state):
        return self.advantage(torch.relu(self.hidden(self.norm(self.first(state.flatten(1))))) @ self.matrix)


class Unused(Own):
    def __init__(self, state_shape, outputs):
        super().__init__(state_shape, outputs)
        self.for_later = nn.Linear(2, 2)


class Remembers(Own):
    seen = 0

    def forward(self, state):
        self.seen += self.training
        return super().forward(state)


class Refuses(Own):
    """bfloat16 without autocast, and says nothing."""

    def forward(self, state):
        if self.first(state.flatten(1)).dtype == torch.bfloat16 and not torch.is_autocast_enabled("cpu"):
            raise ValueError
        return super().forward(state)


@pytest.mark.parametrize("network", [Mixes, Unused, Remembers, Refuses])
def test_a_network_that_does_not_go_together_with_it_trains_under_autocast_and_a_line_says_so(network):
    parts = built(network)
    assert "shadow_weights" not in parts.switches
    assert "bf16" in parts.switches
    assert any(note.startswith("shadow_weights is left off: ") for note in parts.notes), parts.notes
    before = parts.learner.online.body.hidden.weight.detach().clone()
    for batch in random_batches(parts, 2):
        parts.learner.train_on(batch)
    assert not torch.equal(parts.learner.online.body.hidden.weight, before)


def test_it_is_for_bfloat16_and_for_autograd():
    assert "shadow_weights" not in parts_of(SNAKE_MLP).switches
    with pytest.raises(UserError, match="needs bf16"):
        prepare("snake", settings=SNAKE_MLP.settings | {"switches.on": ["shadow_weights"], "switches.off": ["hand_written"]})
    with pytest.raises(UserError, match="hand_written has copies of its own"):
        prepare("snake", settings=SNAKE_MLP.settings | {"switches.on": ON})


def test_a_trial_leaves_the_network_as_it_was():
    network = parts_of(SNAKE_MLP).learner.online
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    kinds = [type(layer) for layer in network.modules()]
    Shadow(network, torch.bfloat16, torch.zeros(2, 3, 10, 10, dtype=torch.uint8))
    assert [type(layer) for layer in network.modules()] == kinds
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in network.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


class LeavesOut(Own):
    """Stochastic depth: a training pass may not use a layer."""

    def __init__(self, state_shape, outputs):
        super().__init__(state_shape, outputs)
        self.block = nn.Linear(16, 16)

    def forward(self, state):
        features = torch.relu(self.hidden(self.norm(self.first(state.flatten(1)))))
        if not self.training or torch.rand(()) < 0.5:
            features = features + torch.relu(self.block(features))
        return self.advantage(features) + self.value(features)


def test_a_training_pass_may_leave_a_layer_out():
    parts = built(LeavesOut)
    assert "shadow_weights" in parts.switches
    for batch in random_batches(parts, 10):
        parts.learner.train_on(batch)


class Frozen(Own):
    def __init__(self, state_shape, outputs):
        super().__init__(state_shape, outputs)
        self.first.requires_grad_(False)


def test_frozen_weights_stay():
    parts = built(Frozen)
    assert "shadow_weights" in parts.switches
    body = parts.learner.online.body
    frozen, hidden = body.first.weight.clone(), body.hidden.weight.detach().clone()
    for batch in random_batches(parts, 2):
        parts.learner.train_on(batch)
    assert torch.equal(body.first.weight, frozen)
    assert not torch.equal(body.hidden.weight, hidden)
