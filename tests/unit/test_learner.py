"""Loss, update, target network and networks, against numbers worked out by hand."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from fastdqn.build import build_learner, settle_switches, why_not_for
from fastdqn.config import LearnerConfig, NetworkConfig, SwitchConfig, make_config
from fastdqn.errors import UserError
from fastdqn.learner.backprop import Autograd, PassesAndLoss
from fastdqn.learner.heads import Values
from fastdqn.learner.learner import Learner
from fastdqn.learner.loss import make_loss
from fastdqn.learner.network import QNetwork, choose_kind, make_network
from fastdqn.learner.optimizer import make_optimizer
from fastdqn.learner.step import PlainStep
from fastdqn.learner.transfer import plain_transfer
from fastdqn.learner.update import Update, make_target_rule
from fastdqn.metrics import Timers
from fastdqn.schedules import learning_rate
from fastdqn.transition import Batch, EnvSpec


class Table(nn.Module):
    """Values by state number: row s holds the values of state s."""

    def __init__(self, rows):
        super().__init__()
        self.rows = nn.Parameter(torch.tensor(rows, dtype=torch.float32))
        self.head, self.own, self.layers, self.why_no_layers = Values(), False, (), "it is a table"
        self.why_not_channels_last = ""

    def forward(self, state):
        return self.rows[state.long()[:, 0]]

    outputs, evaluating = forward, QNetwork.evaluating


def batch(action=(0,), returns=(0.0,), discount=(0.0,), next_state=(1,), weight=(1.0,), state=(0,)):
    return Batch(
        state=torch.tensor(state)[:, None],
        action=torch.tensor(action),
        returns=torch.tensor(returns, dtype=torch.float32),
        discount=torch.tensor(discount, dtype=torch.float32),
        next_state=torch.tensor(next_state)[:, None],
        weight=torch.tensor(weight, dtype=torch.float32),
        index=None,
    )


# state 0 is where the action is taken, state 1 is what comes next
ONLINE = [[1.0, 2.0], [5.0, 4.0]]
TARGET = [[0.0, 0.0], [10.0, 20.0]]


def loss_function(online, target, double=False, error="mse"):
    config = LearnerConfig(double=double, loss=error)
    return PassesAndLoss(online, target, make_loss(config, online.head))


def loss_of(drawn, double=False, error="mse"):
    loss, q_mean, _ = loss_function(Table(ONLINE), Table(TARGET), double, error)(drawn)
    return loss.item(), q_mean.item()


# ---------------------------------------------------------------- loss


def test_the_target_takes_the_target_networks_best():
    """1 + 0.9 * 20 = 19; the online network says 2 for action 1: (19 - 2)^2 = 289."""
    assert loss_of(batch(action=[1], returns=[1], discount=[0.9])) == pytest.approx((289, 2))


def test_double_takes_the_online_networks_choice_and_the_target_networks_value():
    """Online prefers action 0 in state 1, which the target network values 10: 1 + 0.9 * 10 = 10; (10 - 2)^2 = 64."""
    assert loss_of(batch(action=[1], returns=[1], discount=[0.9]), double=True) == pytest.approx((64, 2))


def test_huber_is_linear_beyond_one_and_quadratic_within():
    assert loss_of(batch(action=[1], returns=[1], discount=[0.9]), error="huber")[0] == pytest.approx(17 - 0.5)
    assert loss_of(batch(action=[1], returns=[2.5]), error="huber")[0] == pytest.approx(0.5 * 0.5**2)


def test_a_discount_of_zero_ends_it():
    """No value of the next state enters: (3 - 1)^2 = 4, whatever comes next."""
    assert loss_of(batch(returns=[3]))[0] == pytest.approx(4)
    assert loss_of(batch(returns=[3]), double=True)[0] == pytest.approx(4)


def test_the_mean_over_the_batch_and_draws_of_weight_zero():
    two = {"state": [0, 0], "action": [0, 1], "returns": [3, 4], "discount": [0, 0], "next_state": [1, 1]}
    assert loss_of(batch(**two, weight=[1, 1])) == pytest.approx(((4 + 4) / 2, 1.5))
    assert loss_of(batch(**two, weight=[1, 0]))[0] == pytest.approx(4 / 2)
    assert loss_of(batch(**two, weight=[0, 0]))[0] == 0
    assert loss_of(batch(**two, weight=[0.5, 2]))[0] == pytest.approx((0.5 * 4 + 2 * 4) / 2)


def test_an_ignored_draw_moves_nothing():
    online = Table(ONLINE)
    two = batch(state=[0, 1], action=[0, 1], returns=[3, 4], discount=[0, 0], next_state=[1, 1], weight=[1, 0])
    loss_function(online, Table(TARGET))(two)[0].backward()
    assert online.rows.grad.tolist() == [[-2.0, 0.0], [0.0, 0.0]]  # d/dq of (3 - q)^2 / 2 at q = 1


@pytest.mark.parametrize("without_graph", [False, True], ids=["textbook", "no_grad"])
@pytest.mark.parametrize("double", [False, True])
def test_no_gradient_flows_through_the_target(double, without_graph):
    online, target = Table(ONLINE), Table(TARGET)
    config = LearnerConfig(double=double, loss="mse")
    drawn = batch(action=[1], returns=[1], discount=[0.9])
    passes = PassesAndLoss(online, target, make_loss(config, online.head), without_graph)
    assert [answer.requires_grad for answer in passes.look_ahead(drawn)] == [not without_graph]
    passes(drawn)[0].backward()
    assert target.rows.grad is None
    assert online.rows.grad[1].tolist() == [0.0, 0.0], "the next state's row is only looked at"


# ---------------------------------------------------------------- target network


def rule(online_network, target_network, **settings):
    return make_target_rule(online_network, target_network, LearnerConfig(**settings))


def test_hard_copies_every_n_updates():
    online, target = Table(ONLINE), Table(TARGET)
    follow = rule(online, target, target="hard", target_every=3)
    for update in (1, 2):
        follow(update)
        assert target.rows.tolist() == TARGET
    follow(3)
    assert target.rows.tolist() == ONLINE
    with torch.no_grad():
        online.rows += 1
    assert target.rows.tolist() == ONLINE, "a copy, not the same tensor"
    follow(4)
    assert target.rows.tolist() == ONLINE


def test_soft_mixes_at_every_update():
    online, target = Table(ONLINE), Table(TARGET)
    follow = rule(online, target, target="soft", target_tau=0.25)
    follow(1)
    expected = 0.75 * np.array(TARGET) + 0.25 * np.array(ONLINE)
    np.testing.assert_allclose(target.rows.detach(), expected)
    follow(2)
    np.testing.assert_allclose(target.rows.detach(), 0.75 * expected + 0.25 * np.array(ONLINE))


class Replayed:
    """A replay that gives the same batch for ever."""

    def __init__(self, drawn):
        self.drawn = drawn

    def sample(self, batch_size, batches=1):
        return self.drawn


SPEC = EnvSpec("table", (1,), np.dtype(np.int64), num_actions=2)


def learner_for(drawn, off=(), **settings) -> Learner:
    config = make_config("snake", "default", {f"learner.{key}": value for key, value in settings.items()})
    notes = []
    online = Table(ONLINE)
    config = config.model_copy(update={"switches": SwitchConfig(off=(*off, "target_ahead"))})
    switches, _ = settle_switches(config, "cpu", online, why_not_for(online, config))
    learner = build_learner(config, SPEC, 1, online, Replayed(drawn), "cpu", Timers(), switches, notes)
    assert notes == []
    return learner


def test_none_is_the_online_network_itself():
    learner = learner_for(batch(action=[1], returns=[1], discount=[0.9]), target="none", double=False)
    assert learner.target is learner.online
    learner.train(1)
    assert learner.online.rows.requires_grad


@pytest.mark.parametrize("target", ["hard", "soft"])
def test_the_target_network_is_never_trained(target):
    learner = learner_for(batch(action=[1], returns=[1], discount=[0.9]), target=target, target_every=1000, target_tau=1e-9)
    learner.train(20)
    assert learner.online.rows[0, 1].item() > 2.0
    np.testing.assert_allclose(learner.target.rows, ONLINE, atol=1e-6)
    assert not learner.target.rows.requires_grad


# ---------------------------------------------------------------- update


def gradient_after(drawn, **settings):
    config = LearnerConfig(loss="mse", **settings)
    online, target = Table(ONLINE), Table(TARGET)
    optimizer = torch.optim.SGD(online.parameters(), lr=1.0)
    passes = PassesAndLoss(online, target, make_loss(config, online.head))
    update = Update(Autograd(passes, passes, optimizer.zero_grad), PlainStep(optimizer, config.clip_grad_norm))
    assert not update(drawn).loss.requires_grad
    return np.array(ONLINE) - online.rows.detach().numpy()  # SGD with rate 1 moves by the gradient


def test_gradient_clipping():
    """(19 - 2): the gradient of the squared error is -2 * 17 = -34; its norm is cut to 10, its direction stays."""
    drawn = batch(action=[1], returns=[1], discount=[0.9])
    np.testing.assert_allclose(gradient_after(drawn, clip_grad_norm=0), [[0, -34], [0, 0]])
    np.testing.assert_allclose(gradient_after(drawn, clip_grad_norm=10), [[0, -10], [0, 0]], rtol=1e-5)
    np.testing.assert_allclose(gradient_after(drawn, clip_grad_norm=100), [[0, -34], [0, 0]])


def test_the_norm_is_of_the_whole_gradient():
    two = batch(state=[0, 0], action=[0, 1], returns=[4, 6], discount=[0, 0], next_state=[1, 1], weight=[1, 1])
    np.testing.assert_allclose(gradient_after(two, clip_grad_norm=0)[0], [-3, -4])
    np.testing.assert_allclose(gradient_after(two, clip_grad_norm=1)[0], [-0.6, -0.8], rtol=1e-5)


@pytest.mark.parametrize("off", [(), ("grads_to_none",)])
def test_gradients_do_not_add_up_over_updates(off):
    """With Adam both updates of a constant gradient move by lr; gradients that were kept would leave a trace in .grad."""
    learner = learner_for(batch(returns=[100]), off, loss="mse", lr=0.1, clip_grad_norm=0, target="none")
    learner.train(1)
    first = learner.online.rows.grad.clone()
    learner.train(1)
    assert abs(learner.online.rows.grad[0, 0]) < abs(first[0, 0]), "the value came nearer, so its gradient is smaller"


@pytest.mark.parametrize("one_call", [False, True])
def test_optimizers(one_call):
    network = Table(ONLINE)
    adam = make_optimizer(LearnerConfig(optimizer="adam", lr=0.3, optimizer_eps=1e-5), network, one_call=one_call)
    assert isinstance(adam, torch.optim.Adam)
    assert (adam.defaults["lr"], adam.defaults["eps"]) == (0.3, 1e-5)
    nature = LearnerConfig(optimizer="rmsprop", lr=2.5e-4, optimizer_eps=0.01)
    rmsprop = make_optimizer(nature, network, one_call=one_call)
    assert isinstance(rmsprop, torch.optim.RMSprop)
    assert {key: rmsprop.defaults[key] for key in ("lr", "eps", "alpha", "centered")} == {
        "lr": 2.5e-4,
        "eps": 0.01,
        "alpha": 0.95,
        "centered": True,
    }


def test_learning_rate_falls_to_its_end_at_the_step_limit():
    lr_at = learning_rate(make_config("x", "default", {"learner.lr": 0.1, "learner.lr_end": 0.02, "limits.steps": 1000}))
    assert [lr_at(step) for step in (0, 500, 1000, 2000)] == pytest.approx([0.1, 0.06, 0.02, 0.02])
    constant = learning_rate(make_config("x", "default", {"learner.lr": 0.1, "limits.steps": 1000}))
    assert constant(999) == 0.1
    without_end = {"learner.lr": 0.1, "learner.lr_end": 0.02, "limits.steps": None, "limits.minutes": 1}
    assert learning_rate(make_config("x", "default", without_end))(10**6) == 0.1


def test_set_lr_reaches_the_optimizer():
    learner = learner_for(batch())
    learner.set_lr(0.125)
    assert [group["lr"] for group in learner.optimizer.param_groups] == [0.125]


def test_means_are_over_the_updates_since_the_last_read():
    learner = learner_for(batch(returns=[3]), loss="mse", lr=1e-12, target="none")
    assert learner.read_means() == (None, None)
    learner.train(3)
    assert learner.updates == 3
    loss, q_mean = learner.read_means()
    assert (loss, q_mean) == pytest.approx((4, 1))
    assert learner.read_means() == (None, None)
    learner.train(1)
    assert learner.read_means()[0] == pytest.approx(4)


@pytest.mark.parametrize("target", ["hard", "soft", "none"])
def test_it_converges_to_the_value_that_solves_the_equation(target):
    """One state that leads to itself, reward 1, discount 0.5: the value is 2."""
    loop = batch(state=[0], action=[0], returns=[1], discount=[0.5], next_state=[0])
    learner = learner_for(loop, target=target, target_every=5, target_tau=0.2, lr=0.05, double=True)
    with torch.no_grad():
        learner.online.rows[0, 1] = -10
        learner.target.rows[0, 1] = -10
    learner.train(600)
    assert learner.online.rows[0, 0].item() == pytest.approx(2, abs=0.02)


# ---------------------------------------------------------------- networks


@pytest.mark.parametrize(
    ("kind", "shape", "chosen"),
    [
        ("auto", (4,), "mlp"),
        ("auto", (4, 5), "mlp"),
        ("auto", (3, 10, 10), "cnn"),
        ("auto", (4, 35, 84), "cnn"),
        ("auto", (4, 36, 36), "nature"),
        ("auto", (4, 84, 84), "nature"),
        ("mlp", (4, 84, 84), "mlp"),
        ("cnn", (4, 84, 84), "cnn"),
    ],
)
def test_the_network_follows_from_the_observation(kind, shape, chosen):
    assert choose_kind(kind, shape) == chosen


def shapes_of(network):
    return [tuple(parameter.shape) for parameter in network.parameters() if parameter.dim() > 1]


def test_mlp():
    network = make_network(NetworkConfig(hidden=(16, 8)), (3, 2), np.float32, 5)
    assert shapes_of(network) == [(16, 6), (8, 16), (5, 8)]
    assert network(torch.zeros(7, 3, 2)).shape == (7, 5)


def test_mlp_without_a_hidden_layer_is_linear():
    assert shapes_of(make_network(NetworkConfig(hidden=()), (6,), np.float32, 5)) == [(5, 6)]


def test_small_cnn_keeps_every_cell():
    network = make_network(NetworkConfig(channels=(4, 6), hidden=(8,)), (3, 5, 7), np.uint8, 2)
    assert shapes_of(network) == [(4, 3, 3, 3), (6, 4, 3, 3), (8, 6 * 5 * 7), (2, 8)]
    assert network(torch.zeros(2, 3, 5, 7, dtype=torch.uint8)).shape == (2, 2)


def test_nature_is_natures():
    network = make_network(NetworkConfig(kind="nature"), (4, 84, 84), np.uint8, 6)
    assert shapes_of(network) == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 3136), (6, 512)]
    assert sum(parameter.numel() for parameter in network.parameters()) == 1_687_206
    small = make_network(NetworkConfig(kind="nature", channels=(4, 5, 6), hidden=(7,)), (1, 36, 36), np.uint8, 2)
    assert shapes_of(small) == [(4, 1, 8, 8), (5, 4, 4, 4), (6, 5, 3, 3), (7, 6), (2, 7)]


def test_widths_that_nobody_chose():
    assert shapes_of(make_network(NetworkConfig(), (6,), np.float32, 5)) == [(256, 6), (256, 256), (5, 256)]
    small = shapes_of(make_network(NetworkConfig(), (3, 5, 5), np.uint8, 2))
    assert small == [(32, 3, 3, 3), (64, 32, 3, 3), (256, 64 * 25), (2, 256)]
    assert shapes_of(make_network(NetworkConfig(), (4, 84, 84), np.uint8, 6))[-1] == (6, 512)


def test_nature_has_three_convolutions():
    with pytest.raises(UserError, match=r"three convolutions, and network\.channels names 2"):
        make_network(NetworkConfig(kind="nature", channels=(4, 5)), (4, 84, 84), np.uint8, 2)


@pytest.mark.parametrize(
    ("kind", "shape", "sentence"),
    [
        ("cnn", (4,), r"network.kind=cnn needs images .* not shape \(4,\)"),
        ("nature", (4, 4), "network.kind=nature needs images"),
        ("nature", (3, 35, 84), r"36x36 or more, not \(3, 35, 84\)\. Use cnn"),
    ],
)
def test_networks_that_do_not_fit_the_observation(kind, shape, sentence):
    with pytest.raises(UserError, match=sentence):
        make_network(NetworkConfig(kind=kind), shape, np.uint8, 2)


class Own(nn.Module):
    def __init__(self, state_shape, num_actions):
        super().__init__()
        self.layer = nn.Linear(int(np.prod(state_shape)), num_actions)

    def forward(self, state):
        assert state.dtype == torch.float32
        return self.layer(state.flatten(1))


def test_a_network_of_the_users_own():
    network = make_network(NetworkConfig(), (2, 3), np.uint8, 4, own=Own)
    assert shapes_of(network) == [(4, 6)]
    assert network(torch.full((5, 2, 3), 255, dtype=torch.uint8)).shape == (5, 4)


@pytest.mark.parametrize(
    "own",
    [
        lambda shape, actions: Own(shape, actions + 1),
        lambda shape, actions: Own(shape, 1),
        lambda shape, actions: nn.Sequential(Own(shape, actions), nn.Flatten(0)),
    ],
)
def test_a_network_of_the_users_own_with_the_wrong_answer(own):
    """Found at the start, and not as an illegal action or a strange broadcast later."""
    with pytest.raises(UserError, match="one value per action"):
        make_network(NetworkConfig(), (2, 3), np.uint8, 4, own=own)


def test_lazy_layers_are_made_when_the_network_is():
    network = make_network(
        NetworkConfig(), (2, 3), np.float32, 4, own=lambda shape, n: nn.Sequential(nn.Flatten(), nn.LazyLinear(n))
    )
    assert shapes_of(network) == [(4, 6)]


# ---------------------------------------------------------------- bytes


def test_bytes_are_scaled_by_the_environments_dtype_not_the_tensors():
    """A replay that keeps bytes as floats gives the same numbers as one that keeps them as bytes."""
    network = make_network(NetworkConfig(hidden=(8,)), (4,), np.uint8, 2)
    pixels = torch.tensor([[0, 1, 128, 255]], dtype=torch.uint8)
    assert torch.equal(network(pixels), network(pixels.to(torch.float32)))
    seen = QNetwork(nn.Identity(), np.uint8)(pixels)
    np.testing.assert_allclose(seen, [[0, 1 / 255, 128 / 255, 1]], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint16", "bool"])
def test_other_dtypes_are_taken_as_they_are(dtype):
    values = np.array([[0, 1, 1, 0]]).astype(dtype)
    seen = QNetwork(nn.Identity(), values.dtype)(torch.from_numpy(values))
    assert seen.dtype == torch.float32
    assert seen.tolist() == [[0, 1, 1, 0]]


def test_batches_reach_the_device_with_their_dtypes():
    drawn = Batch(
        np.zeros((2, 3), np.uint8),
        np.zeros(2, np.int64),
        np.zeros(2, np.float32),
        np.ones(2, np.float32),
        torch.zeros(2, 3),
        np.ones(2, np.float32),
        np.zeros((2, 2), np.int64),
    )
    moved = plain_transfer("cpu")(drawn)
    assert [value.dtype for value in moved[:-1]] == [
        torch.uint8,
        torch.int64,
        torch.float32,
        torch.float32,
        torch.float32,
        torch.float32,
    ]
    assert isinstance(moved.index, np.ndarray)


def test_the_target_begins_as_a_copy():
    learner = learner_for(batch(), target="hard")
    assert learner.target is not learner.online
    assert torch.equal(learner.target.rows, learner.online.rows)
    before = copy.deepcopy(learner.state())
    learner.train(3)
    learner.load_state(before)
    assert learner.updates == 0
    assert learner.online.rows.tolist() == ONLINE


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop"])
def test_a_state_from_a_graph_goes_on_without_one(optimizer):
    """Saved where whatever changes is a tensor, loaded where nothing is: how it is computed belongs to the learner."""
    drawn = batch(returns=[3.0])
    learner = learner_for(drawn, off=("one_pass_optimizer",), optimizer=optimizer)
    learner.train(2)
    state = learner.state()
    for group in state["optimizer"]["param_groups"]:
        group |= {"capturable": True, "lr": torch.tensor(group["lr"])}
    other = learner_for(drawn, off=("one_pass_optimizer",), optimizer=optimizer)
    other.load_state(state)
    for each in (learner, other):
        each.train(1)
    assert not other.optimizer.param_groups[0]["capturable"]
    torch.testing.assert_close(other.online.rows, learner.online.rows)
