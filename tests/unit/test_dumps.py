"""Games that are kept: what is in them, which ones, how much room they take, and what happens when there is none."""

import errno
import importlib
import json
import os
import threading

import numpy as np
import pytest
from PIL import Image

import fastdqn
from fastdqn.actor import recorder as recorders
from fastdqn.actor.recorder import Episode, Recorder
from fastdqn.cli import main
from fastdqn.prepare import prepare
from fastdqn.run import dumps
from fastdqn.run.dumps import DumpWriter, estimate, find_episode, prune, read_episode
from fastdqn.transition import Block, EnvSpec
from tests.unit.tiny import train_tiny

SPEC = EnvSpec(env_id="counted", obs_shape=(1,), obs_dtype=np.dtype(np.int32), num_actions=2)


def block(lanes, obs, first, action=0, reward=0.0):
    count = lanes.stop - lanes.start
    return Block(
        lanes,
        np.full(count, action, np.int64),
        np.full(count, reward, np.float32),
        np.zeros(count, bool),
        np.full(count, first, bool),
        np.full((count, 1), obs, np.int32),
    )


def play_games(recorder, lengths, lanes=slice(0, 1)):
    """Observations count up within a game of 1000 numbers each; the action is the step, the reward twice that."""
    for game, length in enumerate(lengths):
        recorder.see(block(lanes, 1000 * game, first=True))
        for step in range(1, length + 1):
            recorder.see(block(lanes, 1000 * game + step, first=False, action=step, reward=2 * step))


def test_a_game_is_kept_whole():
    kept = []
    recorder = Recorder(SPEC, 3, 2, lambda states: states[:, :2].astype(np.float32), kept.append)
    play_games(recorder, [4, 3, 5, 2, 1])
    assert [episode.number for episode in kept] == [2, 4]
    first = kept[0]
    assert [int(frame[0]) for frame in first.frames] == [1000, 1001, 1002, 1003]
    assert first.actions == [1, 2, 3]
    assert first.rewards == [2, 4, 6]
    # the stack of three that each action was chosen on: empty before the game, then its own frames
    assert [values.tolist() for values in first.values] == [[0, 0], [0, 1000], [1000, 1001]]
    assert not first.cut


def test_lanes_are_kept_apart():
    kept = []
    recorder = Recorder(SPEC, 1, 1, lambda states: np.zeros((len(states), 2), np.float32), kept.append)
    for step in range(3):
        recorder.see(block(slice(0, 1), step, first=step == 0))
        recorder.see(block(slice(1, 2), 100 + step, first=step == 0))
    for lane in (0, 1):
        recorder.see(block(slice(lane, lane + 1), 7, first=True))
    assert [[int(frame[0]) for frame in episode.frames] for episode in kept] == [[0, 1, 2], [100, 101, 102]]


def test_an_endless_game_is_cut(monkeypatch):
    monkeypatch.setattr(recorders, "LARGEST_GAME_BYTES", 40)
    kept = []
    recorder = Recorder(SPEC, 1, 1, lambda states: np.zeros((len(states), 2), np.float32), kept.append)
    play_games(recorder, [500])
    (episode,) = kept
    assert episode.cut
    assert len(episode.frames) == 10
    assert len(episode.actions) == len(episode.values) == 9


def test_games_that_were_broken_off_are_forgotten():
    kept = []
    recorder = Recorder(SPEC, 1, 1, lambda states: np.zeros((len(states), 2), np.float32), kept.append)
    recorder.see(block(slice(0, 1), 0, first=True))
    recorder.see(block(slice(0, 1), 1, first=False))
    recorder.forget()
    play_games(recorder, [2, 1])
    assert [len(episode.actions) for episode in kept] == [2]


@pytest.fixture(scope="module")
def dumped(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("dumps"))
        run = train_tiny(steps=1500, settings={"dump.every": 3, "evaluator.episodes": 6})
        assert run.updates > 300
        yield run.path.absolute()


def test_a_run_keeps_every_third_game(dumped):
    files = sorted((dumped / "episodes").glob("*.npz"))
    numbers = {role: [] for role in ("actor0", "evaluator")}
    for file in files:
        arrays, facts = read_episode(file)
        steps = facts["steps"]
        assert {name: len(array) for name, array in arrays.items()} == {
            "frames": steps + 1,
            "actions": steps,
            "rewards": steps,
            "values": steps,
        }
        assert arrays["frames"].dtype == np.uint8
        assert arrays["frames"].shape[1:] == (3, 5, 5)
        assert arrays["values"].shape[1:] == (4,)
        assert facts["score"] == arrays["rewards"].clip(0).sum()
        assert arrays["frames"][0, 0].sum() > 0  # a head
        numbers[facts["role"]].append(facts["episode"])
    assert numbers["actor0"][:3] == [3, 6, 9]
    assert all(number % 3 == 0 for number in numbers["actor0"] + numbers["evaluator"])
    assert numbers["evaluator"]


def test_a_greedy_game_follows_its_values(dumped):
    """Without exploring, the action that was taken is the best one by the values beside it."""
    arrays, _ = read_episode(next((dumped / "episodes").glob("*-evaluator.npz")))
    np.testing.assert_array_equal(arrays["actions"], arrays["values"].argmax(1))


