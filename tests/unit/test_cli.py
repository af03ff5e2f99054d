"""The command line: what a user types, what comes back, and what is left behind when it was wrong (nothing)."""

import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import textwrap

import gymnasium
import pytest
from gymnasium import spaces

import fastdqn
from fastdqn.cli import main
from fastdqn.commands import plan
from fastdqn.device import hardware
from fastdqn.run import preflight
from tests.unit.tiny import TINY, TINY_SNAKE, as_arguments, everything_in

SNAKE = ["train", "snake", "--steps", "200", "--quiet", *as_arguments()]


@pytest.fixture
def cli(capsys):
    """Runs a command in this process; gives its exit code, stdout and stderr."""

    def run(*arguments):
        try:
            code = main(list(arguments))
        except SystemExit as exit_:  # tyro ends the process itself
            code = exit_.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def refused(cli, runs):
    """A command that must fail: exit code 2, a sentence without a traceback, and the folder as it was."""

    def run(*arguments):
        before = everything_in(runs.parent)
        code, out, err = cli(*arguments)
        assert code == 2, (out, err)
        assert "Traceback" not in out + err
        assert err.strip(), "the sentence belongs on stderr"
        assert everything_in(runs.parent) == before, "something was left behind"
        return " ".join(err.split())

    return run


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [("snaek", "snake"), ("CartPol-v1", "CartPole-v1"), ("pongg", "pong"), ("Cartpole-v1", "CartPole-v1")],
)
def test_unknown_environment(refused, typed, nearest):
    sentence = refused("train", typed)
    assert f"Unknown environment '{typed}'" in sentence
    assert nearest in sentence.split("Did you mean")[1]


def test_unknown_atari_game(refused):
    sentence = refused("train", "ALE/Pang-v5")
    assert "Unknown Atari game" in sentence
    assert "pong" in sentence


@pytest.mark.parametrize("env", ["Pendulum-v1", "MountainCarContinuous-v0"])
def test_continuous_actions(refused, env):
    sentence = refused("train", env)
    assert "Discrete" in sentence
    assert env in sentence


def test_an_observation_that_is_no_box(refused):
    sentence = refused("train", "FrozenLake-v1")
    assert "needs a Box" in sentence


@pytest.mark.skipif(importlib.util.find_spec("Box2D") is not None, reason="Box2D is installed here")
def test_a_gymnasium_package_that_is_not_installed(refused):
    sentence = refused("train", "LunarLander-v3")
    assert "not installed" in sentence
    assert "pip install" in sentence


def test_ale_py_that_is_not_installed(refused, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "ale_py"] + ["ale_py"]:
        monkeypatch.setitem(sys.modules, name, None)  # what Python keeps for a module that cannot be imported
    from fastdqn.env import atari

    atari._read_cartridge.cache_clear()
    sentence = refused("train", "pong")
    assert "ale-py" in sentence
    assert "pip install 'fastdqn[atari]'" in sentence


