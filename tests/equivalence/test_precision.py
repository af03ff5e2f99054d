"""bf16, fp16 and tf32 promise SAME_DISTRIBUTION: one update from the same weights and batch within tolerance, and the same
is learned. cudnn_benchmark promises SAME_NUMBERS. Weights, their gradients and the optimizer stay float32."""

import numpy as np
import pytest
import torch

import fastdqn
from fastdqn.config import LearnerConfig
from fastdqn.device import hardware
from fastdqn.errors import UserError
from fastdqn.learner.backprop import Autograd, PassesAndLoss
from fastdqn.learner.fast.precision import autocast, set_cudnn_search, set_tensor_cores
from fastdqn.learner.loss import make_loss
from fastdqn.learner.step import ScaledStep, weights_of
from fastdqn.learner.update import Update
from tests.equivalence.updates import (
    CATCH_NATURE,
    SNAKE_CNN,
    SNAKE_MLP,
    gradients,
    nothing,
    parts_of,
    random_batches,
    same_updates,
    weights,
)
from tests.learning.test_small_tasks import SMALL, MatchEnv

MISSING = hardware.lacks("bf16", "cpu")
needs_bf16 = pytest.mark.skipif(bool(MISSING), reason=f"bf16 needs {MISSING}")
DOUBLE = pytest.mark.parametrize("double", [False, True], ids=["single", "double"])
NETWORKS = pytest.mark.parametrize("setup", [SNAKE_MLP, SNAKE_CNN, CATCH_NATURE], ids=["mlp", "cnn", "nature"])
TRAINED_UPDATES, COMPARED_UPDATES = 100, 20


@pytest.fixture(autouse=True)
def flags_of_the_process():
    """tf32 and cudnn_benchmark are set for the whole process, by whoever builds last."""
    matrices, convolutions = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    search = torch.backends.cudnn.benchmark
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matrices, convolutions
    torch.backends.cudnn.benchmark = search


def gradient_of(learner):
    return torch.cat([gradient.flatten() for gradient in gradients(learner).values()]).double()


def compare_gradients(short, plain, before=(nothing, nothing), fault=lambda learner: None):
    """Both learners from the same weights on the same batches, after some training: cosines of their gradients, ratios of
    the norms, relative differences of the losses. `before` is called before the update of either; `fault` is planted."""
    for batch in random_batches(short, 10, seed=3):
        short.learner.train_on(batch)  # a loss scaler finds its scale
    for batch in random_batches(plain, TRAINED_UPDATES, seed=1):
        plain.learner.train_on(batch)
    measured = []
    for batch in random_batches(plain, COMPARED_UPDATES, seed=2):
        short.learner.load_state(plain.learner.state())
        fault(short.learner)
        found = []
        for parts, prepare_side in zip((short, plain), before, strict=True):
            parts.learner.read_means()
            prepare_side()
            parts.learner.train_on(batch)
            found.append((gradient_of(parts.learner), parts.learner.read_means()[0]))
        (ours, our_loss), (theirs, loss) = found
        cosine = torch.cosine_similarity(ours, theirs, dim=0).item()
        measured.append((cosine, (ours.norm() / theirs.norm()).item(), abs(our_loss - loss) / loss))
    return np.array(measured).T


def within_tolerance(cosines, ratios, losses):
    """For the 8 bits of bfloat16. Seen: cosines of 0.992 and above, norms off by up to 3 %, losses by up to 0.15 %. Most of
    it is a near tie between two actions, or a ReLU near its edge, decided the other way."""
    at_each = cosines.min() > 0.985 and np.abs(ratios - 1).max() < 0.05 and losses.max() < 0.005
    return at_each and cosines.mean() > 0.998 and abs(ratios.mean() - 1) < 0.01


# ---------------------------------------------------------------- bf16


@needs_bf16
@NETWORKS
@DOUBLE
def test_bf16_gives_nearly_the_same_gradient(setup, double):
    short, plain = parts_of(setup, on=["bf16"], double=double), parts_of(setup, double=double)
    assert short.switches ^ plain.switches == {"bf16"}
    cosines, ratios, losses = compare_gradients(short, plain)
    assert within_tolerance(cosines, ratios, losses), (cosines, ratios, losses)
    assert losses.min() > 0, "the same to the last bit: nothing was cast"


