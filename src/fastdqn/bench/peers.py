"""Ours beside others: the same environment, network, batch, samples per step and buffer, in alternating order.

Plain one-step DQN, because that is what all sides have. The peer gets the best number of environments and threads that a
short search finds on this machine.
"""

from typing import Any

from fastdqn.bench.conduct import CEILING_SECONDS, Conductor, Measuring, Variant, ask_ceiling, say_how_far, seconds_for
from fastdqn.bench.ladder import TEXTBOOK, rungs
from fastdqn.bench.peer_sb3 import find_rhythm
from fastdqn.bench.record import Keeper
from fastdqn.bench.rows import speed_columns, windows_of
from fastdqn.bench.sweep import name_of
from fastdqn.bench.verdict import ratio_interval
from fastdqn.bench.work import Work
from fastdqn.device.cores import usable_cores
from fastdqn.errors import UserError, missing_package
from fastdqn.learner.network import choose_kind
from fastdqn.prepare import prepare
from fastdqn.switches import LOW_PRECISION

SB3, PLAIN = "stable-baselines3 DQN", "plain script of the books"
OURS = "fastdqn default"
SEARCH_SECONDS = 3.0
# What every side is asked to do; the network follows the kind of observation
COMMON: dict[str, Any] = {
    "replay.n_step": 1,
    "replay.prioritised": False,
    "network.dueling": False,
    "network.norm": "none",
    "learner.double": False,
    "learner.munchausen": False,
    "learner.loss": "huber",
    "learner.optimizer": "adam",
    "learner.lr": 1e-4,
    "learner.target": "hard",
    "learner.target_every": 1000,
    "learner.steps_per_update": 4,
}
PICTURES = {"learner.batch_size": 32, "network.kind": "nature", "replay.capacity": 10_000, "replay.warmup_steps": 2_000}
VECTORS = {
    "learner.batch_size": 64,
    "network.kind": "mlp",
    "network.hidden": [256, 256],
    "network.channels": None,
    "replay.capacity": 50_000,
    "replay.warmup_steps": 1_000,
}


def peer_settings(state_shape: tuple[int, ...]) -> dict[str, Any]:
    return COMMON | (PICTURES if choose_kind("auto", state_shape) == "nature" else VECTORS)


def our_variants(work: Work, seconds: float, also: dict[str, Any]) -> list[Variant]:
    """The textbook rung, the default in float32 where that differs, the default, and the default `also` set otherwise."""
    by_name = {rung.name: rung for rung in rungs(work.job) if rung.part == "ladder"}
    short = sorted(set(LOW_PRECISION) & work.job.switches)
    wanted = [("fastdqn textbook", by_name[TEXTBOOK].settings())]
    if short:
        wanted.append(("fastdqn default in fp32", {"switches.off": short, "switches.prefer": _without(work, short)}))
    wanted.append((OURS, {}))
    if also:
        prepare(work.env, work.preset, work.task(also)["settings"], work.imports)  # refused before anything is measured
        wanted.append((f"fastdqn, {name_of(also)}", also))
    return [Variant(name, work.task(settings, task="speed", seconds=seconds)) for name, settings in wanted]


def _without(work: Work, short: list[str]) -> list[str]:
    return [name for name in work.job.config.switches.prefer if name not in short]


def check_peers_installed() -> None:
    try:
        import stable_baselines3  # noqa: F401
    except ImportError:
        raise missing_package("fastdqn bench peers", "stable-baselines3", "peers") from None


def sb3_choices(work: Work) -> list[dict[str, Any]]:
    """Numbers of environments and threads that are tried for the peer: those that keep the samples per step exactly."""
    images = choose_kind("auto", work.job.kind.spec.obs_shape) == "nature"
    threads = sorted({1, usable_cores()})
    choices = [{"envs": envs, "workers": "dummy", "threads": count} for envs in (1, 4, 8) for count in threads]
    choices += [{"envs": 8, "workers": "subproc", "threads": count} for count in threads if images]
    find_rhythm(work.job.config, 1)  # a ratio that not even one environment can keep is refused in its own words
    return [choice for choice in choices if _keeps_ratio(work, int(str(choice["envs"])))]


def _keeps_ratio(work: Work, envs: int) -> bool:
    try:
        find_rhythm(work.job.config, envs)
    except UserError:
        return False
    return True


def run_peers(work: Work, measuring: Measuring, keeper: Keeper, also: dict[str, Any] | None = None) -> None:
    check_peers_installed()
    choices = sb3_choices(work)
    ours = our_variants(work, measuring.seconds, also or {})
    each = seconds_for(measuring.seconds)
    before = len(choices) * seconds_for(SEARCH_SECONDS) + seconds_for(CEILING_SECONDS)
    conductor = Conductor("peers", before + (len(ours) + 2) * each * measuring.repeats)
    try:
        best = _search(conductor, work, choices, keeper)
        variants = [
            Variant(PLAIN, work.task({}, seconds=measuring.seconds), "fastdqn.bench.plain_script"),
            Variant(SB3, work.task({}, seconds=measuring.seconds, **best), "fastdqn.bench.peer_sb3"),
            *ours,
        ]

        def after_each(answers: dict[str, list[dict[str, Any]]]) -> None:
            rows = [_row(name, answers) for name in (v.name for v in variants) if name in answers]
            keeper.record["rows"] = rows
            say_how_far(keeper.record, OURS, next((row["steps_per_second"] for row in rows if row["name"] == OURS), None))
            keeper.save()

        keeper.record["ceiling"] = ask_ceiling(conductor, work.task({}))
        conductor.rounds(variants, measuring.repeats, measuring.seconds, after_each)
        if also:
            keeper.record["notes"].append(f"The last row is ours with {also}; the peers keep their settings.")
        keeper.finish()
    finally:
        conductor.close()


def _search(conductor: Conductor, work: Work, choices: list[dict[str, Any]], keeper: Keeper) -> dict[str, Any]:
    """The peer's fastest choice; all of them are kept in the record."""
    named = {"{envs} envs ({workers}), {threads} threads".format(**choice): choice for choice in choices}
    variants = [
        Variant(f"{SB3}, {name}", work.task({}, seconds=SEARCH_SECONDS, **choice), "fastdqn.bench.peer_sb3")
        for name, choice in named.items()
    ]
    answers = conductor.rounds(variants, 1, SEARCH_SECONDS, lambda answers: None)
    speeds = [answers[variant.name][0]["steps_per_second"] for variant in variants]
    tried = [choice | {"steps_per_second": speed} for choice, speed in zip(named.values(), speeds, strict=True)]
    keeper.record["search"] = tried
    best = max(tried, key=lambda choice: choice["steps_per_second"])
    return {name: best[name] for name in ("envs", "workers", "threads")}


def _row(name: str, answers: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    own, peer = answers[name], answers.get(SB3)
    row: dict[str, Any] = {"name": name, "ratio": None, "ratio_interval": None, "precision": _precision(own[-1])}
    row |= speed_columns(own, peer if name != SB3 else None)
    if peer and name != SB3:
        ratio = ratio_interval(windows_of(own), windows_of(peer))
        row |= {"ratio": ratio.value, "ratio_interval": [ratio.low, ratio.high]}
    return row | {"switches": own[-1]["switches"], "details": own[-1]["details"], "speeds": own}


def _precision(speed: dict[str, Any]) -> str:
    return next((name for name in LOW_PRECISION if name in speed["switches"]), "fp32")
