"""`fastdqn tune`: the search finds the best point, races are fair, and a profile holds for its machine and work only."""

import dataclasses
import io
import itertools
import json
import time

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import fastdqn
from fastdqn.cli import main
from fastdqn.config import load_preset
from fastdqn.device import hardware
from fastdqn.errors import UserError
from fastdqn.prepare import prepare
from fastdqn.run.tuned import (
    Tuned,
    find_profile,
    load_profile,
    profile_path,
    this_machine,
    untuned_of,
    why_not,
    work_of,
)
from fastdqn.tune import tune as tuning
from fastdqn.tune.race import (
    HOPELESS,
    LONG_ENOUGH_SECONDS,
    LOOK_AT_SECONDS,
    TURN_SECONDS,
    RunFailedError,
    Runner,
    race,
)
from fastdqn.tune.search import clear_winner, search
from fastdqn.tune.space import MOST_UPDATES_A_TICK, Coordinate, acts_with_fresh_weights, coordinates, updates_a_tick
from fastdqn.tune.tune import Tuner, tune
from fastdqn.tune.view import LiveTuneView, PlainTuneView, TuneView, names_of, result_line

# ---------------------------------------------------------------- the search


def axis(key, values):
    return Coordinate(key, lambda point, job: [{**point, key: value} for value in values if value != point[key]])


def run_search(start, axes, speed, time_is_up=lambda: False, possible=lambda point: True):
    races = []

    def race(what, points):
        races.append((what, points))
        return [speed(point) for point in points]

    job = object()
    found = search(start, axes, lambda point: job if possible(point) else None, race, time_is_up)
    return found, races


@given(st.permutations(range(4)), st.permutations(range(3)))
def test_the_search_finds_the_best_of_settings_that_do_not_interact(first, second):
    def speed(point):
        return 2.0 ** first.index(point["a"]) * 3.0 ** second.index(point["b"])

    found, races = run_search({"a": 0, "b": 0}, [axis("a", range(4)), axis("b", range(3))], speed)
    assert found.point == {"a": first[-1], "b": second[-1]}
    beside = [json.dumps(point) for _, points in races for point in points[1:]]
    assert len(beside) == len(set(beside)), "no point is raced twice against where we stand"


def test_a_second_pass_sees_what_a_later_setting_made_possible():
    """Many lanes pay only with two threads, and the lanes are tried first."""
    speeds = {(8, 1): 100, (64, 1): 90, (8, 2): 110, (64, 2): 200}
    axes = [axis("lanes", [8, 64]), axis("threads", [1, 2])]
    found, races = run_search({"lanes": 8, "threads": 1}, axes, lambda point: speeds[point["lanes"], point["threads"]])
    assert found.point == {"lanes": 64, "threads": 2}
    assert [what for what, _ in races] == ["lanes", "threads", "lanes"]


def test_what_is_hardly_faster_is_not_taken():
    found, _ = run_search({"a": 0}, [axis("a", [0, 1])], lambda point: 100 + 2 * point["a"])
    assert found.point == {"a": 0}
    assert found.trials[0].rates == [100, 102]
    assert clear_winner([100, 102, 104, 103]) == 2
    assert clear_winner([0.0, 5.0]) == 1
    assert clear_winner([7.0]) == 0


def test_when_the_time_is_up_nothing_more_is_raced_and_it_is_said():
    calls = itertools.count()
    axes = [axis("a", [0, 1]), axis("b", [0, 1])]
    found, races = run_search({"a": 0, "b": 0}, axes, lambda point: 1.0 + point["a"], lambda: next(calls) > 0)
    assert found.point == {"a": 1, "b": 0}
    assert len(races) == 1
    assert found.left_out == ["b"]


def test_points_that_cannot_be_had_are_not_raced():
    found, races = run_search(
        {"a": 0}, [axis("a", [0, 1, 2])], lambda point: 1.0 + point["a"], possible=lambda point: point["a"] != 2
    )
    assert found.point == {"a": 1}
    assert races == [("a", [{"a": 0}, {"a": 1}])]


