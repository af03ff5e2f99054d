"""Whole runs, tiny ones: limits, seeds, a user's own environment and network, interruptions and faults."""

import importlib
import json
import re
import signal
import subprocess
import sys
import textwrap
import threading
import traceback

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import fastdqn
from fastdqn.build import build
from fastdqn.cli import main
from fastdqn.errors import UserError
from fastdqn.metrics import read_rows
from fastdqn.prepare import prepare
from fastdqn.run.view import View
from fastdqn.runner.ports import Stop
from fastdqn.train import run_job, stop_on_signals
from tests.unit.tiny import TINY, TINY_SNAKE, as_arguments, train_tiny

TRAIN = importlib.import_module("fastdqn.train")  # the module: `fastdqn.train` is the function
TIME_KEYS = {"seconds", "steps_per_second", "updates_per_second", "eval_seconds"} | {
    f"{name}_seconds" for name in ("env", "act", "store", "sample", "learn", "other")
}
TEXTBOOK = ["array_replay", "frame_ring", "inference_mode", "lane_vector_env"]


def curve(run):
    """The rows without what depends on the clock."""
    return [{key: value for key, value in row.items() if key not in TIME_KEYS} for row in run.metrics()]


# ---------------------------------------------------------------- what comes back


def test_a_run_and_its_folder(runs):
    run = train_tiny(run="mine")
    assert 300 - 2 * TINY["actor.lanes"] < run.steps <= 300
    assert run.updates > 0
    assert run.reason == "step limit reached"
    assert str(run.path) == "runs/mine"
    assert {"config.yaml", "metrics.jsonl", "model.safetensors", "curve.png", "evaluations"} <= {
        path.name for path in run.path.iterdir()
    }
    assert f"{run.updates:,} updates" in repr(run)
    last = run.metrics()[-1]
    assert (last["step"], last["update"]) == (run.steps, run.updates)
    assert [row["step"] for row in run.metrics()] == sorted(row["step"] for row in run.metrics())
    assert run.folder.config().limits.steps == 300
    assert re.search(r"steps/s at \d\.?\d* samples per step", run.speed())


def test_a_run_stands_wherever_its_folder_can(runs):
    run = train_tiny()
    assert fastdqn.load(run).facts["step"] == run.steps
    assert train_tiny(from_run=run).updates > 0


def test_without_a_name_the_folder_is_new_every_time(runs):
    one, two = train_tiny(steps=60), train_tiny(steps=60)
    assert one.path != two.path
    assert one.path.name.startswith("snake-")


def test_the_samples_per_step_are_those_of_the_config(runs):
    run = train_tiny(steps=1000, settings={"replay.warmup_steps": 100, "log.every_steps": 50})
    later = [row["samples_per_step"] for row in run.metrics()[5:]]
    assert np.mean(later) == pytest.approx(run.folder.config().samples_per_step, rel=0.05)


def test_a_presets_warmup_gives_way_to_a_short_run(runs):
    settings = {key: value for key, value in TINY_SNAKE.items() if key != "replay.warmup_steps"}
    assert fastdqn.train("snake", steps=300, settings=settings, quiet=True).updates > 0
    asked = prepare("snake", settings={**TINY_SNAKE, "limits.steps": 300, "replay.warmup_steps": 5000})
    assert asked.config.replay.warmup_steps == 5000, "what the user asked for stays"


# ---------------------------------------------------------------- seeds


@pytest.mark.parametrize("off", [[], TEXTBOOK], ids=["fast", "textbook"])
def test_the_same_seed_gives_the_same_curve(runs, off):
    one, two, other = (train_tiny(seed=seed, off=off, settings={"evaluator.every_steps": 150}) for seed in (1, 1, 2))
    assert curve(one) == curve(two)
    assert any(row["loss"] is not None for row in curve(one))
    assert one.folder.scores() == two.folder.scores()
    assert [row["loss"] for row in curve(one)] != [row["loss"] for row in curve(other)]


