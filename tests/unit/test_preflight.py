"""What the machine has, against made-up machines."""

import importlib
import os
import re
import tracemalloc
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch

from fastdqn.build import build_network
from fastdqn.build_replay import build_replay
from fastdqn.device import hardware
from fastdqn.device.cores import usable_cores
from fastdqn.errors import UserError
from fastdqn.prepare import check_memory_of, memory_needs, prepare
from fastdqn.run import preflight
from fastdqn.run.preflight import (
    RESERVE_BYTES,
    Need,
    check_device,
    check_memory,
    choose_device,
    free_memory,
    human_bytes,
)
from fastdqn.switches import resolve
from fastdqn.transition import Block
from tests.unit.tiny import TINY_SNAKE

GB = 10**9
AVAILABLE = 8 * GB


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=AVAILABLE))


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name.replace("__", ".")).write_text(f"{value}\n")


def free(tmp_path, own_lines=""):
    (tmp_path / "own").write_text(own_lines)
    return free_memory(tmp_path / "cgroup", tmp_path / "own")


# ---------------------------------------------------------------- memory


def test_without_a_cgroup_the_machine_counts(tmp_path):
    assert free(tmp_path) == AVAILABLE
    assert free_memory(tmp_path / "nowhere", tmp_path / "nowhere") == AVAILABLE


def test_a_container_of_cgroup_v2(tmp_path):
    write(tmp_path / "cgroup", memory__max=3 * GB, memory__current=1 * GB)
    assert free(tmp_path, "0::/\n") == 2 * GB


def test_a_container_of_cgroup_v1(tmp_path):
    write(tmp_path / "cgroup" / "memory", memory__limit_in_bytes=3 * GB, memory__usage_in_bytes=1 * GB)
    assert free(tmp_path, "4:memory:/\n0::/\n") == 2 * GB


@pytest.mark.parametrize("limit", ["max", 9223372036854771712, 100 * GB])
def test_a_limit_that_is_none_or_larger_than_the_machine(tmp_path, limit):
    write(tmp_path / "cgroup", memory__max=limit, memory__current=1 * GB)
    write(tmp_path / "cgroup" / "memory", memory__limit_in_bytes=limit, memory__usage_in_bytes=1 * GB)
    assert free(tmp_path) == AVAILABLE


@pytest.mark.parametrize("depth", ["job_7", "job_7/step_0", ""])
def test_a_limit_of_any_group_around_us_counts(tmp_path, depth):
    """Under SLURM or systemd our own group lies deeper than the root, and the limit may stand anywhere on the way."""
    cgroup = tmp_path / "cgroup"
    write(cgroup / "slurm" / depth, memory__max=2 * GB, memory__current=0)
    assert free(tmp_path, "0::/slurm/job_7/step_0\n") == 2 * GB
    write(cgroup / "other", memory__max=1, memory__current=0)
    assert free(tmp_path, "0::/slurm/job_7/step_0\n") == 2 * GB, "a group that is not ours"


def test_a_deeper_group_of_cgroup_v1(tmp_path):
    cgroup = tmp_path / "cgroup" / "memory"
    write(cgroup, memory__limit_in_bytes=6 * GB, memory__usage_in_bytes=0)
    write(cgroup / "a" / "b", memory__limit_in_bytes=2 * GB, memory__usage_in_bytes=GB)
    own = "9:cpu,cpuacct:/elsewhere\n4:memory:/a/b\n0::/\n"
    assert free(tmp_path, own) == GB


def test_page_cache_can_be_had_back(tmp_path):
    """A container that has read many files is not full."""
    write(tmp_path / "cgroup", memory__max=3 * GB, memory__current=3 * GB, memory__stat=f"anon 5\ninactive_file {2 * GB}")
    assert free(tmp_path) == 2 * GB
    write(
        tmp_path / "cgroup" / "memory",
        memory__limit_in_bytes=3 * GB,
        memory__usage_in_bytes=3 * GB,
        memory__stat=f"inactive_file 7\ntotal_inactive_file {GB}",
    )
    assert free(tmp_path) == GB


def test_never_less_than_nothing(tmp_path):
    write(tmp_path / "cgroup", memory__max=GB, memory__current=2 * GB)
    assert free(tmp_path) == 0


def test_enough_is_enough():
    need = Need("replay", 1000, per_row=10)
    check_memory([need], free=RESERVE_BYTES + 1000)
    with pytest.raises(UserError):
        check_memory([need], free=RESERVE_BYTES + 999)


