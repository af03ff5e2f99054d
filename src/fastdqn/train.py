"""One run from start to end: check, build, play and learn in a thread, watch from the main thread, save."""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from fastdqn.actor.actor import Actor
from fastdqn.actor.greedy import make_values
from fastdqn.actor.recorder import Recorder, RecordingSink
from fastdqn.build import build, build_network, stack_of
from fastdqn.device.cores import usable_cores
from fastdqn.env.registry import EnvName
from fastdqn.errors import memory_ran_out
from fastdqn.evaluator import Evaluator, Score
from fastdqn.learner.network import MakeBody
from fastdqn.metrics import JsonlSink, Tracker
from fastdqn.prepare import Job, check_memory_of, prepare, with_threads
from fastdqn.processes.runner import ProcessRunner
from fastdqn.processes.sharing import leave_if_begun_by_import, thread_plan
from fastdqn.run import folder as folders
from fastdqn.run.curve import draw_curve
from fastdqn.run.dumps import DumpWriter, estimate
from fastdqn.run.folder import RunFolder
from fastdqn.run.model import facts_of, load_model, save_model
from fastdqn.run.preflight import check_disk, human_bytes, nearest_folder
from fastdqn.run.trackers import make_sinks
from fastdqn.run.view import Snapshot, View, make_view
from fastdqn.run.work_thread import run_in_thread, without_workers
from fastdqn.runner.ceiling import env_alone
from fastdqn.runner.inline import InlineRunner
from fastdqn.runner.limits import Limits
from fastdqn.runner.ports import Parts, Stop

INTERRUPTED, TERMINATED = "interrupted", "terminated"  # reasons of a run ended by SIGINT or SIGTERM
CEILING_SECONDS = 1.0  # how long the environment alone is timed after a run


