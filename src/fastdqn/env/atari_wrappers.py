"""The textbook Atari chain: one Gymnasium wrapper per idea, one environment at a time.

    emulator -> FireReset -> NoopReset -> FrameLimit -> MaxAndSkip -> LifeLossInfo | EpisodicLife
             -> WarpFrame -> ToChannelsFirst -> ClipReward -> FrameStack

It plays by the same rules as the native lanes (env/atari.py), frame by frame and bit by bit; what Baselines does
otherwise is said where it matters.
"""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from fastdqn.env.atari_games import load_ale
from fastdqn.env.atari_settings import AtariSettings, ResizeMethod
from fastdqn.env.gymnasium import ToChannelsFirst
from fastdqn.errors import missing_package

Pixels = npt.NDArray[np.uint8]  # (height, width), (height, width, channels) or (channels, height, width)
AtariWrapper = gymnasium.Wrapper[Pixels, int, Pixels, int]
StepResult = tuple[Pixels, float, bool, bool, dict[str, Any]]
Reset = tuple[Pixels, dict[str, Any]]
Options = dict[str, Any] | None
Resize = Callable[[Pixels], Pixels]  # (height, width) -> (size, size)


def make_textbook_atari(game: str, settings: AtariSettings, render_mode: str | None = None) -> "gymnasium.Env[Any, Any]":
    """One environment as a book would write it. With render_mode 'rgb_array', render() gives the colour screen."""
    env: gymnasium.Env[Any, Any] = load_ale(game).env.AtariEnv(
        game,
        obs_type="grayscale",  # ale-py's own luminance, the one the native lanes use
        frameskip=1,
        repeat_action_probability=settings.repeat_action_probability,
        full_action_space=settings.full_action_space,
        render_mode=render_mode,
    )
    if settings.fire_reset and not settings.episodic_life:
        env = FireReset(env)  # one frame, at the start of a game, as ale-py does
    if settings.noop_max > 0:
        env = NoopReset(env, settings.noop_max)
    env = FrameLimit(env, settings.max_frames_per_game)
    if settings.max_and_skip:
        env = MaxAndSkip(env, settings.frame_skip, settings.max_pool)
    if settings.episodic_life:
        env = EpisodicLife(env)
        if settings.fire_reset:
            env = FireReset(env)  # one step, at the start of every life, as Baselines does
    elif settings.tells_lives:
        env = LifeLossInfo(env)
    if settings.warp:
        env = WarpFrame(env, settings.screen, settings.resize)
    if settings.to_channels_first:
        env = ToChannelsFirst(env)
    if settings.clip_reward:
        env = ClipReward(env)
    if settings.frame_stack > 1:
        env = FrameStack(env, settings.frame_stack)
    return env


class FireReset(AtariWrapper):
    """Presses FIRE once after a reset, where the game has FIRE: some games stand still until then.

    Baselines presses action 2 after it as well, which is a move to the side and starts nothing.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._fire = action_index(env, "FIRE")

    def reset(self, *, seed: int | None = None, options: Options = None) -> Reset:
        obs, info = self.env.reset(seed=seed, options=options)
        if self._fire is None:
            return obs, info
        obs, _, terminated, truncated, info = self.env.step(self._fire)
        return self.env.reset(options=options) if terminated or truncated else (obs, info)


class NoopReset(AtariWrapper):
    """Starts a game with 0 to noop_max frames of doing nothing, so that no two games start alike.

    Frames that a FireReset inside has already played count as well. Baselines draws from 1 to noop_max, which ale-py
    cannot. Two board games have no NOOP among their own actions; they start at once.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], noop_max: int) -> None:
        super().__init__(env)
        self.noop_max = noop_max
        self._noop = action_index(env, "NOOP")

    def reset(self, *, seed: int | None = None, options: Options = None) -> Reset:
        obs, info = self.env.reset(seed=seed, options=options)
        age = int(self.unwrapped.np_random.integers(0, self.noop_max + 1))  # in frames
        if self._noop is None:
            return obs, info
        for _ in range(age - info.get("episode_frame_number", 0)):
            obs, _, terminated, truncated, info = self.env.step(self._noop)
            if terminated or truncated:
                obs, info = self.env.reset(options=options)
        return obs, info


