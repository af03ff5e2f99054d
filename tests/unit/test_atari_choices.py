"""Every choice about the Atari wrappers can be trained: env.NAME=VALUE reaches the environment, and updates are made."""

import math
import sys
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("ale_py")
pytest.importorskip("cv2")

import fastdqn
from fastdqn.build import build
from fastdqn.env.atari import AtariLanes, atari_kind
from fastdqn.env.atari_settings import ResizeMethod, read_settings
from fastdqn.env.atari_wrappers import make_resize
from fastdqn.env.serial import SerialLanes
from fastdqn.errors import UserError
from fastdqn.prepare import prepare
from fastdqn.runner.inline import InlineRunner
from fastdqn.runner.ports import Parts, Stop

RESIZE_METHODS: tuple[ResizeMethod, ...] = ("cv2_area", "cv2_linear", "cv2_nearest", "pillow", "torch")
TINY_ATARI = {
    "device": "cpu",
    "actor.lanes": 1,  # an emulator takes longer to start than to play these few steps
    "actor.epsilon_steps": 80,
    "actor.epsilon_end": 0.1,  # soon greedy, so that the actor's states reach the network as well as the batch's
    "replay.capacity": 400,
    "replay.warmup_steps": 80,
    "network.channels": [4, 4, 4],
    "network.hidden": [16],
    "learner.batch_size": 8,
    "learner.threads": 1,
    "evaluator.at_end": False,
    "log.every_steps": 40,
}
STEPS = 160  # of which the first half is warm-up


def train(settings: dict[str, Any]) -> tuple[Parts, list[dict[str, Any]]]:
    """Plays and learns without a run folder, whose curve takes longer to draw than all of this."""
    job = prepare("breakout", settings=TINY_ATARI | {"limits.steps": STEPS} | settings)
    parts = build(job.config, job.kind, job.device)
    rows: list[dict[str, Any]] = []
    runner = InlineRunner(parts, Stop(), on_row=rows.append, on_score=lambda score: None)
    runner.run()
    runner.close()
    return parts, rows


@pytest.mark.parametrize(
    ("settings", "state_shape", "frames_per_step", "natively"),
    [
        ({"env.episodic_life": False, "env.clip_reward": False}, (4, 84, 84), 4, True),
        ({"env.episodic_life": False, "env.clip_reward": True}, (4, 84, 84), 4, True),
        ({"env.episodic_life": True, "env.clip_reward": False}, (4, 84, 84), 4, False),
        ({"env.episodic_life": True, "env.clip_reward": True}, (4, 84, 84), 4, False),
        ({"env.noop_max": 0}, (4, 84, 84), 4, True),
        ({"env.fire_reset": False}, (4, 84, 84), 4, True),
        ({"env.max_pool": False}, (4, 84, 84), 4, True),
        ({"env.frame_skip": 2}, (4, 84, 84), 2, True),
        ({"env.max_and_skip": False}, (4, 84, 84), 1, True),
        ({"replay.stack": 2}, (2, 84, 84), 4, True),
        *[({"env.resize": method}, (4, 84, 84), 4, method == "cv2_area") for method in RESIZE_METHODS],
        ({"env.to_channels_first": False}, (4, 84, 84), 4, False),
        ({"env.warp": False}, (4, 210, 160), 4, False),
        ({"env.warp": False, "env.to_channels_first": False}, (4, 210, 160), 4, False),
    ],
    ids=lambda value: "-".join(f"{key}={choice}" for key, choice in value.items()) if isinstance(value, dict) else "",
)
def test_every_choice_trains(
    settings: dict[str, Any], state_shape: tuple[int, ...], frames_per_step: int, natively: bool
) -> None:
    """Once each, in the lanes that a run would take: tests/equivalence/test_native_atari.py has both give the same ticks."""
    parts, rows = train(settings)
    assert type(parts.env) is (AtariLanes if natively else SerialLanes)
    assert parts.spec.state_shape(parts.stack) == state_shape
    for name, value in settings.items():
        if name.startswith("env."):
            assert parts.config.env[name.removeprefix("env.")] == value
    assert parts.spec.clip_rewards == settings.get("env.clip_reward", True)
    assert (rows[-1]["step"], rows[-1]["frame"]) == (STEPS, STEPS * frames_per_step)
    assert parts.learner.updates == 20  # the second half of the steps, one for four
    assert rows[-1]["loss"] > 0
    assert math.isfinite(rows[-1]["loss"])


