"""What a user looks at: the panel, plain lines, and films."""

import io
import sys
from itertools import pairwise
from types import ModuleType

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

import fastdqn
from fastdqn.errors import UserError
from fastdqn.play import film
from fastdqn.play.film import Shot, best_of, play, write_film
from fastdqn.run import view as views
from fastdqn.run.curve import draw_curve, human_count
from fastdqn.run.view import LiveView, NotebookView, PlainView, Silent, Snapshot, clock, make_view, panel, time_left

ROW = {
    "seconds": 30.0,
    "step": 12_345,
    "episode": 67,
    "return_mean": -0.5,
    "score_mean": 1.25,
    "steps_per_second": 4321.0,
    "updates_per_second": 135.0,
    "samples_per_step": 4.0,
    "epsilon": 0.42,
    "loss": 0.0123,
    "q_mean": 0.7,
    "env_seconds": 1.0,
    "act_seconds": 2.0,
    "store_seconds": 1.0,
    "sample_seconds": 1.0,
    "learn_seconds": 4.0,
    "other_seconds": 1.0,
    "eval_seconds": 0.0,
}


def snapshot(**changes):
    given = {"title": "snake  runs/mine", "step": 12_400, "seconds": 30.0, "share_done": 0.25, "row": ROW}
    return Snapshot(**{**given, **changes})


def drawn(shown):
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(panel(shown))
    return console.export_text()


@pytest.fixture
def clock_of_views(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(views.time, "monotonic", lambda: now[0])
    return now


# ---------------------------------------------------------------- the panel


def test_the_panel_shows_what_the_issue_asks_for():
    text = drawn(snapshot())
    for part in ("12,400", "4,321", "135", "4.00", "-0.50", "1.25", "0.42", "25%, 1:30 left", "runs/mine", "0.0123"):
        assert part in text, part
    for share in ("env 10%", "act 20%", "learn 40%", "other 10%"):
        assert share in text


def test_the_panel_before_the_first_row():
    text = drawn(snapshot(row={}, step=0, seconds=0.2, share_done=0.0))
    assert "steps/s" in text
    assert "-" in text


def test_the_panel_without_games_updates_or_a_limit():
    text = drawn(snapshot(row=ROW | {"return_mean": None, "loss": None, "q_mean": None}, share_done=None))
    assert "0:30" in text, "without a limit there is no time left, only the time so far"


def test_the_panel_while_evaluating_and_after():
    assert "40% of them played" in drawn(snapshot(evaluated_share=0.4))
    assert "mean score 3" in drawn(snapshot(last_score="mean score 3"))


def test_brackets_in_a_name_are_no_markup():
    assert "runs/a[/b]" in drawn(snapshot(title="snake  runs/a[/b]"))
    console = Console(record=True, width=80, file=io.StringIO())
    PlainView(console).say("runs/a[/b] and [red]")
    assert "runs/a[/b] and [red]" in console.export_text()


@pytest.mark.parametrize(
    ("share", "seconds", "text"),
    [
        (None, 50, ""),
        (0.0, 50, ""),
        (0.5, 0.5, ""),  # too early to tell
        (0.5, 60, "50%, 1:00 left"),
        (0.1, 600, "10%, 1:30:00 left"),
        (1.0, 75, "100 %, took 1:15"),
    ],
)
def test_time_left(share, seconds, text):
    assert time_left(snapshot(share_done=share, seconds=seconds)) == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.9, "0:59"), (61, "1:01"), (3661, "1:01:01")])
def test_clock(seconds, text):
    assert clock(seconds) == text


# ---------------------------------------------------------------- views


def test_plain_lines_come_now_and_then(clock_of_views):
    console = Console(record=True, width=200, file=io.StringIO())
    view = PlainView(console)
    view.refresh(snapshot())
    assert console.export_text(clear=False) == "", "not before the time is up"
    clock_of_views[0] += views.PLAIN_SECONDS
    view.refresh(snapshot())
    view.refresh(snapshot())
    expected = "step 12,400, 25%, 1:30 left, 4,321 steps/s, 135 updates/s, 4 samples/step, return -0.50, epsilon 0.42, "
    expected += "time env 10% act 20% learn 40%\n"
    assert console.export_text() == expected


