"""What the records say in one sentence and a few figures. Only what was measured, with what it was compared with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastdqn.report import numbers
from fastdqn.report.numbers import number
from fastdqn.report.records import Record
from fastdqn.report.speed_charts import ratio_verdict, row_name
from fastdqn.report.verdicts import BAD_LEARNING, is_baseline, learning_verdict

SAME_SHARE = 0.02  # samples per step this close are the same


@dataclass(frozen=True)
class Claim:
    """One figure of the head of the page, and the record that it comes from."""

    figure: str
    words: str
    detail: str
    record: Record
    rank: int = 0  # lower stands first
    style: str = "up"


def machine_key(record: Record) -> tuple[str, ...]:
    return tuple(str(record.machine.get(key)) for key in ("cpu", "usable_cores", "gpu"))


def machine_name(machine: dict[str, Any]) -> str:
    cores = machine.get("usable_cores") or machine.get("cores")
    cpu = f"{cores} CPU core{'' if cores == 1 else 's'}" if cores else ""
    return ", ".join(part for part in (str(machine.get("gpu") or ""), cpu) if part) or "an unnamed machine"


def top_rung(record: Record) -> dict[str, Any] | None:
    """The whole ladder: its last rung that was measured. Rows beside the ladder never count, and a table of roles, which
    has only its two ends, is none."""
    if any(row.get("part") == "roles" for row in record.rows):
        return None
    rungs = [row for row in record.rows if row.get("part", "ladder") == "ladder" and number(row.get("vs_textbook"))]
    return rungs[-1] if rungs and not is_baseline(rungs[-1]) else None


def textbook_of(record: Record) -> dict[str, Any]:
    return next((row for row in record.rows if is_baseline(row)), {})


def main_peer_row(record: Record) -> dict[str, Any] | None:
    """What a user gets without asking for anything: the default, in full precision before others."""
    compared = [row for row in record.rows if number(row.get("ratio")) is not None]
    compared.sort(key=lambda row: ("default" not in row_name(row), row.get("precision") != "fp32"))
    return compared[0] if compared else None


def peer_name(record: Record) -> str:
    peers = [row_name(row) for row in record.rows if number(row.get("ratio")) is None]
    return peers[0].removesuffix(" DQN") if peers else "stable-baselines3"


def price(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """'at equal samples per step', or what differs: a run that learns less is always faster."""
    mine, other = number(ours.get("samples_per_step")), number(theirs.get("samples_per_step"))
    if mine is None or other is None:
        return ""
    if abs(mine - other) <= SAME_SHARE * max(mine, other):
        return "at equal samples per step"
    return f"at {numbers.plain(mine)} samples per step against {numbers.plain(other)}"


def short_numbers(record: Record) -> str:
    """The precision of the whole ladder where it is not that of the textbook, float32."""
    precision = str(record.table("ceiling").get("precision") or "")
    return "" if precision == "float32" else precision


def versus(ratio: float, other: str) -> str:
    """'2.9× faster than x'; below 1 it says so."""
    if ratio >= 1.005:
        return f"{numbers.headline_times(ratio)} faster than {other}"
    return f"{numbers.times(ratio)} the speed of {other}"


def peer_words(row: dict[str, Any], peer: str) -> str:
    if ratio_verdict(row).style == "same":
        return f"no clear difference in speed to {peer}"
    return versus(float(row["ratio"]), peer)


def headline(records: Sequence[Record]) -> str:
    """From the complete ladder that gained most, of those with a peer on the same machine and environment if there are
    any, and the comparison with that peer."""
    records = newest_of_each(records)
    ladders = [record for record in records if record.kind == "ladder" and record.complete and top_rung(record)]
    peers = [record for record in records if record.kind == "peers" and record.complete and main_peer_row(record)]
    if ladders:
        ladder = max(ladders, key=lambda record: (_has_one_of(peers, record), (top_rung(record) or {})["vs_textbook"]))
        same = [peer for peer in peers if _same_place(peer, ladder)]
        return _sentence([_ladder_sentence(ladder, records), *(_peer_sentence(peer) for peer in same[:1])])
    if peers:
        place = _place(peers[0], records)
        return _sentence([f"{_peer_sentence(peers[0])} {place}"])
    return "What was measured"


def newest_of_each(records: Sequence[Record]) -> list[Record]:
    """What was measured anew takes the place of the older record: the first of its kind, machine, environment and, for
    ladders that only judge learning, of having speeds. The records come newest first."""
    found: dict[tuple[Any, ...], Record] = {}
    for record in records:
        timed = any(number(row.get("steps_per_second")) for row in record.rows)
        roles = any(row.get("part") == "roles" for row in record.rows)
        key = (record.kind, machine_key(record), record.data.get("env_id"), record.complete, timed, roles)
        found.setdefault(key if record.kind in ("ladder", "peers", "envs") else (record.id,), record)
    return list(found.values())


def _has_one_of(peers: list[Record], ladder: Record) -> bool:
    return any(_same_place(peer, ladder) for peer in peers)


def _same_place(first: Record, second: Record) -> bool:
    return machine_key(first) == machine_key(second) and first.data.get("env_id") == second.data.get("env_id")


def _place(record: Record, records: Sequence[Record]) -> str:
    one_machine = len({machine_key(other) for other in records}) == 1
    return "on this machine" if one_machine else f"on {machine_name(record.machine)}"


def _ladder_sentence(record: Record, records: Sequence[Record]) -> str:
    row = top_rung(record) or {}
    words = versus(float(row["vs_textbook"]), f"the textbook DQN {_place(record, records)}")
    if cost := price(row, textbook_of(record)):
        words += f", {cost}"
    if short := short_numbers(record):
        words += f", in {short}"
    verdict = learning_verdict(row).word
    return f"{words}, but it {verdict}" if verdict in BAD_LEARNING else words


def _peer_sentence(record: Record) -> str:
    row = main_peer_row(record) or {}
    peer_row = next((other for other in record.rows if number(other.get("ratio")) is None), {})
    words, cost, precision = peer_words(row, peer_name(record)), price(row, peer_row), row.get("precision")
    if precision not in (None, peer_row.get("precision")):
        words += f", in {precision}"
    return f"{words}, {cost}" if cost and "equal" not in cost else words


def _sentence(parts: list[str]) -> str:
    words = "; ".join(parts)
    return words[0].upper() + words[1:]


def claims(records: Sequence[Record]) -> list[Claim]:
    """The figures below the headline."""
    found: list[Claim] = []
    for record in (record for record in newest_of_each(records) if record.complete):
        if record.kind == "ladder":
            found += _ladder_claims(record)
        elif record.kind == "peers" and (row := main_peer_row(record)):
            around = numbers.span(row.get("ratio_interval"), numbers.times)
            name, precision = row_name(row), str(row.get("precision") or "")
            detail = " · ".join(part for part in (around, name, "" if precision in name else precision) if part)
            words = f"the steps per second of {peer_name(record)}"
            figure, style = numbers.headline_times(float(row["ratio"])), ratio_verdict(row).style
            found.append(Claim(figure, words, detail, record, 1, style))
        elif record.kind == "envs" and (speeds := [row for row in record.rows if number(row.get("steps_per_second"))]):
            best = max(speeds, key=lambda row: float(row["steps_per_second"]))
            lanes, threads = (numbers.shown(best.get(key), numbers.count) for key in ("lanes", "threads"))
            detail = f"{lanes} lanes, {threads} {'thread' if threads == '1' else 'threads'}"
            figure, words = numbers.count(best["steps_per_second"]), "steps/s of the environment alone"
            found.append(Claim(figure, words, detail, record, 4, "base"))
    return sorted(found, key=lambda claim: claim.rank)


def _ladder_claims(record: Record) -> list[Claim]:
    row, textbook = top_rung(record), textbook_of(record)
    if row is None:
        return []
    learning = learning_verdict(row)
    speed = f"{numbers.shown(textbook.get('steps_per_second'), numbers.count)} → " + (
        f"{numbers.shown(row.get('steps_per_second'), numbers.count)} steps/s"
    )
    around = numbers.span(row.get("vs_textbook_interval"), numbers.times)
    learned = f"{learning.glyph} learning: {learning.word}"
    detail = " · ".join(part for part in (around, speed, short_numbers(record), learned) if part)
    figure, style = numbers.headline_times(float(row["vs_textbook"])), "down" if learning.word in BAD_LEARNING else "up"
    found = [Claim(figure, "the steps per second of the textbook", detail, record, 0, style)]
    solved, before = number(row.get("minutes_to_target")), number(textbook.get("minutes_to_target"))
    if solved is not None:
        was = (
            f"the textbook needs {numbers.headline_minutes(before)}"
            if before is not None
            else "the textbook does not get there"
        )
        found.append(Claim(numbers.headline_minutes(solved), "until the target score", was, record, 2, style))
    limit, reached = number(record.table("ceiling").get("steps_per_second")), number(row.get("steps_per_second"))
    if limit and reached:
        detail = f"which is {numbers.count(limit)} steps/s here"
        found.append(Claim(numbers.percent(reached / limit), "of the ceiling", detail, record, 3, "base"))
    return found