# ---------------------------------------------------------------- the race


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Run:
    """So fast, and slower by half in every second of the clock that is odd."""

    def __init__(self, speed, clock):
        self.speed, self.clock, self.turns = speed, clock, 0

    def rate(self, seconds):
        slow = int(self.clock.now) % 2
        self.turns += 1
        self.clock.now += seconds
        return self.speed / (2 if slow else 1)

    def close(self): ...


def test_a_race_gives_everybody_turns_and_drops_the_hopeless():
    clock = Clock()
    runs = {"fast": Run(100, clock), "near": Run(95, clock), "slow": Run(100 * HOPELESS - 20, clock)}
    runners = race({name: lambda run=run: run for name, run in runs.items()}, clock=clock)
    assert [runner.name for runner in runners] == list(runs)
    fast, near, slow = runners
    assert near.rate / fast.rate == pytest.approx(0.95)
    assert 0 < slow.rate < HOPELESS * fast.rate
    assert (fast.out, near.out, slow.out) == (False, False, True)
    assert runs["fast"].turns == runs["near"].turns > runs["slow"].turns
    assert runs["fast"].turns * TURN_SECONDS == pytest.approx(LONG_ENOUGH_SECONDS, abs=TURN_SECONDS)


def test_a_slow_spell_after_a_point_has_dropped_out_changes_nothing():
    """The machine is half as fast once the hopeless are gone: they must not look faster for it."""
    clock = Clock()

    class Spell(Run):
        def rate(self, seconds):
            self.clock.now += seconds
            return self.speed / (2 if self.clock.now > 5 * LOOK_AT_SECONDS else 1)

    runners = race({str(speed): lambda speed=speed: Spell(speed, clock) for speed in (100, 70, 60, 120)}, clock=clock)
    rates = [runner.rate / runners[0].rate for runner in runners]
    assert rates == pytest.approx([1.0, 0.7, 0.6, 1.2])
    assert [runner.out for runner in runners] == [False, True, True, False], "the first stays: all are measured by it"


def test_a_run_that_fails_on_the_way_has_lost():
    clock = Clock()

    class Fails(Run):
        def rate(self, seconds):
            if self.turns == 3:
                raise RunFailedError
            return super().rate(seconds)

    runners = race({"good": lambda: Run(10, clock), "fails": lambda: Fails(99, clock)}, clock=clock)
    assert runners[1].rate == 0.0
    assert runners[0].rate > 0
    assert len(runners[0].turns) > 5


def test_a_turn_without_a_step_is_no_division_by_zero():
    clock = Clock()
    runners = race({"none": lambda: Run(0, clock), "some": lambda: Run(5, clock)}, clock=clock)
    assert [runner.rate for runner in runners] == [0.0, 0.0]


def test_what_could_not_be_built_has_no_speed():
    clock = Clock()
    runners = race({"there": lambda: Run(10, clock), "not there": lambda: None}, clock=clock)
    assert [runner.rate > 0 for runner in runners] == [True, False]
    assert [runner.rate for runner in race({"not there": lambda: None})] == [0.0]


def test_a_race_says_how_far_it_is():
    clock, shares = Clock(), []
    race({"a": lambda: Run(1, clock), "b": lambda: Run(2, clock)}, lambda runners, share: shares.append(share), clock)
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert 0.9 < shares[-1] <= 1.0


# ---------------------------------------------------------------- what may be changed


def start_of(job):
    return {
        "device": job.device,
        "runner": job.config.runner,
        "actor.count": job.config.actor.count,
        "actor.lanes": job.config.actor.lanes,
        "actor.groups": job.config.actor.groups,
        "learner.threads": 1,
        "switches.on": list(job.config.switches.on),
        "switches.off": list(job.config.switches.off),
        "env.threads": 2,
    }


