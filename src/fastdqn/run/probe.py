"""A small run, timed for a few seconds: how fast it is here, with how many threads, on which device.

Nothing is assumed: all cores are often slower than one, and a GPU slower than the CPU for a small network. Results are
cached, so that the same run on the same machine makes the same choice again.
"""

import copy
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fastdqn.build import build, build_network, stack_of
from fastdqn.build_replay import rows_per_lane
from fastdqn.config import Config
from fastdqn.device.cores import powers_up_to, usable_cores
from fastdqn.env.kind import EnvKind
from fastdqn.errors import UserError
from fastdqn.learner.flops import forward_flops, update_flops
from fastdqn.learner.network import MakeBody
from fastdqn.metrics import JsonlSink
from fastdqn.run.measured import remember, remembered
from fastdqn.run.tuned import work_of
from fastdqn.run.usage import Usage
from fastdqn.run.work_thread import Answer, ask_in_thread, without_workers
from fastdqn.runner.inline import InlineRunner
from fastdqn.runner.ports import Stop
from fastdqn.transition import Block

CAPACITY = 20_000  # rows of a probe's replay: large enough to sample from, small enough to fill quickly
FILLED_ROWS, FILLED_IMAGES = 10_000, 2_000  # rows played before the first update; large images take longer
LONGEST_FILL_SECONDS = 6.0  # a slow environment fills less in that time
KEPT_ROUNDS = 16  # of play, repeated to fill a whole replay
LARGE_PICTURE = 36 * 36
TRIAL_SECONDS = 0.4  # each option is timed twice for this long
WORTH_MEASURING = 10_000_000  # floating-point operations of an update, below which a second thread never pays off
REVISION = 2  # of the timed parts: raised when they become faster, so that old answers are measured again
CLEAR_GAIN = 1.05  # more threads must be this much faster to be chosen: they also cost power