def test_the_sentence_has_the_numbers_and_the_largest_that_fits():
    needs = [Need("replay", 50_000_000, per_row=1000), Need("network", 2_000_000)]
    with pytest.raises(UserError) as refusal:
        check_memory(needs, free=RESERVE_BYTES + 12_345_678)
    sentence = str(refusal.value)
    assert "needs 52.0 MB of memory (replay 50.0 MB, network 2.0 MB)" in sentence
    assert "549.2 MB are free, of which 536.9 MB are kept in reserve" in sentence
    capacity = int(re.search(r"replay\.capacity=(\d+)$", sentence)[1])
    assert capacity == (12_345_678 - 2_000_000) // 1000
    fitting = [Need("replay", capacity * 1000, per_row=1000), needs[1]]
    check_memory(fitting, free=RESERVE_BYTES + 12_345_678)


def test_nothing_is_suggested_where_no_replay_would_fit():
    needs = [Need("replay", 50_000_000, per_row=1000), Need("network", 2_000_000)]
    with pytest.raises(UserError) as refusal:
        check_memory(needs, free=RESERVE_BYTES + 2_000_500)
    assert "largest" not in str(refusal.value)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (88.5e9, "88.5 GB"), (4.2e15, "4200.0 TB")]
)
def test_bytes_for_people(count, text):
    assert human_bytes(count) == text


def fill_and_measure(replay, job):
    """Bytes per transition of a deque, which grows as it is filled."""
    spec, lanes = job.kind.spec, job.config.actor.lanes
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for tick in range(200):
        replay.append(
            Block(
                slice(0, lanes),
                np.zeros(lanes, np.int64),
                np.zeros(lanes, np.float32),
                np.zeros(lanes, bool),
                np.full(lanes, tick == 0),
                np.zeros((lanes, *spec.obs_shape), spec.obs_dtype),
            )
        )
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / len(replay)


@pytest.mark.parametrize("off", [(), ("frame_ring",), ("array_replay",)])
@pytest.mark.parametrize("stack", [1, 4])
def test_what_is_counted_is_what_is_allocated(off, stack):
    """The replay's own arrays, summed, against the number the check is made with."""
    job = prepare("snake", settings=TINY_SNAKE | {"switches.off": list(off), "replay.stack": stack})
    switches, _ = resolve((), off)
    replay = build_replay(job.config, job.kind.spec, stack, "cpu", switches)
    if hasattr(replay, "ring"):
        ring = replay.ring
        held = sum(column.nbytes for column in (ring.obs, ring.action, ring.reward, ring.flags))
    elif hasattr(replay, "_columns"):
        held = sum(array.nbytes for array in replay._columns.values())
    else:
        held = fill_and_measure(replay, job) * 2000
        assert 0.8 * held < job.needs[0].bytes < 1.6 * held
        return
    assert job.needs[0].bytes == held
    assert job.needs[0].bytes == job.needs[0].per_row * 2000


def test_every_buffer_is_counted():
    job = prepare("snake", settings=TINY_SNAKE)
    needs = {need.name: need.bytes for need in memory_needs(job.config, job.kind.spec, 1, resolve((), ())[0], 1284)}
    assert needs == {
        "replay": 2000 * (75 + 8 + 4 + 1),
        "frames of the lanes": (job.config.actor.lanes + job.config.evaluator.lanes) * 3 * 75,
        "network and optimizer": 1284 * 4 * 5,
        "batch": 2 * 16 * 75 * 4,
    }
    assert job.parameters == 1284


@pytest.mark.parametrize("device_ring", [False, True])
def test_priorities_are_counted_where_they_are(device_ring, tensors_on_the_cpu):
    on = ["device_ring"] if device_ring else []
    off = {*tensors_on_the_cpu(on), *([] if device_ring else ["device_ring"])}
    switches = {"switches.on": on, "switches.off": sorted(off)}
    job = prepare("snake", settings=TINY_SNAKE | {"device": "cpu", "replay.prioritised": True} | switches)
    need = next(need for need in job.needs if need.name == "priorities")
    replay = build_replay(job.config, job.kind.spec, 1, "cpu", job.switches)
    if device_ring:
        held = 8 * (replay.priorities._all.numel() + replay.priorities.sums.numel())
    else:
        held = replay.sampler.tree.nodes.nbytes
    assert (need.bytes, need.on_device, need.on_disk) == (held, device_ring, False)


def test_weights_are_counted_without_memory_for_them(monkeypatch):
    """Else a network that is too large would be allocated before it can be refused."""
    module, built = importlib.import_module("fastdqn.prepare"), []
    monkeypatch.setattr(module, "build_network", lambda *given: built.append(build_network(*given)) or built[-1])
    for env in ("snake", "catch"):  # a small and a large convolution
        assert prepare(env).parameters > 0
    assert all(parameter.is_meta for network in built for parameter in network.parameters())


# ---------------------------------------------------------------- devices


