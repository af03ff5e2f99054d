"""A run in small: what is measured, what is remembered, and what is not worth measuring. And how much arithmetic it is."""

import itertools
import os

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fastdqn.build import build_network, stack_of
from fastdqn.build_replay import rows_per_lane
from fastdqn.config import make_config
from fastdqn.learner.flops import forward_flops, step_flops, update_flops
from fastdqn.prepare import prepare, with_threads
from fastdqn.run import probe
from fastdqn.run.measured import cache_folder, remember, remembered
from fastdqn.run.probe import (
    CAPACITY,
    CLEAR_GAIN,
    FILLED_IMAGES,
    FILLED_ROWS,
    Probe,
    fewest_of_the_fastest,
    measured_device,
    measured_threads,
    probe_config,
)
from fastdqn.schedules import exploration
from tests.unit.tiny import TINY_SNAKE

LARGE = TINY_SNAKE | {"device": "cpu", "network.hidden": [256, 256], "learner.batch_size": 128}  # over 10 MFLOP an update


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """As if nothing else ran on this machine, whatever else does."""
    monkeypatch.setattr("fastdqn.run.usage.Usage.disturbed", lambda usage: False)


@pytest.fixture(autouse=True)
def own_memory(tmp_path, monkeypatch):
    """What other tests measured is not known here."""
    monkeypatch.setenv("FASTDQN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def four_cores(monkeypatch):
    monkeypatch.setattr(probe, "usable_cores", lambda: 4)


@pytest.fixture
def nothing_is_built(monkeypatch):
    def refuse(*given):
        raise AssertionError("a probe was built")

    monkeypatch.setattr(probe, "Probe", refuse)


def large_job(**settings):
    return prepare("snake", settings=LARGE | settings)


def threads_for(job):
    return measured_threads(job.config, job.kind, "cpu", job.own_network)


# ---------------------------------------------------------------- the choice


@pytest.mark.parametrize(
    ("rates", "chosen"),
    [
        ({1: 100.0}, 1),
        ({1: 100.0, 2: 100.0, 4: 100.0}, 1),
        ({1: 100.0, 2: 104.0}, 1),  # not worth a core
        ({1: 100.0, 2: 106.0}, 2),
        ({1: 100.0, 2: 150.0, 4: 155.0, 8: 120.0}, 2),
        ({1: 100.0, 2: 150.0, 4: 170.0}, 4),
        ({1: 100.0, 2: 60.0, 4: 30.0}, 1),
        ({1: 10.0, 2: 5.0, 4: 40.0}, 4),
        ({4: 100.0, 2: 99.0, 1: 98.0}, 1),  # in whatever order
    ],
)
def test_the_fewest_that_no_larger_number_beats_clearly(rates, chosen):
    assert fewest_of_the_fastest(rates) == chosen


@given(st.dictionaries(st.integers(1, 128), st.floats(1, 1e6), min_size=1))
def test_whatever_the_rates_the_choice_is_fast_and_frugal(rates):
    chosen = fewest_of_the_fastest(rates)
    assert rates[chosen] * CLEAR_GAIN >= max(rates.values())
    assert all(rates[count] * CLEAR_GAIN < max(rates.values()) for count in rates if count < chosen)


@pytest.mark.parametrize(
    ("cores", "counts"), [(2, [1, 2]), (3, [1, 2, 3]), (4, [1, 2, 4]), (6, [1, 2, 4, 6]), (16, [1, 2, 4, 8, 16])]
)
def test_the_counts_that_are_tried(cores, counts, monkeypatch):
    tried = []
    monkeypatch.setattr(probe, "usable_cores", lambda: cores)
    monkeypatch.setattr(probe, "_try_threads", lambda *given: tried.append(given[-1]) or dict.fromkeys(given[-1], 1.0))
    assert threads_for(large_job()) == 1
    assert tried == [counts]


# ---------------------------------------------------------------- the memory


def test_what_was_remembered_is_known_again():
    question = {"what": "threads", "sizes": [1, 2], "more": {"b": 1, "a": None}}
    assert remembered(question) is None
    remember(question, 4)
    remember({"what": "device"}, "cuda")
    assert remembered({"more": {"a": None, "b": 1}, "sizes": [1, 2], "what": "threads"}) == 4
    assert remembered({"what": "device"}) == "cuda"
    assert remembered(question | {"sizes": [1, 3]}) is None
    remember(question, 2)
    assert remembered(question) == 2
    assert [path.name for path in cache_folder().iterdir()] == ["measured.json"], "nothing half-written is left beside it"


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"7", b"\xff\xfe\x00", b'{"a": 1'])
def test_a_broken_file_is_ignored_and_made_anew(content):
    cache_folder().mkdir()
    (cache_folder() / "measured.json").write_bytes(content)
    assert remembered({"what": "x"}) is None
    remember({"what": "x"}, 3)
    assert remembered({"what": "x"}) == 3


