"""Config is data: one frozen model per part, a sentence under each field, presets as YAML, errors as sentences.

Order of precedence, weakest first: the defaults here, the preset, `--set key=value`, the command's own options.
"""

import re
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from fastdqn.errors import UserError, nearest

_NUMBER = re.compile(r"[+-]?(\d[\d_]*\.?\d*|\.\d+)(e[+-]?\d+)?([kmbg])?", re.IGNORECASE)
_SUFFIX = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9}


def parse_number(text: Any) -> Any:
    """'1e6', '10M', '1.5k' and '200_000' as numbers; anything else is handed back for the type check to judge."""
    if not isinstance(text, str) or not _NUMBER.fullmatch(text.strip()):
        return text
    plain = text.strip().replace("_", "").lower()
    if plain.lstrip("+-").isdigit():
        return int(plain)  # exact: a float holds no more than 53 bits of a seed
    suffix = plain[-1] if plain[-1] in "kmbg" else ""
    value = float(plain[: len(plain) - len(suffix)]) * _SUFFIX[suffix]
    return int(value) if value.is_integer() else value


Count = Annotated[int, BeforeValidator(parse_number)]  # every whole number: RL users type 1e6 and 10M
Width = Annotated[int, BeforeValidator(parse_number), Field(ge=1, le=65_536)]
Real = Annotated[float, BeforeValidator(parse_number), Field(allow_inf_nan=False)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ActorConfig(Section):
    lanes: Count = Field(8, ge=1, le=65_536)
    """Environments played at the same time."""
    groups: Count = Field(1, ge=1, le=64)
    """Groups the lanes are split into; one group can emulate while another is in the network."""
    epsilon_start: Real = Field(1.0, ge=0, le=1)
    """Share of random actions at the first step."""
    epsilon_end: Real = Field(0.05, ge=0, le=1)
    """Share of random actions once the schedule has ended."""
    epsilon_steps: Count = Field(10_000, ge=0)
    """Steps over which epsilon falls, linearly, from start to end."""
    count: Count = Field(1, ge=1, le=256)
    """Processes that share the lanes (runner processes)."""
    device: str | None = None
    """Where actors choose actions: cpu, cuda, cuda:1; unset = where the learner is (runner processes)."""
    push: Annotated[int, BeforeValidator(parse_number), Field(ge=1, le=100_000)] | Literal["step", "episode"] = "step"
    """When an actor hands over what it has played: at every step, after so many steps of each lane, or when a game has
    ended, and at the latest when a slot is full (runner processes)."""
    sync_every: Count = Field(10, ge=1)
    """Steps, over all lanes, between two sets of weights that reach the actors (runner processes)."""


class ReplayConfig(Section):
    capacity: Count = Field(100_000, ge=1)
    """Rows kept, over all lanes together (a game of L steps takes L + 1 rows)."""
    stack: Count | None = Field(None, ge=1, le=16)
    """Frames joined into one state; unset = what the environment needs (4 on Atari, else 1)."""
    n_step: Count = Field(1, ge=1, le=100)
    """Rewards summed before bootstrapping."""
    warmup_steps: Count = Field(1_000, ge=0)
    """Steps played, with epsilon_start, before the first update."""
    place: Literal["memory", "file"] = "memory"
    """Where the rows are: in memory, or in a file on the disk of the run folder, reserved in full at the start."""
    prioritised: bool = False
    """Draw rows the more often the larger their last TD error was, instead of all alike."""
    priority_alpha: Real = Field(0.5, ge=0, le=1)
    """How much the error counts: a row is drawn in proportion to error ** alpha; 0 = all alike (prioritised)."""
    priority_beta: Real = Field(0.4, ge=0, le=1)
    """How much of the bias of such draws the weights in the loss take back; 1 = all of it (prioritised)."""
    priority_beta_end: Real | None = Field(None, ge=0, le=1)
    """Beta reached linearly at the step limit; unset = constant (prioritised)."""


class NetworkConfig(Section):
    kind: Literal["auto", "mlp", "cnn", "nature", "impala"] = "auto"
    """auto: nature for images of 36x36 and more, cnn for smaller ones, mlp for everything else. impala: residual blocks."""
    hidden: tuple[Width, ...] | None = None
    """Widths of the fully connected layers; unset = 256, 256 for mlp, 256 for cnn and impala, 512 for nature."""
    channels: tuple[Width, ...] | None = None
    """Widths of the convolutions; unset = 32, 64 for cnn, 32, 64, 64 for nature (which has three), 16, 32, 32 for impala
    (any number of blocks; twice as wide is 32, 64, 64)."""
    dueling: bool = False
    """A value and one advantage per action, in two streams from the last hidden layer on (which both have)."""
    norm: Literal["none", "layer"] = "none"
    """layer: layer norm in every hidden fully connected layer, between its product and its ReLU; convolutions have none."""


class LearnerConfig(Section):
    batch_size: Count = Field(64, ge=1)
    """Transitions per update."""
    steps_per_update: Real = Field(4, gt=0)
    """Environment steps that earn one update; samples per step = batch_size / steps_per_update."""
    gamma: Real = Field(0.99, ge=0, le=1)
    """Discount per step."""
    double: bool = False
    """Choose the next action with the online network, value it with the target network."""
    loss: str = "huber"
    """huber or mse: distance of a value to its TD target. c51: cross entropy of distributions over returns."""
    atoms: Count = Field(51, ge=2, le=1001)
    """Returns that c51 spreads its probability over, evenly from v_min to v_max."""
    v_min: Real = -10.0
    """Smallest return of c51."""
    v_max: Real = 10.0
    """Largest return of c51."""
    munchausen: bool = False
    """Adds the policy's log-probability to the reward and bootstraps from the policy's mean (double has no part in it)."""
    munchausen_alpha: Real = Field(0.9, ge=0, le=1)
    """Share of the log-probability that is added."""
    munchausen_tau: Real = Field(0.03, gt=0)
    """Temperature of the policy."""
    munchausen_clip: Real = Field(-1.0, le=0)
    """Smallest log-probability, times the temperature, that is added."""
    optimizer: Literal["adam", "adamw", "rmsprop"] = "adam"
    """Optimizer; adamw decays the weights, rmsprop is the centred one of the Nature paper."""
    weight_decay: Real = Field(0.01, ge=0)
    """Share of the learning rate by which adamw shrinks every weight at each update."""
    lr: Real = Field(1e-3, gt=0)
    """Learning rate at the start."""
    lr_end: Real | None = Field(None, ge=0)
    """Learning rate reached linearly at the step limit; unset = constant."""
    optimizer_eps: Real = Field(1e-8, gt=0)
    """The optimizer's epsilon."""
    clip_grad_norm: Real = Field(10.0, ge=0)
    """Largest norm of the whole gradient; 0 = no clipping."""
    target: Literal["hard", "soft", "none"] = "hard"
    """How the target network follows: copied every target_every updates, by target_tau each update, or not used."""
    target_every: Count = Field(500, ge=1)
    """Updates between two hard copies."""
    target_tau: Real = Field(0.005, gt=0, le=1)
    """Share of the online weights mixed into the target at each update (soft)."""
    threads: Count = Field(0, ge=0, le=1024)
    """CPU threads of torch; 0 = chosen for the machine and the network."""
    device: str | None = None
    """Where the learner trains; unset = `device` (runner processes)."""
    prefetch: Count = Field(0, ge=0, le=16)
    """Batches that a thread draws, stacks and copies to the device while others are learned from."""
    ratio: Literal["held", "free"] = "held"
    """held: as many updates as the steps have earned. free: as many as there is time for (runner processes)."""

    @property
    def bootstrap(self) -> str:
        """The rule that gives the next state's value (learner/bootstrap.py)."""
        return "munchausen" if self.munchausen else "double" if self.double else "max"

    def idle(self) -> list[str]:
        """A line for each setting that was changed and has no effect beside the others."""
        owners = {"loss=c51": ("atoms", "v_min", "v_max"), "optimizer=adamw": ("weight_decay",)}
        owners["munchausen=true"] = ("munchausen_alpha", "munchausen_tau", "munchausen_clip")
        active = {f"loss={self.loss}", f"optimizer={self.optimizer}", f"munchausen={str(self.munchausen).lower()}"}
        lines = [
            f"learner.{name}={getattr(self, name):g} has no effect: it is for learner.{owner}"
            for owner, names in owners.items()
            for name in names
            if owner not in active and getattr(self, name) != type(self).model_fields[name].default
        ]
        return lines + ["learner.double has no effect beside learner.munchausen"] * (self.double and self.munchausen)

    @model_validator(mode="after")
    def _the_range_is_one(self) -> "LearnerConfig":
        if self.v_min >= self.v_max:
            raise ValueError(f"learner.v_min={self.v_min:g} must be smaller than learner.v_max={self.v_max:g}")
        return self


class EvaluatorConfig(Section):
    every_steps: Count = Field(0, ge=0)
    """Steps between two evaluations while training; 0 = only at the end (and every 20th of the run with a target)."""
    at_end: bool = True
    """Evaluate the final weights when training ends."""
    episodes: Count = Field(30, ge=1, le=1_000_000)
    """Fresh games per evaluation."""
    lanes: Count = Field(10, ge=1, le=65_536)
    """Games played at the same time."""
    epsilon: Real | None = Field(None, ge=0, le=1)
    """Share of random actions; unset = the environment's (0.01 on Atari, else 0)."""
    device: str | None = None
    """Where the evaluator plays; unset = where the learner is (runner processes)."""


class LimitsConfig(Section):
    """Training ends at whichever limit is reached first; a limit that is unset does not count."""

    steps: Count | None = Field(100_000, ge=1)
    """Environment steps over all lanes."""
    episodes: Count | None = Field(None, ge=1)
    """Finished games."""
    minutes: Real | None = Field(None, gt=0)
    """Minutes of training, evaluations included."""
    target: Real | None = None
    """Evaluator's mean score at which the game counts as solved."""


class LogConfig(Section):
    every_steps: Count = Field(1_000, ge=1)
    """Steps between two lines of metrics.jsonl."""
    sinks: tuple[Literal["tensorboard"], ...] = ()
    """Further places the metrics go to."""
    window_episodes: Count = Field(100, ge=1)
    """Finished games that return_mean and score_mean are taken over."""


class DumpConfig(Section):
    every: Count = Field(0, ge=0)
    """Every so many games one is kept whole in RUN/episodes: frames, actions, rewards, values; 0 = none."""
    max_gb: Real = Field(10.0, gt=0)
    """Room for them; beyond it the oldest are dropped."""


class ProcessesConfig(Section):
    """Of the runner processes."""

    heartbeat_seconds: Real = Field(60.0, gt=0)
    """An actor or evaluator that has been silent for so long is replaced, after a dump of its stack."""
    first_heartbeat_seconds: Real = Field(300.0, gt=0)
    """The same before its first step, when it may be compiling."""
    affinity: bool = False
    """Each role keeps to cores of its own."""


class SwitchConfig(Section):
    on: tuple[str, ...] = ()
    """Speed-ups turned on beyond the defaults."""
    off: tuple[str, ...] = ()
    """Speed-ups turned off."""
    prefer: tuple[str, ...] = ()
    """Speed-ups turned on where the machine has what they need, and left off with a line where it has not (presets)."""


class Config(Section):
    """Everything that decides what a run does."""

    env_id: str
    """The environment: snake, an Atari game, or a Gymnasium id."""
    env: dict[str, Any] = Field(default_factory=dict)
    """Settings of the environment itself, such as env.dim=6."""
    own_env: bool = False
    """The environment was made by a function of the user's: whoever loads the run must hand it over again."""
    from_run: str | None = None
    """The run whose weights this one started from."""
    imports: tuple[str, ...] = ()
    """Modules imported first, so that they can register environments."""
    preset: str = "default"
    """Name of the preset the rest began from."""
    seed: Count = Field(0, ge=0, lt=2**63)
    """Root of every random stream."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps."""
    runner: Literal["inline", "processes"] = "inline"
    """Where the roles live: all in one loop, or actors, learner and evaluator in processes of their own."""
    actor: ActorConfig = ActorConfig()
    replay: ReplayConfig = ReplayConfig()
    network: NetworkConfig = NetworkConfig()
    learner: LearnerConfig = LearnerConfig()
    evaluator: EvaluatorConfig = EvaluatorConfig()
    limits: LimitsConfig = LimitsConfig()
    log: LogConfig = LogConfig()
    dump: DumpConfig = DumpConfig()
    processes: ProcessesConfig = ProcessesConfig()
    switches: SwitchConfig = SwitchConfig()

    @model_validator(mode="after")
    def _groups_fit_lanes(self) -> "Config":
        if self.actor.groups > self.actor.lanes:
            raise ValueError(f"actor.groups={self.actor.groups} is more than actor.lanes={self.actor.lanes}")
        if self.runner == "processes" and self.actor.count * self.actor.groups > self.actor.lanes:
            raise ValueError(
                f"actor.lanes={self.actor.lanes} are shared by actor.count={self.actor.count} processes of "
                f"actor.groups={self.actor.groups}: there must be at least {self.actor.count * self.actor.groups}"
            )
        if self.runner == "inline" and (apart := self._set_for_processes()):
            raise ValueError(f"{apart} is for roles in processes of their own: use --runner processes")
        if not self.replay.prioritised and (beside := self._set_for_prioritised()):
            raise ValueError(f"{beside} is for prioritised replay: set replay.prioritised=true")
        if not any(v is not None for v in self.limits.model_dump().values()):
            raise ValueError("set at least one limit: steps, episodes, minutes or target")
        return self

    def _set_for_processes(self) -> str:
        """A setting that means nothing inline and is not as it was made, or the empty string."""
        keys = [("actor", key) for key in ("count", "device", "push", "sync_every")]
        keys += [("learner", key) for key in ("device", "ratio")] + [("evaluator", "device")]
        return self._changed(keys)

    def _set_for_prioritised(self) -> str:
        """A setting that means nothing for a uniform replay, or the empty string."""
        return self._changed([("replay", f"priority_{key}") for key in ("alpha", "beta", "beta_end")])

    def _changed(self, keys: Iterable[tuple[str, str]]) -> str:
        """The first of these settings that is not as it was made, or the empty string."""
        for section, key in keys:
            part = getattr(self, section)
            if (value := getattr(part, key)) != type(part).model_fields[key].default:
                return f"{section}.{key}={value}"
        return ""

    @property
    def samples_per_step(self) -> float:
        return self.learner.batch_size / self.learner.steps_per_update


def make_config(env_id: str, preset: str, overrides: Mapping[str, Any]) -> Config:
    """A config from a preset and dotted overrides such as {'learner.batch_size': 128}."""
    tree = load_preset(preset)
    tree.update(env_id=env_id, preset=preset)
    for key, value in overrides.items():
        _put(tree, key.split("."), value)
    return validate(tree)


def validate(tree: Mapping[str, Any]) -> Config:
    """A config from nested dicts; a fault becomes one sentence."""
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise UserError(_sentence(error)) from None


def parse_assignment(text: str) -> tuple[str, Any]:
    """'learner.batch_size=128' -> ('learner.batch_size', 128); the value is read as YAML, numbers as RL users type them."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UserError(f"'{text}' is not a setting. Write it as key=value, for example learner.batch_size=128.")
    try:
        return key.strip(), parse_number(yaml.safe_load(value) if value else value)
    except yaml.YAMLError:
        raise UserError(f"The value of '{text}' cannot be read.") from None


def preset_names() -> list[str]:
    return sorted(file.name.removesuffix(".yaml") for file in _preset_folder().iterdir() if file.name.endswith(".yaml"))


def load_preset(name: str) -> dict[str, Any]:
    """A preset of the package by name, or a YAML file of the user's by path."""
    if name.endswith((".yaml", ".yml")):
        if not Path(name).is_file():
            raise UserError(f"There is no preset file {name}.")
        return read_yaml(Path(name))
    if name not in preset_names():
        raise UserError(f"Unknown preset '{name}'.{nearest(name, preset_names())} Presets: {', '.join(preset_names())}.")
    return _checked_mapping(yaml.safe_load((_preset_folder() / f"{name}.yaml").read_text()), name)


def read_yaml(path: Path) -> dict[str, Any]:
    try:
        return _checked_mapping(yaml.safe_load(path.read_text()), str(path))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not readable YAML: {error}") from None


def to_yaml(config: Config) -> str:
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)


