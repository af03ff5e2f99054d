"""`fastdqn bench ...`: the measuring commands. Parse and call; Ctrl-C keeps what was measured."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import tyro
from tyro.conf import Positional, arg

from fastdqn.errors import UserError

INTERRUPTED_EXIT = 130  # what shells expect after Ctrl-C
Number = Annotated[str, arg(metavar="N")]
MaybeNumber = Annotated[str | None, arg(metavar="N")]
Env = Positional[str]
Settings = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, arg(metavar="KEY=VALUE")]


@dataclass(frozen=True)
class _Measurement:
    """What all measurements have in common."""

    env: Env
    """what is measured: snake, CartPole-v1, pong, ... (list: fastdqn envs)"""
    preset: Annotated[str | None, arg(metavar="TEXT")] = None
    """settings to begin from; default: the environment's own"""
    set: Settings = ()
    """any setting, e.g. --set env.dim=6 --set learner.batch_size=32; list: fastdqn settings"""
    device: Annotated[str | None, arg(metavar="TEXT")] = None
    """auto, cpu, cuda; auto measures both and takes the faster"""
    import_: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, arg(name="import", metavar="MODULE")] = ()
    """module to import first, so that it can register your own environments"""
    seconds: Number = "10"
    """length of one timed stretch, after the warm-up"""
    repeats: Number = "3"
    """rounds; every round measures everything once, in alternating order"""
    out: str = "benchmarks/records"
    """folder that the record is written into"""
    name: Annotated[str | None, arg(metavar="TEXT")] = None
    """name of the record; the date is put before it"""

    def work(self, extra: dict[str, Any] | None = None) -> Any:
        from fastdqn.bench.work import make_work
        from fastdqn.config import parse_assignment

        settings = (extra or {}) | dict(parse_assignment(text) for text in self.set)
        if self.device is not None:
            settings["device"] = self.device
        return make_work(self.env, self.preset, settings, self.import_)

    def measuring(self, **more: Any) -> Any:
        from fastdqn.bench.conduct import Measuring

        return Measuring(seconds=_number("--seconds", self.seconds), repeats=_whole("--repeats", self.repeats), **more)

    def measure(self, kind: str, work: Any, measuring: Any, run: Callable[[Any], None]) -> int:
        """Runs the measurement, shows its table, says where the record is; what was measured survives Ctrl-C."""
        from fastdqn.bench.identity import subject_of_job
        from fastdqn.bench.record import Keeper
        from fastdqn.bench.table import show

        keeper = Keeper(kind, subject_of_job(work.job), vars(measuring), self.out, self.name)
        code = 0
        try:
            run(keeper)
        except KeyboardInterrupt:
            print("stopped; what was measured so far:", file=sys.stderr)
            code = INTERRUPTED_EXIT
        if keeper.record["rows"]:
            show(keeper.record)
            print(f"record  {keeper.path}\nnext    fastdqn report {keeper.path} --out report.html")
        return code


@dataclass(frozen=True)
class _Judged(_Measurement):
    """Measurements that can also judge learning."""

    to_target: bool = False
    """also train every row: minutes until the target is reached, and a verdict on learning"""
    seeds: Number = "3"
    """with --to-target: runs per row; a verdict that counts needs 8"""
    steps: MaybeNumber = None
    """with --to-target: steps of a run; default: the preset's"""
    target: MaybeNumber = None
    """with --to-target: the score that counts as solved; default: the environment's"""
    jobs: Number = "1"
    """with --to-target: runs trained at the same time (for verdicts only: their minutes are not kept)"""
    stop_at_target: bool = False
    """with --to-target: end a run when it is solved; quicker, but blind for what goes wrong after that"""
    learning_only: bool = False
    """with --to-target: time nothing, only train and judge"""

    def measuring(self, **more: Any) -> Any:
        if not self.to_target:
            return super().measuring()
        if _whole("--seeds", self.seeds) < 1:
            raise UserError(f"--seeds must be 1 or more, not {self.seeds}.")
        return super().measuring(
            timed=not self.learning_only,
            stop_at_target=self.stop_at_target,
            seeds=_whole("--seeds", self.seeds),
            jobs=_whole("--jobs", self.jobs),
            steps=None if self.steps is None else _whole("--steps", self.steps),
            target=None if self.target is None else _number("--target", self.target),
        )


