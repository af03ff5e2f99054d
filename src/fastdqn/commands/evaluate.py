"""`fastdqn eval`: the score of a saved model."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fastdqn import seeding
from fastdqn.config import Config, parse_assignment, parse_number, validate
from fastdqn.errors import UserError
from fastdqn.evaluator import Score
from fastdqn.play.player import Player, load
from fastdqn.run.view import ShareLine


def whole_number(name: str, text: Any, at_least: int = 0) -> int:
    value = parse_number(text)
    if not isinstance(value, int) or value < at_least:
        raise UserError(f"{name} must be a whole number of at least {at_least}, not '{text}'.")
    return value


def evaluate_run(
    run: str,
    episodes: Any = 30,
    seed: Any = 0,
    device: str = "cpu",
    settings: Iterable[str] = (),
    imports: Iterable[str] = (),
) -> tuple[Score, Path]:
    """Plays the games and writes the result beside the run's other evaluations."""
    count, root = whole_number("--episodes", episodes, 1), whole_number("--seed", seed)
    player = load(run, device=device, imports=imports)
    player.config = _with_evaluator(player.config, settings)
    score = evaluate_player(player, count, root)
    return score, player.folder.write_score(score, f"-seed_{root}-games_{count}-epsilon_{score.epsilon:g}")


def evaluate_player(player: Player, episodes: int, seed: int) -> Score:
    lanes = min(episodes, player.config.evaluator.lanes)
    evaluator = player.evaluator(lanes)
    progress = ShareLine(f"playing {episodes} games")
    try:
        seeds = seeding.lane_seeds(seed, "eval command", lanes)
        score = evaluator.evaluate(episodes, seeds, player.facts["step"], player.facts["update"], on_tick=progress.show)
    finally:
        progress.close()
        evaluator.env.close()
    assert score is not None  # only None when stopped
    return score


def _with_evaluator(config: Config, settings: Iterable[str]) -> Config:
    tree = config.model_dump()
    for key, value in map(parse_assignment, settings):
        section, _, name = key.partition(".")
        if section != "evaluator" or name not in ("lanes", "epsilon"):
            raise UserError(f"'{key}' does nothing here: fastdqn eval takes evaluator.lanes and evaluator.epsilon.")
        tree["evaluator"][name] = value
    return validate(tree)
