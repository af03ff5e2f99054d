"""The clock of every speed: its arithmetic with a clock of the test's own, and how busy the machine is for real."""

import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import psutil
import pytest

from fastdqn.bench import clock as clock_module
from fastdqn.bench.clock import Clock
from fastdqn.bench.turns import Turns
from fastdqn.run.usage import Usage


@pytest.fixture
def now(monkeypatch):
    """The time of the clock under test, moved by hand. What the machine does meanwhile is made up as well."""
    own = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(clock_module, "time", SimpleNamespace(perf_counter=lambda: own.seconds, time=time.time))
    monkeypatch.setattr(
        clock_module,
        "Usage",
        lambda device: SimpleNamespace(
            start=lambda: None,
            pause=lambda: None,
            resume=lambda: None,
            read=lambda: {
                "cpu_percent": 150.0,
                "others_cpu_percent": 3.0,
                "gpu_percent": None,
                "rss_mb": 400.0,
                "gpu_memory_mb": None,
            },
        ),
    )
    return own


def test_a_stretch_in_numbers(now):
    clock = Clock("cpu", threads=2, batch_size=32)
    clock.first_step()
    now.seconds += 7.0  # the warm-up
    clock.start(steps=5000, updates=1000, switches=["no_grad"], details={"lanes": 8})
    now.seconds += 4.0
    assert clock.tick(5800, 1200) == pytest.approx(4.0)
    speed = clock.speed()
    assert (speed.steps, speed.updates) == (800, 200), "what was before the start does not count"
    assert speed.seconds == pytest.approx(4.0)
    assert speed.steps_per_second == pytest.approx(200.0)
    assert speed.updates_per_second == pytest.approx(50.0)
    assert speed.samples_per_step == pytest.approx(32 * 200 / 800)
    assert speed.warmup_seconds == pytest.approx(7.0)
    assert speed.startup_seconds > 0
    assert (speed.cpu_percent, speed.rss_mb) == (150.0, 400.0)
    assert (speed.device, speed.threads) == ("cpu", 2)
    assert (speed.split, speed.switches, speed.details) == ({}, ["no_grad"], {"lanes": 8})
    assert speed.as_json()["steps_per_second"] == pytest.approx(200.0)


def test_the_windows_are_the_speeds_of_the_pieces(now):
    clock = Clock("cpu", 1, 32)
    clock.start(0, 0)
    steps = 0
    for seconds, more in [(0.3, 30), (0.3, 90), (0.1, 10), (0.5, 25), (0.2, 1000)]:
        now.seconds += seconds
        steps += more
        clock.tick(steps, 0)
    # 0.3 + 0.3 s are the first piece, 0.1 + 0.5 s the second; the last 0.2 s are no whole piece
    assert clock.speed().windows == pytest.approx([120 / 0.6, 35 / 0.6])


def test_a_stretch_shorter_than_a_window_is_one_window(now):
    clock = Clock("cpu", 1, 32)
    clock.start(100, 0)
    now.seconds += 0.25
    clock.tick(150, 10)
    speed = clock.speed()
    assert speed.windows == pytest.approx([200.0])
    assert speed.windows == [speed.steps_per_second]


def test_time_after_the_last_tick_counts(now):
    """On a GPU the work that is still queued is waited for, and that wait belongs to the stretch."""
    clock = Clock("cpu", 1, 32)
    clock.start(0, 0)
    now.seconds += 1.0
    clock.tick(100, 10)
    now.seconds += 1.0
    assert clock.speed().steps_per_second == pytest.approx(50.0)


def test_no_step_is_no_division_by_zero(now):
    clock = Clock("cpu", 1, 32)
    clock.start(10, 10)
    now.seconds += 1.0
    clock.tick(10, 10)
    speed = clock.speed()
    assert (speed.steps_per_second, speed.samples_per_step) == (0.0, 0.0)


class TurnsByHand(Turns):
    """Turns that a test gives: whatever happens between them takes 100 seconds."""

    def __init__(self, seconds, count, now):
        super().__init__(seconds, count)
        self.now, self.told = now, []

    def over(self, so_far):
        self.told.append(so_far)
        self.now.seconds += 100.0


