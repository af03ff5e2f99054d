"""How busy the machine is while something is measured: CPU, GPU and memory of this process and its children."""

import contextlib
import threading
import time
from typing import Any

import psutil

DISTURBING_PERCENT = 25.0  # of one core, used by other programs: a speed measured meanwhile is unreliable


class Usage:
    """`start()`, then `read()`: usage between the two, without the time between `pause()` and `resume()`. 100 % CPU is one
    core; the GPU is sampled four times a second."""

    def __init__(self, device: str) -> None:
        self._process = psutil.Process()
        self._gpu = GpuSampler(device) if device.startswith("cuda") else None
        self._began = (0.0, 0.0, 0.0)  # seconds: wall clock, CPU of us and our children, CPU of all programs
        self._sums = [0.0, 0.0, 0.0]  # the same, up to the last pause
        self._running = False

    def start(self) -> None:
        self._sums, self._running = [0.0, 0.0, 0.0], False
        if self._gpu is not None:
            self._gpu.readings.clear()
        self.resume()

    def resume(self) -> None:
        if not self._running:
            self._running = True
            if self._gpu is not None:
                self._gpu.start()
            self._began = self._now()

    def pause(self) -> None:
        if self._running:
            self._running = False
            for place, (now, began) in enumerate(zip(self._now(), self._began, strict=True)):
                self._sums[place] += max(0.0, now - began)
            if self._gpu is not None:
                self._gpu.stop()

    def read(self) -> dict[str, float | None]:
        """Pauses, and returns the usage so far."""
        self.pause()
        elapsed, busy, everybody = self._sums
        return {
            "cpu_percent": 100.0 * busy / elapsed,
            "others_cpu_percent": 100.0 * max(0.0, everybody - busy) / elapsed,
            "gpu_percent": self._gpu.mean() if self._gpu is not None else None,
            "rss_mb": sum(_rss(process) for process in self._family()) / 1e6,
            "gpu_memory_mb": self._gpu.memory_mb() if self._gpu is not None else None,
        }

    def disturbed(self) -> bool:
        """Whether other programs were busy enough since the start to spoil a measurement."""
        return (self.read()["others_cpu_percent"] or 0.0) > DISTURBING_PERCENT

    def _now(self) -> tuple[float, float, float]:
        return time.perf_counter(), self._cpu_seconds(), machine_cpu_seconds()

    def _family(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]

    def _cpu_seconds(self) -> float:
        """Includes children that have ended: their time is added to their parent's."""
        total = 0.0
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total


class GpuSampler:
    """The share of time in which the GPU had a kernel running, as its driver reports; the mean over the interval.

    The driver averages over up to half a second, so the first readings after a start cover the time before it.
    """

    def __init__(self, device: str, interval: float = 0.25, skipped: int = 2) -> None:
        self._nvml, self._handle = _nvml_and_handle(device)
        self._interval, self._skipped = interval, skipped
        self.readings: list[float] = []
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._done.clear()
        self._thread = threading.Thread(target=self._sample, daemon=True, name="fastdqn-gpu-usage")
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def mean(self) -> float | None:
        return sum(self.readings) / len(self.readings) if self.readings else None

    def memory_mb(self) -> float:
        import torch

        return torch.cuda.max_memory_allocated() / 1e6

    def _sample(self) -> None:
        taken = 0
        while not self._done.wait(self._interval):
            taken += 1
            if taken > self._skipped:
                self.readings.append(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu)


def free_memory(device: str) -> dict[str, int]:
    """Bytes that are free: in RAM, and on the GPU if that is the device."""
    free = {"RAM": int(psutil.virtual_memory().available)}
    if device.startswith("cuda"):
        nvml, handle = _nvml_and_handle(device)
        free["GPU"] = int(nvml.nvmlDeviceGetMemoryInfo(handle).free)
    return free


def _nvml_and_handle(device: str) -> tuple[Any, Any]:
    import pynvml

    pynvml.nvmlInit()
    return pynvml, pynvml.nvmlDeviceGetHandleByIndex(int(device.partition(":")[2] or 0))


def gpu_percent(device: str) -> float | None:
    """Current GPU utilisation; None on other devices."""
    if not device.startswith("cuda"):
        return None
    nvml, handle = _nvml_and_handle(device)
    return float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)


def machine_cpu_seconds() -> float:
    """Busy time of all cores, by any program."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
