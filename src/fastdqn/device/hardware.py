"""Checks whether this machine has what some speed-ups need."""

import importlib.util
import shutil
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path

from fastdqn.device.kept_memory import has_mallopt


def lacks(need: str, device: str) -> str:
    """Why `need` is not met on this machine with this device, or the empty string."""
    return NEEDS[need](device)


def use_device(device: str) -> None:
    """Makes this the thread's default CUDA device, for streams, events and Triton kernels."""
    if device.startswith("cuda:"):
        import torch

        torch.cuda.set_device(device)


def _cuda(device: str) -> str:
    return "" if device.startswith("cuda") else "a CUDA device"


def _cpu(device: str) -> str:
    return "" if device == "cpu" else "the CPU as its device"


@cache
def _compiler(device: str) -> str:
    """`torch.compile` writes C++ (CPU) or Triton (GPU, whose launcher is C) and compiles it at run time."""
    if not any(shutil.which(name) for name in ("g++", "clang++", "c++")):
        return "a C++ compiler (g++)"
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        return "the Python headers (Python.h)"
    if device.startswith("cuda") and importlib.util.find_spec("triton") is None:
        return "the package triton"
    return ""


@cache
def _bf16(device: str) -> str:
    """Without instructions for it a CPU computes bfloat16 slower than float32."""
    if device.startswith("cuda"):
        import torch

        return "" if torch.cuda.is_bf16_supported(including_emulation=False) else "a GPU that computes in bfloat16"
    flags = _cpu_flags()
    return "" if flags & {"avx512_bf16", "amx_bf16"} else "a CPU with bfloat16 instructions (AVX-512 BF16 or AMX)"


def _cpu_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return set(next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), []))


def _glibc(device: str) -> str:
    return "" if has_mallopt() else "the GNU C library"


NEEDS: dict[str, Callable[[str], str]] = {"cpu": _cpu, "cuda": _cuda, "compiler": _compiler, "bf16": _bf16, "glibc": _glibc}