def test_plain_lines_without_a_row_and_while_evaluating(clock_of_views):
    console = Console(record=True, width=200, file=io.StringIO())
    view = PlainView(console)
    for shown in (snapshot(row={}), snapshot(evaluated_share=0.5)):
        clock_of_views[0] += views.PLAIN_SECONDS
        view.refresh(shown)
    assert console.export_text().splitlines() == ["step 12,400, 25%, 1:30 left", "evaluating, 50% of the games played"]


def test_the_live_view_shows_the_last_state_when_it_closes(clock_of_views):
    file = io.StringIO()
    view = LiveView(Console(file=file, force_terminal=True, width=80))
    view.say("hello [/b]")
    view.refresh(snapshot())
    view.refresh(snapshot(step=99_999))  # too soon to be drawn
    assert "99,999" not in file.getvalue()
    view.close()
    assert "99,999" in file.getvalue()
    assert "hello [/b]" in file.getvalue()
    hide, show = "\x1b[?25l", "\x1b[?25h"
    assert file.getvalue().rindex(show) > file.getvalue().rindex(hide), "the cursor is back"


def test_a_notebook_gets_one_panel_that_is_replaced(monkeypatch, clock_of_views):
    shown = []

    class Handle:
        def update(self, content):
            shown.append(content)

    display = ModuleType("IPython.display")
    display.display = lambda content, display_id: Handle()
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    view = NotebookView()
    view.refresh(snapshot())
    view.refresh(snapshot())
    view.close()
    assert len(shown) == 2


def test_which_view_is_made(monkeypatch):
    assert isinstance(make_view(quiet=True), Silent)
    assert isinstance(make_view(), PlainView), "no terminal here"


# ---------------------------------------------------------------- the curve


def test_a_curve_can_be_drawn_of_anything_a_run_leaves(tmp_path):
    rows = [
        {"step": step, "score_mean": None if step < 20 else step / 10, "steps_per_second": 100} for step in range(0, 50, 10)
    ]
    scores = [{"step": 30, "mean": 2.0, "interval": [1.0, 3.0]}]
    for name, some_rows, some_scores in (("all", rows, scores), ("early", rows[:1], []), ("one", rows[:1], scores)):
        path = tmp_path / f"{name}.png"
        draw_curve(path, "a title with $ and _", some_rows, some_scores)
        assert Image.open(path).size[0] > 500


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (950, "950"), (1500, "1.5k"), (2e6, "2M"), (3e9, "3B")])
def test_counts_for_people(value, text):
    assert human_count(value) == text


# ---------------------------------------------------------------- films


@pytest.fixture(scope="module")
def player(trained):
    return fastdqn.load(trained)


@pytest.fixture(scope="module")
def shots(player):
    return max((list(play(player, "rgb_array", seed, 40)) for seed in range(5)), key=len)


def test_a_game_shot_by_shot(player, shots):
    assert [shot.step for shot in shots] == list(range(len(shots)))
    assert [shot.score for shot in shots] == sorted(shot.score for shot in shots), "food is never taken away"
    assert shots[0].image.dtype == np.uint8
    again = list(play(player, "rgb_array", 3, 40))
    assert [shot.score for shot in again] == [shot.score for shot in play(player, "rgb_array", 3, 40)]
    assert len(list(play(player, "rgb_array", 3, 1))) == 2, "the start and one step"


def test_the_film_shows_the_game_that_the_evaluator_would_play(player):
    """The same seed, the same greedy actions: score and length agree."""
    from fastdqn.build import build_evaluator
    from fastdqn.switches import resolve

    evaluator = build_evaluator(player.config, player.kind, player.greedy, 3, resolve((), ())[0])
    score = evaluator.evaluate(3, [11, 12, 13], 0, 0)
    filmed = [list(play(player, "ansi", seed, 1000))[-1] for seed in (11, 12, 13)]
    assert sorted(zip(score.scores, score.steps, strict=True)) == sorted((shot.score, shot.step) for shot in filmed)