@pytest.fixture
def gpus(monkeypatch):
    def install(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return install


def test_the_cpu_is_always_there():
    check_device("cpu")


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:1"])
def test_without_a_gpu(gpus, device):
    gpus(0)
    with pytest.raises(UserError, match=f"Device '{device}' is not there: no CUDA GPU was found"):
        check_device(device)


def test_with_two_gpus(gpus):
    gpus(2)
    for device in ("cuda", "cuda:0", "cuda:1"):
        check_device(device)
    for device in ("cuda:2", "cuda:", "cuda:-1", "cuda:one", "cuda:01"):
        with pytest.raises(UserError, match=r"is not there\. This machine has cuda:0, cuda:1\."):
            check_device(device)


def test_mps(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UserError, match="Apple silicon"):
        check_device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    check_device("mps")


@pytest.mark.parametrize("device", ["gpu", "cpu:0", "cpu:", "mps:0", "", "CUDA", "cudax"])
def test_names_that_are_none(device):
    with pytest.raises(UserError, match=r"Unknown device .*Use auto, cpu, cuda"):
        check_device(device)


def test_auto_takes_the_gpu_for_large_networks_only(gpus):
    gpus(1)
    assert choose_device("auto", large_network=True) == "cuda"
    assert choose_device("auto", large_network=False) == "cpu"
    gpus(0)
    assert choose_device("auto", large_network=True) == "cpu"
    assert choose_device("cpu", large_network=True) == "cpu"
    with pytest.raises(UserError):
        choose_device("cuda", large_network=True)


def test_buffers_of_other_devices_live_in_memory():
    assert preflight.device_memory("cpu") is None


# ---------------------------------------------------------------- cores


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        ({"cpu__max": "200000 100000"}, 2),
        ({"cpu__max": "250000 100000"}, 2),
        ({"cpu__max": "50000 100000"}, 1),
        ({"cpu__max": "1600000 100000"}, 8),
        ({"cpu__max": "max 100000"}, 8),
    ],
)
def test_cores_of_cgroup_v2(tmp_path, monkeypatch, files, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    write(tmp_path, **files)
    assert usable_cores(tmp_path) == cores


@pytest.mark.parametrize(("quota", "cores"), [("300000", 3), ("-1", 8), ("20000", 1)])
def test_cores_of_cgroup_v1(tmp_path, monkeypatch, quota, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    write(tmp_path / "cpu", cpu__cfs_quota_us=quota, cpu__cfs_period_us="100000")
    assert usable_cores(tmp_path) == cores


def test_cores_of_an_affinity_mask(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3}, raising=False)
    assert usable_cores(tmp_path) == 1


# ---------------------------------------------------------------- where the replay lives


def on_a_gpu_with(monkeypatch, free):
    prepared = importlib.import_module("fastdqn.prepare")
    monkeypatch.setattr(prepared, "check_device", lambda device: None)
    monkeypatch.setattr(prepared, "device_memory", lambda device: free if device.startswith("cuda") else None)
    monkeypatch.setitem(hardware.NEEDS, "bf16", lambda device: "")  # else torch is asked, which finds no GPU


@pytest.mark.parametrize(("free", "on_device"), [(3 * GB, False), (40 * GB, True)])
def test_a_replay_that_the_gpu_has_no_room_for_stays_in_ram_with_a_line(monkeypatch, free, on_device):
    on_a_gpu_with(monkeypatch, free)
    job = prepare("pong", settings={"device": "cuda"})  # a million frames, 7.1 GB
    assert [need.on_device for need in job.needs if need.name == "replay"] == [on_device]
    assert {"device_ring", "cuda_graph"} & job.switches == ({"device_ring", "cuda_graph"} if on_device else set())
    says = "the replay stays in RAM. This run needs 7.1 GB of memory on cuda"
    lines = [note for note in job.notes if note.startswith(says)]
    assert len(lines) == (not on_device)
    assert on_device or "The largest that fits: --set replay.capacity=" in lines[0]


def test_the_config_that_was_asked_for_is_kept_beside(monkeypatch):
    """`fastdqn tune` writes it down, and `train` finds the profile by it, wherever the replay lives then."""
    on_a_gpu_with(monkeypatch, 3 * GB)
    job = prepare("pong", settings={"device": "cuda"})
    assert "device_ring" in job.config.switches.off
    assert not job.asked.switches.off


@pytest.mark.parametrize("asked", ["device_ring", "cuda_graph"])
def test_a_replay_that_was_asked_onto_the_gpu_is_not_put_elsewhere(monkeypatch, asked):
    on_a_gpu_with(monkeypatch, 3 * GB)
    job = prepare("pong", settings={"device": "cuda", "switches.on": [asked]})
    assert [need.on_device for need in job.needs if need.name == "replay"] == [True]
    with pytest.raises(UserError, match=r"memory on cuda .*The largest that fits: --set replay.capacity=\d+$"):
        check_memory_of(job)
