"""Describes the machine of a run: a speed or a score cannot be compared without its machine and versions."""

import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import torch

from fastdqn import __version__
from fastdqn.device.cores import usable_cores

PACKAGES = ("fastdqn", "torch", "numpy", "numba", "gymnasium", "ale-py")


def describe_machine() -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d"),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "cores": psutil.cpu_count(),
        "usable_cores": usable_cores(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
    }


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return __version__ if package == "fastdqn" else None  # run from a source tree that is not installed


def _commit() -> str | None:
    """The commit of the source tree, marked if the tree has local changes; None for an installed wheel.
    FASTDQN_COMMIT names it for a tree that was copied to another machine."""
    if told := os.environ.get("FASTDQN_COMMIT"):
        return told
    here = Path(__file__).parent

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True, timeout=5)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", __file__)
        return git("rev-parse", "--short=12", "HEAD") + (
            "+changes" if git("status", "--porcelain", "--", str(here.parent)) else ""
        )
    except (OSError, subprocess.SubprocessError):
        return None
