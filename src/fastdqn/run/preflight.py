"""What a run needs against what the machine has, checked before anything is allocated or written.

np.zeros reserves nothing: without this check a replay that is too large dies hours later, when the last page is touched.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from fastdqn.errors import UserError

RESERVE_BYTES = 512 * 2**20  # left for everything that is not a buffer of ours


@dataclass(frozen=True)
class Need:
    """Memory one buffer takes; `per_row` where the user can make it smaller by lowering replay.capacity."""

    name: str
    bytes: int
    per_row: int = 0


def human_bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def free_memory(cgroup_root: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that can be allocated: what the machine has available, or what the container still allows."""
    free = psutil.virtual_memory().available
    for limit_file, used_file in (
        ("memory.max", "memory.current"),  # cgroup v2
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),  # cgroup v1
    ):
        try:
            limit = int((cgroup_root / limit_file).read_text())
            used = int((cgroup_root / used_file).read_text())
        except (OSError, ValueError):  # no such group, or 'max': no limit
            continue
        free = min(free, limit - used)
    return max(0, free)


def device_memory(device: str) -> int | None:
    """Free bytes on a CUDA device; None for others, whose buffers live in RAM."""
    if not device.startswith("cuda"):
        return None
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    return int(free)


def check_memory(needs: Iterable[Need], free: int | None = None, where: str = "memory") -> None:
    """Refuses with the numbers, and with the largest replay that fits."""
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


def check_device(device: str) -> None:
    """A device that is not there is refused by name."""
    import torch

    kind, _, number = device.partition(":")
    if kind == "cpu" and not number:
        return
    if kind == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not count:
            built = "" if torch.version.cuda else " (this torch was built without CUDA)"
            raise UserError(f"Device '{device}' is not there: no CUDA GPU was found{built}. Use --device cpu or auto.")
        if number and not (number.isdigit() and int(number) < count):
            names = ", ".join(f"cuda:{i}" for i in range(count))
            raise UserError(f"Device '{device}' is not there. This machine has {names}.")
        return
    if kind == "mps" and not number:
        if not torch.backends.mps.is_available():
            raise UserError("Device 'mps' is not there: it needs a Mac with Apple silicon. Use --device cpu or auto.")
        return
    raise UserError(f"Unknown device '{device}'. Use auto, cpu, cuda, cuda:N or mps.")


def choose_device(wanted: str, large_network: bool) -> str:
    """auto: an accelerator for convolutions over large pictures, the CPU for networks so small that launching a kernel
    takes longer than computing it."""
    if wanted != "auto":
        check_device(wanted)
        return wanted
    import torch

    if large_network and torch.cuda.is_available():
        return "cuda"
    return "cpu"
