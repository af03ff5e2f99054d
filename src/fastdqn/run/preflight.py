"""Checks what a run needs against what the machine has, before anything is allocated or written.

np.zeros reserves nothing: without this check a replay that is too large fails hours later, when the last page is touched.
"""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from fastdqn.errors import UserError

RESERVE_BYTES = 512 * 2**20  # left for everything that is not one of our buffers


@dataclass(frozen=True)
class Need:
    """Memory one buffer takes; `per_row` where the user can make it smaller by lowering replay.capacity."""

    name: str
    bytes: int
    per_row: int = 0
    on_device: bool = False  # lives on the learner's device
    on_disk: bool = False  # lives in a file


def human_bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def free_memory(cgroup_root: Path = Path("/sys/fs/cgroup"), own_cgroups: Path = Path("/proc/self/cgroup")) -> int:
    """Bytes that can be allocated: what the machine has available, or what the tightest of our cgroups still allows."""
    free = psutil.virtual_memory().available
    for group in memory_groups(cgroup_root, own_cgroups):
        for limit_file, used_file, cache in (
            ("memory.max", "memory.current", "inactive_file"),  # cgroup v2
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),  # cgroup v1
        ):
            try:
                limit = int((group / limit_file).read_text())
                used = int((group / used_file).read_text())
            except (OSError, ValueError):  # no such group, or 'max': no limit
                continue
            free = min(free, limit - used + _read_stat(group / "memory.stat", cache))
    return max(0, free)


def memory_groups(root: Path, own_cgroups: Path) -> list[Path]:
    """The folders of our memory cgroup and all its ancestors: a limit at any level counts. Inside a
    container ours is usually the root; under SLURM or systemd it lies deeper. Lines are 'number:controllers:/path'."""
    try:
        lines = [line.split(":", 2) for line in own_cgroups.read_text().splitlines()]
    except OSError:
        lines = []
    groups = [root, root / "memory"]
    for _, controllers, path in lines:
        base = root / "memory" if "memory" in controllers.split(",") else root if not controllers else None
        if base is not None:
            own = base / path.strip("/")
            groups += [own, *(folder for folder in own.parents if folder.is_relative_to(base))]
    return list(dict.fromkeys(groups))


def _read_stat(path: Path, name: str) -> int:
    """One number of a memory.stat; inactive_file is page cache, which the kernel frees on demand."""
    try:
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    except (OSError, ValueError):
        pass
    return 0


def device_memory(device: str) -> int | None:
    """Free bytes on a CUDA device; None for others, whose buffers live in RAM."""
    if not device.startswith("cuda"):
        return None
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # cached by torch, can be reused
    return int(free) + int(kept)


def check_memory(needs: Iterable[Need], free: int | None = None, where: str = "memory") -> None:
    """Raises UserError with the numbers and the largest replay that fits."""
    needs = list(needs)
    free = free_memory() if free is None else free
    usable = free - RESERVE_BYTES
    total = sum(need.bytes for need in needs)
    if total <= usable:
        return
    parts = ", ".join(f"{need.name} {human_bytes(need.bytes)}" for need in needs)
    sentence = (
        f"This run needs {human_bytes(total)} of {where} ({parts}), and {human_bytes(free)} are free, "
        f"of which {human_bytes(RESERVE_BYTES)} are kept in reserve."
    )
    for need in needs:
        room = usable - (total - need.bytes)
        if need.per_row and room >= need.per_row:
            sentence += f" The largest that fits: --set replay.capacity={room // need.per_row}"
    raise UserError(sentence)


def check_disk(needs: Iterable[Need], folder: Path) -> None:
    """Checks file-backed buffers against the disk of this folder, which need not exist yet."""
    needs, there = [need for need in needs if need.on_disk], nearest_folder(folder)
    if needs:
        check_memory(needs, shutil.disk_usage(there).free, where=f"the disk of {there}")


def nearest_folder(path: Path) -> Path:
    """The folder itself, or its nearest parent that exists."""
    return next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.is_dir())


def check_device(device: str) -> None:
    """Raises UserError for a device that does not exist."""
    import torch

    if device == "cpu":
        return
    if device.partition(":")[0] == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not count:
            built = "" if torch.version.cuda else " (this torch was built without CUDA)"
            raise UserError(f"Device '{device}' is not there: no CUDA GPU was found{built}. Use --device cpu or auto.")
        names = [f"cuda:{i}" for i in range(count)]
        if device not in ("cuda", *names):
            raise UserError(f"Device '{device}' is not there. This machine has {', '.join(names)}.")
        return
    if device == "mps":
        if not torch.backends.mps.is_available():
            raise UserError("Device 'mps' is not there: it needs a Mac with Apple silicon. Use --device cpu or auto.")
        return
    raise UserError(f"Unknown device '{device}'. Use auto, cpu, cuda, cuda:N or mps.")


def choose_device(wanted: str, large_network: bool) -> str:
    """`auto`: a CUDA GPU for convolutions over large images, the CPU for networks so small that launching a kernel
    takes longer than running it."""
    if wanted != "auto":
        check_device(wanted)
        return wanted
    import torch

    if large_network and torch.cuda.is_available():
        return "cuda"
    return "cpu"
