"""Losses, bootstrap rules and the network's ends against numbers worked out by brute force."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import fastdqn
from fastdqn.build import build
from fastdqn.config import LearnerConfig, NetworkConfig, make_config
from fastdqn.errors import UserError
from fastdqn.learner.c51 import Categorical, CategoricalLoss, project
from fastdqn.learner.dueling import Dueling
from fastdqn.learner.fast.output_gradient import by_autograd, compiled_c51
from fastdqn.learner.flops import update_flops
from fastdqn.learner.heads import Values
from fastdqn.learner.loss import LOSSES, make_head, make_loss, scalar
from fastdqn.learner.network import make_network
from fastdqn.learner.passes import Passes
from fastdqn.prepare import prepare
from fastdqn.run.model import load_model, read_facts, save_model
from fastdqn.transition import Batch

SIZE, ACTIONS, ATOMS = 16, 3, 7
C51 = LearnerConfig(loss="c51", atoms=ATOMS, v_min=-2, v_max=4)


def drawn(seed=0):
    rng = torch.Generator().manual_seed(seed)
    return Batch(
        state=None,
        action=torch.randint(ACTIONS, (SIZE,), generator=rng),
        returns=2 * torch.randn(SIZE, generator=rng),
        discount=torch.rand(SIZE, generator=rng) * (torch.rand(SIZE, generator=rng) > 0.3),
        next_state=None,
        weight=torch.rand(SIZE, generator=rng),
        index=None,
    )


def outputs(*shape, seed=1):
    return 3 * torch.randn(SIZE, *shape, generator=torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------- c51


def projected_by_hand(returns, chances, support):
    """As the paper's algorithm has it: atom by atom, its mass shared by the two neighbours."""
    v_min, v_max, step = support[0], support[-1], support[1] - support[0]
    laid = np.zeros((len(returns), len(support)))
    for b in range(len(returns)):
        for i in range(len(support)):
            place = (min(max(returns[b][i], v_min), v_max) - v_min) / step
            low, high = math.floor(place + 1e-9), math.ceil(place - 1e-9)
            if low == high:
                laid[b, low] += chances[b][i]
            else:
                laid[b, low] += chances[b][i] * (high - place)
                laid[b, high] += chances[b][i] * (place - low)
    return laid


def test_the_projection_is_the_papers():
    support = torch.linspace(-2, 4, ATOMS)
    batch, chances = drawn(), outputs(ATOMS).softmax(1)
    returns = batch.returns[:, None] + batch.discount[:, None] * support
    assert (returns < -2).any(), "some mass lies beyond each end"
    assert (returns > 4).any()
    ours = project(returns, chances, support)
    np.testing.assert_allclose(ours, projected_by_hand(returns.tolist(), chances.tolist(), support.tolist()), atol=1e-5)
    torch.testing.assert_close(ours.sum(1), torch.ones(SIZE))


@pytest.mark.parametrize("double", [False, True])
def test_c51_is_the_cross_entropy_to_the_projected_target(double):
    head = Categorical.of(C51)
    loss = make_loss(C51.model_copy(update={"double": double}), head)
    batch, online = drawn(), outputs(ACTIONS, ATOMS).requires_grad_()
    target_next, online_next = outputs(ACTIONS, ATOMS, seed=2), outputs(ACTIONS, ATOMS, seed=3)
    ours = loss(Passes(online, target_next, online_next if double else None), batch)
    support = np.linspace(-2, 4, ATOMS)
    for b in range(SIZE):
        choosing = (online_next if double else target_next)[b].softmax(1).numpy() @ support
        chances = target_next[b, int(choosing.argmax())].softmax(0).numpy()
        moved = batch.returns[b].item() + batch.discount[b].item() * support
        wanted = projected_by_hand([moved], [chances], support)[0]
        log_chances = online[b, batch.action[b]].detach().log_softmax(0).numpy()
        assert ours.loss[b].item() == pytest.approx(-(wanted * log_chances).sum(), rel=1e-4)
        assert ours.value[b].item() == pytest.approx((np.exp(log_chances) * support).sum(), rel=1e-4, abs=1e-5)
    torch.testing.assert_close(ours.error, ours.loss.detach())
    (gradient,) = torch.autograd.grad(ours.loss.sum(), online)
    taken = torch.nn.functional.one_hot(batch.action, ACTIONS).bool()
    assert gradient[taken].abs().sum() > 0
    assert gradient[~taken].abs().sum() == 0


