"""The command line: parse and call, nothing else. torch is imported by the commands that need it, so --help is quick."""

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from tyro.conf import Positional, arg

from fastdqn.commands.bench import BenchCommand
from fastdqn.errors import RoleError, UserError

INTERRUPTED_EXIT, TERMINATED_EXIT = 130, 143  # what shells expect after Ctrl-C and after SIGTERM

Text = Annotated[str | None, arg(metavar="TEXT")]
Number = Annotated[str | None, arg(metavar="N")]  # '2M', '1e6' and '200_000' are understood
Names = Annotated[str, arg(metavar="A,B")]


@dataclass(frozen=True)
class Train:
    """Train a DQN: `fastdqn train snake`, `fastdqn train pong --steps 2M`, `fastdqn train CartPole-v1 --seed 3`.

    Writes a run folder with the config, metrics, model, curve and evaluations. Ctrl-C ends cleanly and saves.
    """

    env: Positional[str]
    """snake, catch, an Atari game (pong, PongNoFrameskip-v4, ALE/Pong-v5) or a Gymnasium id; list: fastdqn envs"""
    preset: Text = None
    """settings to begin from: a name (snake, snake_gpu, cartpole, atari, catch, default) or your own YAML file;
    default: the env's"""
    steps: Number = None
    """stop after this many environment steps (2M, 1e6 and 200_000 are understood)"""
    episodes: Number = None
    """stop after this many games"""
    minutes: Number = None
    """stop after this many minutes"""
    target: Number = None
    """stop when the evaluator's mean over its fresh games (evaluator.episodes) reaches this score"""
    seed: Number = None
    """root of every random stream; the same seed on one CPU gives the same curve"""
    device: Text = None
    """auto, cpu, cuda, cuda:1 or mps; auto takes the GPU for large images and the CPU for small networks"""
    runner: Text = None
    """inline: all roles in one loop. processes: actors (--set actor.count=2), learner and evaluator each in a process"""
    on: Names = ""
    """speed-ups to turn on, separated by commas; list: fastdqn switches"""
    off: Names = ""
    """speed-ups to turn off"""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, arg(metavar="KEY=VALUE")] = ()
    """any setting, e.g. --set learner.batch_size=128 --set env.dim=6; list: fastdqn settings"""
    import_: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, arg(name="import", metavar="MODULE")] = ()
    """module to import first, so that it can register your own environments"""
    run: Text = None
    """name of the run folder in runs/; default: the environment, the date and a suffix"""
    from_: Annotated[str | None, arg(name="from", metavar="RUN")] = None
    """start from the weights of another run, exploring as little as it did at its end"""
    log: Names = ""
    """further logs beside metrics.jsonl: tensorboard"""
    profile: Text = "auto"
    """what `fastdqn tune` found for this machine: auto (used where there is one), none, or a profile file"""
    plan: bool = False
    """start nothing: say what the run needs of memory and disk, and how long it takes at the speed measured now"""
    price_per_hour: Number = None
    """with --plan: what an hour of this machine costs, to get the price of the run"""
    quiet: bool = False
    """no progress, only the result"""

    def execute(self) -> int:
        from fastdqn.config import parse_assignment
        from fastdqn.prepare import prepare

        wishes = {
            "limits.steps": self.steps,
            "limits.episodes": self.episodes,
            "limits.minutes": self.minutes,
            "limits.target": self.target,
            "seed": self.seed,
            "device": self.device,
            "runner": self.runner,
        }
        settings = dict(parse_assignment(text) for text in self.set)
        settings |= {key: value for key, value in wishes.items() if value is not None}
        for key, names in (("switches.on", self.on), ("switches.off", self.off), ("log.sinks", self.log)):
            if names:
                settings[key] = [name.strip() for name in names.split(",") if name.strip()]
        profile = self.profile or "auto"
        job = prepare(self.env, self.preset, settings, self.import_, from_run=self.from_, profile=profile)
        return self._plan(job) if self.plan else self._train(job)

    def _plan(self, job: Any) -> int:
        from fastdqn.commands.plan import make_plan

        price = None if self.price_per_hour is None else _positive("--price-per-hour", self.price_per_hour)
        print("measuring this machine for about ten seconds ...", file=sys.stderr)
        for line in make_plan(job, price_per_hour=price).lines():
            print(line)
        return 0

    def _train(self, job: Any) -> int:
        from fastdqn.run.view import make_view
        from fastdqn.train import INTERRUPTED, TERMINATED, describe, run_job

        run = run_job(job, self.run, self.from_, make_view(self.quiet))
        print(f"{run.reason} after {run.steps:,} steps and {run.updates:,} updates; the model is saved")
        if run.score is not None:
            print(describe(run.score))
        print(f"speed  {run.speed()}")
        print(f"model  {run.folder.model_path}\ncurve  {run.folder.curve_path}")
        imports = "".join(f" --import {module}" for module in self.import_)
        print(f"next   fastdqn watch {run.path}{imports}   |   fastdqn eval {run.path}{imports} --episodes 100")
        return {INTERRUPTED: INTERRUPTED_EXIT, TERMINATED: TERMINATED_EXIT}.get(run.reason, 0)