@dataclass(frozen=True)
class Ladder(_Judged):
    """From the textbook DQN to the default, one speed-up a rung: what each is worth here, on your machine and your game.

    fastdqn bench ladder snake --seconds 5 --repeats 1 is the quick look; add --to-target to see minutes until solved.
    """

    leave_one_out: bool = False
    """also measure the default without each of its switches"""
    roles: bool = False
    """only the ladder's two ends, and beside them the roles in processes: pushes, prefetch, devices, a replay in a file"""

    def execute(self) -> int:
        from fastdqn.bench.ladder import run_ladder, rungs
        from fastdqn.bench.roles import role_rungs

        if self.roles and self.leave_one_out:
            raise UserError("--roles and --leave-one-out are two different tables: give one of them.")
        measuring, work = self.measuring(), self.work()
        wanted = role_rungs(work) if self.roles else rungs(work.job, self.leave_one_out)
        return self.measure("ladder", work, measuring, lambda keeper: run_ladder(work, measuring, wanted, keeper))


@dataclass(frozen=True)
class Sweep(_Judged):
    """One setting against speed and learning: `fastdqn bench sweep snake learner.batch_size=32,64,128 --to-target`.

    Several settings move together: learner.steps_per_update=1,2,4 learner.batch_size=32,64,128. The first value is what
    the others are compared with. cores=1,2,4 is how many cores of the machine a row may use.
    """

    values: Annotated[Positional[tuple[str, ...]], arg(metavar="KEY=V1,V2,...")] = ()
    """the setting and its values; give several to move them together"""
    rows: Annotated[str | None, arg(metavar="FILE")] = None
    """instead of values: a YAML file of rows, each a name and its settings; the first is the reference"""
    alone: bool = False
    """also time the environment alone, with the lanes, groups and threads of the first row, and the arithmetic alone: no
    run can be faster"""

    def execute(self) -> int:
        from fastdqn.bench.sweep import check_cores, named_points, parse_sweep, read_rows, run_sweep
        from fastdqn.bench.work import without_cores

        if self.values and self.rows:
            raise UserError("A sweep has values or --rows, not both.")
        if not self.values and not self.rows:
            raise UserError("What is to be swept? For example: fastdqn bench sweep snake learner.batch_size=32,64,128")
        measuring = replace(self.measuring(), alone=self.alone)
        named = read_rows(self.rows) if self.rows else named_points(parse_sweep(list(self.values)))
        check_cores(named)
        work = self.work(without_cores(next(iter(named.values()))))
        return self.measure("sweep", work, measuring, lambda keeper: run_sweep(work, named, measuring, keeper))


@dataclass(frozen=True)
class Growth(_Measurement):
    """What more work costs: speed and memory against lanes, batch, samples per step and capacity, a dozen points."""

    def execute(self) -> int:
        from fastdqn.bench.growth import run_growth

        measuring, work = self.measuring(), self.work()
        return self.measure("growth", work, measuring, lambda keeper: run_growth(work, measuring, keeper))


@dataclass(frozen=True)
class Profile(_Measurement):
    """Where a step's time goes: the run with one part left out at a time, and a sentence of advice."""

    def execute(self) -> int:
        from fastdqn.bench.simple import run_profile

        measuring, work = self.measuring(), self.work()
        return self.measure("profile", work, measuring, lambda keeper: run_profile(work, measuring, keeper))


@dataclass(frozen=True)
class EnvsAlone(_Measurement):
    """The environment alone, by lanes and threads: no training run here can be faster."""

    lanes: Annotated[str, arg(metavar="N,N")] = "1,8,64"
    """numbers of lanes to try"""

    def execute(self) -> int:
        from fastdqn.bench.simple import run_envs

        measuring, work = self.measuring(), self.work()
        lanes = [_whole("--lanes", text) for text in self.lanes.split(",")]
        if not all(1 <= count <= 65_536 for count in lanes):
            raise UserError(f"--lanes must be numbers from 1 to 65536, not '{self.lanes}'.")
        return self.measure("envs", work, measuring, lambda keeper: run_envs(work, measuring, lanes, keeper))