@pytest.mark.parametrize("env", ["snake", "CartPole-v1", "pong", "catch"])
def test_nothing_that_learning_depends_on_is_ever_changed(env, monkeypatch):
    monkeypatch.setattr("fastdqn.tune.space.usable_cores", lambda: 4)
    job = prepare(env, settings={"device": "cpu"})
    start = start_of(job)
    found = coordinates(job, {})
    assert {"learner.threads", "actor.lanes"} <= {coordinate.name for coordinate in found}
    excluded = {"runner": True, "actor": {"count", "lanes", "groups"}, "learner": {"threads"}, "switches": True, "env": True}
    kept = job.config.model_dump(exclude=excluded)
    points = [point for coordinate in found for point in coordinate.neighbours(start, job)]
    assert len(points) > 5
    for point in points:
        assert set(point) == set(start)
        if env != "pong":
            del point["env.threads"]
        other = prepare(env, settings=point).config
        assert other.model_dump(exclude=excluded) == kept


def test_one_tick_never_earns_more_updates_than_learning_bears():
    def config(lanes, groups=1):
        return prepare("pong", settings={"device": "cpu", "actor.lanes": lanes, "actor.groups": groups}).config

    untuned = config(8)
    assert updates_a_tick(config(64)) == MOST_UPDATES_A_TICK
    assert acts_with_fresh_weights(config(64), untuned)
    assert not acts_with_fresh_weights(config(128), untuned)
    assert acts_with_fresh_weights(config(128, 2), untuned)
    assert not acts_with_fresh_weights(config(256, 2), untuned)
    assert acts_with_fresh_weights(config(128), untuned=config(256)), "the user's own is no fault"


def test_a_search_that_left_groups_cannot_keep_their_lanes(cache):
    tuner = Tuner("pong", None, {"device": "cpu", "learner.threads": 1, "replay.capacity": 10_000}, (), 1, TuneView())
    start = tuner._start("cpu") | {"actor.lanes": 256, "actor.groups": 4}
    assert tuner._job_at(start) is not None
    assert tuner._job_at(start | {"actor.groups": 1}) is None


def test_what_the_user_set_is_not_searched():
    job = prepare("pong", settings={"device": "cpu"})
    everything = {coordinate.name for coordinate in coordinates(job, {})}
    assert {"actor.lanes", "actor.groups", "env.threads", "channels_last"} <= everything
    left = {coordinate.name for coordinate in coordinates(job, {"actor.lanes": 8, "env.threads": 1, "switches.off": []})}
    assert left == {"learner.threads", "actor.groups", "runner"} & everything
    assert "runner" not in {coordinate.name for coordinate in coordinates(job, {"runner": "inline"})}
    assert "runner" not in {coordinate.name for coordinate in coordinates(job, {"actor.count": 2})}


def test_roles_are_tried_together_and_apart(monkeypatch):
    monkeypatch.setattr("fastdqn.tune.space.usable_cores", lambda: 8)
    job = prepare("snake", settings={"device": "cpu"})
    (runner,) = [coordinate for coordinate in coordinates(job, {}) if coordinate.name == "runner"]
    tried = [(point["runner"], point["actor.count"]) for point in runner.neighbours(start_of(job), job)]
    assert tried == [("processes", 1), ("processes", 4)]
    apart = start_of(job) | {"runner": "processes", "actor.count": 4}
    tried = [(point["runner"], point["actor.count"]) for point in runner.neighbours(apart, job)]
    assert tried == [("inline", 1), ("processes", 1)]
    few = prepare("snake", settings={"device": "cpu", "actor.lanes": 2, "actor.groups": 1})
    assert [point["actor.count"] for point in runner.neighbours(start_of(few), few)] == [1]


def test_a_switch_that_is_on_is_turned_off():
    job = prepare("catch", settings={"device": "cpu", "switches.on": ["channels_last"]})
    by_name = {coordinate.name: coordinate for coordinate in coordinates(job, {})}
    start = start_of(job)
    (point,) = by_name["channels_last"].neighbours(start, job)
    assert (point["switches.on"], point["switches.off"]) == ([], ["channels_last"])
    assert start["switches.on"] == ["channels_last"], "where we stand is not touched"


# ---------------------------------------------------------------- words