@dataclass(frozen=True)
class Tune:
    """Find the fastest settings of this machine for one game: lanes, threads, groups, device, precision, compile.

    `fastdqn tune pong` takes about two minutes; `fastdqn train pong` uses what it found from then on. Samples per step,
    batch and learning rate stay as they are. What you --set yourself is kept and not searched.
    """

    env: Positional[str]
    """snake, catch, an Atari game or a Gymnasium id; list: fastdqn envs"""
    preset: Text = None
    """settings to begin from; default: the environment's own"""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, arg(metavar="KEY=VALUE")] = ()
    """any setting, e.g. --set learner.batch_size=512: the profile holds for runs with the same batch and network"""
    device: Text = None
    """cpu, cuda, ...; default: all that are there"""
    import_: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, arg(name="import", metavar="MODULE")] = ()
    """module to import first, so that it can register your own environments"""
    minutes: Number = "2"
    """begin no further trial after so long"""
    out: Annotated[str | None, arg(metavar="FILE")] = None
    """write the profile here, for train --profile FILE; default: where train looks by itself"""
    quiet: bool = False
    """no progress, only the result"""

    def execute(self) -> int:
        from fastdqn.config import parse_assignment
        from fastdqn.tune.tune import tune
        from fastdqn.tune.view import make_tune_view

        minutes = _positive("--minutes", self.minutes or "2")
        settings = dict(parse_assignment(text) for text in self.set)
        settings |= {} if self.device is None else {"device": self.device}
        view = make_tune_view(self.quiet, f"fastdqn tune {self.env}", minutes)
        tuned, path = tune(self.env, self.preset, settings, self.import_, minutes, self.out, view)
        print("\n".join(tuned.lines()))
        tuned.save(path)
        print(f"profile   {path}")
        note = "" if self.out else "   (uses it from now on; --profile none: without)"
        print(f"next      {self._train_command()}{note}")
        return 0

    def _train_command(self) -> str:
        """The run that the profile holds for: the same preset, settings and device."""
        words = ["fastdqn", "train", self.env]
        for option, values in (
            ("--preset", [self.preset]), ("--device", [self.device]), ("--set", self.set), ("--import", self.import_),
            ("--profile", [self.out]),
        ):  # fmt: skip
            words += [word for value in values if value is not None for word in (option, value)]
        return shlex.join(words)


@dataclass(frozen=True)
class Eval:
    """Play whole games with a trained model, without exploring, and report the score with its 95 % interval."""

    run: Positional[str]
    """a run folder, or its name in runs/"""
    episodes: Number = "30"
    """games to play"""
    seed: Number = "0"
    """which games: the same seed plays the same starts"""
    device: str = "cpu"
    """cpu, cuda, cuda:1 or mps"""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, arg(metavar="KEY=VALUE")] = ()
    """evaluator settings, e.g. --set evaluator.epsilon=0.05"""
    import_: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, arg(name="import", metavar="MODULE")] = ()
    """module the environment comes from; a run by itself imports nothing"""

    def execute(self) -> int:
        from fastdqn.commands.evaluate import evaluate_run

        score, path = evaluate_run(self.run, self.episodes or "30", self.seed or "0", self.device, self.set, self.import_)
        low, high = score.interval
        print(f"{score.env_id}, protocol {score.protocol}, epsilon {score.epsilon:g}, weights of step {score.step:,}")
        print(f"mean {score.mean:.2f} ({low:.2f} to {high:.2f}), median {score.median:.2f}, {score.episodes} games")
        print(path)
        return 0


@dataclass(frozen=True)
class Watch:
    """Look at a trained agent: in the terminal (Snake), or as a film (all environments)."""

    run: Positional[str]
    """a run folder, or its name in runs/"""
    out: Annotated[str | None, arg(metavar="FILM")] = None
    """film file to write, .gif or .mp4; without it Snake plays in the terminal and others write RUN/film.gif"""
    episode: Number = None
    """a game that was dumped on the way (--set dump.every=100): its frames, and the values of all actions"""
    seed: Number = "0"
    """which game"""
    games: Number = "5"
    """games played for a film; the best one is kept"""
    fps: Number = None
    """images per second; default: what suits the environment"""
    max_steps: Number = "3000"
    """longest game that is filmed"""
    import_: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, arg(name="import", metavar="MODULE")] = ()
    """module the environment comes from; a run by itself imports nothing"""

    def execute(self) -> int:
        from fastdqn.commands.watch import watch_run

        if self.episode is not None:
            print(self._watch_episode(self.episode))
            return 0
        print(watch_run(self.run, self.out, self.seed, self.games, self.fps, self.max_steps, self.import_))
        return 0

    def _watch_episode(self, episode: str) -> str:
        from fastdqn.commands.evaluate import whole_number
        from fastdqn.play.replayed import watch_episode

        rate = None if self.fps is None else whole_number("--fps", self.fps, 1)
        return watch_episode(self.run, whole_number("--episode", episode, 1), self.out, rate)


