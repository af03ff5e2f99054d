"""Builds the learner from config and switches. Like build.py, it may ask whether a switch is on."""

import copy
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from fastdqn.build_replay import build_launcher
from fastdqn.config import Config
from fastdqn.device.graphs import as_it_is, in_pieces
from fastdqn.errors import first_line
from fastdqn.learner.backprop import Autograd, Backprop, Forward, PassesAndLoss
from fastdqn.learner.fast.compiled import compiled
from fastdqn.learner.fast.hand_written import HandWritten
from fastdqn.learner.fast.lean import Lean
from fastdqn.learner.fast.one_pass import OnePass, make_one_pass_optimizer
from fastdqn.learner.fast.overlapped import Apart, OverlappedLearner
from fastdqn.learner.fast.precision import autocast
from fastdqn.learner.fast.shadow import Shadow, ShadowAutograd
from fastdqn.learner.fast.wide_optimizer import Wide, make_wide_optimizer
from fastdqn.learner.feedback import FeedbackAtOnce, FeedbackFromGpu, NoFeedback
from fastdqn.learner.flat import lay_flat
from fastdqn.learner.learner import Learner
from fastdqn.learner.loss import Loss, make_loss
from fastdqn.learner.network import QNetwork
from fastdqn.learner.optimizer import make_optimizer
from fastdqn.learner.step import PlainStep, ScaledStep, Step, weights_of
from fastdqn.learner.transfer import Transfer, no_transfer, pinned_transfer, plain_transfer
from fastdqn.learner.update import Update, make_target_rule, most_together, updates_before_the_target_moves
from fastdqn.metrics import Timers
from fastdqn.replay.replay import Replay
from fastdqn.transition import Batch, EnvSpec


def build_learner(
    config: Config,
    spec: EnvSpec,
    stack: int,
    online: QNetwork,
    replay: Replay,
    device: str,
    timers: Timers,
    switches: frozenset[str],
    notes: list[str],
    apart: Apart | None = None,
) -> Learner:
    """Appends a line to `notes` for anything that had to be left off."""
    target = online if config.learner.target == "none" else copy.deepcopy(online).eval()
    if "no_grad" in switches and target is not online:
        target.requires_grad_(False)
    optimizer = build_optimizer(config, online, switches)
    if isinstance(optimizer, Wide) and target is not online:
        lay_flat(target)
    transfer = build_transfer(device, switches) if not config.learner.prefetch else no_transfer
    example = example_batch(config.learner.batch_size, spec, stack, device, switches)
    loss, step = make_loss(config.learner, online.head), build_step(config, optimizer, switches)
    backprop = build_backprop(online, target, loss, step, example, switches, notes)
    ahead: dict[str, Any] = {}
    if "target_ahead" in switches:
        most = most_together(config.learner, example.state[0].numel() * example.state.element_size())
        ahead = {"look_ahead": backprop.look_ahead, "together": updates_before_the_target_moves(config.learner, most)}
    how: dict[str, Any] = {
        "online": online,
        "target": target,
        "optimizer": optimizer,
        "update": Update(backprop, step),
        "follow": make_target_rule(online, target, config.learner),
        "draw": lambda count: transfer(replay.sample(config.learner.batch_size, count)),
        "feedback": build_feedback(config, replay, device, switches),
        "timers": timers,
        "advice": getattr(loss, "advice", lambda: ""),
        **ahead,
    }
    launcher = build_launcher(switches)
    if apart is not None:
        before = backprop.follow_target
        return OverlappedLearner(streams=apart.streams, acting=apart.acting, launcher=launcher, before=before, **how)
    learner = Learner(**how)
    if launcher is not as_it_is:
        learner.update_together = in_pieces(learner.update_together, launcher, before=backprop.follow_target)  # type: ignore[method-assign,assignment]
    return learner


def build_feedback(
    config: Config, replay: Replay, device: str, switches: frozenset[str]
) -> NoFeedback | FeedbackAtOnce | FeedbackFromGpu:
    if not config.replay.prioritised:
        return NoFeedback()
    same_place = device == "cpu" or "device_ring" in switches
    return FeedbackAtOnce(replay) if same_place else FeedbackFromGpu(replay)