def test_a_folder_that_cannot_be_written_to_is_no_fault(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FASTDQN_CACHE", str(tmp_path / "file" / "cache"))
    remember({"what": "x"}, 3)
    assert remembered({"what": "x"}) is None


def test_where_the_memory_is_kept(tmp_path, monkeypatch):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("FASTDQN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "fastdqn"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "fastdqn"


# ---------------------------------------------------------------- threads


def test_what_was_measured_once_is_not_measured_again(four_cores, monkeypatch):
    asked = []
    monkeypatch.setattr(probe, "_try_threads", lambda *given: asked.append(given) or {1: 10.0, 2: 20.0, 4: 19.0})
    job = large_job()
    assert [threads_for(job), threads_for(job), with_threads(job).threads] == [2, 2, 2]
    assert len(asked) == 1


def test_a_remembered_answer_is_used_without_building_anything(four_cores, nothing_is_built):
    job = large_job()
    remember(probe._question("threads", job.config, job.kind, "cpu"), 4)
    assert threads_for(job) == 4


@pytest.mark.parametrize(
    "change",
    [
        {"network.hidden": [512, 256]},
        {"learner.batch_size": 256},
        {"learner.steps_per_update": 1},
        {"actor.lanes": 2},
        {"env.dim": 6},
        {"replay.stack": 2},
        {"switches.off": ["fused_optimizer"]},
    ],
    ids=str,
)
def test_another_run_is_another_question(change, four_cores, monkeypatch):
    monkeypatch.setattr(probe, "_try_threads", lambda *given: {1: 10.0, 2: 20.0})
    threads_for(large_job())
    monkeypatch.setattr(probe, "_try_threads", lambda *given: {1: 10.0})
    assert threads_for(large_job()) == 2
    assert threads_for(large_job(**change)) == 1


def test_a_longer_run_or_another_seed_is_the_same_question(four_cores, monkeypatch):
    monkeypatch.setattr(probe, "_try_threads", lambda *given: {1: 10.0, 2: 20.0})
    threads_for(large_job())
    monkeypatch.setattr(probe, "_try_threads", lambda *given: {1: 10.0})
    assert threads_for(large_job(**{"limits.steps": 777, "seed": 7, "learner.lr": 0.1, "replay.capacity": 3000})) == 2


def test_tiny_networks_are_never_measured(four_cores, nothing_is_built):
    job = prepare("snake", settings=TINY_SNAKE | {"device": "cpu"})
    assert measured_threads(job.config, job.kind, "cpu") == 1
    assert not cache_folder().exists()


@pytest.mark.parametrize(("device", "cores"), [("cuda", 4), ("cuda:1", 4), ("mps", 4), ("cpu", 1)])
def test_one_thread_where_there_is_no_choice(device, cores, nothing_is_built, monkeypatch):
    monkeypatch.setattr(probe, "usable_cores", lambda: cores)
    job = large_job()
    assert measured_threads(job.config, job.kind, device) == 1


def test_the_trial_itself(four_cores, monkeypatch, runs):
    """Every count twice, upwards and downwards, while learning."""
    monkeypatch.setattr(probe, "TRIAL_SECONDS", 0.02)
    monkeypatch.setattr(probe, "FILLED_ROWS", 300)
    used, made = [], []
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    monkeypatch.setattr(probe, "Probe", lambda *given: made.append(Probe(*given)) or made[-1])
    job = large_job()
    rates = probe._try_threads(job.config, job.kind, "cpu", None, [1, 2, 4])
    assert "124421" in "".join(map(str, used)), "between the threads of whoever asks"
    assert list(rates) == [1, 2, 4]
    assert all(rate > 0 for rate in rates.values())
    (small,) = made
    assert small.parts.learner.updates > 6
    assert os.listdir() == []


class WithArray(nn.Module):
    """A network of the user's own that holds an array, as one that normalises its input does."""

    def __init__(self, state_shape, num_actions):
        super().__init__()
        self.register_buffer("mean", torch.from_numpy(np.full(state_shape, 0.5, np.float32)))
        self.layer = nn.Linear(int(np.prod(state_shape)), num_actions)

    def forward(self, states):
        return self.layer((states - self.mean).flatten(1))


def test_a_network_of_the_users_own_with_an_array_in_it(four_cores, monkeypatch):
    monkeypatch.setattr(probe, "_try_threads", lambda *given: {1: 10.0})
    job = prepare("snake", settings=LARGE, network=WithArray)
    assert threads_for(job) == 1


def test_two_networks_of_the_users_own_are_two_questions(four_cores, monkeypatch):
    def own(width):
        return lambda shape, n: nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), width), nn.Linear(width, n))

    monkeypatch.setattr(probe, "_try_threads", lambda *given: {1: 10.0, 2: 20.0})
    assert threads_for(prepare("snake", settings=LARGE, network=own(512))) == 2
    monkeypatch.setattr(probe, "_try_threads", lambda *given: {1: 10.0})
    assert threads_for(prepare("snake", settings=LARGE, network=own(1024))) == 1