@pytest.mark.parametrize("double", [False, True])
def test_the_compiled_twin_of_c51_is_the_one_in_torch(double):
    config = C51.model_copy(update={"double": double})
    plain, twin = (make_loss(config, Categorical.of(C51)) for _ in range(2))
    third = outputs(ACTIONS, ATOMS, seed=3) if double else None
    passes, batch = Passes(outputs(ACTIONS, ATOMS), outputs(ACTIONS, ATOMS, seed=2), third), drawn()
    (expected, theirs), (gradient, ours) = by_autograd(plain)(passes, batch), compiled_c51(twin)(passes, batch)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(ours.error, theirs.error, rtol=1e-4, atol=1e-5)
    assert (ours.loss, ours.q_mean) == pytest.approx((theirs.loss.item(), theirs.q_mean.item()), rel=1e-4)
    torch.testing.assert_close(twin.beyond, plain.beyond)
    broken = passes._replace(online=torch.full_like(passes.online, float("nan")))
    assert math.isnan(compiled_c51(twin)(broken, batch)[1].loss), "is seen"
    broken = batch._replace(returns=torch.full_like(batch.returns, float("nan")))
    assert math.isnan(compiled_c51(twin)(passes, broken)[1].loss), "and not clamped away"


def test_a_line_when_mass_lies_beyond_the_range():
    head = Categorical.of(C51)
    loss = CategoricalLoss(head, make_loss(C51, head).bootstrap)
    batch = drawn()
    passes = Passes(outputs(ACTIONS, ATOMS), outputs(ACTIONS, ATOMS, seed=2))
    loss(passes, batch._replace(returns=torch.zeros(SIZE)))
    assert loss.advice() == ""
    loss(passes, batch._replace(returns=torch.full((SIZE,), 9.0)))
    assert "100% of the TD targets' mass lies beyond learner.v_min=-2 and learner.v_max=4" in loss.advice()
    assert loss.advice() == "", "said of what came since"


def test_the_values_of_a_distribution_are_its_means():
    head = make_head(C51)
    logits = torch.full((1, 2, ATOMS), -30.0)
    logits[0, 0, 0] = logits[0, 1, ATOMS - 1] = 30.0
    torch.testing.assert_close(head(logits), torch.tensor([[-2.0, 4.0]]))


# ---------------------------------------------------------------- munchausen


def test_munchausens_target_is_the_papers():
    config = LearnerConfig(munchausen=True, munchausen_alpha=0.8, munchausen_tau=0.5, munchausen_clip=-0.7, loss="mse")
    loss = make_loss(config, Values())
    batch, online = drawn(), outputs(ACTIONS)
    target_next, target = outputs(ACTIONS, seed=2), outputs(ACTIONS, seed=3)
    ours = loss(Passes(online, target_next, None, target), batch)
    clipped = 0
    for b in range(SIZE):
        policy, next_policy = (np.exp(q.numpy() / 0.5) / np.exp(q.numpy() / 0.5).sum() for q in (target[b], target_next[b]))
        log = 0.5 * math.log(policy[batch.action[b]])
        clipped += log < -0.7
        value = (next_policy * (target_next[b].numpy() - 0.5 * np.log(next_policy))).sum()
        wanted = batch.returns[b].item() + 0.8 * max(log, -0.7) + batch.discount[b].item() * value
        assert ours.error[b].item() == pytest.approx(online[b, batch.action[b]].item() - wanted, abs=1e-4)
    assert 0 < clipped < SIZE


def test_a_greedy_policy_makes_munchausen_the_plain_target():
    config = LearnerConfig(munchausen=True, munchausen_alpha=0.0, munchausen_tau=1e-3)
    passes = Passes(outputs(ACTIONS), outputs(ACTIONS, seed=2), None, outputs(ACTIONS, seed=3))
    soft, hard = (make_loss(each, Values())(passes, drawn()) for each in (config, LearnerConfig()))
    torch.testing.assert_close(soft.error, hard.error, rtol=0, atol=2e-3)


def test_targets_of_the_wrong_network_would_be_noticed():
    """Planted: target and online swapped."""
    config, batch = LearnerConfig(double=True), drawn()
    one, other = outputs(ACTIONS, seed=2), outputs(ACTIONS, seed=3)
    loss = make_loss(config, Values())
    right, wrong = (loss(Passes(outputs(ACTIONS), *pair), batch) for pair in ((one, other), (other, one)))
    assert not torch.allclose(right.error, wrong.error)


# ---------------------------------------------------------------- dueling, impala


def test_dueling_by_hand():
    layer = Dueling(1, 3)
    with torch.no_grad():
        layer.value.weight.fill_(2.0), layer.value.bias.fill_(1.0)
        layer.advantage.weight.copy_(torch.tensor([[1.0], [2.0], [6.0]])), layer.advantage.bias.zero_()
    # v = 2 * 3 + 1 = 7, advantages 10, 20, 60 with the mean 30
    assert layer(torch.tensor([[3.0, 10.0]])).tolist() == [[-13.0, -3.0, 37.0]]


