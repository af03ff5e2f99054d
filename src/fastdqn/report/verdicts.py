"""Verdicts as a reader sees them: a glyph, a word and a colour, never the colour alone."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Verdict:
    word: str
    glyph: str
    style: str  # class of the style sheet
    tip: str = ""


BASELINE = Verdict("baseline", "◆", "base")
_SPEED = {
    "faster": ("▲", "up"),
    "slower": ("▼", "down"),
    "no clear difference": ("≈", "same"),
    "not measured": ("○", "none"),
}
_LEARNING = {
    "learns as well": ("✓", "up"),
    "learns better": ("✓", "up"),
    "learns worse": ("▼", "down"),
    "does not learn": ("✕", "down"),
    "reference does not learn": ("?", "same"),
    "undecided": ("?", "same"),
    "reference": ("◆", "base"),
    "not measured": ("○", "none"),
}
BAD_LEARNING = ("learns worse", "does not learn")


def is_baseline(row: dict[str, Any]) -> bool:
    """The textbook of a ladder: nothing is switched on and there is nothing to compare it with."""
    return row.get("part") == "ladder" and row.get("adds") is None and not row.get("switches")


def speed_verdict(row: dict[str, Any], baseline: bool = False) -> Verdict:
    if row.get("skipped"):
        return Verdict("skipped", "○", "none", str(row["skipped"]))
    if baseline or is_baseline(row):
        return BASELINE
    return _verdict(row.get("speed_verdict"), _SPEED)


def learning_verdict(row: dict[str, Any]) -> Verdict:
    learning = row.get("learning")
    reason = str(learning.get("reason") or "") if isinstance(learning, dict) else ""
    return _verdict(row.get("learning_verdict"), _LEARNING, reason)


def _verdict(word: Any, known: dict[str, tuple[str, str]], reason: str = "") -> Verdict:
    word = str(word or "not measured")
    glyph, style = known.get(word, ("·", "none"))
    return Verdict(word, glyph, style, reason)