class Run:
    """What `train` returns: the run folder, and how the run ended."""

    def __init__(
        self, folder: RunFolder, reason: str, score: Score | None, steps: int, updates: int, env_alone: float | None
    ) -> None:
        self.folder, self.reason, self.score = folder, reason, score
        self.steps, self.updates = steps, updates
        self.env_alone_steps_per_second = env_alone  # the ceiling: the same lanes without any learning

    @property
    def path(self) -> Path:
        return self.folder.path

    def __fspath__(self) -> str:
        """A run can be passed wherever its path can: `fastdqn.load(run)`."""
        return str(self.path)

    def speed(self) -> str:
        """Steps per second while learning, the samples per step it had, and the ceiling."""
        rows = self.metrics()
        full = max((row["samples_per_step"] for row in rows), default=0.0)
        if not full:
            return "no update was made"
        learning = [row for row in rows if row["samples_per_step"] > 0.9 * full]  # the warm-up does not count
        median = sorted(learning, key=lambda row: row["steps_per_second"])[len(learning) // 2]
        ceiling = self.env_alone_steps_per_second
        alone = f"; the environment alone, same lanes: {ceiling:,.0f} steps/s" if ceiling else ""
        return f"{median['steps_per_second']:,.0f} steps/s at {median['samples_per_step']:.3g} samples per step{alone}"

    def metrics(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl."""
        return self.folder.metrics()

    def __repr__(self) -> str:
        score = f", score {self.score.mean:.2f}" if self.score else ""
        return f"Run({str(self.path)!r}, {self.steps:,} steps, {self.updates:,} updates{score}, {self.reason})"


def train(
    env: EnvName,
    *,
    preset: str | None = None,
    steps: int | str | None = None,
    episodes: int | str | None = None,
    minutes: float | None = None,
    target: float | None = None,
    seed: int | None = None,
    device: str | None = None,
    runner: str | None = None,
    on: Iterable[str] = (),
    off: Iterable[str] = (),
    settings: Mapping[str, Any] | None = None,
    imports: Iterable[str] = (),
    network: MakeBody | None = None,
    run: str | None = None,
    from_run: str | PathLike[str] | None = None,
    log: Iterable[str] = (),
    profile: str = "auto",
    quiet: bool = False,
) -> Run:
    """Trains a DQN and returns the run. `env` is a name or a function that makes an environment; `settings` are dotted
    keys such as {'learner.batch_size': 128}; `network` is called with (state_shape, num_actions); `profile` is the
    profile of `fastdqn tune` to use: auto, none, or a file."""
    leave_if_begun_by_import()
    wishes = {
        "limits.steps": steps,
        "limits.episodes": episodes,
        "limits.minutes": minutes,
        "limits.target": target,
        "seed": seed,
        "device": device,
        "runner": runner,
    }
    chosen = dict(settings or {}) | {key: value for key, value in wishes.items() if value is not None}
    for key, names in (("switches.on", on), ("switches.off", off), ("log.sinks", log)):
        if names:
            chosen[key] = list(names)
    source = None if from_run is None else str(from_run)
    with without_workers():
        job = prepare(env, preset, chosen, imports, network, from_run=source, profile=profile)
    return run_job(job, run, from_run, make_view(quiet))


def run_job(job: Job, run: str | None, from_run: str | PathLike[str] | None, view: View) -> Run:
    """Trains with the view open and always closes it, because it may have hidden the cursor."""
    with closing(view), without_workers():
        try:
            return _run_job(job, run, from_run, view)
        except (torch.OutOfMemoryError, MemoryError) as fault:  # what other programs use cannot be predicted
            raise memory_ran_out(fault, job.device) from None


def _run_job(job: Job, run: str | None, from_run: str | PathLike[str] | None, view: View) -> Run:
    """All checks are made before the folder is created."""
    path = folders.run_path(run, job.config.env_id)
    folders.check_new(path)
    source = folders.find(from_run) if from_run else None
    sinks_wanted = make_sinks(job.config.log.sinks)
    check_memory_of(job)
    check_disk(job.needs, path)
    job = with_threads(job)
    if job.config.runner == "processes":
        return _run_apart(job, path, source, sinks_wanted, view)
    parts = build(job.config, job.kind, job.device, job.own_network, folder=nearest_folder(path))
    if source is not None:
        load_model(source.model_path, parts.learner.online)
        parts.learner.weights_were_loaded()
    folder = folders.create(path, job.config, _decided(job, parts.stack, parts.switches))
    with _open_sinks(folder, sinks_wanted) as sinks:
        return _Supervisor(job, parts, folder, sinks, view).run()


def _run_apart(
    job: Job, path: Path, source: RunFolder | None, sinks_wanted: list[Callable[[Path], Tracker]], view: View
) -> Run:
    """The same with each role in its own process."""
    config = job.config
    threads = thread_plan(usable_cores(), job.threads, config.actor.count, asked=config.learner.threads > 0)
    job = replace(job, threads=threads.learner)
    if source is not None:
        load_model(source.model_path, build_network(job.config, job.kind, job.own_network))  # raises here, not in a child
    runner = ProcessRunner(job, path, path / folders.MODEL, None if source is None else source.model_path)
    try:
        folder = folders.create(path, job.config, _decided(job, stack_of(job.config, job.kind), job.switches))
        with _open_sinks(folder, sinks_wanted) as sinks:
            return _SupervisorApart(job, runner, folder, sinks, view).run()
    finally:
        runner.close()


def _decided(job: Job, stack: int, switches: frozenset[str]) -> dict[str, Any]:
    facts = {"device": job.device, "threads": job.threads, "stack": stack, "weights": job.parameters}
    return facts | {"switches": sorted(switches)}


@contextmanager
def _open_sinks(folder: RunFolder, wanted: list[Callable[[Path], Tracker]]) -> Iterator[list[Tracker]]:
    sinks: list[Tracker] = [JsonlSink(folder.metrics_path), *(make(folder.path) for make in wanted)]
    try:
        yield sinks
    finally:
        for sink in sinks:
            sink.close()


class _Keeper:
    """What every run saves and shows, whatever its runner."""

    def __init__(self, job: Job, folder: RunFolder, sinks: list[Tracker], view: View) -> None:
        self.job, self.folder, self.view, self._sinks = job, folder, view, sinks
        self._stop = Stop()
        self._row: dict[str, Any] = {}
        self._score: Score | None = None
        self._reason = ""

    def _on_row(self, row: dict[str, Any]) -> None:
        self._row = row
        for sink in self._sinks:
            sink.write(row)

    def _on_score(self, score: Score) -> None:
        self._score = score
        self.folder.write_score(score)

    def _refresh(self, step: int, seconds: float, episodes: int, limits: Limits, evaluated: float | None) -> None:
        score = self._score  # read once: the work thread may reset it
        self.view.refresh(
            Snapshot(
                title=f"{self.job.config.env_id}  {self.folder.path}",
                step=step,
                seconds=seconds,
                share_done=limits.share_done(step, episodes, seconds),
                evaluated_share=evaluated,
                row=self._row,
                last_score=describe(score) if score else "",
            )
        )

    def _opening_lines(self) -> list[str]:
        job = self.job
        needed = human_bytes(sum(need.bytes for need in job.needs))
        off = list(job.config.switches.off)
        lines = [
            f"{job.config.env_id}: {job.parameters:,} weights on {job.device} ({job.threads} CPU threads), "
            f"{job.config.actor.lanes} lanes, {job.config.samples_per_step:g} samples per step, {needed} of buffers",
        ]
        dumps = [estimate(job.config, job.kind.spec)] if job.config.dump.every else []
        return [*lines, *[f"switched off: {', '.join(off)}"] * bool(off), *job.notes, *dumps]

    def _draw_curve(self) -> None:
        rows = self.folder.metrics()
        if rows:
            title = f"{self.job.config.env_id}, seed {self.job.config.seed}"
            draw_curve(self.folder.curve_path, title, rows, self.folder.scores())

    def _say_why(self) -> None:
        if self._stop.asked():
            self.view.say(f"{self._reason}: the model is saved in {self.folder.path}")


class _SupervisorApart(_Keeper):
    """The main thread's side of a run whose roles are processes."""

    def __init__(self, job: Job, runner: ProcessRunner, folder: RunFolder, sinks: list[Tracker], view: View) -> None:
        super().__init__(job, folder, sinks, view)
        self.runner, self._began = runner, time.monotonic()

    def run(self) -> Run:
        runner = self.runner
        for line in self._opening_lines():
            self.view.say(line)
        try:
            with stop_on_signals(self._stop):
                self._reason = runner.run(self._stop, self._on_row, self._on_score, self.view.say, self._show)
            self._say_why()
        finally:
            self._draw_curve()
        return Run(self.folder, self._reason, self._score, runner.step, runner.update, None)

    def _show(self) -> None:
        runner, seconds = self.runner, time.monotonic() - self._began
        self._refresh(runner.step, seconds, self._row.get("episode", 0), runner.limits, runner.evaluated_share)


class _Supervisor(_Keeper):
    """The main thread's side of an inline run: shows progress, handles signals, and saves when the work thread is done."""

    def __init__(self, job: Job, parts: Parts, folder: RunFolder, sinks: list[Tracker], view: View) -> None:
        super().__init__(job, folder, sinks, view)
        self.parts = parts
        self._env_alone: float | None = None
        self._dumps = keep_games(parts, folder.path) if parts.config.dump.every else []
        self.runner = InlineRunner(parts, self._stop, self._on_row, self._on_score, self.view.say)

    def run(self) -> Run:
        try:
            for line in [*self._opening_lines(), *self.parts.notes]:
                self.view.say(line)
            with stop_on_signals(self._stop):
                run_in_thread(self._work, self._stop, self.job.threads, while_waiting=self._show)
        except KeyboardInterrupt:  # the second Ctrl-C: the work thread is still running, so its state is not touched
            raise
        except BaseException:
            self._finish()
            raise
        self._finish()
        self._say_why()
        actor, learner = self.parts.actor, self.parts.learner
        return Run(self.folder, self._reason, self._score, actor.steps, learner.updates, self._env_alone)

    def _work(self) -> None:
        self._reason = self.runner.run()
        fresh = self._score is not None and self._score.step == self.parts.actor.steps
        if self.parts.config.evaluator.at_end and not fresh and not self._stop.asked():
            self._score = None
            self.runner.evaluate()
            self._reason = self._stop.reason or self._reason
        if not self._stop.asked():
            self._env_alone = env_alone(self.parts.env, self.parts.config.seed, CEILING_SECONDS)

    def _on_score(self, score: Score) -> None:
        super()._on_score(score)
        self._save_model()

    def _show(self) -> None:
        meter, runner = self.parts.meter, self.runner
        self._refresh(self.parts.actor.steps, meter.seconds, meter.episodes, runner.limits, runner.evaluated_share)

    def _finish(self) -> None:
        try:
            self._save()
        finally:
            self.runner.close()
            for dump in self._dumps:
                dump.close()

    def _save(self) -> None:
        self._save_model()
        self._draw_curve()

    def _save_model(self) -> None:
        parts = self.parts
        facts = facts_of(parts.spec, parts.stack, parts.actor.steps, parts.learner.updates)
        self.parts.learner.settle()
        save_model(self.folder.model_path, self.parts.learner.online, facts)


def keep_games(parts: Parts, run: Path) -> list[DumpWriter]:
    """Starts dumping the actor's and the evaluator's games."""
    values = make_values(parts.learner.online, parts.device)
    writers = [DumpWriter(run, role, parts.spec, parts.config.dump.max_gb * 1e9) for role in ("actor0", "evaluator")]
    exploring, greedy = (
        Recorder(parts.spec, parts.stack, parts.config.dump.every, values, writer.write) for writer in writers
    )
    assert isinstance(parts.actor, Actor), "boards on a device are left off where games are dumped"
    parts.actor.sink = RecordingSink(parts.actor.sink, exploring)
    make = parts.make_evaluator

    def make_recorded(lanes: int) -> Evaluator:
        evaluator = make(lanes)
        evaluator.recorder = greedy
        return evaluator

    parts.make_evaluator = make_recorded
    return writers


def describe(score: Score) -> str:
    low, high = score.interval
    return f"evaluated at step {score.step:,}: mean score {score.mean:.2f} ({low:.2f} to {high:.2f}, {score.episodes} games)"


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM asks the run to end and save; the second ends at once. Only the main thread may
    set handlers; in any other thread signals stay as they are."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: Any) -> None:
        if stop.asked():
            raise KeyboardInterrupt
        stop.ask(INTERRUPTED if number == signal.SIGINT else TERMINATED)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