class Probe:
    """The parts of a run with a small replay. `rate` plays and learns for a few seconds; nothing is written."""

    def __init__(
        self,
        config: Config,
        kind: EnvKind,
        device: str,
        own_network: MakeBody | None = None,
        whole_replay: bool = False,
    ) -> None:
        """With `whole_replay` the replay is as large as the run's, and `warm_up` fills it completely."""
        self.parts = build(probe_config(config, kind, whole_replay), kind, device, own_network)
        self._whole_replay = whole_replay
        self.rows: list[dict[str, Any]] = []
        self._nowhere = JsonlSink(Path(os.devnull))  # rows are written as in a run, and discarded
        self.runner = InlineRunner(self.parts, Stop(), self._on_row, lambda score: None)

    def warm_up(self, seconds: float = 1.0, fill_seconds: float = LONGEST_FILL_SECONDS) -> None:
        """Fills the replay, then learns for a while: kernels are compiled, caches warm, buffers allocated."""
        self.runner.start()
        began, ratio = time.monotonic(), self.parts.ratio
        while ratio.steps < ratio.warmup_steps and time.monotonic() - began < fill_seconds:
            self.runner.round()
        ratio.warmup_steps = min(ratio.warmup_steps, ratio.steps)  # what was filled is enough
        if self._whole_replay:
            self._fill()
        self.parts.actor.epsilon_at = lambda step: self.parts.config.actor.epsilon_end
        self.rate(seconds)

    def _fill(self) -> None:
        """Stores the last played frames over and over, so that no more has to be played. Games are cut where they are
        repeated, which does not affect sampling speed. Boards on a device store by themselves and are played."""
        replay, blocks, groups = self.parts.replay, list[Block](), len(self.parts.env.groups)
        store = replay.append

        def keep(block: Block) -> None:
            blocks.append(copy.deepcopy(block))  # its observations are only valid until the next send
            store(block)

        replay.append = keep  # type: ignore[method-assign]
        for _ in range(KEPT_ROUNDS):
            self.runner.round()
        replay.append = store  # type: ignore[method-assign]
        self.parts.learner.settle()  # rows that are being sampled must not be overwritten
        for number in range(rows_per_lane(self.parts.config, self.parts.stack)):
            if not blocks:
                self.runner.round()
            for group in range(groups if blocks else 0):
                store(blocks[(number * groups + group) % len(blocks)])

    def rate(self, seconds: float) -> float:
        """Steps per second over the next `seconds`, regardless of what happened since the last call; `rows[-1]` then has
        the details."""
        began, steps = time.monotonic(), self.parts.actor.steps
        while self._goes_on(time.monotonic() - began, seconds):
            self.runner.round()
        self.runner.log()
        if self.parts.device.startswith("cuda"):
            torch.cuda.synchronize(self.parts.device)  # queued work belongs to this interval
        return (self.parts.actor.steps - steps) / (time.monotonic() - began)

    def _goes_on(self, elapsed: float, seconds: float) -> bool:
        """A slow environment gets 5 times as long for its first update; a run with rarer updates has none."""
        if not self.parts.learner.updates:
            seconds *= 5
        return elapsed < seconds

    def _on_row(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        self._nowhere.write(row)

    def close(self) -> None:
        self._nowhere.close()
        self.runner.close()


def probe_config(config: Config, kind: EnvKind, whole_replay: bool = False) -> Config:
    """The same run with a small replay, filled with random play and then played with the final epsilon."""
    lanes, stack = config.actor.lanes, stack_of(config, kind)
    smallest = 8 * lanes * (stack + config.replay.n_step)
    capacity = config.replay.capacity if whole_replay else min(config.replay.capacity, max(CAPACITY, smallest))
    large = len(kind.spec.obs_shape) == 3 and kind.spec.obs_shape[-1] * kind.spec.obs_shape[-2] >= LARGE_PICTURE
    filled = min(capacity, max(FILLED_IMAGES if large else FILLED_ROWS, smallest // 4))
    return config.model_copy(
        update={
            "replay": config.replay.model_copy(update={"capacity": capacity, "warmup_steps": filled}),
            "actor": config.actor.model_copy(update={"epsilon_start": 1.0, "epsilon_steps": 0}),
        }
    )


def measured_threads(config: Config, kind: EnvKind, device: str, own_network: MakeBody | None = None) -> int:
    """The fewest torch CPU threads that are about as fast as any other number, for this run on this machine."""
    cores = usable_cores()
    if cores == 1 or not device.startswith("cpu"):
        return 1  # on a GPU torch only queues work, and the emulator needs the cores
    shape = kind.spec.state_shape(stack_of(config, kind))
    device_of_count = "meta" if own_network is None else "cpu"
    forward = forward_flops(lambda: build_network(config, kind, own_network), shape, device_of_count)
    if update_flops(config, forward) < WORTH_MEASURING:
        return 1
    question = _question("threads", config, kind, device)
    if own_network is None and (known := remembered(question)) is not None:
        return int(known)
    usage = Usage("cpu")
    usage.start()
    rates = _try_threads(config, kind, device, own_network, powers_up_to(cores))
    best = fewest_of_the_fastest(rates)
    if own_network is None and not usage.disturbed():  # functions cannot be compared, so never cached
        remember(question, best)
    return best


def measured_device(config: Config, kind: EnvKind, own_network: MakeBody | None = None) -> str:
    """`cpu` or `cuda`, whichever plays and learns faster with this network and batch."""
    if not torch.cuda.is_available():
        return "cpu"
    question = _question("device", config, kind, "auto")
    if own_network is None and (known := remembered(question)) is not None:
        return str(known)
    usage = Usage("cpu")
    usage.start()
    best = max(("cpu", "cuda"), key=lambda device: _rate_on(device, config, kind, own_network))
    if own_network is None and not usage.disturbed():
        remember(question, best)
    return best


def fewest_of_the_fastest(rates: dict[int, float]) -> int:
    """The smallest count that no other clearly beats."""
    best = max(rates.values())
    return min(count for count, rate in rates.items() if rate * CLEAR_GAIN >= best)


def _try_threads(
    config: Config, kind: EnvKind, device: str, own_network: MakeBody | None, counts: list[int]
) -> dict[int, float]:
    """Steps per second by thread count: one warm run, the counts tried upwards and then downwards."""
    rates = dict.fromkeys(counts, 0.0)

    def trial(probe: Probe) -> dict[int, float]:
        probe.warm_up(TRIAL_SECONDS)
        for order in (counts, counts[::-1]):
            for count in order:
                torch.set_num_threads(count)
                rates[count] += probe.rate(TRIAL_SECONDS) / 2
        return rates

    return _in_small(trial, config, kind, device, own_network)


def _rate_on(device: str, config: Config, kind: EnvKind, own_network: MakeBody | None) -> float:
    """Steps per second; 0 on a device that cannot do what was requested."""

    def trial(probe: Probe) -> float:
        probe.warm_up()
        return probe.rate(2 * TRIAL_SECONDS)

    try:
        return _in_small(trial, config, kind, device, own_network)
    except UserError:
        return 0.0


def _in_small(
    trial: Callable[[Probe], Answer], config: Config, kind: EnvKind, device: str, own_network: MakeBody | None
) -> Answer:
    """Like a run: built by the caller, played and trained in a thread, whose workers end with it."""
    with without_workers():
        probe = Probe(config, kind, device, own_network)
    try:
        return ask_in_thread(lambda: trial(probe))
    finally:
        probe.close()


def _question(what: str, config: Config, kind: EnvKind, device: str) -> dict[str, Any]:
    """Everything the answer depends on."""
    return {
        "what": what,
        "revision": REVISION,
        "machine": [platform.machine(), platform.processor(), usable_cores(), torch.__version__, device],
        "actor": config.actor.model_dump(include={"lanes", "groups"}),
        "switches": config.switches.model_dump(),
    } | work_of(config, kind, stack_of(config, kind))