def test_dueling_of_distributions_joins_atom_by_atom():
    layer = Dueling(4, 3, outputs=5)
    features = torch.randn(2, 8)
    value, advantage = layer.value(features[:, :4]), layer.advantage(features[:, 4:]).view(2, 3, 5)
    expected = value.view(2, 1, 5) + advantage - advantage.mean(1, keepdim=True)
    torch.testing.assert_close(layer(features).view(2, 3, 5), expected)


@pytest.mark.parametrize("count", [1, 5])
def test_a_dueling_end_is_one_linear_layer(count):
    layer = Dueling(4, 3, outputs=count)
    weight, bias = layer.as_linear([own.detach() for own in layer.parameters()])
    features = torch.randn(6, 8)
    expected = layer(features)
    torch.testing.assert_close(torch.nn.functional.linear(features, weight, bias), expected)
    slope = torch.randn_like(expected)
    gradients = [torch.zeros_like(own) for own in layer.parameters()]
    layer.split_gradients(slope.t() @ features, slope.sum(0), gradients)
    torch.testing.assert_close(gradients, list(torch.autograd.grad(expected, list(layer.parameters()), slope)))


def test_both_streams_of_a_dueling_network_have_the_last_hidden_layer():
    network = make_network(NetworkConfig(hidden=(16, 8), dueling=True, norm="layer"), (6,), np.float32, 3)
    shapes = [tuple(weight.shape) for weight in network.parameters() if weight.dim() > 1]
    assert shapes == [(16, 6), (16, 16), (1, 8), (3, 8)]
    assert [layer.normalized_shape for layer in network.modules() if isinstance(layer, nn.LayerNorm)] == [(16,), (16,)]
    with pytest.raises(UserError, match=r"network\.dueling needs a hidden layer"):
        make_network(NetworkConfig(hidden=(), dueling=True), (6,), np.float32, 3)


def test_impala_counts_its_weights():
    """The published network for 84x84x4 with widths 16, 32, 32 and 256 features: 11x11 images reach the dense layer."""
    network = make_network(NetworkConfig(kind="impala"), (4, 84, 84), np.uint8, 6)
    convolutions = [(4, 16), *[(16, 16)] * 4, (16, 32), *[(32, 32)] * 4, (32, 32), *[(32, 32)] * 4]
    weights = sum(9 * a * b + b for a, b in convolutions) + 32 * 11 * 11 * 256 + 256 + 256 * 6 + 6
    assert sum(weight.numel() for weight in network.parameters()) == weights
    assert network(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, 6)
    wide = make_network(NetworkConfig(kind="impala", channels=(32, 64, 64), dueling=True), (4, 84, 84), np.uint8, 6)
    assert wide(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, 6)
    with pytest.raises(UserError, match="halves its images 3 times"):
        make_network(NetworkConfig(kind="impala"), (4, 8, 8), np.uint8, 6)


def test_a_residual_block_keeps_its_input():
    from fastdqn.learner.impala import Residual

    block = Residual(2)
    x = torch.randn(1, 2, 4, 4)
    before = x.clone()
    expected = before + block.second(block.first(before.relu()).relu())
    torch.testing.assert_close(block(x), expected)
    assert torch.equal(x, before)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"learner.loss": "hubert"}, "Unknown loss 'hubert'.*huber"),
        ({"learner.loss": "c51", "learner.munchausen": True}, "learner.loss=c51 does not go together with munchausen"),
        ({"learner.v_min": 5, "learner.v_max": 5}, "learner.v_min=5 must be smaller than learner.v_max=5"),
        ({"learner.optimizer": "sgd"}, "learner.optimizer='sgd' is out of place"),
        ({"learner.atoms": 1}, "learner.atoms=1 is out of place"),
        ({"replay.prioritised": True, "switches.off": ["frame_ring"]}, "prioritised"),
    ],
)
def test_what_cannot_be_learned_is_refused_with_a_sentence(settings, sentence):
    with pytest.raises(UserError, match=sentence):
        prepare("CartPole-v1", settings=settings)


def test_an_own_network_must_answer_as_the_head_wants():
    def deaf(state_shape, outputs):
        return nn.Sequential(nn.Flatten(), nn.Linear(4, 2))

    prepare("CartPole-v1", network=deaf)
    with pytest.raises(UserError, match=r"shape \(2, 2\); it must be \(2, 102\), 51 per action"):
        prepare("CartPole-v1", settings={"learner.loss": "c51"}, network=deaf)