@pytest.mark.slow
def test_another_process_gives_the_same_curve(runs, trained):
    command = [sys.executable, "-m", "fastdqn", "train", "snake", "--steps", "300", "--quiet", "--run", "again"]
    subprocess.run([*command, *as_arguments()], check=True, capture_output=True, timeout=120)
    again = read_rows(runs / "again" / "metrics.jsonl")
    assert [row["loss"] for row in again] == [row["loss"] for row in trained.metrics()]


# ---------------------------------------------------------------- limits


def test_steps_as_people_type_them(runs):
    run = train_tiny(steps="0.2k")
    assert 200 - 2 * TINY["actor.lanes"] < run.steps <= 200


def test_episodes(runs):
    run = train_tiny(steps=100_000, episodes=10)
    assert run.reason == "episode limit reached"
    assert 10 <= run.metrics()[-1]["episode"] < 10 + TINY["actor.lanes"]


def test_minutes(runs):
    run = train_tiny(steps="1B", minutes=0.002)
    assert run.reason == "time limit reached"
    assert run.updates > 0


def test_an_easy_target_ends_the_run_early(runs):
    """A snake's score is never below 0, so the first evaluation, after a twentieth of the run, solves it."""
    run = train_tiny(steps=2000, target=0, settings={"evaluator.episodes": 5})
    assert run.reason == "target reached"
    assert 100 <= run.steps < 200
    (saved,) = run.folder.scores()
    assert {"protocol", "episodes", "seeds", "mean", "median", "interval"} <= set(saved)
    assert (saved["step"], saved["episodes"], len(saved["scores"])) == (run.steps, 5, 5)
    assert saved["mean"] == run.score.mean >= 0
    assert saved["interval"][0] <= saved["mean"] <= saved["interval"][1]


def test_a_target_out_of_reach_does_not(runs):
    run = train_tiny(steps=200, target=1000, settings={"evaluator.episodes": 2})
    assert run.reason == "step limit reached"
    assert len(run.folder.scores()) >= 20


def test_no_evaluation_when_not_wanted(runs):
    run = train_tiny(settings={"evaluator.at_end": False})
    assert run.score is None
    assert run.folder.scores() == []


# ---------------------------------------------------------------- a user's own environment


