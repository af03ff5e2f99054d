"""What more work costs: speed and memory against lanes, batch, capacity and samples per step, a dozen points in all.

One setting grows at a time, the rest stays as the run has it; every replay is filled to its last row before the clock
starts, because memory that was never touched costs nothing.
"""

from typing import Any

from fastdqn.bench.conduct import Conductor, Measuring, Variant, seconds_for
from fastdqn.bench.record import Keeper
from fastdqn.bench.rows import speed_columns
from fastdqn.bench.work import Work
from fastdqn.config import Config
from fastdqn.errors import UserError
from fastdqn.prepare import check_memory_of, prepare

BASE = "as it is"
FACTORS = {"actor.lanes": (0.25, 4, 16), "learner.batch_size": (0.25, 4, 16), "learner.steps_per_update": (0.25, 4)}
CAPACITIES = (10_000, 100_000, 2_000_000)


def growth_points(config: Config) -> list[tuple[str, Any, dict[str, Any]]]:
    """(setting, value, settings) of every point beside the run as it is: at most eleven."""
    now = {
        "actor.lanes": config.actor.lanes,
        "learner.batch_size": config.learner.batch_size,
        "learner.steps_per_update": config.learner.steps_per_update,
    }
    points = []
    for key, factors in FACTORS.items():
        values = dict.fromkeys(now[key] * factor for factor in factors)
        whole = [int(value) if value >= 1 else 1 if key != "learner.steps_per_update" else value for value in values]
        points += [(key, value, {key: value}) for value in whole if value != now[key]]
    others = [rows for rows in CAPACITIES if not 0.7 < rows / config.replay.capacity < 1.5]
    return [*points, *(("replay.capacity", rows, {"replay.capacity": rows}) for rows in others)]


def run_growth(work: Work, measuring: Measuring, keeper: Keeper) -> None:
    config = work.job.config
    points: dict[str, tuple[str, Any, dict[str, Any]]] = {BASE: ("", None, {})}
    for key, value, settings in growth_points(config):
        if why := _cannot_be_had(work, settings):
            keeper.record["notes"].append(f"{key}={value:,} is left out: {why}")
        else:
            points[f"{key}={value:,}"] = (key, value, settings)
    largest_first = sorted(points, key=lambda name: -points[name][2].get("replay.capacity", config.replay.capacity))
    variants = [  # largest first, so that what the memory still holds is judged by the largest
        Variant(name, work.task(points[name][2], task="speed", seconds=measuring.seconds, whole_replay=True))
        for name in largest_first
    ]
    now = {"lanes": config.actor.lanes, "batch_size": config.learner.batch_size, "capacity": config.replay.capacity}
    keeper.record["base"] = now | {"steps_per_update": config.learner.steps_per_update}

    def after_each(answers: dict[str, list[dict[str, Any]]]) -> None:
        keeper.record["rows"] = [
            {"name": name, "setting": points[name][0], "settings": points[name][2]}
            | speed_columns(found, answers.get(BASE) if name != BASE else None)
            | {"rows_filled": found[-1]["details"]["rows_filled"], "speeds": found}
            for name in points
            if (found := answers.get(name))
        ]
        keeper.save()

    conductor = Conductor("growth", seconds_for(measuring.seconds) * len(variants) * measuring.repeats)
    try:
        conductor.rounds(variants, measuring.repeats, measuring.seconds, after_each)
        keeper.record["bytes_per_row"] = bytes_per_row(keeper.record["rows"])
        keeper.finish()
    finally:
        conductor.close()


def bytes_per_row(rows: list[dict[str, Any]]) -> float | None:
    """What one more stored row costs: the memory of the largest replay against that of the smallest. On a GPU where the
    replay lives there, in its memory."""
    sized = sorted((row for row in rows if row["setting"] in ("", "replay.capacity")), key=lambda row: row["rows_filled"])
    if len(sized) < 2 or sized[0]["rows_filled"] == sized[-1]["rows_filled"]:
        return None
    more_rows = sized[-1]["rows_filled"] - sized[0]["rows_filled"]
    places = ("rss_mb", "gpu_memory_mb")
    return max(1e6 * ((sized[-1][name] or 0.0) - (sized[0][name] or 0.0)) for name in places) / more_rows


def _cannot_be_had(work: Work, settings: dict[str, Any]) -> str:
    try:
        job = prepare(work.env, work.preset, work.task(settings)["settings"], work.imports)
        check_memory_of(job)
    except UserError as error:
        return str(error)
    same = job.config == work.job.config  # many lanes where only one is played
    return "it changes nothing under these switches" if same else ""
