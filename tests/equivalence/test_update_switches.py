"""no_grad, grads_to_none, inplace_relu, fused_optimizer and channels_last promise SAME_NUMBERS: equal losses and gradients
at each of 200 updates, with the weights synced before each."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from fastdqn.agent import Agent
from fastdqn.build import build, build_greedy
from fastdqn.config import LearnerConfig
from fastdqn.device.hardware import lacks
from fastdqn.errors import UserError
from fastdqn.learner.backprop import PassesAndLoss
from fastdqn.learner.fast.output_gradient import by_autograd, compiled
from fastdqn.learner.fast.precision import autocast
from fastdqn.learner.heads import Values
from fastdqn.learner.loss import make_loss
from fastdqn.learner.passes import Passes
from fastdqn.learner.step import weights_of
from fastdqn.learner.update import most_together
from fastdqn.prepare import prepare
from fastdqn.transition import Batch
from tests.equivalence.updates import (
    CATCH_NATURE,
    SNAKE_CNN,
    SNAKE_MLP,
    Setup,
    check_switch,
    parts_of,
    random_batches,
    same_updates,
    weights,
)

NETWORKS = pytest.mark.parametrize(("setup", "double"), [(SNAKE_MLP, False), (SNAKE_CNN, True)], ids=["mlp", "cnn-double"])
DOUBLE = pytest.mark.parametrize("double", [False, True], ids=["single", "double"])
SLOW = {"marks": pytest.mark.slow}


def outputs_of(network):
    """Collects what the network answers from now on."""
    seen = []
    network.body.register_forward_hook(lambda module, inputs, output: seen.append(output))
    return seen


@pytest.mark.parametrize(
    ("setup", "double"),
    [
        pytest.param(SNAKE_MLP, False, id="mlp-single"),
        pytest.param(SNAKE_MLP, True, id="mlp-double", **SLOW),
        pytest.param(SNAKE_CNN, False, id="cnn-single", **SLOW),
        pytest.param(SNAKE_CNN, True, id="cnn-double"),
    ],
)
def test_no_grad(setup, double):
    fast, _ = check_switch(setup, "no_grad", double=double)
    assert not any(weight.requires_grad for weight in fast.target.parameters())
    assert all(weight.requires_grad for weight in fast.online.parameters())


@DOUBLE
def test_without_no_grad_the_goal_builds_a_graph_and_with_it_none(double):
    parts = parts_of(SNAKE_MLP, off=["no_grad"])
    online, target = parts.learner.online, parts.learner.target
    answers = {"online": outputs_of(online), "target": outputs_of(target)}
    loss = make_loss(LearnerConfig(double=double), Values())
    (batch,) = random_batches(parts, 1)
    expected, got = (PassesAndLoss(online, target, loss, without_graph)(batch) for without_graph in (False, True))
    assert [torch.equal(*pair) for pair in zip(expected, got, strict=True)] == [True] * 3
    assert not expected[2].requires_grad, "the TD target is cut off at its end"
    assert [answer.requires_grad for answer in answers["target"]] == [True, False]
    assert [answer.requires_grad for answer in answers["online"]] == ([True, True, False, True] if double else [True, True])


@pytest.mark.parametrize(("off", "asks"), [((), False), (("no_grad",), True)])
def test_the_learner_uses_the_goal_that_no_grad_chooses(off, asks):
    parts = parts_of(SNAKE_MLP, off=off, double=True)
    targets, onlines = outputs_of(parts.learner.target), outputs_of(parts.learner.online)
    parts.learner.train_on(next(random_batches(parts, 1)))
    assert [answer.requires_grad for answer in targets] == [asks]
    assert [answer.requires_grad for answer in onlines] == [asks, True]


@NETWORKS
def test_grads_to_none(setup, double):
    check_switch(setup, "grads_to_none", double=double)


@pytest.mark.parametrize(("off", "kept"), [([], False), (["grads_to_none"], True)])
def test_gradients_are_dropped_or_filled_with_zeros(off, kept):
    """At the second update: with the switch there is nothing to add to, without it the same tensors are used again."""
    parts = parts_of(SNAKE_MLP, off=off)
    learner, cleared = parts.learner, []
    zero_grad = learner.optimizer.zero_grad
    trained = weights_of(learner.optimizer)

    def spy(**how):
        zero_grad(**how)
        cleared.extend(None if weight.grad is None else weight.grad.abs().max().item() for weight in trained)

    first, second = random_batches(parts, 2)
    learner.train_on(first)
    old = [weight.grad for weight in trained]
    learner.optimizer.zero_grad = spy
    learner.train_on(second)
    assert cleared == [0.0 if kept else None] * len(trained)
    assert [weight.grad is gradient for weight, gradient in zip(trained, old, strict=True)] == [kept] * len(trained)


@NETWORKS
def test_inplace_relu(setup, double):
    learners = check_switch(setup, "inplace_relu", double=double)
    for learner, in_place in zip(learners, (True, False), strict=True):
        for network in (learner.online, learner.target):
            layers = [layer for layer in network.modules() if isinstance(layer, nn.ReLU)]
            assert len(layers) >= 2
            assert all(layer.inplace is in_place for layer in layers)


def test_a_network_of_the_users_own_keeps_its_relu():
    """It may need the input of its ReLU a second time."""
    from fastdqn.build import build
    from fastdqn.prepare import prepare

    class Own(nn.Module):
        def __init__(self, state_shape, num_actions):
            super().__init__()
            self.first, self.relu, self.last = nn.Linear(300, 8), nn.ReLU(), nn.Linear(8, num_actions)

        def forward(self, state):
            features = self.first(state.flatten(1))
            return self.last(self.relu(features) + features)

    job = prepare("snake", settings=SNAKE_MLP.settings, network=Own)
    parts = build(job.config, job.kind, "cpu", Own)
    assert "inplace_relu" not in parts.switches
    assert [layer.inplace for layer in parts.learner.online.modules() if isinstance(layer, nn.ReLU)] == [False]


@pytest.mark.parametrize(
    ("optimizer", "how", "setup", "double"),
    [
        pytest.param("adam", "fused", SNAKE_MLP, False, id="adam-mlp", **SLOW),
        pytest.param("adam", "fused", SNAKE_CNN, True, id="adam-cnn-double"),
        pytest.param("rmsprop", "foreach", SNAKE_MLP, False, id="rmsprop-mlp"),
        pytest.param("rmsprop", "foreach", SNAKE_CNN, True, id="rmsprop-cnn-double", **SLOW),
    ],
)
def test_fused_optimizer(setup, double, optimizer, how):
    fast, plain = check_switch(setup, "fused_optimizer", double=double, optimizer=optimizer)
    assert fast.optimizer.defaults[how] is True
    assert not plain.optimizer.defaults[how]
    torch.testing.assert_close(weights(fast), weights(plain), rtol=0, atol=1e-5)  # both have just made the same step


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_200_free_steps_of_either_optimizer_end_at_the_same_weights(optimizer):
    fast, plain = (parts_of(SNAKE_MLP, off=off, optimizer=optimizer) for off in ([], ["fused_optimizer"]))
    start = weights(plain.learner)
    for batch in random_batches(plain, 200):
        fast.learner.train_on(batch)
        plain.learner.train_on(batch)
    torch.testing.assert_close(weights(fast.learner), weights(plain.learner), rtol=0, atol=1e-4)
    assert max((weights(plain.learner)[name] - start[name]).abs().max() for name in start) > 0.01


@pytest.mark.parametrize(
    ("setup", "updates", "double"),
    [
        pytest.param(SNAKE_CNN, 200, False, id="cnn-single"),
        pytest.param(SNAKE_CNN, 200, True, id="cnn-double", **SLOW),
        pytest.param(CATCH_NATURE, 30, False, id="nature-single", **SLOW),
        pytest.param(CATCH_NATURE, 30, True, id="nature-double"),
    ],
)
def test_channels_last(setup, updates, double):
    learners = check_switch(setup, "channels_last", updates, double=double)
    for learner, together in zip(learners, (True, False), strict=True):
        for network in (learner.online, learner.target):
            kernels = [layer.weight for layer in network.modules() if isinstance(layer, nn.Conv2d) and layer.in_channels > 1]
            assert kernels
            assert all(kernel.is_contiguous(memory_format=torch.channels_last) is together for kernel in kernels)
            assert all(kernel.is_contiguous() is not together for kernel in kernels)


@pytest.mark.parametrize("off", [[], ["fused_optimizer"]])
def test_a_state_saved_with_channel_planes_goes_on_with_channels_last(off):
    fast, plain = (parts_of(SNAKE_CNN, on=on, off=off) for on in (["channels_last"], []))
    *first, last = random_batches(plain, 20)
    for batch in first:
        plain.learner.train_on(batch)
    fast.learner.load_state(plain.learner.state())
    for parts in (fast, plain):
        parts.learner.train_on(last)
    torch.testing.assert_close(weights(fast.learner), weights(plain.learner), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("on", "together"), [([], False), (["channels_last"], True)])
def test_images_reach_the_convolutions_with_their_channels_together(on, together):
    parts = parts_of(CATCH_NATURE, on=on)
    images = []
    for layer in parts.learner.online.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(lambda module, inputs, output: images.extend([*inputs, output]))
    parts.learner.train_on(next(random_batches(parts, 1)))
    assert len(images) >= 6
    assert all(image.is_contiguous(memory_format=torch.channels_last) is together for image in images)


def test_channels_last_is_not_for_networks_without_convolutions():
    with pytest.raises(UserError, match="channels_last does not apply to snake: the network has no convolution"):
        parts_of(SNAKE_MLP, on=["channels_last"])
    preferred = SNAKE_MLP._replace(settings=SNAKE_MLP.settings | {"switches.prefer": ["channels_last"]})
    parts = parts_of(preferred)
    assert "channels_last" not in parts.switches
    assert parts.notes == ["channels_last is left off: the network has no convolution"]
    assert parts.learner.online.memory_format is torch.preserve_format


# ---------------------------------------------------------------- hand_written


@DOUBLE
@pytest.mark.parametrize("setup", [SNAKE_MLP, SNAKE_CNN], ids=["mlp", "cnn"])
@pytest.mark.parametrize("loss", ["huber", "mse"])
def test_hand_written(setup, double, loss):
    fast, _ = check_switch(setup, "hand_written", updates=100, double=double, loss=loss)
    assert type(fast.update.backprop).__name__ == "HandWritten"


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("loss", ["huber", "mse"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_compiled_loss_is_the_one_in_torch(double, loss, dtype):
    """The same slopes bit for bit, with misses on both sides of Huber's corner, ends, weights of 0 and values that tie."""
    config = LearnerConfig(loss=loss, double=double)
    rng = torch.Generator().manual_seed(0)
    size = 200
    values, next_values, choosing = ((4 * torch.randn(size, 3, generator=rng)).round(decimals=1).to(dtype) for _ in range(3))
    batch = Batch(
        state=None,
        action=torch.randint(3, (size,), generator=rng),
        returns=torch.randn(size, generator=rng),
        discount=torch.rand(size, generator=rng) * (torch.rand(size, generator=rng) > 0.2),
        next_state=None,
        weight=(torch.rand(size, generator=rng) > 0.1).float(),
        index=None,
    )
    function = make_loss(config, Values())
    passes = Passes(values, next_values, choosing if double else None)
    (plain_gradient, plain), (gradient, ours) = (make(function)(passes, batch) for make in (by_autograd, compiled))
    torch.testing.assert_close(gradient, plain_gradient, rtol=1e-6, atol=1e-8)
    assert torch.equal(ours.error, plain.error)
    assert (gradient.abs().amax(1) == 1 / size).any() or loss == "mse", "some misses lie beyond Huber's corner"
    assert (ours.loss, ours.q_mean) == pytest.approx((plain.loss.item(), plain.q_mean.item()), rel=1e-5, abs=1e-6)
    values[0] = float("nan")
    assert all(math.isnan(make(function)(passes, batch)[1].loss) for make in (by_autograd, compiled)), "is seen"