def test_a_setting_that_has_no_effect_is_told():
    settings = {"learner.v_max": 5, "learner.weight_decay": 0.1, "learner.munchausen": True, "learner.double": True}
    job = prepare("CartPole-v1", settings=settings)
    assert build(job.config, job.kind, "cpu").notes == [
        "learner.v_max=5 has no effect: it is for learner.loss=c51",
        "learner.weight_decay=0.1 has no effect: it is for learner.optimizer=adamw",
        "learner.double has no effect beside learner.munchausen",
    ]
    used = settings | {"learner.loss": "c51", "learner.optimizer": "adamw", "learner.munchausen": False}
    assert prepare("CartPole-v1", settings=used).config.learner.idle() == []


# ---------------------------------------------------------------- what else knows about them


def test_flops_count_the_passes_of_the_bootstrap_rule():
    def passes(**learner):
        config = make_config("x", "default", {f"learner.{key}": value for key, value in learner.items()})
        return update_flops(config, 1) / config.learner.batch_size

    assert (passes(double=False), passes(double=True), passes(munchausen=True)) == (4, 5, 5)


def test_a_model_of_distributions_says_so_and_is_refused_elsewhere(tmp_path):
    def network(**learner):
        return make_network(NetworkConfig(hidden=(8,)), (4,), np.float32, 2, head=make_head(LearnerConfig(**learner)))

    file = tmp_path / "model.safetensors"
    save_model(file, network(loss="c51", v_max=20), {"env_id": "x"})
    assert read_facts(file) == {"env_id": "x", "loss": "c51", "atoms": 51, "support": [-10.0, 20.0]}
    load_model(file, network(loss="c51", v_max=20))
    with pytest.raises(UserError, match=r"trained with support \[-10.0, 20.0\], and this network has \[-10.0, 10.0\]"):
        load_model(file, network(loss="c51"))
    with pytest.raises(UserError, match="does not fit"):
        load_model(file, network())


@pytest.mark.parametrize(
    "settings",
    [{"learner.loss": "c51"}, {"network.dueling": True, "network.norm": "layer"}, {"replay.prioritised": True}],
    ids=["c51", "dueling", "prioritised"],
)
def test_a_run_with_it_is_saved_and_plays(settings, runs):
    run = fastdqn.train("CartPole-v1", steps=1500, settings=settings | {"evaluator.episodes": 2}, quiet=True)
    assert run.updates > 100
    player = fastdqn.load(run)
    values = player.values(np.zeros(4, np.float32))
    assert values.shape == (2,)
    assert np.isfinite(values).all()


def test_an_agent_feeds_back():
    agent = fastdqn.Agent(4, 2, settings={"replay.prioritised": True, "learner.batch_size": 8}, device="cpu")
    rng = np.random.default_rng(0)
    obs = rng.normal(size=4)
    for _ in range(40):
        following = rng.normal(size=4)
        agent.remember(obs, int(rng.integers(2)), float(rng.normal()), following, False)
        obs = following
    before = agent.memory.state()["sampler"]["priorities"]["stored"]
    agent.learn()
    after = agent.memory.state()["sampler"]["priorities"]["stored"]
    assert 1 <= (before != after).sum() <= 8, "the priorities of what was drawn, and no others"


# ---------------------------------------------------------------- a loss of one's own


def quartic(values, td_targets, reduction):
    return (values - td_targets) ** 4


PATHS = {
    "autograd": (["hand_written"], []),
    "by hand": (["lean_mlp"], []),
    "lean": ([], []),
    "prefetched": ([], [("learner.prefetch", 1)]),
}


@pytest.mark.parametrize("path", PATHS)
def test_a_loss_of_ones_own_trains_on_every_path(path, monkeypatch):
    """Adding a loss is one row of the table."""
    monkeypatch.setitem(LOSSES, "quartic", scalar("quartic", quartic))
    off, more = PATHS[path]
    settings = {"learner.loss": "quartic", "switches.off": off, "replay.warmup_steps": 200, "learner.lr": 1e-3, **dict(more)}
    job = prepare("CartPole-v1", settings=settings)
    parts = build(job.config, job.kind, "cpu")
    from fastdqn.runner.inline import InlineRunner
    from fastdqn.runner.ports import Stop

    runner = InlineRunner(parts, Stop(), lambda row: None, lambda score: None)
    runner.start()
    losses = []
    for _ in range(300):
        runner.round()
        if (mean := parts.learner.read_means()[0]) is not None:
            losses.append(mean)
    runner.close()
    assert parts.learner.updates > 200
    assert all(math.isfinite(loss) for loss in losses)
    (batch,) = [parts.learner.draw(1)]
    backprop = parts.learner.update.backprop
    learned = backprop(batch)
    assert float(learned.loss) == pytest.approx((batch.weight * learned.error**4).mean().item(), rel=1e-4)