def test_without_channels_first_the_network_learns_the_same(runs: Any) -> None:
    """One grey channel: (84, 84, 1) and (1, 84, 84) are the same bytes, so only the wrapper's time is left out."""
    short_games = {"env.max_frames_per_game": 400, "evaluator.at_end": True, "evaluator.episodes": 1}
    both = [
        fastdqn.train(
            "breakout",
            steps=STEPS,
            off=["native_atari"],
            settings=TINY_ATARI | short_games | {"env.to_channels_first": on},
            quiet=True,
        )
        for on in (True, False)
    ]
    losses = [[(row["loss"], row["q_mean"]) for row in run.metrics() if row["loss"] is not None] for run in both]
    assert both[1].updates == 20
    assert len(set(losses[1])) == len(losses[1]) >= 2  # no two the same, so it learns
    assert losses[0] == losses[1]
    assert both[0].score is not None
    assert both[1].score is not None
    assert both[0].score.scores == both[1].score.scores
    first, last = (fastdqn.load(run) for run in both)
    images = [player.kind.make_single().reset(seed=0)[0] for player in (first, last)]
    assert [image.shape for image in images] == [(1, 84, 84), (84, 84, 1)]
    np.testing.assert_array_equal(first.values(images[0]), last.values(images[1]))
    for name, weights in first.network.state_dict().items():
        assert torch.equal(weights, last.network.state_dict()[name]), name


# ---------------------------------------------------------------- resize


def test_what_each_method_makes_of_a_image_three_times_too_large() -> None:
    image = np.random.default_rng(0).integers(0, 256, (30, 30)).astype(np.uint8)
    small = {method: make_resize(method, 10)(image) for method in RESIZE_METHODS}
    means = image.reshape(10, 3, 10, 3).mean((1, 3))  # no sum of 9 bytes has a mean half way between two bytes
    for method in ("cv2_area", "torch"):
        np.testing.assert_array_equal(small[method], np.rint(means), err_msg=method)
    np.testing.assert_allclose(small["pillow"], means, atol=1)  # it rounds twice: rows first, then columns
    np.testing.assert_array_equal(small["cv2_linear"], image[1::3, 1::3])
    np.testing.assert_array_equal(small["cv2_nearest"], image[::3, ::3])
    for method in RESIZE_METHODS:
        assert (small[method].dtype, small[method].shape) == (np.uint8, (10, 10)), method
        small[method][0] = 0  # and it can be written to


def test_the_methods_give_different_images_of_a_game() -> None:
    """210 lines on 84: each method has its own idea of a pixel that belongs to two."""
    images = {}
    for method in RESIZE_METHODS:
        kind = atari_kind("pong", {"resize": method, "noop_max": 0})
        assert kind is not None
        images[method] = kind.make_single().reset(seed=0)[0]
        assert images[method].shape == (1, 84, 84)
    assert len({image.tobytes() for image in images.values()}) == len(RESIZE_METHODS)
    for method, image in images.items():
        assert np.abs(image.astype(int) - images["cv2_area"]).mean() < 8, method  # but all of them show the game


@pytest.mark.parametrize("method", RESIZE_METHODS)
def test_opencv_is_needed_by_its_own_methods_only(method: ResizeMethod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    kind = atari_kind("pong", {"resize": method})
    assert kind is not None
    if method.startswith("cv2"):
        with pytest.raises(UserError, match=rf"env.resize={method} needs .*opencv-python-headless.*fastdqn\[image\]"):
            kind.make_single()
    else:
        env = kind.make_single()
        env.reset(seed=0)
        assert env.step(0)[0].std() > 0


def test_another_image_departs_from_the_protocol_and_needs_the_textbook_chain() -> None:
    for method in RESIZE_METHODS[1:]:
        assert read_settings("pong", {"resize": method}).departures == {"resize": method}
        assert read_settings("pong", {"resize": method}).only_textbook == [f"resize={method}"]
        with pytest.raises(UserError, match="native_atari does not apply to pong"):
            prepare("pong", settings={"env.resize": method, "switches.on": ["native_atari"]})
    assert read_settings("pong", {"resize": "cv2_area"}).departures == {}
    assert read_settings("pong", {"resize": "cv2_area"}).only_textbook == []
    assert read_settings("pong", {"warp": False}).departures == {"warp": False}
    assert read_settings("pong", {"screen": 42}).departures == {"screen": 42}
    assert read_settings("pong", {"to_channels_first": False}).departures == {}  # the same image


def test_torch_resizes_beside_the_learners_threads() -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        make_resize("torch", 84)(np.zeros((210, 160), np.uint8))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