def setting_rows() -> list[tuple[str, Any, str]]:
    """Every setting as (dotted key, default, sentence), in reading order."""
    return list(_rows(Config, ""))


def _preset_folder() -> Any:
    return resources.files("fastdqn") / "presets"


def _checked_mapping(tree: Any, where: str) -> dict[str, Any]:
    if not isinstance(tree, dict):
        raise UserError(f"{where} does not hold settings (a mapping of names to values).")
    return _with_words_as_keys(tree)


def _with_words_as_keys(tree: dict[Any, Any]) -> dict[str, Any]:
    """YAML reads the keys of `switches: {on: [...], off: [...]}` as true and false."""
    words = {True: "on", False: "off"}
    return {
        words[key] if isinstance(key, bool) else key: _with_words_as_keys(value) if isinstance(value, dict) else value
        for key, value in tree.items()
    }


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        branch = tree.setdefault(name, {})
        if not isinstance(branch, dict):
            raise UserError(f"'{'.'.join(path)}' is not a setting: {name} is a value, not a section.")
        tree = branch
    tree[path[-1]] = value


def _rows(model: type[BaseModel], prefix: str) -> Iterable[tuple[str, Any, str]]:
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            yield from _rows(info.annotation, f"{prefix}{name}.")
        else:
            default = {} if info.default_factory else info.default
            yield prefix + name, default, info.description or ""


def _sentence(error: ValidationError) -> str:
    fault = error.errors()[0]
    key = ".".join(str(part) for part in fault["loc"] if not (isinstance(part, str) and part.startswith("function-")))
    if fault["type"] == "extra_forbidden":
        known = [row[0] for row in setting_rows()]
        last = key.rsplit(".", 1)[-1]
        similar = nearest(key, known) or nearest(last, [name for name in known if last in name])
        return f"Unknown setting '{key}'.{similar} All settings: fastdqn settings."
    if not key:
        return fault["msg"].removeprefix("Value error, ") + "."
    message = fault["msg"].replace("Input should be", "it must be")
    return f"{key}={fault['input']!r} is out of place: {message}."