# ---------------------------------------------------------------- devices


@pytest.fixture
def gpu(monkeypatch):
    """Pretends that there is one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def test_without_cuda_it_is_the_cpu(monkeypatch, nothing_is_built):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    job = large_job()
    assert measured_device(job.config, job.kind) == "cpu"
    assert not cache_folder().exists()


@pytest.mark.parametrize("faster", ["cpu", "cuda"])
def test_the_faster_device_is_taken_and_remembered(faster, gpu, monkeypatch):
    asked = []
    monkeypatch.setattr(probe, "_rate_on", lambda device, *job: asked.append(device) or (2.0 if device == faster else 1.0))
    job = large_job()
    assert [measured_device(job.config, job.kind) for _ in range(3)] == [faster] * 3
    assert sorted(asked) == ["cpu", "cuda"]


def test_a_wish_that_only_one_device_can_grant_chooses_it(gpu, monkeypatch):
    real = probe._rate_on
    monkeypatch.setattr(probe, "FILLED_ROWS", 300)
    monkeypatch.setattr(probe, "_rate_on", lambda device, *job: 1.0 if device == "cuda" else real(device, *job))
    job = large_job()
    wish = job.config.switches.model_copy(update={"on": ("tf32",)})
    assert measured_device(job.config.model_copy(update={"switches": wish}), job.kind) == "cuda"


# ---------------------------------------------------------------- the probe


def config_and_kind(env="snake", **settings):
    job = prepare(env, settings={"device": "cpu"} | settings)
    return job.config, job.kind


@pytest.mark.parametrize("env", ["snake", "CartPole-v1", "catch"])
def test_a_probe_does_the_work_of_the_run_with_a_small_replay(env):
    config, kind = config_and_kind(env)
    small = probe_config(config, kind)
    assert small.learner == config.learner
    assert small.network == config.network
    assert small.switches == config.switches
    assert small.samples_per_step == config.samples_per_step
    assert (small.actor.lanes, small.actor.groups) == (config.actor.lanes, config.actor.groups)
    assert (small.replay.n_step, small.replay.stack) == (config.replay.n_step, config.replay.stack)
    assert small.replay.capacity == min(CAPACITY, config.replay.capacity)
    assert small.replay.warmup_steps == (FILLED_IMAGES if env == "catch" else FILLED_ROWS)


def test_it_fills_the_replay_at_random_and_then_explores_as_at_the_end_of_the_run():
    config, kind = config_and_kind(**{"actor.epsilon_start": 0.3, "actor.epsilon_end": 0.02})
    epsilon_at = exploration(probe_config(config, kind))
    seen = [epsilon_at(step) for step in (0, FILLED_ROWS - 1, FILLED_ROWS, 10**7)]
    assert seen == pytest.approx([1.0, 1.0, 0.02, 0.02])


@given(
    lanes=st.integers(1, 5000),
    n_step=st.integers(1, 20),
    stack=st.integers(1, 8),
    rows=st.integers(1, 200),
)
def test_the_small_replay_is_large_enough_for_its_lanes(lanes, n_step, stack, rows):
    config, kind = config_and_kind()
    capacity = lanes * rows * 4 * (stack + n_step)  # anything that build.py takes
    config = make_config(
        "snake",
        "snake",
        {"actor.lanes": lanes, "replay.n_step": n_step, "replay.stack": stack, "replay.capacity": capacity},
    )
    small = probe_config(config, kind)
    assert small.replay.capacity <= capacity
    assert rows_per_lane(small, stack_of(small, kind)) >= 4 * (stack + n_step)
    assert 0 < small.replay.warmup_steps <= small.replay.capacity


def test_a_probe_plays_learns_and_leaves_nothing(runs, monkeypatch):
    monkeypatch.setattr(probe, "FILLED_ROWS", 200)
    config, kind = config_and_kind(**TINY_SNAKE)
    small = Probe(config, kind, "cpu")
    small.warm_up(0.02)
    warm = small.parts.learner.updates
    assert small.parts.actor.steps >= 200
    assert warm > 0, "it has learned before the clock starts"
    assert small.rate(0.05) > 0
    assert small.rows[-1]["samples_per_step"] == pytest.approx(config.samples_per_step, rel=0.2)
    assert small.parts.learner.updates > warm
    small.close()
    assert os.listdir() == []


def test_what_happens_between_two_stretches_counts_for_neither(runs, monkeypatch):
    """Probes that are compared take turns: the time of the others must not slow this one."""
    monkeypatch.setattr(probe, "FILLED_ROWS", 200)
    config, kind = config_and_kind(**TINY_SNAKE)
    small = Probe(config, kind, "cpu")
    small.warm_up(0.02)
    seconds = itertools.count()
    monkeypatch.setattr(probe.time, "monotonic", lambda: float(next(seconds)))
    for _ in range(2):
        before = small.parts.actor.steps
        rate = small.rate(4)
        assert rate == (small.parts.actor.steps - before) / 5 > 0  # seconds: one look at the clock each round, and the last
        list(itertools.islice(seconds, 1000))
    small.close()


# ---------------------------------------------------------------- arithmetic


def test_flops_of_a_small_mlp_by_hand():
    """3 x 4 inputs, 5 hidden, 2 actions: 12 * 5 + 5 * 2 products, each with its addition."""

    def make():
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 2))

    assert forward_flops(make, (3, 4)) == 2 * (12 * 5 + 5 * 2)


def test_flops_of_a_convolution_by_hand():
    """Kernels of 3 x 4 x 4 with stride 2 over 10 x 8: 4 x 3 places, 6 of them each; then 72 -> 2."""

    def make():
        return nn.Sequential(nn.Conv2d(3, 6, 4, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 4 * 3, 2))

    assert forward_flops(make, (3, 10, 8)) == 2 * (6 * 4 * 3 * (3 * 4 * 4) + 6 * 4 * 3 * 2)


def test_nothing_is_allocated_to_count_the_flops():
    made = []

    def make():
        made.append(nn.Linear(100_000, 100_000, bias=False))  # 40 GB, were it real
        return made[0]

    assert forward_flops(make, (100_000,)) == 2 * 100_000**2
    assert made[0].weight.is_meta


@pytest.mark.parametrize(("double", "passes"), [(False, 4), (True, 5)])
def test_flops_of_an_update_and_of_a_step(double, passes):
    """The online network forwards and (twice the price) backwards, the target network, and for double the online one again
    on the next states."""
    config = make_config(
        "snake", "snake", {"learner.batch_size": 16, "learner.steps_per_update": 8, "learner.double": double}
    )
    assert update_flops(config, 1000) == passes * 16 * 1000
    assert step_flops(config, 1000) == 1000 + passes * 16 * 1000 / 8


def test_the_flops_of_a_preset():
    """Snake's: 3 x 10 x 10 through 16 kernels of 3 x 3, then 1600 -> 128 -> 4."""
    config, kind = config_and_kind()
    forward = forward_flops(lambda: build_network(config, kind), kind.spec.state_shape(1))
    assert forward == 2 * (16 * 100 * 27 + 1600 * 128 + 128 * 4)


def test_an_answer_found_beside_busy_programs_is_used_and_not_kept(four_cores, monkeypatch):
    asked = []
    monkeypatch.setattr(probe, "_try_threads", lambda *given: asked.append(1) or {1: 1.0, 2: 10.0})
    job = prepare("snake", settings=LARGE)
    monkeypatch.setattr("fastdqn.run.usage.Usage.disturbed", lambda usage: True)
    assert [threads_for(job), threads_for(job)] == [2, 2]
    assert len(asked) == 2
    monkeypatch.setattr("fastdqn.run.usage.Usage.disturbed", lambda usage: False)
    assert [threads_for(job), threads_for(job)] == [2, 2]
    assert len(asked) == 3
