"""Dumped games on disk: `RUN/episodes/000001200-actor0.npz`, plain compressed arrays that any program can read.

    frames (T + 1, *obs_shape)   actions (T,)   rewards (T,)   values (T, num_actions)   facts: one JSON text

Written by a thread, so that training does not wait for the disk; a full disk loses games, never the run. The oldest are
deleted when the budget (`dump.max_gb`) is used up.
"""

import contextlib
import json
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from fastdqn.actor.recorder import Episode
from fastdqn.config import Config
from fastdqn.errors import UserError
from fastdqn.run.preflight import human_bytes
from fastdqn.transition import EnvSpec

FOLDER = "episodes"
MOST_PENDING_BYTES = 64 * 2**20  # waiting for the disk; one more game is accepted, whatever its size


class DumpWriter:
    """`role` says who played: actor0 explores, evaluator is greedy."""

    def __init__(self, run: Path, role: str, spec: EnvSpec, max_bytes: float) -> None:
        self._folder, self._role, self._spec, self._max_bytes = run / FOLDER, role, spec, max_bytes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fastdqn-dumps")
        self._pending: list[tuple[Future[None], int]] = []  # games that are being written, and their bytes
        self.lost = 0  # games that could not be written, or came faster than the disk can write
        self.last_fault = ""

    def write(self, episode: Episode) -> None:
        self._pending = [(writing, size) for writing, size in self._pending if not writing.done()]
        if sum(size for _, size in self._pending) > MOST_PENDING_BYTES:
            self.lost += 1
            return
        size = sum(frame.nbytes for frame in episode.frames)
        self._pending.append((self._thread.submit(self._write, episode), size))

    def close(self) -> None:
        self._thread.shutdown()

    def _write(self, episode: Episode) -> None:
        path = self._folder / f"{episode.number:09d}-{self._role}.npz"
        beside = path.with_suffix(".tmp")
        rewards = np.array(episode.rewards, np.float32)
        gains = rewards.clip(0) if self._spec.score == "gains" else rewards
        facts = {
            "env_id": self._spec.env_id,
            "role": self._role,
            "episode": episode.number,
            "steps": len(episode.actions),
            "score": float(gains.sum()),
            "cut": episode.cut,
        }
        try:
            self._folder.mkdir(exist_ok=True)
            with beside.open("wb") as file:
                np.savez_compressed(
                    file,
                    frames=np.stack(episode.frames),
                    actions=np.array(episode.actions, np.int64),
                    rewards=rewards,
                    values=np.stack(episode.values).astype(np.float32),
                    facts=np.array(json.dumps(facts)),
                )
            os.replace(beside, path)
            prune(self._folder, self._max_bytes)
        except OSError as fault:
            self.lost += 1
            self.last_fault = str(fault)
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)


def prune(folder: Path, max_bytes: float) -> None:
    """Deletes the oldest until the rest fits; the newest stays, whatever its size."""
    sizes = {}
    for file in folder.glob("*.npz"):
        with contextlib.suppress(FileNotFoundError):  # another role prunes the same folder
            sizes[file] = (file.stat().st_mtime_ns, file.stat().st_size)
    total = sum(size for _, size in sizes.values())
    for file in sorted(sizes, key=lambda file: sizes[file][0])[:-1]:
        if total <= max_bytes:
            return
        total -= sizes[file][1]
        file.unlink(missing_ok=True)


def estimate(config: Config, spec: EnvSpec) -> str:
    """The expected size of a run's dumps, as a line for its start."""
    row = int(np.prod(spec.obs_shape)) * spec.obs_dtype.itemsize + 4 * spec.num_actions + 12
    budget = human_bytes(config.dump.max_gb * 1e9)
    one = f"games are dumped, every {config.dump.every:,}th: {human_bytes(1000 * row)} per 1,000 steps before compression"
    if config.limits.steps is None:
        return f"{one}; the oldest go beyond {budget}"
    total = human_bytes(config.limits.steps / config.dump.every * row)
    return f"{one}, {total} for the exploring ones of this run; the oldest go beyond {budget}"


def find_episode(run: Path, number: int) -> Path:
    """The dump of this game; the evaluator's if there is no other."""
    found = sorted((run / FOLDER).glob(f"{number:09d}-*.npz"))
    if found:
        return found[0]
    there = sorted({int(file.name.split("-")[0]) for file in (run / FOLDER).glob("*-*.npz")})
    if not there:
        raise UserError(f"{run} has no dumped games. Train with --set dump.every=100 to have some.")
    nearby = sorted(there, key=lambda other: abs(other - number))[:5]
    raise UserError(f"Game {number} was not dumped. Near it: {', '.join(map(str, sorted(nearby)))}.")


def steps_of(path: Path) -> int:
    """Steps of a dumped game, without unpacking its frames."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return len(file["actions"])
    except (OSError, ValueError, KeyError) as fault:
        raise UserError(f"{path} is damaged or no dumped game: {fault}.") from None


def read_episode(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays by name, and the facts."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ("frames", "actions", "rewards", "values")}
            return arrays, json.loads(str(file["facts"]))
    except (OSError, ValueError, KeyError) as fault:
        raise UserError(f"{path} is damaged or no dumped game: {fault}.") from None