class OwnEnv(gymnasium.Env):
    """Pays 1 for the middle action; games of 5 steps. Actions start at 3."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, box):
        self.observation_space = box
        self.action_space = spaces.Discrete(3, start=3)
        self.played = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.played = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert action in (3, 4, 5), action
        self.played += 1
        return self.observation_space.sample(), float(action == 4), False, self.played == 5, {}


BOXES = {
    "float64": spaces.Box(-1, 1, (3,), np.float64),
    "int64": spaces.Box(0, 9, (2, 2), np.int64),
    "int8": spaces.Box(-9, 9, (4,), np.int8),
    "bool": spaces.Box(0, 1, (4,), np.bool_),
    "one number": spaces.Box(-1, 1, (), np.float32),
    "image": spaces.Box(0, 255, (12, 10, 3), np.uint8),
    "grey image": spaces.Box(0, 255, (9, 8), np.uint8),
}


@pytest.mark.parametrize("name", BOXES)
def test_any_box_and_any_start(runs, name):
    def make():
        return OwnEnv(BOXES[name])

    settings = {"network.kind": "auto", "network.channels": [4]}
    run = train_tiny(make, settings=settings)
    assert run.updates > 0
    assert run.folder.config().env_id == "OwnEnv"
    player = fastdqn.load(run, env=make)
    env = make()
    obs, _ = env.reset(seed=1)
    for _ in range(3):
        action = player.act(obs)
        assert action in (3, 4, 5)
        obs = env.step(action)[0]


def test_an_action_that_does_not_start_at_zero_is_learned(runs):
    """The best action is the environment's 4, not fastdqn's 1."""
    make = lambda: OwnEnv(BOXES["float64"])  # noqa: E731
    run = train_tiny(make, steps=1500, settings={"learner.lr": 3e-3, "learner.gamma": 0.5})
    assert run.score.mean == 5.0
    assert fastdqn.load(run, env=make).act(np.zeros(3)) == 4


def test_images_reach_the_network_with_their_channels_first(runs):
    """Whether the observation comes as the environment gives it or as it is stored, the values are the same."""
    make = lambda: OwnEnv(BOXES["image"])  # noqa: E731
    player = fastdqn.load(train_tiny(make, settings={"network.kind": "cnn", "network.channels": [4]}), env=make)
    image = BOXES["image"].sample()
    with torch.no_grad():
        expected = player.network(torch.from_numpy(np.moveaxis(image, -1, 0).copy())[None])[0].tolist()
    assert player.values(image).tolist() == expected
    assert player.values(np.moveaxis(image, -1, 0)).tolist() == expected
    with pytest.raises(ValueError, match=r"observations of shape \(3, 12, 10\), not \(5,\)"):
        player.values(np.zeros(5))


def test_a_class_is_a_maker_too(runs):
    class Pole(gymnasium.Wrapper):
        def __init__(self):
            super().__init__(gymnasium.make("CartPole-v1"))

    run = train_tiny(Pole, steps=120)
    assert run.folder.config().env_id == "CartPole-v1"
    assert run.folder.config().preset == "default", "a wrapper may change anything: CartPole's preset is not for it"
    assert fastdqn.load(run, env=Pole).act(np.zeros(4)) in (0, 1)


def test_groups_of_lanes(runs):
    assert train_tiny(settings={"actor.lanes": 5, "actor.groups": 2}).updates > 0


# ---------------------------------------------------------------- a user's own network


class OwnNetwork(nn.Module):
    def __init__(self, state_shape, num_actions):
        super().__init__()
        self.layer = nn.Linear(int(np.prod(state_shape)), num_actions)

    def forward(self, state):
        return self.layer(state.flatten(1))


def test_own_network(runs):
    run = train_tiny(network=OwnNetwork)
    assert run.updates > 0
    player = fastdqn.load(run, network=OwnNetwork)
    assert [name for name, _ in player.network.named_parameters()] == ["body.layer.weight", "body.layer.bias"]
    with pytest.raises(UserError, match="does not fit this network"):
        fastdqn.load(run)


def test_own_network_that_answers_wrongly_leaves_nothing_behind(runs):
    with pytest.raises(UserError, match="one value per action"):
        train_tiny(network=lambda shape, actions: OwnNetwork(shape, actions + 1))
    assert not runs.exists()


# ---------------------------------------------------------------- from another run


def test_from_run_begins_with_its_weights(runs, trained):
    stay = {"replay.warmup_steps": 10_000}
    further = train_tiny(from_run=trained.path, settings=stay)
    fresh = train_tiny(settings=stay)
    obs = fastdqn.load(trained).kind.make_single().reset(seed=1)[0]
    before = fastdqn.load(trained).values(obs).tolist()
    assert fastdqn.load(further).values(obs).tolist() == before
    assert fastdqn.load(fresh).values(obs).tolist() != before


def test_from_run_fills_the_target_network_too(runs, trained, monkeypatch):
    """Else the first goals would be those of a random network."""
    built = []
    monkeypatch.setattr(TRAIN, "build", lambda *given, **more: built.append(build(*given, **more)) or built[-1])
    train_tiny(steps=50, from_run=trained, settings={"replay.warmup_steps": 10_000})
    saved = fastdqn.load(trained).network.state_dict()
    for network in (built[0].learner.online, built[0].learner.target):
        for name, value in network.state_dict().items():
            assert torch.equal(value, saved[name])


# ---------------------------------------------------------------- logs


def test_tensorboard(runs):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = train_tiny(log=["tensorboard"])
    (events,) = (run.path / "tensorboard").glob("events.out.tfevents.*")
    read = EventAccumulator(str(events))
    read.Reload()
    written = [row for row in run.metrics() if row["loss"] is not None]
    assert [event.step for event in read.Scalars("loss")] == [row["step"] for row in written]
    assert [event.value for event in read.Scalars("loss")] == pytest.approx([row["loss"] for row in written], rel=1e-5)


def test_the_curve_leaves_the_users_plots_alone(runs):
    """A notebook that draws inline still does after a run."""
    import matplotlib
    from matplotlib import pyplot

    before, open_before = matplotlib.get_backend(), pyplot.get_fignums()
    assert (train_tiny().path / "curve.png").stat().st_size > 5000
    assert matplotlib.get_backend() == before
    assert pyplot.get_fignums() == open_before


# ---------------------------------------------------------------- interruptions

BUSY_ENV = textwrap.dedent("""
    import gymnasium, numpy as np
    from gymnasium import spaces
    steps = 0
    class Busy(gymnasium.Env):
        observation_space = spaces.Box(-1, 1, (2,), np.float32)
        action_space = spaces.Discrete(2)
        def reset(self, *, seed=None, options=None):
            return np.zeros(2, np.float32), {}
        def step(self, action):
            global steps
            steps += 1
            if steps == 500:
                print("PLAYING", flush=True)
            return np.ones(2, np.float32), 1.0, False, steps % 50 == 0, {}
    gymnasium.register("Busy-v0", entry_point=Busy)
