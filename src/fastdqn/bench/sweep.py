"""A sweep: one setting (or several moved together) against speed and learning. The first value is the reference."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fastdqn.bench.conduct import CEILING_SECONDS, Conductor, Measuring, Variant, ask_ceiling, say_how_far, seconds_for
from fastdqn.bench.judge import Judge
from fastdqn.bench.profile import ALL_BUT_THE_ENVIRONMENT
from fastdqn.bench.record import Keeper
from fastdqn.bench.rows import speed_columns, why_so_fast
from fastdqn.bench.work import CORES, Work, without_cores
from fastdqn.config import parse_number
from fastdqn.device.cores import usable_cores
from fastdqn.errors import UserError
from fastdqn.prepare import check_memory_of, prepare

ALONE = "the environment alone"


def parse_sweep(texts: list[str]) -> list[dict[str, Any]]:
    """['a=1,2', 'b=8,16'] -> [{'a': 1, 'b': 8}, {'a': 2, 'b': 16}]: several settings move together, like a zip."""
    columns: dict[str, list[Any]] = {}
    for key, values in map(_parse_one, texts):
        if key in columns:
            raise UserError(f"The setting '{key}' is given twice: put all of its values into one list.")
        columns[key] = values
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1:
        raise UserError("Settings that are swept together need the same number of values each.")
    if lengths == {1}:
        raise UserError("A sweep needs at least two values, for example learner.batch_size=32,64,128.")
    points = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    names = [name_of(point) for point in points]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{twice[0]} is given twice: the rows of a sweep must differ. For more measurements: --repeats.")
    return points


def read_rows(file: str) -> dict[str, dict[str, Any]]:
    """A table of one's own, in YAML: the name of a row -> its settings. The first row is the reference."""
    try:
        found = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except OSError as fault:
        raise UserError(f"The rows cannot be read from {file}: {fault.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise UserError(f"{file} is not YAML.") from None
    if not isinstance(found, dict) or len(found) < 2 or not all(isinstance(row, dict) for row in found.values()):
        raise UserError(f"{file} must have two rows or more, each a name and its settings: 'three: {{actor.lanes: 3}}'.")
    return {
        str(name): {str(key): parse_number(value) if isinstance(value, str) else value for key, value in row.items()}
        for name, row in found.items()
    }


def _parse_one(text: str) -> tuple[str, list[Any]]:
    key, equals, values = text.partition("=")
    if not equals or not key.strip() or not values.strip():
        raise UserError(f"'{text}' is no sweep. Write it as key=v1,v2,..., for example learner.batch_size=32,64,128.")
    try:
        parsed = yaml.safe_load(f"[{values}]")  # so that a value may be a list itself: network.hidden=[64],[256,256]
    except yaml.YAMLError:
        raise UserError(f"The values of '{text}' cannot be read.") from None
    return key.strip(), [parse_number(value) for value in parsed]


def named_points(points: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """A row is called by all settings it sweeps; where several are swept and one differs, by those that differ from the
    first row, which is then called 'as it is'."""
    first, many = points[0], len(points[0]) > 1
    few_differ = many and any(sum(point[key] != first[key] for key in first) == 1 for point in points)
    if not few_differ:
        return {name_of(point): point for point in points}
    changed = [{key: value for key, value in point.items() if value != first[key]} for point in points]
    return {name_of(difference) or "as it is": point for difference, point in zip(changed, points, strict=True)}


def name_of(settings: dict[str, Any]) -> str:
    return ", ".join(f"{key.rsplit('.', 1)[-1]}={_text(value)}" for key, value in settings.items())


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).replace(" ", "")


def _speeds(own: list[dict[str, Any]] | None, against: list[dict[str, Any]] | None) -> dict[str, Any]:
    if not own:
        return {"speed_verdict": "not measured"}
    return speed_columns(own, against) | {"switches": own[-1]["switches"], "speeds": own}


def check_cores(named: Mapping[str, Mapping[str, Any]]) -> None:
    """`cores=1,2,4` sweeps how much of the machine a row may use."""
    there = usable_cores()
    for wanted in (point[CORES] for point in named.values() if CORES in point):
        if not isinstance(wanted, int) or isinstance(wanted, bool) or not 1 <= wanted <= there:
            raise UserError(f"cores={wanted}: this machine gives fastdqn {there}, so it must be a number from 1 to {there}.")


def run_sweep(work: Work, named: dict[str, dict[str, Any]], measuring: Measuring, keeper: Keeper) -> None:
    """`named`: the name of a row -> its settings; the first is what the others are compared with."""
    points = list(named.values())
    whole = "replay.capacity" in points[0]  # is filled to its last row
    for point in points:  # all of them are checked before the first is measured
        job = prepare(work.env, work.preset, work.task(point)["settings"], work.imports)
        if whole:
            check_memory_of(job)
    reference = next(iter(named))
    variants = [
        Variant(name, work.task(point, task="speed", seconds=measuring.seconds, whole_replay=whole))
        for name, point in named.items()
        if measuring.timed
    ]
    if measuring.alone and measuring.timed:
        alone = {"without": ALL_BUT_THE_ENVIRONMENT, "seconds": measuring.seconds}
        variants.append(Variant(ALONE, work.task(points[0], task="speed", **alone)))
    judge = Judge(work, measuring)
    judge.check(named)
    speeds: dict[str, list[dict[str, Any]]] = {}

    def refresh() -> None:
        keeper.record["rows"] = [
            {"value": name, "rung": name, "settings": point}
            | _speeds(speeds.get(name), speeds.get(reference) if name != reference else None)
            | judge.columns(name, reference)
            for name, point in named.items()
            if name in speeds or name in judge.trained
        ]
        if ALONE in speeds:
            keeper.record["rows"].append({"value": ALONE, "rung": ALONE} | _speeds(speeds[ALONE], speeds.get(reference)))
        keeper.curves = judge.curves()
        if reference in speeds:
            say_how_far(keeper.record, reference, keeper.record["rows"][0]["steps_per_second"])
        keeper.save()

    def after_each(answers: dict[str, list[dict[str, Any]]]) -> None:
        speeds.update(answers)
        refresh()

    work_seconds = seconds_for(measuring.seconds) * len(variants) * measuring.repeats
    work_seconds += seconds_for(CEILING_SECONDS) if measuring.alone and measuring.timed else 0.0
    conductor = Conductor("sweep", work_seconds, trained_runs=len(named) * measuring.seeds)
    try:
        if measuring.alone and measuring.timed:
            keeper.record["ceiling"] = ask_ceiling(conductor, work.task(points[0]))
        conductor.rounds(variants, measuring.repeats, measuring.seconds, after_each)
        keeper.record["notes"] += [why for name in named if (why := why_so_fast(name, speeds.get(name, [])))]
        if measuring.seeds:
            judge.train(conductor, named, refresh)
        rates = {_samples_per_step(work, point) for point in points}
        if len(rates) > 1:
            keeper.record["notes"].append(
                "The rows differ in samples per step: their speeds are not speed-ups of the same work, and each has its own "
                "verdict on learning."
            )
        keeper.finish()
    finally:
        conductor.close()


def _samples_per_step(work: Work, point: dict[str, Any]) -> float:
    wanted = {**work.settings, **without_cores(point)}
    return prepare(work.env, work.preset, wanted, work.imports).config.samples_per_step
