"""How many cores this process may really use: a container often sees all of the machine's but may use only a few."""

import os
from pathlib import Path


def usable_cores(cgroup_root: Path = Path("/sys/fs/cgroup")) -> int:
    """The smaller of the affinity mask and the cgroup's quota, at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota(cgroup_root)
    return max(1, min(allowed, int(quota))) if quota else allowed


def _cgroup_quota(root: Path) -> float | None:
    """Cores granted by cgroup v2 (`cpu.max`: 'quota period') or v1; None where there is no limit."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (root / "cpu/cpu.cfs_quota_us").read_text()
            period = (root / "cpu/cpu.cfs_period_us").read_text()
        except OSError:
            return None
    try:
        return float(quota) / float(period) if float(quota) > 0 else None
    except ValueError:  # cgroup v2 writes 'max' for no limit
        return None


def powers_up_to(count: int) -> list[int]:
    """Numbers of threads worth trying: 1, 2, 4, ... and the count itself; none for a count below 1."""
    return sorted({2**power for power in range(count.bit_length())} | {count}) if count > 0 else []
