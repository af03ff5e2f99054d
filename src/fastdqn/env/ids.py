"""Registers our environments with Gymnasium: after `import fastdqn`, `gymnasium.make("fastdqn/Snake-v0")` works."""

from gymnasium.envs.registration import register, registry

OWN_ENVS = {
    "fastdqn/Snake-v0": "fastdqn.env.snake:SnakeEnv",
    "fastdqn/Catch-v0": "fastdqn.env.catch:CatchEnv",
}


def register_all() -> None:
    """By the names of the classes, so that none of them is imported yet."""
    for env_id, entry_point in OWN_ENVS.items():
        if env_id not in registry:
            register(env_id, entry_point=entry_point)