def test_points_are_named_by_what_sets_them_apart():
    first = {"actor.lanes": 8, "switches.on": ["a"], "switches.off": []}
    assert names_of([first]) == ["as it is"]
    assert names_of([first, {**first, "actor.lanes": 16}]) == ["lanes 8", "lanes 16"]
    others = [{**first, "switches.on": ["a", "b"]}, {**first, "switches.on": [], "switches.off": ["a"]}]
    assert names_of([first, *others]) == ["as it is", "+b", "-a"]


def test_the_line_of_a_race():
    line = result_line("actor.lanes", ["lanes 8", "lanes 16", "lanes 32"], [1000.0, 2345.6, 0.0], 1)
    assert line == "actor.lanes: lanes 8 (1,000) · [lanes 16 (2,346)] · lanes 32 (cannot be had) steps/s"


# ---------------------------------------------------------------- the profile


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTDQN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def make_profile(settings=None, env="snake", **more):
    job = prepare(env, settings={"device": "cpu"})
    facts = {
        "env_id": job.kind.spec.env_id,
        "work": work_of(job.config, job.kind, 1),
        "machine": this_machine(),
        "untuned": untuned_of(job.config, job.kind),
        "settings": {"device": "cpu", "actor.lanes": 32, "learner.threads": 1} | (settings or {}),
        "steps_per_second": 200.0,
        "untuned_steps_per_second": 100.0,
        "samples_per_step": 4.0,
        "date": "2026-11-16",
    }
    return Tuned(**facts | more)


def test_a_profile_is_kept_and_found_again(cache):
    profile = make_profile()
    path = profile_path(profile.work)
    assert find_profile("auto", profile.work) is None
    profile.save(path)
    assert find_profile("auto", profile.work) == load_profile(path) == profile
    assert profile.gain == 2.0
    assert "2.00x" in profile.lines()[0]


def test_a_run_uses_the_profile_and_says_so(cache):
    profile = make_profile()
    profile.save(profile_path(profile.work))
    job = prepare("snake", settings={"device": "cpu", "learner.lr": 5e-4}, profile="auto")
    assert (job.config.actor.lanes, job.threads) == (32, 1)
    assert job.config.learner.lr == 5e-4
    (note,) = job.notes
    assert [words in note for words in ("2026-11-16", "actor.lanes=32", "--profile none")] == [True] * 3
    for how in ({}, {"profile": "none"}):
        without = prepare("snake", settings={"device": "cpu"}, **how)
        assert without.config.actor.lanes == 64
        assert without.notes == ()


def test_the_profile_of_another_machine_is_ignored_with_a_line(cache):
    profile = make_profile(machine=this_machine() | {"usable_cores": 999})
    profile.save(profile_path(profile.work))
    job = prepare("snake", settings={"device": "cpu"}, profile="auto")
    assert job.config.actor.lanes == 64
    (note,) = job.notes
    assert note.startswith(
        "the profile of fastdqn tune is ignored: it was measured on another machine (usable_cores 999, here"
    )


def test_a_profile_gives_way_to_what_is_set_by_hand(cache):
    profile = make_profile()
    profile.save(profile_path(profile.work))
    job = prepare("snake", settings={"device": "cpu", "actor.lanes": 16}, profile="auto")
    assert job.config.actor.lanes == 16
    assert job.notes == ("the profile of fastdqn tune is ignored: actor.lanes is set by hand",)
    same = prepare("snake", settings={"device": "cpu", "actor.lanes": 32}, profile="auto")
    assert (same.config.actor.lanes, same.threads) == (32, 1)


def test_other_work_has_another_profile(cache):
    profile = make_profile()
    profile.save(profile_path(profile.work))
    for setting in (
        {"learner.batch_size": 32},
        {"learner.steps_per_update": 8},
        {"network.hidden": [64]},
        {"replay.n_step": 1},
    ):
        job = prepare("snake", settings={"device": "cpu", **setting}, profile="auto")
        assert (job.config.actor.lanes, job.notes) == (64, ())
        named = prepare("snake", settings={"device": "cpu", **setting}, profile=str(profile_path(profile.work)))
        assert named.config.actor.lanes == 64
        assert "another environment, network, batch" in named.notes[0]


