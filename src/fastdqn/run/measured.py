"""Cache of what was measured on this machine: a small JSON file in the user's cache folder."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any


def cache_folder() -> Path:
    """FASTDQN_CACHE, or fastdqn in the user's cache folder."""
    if own := os.environ.get("FASTDQN_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastdqn"


def remembered(question: dict[str, Any]) -> Any:
    """The cached answer to exactly this question on this machine, or None."""
    return _load().get(_key(question))


def remember(question: dict[str, Any], answer: Any) -> None:
    """Caches an answer. If the cache folder cannot be written, it is measured again next time."""
    path = cache_folder() / "measured.json"
    answers = _load() | {_key(question): answer}
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps(answers, indent=1))
        beside.replace(path)


def _load() -> dict[str, Any]:
    try:
        answers = json.loads((cache_folder() / "measured.json").read_text())
    except (OSError, ValueError):
        return {}
    return answers if isinstance(answers, dict) else {}


def _key(question: dict[str, Any]) -> str:
    return json.dumps(question, sort_keys=True)