class FrameLimit(AtariWrapper):
    """Truncates a game after max_frames frames; it stands inside the skip, where a step is one frame."""

    def __init__(self, env: gymnasium.Env[Any, Any], max_frames: int) -> None:
        super().__init__(env)
        self.max_frames = max_frames
        self._frames = 0

    def reset(self, *, seed: int | None = None, options: Options = None) -> Reset:
        self._frames = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: int) -> StepResult:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._frames += 1
        cut = self._frames >= self.max_frames and not terminated
        return obs, float(reward), terminated, truncated or cut, info


class MaxAndSkip(AtariWrapper):
    """Repeats an action for `skip` frames; the image is the maximum of the last two, for sprites that flicker.

    A frame on which the game ends is not looked at, so the last image of a game is stale. ale-py and Gymnasium do
    the same; nothing is learned from it, as no value follows a game's end.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], skip: int = 4, max_pool: bool = True) -> None:
        super().__init__(env)
        self.skip = skip
        self.max_pool = max_pool
        shape = env.observation_space.shape
        assert shape is not None
        self._last_two = np.zeros((2, *shape), np.uint8)  # newest first

    def reset(self, *, seed: int | None = None, options: Options = None) -> Reset:
        obs, info = self.env.reset(seed=seed, options=options)
        self._last_two[0] = obs
        self._last_two[1] = 0
        return obs, info

    def step(self, action: int) -> StepResult:
        total_reward = 0.0
        for frames_left in range(self.skip, 0, -1):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total_reward += float(reward)
            if terminated or truncated:
                break
            if frames_left <= 2:
                self._last_two[frames_left - 1] = obs
        if self.max_pool:
            np.maximum(self._last_two[0], self._last_two[1], out=self._last_two[0])
        return self._last_two[0].copy(), total_reward, terminated, truncated, info


class LifeLossInfo(AtariWrapper):
    """Tells of a lost life in info['life_lost'] and lets the game go on: no step and no reward is lost."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._lives = 0

    def reset(self, *, seed: int | None = None, options: Options = None) -> Reset:
        obs, info = self.env.reset(seed=seed, options=options)
        self._lives = info["lives"]
        return obs, info

    def step(self, action: int) -> StepResult:
        obs, reward, terminated, truncated, info = self.env.step(action)
        info["life_lost"] = is_life_lost(self._lives, info["lives"], terminated)
        self._lives = info["lives"]
        return obs, float(reward), terminated, truncated, info


class EpisodicLife(AtariWrapper):
    """Baselines' way: a lost life is `terminated`, and the next reset plays on with one no-op step.

    That step's reward is lost to the score, which is why LifeLossInfo is the default.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._lives = 0
        self._game_over = True
        self._noop = action_index(env, "NOOP") or 0

    def reset(self, *, seed: int | None = None, options: Options = None) -> Reset:
        if self._game_over or seed is not None:
            obs, info = self.env.reset(seed=seed, options=options)
        else:
            obs, _, terminated, truncated, info = self.env.step(self._noop)
            if terminated or truncated:  # the game can end on the very step that was to bring us to the next life
                obs, info = self.env.reset(options=options)
        self._game_over = False
        self._lives = info["lives"]
        return obs, info

    def step(self, action: int) -> StepResult:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._game_over = terminated or truncated
        info["life_lost"] = is_life_lost(self._lives, info["lives"], terminated)
        info["game_goes_on"] = info["life_lost"]
        self._lives = info["lives"]
        return obs, float(reward), terminated or info["life_lost"], truncated, info


class WarpFrame(AtariWrapper):
    """Resizes a grey image (height, width) to (size, size, 1)."""

    def __init__(self, env: gymnasium.Env[Any, Any], size: int = 84, method: ResizeMethod = "cv2_area") -> None:
        super().__init__(env)
        self._resize = make_resize(method, size)
        self.observation_space = gymnasium.spaces.Box(0, 255, (size, size, 1), np.uint8)

    def reset(self, *, seed: int | None = None, options: Options = None) -> Reset:
        obs, info = self.env.reset(seed=seed, options=options)
        return self._resize(obs)[:, :, None], info

    def step(self, action: int) -> StepResult:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._resize(obs)[:, :, None], float(reward), terminated, truncated, info


class ClipReward(AtariWrapper):
    """Clips to [-1, 1], as Nature does (the sign, as points are whole numbers); info['raw_reward'] keeps the points."""

    def step(self, action: int) -> StepResult:
        obs, reward, terminated, truncated, info = self.env.step(action)
        info["raw_reward"] = float(reward)
        return obs, max(-1.0, min(1.0, float(reward))), terminated, truncated, info


class FrameStack(AtariWrapper):
    """Joins the last `count` images along their first axis, oldest first; before a game's start they are zero."""

    def __init__(self, env: gymnasium.Env[Any, Any], count: int) -> None:
        super().__init__(env)
        shape = env.observation_space.shape
        assert shape is not None
        self._channels = shape[0]
        self._stack = np.zeros((count * shape[0], *shape[1:]), np.uint8)
        self.observation_space = gymnasium.spaces.Box(0, 255, self._stack.shape, np.uint8)

    def reset(self, *, seed: int | None = None, options: Options = None) -> Reset:
        obs, info = self.env.reset(seed=seed, options=options)
        self._stack[:] = 0
        return self._push(obs), info

    def step(self, action: int) -> StepResult:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._push(obs), float(reward), terminated, truncated, info

    def _push(self, image: Pixels) -> Pixels:
        self._stack = np.concatenate([self._stack[self._channels :], image])
        return self._stack.copy()


