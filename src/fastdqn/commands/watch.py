"""`fastdqn watch`: Snake in the terminal, or a film of any environment."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fastdqn.commands.evaluate import whole_number
from fastdqn.errors import UserError
from fastdqn.play.film import best_of, check_film, watch_in_terminal, write_film
from fastdqn.play.player import load
from fastdqn.transition import EnvSpec


def watch_run(
    run: str, out: str | None, seed: Any, games: Any, fps: Any, max_steps: Any, imports: Iterable[str] = ()
) -> str:
    """Shows the agent and returns a line that describes what was shown."""
    first, count = whole_number("--seed", seed), whole_number("--games", games, 1)
    longest = whole_number("--max-steps", max_steps, 1)
    if out is not None:
        check_film(Path(out))
    player = load(run, imports=imports)
    spec = player.kind.spec
    is_snake = spec.env_id == "snake"
    rate = usual_rate(spec) if fps is None else whole_number("--fps", fps, 1)
    if out is None and is_snake:
        shot = watch_in_terminal(player, first, rate)
        return f"score {shot.score:g} after {shot.step} steps"
    if not spec.has_film:
        raise UserError(f"{spec.env_id} cannot be filmed: it has no rgb_array rendering.")
    path = Path(out) if out else player.folder.path / "film.gif"
    shots = best_of(player, first, count, longest, lambda line: print(line, file=sys.stderr))
    write_film(path, shots, rate)
    return f"{path}: {len(shots)} frames, score {shots[-1].score:g}, best of {count} games"


def usual_rate(spec: EnvSpec) -> int:
    """Images per second: an emulator at its own pace (60 frames a second), a snake slow enough to follow."""
    if spec.env_id == "snake":
        return 12
    return max(1, 60 // spec.frame_skip) if spec.frame_skip > 1 else 30
