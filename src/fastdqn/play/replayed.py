"""A dumped game as a film: each frame, and below it the Q-values of all actions with the chosen one marked."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fastdqn.errors import UserError
from fastdqn.play.film import Shot, check_film, write_film
from fastdqn.run.dumps import find_episode, read_episode
from fastdqn.run.folder import find

WIDTH = 336  # of the image; small frames are enlarged by whole factors
BAR_HEIGHT, GAP = 60, 4
GROUND, CHOSEN, OTHER, INK = (16, 24, 32), (163, 240, 92), (72, 110, 150), (226, 232, 240)
CHANNEL_COLOURS = ((163, 240, 92), (16, 122, 112), (239, 68, 68))  # of three small planes: head, body, food


def watch_episode(run: str, number: int, out: str | None, rate: int | None) -> str:
    """Writes the film and returns a line that describes it."""
    folder = find(run).path
    path = Path(out) if out else folder / f"episode_{number}.gif"
    check_film(path)
    arrays, facts = read_episode(find_episode(folder, number))
    frames = arrays["frames"]
    if frames.ndim != 4:
        raise UserError(f"{facts['env_id']} shows no images: read its dump with numpy.load({str(folder)!r} ...).")
    write_film(path, list(shots(arrays)), rate or 15)
    cut = ", cut" if facts["cut"] else ""
    return f"{path}: game {facts['episode']} of {facts['role']}, {facts['steps']} steps{cut}, score {facts['score']:g}"


def shots(arrays: dict[str, np.ndarray]) -> Iterator[Shot]:
    values = arrays["values"]
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    score = 0.0
    for step, frame in enumerate(arrays["frames"]):
        score += float(arrays["rewards"][step - 1]) if step else 0.0
        last = step == len(arrays["actions"])
        own = None if last else values[step]
        action = None if last else int(arrays["actions"][step])
        yield Shot(np.concatenate([image_of(frame), bars(own, action, low, high)]), score, step)


def image_of(frame: np.ndarray) -> np.ndarray:
    """(channels, height, width) -> (height, width, 3), enlarged and centred. Planes of a small board get colours."""
    frame = frame.astype(np.float32) / 255 if frame.dtype == np.uint8 else _scaled(frame.astype(np.float32))
    if len(frame) == 3:
        colours = np.array(CHANNEL_COLOURS, np.float32)
        ground = np.array(GROUND, np.float32)
        light = frame.max(0)[..., None]
        shown = np.einsum("chw,cd->hwd", frame, colours).clip(0, 255) * (light > 0) + ground * (light == 0)
    else:
        shown = np.repeat(frame[-1][..., None] * 255, 3, axis=2)
    factor = max(1, WIDTH // shown.shape[1])
    large = shown.clip(0, 255).astype(np.uint8).repeat(factor, 0).repeat(factor, 1)[:, :WIDTH]
    canvas = np.full((large.shape[0], WIDTH, 3), GROUND, np.uint8)
    left = (WIDTH - large.shape[1]) // 2
    canvas[:, left : left + large.shape[1]] = large
    return canvas


def bars(values: np.ndarray | None, action: int | None, low: float, high: float) -> np.ndarray:
    """One bar per action, on the scale of the whole game; nothing for the frame after the last action."""
    canvas = np.full((BAR_HEIGHT, WIDTH, 3), GROUND, np.uint8)
    canvas[0] = INK
    if values is None:
        return canvas
    width = WIDTH // len(values)
    span = max(high - low, 1e-9)
    for number, value in enumerate(values):
        height = 2 + round((BAR_HEIGHT - 2 * GAP - 2) * (float(value) - low) / span)
        colour = CHOSEN if number == action else OTHER
        canvas[BAR_HEIGHT - GAP - height : BAR_HEIGHT - GAP, number * width + GAP : (number + 1) * width - GAP] = colour
    return canvas


def _scaled(frame: np.ndarray) -> np.ndarray:
    low, high = float(frame.min()), float(frame.max())
    return (frame - low) / max(high - low, 1e-9)