def test_a_profile_whose_lanes_do_not_fit_into_the_replay_is_ignored(cache):
    profile = make_profile({"actor.lanes": 512})
    profile.save(profile_path(profile.work))
    job = prepare("snake", settings={"device": "cpu", "replay.capacity": 2000}, profile="auto")
    assert job.config.actor.lanes == 64
    assert job.notes[0].startswith(
        "the profile of fastdqn tune is ignored: replay.capacity=2,000 is too small for 512 lanes"
    )


def test_an_environment_or_network_of_the_users_own_has_no_profile(cache, monkeypatch):
    monkeypatch.setattr("fastdqn.prepare.find_profile", lambda *arguments: pytest.fail("looked for one"))
    from fastdqn.env.snake import SnakeEnv

    assert prepare(lambda render_mode=None: SnakeEnv(), settings={"device": "cpu"}, profile="auto").notes == ()


def test_a_broken_file_in_the_cache_is_no_profile_and_a_named_one_is_refused(cache):
    work = make_profile().work
    path = profile_path(work)
    path.parent.mkdir(parents=True)
    whole = dataclasses.asdict(make_profile())
    broken = [whole | {"settings": []}, whole | {"machine": None}, whole | {"settings": {"learner.lr": 9.0}}]
    for text in ("{", "[]", '{"other": 1}', *map(json.dumps, broken)):
        path.write_text(text)
        assert find_profile("auto", work) is None
        with pytest.raises(UserError, match="is no profile of fastdqn tune"):
            find_profile(str(path), work)
    with pytest.raises(UserError, match="cannot be read"):
        find_profile(str(path.parent / "missing.json"), work)


def test_why_not_is_empty_for_the_machine_and_work_it_was_measured_with():
    profile = make_profile()
    assert why_not(profile, profile.work, profile.untuned, {}) == ""
    assert why_not(profile, profile.work, profile.untuned, {"device": "auto"}) == ""
    assert why_not(profile, profile.work, profile.untuned, {"switches.on": ["compile"]}) == "switches.on is set by hand"
    assert why_not(profile, profile.work, profile.untuned | {"actor.lanes": 7}, {}).startswith(
        "actor.lanes is 7, and was 64"
    )


def test_what_is_set_by_hand_stays_also_where_it_is_the_presets_value(cache):
    profile = make_profile()
    profile.save(profile_path(profile.work))
    job = prepare("snake", settings={"device": "cpu", "actor.lanes": 64}, profile="auto")
    assert job.config.actor.lanes == 64
    assert job.notes == ("the profile of fastdqn tune is ignored: actor.lanes is set by hand",)


def test_a_preset_file_of_the_users_own_is_set_by_hand_too(cache, tmp_path):
    profile = make_profile()
    profile.save(profile_path(profile.work))
    own = load_preset("snake")
    own["actor"]["lanes"] = 16
    own["switches"]["off"] = ["keep_memory"]
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(own).replace("'off'", "off"))  # as people write it; YAML reads that as false
    job = prepare("snake", str(path), settings={"device": "cpu"}, profile="auto")
    assert job.config.actor.lanes == 16
    assert "keep_memory" not in job.switches
    assert "actor.lanes is 16, and was 64 when it was measured" in job.notes[0]


@pytest.mark.parametrize(
    "settings",
    [{"env.max_steps": 99}, {"switches.prefer": []}, {"learner.batch_size": 32}, {"network.hidden": [64]}],
    ids=lambda value: next(iter(value)),
)
def test_whatever_else_the_speed_depends_on_has_a_profile_of_its_own(settings):
    job, other = prepare("snake", settings={"device": "cpu"}), prepare("snake", settings={"device": "cpu", **settings})
    assert profile_path(work_of(job.config, job.kind, 1)) != profile_path(work_of(other.config, other.kind, 1))
    same = prepare("snake", settings={"device": "cpu", "learner.lr": 1e-5, "limits.steps": 7, "actor.lanes": 8})
    assert work_of(job.config, job.kind, 1) == work_of(same.config, same.kind, 1)