@pytest.mark.parametrize("how", [{}, {"double": True}, {"double": True, "dtype": "bf16"}], ids=["single", "double", "bf16"])
def test_target_ahead(how):
    """The same draws trained on with the target network's values computed for many updates at once, and batch by batch:
    the same losses and weights, over several moves of the target network in the middle of what is due."""
    how = dict(how)
    short = ["bf16"] if how.pop("dtype", None) else []
    if short and lacks("bf16", "cpu"):
        pytest.skip("needs bfloat16 instructions")
    ahead, plain = (
        parts_of(SNAKE_CNN, ["hand_written", *on, *short], off, target_every=5, **how).learner
        for on, off in ((["target_ahead"], []), ([], ["target_ahead"]))
    )
    seen = []
    look = ahead.look_ahead
    ahead.look_ahead = lambda batch: seen.append(len(batch.action) // 32) or look(batch)
    drawn = list(random_batches(parts_of(SNAKE_CNN), 24))
    for learner in (ahead, plain):
        batches = iter(drawn)
        learner.draw = lambda count, batches=batches: joined([next(batches) for _ in range(count)])
        for due in (7, 1, 16):
            learner.train(due)
    assert seen == [5, 2, 2, 5, 5, 4], "never past a move of the target network"
    assert ahead.read_means() == pytest.approx(plain.read_means(), rel=1e-5)
    for ours, theirs in zip(ahead.online.parameters(), plain.online.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("batch", "state_bytes", "most"), [(32, 28_224, 16), (64, 300, 16), (512, 28_224, 2), (4096, 28_224, 1)]
)
def test_what_is_drawn_together_fits_into_memory(batch, state_bytes, most):
    assert most_together(LearnerConfig(batch_size=batch), state_bytes) == most
    assert most == 1 or 2 * most * batch * state_bytes <= 64 * 2**20


def joined(batches):
    return Batch(*(None if fields[0] is None else torch.cat(fields) for fields in zip(*batches, strict=True)))


def test_values_of_a_target_network_that_has_moved_would_be_noticed():
    """target_ahead past a move of the target network: the test above must see it."""
    stale, plain = (
        parts_of(SNAKE_CNN, ["hand_written", *on], off, target_every=2).learner
        for on, off in ((["target_ahead"], []), ([], ["target_ahead"]))
    )
    stale._together = lambda done: 16
    drawn = list(random_batches(parts_of(SNAKE_CNN), 16))
    for learner in (stale, plain):
        batches = iter(drawn)
        learner.draw = lambda count, batches=batches: joined([next(batches) for _ in range(count)])
        learner.train(16)
    assert stale.read_means() != pytest.approx(plain.read_means(), rel=1e-5)


@pytest.mark.parametrize("how", [{}, {"double": True}, {"loss": "mse"}, {"clip_grad_norm": 0.1}], ids=str)
def test_lean_mlp(how):
    fast, plain = check_switch(SNAKE_MLP, "lean_mlp", on=["hand_written"], **how)
    assert type(fast.update.backprop).__name__ == "Lean"
    assert type(plain.update.backprop).__name__ == "HandWritten"


def test_lean_mlp_on_vectors():
    setup = Setup("CartPole-v1", {key: value for key, value in SNAKE_MLP.settings.items() if key != "actor.lanes"})
    parts = parts_of(setup, ["hand_written", "lean_mlp"]), parts_of(setup, ["hand_written"])
    rng = np.random.default_rng(0)

    def batches():
        for batch in random_batches(parts[1], 60):
            shape = (len(batch.action), 4)
            yield batch._replace(
                **{name: torch.from_numpy(rng.normal(size=shape).astype(np.float32)) for name in ("state", "next_state")}
            )

    same_updates(parts[0].learner, parts[1].learner, ((batch, batch) for batch in batches()))


@pytest.mark.parametrize("target", ["hard", "soft", "none"])
def test_lean_mlp_steps_as_adam_does(target):
    """Free-running: the weights after many steps, and the optimizer's state, which the other side goes on with."""
    fast, plain = (parts_of(SNAKE_MLP, ["hand_written", *on], target=target).learner for on in (["lean_mlp"], []))
    for batch in random_batches(parts_of(SNAKE_MLP), 40):
        fast.train_on(batch)
        plain.train_on(batch)
    for ours, theirs in zip(fast.online.parameters(), plain.online.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    again = parts_of(SNAKE_MLP, ["hand_written"], target=target).learner
    again.load_state(fast.state())
    last = next(random_batches(parts_of(SNAKE_MLP), 1, seed=9))
    again.train_on(last)
    plain.train_on(last)
    for ours, theirs in zip(again.online.parameters(), plain.online.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_lean_mlp_acts_as_the_network_does():
    parts = parts_of(SNAKE_MLP, ["hand_written", "lean_mlp"])
    network = parts.learner.online
    greedy = build_greedy(network, "cpu", frozenset({"lean_mlp"}))
    plain = build_greedy(network, "cpu", frozenset())
    rng = np.random.default_rng(1)
    for _ in range(5):
        states = (rng.random((33, 3, 10, 10)) < 0.05).astype(np.uint8) * rng.integers(
            256, size=(33, 3, 10, 10), dtype=np.uint8
        )
        assert greedy(states).tolist() == plain(states).tolist()
        for batch in random_batches(parts, 3):
            parts.learner.train_on(batch)  # new weights are acted with at once


def test_a_gradient_that_is_not_a_number_is_seen():
    learner = parts_of(SNAKE_MLP, ["hand_written", "lean_mlp"]).learner
    batch = next(random_batches(parts_of(SNAKE_MLP), 1))
    batch.returns[0], batch.weight[0] = float("nan"), 1.0
    learner.train_on(batch)
    assert math.isnan(learner.read_means()[0])
    assert all(weight.isnan().any() for weight in learner.online.parameters())


@pytest.mark.parametrize("switch", ["hand_written", "lean_mlp"])
def test_frozen_weights_stay_frozen(switch):
    """In a network of the user's own; the update by hand would move them."""

    def half_frozen(state_shape, num_actions):
        body = nn.Sequential(nn.Flatten(), nn.Linear(300, 16), nn.ReLU(), nn.Linear(16, num_actions))
        body[1].requires_grad_(False)
        return body

    with pytest.raises(UserError, match=f"{switch} does not apply to snake"):
        prepare("snake", settings=SNAKE_MLP.settings | {"switches.on": [switch]}, network=half_frozen)
    job = prepare("snake", settings=SNAKE_MLP.settings, network=half_frozen)
    learner = build(job.config, job.kind, "cpu", half_frozen).learner
    before = [weight.detach().clone() for weight in learner.online.parameters()]
    for batch in random_batches(parts_of(SNAKE_MLP), 3):
        learner.train_on(batch)
    moved = [not torch.equal(*pair) for pair in zip(before, learner.online.parameters(), strict=True)]
    assert moved == [False, False, True, True]


def twice_the_same(state_shape, num_actions):
    again = nn.Linear(16, 16)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(300, 16), nn.ReLU(), again, nn.ReLU(), again, nn.ReLU(), nn.Linear(16, num_actions)
    )


def test_weights_that_two_layers_share_have_the_gradients_of_both():
    """Of a network of the user's own: the backward pass written by hand has one place for each, so autograd does it."""
    job = prepare("snake", settings=SNAKE_MLP.settings, network=twice_the_same)
    bare = prepare("snake", settings=SNAKE_MLP.settings | {"switches.off": ["hand_written"]}, network=twice_the_same)
    fast, plain = (build(some.config, some.kind, "cpu", twice_the_same).learner for some in (job, bare))
    same_updates(fast, plain, ((batch, batch) for batch in random_batches(parts_of(SNAKE_MLP), 30)))


@pytest.mark.parametrize(
    ("optimizer", "name"), [("adam", "OnePassAdam"), ("adamw", "OnePassAdamW"), ("rmsprop", "OnePassRMSprop")]
)
def test_lean_backprop_goes_with_every_optimizer_in_a_loop_of_ones_own_too(optimizer, name):
    agent = Agent((4,), 2, settings={"learner.optimizer": optimizer}, device="cpu")
    assert type(agent._learner.optimizer).__name__ == name
    assert type(agent._learner.update.backprop).__name__ == "Lean"


def test_other_networks_are_not_lean():
    assert "lean_mlp" not in parts_of(SNAKE_CNN).switches
    assert "lean_mlp" not in prepare("CartPole-v1", settings={"network.hidden": []}).switches
    with pytest.raises(UserError, match="lean_mlp does not apply"):
        prepare("snake", settings={"network.kind": "cnn", "switches.on": ["lean_mlp"]})


def test_hand_written_on_the_nature_network():
    check_switch(CATCH_NATURE, "hand_written", updates=30, double=True)


def test_a_relu_after_flatten_is_not_forgotten():
    """In a network of the user's own: what is trained must be what acts."""

    def body(shape, actions):
        return nn.Sequential(
            nn.Conv2d(shape[0], 4, 3), nn.Flatten(), nn.ReLU(), nn.Linear(4 * (shape[1] - 2) * (shape[2] - 2), actions)
        )

    job = prepare("snake", settings={**SNAKE_CNN.settings, "device": "cpu"}, network=body)
    fast, plain = (
        build(
            job.config.model_copy(update={"switches": job.config.switches.model_copy(update={"off": off})}),
            job.kind,
            "cpu",
            body,
        )
        for off in (["target_ahead"], ["hand_written", "target_ahead"])
    )
    assert type(fast.learner.update.backprop).__name__ == "HandWritten"
    same_updates(fast.learner, plain.learner, ((batch, batch) for batch in random_batches(plain, 20)))


def test_hand_written_without_clipping_and_with_a_soft_target():
    check_switch(SNAKE_CNN, "hand_written", updates=50, clip_grad_norm=0, target_every=3)
    with_soft = parts_of(SNAKE_MLP, ["hand_written"], target="soft", target_tau=0.1)
    plain = parts_of(SNAKE_MLP, target="soft", target_tau=0.1)
    plain.learner.load_state(with_soft.learner.state())
    for batch in random_batches(plain, 20):
        with_soft.learner.train_on(batch)
        plain.learner.train_on(batch)
    torch.testing.assert_close(weights(with_soft.learner), weights(plain.learner), rtol=0, atol=1e-4)


def test_hand_written_builds_no_graph_and_trains_without_a_target_network():
    parts = parts_of(SNAKE_MLP, ["hand_written"], target="none")
    before = weights(parts.learner)
    for batch in random_batches(parts, 3):
        learned = parts.learner.update(batch)
        assert not learned.error.requires_grad
        assert not torch.as_tensor(learned.loss).requires_grad
    assert any(not torch.equal(before[name], after) for name, after in weights(parts.learner).items())


def test_a_network_of_the_users_own_keeps_autograd():
    from fastdqn.learner.fast.hand_written import why_not_by_hand
    from fastdqn.learner.network import QNetwork

    ours = parts_of(SNAKE_CNN).learner.online
    assert why_not_by_hand(ours) == ""
    for body in (
        nn.Linear(3, 2),
        nn.Sequential(nn.Linear(3, 2), nn.Tanh()),
        nn.Sequential(nn.Linear(3, 2), nn.ReLU()),
        nn.Sequential(nn.Linear(3, 2, bias=False)),
        nn.Sequential(nn.Flatten(0), nn.Linear(3, 2)),
        nn.Sequential(nn.Conv2d(1, 2, 3, padding="same"), nn.Flatten(), nn.Linear(18, 2)),
        nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(18, 2)),
    ):
        assert why_not_by_hand(QNetwork(body, "float32")), body


@pytest.mark.skipif(bool(lacks("bf16", "cpu")), reason="needs bfloat16 instructions")
@pytest.mark.parametrize("target", ["hard", "soft"])
def test_short_copies_of_the_weights_are_never_stale(target):
    """hand_written with bf16 keeps bfloat16 weights of the target network until it changes. The loss of every update must
    be the one that autocast finds for the weights as they are, with both networks moving all the time."""
    how = {"target": target, "target_every": 5, "target_tau": 0.3, "lr": 1e-2, "double": True}
    parts = parts_of(SNAKE_CNN, ["hand_written", "bf16"], **how)
    learner, config = parts.learner, parts.config.learner
    loss_of = make_loss(config, learner.online.head)
    expected = PassesAndLoss(learner.online, learner.target, loss_of, precision=autocast("cpu", torch.bfloat16))
    for batch in random_batches(parts, 40):
        loss, value = (number.item() for number in expected(batch)[:2])
        learner.train_on(batch)
        our_loss, our_value = learner.read_means()
        assert our_loss == pytest.approx(loss, rel=0.02)
        assert our_value == pytest.approx(value, abs=0.01 + 0.01 * abs(value))