""")


def test_ctrl_c_ends_the_run_with_the_model_saved(runs):
    (runs.parent / "busy.py").write_text(BUSY_ENV)
    command = [sys.executable, "-m", "fastdqn", "train", "Busy-v0", "--import", "busy", "--steps", "1B", "--run", "mine"]
    process = subprocess.Popen(
        [*command, *as_arguments(TINY)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=runs.parent
    )
    for line in process.stdout:
        if line.strip() == "PLAYING":
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert re.search(r"interrupted after [\d,]+ steps and [1-9][\d,]* updates; the model is saved", out)
    assert "Traceback" not in err
    assert (runs / "mine" / "model.safetensors").exists()
    assert (runs / "mine" / "curve.png").exists()
    rows = [json.loads(row) for row in (runs / "mine" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] >= 490, "the row of the end is written too"


@pytest.mark.parametrize(("number", "reason"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_a_signal_asks_the_run_to_end_and_says_which(number, reason):
    stop = Stop()
    with stop_on_signals(stop):
        signal.raise_signal(number)
    assert stop.reason == reason


def test_the_second_signal_ends_at_once_and_the_handlers_go_back():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    stop = Stop()
    with stop_on_signals(stop):
        signal.raise_signal(signal.SIGINT)
        assert (stop.asked(), stop.reason) == (True, "interrupted")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_after_an_interruption_the_next_run_works(runs):
    """Ctrl-C in a notebook must not poison what comes after."""

    class CtrlC(View):
        def refresh(self, snapshot):
            if snapshot.step >= 200:
                signal.raise_signal(signal.SIGINT)
                self.refresh = lambda snapshot: None

    job = prepare("snake", settings=TINY_SNAKE | {"limits.steps": "1B"})
    run = run_job(job, None, None, CtrlC())
    assert run.reason == "interrupted"
    assert run.steps >= 200
    assert run.score is None, "an interrupted run is not evaluated"
    assert fastdqn.load(run).facts["step"] == run.steps
    assert train_tiny().reason == "step limit reached"


def test_ctrl_c_during_the_last_evaluation_is_an_interruption(runs):
    class CtrlC(View):
        def refresh(self, snapshot):
            if snapshot.evaluated_share is not None:
                signal.raise_signal(signal.SIGINT)
                self.refresh = lambda snapshot: None

    job = prepare("snake", settings=TINY_SNAKE | {"limits.steps": 300, "evaluator.episodes": "1e6"})
    run = run_job(job, None, None, CtrlC())
    assert (run.reason, run.score) == ("interrupted", None)
    assert run.folder.scores() == []
    assert fastdqn.load(run).facts["update"] == run.updates


class Blocking(OwnEnv):
    """Stands still at its 100th step until it is let go."""

    blocked, go_on = threading.Event(), threading.Event()

    def __init__(self):
        super().__init__(BOXES["float64"])
        Blocking.blocked.clear()
        Blocking.go_on.clear()
        self.steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 100:
            self.blocked.set()
            assert self.go_on.wait(60)
        return super().step(action)


def test_a_second_ctrl_c_touches_nothing_that_is_still_at_work(runs):
    class TwiceCtrlC(View):
        def refresh(self, snapshot):
            assert Blocking.blocked.wait(60)
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    job = prepare(Blocking, settings=TINY | {"limits.steps": 5000, "actor.lanes": 1})
    try:
        with pytest.raises(KeyboardInterrupt):
            run_job(job, "mine", None, TwiceCtrlC())
        assert not (runs / "mine" / "model.safetensors").exists(), "weights in the middle of an update are not saved"
    finally:
        Blocking.go_on.set()
        for thread in threading.enumerate():
            if thread.name == "fastdqn-inline":
                thread.join(60)


def test_a_view_that_fails_ends_the_work_and_saves(runs):
    """`fastdqn train snake | head -1`: the pipe is gone, the run is not."""

    class Gone(View):
        def refresh(self, snapshot):
            if snapshot.step > 100:
                raise BrokenPipeError

    job = prepare("snake", settings=TINY_SNAKE | {"limits.steps": "1B"})
    with pytest.raises(BrokenPipeError):
        run_job(job, "mine", None, Gone())
    assert fastdqn.load("mine").facts["step"] > 100
    assert not [thread for thread in threading.enumerate() if thread.name == "fastdqn-inline"]


def test_a_run_that_is_refused_closes_the_view(runs, trained):
    """A live view hides the cursor; it must come back."""
    closed = []

    class Recording(View):
        def close(self):
            closed.append(True)

    job = prepare("snake", settings=TINY_SNAKE)
    with pytest.raises(UserError):
        run_job(job, str(trained.path), None, Recording())
    assert closed == [True]


def test_training_from_a_thread_of_the_users(runs):
    """Only the main thread may set signal handlers; elsewhere a run does without."""
    done = []
    thread = threading.Thread(target=lambda: done.append(train_tiny()))
    thread.start()
    thread.join()
    assert done[0].updates > 0


# ---------------------------------------------------------------- faults


class BrokenEnv(OwnEnv):
    def __init__(self):
        super().__init__(BOXES["float64"])
        self.steps = 0

    def step(self, action):
        self.steps += 1
        return self.break_down() if self.steps > 60 else super().step(action)

    def break_down(self):
        raise RuntimeError("the wheel came off")


def test_an_environment_that_raises_comes_home_with_its_traceback(runs):
    with pytest.raises(RuntimeError, match="the wheel came off") as fault:
        train_tiny(BrokenEnv, run="mine")
    names = [frame.name for frame in traceback.extract_tb(fault.value.__traceback__)]
    assert "break_down" in names
    assert fastdqn.load("mine", env=BrokenEnv).facts["update"] > 0, "what was learned until then is kept"
    assert train_tiny().updates > 0


def test_an_environment_that_raises_is_not_told_as_bad_input(runs, monkeypatch):
    """The command line turns bad input into a sentence; a fault in code keeps its traceback."""
    gymnasium.register("Broken-v0", entry_point=BrokenEnv)
    try:
        with pytest.raises(RuntimeError, match="the wheel came off"):
            main(["train", "Broken-v0", "--quiet", *as_arguments(TINY)])
    finally:
        gymnasium.registry.pop("Broken-v0")


def test_a_run_from_trained_weights_explores_as_little_as_they_did_at_the_end():
    fresh = prepare("snake")
    assert fresh.config.actor.epsilon_start == 1.0
    continued = prepare("snake", from_run="first")
    assert continued.config.actor.epsilon_start == continued.config.actor.epsilon_end == 0.02
    told = prepare("snake", settings={"actor.epsilon_start": 0.5}, from_run="first")
    assert told.config.actor.epsilon_start == 0.5
    assert told.config.from_run == "first", "the run says where its weights came from"


def test_settings_for_an_environment_made_by_the_user_are_refused():
    with pytest.raises(fastdqn.UserError, match="does not reach an environment that you make yourself"):
        prepare(lambda: None, settings={"env.dim": 6})


def test_minutes_and_episodes_take_the_place_of_the_step_limit():
    assert prepare("snake").config.limits.steps == 2_000_000
    assert prepare("snake", settings={"limits.minutes": 3}).config.limits.steps is None
    assert prepare("snake", settings={"limits.episodes": 3, "limits.steps": 9000}).config.limits.steps == 9000
    assert prepare("snake", settings={"limits.target": 3}).config.limits.steps == 2_000_000