@dataclass(frozen=True)
class Peers(_Measurement):
    """Ours beside stable-baselines3 and a plain script: same network, batch, samples per step and buffer.

    fastdqn bench peers snake --also learner.batch_size=512 --also learner.steps_per_update=32 adds a row of ours with other
    settings, beside the peer as it was.
    """

    also: Settings = ()
    """settings of one more row of ours; give several for one row"""

    def execute(self) -> int:
        from fastdqn.bench.peers import check_peers_installed, peer_settings, run_peers
        from fastdqn.config import parse_assignment

        measuring, also = self.measuring(), dict(parse_assignment(text) for text in self.also)
        check_peers_installed()
        shape = self.work().job.kind.spec.obs_shape
        work = self.work(peer_settings(shape))
        return self.measure("peers", work, measuring, lambda keeper: run_peers(work, measuring, keeper, also))


@dataclass(frozen=True)
class Throughput:
    """One number: steps per second over 100 games of at most 50 steps on Snake 10x10, as a published log measures it.

    Its own formula divides 5,000 by the time although games end early; the steps really taken are counted here, and the
    formula's figure stands beside.
    """

    episodes: Number = "100"
    """games"""
    steps: Number = "50"
    """most steps of a game"""
    repeats: Number = "1"
    """how often"""
    out: str = "benchmarks/records"
    """folder that the record is written into"""
    name: Annotated[str | None, arg(metavar="TEXT")] = None
    """name of the record; the date is put before it"""

    def execute(self) -> int:
        from fastdqn.bench.simple import run_throughput

        episodes, steps = _whole("--episodes", self.episodes), _whole("--steps", self.steps)
        if episodes < 1 or steps < 1:
            raise UserError("--episodes and --steps must be 1 or more.")
        shared = _Measurement("snake", repeats=self.repeats, seconds="5", out=self.out, name=self.name)
        measuring, work = shared.measuring(), shared.work()
        return shared.measure(
            "throughput", work, measuring, lambda keeper: run_throughput(episodes, steps, measuring, keeper)
        )


@dataclass(frozen=True)
class Keep:
    """Turn finished runs into a record: their scores, speeds and curves, with machine, versions and config."""

    runs: Positional[tuple[str, ...]] = ()
    """run folders, or their names in runs/; several of one environment make one record"""
    out: str = "benchmarks/records"
    """folder that the record is written into"""
    name: Annotated[str | None, arg(metavar="TEXT")] = None
    """name of the record; the date is put before it"""

    def execute(self) -> int:
        from fastdqn.bench.keep import find_runs, keep_runs
        from fastdqn.bench.record import Keeper
        from fastdqn.bench.table import show

        runs, about = find_runs(self.runs)
        keeper = Keeper("run", about, {"runs": len(runs)}, self.out, self.name)
        keep_runs(runs, keeper)
        show(keeper.record)
        print(f"record  {keeper.path}")
        return 0


def _number(option: str, text: str) -> float:
    from fastdqn.config import parse_number

    value = parse_number(text)
    if isinstance(value, str) or not math.isfinite(value):
        raise UserError(f"{option} must be a number, not '{text}'.")
    return float(value)


def _whole(option: str, text: str) -> int:
    value = _number(option, text)
    if not value.is_integer():
        raise UserError(f"{option} must be a whole number, not '{text}'.")
    return int(value)


def _command(kind: type, name: str) -> Any:
    return Annotated[kind, tyro.conf.subcommand(name=name)]


BenchCommand: Any = (
    _command(Ladder, "ladder")
    | _command(Sweep, "sweep")
    | _command(Growth, "growth")
    | _command(Profile, "profile")
    | _command(EnvsAlone, "envs")
    | _command(Peers, "peers")
    | _command(Throughput, "throughput")
    | _command(Keep, "keep")
)
