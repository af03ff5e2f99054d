"""A replay in a file: the same rows, no name on the disk, and no room is said at the start."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import torch

import fastdqn
from fastdqn.prepare import prepare
from fastdqn.replay.place import in_file, in_memory
from fastdqn.run.preflight import check_disk
from tests.unit.tiny import TINY_SNAKE, train_tiny

FILE = {"replay.place": "file"}


def test_an_array_in_a_file_is_an_array_of_zeros(tmp_path):
    array = in_file(tmp_path)((3, 40, 2), np.int32)
    np.testing.assert_array_equal(array, in_memory((3, 40, 2), np.int32))
    array[:] = 7
    assert array.sum() == 7 * 240


def test_the_file_has_no_name(tmp_path):
    array = in_file(tmp_path)((1000,), np.float64)
    array[:] = 1
    assert os.listdir(tmp_path) == []


def test_no_room_is_a_sentence(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(fastdqn.UserError, match=r"no room for a replay of 8\.0 GB"):
        in_file(tmp_path)((10**9,), np.float64)


def test_more_than_the_disk_has_is_refused_with_what_fits(runs):
    with pytest.raises(fastdqn.UserError, match=r"the disk of .* The largest that fits: --set replay.capacity=\d+"):
        train_tiny(settings=FILE | {"replay.capacity": 10**13})
    assert not runs.exists()


def test_a_replay_in_a_file_needs_no_memory():
    """Ten times what is free in RAM is no reason to refuse it there."""
    job = prepare("snake", settings=TINY_SNAKE | FILE)
    (replay,) = [need for need in job.needs if need.name == "replay"]
    assert replay.on_disk
    check_disk(job.needs, Path("somewhere/that/is/not/there"))


def test_a_run_learns_the_same_from_a_file(runs):
    weights = [
        fastdqn.load(train_tiny(steps=1000, settings=place | {"learner.threads": 1}, device="cpu")).network.state_dict()
        for place in ({}, FILE)
    ]
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name]), name
    assert {path.name for path in runs.iterdir() if not path.is_dir()} == set()


def test_no_other_replay_can_live_in_a_file():
    with pytest.raises(fastdqn.UserError, match="frame_ring"):
        train_tiny(settings=FILE, off=["frame_ring"])