def make_resize(method: ResizeMethod, size: int) -> Resize:
    """Needs only the package that does the work: OpenCV is not asked for by the others."""
    if method == "pillow":
        return _resize_by_pillow(size)
    if method == "torch":
        return _resize_by_torch(size)
    return _resize_by_cv2(size, method)


def _resize_by_cv2(size: int, method: ResizeMethod) -> Resize:
    try:
        import cv2
    except ImportError:
        raise missing_package(f"Resizing by env.resize={method}", "opencv-python-headless", "image") from None
    cv2.setNumThreads(1)  # a pool of threads costs more than one small image takes
    ways = {"cv2_area": cv2.INTER_AREA, "cv2_linear": cv2.INTER_LINEAR, "cv2_nearest": cv2.INTER_NEAREST}
    interpolation = ways[method]

    def resize(image: Pixels) -> Pixels:
        small: Any = cv2.resize(image, (size, size), interpolation=interpolation)
        return small

    return resize


def _resize_by_pillow(size: int) -> Resize:
    """A box counts a pixel wholly or not at all, where OpenCV's area weighs the pixels at its edge."""
    from PIL import Image

    def resize(image: Pixels) -> Pixels:
        small = Image.fromarray(image).resize((size, size), Image.Resampling.BOX)
        return np.array(small, np.uint8)  # a copy, as asarray would give memory that cannot be written to

    return resize


def _resize_by_torch(size: int) -> Resize:
    """Areas of whole pixels that may overlap. The pooling of one channel is never shared between threads; the changes
    of dtype would be (from 32,768 pixels on), so NumPy does them and torch's thread count stays the learner's."""
    import torch

    def resize(image: Pixels) -> Pixels:
        pixels = torch.from_numpy(image.astype(np.float32))[None, None]
        small = torch.nn.functional.interpolate(pixels, size=(size, size), mode="area")
        rounded: Pixels = np.rint(small[0, 0].numpy()).astype(np.uint8)
        return rounded

    return resize


def action_index(env: gymnasium.Env[Any, Any], meaning: str) -> int | None:
    """The number of the action NOOP or FIRE; None where the game has no such action (it need not be 0 or 1)."""
    meanings: list[str] = env.unwrapped.get_action_meanings()  # type: ignore[attr-defined]
    return meanings.index(meaning) if meaning in meanings else None


def is_life_lost(lives_before: int, lives: int, terminated: bool) -> bool:
    """Some games show 0 lives for a while before they end (Qbert): only a life after which play goes on counts."""
    return 0 < lives < lives_before and not terminated
