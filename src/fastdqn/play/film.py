"""Shows a trained agent: a GIF or MP4 of a whole game, or Snake in the terminal."""

import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium.error import DependencyNotInstalled

from fastdqn.errors import UserError, missing_package
from fastdqn.play.player import Player

MAX_GIF_FRAMES = 1_500  # a longer film is cut: a GIF of a whole Atari game would be hundreds of megabytes


class Shot(NamedTuple):
    image: Any  # what render() gave: (height, width, 3) uint8, or a string
    score: float
    step: int


def play(player: Player, render_mode: str, seed: int, max_steps: int) -> Iterator[Shot]:
    """One game, shot by shot, with the evaluator's epsilon."""
    spec = player.kind.spec
    env = player.kind.make_single(render_mode=render_mode)
    rng = np.random.default_rng(seed)
    try:
        obs, _ = env.reset(seed=seed)
        player.reset()
        score, step = 0.0, 0
        yield Shot(env.render(), score, step)
        over = False
        while not over and step < max_steps:
            action = player.act(obs)
            if rng.random() < spec.eval_epsilon:
                action = int(rng.integers(spec.num_actions)) + spec.action_start
            obs, reward, terminated, truncated, info = env.step(action)
            raw = float(info.get("raw_reward", reward))
            score += max(0.0, raw) if spec.score == "gains" else raw
            step += 1
            over = (terminated and not info.get("game_goes_on", False)) or truncated
            if terminated and not over:
                obs, _ = env.reset()
                player.reset()
            yield Shot(env.render(), score, step)
    except DependencyNotInstalled as fault:
        raise UserError(f"A film of {spec.env_id} needs a package that is not installed: {fault}") from None
    finally:
        env.close()


def best_of(player: Player, seed: int, games: int, max_steps: int, progress: Callable[[str], None]) -> list[Shot]:
    """The shots of the best of a few games, as a film should show what was learned; `progress` gets a line per game."""
    best: list[Shot] = []
    for game in range(games):
        shots = list(play(player, "rgb_array", seed + game, max_steps))
        progress(f"game {game + 1} of {games}: score {shots[-1].score:g} in {shots[-1].step} steps")
        if not best or shots[-1].score > best[-1].score:
            best = shots
    return best


def check_film(path: Path) -> None:
    """Refuses a file type that cannot be written, before a game is played."""
    if path.suffix.lower() not in (".gif", ".mp4"):
        raise UserError(f"A film is a .gif or a .mp4, not '{path}'.")
    if path.suffix.lower() == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        raise missing_package("An .mp4 film", "imageio-ffmpeg", "video")


def write_film(path: Path, shots: list[Shot], frames_per_second: int) -> Path:
    """By file extension: .gif with Pillow, .mp4 with ffmpeg."""
    check_film(path)
    if not shots or shots[0].image is None:
        raise UserError("This environment cannot be filmed: its render() gives no image.")
    images = [np.asarray(shot.image, np.uint8) for shot in shots]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() == ".gif":
            _write_gif(path, images[:MAX_GIF_FRAMES], frames_per_second)
        else:
            _write_mp4(path, images, frames_per_second)
    except OSError as error:
        raise UserError(f"The film {path} cannot be written: {error.strerror or error}.") from None
    return path


def _write_gif(path: Path, images: list[np.ndarray], frames_per_second: int) -> None:
    from PIL import Image

    opened = [Image.fromarray(image) for image in images]
    # One palette for all frames, from the first, the middle and the last, so that colours do not flicker
    sample = Image.fromarray(np.concatenate([images[0], images[len(images) // 2], images[-1]]))
    palette = sample.quantize(colors=128, dither=Image.Dither.NONE)
    frames = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in opened]
    duration = [round(1000 / frames_per_second)] * (len(frames) - 1) + [1500]  # the end stays long enough to be read
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=duration, loop=0, optimize=True)


def _write_mp4(path: Path, images: list[np.ndarray], frames_per_second: int) -> None:
    import imageio_ffmpeg

    height, width = images[0].shape[:2]
    even = (width + width % 2, height + height % 2)  # yuv420p halves both sides
    writer = imageio_ffmpeg.write_frames(str(path), even, fps=frames_per_second, quality=8, macro_block_size=2)
    writer.send(None)
    for image in images:
        padded = np.zeros((even[1], even[0], 3), np.uint8)
        padded[:height, :width] = image
        writer.send(padded.tobytes())
    writer.close()


def watch_in_terminal(player: Player, seed: int, frames_per_second: int) -> Shot:
    """Snake, drawn in characters, at the frame rate of a film."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    last = None
    with Live(console=console, auto_refresh=False) as live:
        for shot in play(player, "ansi", seed, player.kind.spec.max_eval_steps):
            live.update(Text(str(shot.image)), refresh=True)
            last = shot
            if console.is_terminal:
                time.sleep(1 / frames_per_second)
    assert last is not None
    return last