def taken_gradients(learner):
    """As the lean update left them for its optimizer: those of products are short and in no weight's `grad`."""
    left = zip(learner.online.named_parameters(), learner.optimizer._gradients, strict=True)
    return {name: gradient.float() for (name, _), gradient in left}


@needs_bf16
@DOUBLE
@pytest.mark.parametrize("hidden", [[32, 32], [32, 48, 32]], ids=len)
def test_bf16_in_the_lean_update_gives_nearly_the_same_gradient(monkeypatch, double, hidden):
    setup = SNAKE_MLP._replace(settings=SNAKE_MLP.settings | {"network.hidden": hidden})
    monkeypatch.setattr("tests.equivalence.test_precision.gradients", taken_gradients)
    short, plain = (parts_of(setup, ["hand_written", "lean_mlp", *on], double=double) for on in (["bf16"], []))
    assert short.switches ^ plain.switches == {"bf16"}
    assert type(short.learner.update.backprop).__name__ == "Lean"
    cosines, ratios, losses = compare_gradients(short, plain)
    assert within_tolerance(cosines, ratios, losses), (cosines, ratios, losses)
    assert losses.min() > 0, "the same to the last bit: nothing was cast"
    assert [copy is not None for copy in short.learner.update.backprop._mine.copies].count(True) == 2 * (len(hidden) - 1)


@needs_bf16
def test_a_lean_network_without_products_shortens_nothing():
    setup = SNAKE_MLP._replace(settings=SNAKE_MLP.settings | {"network.hidden": [32]})
    short, plain = (parts_of(setup, ["hand_written", "lean_mlp", *on]) for on in (["bf16"], []))
    same_updates(short.learner, plain.learner, ((batch, batch) for batch in random_batches(plain, 20)))


@needs_bf16
@pytest.mark.parametrize("target", ["hard", "soft", "none"])
def test_bfloat16_weights_of_the_lean_update_are_never_old(target):
    """Three learners from one state, one of them fresh: whoever computed with old weights would have another loss."""
    old, other, fresh = (parts_of(SNAKE_MLP, ["hand_written", "lean_mlp", "bf16"], target=target).learner for _ in range(3))
    *batches, last = random_batches(parts_of(SNAKE_MLP), 12)
    for batch in batches:
        old.train_on(batch)
        other.train_on(batch)
        for weight, copy in zip(old.online.parameters(), old.update.backprop._mine.copies, strict=True):
            assert copy is None or torch.equal(weight.data.bfloat16(), copy)
    with torch.no_grad():
        for weight in old.online.parameters():
            weight.mul_(0.5)  # by somebody else: from a file, say
    old.weights_were_loaded()
    for learner in (other, fresh):
        learner.load_state(old.state())
    for learner in (old, other, fresh):
        learner.read_means()
        learner.train_on(last)
    assert old.read_means() == other.read_means() == fresh.read_means()


@needs_bf16
def test_a_coarser_format_would_be_noticed():
    """A planted fault: weights of 4 bits."""

    @torch.no_grad()
    def shorten(learner):
        for weight in learner.online.parameters():
            weight.copy_(weight.to(torch.float8_e4m3fn))

    assert not within_tolerance(*compare_gradients(parts_of(SNAKE_MLP, on=["bf16"]), parts_of(SNAKE_MLP), fault=shorten))


@needs_bf16
@NETWORKS
@DOUBLE
def test_every_weight_gets_a_gradient_and_stays_float32(setup, double):
    """With double, the online network first sees the next states, under no_grad. Shortened weights kept from there would
    be used for the states as well, and carry no gradient: not every version of torch minds, so none are kept."""
    parts = parts_of(setup, on=["bf16"], double=double)
    learner, answers, kept = parts.learner, [], []
    learner.online.body.register_forward_hook(lambda module, inputs, output: answers.append(output))
    learner.online.body.register_forward_hook(lambda *given: kept.append(torch.is_autocast_cache_enabled()))
    assert "no_grad" in parts.switches
    for batch in random_batches(parts, 3):
        learner.train_on(batch)
        for name, gradient in gradients(learner).items():
            assert gradient.abs().max() > 0, name
            assert gradient.dtype == torch.float32, name
    assert {answer.dtype for answer in answers} == {torch.bfloat16}
    assert [answer.requires_grad for answer in answers] == ([False, True] if double else [True]) * 3
    assert not any(kept)
    values = [*learner.online.parameters(), *learner.target.parameters()]
    values += [value for moments in learner.optimizer.state.values() for value in moments.values()]
    assert {value.dtype for value in values} == {torch.float32}
    assert len(values) >= 4 * len(list(learner.online.parameters()))