def test_the_best_game_is_kept(player):
    told = []
    best = best_of(player, 0, 6, 40, told.append)
    scores = [list(play(player, "ansi", seed, 40))[-1].score for seed in range(6)]
    assert best[-1].score == max(scores)
    assert len(told) == 6


def test_a_gif_has_every_frame_and_moves(tmp_path, shots):
    path = write_film(tmp_path / "new" / "film.gif", shots, 10)
    with Image.open(path) as gif:
        assert gif.n_frames == len(shots) >= 3
        assert gif.size == shots[0].image.shape[1::-1]
        frames, durations = [], []
        for i in range(gif.n_frames):
            gif.seek(i)
            frames.append(np.asarray(gif.convert("RGB")).astype(int))
            durations.append(gif.info["duration"])
    assert durations[:-1] == [100] * (len(shots) - 1)
    assert durations[-1] == 1500, "the end can be read"
    changes = [np.abs(one - two).max() for one, two in pairwise(frames)]
    assert min(changes[:-1]) > 50, "every step changes the image"
    assert np.abs(frames[0] - shots[0].image).mean() < 10, "the colours are about right"


def test_a_very_long_gif_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(film, "MAX_GIF_FRAMES", 4)
    images = [Shot(255 * np.eye(9, dtype=np.uint8)[i].repeat(27).reshape(9, 9, 3), 0.0, i) for i in range(9)]
    with Image.open(write_film(tmp_path / "film.gif", images, 10)) as gif:
        assert gif.n_frames == 4


@pytest.mark.parametrize("size", [(64, 48), (63, 47)], ids=["even", "odd"])
def test_an_mp4_has_every_frame(tmp_path, size):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    height, width = size
    images = [Shot(np.full((height, width, 3), 20 * i, np.uint8), 0.0, i) for i in range(10)]
    path = write_film(tmp_path / "film.mp4", images, 10)
    frames, seconds = ffmpeg.count_frames_and_secs(str(path))
    assert (frames, seconds) == (10, pytest.approx(1.0, abs=0.11))
    reader = ffmpeg.read_frames(str(path))
    meta = next(reader)
    assert meta["size"] == (width + width % 2, height + height % 2)
    first, *_, last = (np.frombuffer(frame, np.uint8) for frame in reader)
    assert abs(int(np.median(first)) - 0) < 12
    assert abs(int(np.median(last)) - 180) < 12


def test_what_cannot_be_filmed(tmp_path, shots):
    with pytest.raises(UserError, match=r"\.gif or a \.mp4"):
        write_film(tmp_path / "new" / "film.webm", shots, 10)
    with pytest.raises(UserError, match="gives no image"):
        write_film(tmp_path / "new" / "film.gif", [Shot(None, 0.0, 0)], 10)
    assert not (tmp_path / "new").exists()


def test_in_the_terminal(player, capsys):
    last = film.watch_in_terminal(player, 3, 12)
    assert last.step > 0
    assert str(last.image).splitlines()[1].strip() in capsys.readouterr().out


# ---------------------------------------------------------------- roles in processes


def test_the_panel_of_roles_says_who_does_what_and_who_waits():
    told = {
        "learner_uss_mb": 490.0,
        "learner_cpu_percent": 99.0,
        "actor0_uss_mb": 247.0,
        "actor0_cpu_percent": 18.0,
        "actor0_steps_per_second": 150.0,
        "weights_age_steps": 16.0,
        "slots_waiting": 2,
        "replay_rows": 20_000,
        "load_average": 1.2,
        "shared_mb": 13.0,
        "restarts": 1,
        "bottleneck": "the actors wait for the learner 85% of the time: fewer of them would do",
        "actors_env_percent": 9.0,
        "actors_act_percent": 4.0,
        "actors_weights_percent": 2.0,
        "actors_wait_percent": 85.0,
    }
    text = drawn(snapshot(row=ROW | told))
    for words in ("135 batches/s", "150 steps/s", "env 9 %", "weights 2 %", "waiting 85 %", "1 replaced", "the actors wait"):
        assert words in text