def test_tensorboard_that_is_not_installed(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert "pip install 'fastdqn[tb]'" in refused(*SNAKE, "--log", "tensorboard")


def test_unknown_setting(refused):
    sentence = refused("train", "snake", "--set", "learner.batchsize=3")
    assert "learner.batch_size" in sentence


def test_unknown_env_setting(refused):
    assert "Did you mean dim" in refused("train", "snake", "--set", "env.dimm=3")
    assert "does not take these settings (env.dimm)" in refused("train", "CartPole-v1", "--set", "env.dimm=3")


@pytest.mark.parametrize("option", ["--on", "--off"])
def test_unknown_switch(refused, option):
    sentence = refused("train", "snake", option, "frame_rings")
    assert "Unknown switch 'frame_rings'. Did you mean frame_ring" in sentence


def test_a_switch_that_does_not_apply(refused):
    assert "does not apply to snake" in refused("train", "snake", "--on", "native_atari")


def test_a_switch_without_what_it_needs(refused):
    assert "needs array_replay" in refused("train", "snake", "--on", "frame_ring", "--off", "array_replay")


def test_a_switch_that_the_machine_cannot_do(refused, cli, monkeypatch):
    """Refused when asked for by name; a preset's wish is left off with a line, and the run goes on."""
    monkeypatch.setitem(hardware.NEEDS, "bf16", lambda device: "an abacus")
    assert "The switch bf16 needs an abacus, which is not there" in refused(*SNAKE, "--on", "bf16")
    typed = [argument for argument in SNAKE if argument != "--quiet"]
    code, out, err = cli(*typed, "--set", "switches.prefer=[bf16]")
    assert code == 0
    assert "left off, for want of an abacus: bf16" in out + err


@pytest.mark.parametrize("name", ["pinned_copies", "cudnn_benchmark", "tf32", "fp16"])
def test_a_switch_for_gpus_without_one(refused, name):
    sentence = refused(*SNAKE, "--set", "device=cpu", "--on", name)
    assert f"The switch {name} needs a CUDA device, which is not there (device cpu)." in sentence


@pytest.mark.parametrize(
    "arguments",
    [
        ["--set", "learner.gamma=1.5"],
        ["--steps", "0"],
        ["--steps", "lots"],
        ["--minutes", "0"],
        ["--seed", "-1"],
        ["--seed", "1.5"],
        ["--target", "nan"],
        ["--set", "network.hidden=[0]"],
        ["--set", "env.dim=1"],
        ["--set", "actor.groups=65"],
        ["--set", "replay.capacity=100"],
        ["--set", "nonsense"],
        ["--set", "env=3"],
        ["--set", "env_id=pong"],
        ["--preset", "snek"],
        ["--preset", "missing.yaml"],
        ["--log", "tensorbord"],
        ["--run", ""],
        ["--run", ".."],
        ["--wrong-option"],
        ["--plan", "--price-per-hour", "cheap"],
        ["--plan", "--price-per-hour", "0"],
    ],
    ids=" ".join,
)
def test_values_out_of_range(refused, arguments):
    refused("train", "snake", *arguments)


def test_a_capacity_too_small_for_the_lanes_names_the_smallest(refused, cli):
    sentence = refused(*SNAKE, "--set", "replay.capacity=20")
    smallest = re.search(r"at least ([\d,]+)", sentence)[1]
    assert cli(*SNAKE, "--set", f"replay.capacity={smallest.replace(',', '')}")[0] == 0


@pytest.mark.parametrize("command", ["eval", "watch"])
def test_a_run_that_does_not_exist(refused, command):
    assert "There is no run 'nothing'" in refused(command, "nothing")


@pytest.mark.parametrize("command", ["eval", "watch"])
def test_a_folder_that_is_no_run(refused, runs, command):
    (runs / "holiday").mkdir(parents=True)
    (runs.parent / "elsewhere").mkdir()
    assert "is not a run" in refused(command, "holiday")
    assert "is not a run" in refused(command, "elsewhere")
    assert "is not a run" in refused("train", "snake", "--from", "holiday")


def test_a_run_without_a_model(refused, runs):
    (runs / "early").mkdir(parents=True)
    (runs / "early" / "config.yaml").write_text("env_id: snake\n")
    assert "There is no model" in refused("eval", "early")


def test_a_run_whose_config_is_damaged(refused, runs):
    (runs / "bad").mkdir(parents=True)
    (runs / "bad" / "config.yaml").write_text("env_id: [")
    assert "config.yaml" in refused("eval", "bad")


@pytest.mark.parametrize(
    "arguments",
    [
        ["eval", "RUN", "--episodes", "0"],
        ["eval", "RUN", "--episodes", "few"],
        ["eval", "RUN", "--seed", "-3"],
        ["eval", "RUN", "--device", "cuda:99"],
        ["eval", "RUN", "--set", "learner.lr=1"],
        ["eval", "RUN", "--set", "evaluator.epsilon=2"],
        ["watch", "RUN", "--games", "0"],
        ["watch", "RUN", "--fps", "0"],
        ["watch", "RUN", "--max-steps", "none"],
        ["watch", "RUN", "--out", "film.avi"],
        ["watch", "RUN", "--out", "deep/film"],
    ],
    ids=" ".join,
)
def test_bad_arguments_of_eval_and_watch(refused, trained, arguments):
    before = everything_in(trained.path)
    refused(*(str(trained.path) if argument == "RUN" else argument for argument in arguments))
    assert everything_in(trained.path) == before


def test_a_film_that_needs_a_package(refused, trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'fastdqn[video]'" in refused("watch", str(trained.path), "--out", "new/film.mp4")


def test_a_film_that_cannot_be_written(refused, trained, runs):
    (runs.parent / "a_file").write_text("")
    assert "cannot be written" in refused("watch", str(trained.path), "--out", "a_file/film.gif", "--games", "1")


@pytest.mark.parametrize("device", ["gpu", "cpu:0", "cpu:", "cuda:99", "CPU"])
def test_a_device_that_is_not_there(refused, device):
    assert f"evice '{device}'" in refused("train", "snake", "--device", device)


def test_a_replay_larger_than_memory_names_the_largest_that_fits(refused, cli, monkeypatch):
    monkeypatch.setattr(preflight, "free_memory", lambda: preflight.RESERVE_BYTES + 3_000_000)
    sentence = refused(*SNAKE, "--set", "replay.capacity=1e9")
    assert "replay 88.0 GB" in sentence
    assert "539.9 MB are free" in sentence
    suggested = re.search(r"--set (replay\.capacity=\d+)$", sentence)[1]
    code, _, _ = cli(*SNAKE, "--set", suggested, "--run", "fits")
    assert code == 0
    capacity = int(suggested.partition("=")[2])
    refused(*SNAKE, "--set", f"replay.capacity={capacity + 100}")


@pytest.mark.parametrize("setting", ["learner.batch_size=1e6", "network.hidden=[5000,5000]"])
def test_other_buffers_larger_than_memory(refused, setting, monkeypatch):
    monkeypatch.setattr(preflight, "free_memory", lambda: preflight.RESERVE_BYTES + 400_000_000)
    assert "This run needs" in refused(*SNAKE, "--set", setting)


def test_a_model_that_does_not_fit(refused, trained):
    arguments = [*as_arguments(TINY_SNAKE | {"env.dim": 6}), "--from", str(trained.path)]
    sentence = refused("train", "snake", "--steps", "200", *arguments)
    assert "does not fit this network" in sentence
    assert "(16, 75) where (16, 108) is needed" in sentence
    assert "states (3, 5, 5)" in sentence


def test_a_damaged_model(refused, trained, runs):
    copy = runs / "damaged"
    copy.mkdir(parents=True)
    (copy / "config.yaml").write_text((trained.path / "config.yaml").read_text())
    (copy / "model.safetensors").write_bytes((trained.path / "model.safetensors").read_bytes()[:100])
    for arguments in (["eval", "damaged"], ["watch", "damaged"], [*SNAKE, "--from", "damaged"]):
        assert "damaged or no model file" in refused(*arguments)


def test_a_run_name_that_exists(refused, cli, runs):
    assert cli(*SNAKE, "--run", "mine")[0] == 0
    before = (runs / "mine" / "metrics.jsonl").read_bytes()
    sentence = refused(*SNAKE, "--run", "mine")
    assert "runs/mine already exists" in sentence
    assert (runs / "mine" / "metrics.jsonl").read_bytes() == before


def test_a_run_name_that_is_a_file(refused, runs):
    runs.mkdir()
    (runs / "taken").write_text("")
    assert "already exists" in refused(*SNAKE, "--run", "taken")


@pytest.mark.parametrize("name", ["no_such_module_at_all", "no_such_module.at_all", "./mine.py", "", "a b"])
def test_a_bad_import(refused, name):
    assert "--import" in refused("train", "snake", "--import", name)


def test_no_command_and_unknown_command(cli):
    code, out, _ = cli()
    assert code == 0
    assert "fastdqn train pong --plan" in out
    code, out, err = cli("trane", "snake")
    assert code == 2
    assert "Traceback" not in out + err


# ---------------------------------------------------------------- good paths


def test_train_then_eval_then_watch(cli, runs):
    code, out, err = cli(*SNAKE, "--run", "mine")
    assert (code, err) == (0, "")
    assert re.search(r"step limit reached after (19\d|200) steps and [1-9]\d* updates; the model is saved", out)
    assert "evaluated at step" in out
    folder = runs / "mine"
    for name in ("config.yaml", "metrics.jsonl", "model.safetensors", "curve.png"):
        assert (folder / name).stat().st_size > 0
        assert name in out or name in ("config.yaml", "metrics.jsonl")
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")

    code, out, _ = cli("eval", "mine", "--episodes", "1e1")
    assert code == 0
    assert re.search(r"mean [\d.]+ \([\d.]+ to [\d.]+\), median [\d.]+, 10 games", out)
    result = json.loads((runs.parent / out.strip().splitlines()[-1]).read_text())
    assert result["episodes"] == len(result["scores"]) == 10

    code, out, err = cli("watch", "mine", "--out", "films/mine.gif", "--games", "2")
    assert code == 0
    assert (runs.parent / "films" / "mine.gif").read_bytes().startswith(b"GIF89a")
    assert "best of 2 games" in out
    assert "game 2 of 2" in err


def test_watch_without_a_terminal_shows_the_last_board(cli, trained):
    code, out, _ = cli("watch", str(trained.path), "--seed", "3")
    assert code == 0
    assert len(out.splitlines()) > 5
    assert re.search(r"score \d+ after \d+ steps$", out.strip())


def test_watch_of_an_env_without_a_terminal_view_writes_a_film(cli, runs):
    small = TINY | {"evaluator.at_end": "false"}
    assert cli("train", "catch", "--steps", "60", "--quiet", "--run", "mine", *as_arguments(small))[0] == 0
    code, out, _ = cli("watch", "mine", "--games", "1")
    assert code == 0
    assert "film.gif: 9 frames" in out
    assert (runs / "mine" / "film.gif").exists()


def test_watch_of_an_env_whose_drawing_needs_a_package(cli, refused, monkeypatch):
    assert cli("train", "CartPole-v1", "--steps", "100", "--quiet", "--run", "mine", *as_arguments(TINY))[0] == 0
    monkeypatch.setitem(sys.modules, "pygame", None)
    sentence = refused("watch", "mine", "--games", "1")
    assert "A film of CartPole-v1 needs a package that is not installed" in sentence
    assert "pip install" in sentence


def test_options_win_over_settings_and_settings_over_presets(cli, runs):
    arguments = [*as_arguments(), "--set", "limits.steps=5000", "--set", "seed=1", "--quiet", "--run", "mine"]
    assert cli("train", "snake", "--steps", "0.15k", "--seed", "7", *arguments)[0] == 0
    config = fastdqn.run.folder.find("mine").config()
    assert (config.limits.steps, config.seed) == (150, 7)
    assert config.learner.batch_size == 16
    assert config.learner.gamma == 0.95, "the preset's"
    assert config.learner.optimizer_eps == 1e-8, "the default"


def test_a_preset_of_the_users_own(cli, runs):
    (runs.parent / "mine.yaml").write_text(
        "env: {dim: 4}\nactor: {lanes: 2}\nreplay: {capacity: 500, warmup_steps: 20}\nnetwork: {kind: mlp, hidden: [8]}\n"
        "learner: {batch_size: 4}\nevaluator: {at_end: false}\nlimits: {steps: 60}\n"
    )
    assert cli("train", "snake", "--preset", "mine.yaml", "--quiet", "--run", "mine")[0] == 0
    assert fastdqn.run.folder.find("mine").config().env["dim"] == 4


def test_the_config_of_a_run_is_a_preset(cli, runs, trained):
    assert cli("train", "snake", "--preset", str(trained.path / "config.yaml"), "--quiet", "--run", "again")[0] == 0
    again, before = fastdqn.run.folder.find("again").config(), trained.folder.config()
    assert again.model_copy(update={"preset": before.preset}) == before
    first, second = trained.metrics(), fastdqn.run.folder.find("again").metrics()
    assert [row["loss"] for row in first] == [row["loss"] for row in second]


def test_a_users_own_environment_by_import(cli, runs, monkeypatch):
    (runs.parent / "my_package.py").write_text(
        textwrap.dedent("""
        import gymnasium, numpy as np
        from gymnasium import spaces
        class Mine(gymnasium.Env):
            observation_space = spaces.Box(-1, 1, (2,), np.float32)
            action_space = spaces.Discrete(2)
            def reset(self, *, seed=None, options=None):
                return np.zeros(2, np.float32), {}
            def step(self, action):
                return np.ones(2, np.float32), 1.0, True, False, {}
        gymnasium.register("Mine-v0", entry_point=Mine)
        """)
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    small = {"actor.lanes": 2, "network.hidden": [8], "replay.warmup_steps": 20, "replay.capacity": 200}
    arguments = ["--import", "my_package", "--steps", "100", "--quiet", "--run", "mine", *as_arguments(small)]
    try:
        assert cli("train", "Mine-v0", *arguments)[0] == 0
        code, out, _ = cli("eval", "mine", "--episodes", "3", "--import", "my_package")
    finally:
        sys.modules.pop("my_package", None)
        gymnasium.registry.pop("Mine-v0", None)
    assert code == 0
    assert "mean 1.00" in out


def test_from_another_run(cli, runs, trained):
    assert cli(*SNAKE, "--from", str(trained.path), "--run", "further", "--set", "replay.warmup_steps=1000")[0] == 0
    further, before = fastdqn.load("further"), fastdqn.load(trained)
    obs = before.kind.make_single().reset(seed=1)[0]
    assert further.facts["update"] == 0, "only the warm-up was played"
    assert further.values(obs).tolist() == before.values(obs).tolist()


def test_progress_in_plain_lines_and_what_is_switched_off(cli, runs):
    code, out, _ = cli(*[part for part in SNAKE if part != "--quiet"], "--off", "array_replay,inference_mode")
    assert code == 0
    assert "snake: 1,284 weights on cpu" in out
    assert "switched off: array_replay, inference_mode" in out
    assert "frame_ring is left off: it needs array_replay" in out


def test_envs(cli):
    code, out, _ = cli("envs")
    assert code == 0
    for name in ("snake", "catch", "pong", "CartPole-v1", "--import"):
        assert name in out
    assert "Pendulum" not in out


def test_switches(cli):
    from fastdqn.switches import LADDER

    code, out, _ = cli("switches")
    assert code == 0
    for switch in LADDER:
        assert switch.name in out
        assert switch.promise.name.lower() in out


def test_settings(cli):
    from fastdqn.config import preset_names

    code, out, _ = cli("settings")
    assert code == 0
    for word in ("learner.batch_size", "replay.n_step", "seed", *preset_names()):
        assert word in out


def test_settings_of_an_environment(cli, refused):
    code, out, _ = cli("settings", "snake")
    assert code == 0
    lines = {line.split()[0]: line.split()[1] for line in out.splitlines() if len(line.split()) > 1}
    assert (lines["limits.steps"], lines["actor.lanes"], lines["env.dim"]) == ("2000000", "64", "10")
    assert "Did you mean snake" in refused("settings", "snaek")


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version(cli, flag):
    assert cli(flag) == (0, f"fastdqn {fastdqn.__version__}\n", "")


@pytest.fixture
def quick_probe(monkeypatch):
    defaults = plan.make_plan.__defaults__
    monkeypatch.setattr(plan.make_plan, "__defaults__", (0.05, *defaults[1:]))


def test_a_plan_writes_nothing(cli, runs, quick_probe):
    code, out, _ = cli(*SNAKE, "--plan", "--run", "mine")
    assert code == 0
    for word in ("memory", "disk", "speed", "time"):
        assert re.search(rf"^{word} ", out, re.MULTILINE), out
    assert ": fits" in out
    assert "money" not in out
    assert everything_in(runs.parent) == []


def test_a_plan_with_a_price(cli, runs, quick_probe, monkeypatch):
    monkeypatch.setattr(plan, "measure_speed", lambda job, seconds: (100.0, 4.0))
    code, out, _ = cli(*SNAKE, "--steps", "720000", "--plan", "--price-per-hour", "1.5")
    assert code == 0
    assert "time    120.0 minutes (2.0 hours)" in out
    assert "money   3.00 at the price per hour you gave" in out
    assert everything_in(runs.parent) == []


def test_a_plan_takes_the_limit_that_comes_first(cli, runs, quick_probe, monkeypatch):
    monkeypatch.setattr(plan, "measure_speed", lambda job, seconds: (100.0, 4.0))
    assert "time    1.0 minutes" in cli(*SNAKE, "--steps", "720000", "--minutes", "1", "--plan")[1]
    unlimited = ["--set", "limits.steps=null", "--target", "5", "--plan"]
    assert "time    unknown" in cli("train", "snake", *as_arguments(), *unlimited)[1]


def test_a_plan_says_what_a_run_would_say_about_memory(cli, runs, quick_probe, monkeypatch):
    """What is left after the reserve counts, in both."""
    monkeypatch.setattr(plan, "measure_speed", lambda job, seconds: (100.0, 4.0))
    for module in (plan, preflight):
        monkeypatch.setattr(module, "free_memory", lambda: preflight.RESERVE_BYTES + 1000)
    assert "DOES NOT FIT" in cli(*SNAKE, "--plan")[1]
    assert cli(*SNAKE)[0] == 2


def test_a_plan_ends_even_when_no_update_is_ever_earned(cli, runs, quick_probe):
    code, out, _ = cli(*SNAKE, "--set", "learner.steps_per_update=1e12", "--plan")
    assert code == 0
    assert "at 0 samples per step" in out


# ---------------------------------------------------------------- quick to start


def test_help_loads_nothing_heavy():
    """What keeps `fastdqn --help` under a second: torch alone takes longer than that to import."""
    commands = [["--help"], ["train", "--help"], ["--version"]]
    script = (
        "import sys\nfrom fastdqn.cli import main\n"
        f"for arguments in {commands!r}:\n"
        "    try: main(arguments)\n    except SystemExit as e: assert not e.code\n"
        "    heavy = {'torch', 'numba', 'matplotlib', 'ale_py', 'pydantic', 'PIL'} & set(sys.modules)\n"
        "    print('HEAVY', sorted(heavy), arguments)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if line.startswith("HEAVY ")]
    assert told == [f"HEAVY [] {arguments}" for arguments in commands]


def test_a_closed_pipe_is_no_error():
    """`fastdqn envs | head -0`."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        done = subprocess.run([sys.executable, "-m", "fastdqn", "envs"], stdout=closed, stderr=subprocess.PIPE, timeout=60)
    assert b"Traceback" not in done.stderr


def test_the_public_names_are_what_they_say_in_any_order():
    """Importing a submodule makes it an attribute of the package: `fastdqn.train` must stay the function."""
    script = (
        "import fastdqn.cli, fastdqn.train\nfrom fastdqn import Run, train\n"
        "assert callable(train) and callable(fastdqn.train) and isinstance(Run, type)\n"
        "assert all(callable(getattr(fastdqn, name)) for name in fastdqn.__all__)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        fastdqn.trian  # noqa: B018


def test_spaces_are_refused_by_their_kind():
    """The check itself, for kinds of spaces that no registered environment has."""
    from fastdqn.env.gymnasium import check_spaces
    from fastdqn.errors import UserError

    with pytest.raises(UserError, match="MultiDiscrete"):
        check_spaces("x", spaces.Box(0, 1, (2,)), spaces.MultiDiscrete([2, 2]))
    with pytest.raises(UserError, match="FlattenObservation"):
        check_spaces("x", spaces.Dict({"a": spaces.Discrete(2)}), spaces.Discrete(2))