@pytest.mark.parametrize(
    "settings", [{"switches.on": ["gone"]}, {"switches.on": ["device_ring"]}, {"actor.groups": 99}], ids=str
)
def test_a_profile_that_cannot_be_had_any_more_stops_nobody(settings, cache):
    profile = make_profile(settings)
    profile.save(profile_path(profile.work))
    job = prepare("snake", settings={"device": "cpu"}, profile="auto")
    assert job.config.actor.lanes == 64
    assert job.notes[0].startswith("the profile of fastdqn tune is ignored: ")


def test_a_profile_that_does_not_fit_into_memory_is_ignored(cache, monkeypatch):
    profile = make_profile()
    profile.save(profile_path(profile.work))

    def refuse_32(job):
        if job.config.actor.lanes == 32:
            raise UserError("too large")

    monkeypatch.setattr("fastdqn.prepare.check_memory_of", refuse_32)
    job = prepare("snake", settings={"device": "cpu"}, profile="auto")
    assert (job.config.actor.lanes, job.notes) == (64, ("the profile of fastdqn tune is ignored: too large",))


def test_a_cache_folder_that_may_not_be_read_has_no_profile(cache, monkeypatch):
    work = make_profile().work

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.read_text", refuse)
    assert find_profile("auto", work) is None


def test_a_profile_from_a_busy_machine_says_that_it_is_worth_little():
    assert not any("careful" in line for line in make_profile(others_cpu_percent=5.0).lines())
    assert "other programs used 80 % of a core" in make_profile(others_cpu_percent=80.0).lines()[-1]


# ---------------------------------------------------------------- all of it


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(tuning, "WARM_UP_SECONDS", 0.02)
    monkeypatch.setattr("fastdqn.run.probe.FILLED_ROWS", 200)
    monkeypatch.setattr("fastdqn.tune.race.LONG_ENOUGH_SECONDS", 0.05)
    monkeypatch.setattr("fastdqn.tune.race.TURN_SECONDS", 0.02)

    def no_processes(job):  # they take seconds to start
        raise UserError("not here")

    monkeypatch.setattr(tuning, "WarmProcesses", no_processes)


def test_roles_apart_are_chosen_where_they_are_faster(cache, quick, monkeypatch):
    built = []

    class Apart:
        def __init__(self, job):
            built.append(job.config.actor.count)

        def rate(self, seconds):
            return 500.0

        def close(self):
            built.pop()

    monkeypatch.setattr(tuning, "WarmProcesses", Apart)
    monkeypatch.setattr(tuning.WarmRun, "rate", lambda self, seconds: 100.0)
    tuner = Tuner("CartPole-v1", None, {"device": "cpu", "actor.lanes": 8, **FIXED}, (), 1, TuneView())
    found = tuner.run()
    assert (found.settings["runner"], found.settings["actor.count"]) == ("processes", 1)
    assert built == [], "every run was closed"
    job = prepare("CartPole-v1", settings=found.settings)
    assert job.config.runner == "processes"


@pytest.mark.slow
@pytest.mark.alone
def test_roles_apart_work_in_their_turns_only():
    """Real processes: between two turns nothing is played and nothing is learned."""
    job = prepare("CartPole-v1", settings={"device": "cpu", "runner": "processes", "learner.threads": 1})
    run = tuning.WarmProcesses(job)
    try:
        assert run.rate(0.3) > 0
        probe = run._probe
        readings = [(-1, -1)]
        while (readings[-1] != (before := (probe.steps, probe.updates))) and len(readings) < 100:
            readings.append(before)  # until what was under way when the turn ended is done
            time.sleep(0.2)
        assert readings[-1] == before, "they work on although it is not their turn"
        assert probe.updates > 20
        assert run.rate(0.3) > 0
        assert probe.steps > before[0]
        assert probe.updates > before[1]
    finally:
        run.close()


