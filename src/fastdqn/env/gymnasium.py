"""Any Gymnasium environment with a Discrete action space and a Box observation, by id or from a user's own maker."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import error, spaces

from fastdqn.env.cartpole_lanes import CartPoleLanes, is_plain_cartpole
from fastdqn.env.kind import EnvKind
from fastdqn.errors import UserError, nearest
from fastdqn.transition import EnvSpec

AnyEnv = gymnasium.Env[Any, Any]

PRESETS = {"CartPole-v1": "cartpole", "CartPole-v0": "cartpole", "fastdqn/Catch-v0": "catch"}  # others: default


class ToChannelsFirst(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Images (height, width, channels) as (channels, height, width), the order convolutions read. It is a view: whoever
    keeps the image copies it."""

    def __init__(self, env: AnyEnv) -> None:
        super().__init__(env)
        box = env.observation_space
        assert isinstance(box, spaces.Box)
        self.observation_space = spaces.Box(channels_first(box.low), channels_first(box.high), dtype=box.dtype.type)

    def observation(self, observation: Any) -> Any:
        return channels_first(observation)


def gymnasium_kind(env_id: str, settings: dict[str, Any], known_names: list[str]) -> EnvKind:
    """An environment from Gymnasium's registry; `known_names` are ours, for the suggestion when the id is unknown."""

    if "render_mode" in settings:
        raise UserError("env.render_mode is chosen by the command: training draws nothing, `fastdqn watch` films.")

    def make_single(render_mode: str | None = None) -> AnyEnv:
        arguments = settings | ({"render_mode": render_mode} if render_mode else {})
        try:
            return gymnasium.make(env_id, **arguments)
        except error.DependencyNotInstalled as fault:
            raise UserError(f"{env_id} needs a package that is not installed: {fault}") from None
        except (error.UnregisteredEnv, error.DeprecatedEnv, error.Error) as fault:
            if env_id in gymnasium.registry:
                raise UserError(f"{env_id} cannot be made: {fault}") from None
            names = [*known_names, *gymnasium.registry]
            raise UserError(f"Unknown environment '{env_id}'.{nearest(env_id, names)} List: fastdqn envs.") from None
        except ModuleNotFoundError as fault:
            package = fault.name or env_id.partition(":")[0]
            raise UserError(f"{env_id} needs the package {package}, which is not installed: pip install {package}") from None
        except (TypeError, ValueError) as fault:
            raise UserError(f"{env_id} does not take these settings ({_names(settings)}): {fault}") from None
        except ImportError as fault:
            raise UserError(f"{env_id} cannot be imported: {fault}") from None

    kind = make_kind(env_id, make_single, settings)
    if kind.preset == "cartpole" and is_plain_cartpole(registered_id(make_single), settings):
        return replace(kind, make_lanes=partial(CartPoleLanes, kind.spec))
    return kind


def registered_id(make_single: Callable[..., AnyEnv]) -> str:
    """With its version, also where the user left that out."""
    env = make_single()
    env.close()
    return env.spec.id if env.spec else ""


def maker_kind(maker: Callable[[], AnyEnv]) -> EnvKind:
    """A user's own environment, given as a function that makes it."""

    def make_single(render_mode: str | None = None) -> AnyEnv:
        return maker()

    env = maker()
    name = getattr(env.unwrapped, "spec", None)
    env_id = name.id if name is not None else type(env.unwrapped).__name__
    env.close()
    return replace(make_kind(env_id, make_single, {}), preset="default", own=True)


def make_kind(env_id: str, make_raw: Callable[..., AnyEnv], settings: dict[str, Any]) -> EnvKind:
    """Looks at one environment of the kind and works out its spec."""

    def make_single(render_mode: str | None = None) -> AnyEnv:
        env = make_raw(render_mode)
        return ToChannelsFirst(env) if is_channels_last(env.observation_space) else env

    env = make_single()
    try:
        check_spaces(env_id, env.observation_space, env.action_space)
        box: Any = env.observation_space
        choices: Any = env.action_space
        limit = getattr(env.spec, "max_episode_steps", None) if env.spec else None
        registered = env.spec.id if env.spec else env_id  # with its version, also where the user left that out
        spec = EnvSpec(
            env_id=env_id,
            obs_shape=stored_shape(box),
            obs_dtype=np.dtype(box.dtype),
            num_actions=int(choices.n),
            action_start=int(choices.start),
            max_eval_steps=limit or 27_000,
            has_film="rgb_array" in env.metadata.get("render_modes", []),
            details={"settings": settings},
        )
    finally:
        env.close()
    return EnvKind(spec, PRESETS.get(registered, "default"), stack=1, make_single=make_single, settings=settings)


def check_spaces(env_id: str, observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
    if not isinstance(action, spaces.Discrete):
        raise UserError(
            f"{env_id} has the action space {action}, and a DQN needs a Discrete one: it compares one value per action. "
            "For continuous actions use an actor-critic method, or wrap the environment so that it offers a few choices."
        )
    if not isinstance(observation, spaces.Box):
        raise UserError(
            f"{env_id} has the observation space {type(observation).__name__}, and fastdqn needs a Box. "
            "gymnasium.wrappers.FlattenObservation turns most others into one."
        )


def is_channels_last(box: spaces.Space[Any]) -> bool:
    """(height, width, 1, 3 or 4) bytes are an image whose channels come last."""
    shape = box.shape or ()
    return len(shape) == 3 and box.dtype == np.uint8 and shape[2] in (1, 3, 4) and min(shape[:2]) > 4


def channels_first(image: np.ndarray) -> np.ndarray:
    """An image without a channel axis gets one."""
    return image[None] if image.ndim == 2 else np.moveaxis(image, -1, 0)


def stored_shape(box: spaces.Box) -> tuple[int, ...]:
    """An image without a channel axis gets one; a single number becomes a vector of one."""
    shape = tuple(box.shape)
    if len(shape) == 2 and box.dtype == np.uint8:
        return (1, *shape)
    return shape or (1,)


def _names(settings: dict[str, Any]) -> str:
    return ", ".join(f"env.{name}" for name in settings) or "none"
