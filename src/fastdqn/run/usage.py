"""How busy the machine is while something is measured: CPU, GPU and memory of this process and its children."""

import contextlib
import threading
import time
from typing import Any

import psutil

DISTURBING_PERCENT = 25.0  # of one core, used by other programs: a speed taken meanwhile is worth little


class Usage:
    """`start()`, then `read()` once: use between the two. 100 % CPU is one core; the GPU is asked four times a second."""

    def __init__(self, device: str) -> None:
        self._process = psutil.Process()
        self._gpu = GpuSampler(device) if device.startswith("cuda") else None
        self._cpu_began = self._began = self._all_began = 0.0

    def start(self) -> None:
        self._began, self._cpu_began, self._all_began = time.perf_counter(), self._cpu_seconds(), machine_cpu_seconds()
        if self._gpu is not None:
            self._gpu.start()

    def read(self) -> dict[str, float | None]:
        busy = max(0.0, self._cpu_seconds() - self._cpu_began)
        others = max(0.0, machine_cpu_seconds() - self._all_began - busy)
        elapsed = time.perf_counter() - self._began
        return {
            "cpu_percent": 100.0 * busy / elapsed,
            "others_cpu_percent": 100.0 * others / elapsed,
            "gpu_percent": self._gpu.stop() if self._gpu is not None else None,
            "rss_mb": sum(_rss(process) for process in self._family()) / 1e6,
            "gpu_memory_mb": self._gpu.memory_mb() if self._gpu is not None else None,
        }

    def disturbed(self) -> bool:
        """Whether other programs were busy enough since the start to spoil a measurement."""
        return (self.read()["others_cpu_percent"] or 0.0) > DISTURBING_PERCENT

    def _family(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]

    def _cpu_seconds(self) -> float:
        """With what children have used that have ended: their time goes over to their parent and is not lost."""
        total = 0.0
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total


class GpuSampler:
    """The share of time in which the GPU had a kernel running, as its driver says; the mean over the stretch."""

    def __init__(self, device: str, interval: float = 0.25) -> None:
        import pynvml

        self._nvml: Any = pynvml
        self._nvml.nvmlInit()
        self._handle = self._nvml.nvmlDeviceGetHandleByIndex(int(device.partition(":")[2] or 0))
        self._interval = interval
        self._readings: list[float] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True, name="fastdqn-gpu-usage")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> float | None:
        self._done.set()
        self._thread.join()
        return sum(self._readings) / len(self._readings) if self._readings else None

    def memory_mb(self) -> float:
        import torch

        return torch.cuda.max_memory_allocated() / 1e6

    def _sample(self) -> None:
        while not self._done.wait(self._interval):
            self._readings.append(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu)


def machine_cpu_seconds() -> float:
    """Busy time of all cores, whoever used them."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