def test_tune_and_then_train(cache, quick, runs, capsys, monkeypatch):
    """Lanes that are made to look slow are left, and train uses what was found."""
    rate = tuning.WarmRun.rate

    def rate_of_32(self, seconds):
        rate(self, seconds)
        return 100.0 + (self.lanes == 32) * 50

    monkeypatch.setattr(tuning.WarmRun, "rate", rate_of_32)
    fixed = ["--set", "switches.off=[compile]", "--set", "learner.threads=1"]
    assert main(["tune", "snake", "--device", "cpu", *fixed, "--quiet"]) == 0
    said = capsys.readouterr().out
    assert "150 steps/s at 4 samples per step, untuned 100: 1.50x" in said
    assert "actor.lanes=32" in said
    assert "fastdqn train snake --device cpu --set 'switches.off=[compile]' --set learner.threads=1   (uses it" in said
    (path,) = (cache / "profiles").iterdir()
    assert json.loads(path.read_text())["trials"], "what was tried is kept"
    settings = {"evaluator.at_end": False, "switches.off": ["compile"], "learner.threads": 1}
    run = fastdqn.train("snake", steps=500, settings=settings, quiet=True)
    assert run.folder.config().actor.lanes == 32
    untuned = fastdqn.train("snake", steps=500, settings=settings, profile="none", quiet=True)
    assert untuned.folder.config().actor.lanes == 64


def test_where_nothing_is_faster_the_profile_says_so(cache, quick, monkeypatch):
    monkeypatch.setattr(tuning.WarmRun, "rate", lambda self, seconds: 100.0)
    found, path = tune("CartPole-v1", None, {"device": "cpu", "learner.threads": 1}, (), 0.001, None, TuneView())
    assert found.gain == 1.0
    assert "nothing that was tried is clearly faster" in found.lines()[0]
    found.save(path)
    assert load_profile(path) == found


def test_every_run_that_was_started_is_closed(cache, quick, monkeypatch):
    open_runs = set()
    make, close = tuning.WarmRun.__init__, tuning.WarmRun.close

    def made(self, job):
        make(self, job)
        open_runs.add(id(self))

    def closed(self):
        close(self)
        open_runs.remove(id(self))

    monkeypatch.setattr(tuning.WarmRun, "__init__", made)
    monkeypatch.setattr(tuning.WarmRun, "close", closed)
    tuner = Tuner(
        "CartPole-v1", None, {"device": "cpu", "switches.off": ["compile"], "learner.threads": 1}, (), 1, TuneView()
    )
    tuner.run()
    assert open_runs == set()


def test_a_point_for_which_there_is_no_memory_is_no_fault(cache, quick, monkeypatch):
    """On a GPU a point may not fit; the others go on."""
    make = tuning.WarmRun.__init__

    def made(self, job):
        if job.config.actor.lanes > 8:
            raise torch.OutOfMemoryError("out of memory")
        make(self, job)

    monkeypatch.setattr(tuning.WarmRun, "__init__", made)
    tuner = Tuner(
        "CartPole-v1", None, {"device": "cpu", "switches.off": ["compile"], "learner.threads": 1}, (), 1, TuneView()
    )
    assert tuner.run().settings["actor.lanes"] <= 8


class TwoDevices:
    """A machine with a GPU, made up: WarmRun is a number, and every device can do everything."""

    def __init__(self, monkeypatch, speed):
        self.built, self.closed = [], []
        outer = self

        class Made:
            def __init__(self, job):
                self.point = (job.device, job.config.actor.lanes)
                outer.built.append(self.point)

            def rate(self, seconds):
                return speed(*self.point)

            def close(self):
                outer.closed.append(self.point)

        monkeypatch.setattr(tuning, "WarmRun", Made)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda *which: "made up")
        monkeypatch.setattr("fastdqn.prepare.check_device", lambda device: None)
        monkeypatch.setattr("fastdqn.prepare.measured_device", lambda *work: "cpu")
        monkeypatch.setattr("fastdqn.prepare.device_memory", lambda device: None)
        monkeypatch.setitem(hardware.NEEDS, "bf16", lambda device: "a number format")


FIXED = {"learner.threads": 1, "switches.on": [], "switches.off": []}


