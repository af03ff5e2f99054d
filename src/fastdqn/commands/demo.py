"""`fastdqn demo`: trains a snake from scratch in three minutes, with a learning curve and a film."""

from fastdqn.commands.watch import watch_run
from fastdqn.train import describe, train

TRAINING_MINUTES = 2.9


def demo(minutes: float = TRAINING_MINUTES, run: str | None = None, quiet: bool = False) -> str:
    """Trains, evaluates and films; returns the lines to show at the end."""
    print(f"Training a snake on a 10x10 board from nothing, for {minutes:g} minutes. Ctrl-C ends earlier and still saves.\n")
    trained = train("snake", minutes=minutes, run=run, quiet=quiet)
    print("\nFilming the best of five games ...")
    film = watch_run(str(trained.path), str(trained.path / "film.gif"), seed=0, games=5, fps=None, max_steps=500)
    score = describe(trained.score) if trained.score else "not evaluated: it was stopped"
    return "\n".join(
        [
            "",
            f"  {trained.steps:,} steps, {trained.updates:,} updates; {score}",
            f"  curve   {trained.folder.curve_path}",
            f"  film    {film}",
            f"  model   {trained.folder.model_path}",
            "",
            "  What to try next:",
            *_aligned(
                [
                    (f"fastdqn watch {trained.path}", "the same snake, live in this terminal"),
                    (f"fastdqn train snake --from {trained.path} --minutes 10", "go on from these weights"),
                    ("fastdqn train snake --off frame_ring,lane_vector_env", "without two speed-ups: compare steps/s"),
                    ("fastdqn train pong --plan", "what Pong would take on this machine"),
                ]
            ),
            "",
            "  (the command lives in .venv/bin; `source .venv/bin/activate` puts it on the path)",
        ]
    )


def _aligned(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(command) for command, _ in rows)
    return [f"    {command:{width}}   {meaning}" for command, meaning in rows]