def test_plain_numpy_reads_it(dumped):
    with np.load(find_episode(dumped, 3), allow_pickle=False) as file:
        assert json.loads(str(file["facts"]))["env_id"] == "snake"


def test_a_kept_game_becomes_a_film(dumped, capsys):
    assert main(["watch", str(dumped), "--episode", "6"]) == 0
    assert "game 6 of actor0" in capsys.readouterr().out
    arrays, _ = read_episode(find_episode(dumped, 6))
    with Image.open(dumped / "episode_6.gif") as film:
        assert film.n_frames == len(arrays["frames"])
        assert film.size[0] == 336


def test_a_game_that_was_not_kept_is_refused_with_its_neighbours(dumped, capsys):
    assert main(["watch", str(dumped), "--episode", "7"]) == 2
    assert "Near it: 3, 6, 9" in capsys.readouterr().err


def test_a_run_without_kept_games_says_how_to_have_some(runs):
    with pytest.raises(fastdqn.UserError, match=r"dump\.every"):
        find_episode(train_tiny(steps=60).path, 1)


def test_a_damaged_file_is_a_sentence(tmp_path):
    path = tmp_path / "000000001-actor0.npz"
    path.write_bytes(b"nothing")
    with pytest.raises(fastdqn.UserError, match="damaged"):
        read_episode(path)


def an_episode(number, steps=50):
    noise = np.random.default_rng(number).integers(0, 2**31, (steps + 1, 1), dtype=np.int32)
    return Episode(number, list(noise), [0] * steps, [0.0] * steps, [np.zeros(2, np.float32)] * steps)


def write_now(writer, episode):
    writer.write(episode)
    for writing, _ in writer._pending:
        writing.result()


def test_the_oldest_go_when_the_budget_is_spent(tmp_path):
    writer = DumpWriter(tmp_path, "actor0", SPEC, max_bytes=3000)
    for number in range(1, 9):
        write_now(writer, an_episode(number))
    left = sorted((tmp_path / "episodes").iterdir())
    assert sum(file.stat().st_size for file in left) <= 3000
    assert left[-1].name == "000000008-actor0.npz"
    assert 1 <= len(left) < 8
    prune(tmp_path / "episodes", 0)
    assert [file.name for file in (tmp_path / "episodes").iterdir()] == ["000000008-actor0.npz"]
    writer.close()


def test_a_full_disk_never_stops_training(runs, monkeypatch):
    faults = []

    def full(*_, **__):
        faults.append(1)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(dumps.np, "savez_compressed", full)
    run = train_tiny(steps=400, settings={"dump.every": 1})
    assert faults
    assert run.reason == "step limit reached"
    assert run.updates > 50
    assert list((run.path / "episodes").iterdir()) == []


def test_lost_games_are_counted(tmp_path, monkeypatch):
    writer = DumpWriter(tmp_path, "actor0", SPEC, 1e9)
    monkeypatch.setattr(dumps.os, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    write_now(writer, an_episode(1))
    assert writer.lost == 1
    assert "full" in writer.last_fault
    assert list((tmp_path / "episodes").iterdir()) == []
    writer.close()


def test_games_that_come_faster_than_the_disk_are_lost_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(dumps, "MOST_PENDING_BYTES", 100)
    gate, replace = threading.Event(), os.replace
    monkeypatch.setattr(dumps.os, "replace", lambda *paths: (gate.wait(60), replace(*paths)))
    writer = DumpWriter(tmp_path, "actor0", SPEC, 1e9)
    for number in (1, 2, 3):
        writer.write(an_episode(number))
    gate.set()
    writer.close()
    assert writer.lost == 2
    assert [file.name for file in (tmp_path / "episodes").iterdir()] == ["000000001-actor0.npz"]


def test_the_estimate_of_a_run():
    job = prepare("catch", settings={"dump.every": 100, "dump.max_gb": 2, "limits.steps": 1_000_000})
    line = estimate(job.config, job.kind.spec)
    row = 84 * 84 + 4 * 3 + 12
    assert f"{1000 * row / 1e6:.1f} MB per 1,000 steps" in line
    assert f"{10_000 * row / 1e6:.1f} MB for the exploring ones" in line
    assert "beyond 2.0 GB" in line


def test_boards_on_a_device_give_way(tensors_on_the_cpu):
    settings = {"device": "cpu", "dump.every": 5, "switches.off": tensors_on_the_cpu(["device_snake"])}
    assert "device_snake" not in prepare("snake", settings=settings).switches
    with pytest.raises(fastdqn.UserError, match="device_snake"):
        prepare("snake", settings=settings | {"switches.on": ["device_snake"]})


def test_a_film_of_numbers_is_refused(runs):
    pytest.importorskip("gymnasium")
    importlib.import_module("fastdqn.play.replayed")
    run = train_tiny("CartPole-v1", steps=300, settings={"dump.every": 2})
    with pytest.raises(fastdqn.UserError, match="no images"):
        importlib.import_module("fastdqn.play.replayed").watch_episode(str(run.path), 2, None, None)