def test_turns_are_pieces_and_waiting_for_them_counts_nowhere(now):
    turns = TurnsByHand(4.0, 4, now)
    clock = Clock("cpu", 1, 32, turns)
    clock.start(0, 0, switches=["no_grad"])
    steps, elapsed, ticks = 0, 0.0, 0
    while elapsed < 4.0:
        now.seconds += 0.25
        steps += 1000 if ticks < 4 else 10 * (1 + (ticks - 4) // 4)  # the first turn is a first look, then 40, 80, 120, 160
        ticks += 1
        elapsed = clock.tick(steps, steps // 10)
    speed = clock.speed()
    assert len(turns.told) == 4, "once after the first look and after each turn but the last"
    assert turns.told[0]["steps_per_second"] == pytest.approx(4000.0)
    assert turns.told[1]["windows"] == pytest.approx([40.0]), "the first look is not part of the stretch"
    assert turns.told[1]["switches"] == ["no_grad"]
    assert speed.windows == pytest.approx([40.0, 80.0, 120.0, 160.0])
    assert speed.seconds == pytest.approx(4.0)
    assert speed.steps == 400
    assert clock.waited_seconds == pytest.approx(400.0)


def test_use_between_turns_is_somebody_elses():
    usage = Usage("cpu")
    usage.start()
    burn(0.2)
    usage.pause()
    burn(0.4)
    usage.resume()
    burn(0.2)
    reading = usage.read()
    assert reading == usage.read() | {"rss_mb": reading["rss_mb"]}, "it stays paused"
    assert usage._sums[1] == pytest.approx(0.4, abs=0.15)


def cpu_seconds_of(work):
    """CPU seconds that Usage saw during `work`, and the reading."""
    usage = Usage("cpu")
    began = time.perf_counter()
    usage.start()
    work()
    elapsed = time.perf_counter() - began
    reading = usage.read()
    return reading["cpu_percent"] / 100 * elapsed, reading


def burn(cpu_seconds=0.4):
    end = time.process_time() + cpu_seconds
    while time.process_time() < end:
        pass


def test_a_busy_loop_is_busy_and_a_wait_is_not():
    busy, reading = cpu_seconds_of(burn)
    idle, _ = cpu_seconds_of(lambda: threading.Event().wait(0.4))
    assert 0.3 < busy < 1.2
    assert 0.0 <= idle < 0.2
    assert reading["gpu_percent"] is None
    assert reading["gpu_memory_mb"] is None
    assert reading["others_cpu_percent"] >= 0.0
    own_mb = psutil.Process().memory_info().rss / 1e6
    assert reading["rss_mb"] == pytest.approx(own_mb, rel=0.3)


def test_processes_of_its_own_count():
    script = (
        "import time\nballast = bytearray(60_000_000)\nprint('ready', flush=True)\ninput()\n"
        "end = time.process_time() + 0.4\nwhile time.process_time() < end: pass\nprint('done', flush=True)\ninput()"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def let_it_work():
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "done\n"

    with child:
        assert child.stdout.readline() == "ready\n"
        own_mb = psutil.Process().memory_info().rss / 1e6
        busy, reading = cpu_seconds_of(let_it_work)
        child.stdin.write("\n")
    assert 0.3 < busy < 1.2
    assert reading["rss_mb"] > own_mb + 40


@pytest.mark.parametrize("before", [0.0, 0.4])
def test_a_process_that_ended_meanwhile_is_not_forgotten(before):
    """What it used before the start does not count, what it used after does."""
    script = (
        "import time\ndef burn(seconds):\n    end = time.process_time() + seconds\n"
        f"    while time.process_time() < end: pass\nburn({before})\nprint('x', flush=True)\ninput()\nburn(0.4)"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout.readline() == "x\n"
        busy, _ = cpu_seconds_of(lambda: child.communicate("\n"))
    assert 0.3 < busy < 0.75