@needs_bf16
def test_match_is_learned_in_bf16(runs):
    run = fastdqn.train(MatchEnv, steps=5000, settings=SMALL, on=["bf16"], quiet=True)
    assert run.updates > 1000
    assert run.score.mean == 5.0


@needs_bf16
@pytest.mark.slow
@pytest.mark.skipif(bool(hardware.lacks("compiler", "cpu")), reason="compile needs a compiler")
def test_bf16_and_compile_go_together():
    short, plain = parts_of(SNAKE_MLP, on=["bf16", "compile"], double=True), parts_of(SNAKE_MLP, double=True)
    assert short.notes == []
    cosines, ratios, losses = compare_gradients(short, plain)
    assert within_tolerance(cosines, ratios, losses), (cosines, ratios, losses)
    assert losses.min() > 0


# ---------------------------------------------------------------- fp16


def overflowing(batch):
    """Errors of a million: squared, scaled and short they are infinite."""
    return batch._replace(returns=batch.returns + 1e6)


def check_overflow(learner, good, bad):
    before = weights(learner)
    learner.train_on(bad)
    torch.testing.assert_close(weights(learner), before, rtol=0, atol=0)
    for batch in good:
        learner.train_on(batch)
    after = weights(learner)
    assert all(not torch.equal(after[name], before[name]) for name in before)
    assert all(weight.isfinite().all() for weight in after.values())


@pytest.mark.parametrize("clip_grad_norm", [0.0, 10.0])
def test_an_overflow_in_fp16_leaves_the_weights_untouched(clip_grad_norm):
    """The scaled update by itself, on the CPU; the switch is for CUDA."""
    parts = parts_of(SNAKE_MLP)
    learner, config = parts.learner, LearnerConfig(loss="mse")
    loss, step = make_loss(config, learner.online.head), ScaledStep(learner.optimizer, clip_grad_norm)
    passes = PassesAndLoss(learner.online, learner.target, loss, precision=autocast("cpu", torch.float16))
    learner.update = Update(Autograd(passes, passes, learner.optimizer.zero_grad, step.scaled), step)
    *good, bad = random_batches(parts, 21)
    check_overflow(learner, good, overflowing(bad))
    assert {weight.grad.dtype for weight in weights_of(learner.optimizer)} == {torch.float32}


@pytest.mark.gpu
@pytest.mark.parametrize("clip_grad_norm", [0.0, 10.0])
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_an_overflow_with_the_switch_fp16(optimizer, clip_grad_norm):
    parts = parts_of(SNAKE_MLP, ["fp16"], device="cuda", loss="mse", clip_grad_norm=clip_grad_norm, optimizer=optimizer)
    *good, bad = random_batches(parts, 21)
    check_overflow(parts.learner, good, overflowing(bad))


@pytest.mark.gpu
@NETWORKS
@DOUBLE
def test_fp16_gives_nearly_the_same_gradient(setup, double):
    short = parts_of(setup, ["fp16"], ["tf32"], device="cuda", double=double, clip_grad_norm=10)
    plain = parts_of(setup, [], ["tf32"], device="cuda", double=double, clip_grad_norm=10)
    assert short.switches ^ plain.switches == {"fp16"}
    answers = []
    short.learner.online.body.register_forward_hook(lambda module, inputs, output: answers.append(output.dtype))
    cosines, ratios, losses = compare_gradients(short, plain)
    assert within_tolerance(cosines, ratios, losses), (cosines, ratios, losses)
    assert set(answers) == {torch.float16}
    assert {weight.dtype for weight in short.learner.online.parameters()} == {torch.float32}