@dataclass(frozen=True)
class Demo:
    """Train a snake from nothing in three minutes, evaluate it, and leave a curve and a film to look at."""

    minutes: Number = None
    """minutes of training; default: just under 3"""
    run: Text = None
    """name of the run folder in runs/"""
    quiet: bool = False
    """no progress, only the result"""

    def execute(self) -> int:
        from fastdqn.commands.demo import TRAINING_MINUTES, demo

        minutes = TRAINING_MINUTES if self.minutes is None else _positive("--minutes", self.minutes)
        print(demo(minutes, self.run, self.quiet))
        return 0


@dataclass(frozen=True)
class Envs:
    """List the environments that can be trained here."""

    def execute(self) -> int:
        from fastdqn.commands.listing import env_lines

        print("\n".join(env_lines()))
        return 0


@dataclass(frozen=True)
class Switches:
    """List the speed-ups: what each does, what it promises, whether it is on by default."""

    def execute(self) -> int:
        from fastdqn.commands.listing import print_switches

        print_switches()
        return 0


@dataclass(frozen=True)
class Settings:
    """List every setting with what it means and its value: the bare default, or what an environment's preset makes of it."""

    env: Annotated[Positional[str | None], arg(metavar="ENV")] = None
    """show the values that `fastdqn train ENV` would use, the environment's own settings among them"""

    def execute(self) -> int:
        from fastdqn.commands.listing import print_settings

        print_settings(self.env)
        return 0


@dataclass(frozen=True)
class Bench:
    """Measure this machine: ladder, sweep, growth, profile, envs, peers, throughput, keep. More: `fastdqn bench --help`."""

    what: Annotated[BenchCommand, arg(name="")]

    def execute(self) -> int:
        code: int = self.what.execute()
        return code


@dataclass(frozen=True)
class Report:
    """One page with everything that was measured: charts, tables, curves. Opens in any browser, needs no network."""

    records: Positional[tuple[str, ...]] = ()
    """records, or folders of them; default: benchmarks/records"""
    out: Annotated[str, arg(metavar="PAGE")] = "report.html"
    """the page to write"""

    def execute(self) -> int:
        from fastdqn.report import write_report

        print(write_report(self.records, self.out))
        return 0


def _positive(option: str, text: str) -> float:
    from fastdqn.config import parse_number

    value = parse_number(text)
    if isinstance(value, str) or value <= 0:
        raise UserError(f"{option} must be a number above 0, not '{text}'.")
    return float(value)


def _command(kind: type, name: str) -> Any:
    return Annotated[kind, tyro.conf.subcommand(name=name)]


Command: Any = (
    _command(Demo, "demo")
    | _command(Train, "train")
    | _command(Tune, "tune")
    | _command(Eval, "eval")
    | _command(Watch, "watch")
    | _command(Envs, "envs")
    | _command(Switches, "switches")
    | _command(Settings, "settings")
    | _command(Bench, "bench")
    | _command(Report, "report")
)

DESCRIPTION = """fastdqn: the fastest way to train a DQN, every speed-up switchable and measured.

First steps:
  fastdqn demo                        a snake that eats, in three minutes on a laptop
  fastdqn watch runs/NAME             look at what it learned
  fastdqn train pong --plan           what would that take on this machine?
"""


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given in (["--version"], ["-V"]):
        from fastdqn import __version__

        print(f"fastdqn {__version__}")
        return 0
    try:
        command = tyro.cli(Command, prog="fastdqn", description=DESCRIPTION, args=given or ["--help"])
        code: int = command.execute()
        return code
    except UserError as error:
        print(f"fastdqn: {error}", file=sys.stderr)
        return 2
    except RoleError as error:
        print(f"fastdqn: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fastdqn: stopped at once, nothing more was saved", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(INTERRUPTED_EXIT)  # a work thread may be inside torch, where the interpreter cannot end it cleanly
    except BrokenPipeError:  # `fastdqn envs | head`
        sys.stderr.close()
        return 0


def run() -> None:
    """The `fastdqn` script."""
    sys.exit(main())
