"""The smallest runs that still play, learn, evaluate and save."""

from pathlib import Path

import fastdqn

TINY_SNAKE = {
    "env.dim": 5,
    "env.dist_to_border": 1,
    "env.max_steps": 40,
    "actor.lanes": 4,
    "actor.epsilon_steps": 200,
    "replay.capacity": 2000,
    "replay.warmup_steps": 50,
    "network.kind": "mlp",
    "network.hidden": [16],
    "learner.batch_size": 16,
    "learner.steps_per_update": 4,
    "learner.target_every": 20,
    "evaluator.episodes": 4,
    "evaluator.lanes": 2,
    "log.every_steps": 100,
}
TINY = {key: value for key, value in TINY_SNAKE.items() if not key.startswith("env.")}


def train_tiny(env="snake", steps=300, settings=(), **options):
    base = TINY_SNAKE if env == "snake" else TINY
    return fastdqn.train(env, steps=steps, settings={**base, **dict(settings)}, quiet=True, **options)


def as_arguments(settings=TINY_SNAKE) -> list[str]:
    """The same settings as a command line spells them."""
    arguments = []
    for key, value in settings.items():
        arguments += ["--set", f"{key}={value}"]
    return arguments


def everything_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