@pytest.mark.gpu
@pytest.mark.parametrize("clip_grad_norm", [0.0, 10.0])
def test_fp16_makes_the_same_step_with_and_without_clipping(clip_grad_norm):
    """Fused Adam takes the scale off by itself when nobody has done so before."""
    settings = {"device": "cuda", "double": True, "clip_grad_norm": clip_grad_norm}
    short, plain = (parts_of(SNAKE_MLP, on, ["tf32"], **settings) for on in (["fp16"], []))
    *first, last = random_batches(plain, 50)
    for batch in first:
        short.learner.train_on(batch)
        plain.learner.train_on(batch)
    short.learner.load_state(plain.learner.state())
    start, ends = weights(plain.learner), []
    for parts in (short, plain):
        parts.learner.train_on(last)
        ends.append(torch.cat([(weight - start[name]).flatten() for name, weight in weights(parts.learner).items()]))
    assert torch.cosine_similarity(*ends, dim=0) > 0.98
    assert abs(ends[0].norm() / ends[1].norm() - 1) < 0.05


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["bf16", "fp16", "tf32"])
def test_match_is_learned_on_the_gpu(runs, name):
    run = fastdqn.train(MatchEnv, steps=5000, settings=SMALL, device="cuda", on=[name], quiet=True)
    assert run.updates > 1000
    assert run.score.mean == 5.0


@pytest.mark.gpu
@NETWORKS
@DOUBLE
def test_bf16_on_the_gpu_gives_nearly_the_same_gradient(setup, double):
    short, plain = (parts_of(setup, on, ["tf32"], device="cuda", double=double) for on in (["bf16"], []))
    cosines, ratios, losses = compare_gradients(short, plain)
    assert within_tolerance(cosines, ratios, losses), (cosines, ratios, losses)
    assert losses.min() > 0


# ---------------------------------------------------------------- tf32 and cudnn_benchmark


@pytest.mark.gpu
@NETWORKS
@DOUBLE
def test_tf32_gives_nearly_the_same_gradient(setup, double):
    short, plain = (parts_of(setup, on, off, device="cuda", double=double) for on, off in ((["tf32"], []), ([], ["tf32"])))
    assert short.switches ^ plain.switches == {"tf32"}
    before = (lambda: set_tensor_cores(True), lambda: set_tensor_cores(False))
    cosines, ratios, losses = compare_gradients(short, plain, before)
    assert within_tolerance(cosines, ratios, losses), (cosines, ratios, losses)


@pytest.mark.gpu
def test_tf32_reaches_the_tensor_cores():
    torch.manual_seed(0)
    a, b = (torch.randn(256, 256, device="cuda") for _ in range(2))
    products = []
    for on, off in ((["tf32"], []), ([], ["tf32"])):
        parts_of(SNAKE_MLP, on, off, device="cuda")
        assert torch.backends.cuda.matmul.allow_tf32 == torch.backends.cudnn.allow_tf32 == bool(on)
        products.append(a @ b)
    exact = (a.double() @ b.double()).float()
    errors = [(product - exact).abs().max().item() for product in products]
    assert errors[0] > 10 * errors[1]


@pytest.mark.gpu
@pytest.mark.parametrize("setup", [SNAKE_CNN, CATCH_NATURE], ids=["cnn", "nature"])
@DOUBLE
def test_cudnn_benchmark(setup, double):
    fast = parts_of(setup, ["cudnn_benchmark"], ["tf32"], device="cuda", double=double)
    assert torch.backends.cudnn.benchmark is True
    plain = parts_of(setup, [], ["tf32", "cudnn_benchmark"], device="cuda", double=double)
    assert torch.backends.cudnn.benchmark is False
    before = (lambda: set_cudnn_search(True), lambda: set_cudnn_search(False))
    same_updates(fast.learner, plain.learner, ((batch, batch) for batch in random_batches(plain, 200)), before)


@pytest.mark.parametrize("on", [True, False])
def test_the_flags_are_those_that_torch_reads(on):
    set_tensor_cores(on)
    set_cudnn_search(on)
    assert torch.backends.cuda.matmul.allow_tf32 is torch.backends.cudnn.allow_tf32 is on
    assert torch.backends.cudnn.benchmark is on


def test_a_run_on_the_cpu_leaves_no_flag_of_another_run_behind():
    set_tensor_cores(True)
    set_cudnn_search(True)
    parts_of(SNAKE_MLP)
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cudnn.benchmark


@pytest.mark.parametrize("name", ["pinned_copies", "cudnn_benchmark", "tf32", "fp16"])
def test_without_a_gpu_they_are_refused_by_name(name):
    with pytest.raises(UserError, match=rf"^The switch {name} needs a CUDA device, which is not there \(device cpu\)\.$"):
        parts_of(SNAKE_MLP, on=[name])
    assert name not in parts_of(SNAKE_MLP).switches