def in_effect(switches: frozenset[str], learner: Learner) -> frozenset[str]:
    """The switches without those that were tried and failed."""
    backprop = learner.update.backprop
    tried = {"compile": getattr(backprop, "is_compiled", False), "shadow_weights": isinstance(backprop, ShadowAutograd)}
    return switches - {name for name, works in tried.items() if not works}


def build_optimizer(config: Config, online: QNetwork, switches: frozenset[str]) -> torch.optim.Optimizer:
    if "wide_optimizer" in switches:
        return make_wide_optimizer(config.learner, online)
    if "one_pass_optimizer" in switches or "lean_mlp" in switches:
        return make_one_pass_optimizer(config.learner, online)
    one_call, in_graph = "fused_optimizer" in switches, "cuda_graph" in switches
    return make_optimizer(config.learner, online, one_call=one_call, in_graph=in_graph)


def build_step(config: Config, optimizer: torch.optim.Optimizer, switches: frozenset[str]) -> Step:
    return (ScaledStep if "fp16" in switches else PlainStep)(optimizer, config.learner.clip_grad_norm)


def build_backprop(
    online: QNetwork,
    target: QNetwork,
    loss: Loss,
    step: Step,
    example: Batch,
    switches: frozenset[str],
    notes: list[str],
) -> Backprop:
    """Autograd, modified by the switches that are on, or a hand-written backward pass."""
    dtype = dtype_of_passes(switches)
    if "lean_mlp" in switches:
        assert isinstance(step.optimizer, OnePass), "build_optimizer sees to it"
        return Lean(online, target, loss, step.optimizer, dtype or torch.float32)
    if "hand_written" in switches:
        fold = "folded_conv" in switches
        return HandWritten(online, target, loss, step.optimizer, dtype or torch.float32, fold)
    if "shadow_weights" in switches:
        try:
            return build_shadow(online, target, loss, step, example, switches)
        except Exception as fault:  # anything in a user's own network may fail in bfloat16
            notes.append(f"shadow_weights is left off: {first_line(fault)}")
    precision = nullcontext if dtype is None else autocast(example.state.device.type, dtype)
    passes = PassesAndLoss(online, target, loss, "no_grad" in switches, precision)
    forward: Forward = passes
    if "compile" in switches:
        forward, why_not = compiled(forward, example, weights_of(step.optimizer))
        notes += [why_not] * bool(why_not)
    optimizer, to_none = step.optimizer, "grads_to_none" in switches
    return Autograd(passes, forward, lambda: optimizer.zero_grad(set_to_none=to_none), step.scaled)


def build_shadow(
    online: QNetwork, target: QNetwork, loss: Loss, step: Step, example: Batch, switches: frozenset[str]
) -> ShadowAutograd:
    dtype = dtype_of_passes(switches)
    assert dtype is not None, "the switch needs bf16"
    mine = Shadow(online, dtype, example.state[:2])
    theirs = mine if target is online else Shadow(target, dtype, example.state[:2])
    passes = PassesAndLoss(mine.network, theirs.network, loss, "no_grad" in switches)
    return ShadowAutograd(mine, theirs, passes, step.optimizer)


def dtype_of_passes(switches: frozenset[str]) -> torch.dtype | None:
    """Dtype of the forward and backward passes; None: float32, like everything else."""
    return torch.bfloat16 if "bf16" in switches else torch.float16 if "fp16" in switches else None


def build_transfer(device: str, switches: frozenset[str]) -> Transfer:
    if "device_ring" in switches:
        return no_transfer
    return pinned_transfer(device) if "pinned_copies" in switches else plain_transfer(device)


def example_batch(size: int, spec: EnvSpec, stack: int, device: str, switches: frozenset[str]) -> Batch:
    """A batch of zeros with the shapes and dtypes of the replay's batches."""
    dtype = torch.from_numpy(np.zeros(1, spec.obs_dtype)).dtype if "frame_ring" in switches else torch.float32
    states = torch.zeros(size, *spec.state_shape(stack), dtype=dtype, device=device)
    numbers = torch.zeros(size, device=device)
    actions = torch.zeros(size, dtype=torch.int64, device=device)
    return Batch(states, actions, numbers, numbers.clone(), states.clone(), numbers.clone(), None)
