"""The ladder: from the textbook to the default, one switch a rung; then each switch that is off by default on top of
it, and with `leave_one_out` the default without each of its switches."""

from dataclasses import dataclass
from typing import Any

from fastdqn.bench.conduct import CEILING_SECONDS, Conductor, Measuring, Variant, ask_ceiling, say_how_far, seconds_for
from fastdqn.bench.judge import Judge
from fastdqn.bench.record import Keeper
from fastdqn.bench.rows import speed_columns, why_so_fast, windows_of
from fastdqn.bench.verdict import ratio_interval
from fastdqn.bench.work import Work
from fastdqn.build import active_switches, why_not
from fastdqn.device.hardware import lacks
from fastdqn.errors import UserError
from fastdqn.prepare import Job
from fastdqn.switches import LADDER, Switch, dependents

TEXTBOOK = "textbook"


@dataclass(frozen=True)
class Rung:
    name: str
    part: str  # ladder, extra, leave_one_out or roles
    switches: frozenset[str]
    adds: Switch | None  # what it adds; for leave_one_out what it leaves out
    against: str | None  # the rung it is compared with
    skipped: str = ""  # why it cannot be measured here
    placed: dict[str, Any] | None = None  # where the roles live: settings beside the default's switches
    summary: str = "one environment, a deque of tuples, autograd everywhere"  # where it adds no switch

    def settings(self) -> dict[str, Any]:
        """Exactly these switches: everything else is turned off by name. A placement leaves them to the build."""
        if self.placed is not None:
            return self.placed
        off = [switch.name for switch in LADDER if switch.name not in self.switches]
        return {"switches.on": sorted(self.switches), "switches.off": off, "switches.prefer": []}


def rungs(job: Job, leave_one_out: bool = False) -> list[Rung]:
    """All rungs for this environment on this machine, those that must be skipped included."""
    default, climbed = job.switches, set[str]()
    ladder = [Rung(TEXTBOOK, "ladder", frozenset(), None, None)]
    for switch in [switch for switch in LADDER if switch.name in default]:
        climbed.add(switch.name)
        ladder.append(Rung(f"+ {switch.name}", "ladder", frozenset(climbed), switch, ladder[-1].name))
    top = ladder[-1].name
    extras = [_extra(job, switch, top) for switch in LADDER if switch.name not in default]
    without = [_without(switch, default, top) for switch in LADDER if leave_one_out and switch.name in default]
    return [*ladder, *(rung for rung in extras if rung is not None), *without]


def _extra(job: Job, switch: Switch, top: str) -> Rung | None:
    """The default with one more switch; None for one that belongs to other environments or networks."""
    if switch.name in why_not(job.config, job.kind):
        return None
    lacking = [lacks(need, job.device) for need in switch.machine]
    lacking += [name for name in switch.needs if name not in job.switches]
    if missing := next(filter(None, lacking), ""):
        return Rung(f"default + {switch.name}", "extra", job.switches, switch, top, skipped=f"needs {missing}")
    clashing = {other.name for other in LADDER if switch.name in other.clashes or other.name in switch.clashes}
    clashing = clashing.union(*(dependents(name) for name in clashing))
    rung = Rung(f"default + {switch.name}", "extra", job.switches - clashing | {switch.name}, switch, top)
    wishes = job.config.switches.model_copy(update={"on": (switch.name,), "off": tuple(clashing), "prefer": ()})
    try:
        active_switches(job.config.model_copy(update={"switches": wishes}), job.kind, job.device)
    except UserError:
        return None
    return rung


def _without(switch: Switch, default: frozenset[str], top: str) -> Rung:
    """The default without one switch, and without those that need it."""
    gone = {switch.name, *dependents(switch.name)}
    return Rung(f"default without {switch.name}", "leave_one_out", default - gone, switch, top)


def run_ladder(work: Work, measuring: Measuring, all_rungs: list[Rung], keeper: Keeper) -> None:
    """Fills the keeper's record, rung by rung."""
    timed = [rung for rung in all_rungs if not rung.skipped]
    top = [rung for rung in timed if rung.part == "ladder"][-1]
    variants = [
        Variant(rung.name, work.task(rung.settings(), task="speed", seconds=measuring.seconds))
        for rung in timed
        if measuring.timed
    ]
    judge = Judge(work, measuring)
    judge.check({rung.name: rung.settings() for rung in timed})
    speeds: dict[str, list[dict[str, Any]]] = {}

    def refresh() -> None:
        keeper.record["rows"] = [row for rung in all_rungs if (row := ladder_row(rung, speeds, judge)) is not None]
        keeper.curves = judge.curves()
        _say_how_far(keeper.record)
        keeper.save()

    def after_each(answers: dict[str, list[dict[str, Any]]]) -> None:
        speeds.update(answers)
        refresh()

    work_seconds = seconds_for(measuring.seconds) * len(variants) * measuring.repeats + seconds_for(CEILING_SECONDS)
    conductor = Conductor("ladder", work_seconds, trained_runs=len(timed) * measuring.seeds)
    try:
        if measuring.timed:
            keeper.record["ceiling"] = ask_ceiling(conductor, work.task(top.settings()))
        conductor.rounds(variants, measuring.repeats, measuring.seconds, after_each)
        keeper.record["notes"] += [why for rung in timed if (why := why_so_fast(rung.name, speeds.get(rung.name, [])))]
        if measuring.seeds:
            judge.train(conductor, {rung.name: rung.settings() for rung in timed}, refresh)
        keeper.finish()
    finally:
        conductor.close()


def ladder_row(rung: Rung, speeds: dict[str, list[dict[str, Any]]], judge: Judge) -> dict[str, Any] | None:
    """The rung as a row of the table; None before it was measured."""
    head = {
        "rung": rung.name,
        "part": rung.part,
        "adds": rung.adds.name if rung.adds else None,
        "promise": rung.adds.promise.name if rung.adds else None,
        "summary": rung.adds.summary if rung.adds else rung.summary,
        "switches": sorted(rung.switches),
        "skipped": rung.skipped,
    }
    if rung.skipped:
        return head | {"speed_verdict": "not measured", "learning_verdict": "not measured"}
    if rung.name not in speeds:
        learned = judge.columns(rung.name, TEXTBOOK)
        return head | {"speed_verdict": "not measured"} | learned if learned["learning"] else None
    own, against = speeds[rung.name], speeds.get(rung.against or "")
    if rung.placed is not None:
        head["switches"] = own[-1]["switches"]  # as the build chose them
    row = head | speed_columns(own, against) | judge.columns(rung.name, TEXTBOOK)
    if TEXTBOOK in speeds and rung.name != TEXTBOOK:
        whole = ratio_interval(windows_of(own), windows_of(speeds[TEXTBOOK]))
        row |= {"vs_textbook": whole.value, "vs_textbook_interval": [whole.low, whole.high]}
    return row | {"speeds": [{name: value for name, value in speed.items() if name != "switches"} for speed in own]}


def _say_how_far(record: dict[str, Any]) -> None:
    """The fastest rung, what it gains over the textbook, and how far it is from the ceiling."""
    beside = ("leave_one_out", "roles")  # a learner that runs free does other work than the ceiling's
    measured = [row for row in record["rows"] if row.get("steps_per_second") and row["part"] not in beside]
    if not measured or record["ceiling"] is None:
        return
    best = max(measured, key=lambda row: row["steps_per_second"])
    say_how_far(record, "the best rung", best["steps_per_second"])
    record["best"] = {"rung": best["rung"], "vs_textbook": best.get("vs_textbook", 1.0)}
