"""Two learners under two sets of switches, fed the same batches: what the promise SAME_NUMBERS is judged by.

Before each update both start from the same weights, target network and optimizer state: left alone, two learners drift
apart by rounding.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fastdqn.build import build
from fastdqn.learner.learner import Learner
from fastdqn.learner.transfer import plain_transfer
from fastdqn.prepare import prepare
from fastdqn.runner.ports import Parts
from fastdqn.switches import dependents
from fastdqn.transition import Batch


class Setup(NamedTuple):
    env: str
    settings: dict[str, Any]


COMMON: dict[str, Any] = {
    "actor.lanes": 4,
    "replay.capacity": 4000,
    "learner.batch_size": 32,
    "learner.lr": 1e-3,
    "learner.target": "hard",
    "learner.target_every": 9,
    "switches.prefer": [],  # what a preset prefers depends on the machine
}
SNAKE_MLP = Setup("snake", COMMON | {"network.kind": "mlp", "network.hidden": [32, 32]})
SNAKE_CNN = Setup("snake", COMMON | {"network.kind": "cnn", "network.channels": [8, 8], "network.hidden": [32]})
CATCH_NATURE = Setup("catch", COMMON | {"network.kind": "nature", "network.channels": [4, 8, 8], "network.hidden": [32]})


def parts_of(setup: Setup, on: Iterable[str] = (), off: Iterable[str] = (), device: str = "cpu", **learner: Any) -> Parts:
    """What build.py makes of this setup; `learner` are settings of that section."""
    # hand_written leaves nothing of what most switches change, and a graph clashes with some: off unless asked for
    off = {*off, "cuda_graph", "one_pass_optimizer", "target_ahead", "hand_written", *dependents("hand_written")}
    off = (off | {"shadow_weights"}) - {*on}
    wishes = {"device": device, "switches.on": list(on), "switches.off": sorted(off)}
    chosen = {f"learner.{name}": value for name, value in learner.items()}
    job = prepare(setup.env, settings=setup.settings | wishes | chosen)
    return build(job.config, job.kind, device)


def random_batches(parts: Parts, count: int, seed: int = 0) -> Iterator[Batch]:
    """Made-up transitions in the shapes and dtypes of these parts; one in five is an end, one in ten has no weight."""
    rng = np.random.default_rng(seed)
    size, shape = parts.config.learner.batch_size, parts.spec.state_shape(parts.stack)
    for _ in range(count):
        batch = Batch(
            state=rng.integers(0, 256, (size, *shape), dtype=np.uint8),
            action=rng.integers(parts.spec.num_actions, size=size),
            returns=rng.normal(size=size).astype(np.float32),
            discount=np.where(rng.random(size) < 0.2, 0, 0.97).astype(np.float32),
            next_state=rng.integers(0, 256, (size, *shape), dtype=np.uint8),
            weight=(rng.random(size) < 0.9).astype(np.float32),
            index=None,
        )
        yield plain_transfer(parts.device)(batch)


def gradients(learner: Learner) -> dict[str, Tensor]:
    """The gradient of every weight; one without is a fault."""
    missing = [name for name, weight in learner.online.named_parameters() if weight.grad is None]
    assert not missing, f"no gradient: {missing}"
    return {name: weight.grad.clone() for name, weight in learner.online.named_parameters()}


def weights(learner: Learner) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in learner.online.named_parameters()}


def nothing() -> None: ...


def same_updates(
    fast: Learner,
    plain: Learner,
    batches: Iterable[tuple[Batch, Batch]],
    before: tuple[Callable[[], None], Callable[[], None]] = (nothing, nothing),
) -> None:
    """Asserts equal losses and gradients at each update. A pair is what the fast and the plain learner get; `before` is
    called before the update of either."""
    losses, targets = [], []
    for pair in batches:
        fast.load_state(plain.state())
        for learner, batch, prepare_side in zip((fast, plain), pair, before, strict=True):
            prepare_side()
            learner.train_on(batch)
        ours, theirs = gradients(fast), gradients(plain)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
        assert max(gradient.abs().max().item() for gradient in theirs.values()) > 1e-3, "nothing to compare"
        (our_loss, our_value), (loss, value) = fast.read_means(), plain.read_means()
        assert abs(our_loss - loss) <= 1e-5
        assert abs(our_value - value) <= 1e-5
        losses.append(loss)
        targets.append(plain.target.state_dict()[next(iter(ours))].sum().item())
    assert fast.updates == plain.updates == len(losses)
    assert len(set(losses)) > 0.9 * len(losses)
    assert 1 < len(set(targets)) < len(losses), "the target network follows now and then"


def check_switch(
    setup: Setup, name: str, updates: int = 200, off: Iterable[str] = (), on: Iterable[str] = (), **learner: Any
) -> tuple[Learner, Learner]:
    """The learners with this switch on and off, after `updates` random batches at which they agreed; `off` and `on` hold
    for both."""
    fast, plain = parts_of(setup, [name, *on], off, **learner), parts_of(setup, [*on], [*off, name], **learner)
    assert fast.switches ^ plain.switches == {name}
    assert fast.notes == []
    same_updates(fast.learner, plain.learner, ((batch, batch) for batch in random_batches(plain, updates)))
    return fast.learner, plain.learner