def test_both_devices_are_searched_and_the_faster_is_taken(cache, quick, monkeypatch):
    """On the GPU more lanes pay, on the CPU fewer."""
    machine = TwoDevices(monkeypatch, lambda device, lanes: lanes if device == "cuda" else 100.0 - lanes / 100)
    found = Tuner("snake", None, FIXED, (), 1, TuneView()).run()
    assert (found.settings["device"], found.settings["actor.lanes"]) == ("cuda", 512)
    assert found.gain == pytest.approx(512 / (100 - 0.64), rel=0.01)
    assert {device for device, _ in machine.built} == {"cpu", "cuda"}
    assert sorted(machine.built) == sorted(machine.closed)
    assert [trial["name"] for trial in found.trials][-1] == "untuned, tuned"


def test_a_device_that_is_far_behind_is_not_searched(cache, quick, monkeypatch):
    machine = TwoDevices(monkeypatch, lambda device, lanes: 1000.0 if device == "cuda" else 10.0)
    found = Tuner("snake", None, FIXED, (), 1, TuneView()).run()
    assert found.settings["device"] == "cuda"
    assert {lanes for device, lanes in machine.built if device == "cpu"} == {64}, "only its start was looked at"


def test_a_device_that_cannot_do_what_was_asked_for_is_left_out(cache, quick, monkeypatch):
    TwoDevices(monkeypatch, lambda device, lanes: 10.0)
    start = Tuner._start

    def only_on_the_cpu(self, device):
        if device == "cuda":
            raise UserError("no such switch there")
        return start(self, device)

    monkeypatch.setattr(Tuner, "_start", only_on_the_cpu)
    said = []

    class Told(TuneView):
        def say(self, line):
            said.append(line)

    assert Tuner("snake", None, FIXED, (), 1, Told()).run().settings["device"] == "cpu"
    assert said == ["cuda is left out: no such switch there"]


def test_the_plain_view_says_a_line_per_race(cache, quick, monkeypatch):
    words = io.StringIO()
    view = PlainTuneView(Console(file=words, width=200))
    monkeypatch.setattr(tuning.WarmRun, "rate", lambda self, seconds: 100.0 + self.lanes)
    Tuner("CartPole-v1", None, {"device": "cpu", **FIXED}, (), 1, view).run()
    lines = words.getvalue().splitlines()
    assert "actor.lanes: lanes 8 (108)" in lines[0]
    assert "[lanes 32 (132)]" in lines[0]
    assert "untuned, tuned: lanes 8 (108) · [lanes 32 (132)] steps/s" in lines[-1]


def test_the_live_view_draws_a_bar_per_point_and_leaves_the_lines():
    words = io.StringIO()
    view = LiveTuneView(Console(file=words, width=100, force_terminal=True), "fastdqn tune snake", 2)
    names = view.begin("actor.lanes", [{"actor.lanes": 8}, {"actor.lanes": 16}, {"actor.lanes": 32}])
    view.turn([Runner(names[0], Run(1, None), rate=50.0), Runner(names[1], None)], 0.5)
    view.end([50.0, 0.0, 0.0], 0)
    view.close()
    text = words.getvalue()
    for part in ("fastdqn tune snake", "50 steps/s", "cannot be had", "waits", "no new race after 2:00", "[lanes 8 (50)]"):
        assert part in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tune", "nothing"], "nothing"),
        (["tune", "snake", "--minutes", "0"], "--minutes must be a number above 0"),
        (["tune", "snake", "--set", "learner.batch=3"], "Unknown setting"),
        (["tune", "snake", "--out", "."], "is a folder"),
        (["tune", "snake", "--out", "nowhere/mine.json"], "There is no folder nowhere"),
        (["tune", "snake", "--set", "learner.batch_size=1e9"], "memory"),
        (["train", "snake", "--profile", "missing.json"], "cannot be read"),
    ],
)
def test_a_users_mistake_is_one_sentence(arguments, words, runs, capsys):
    assert main([*arguments]) == 2
    assert words in capsys.readouterr().err
