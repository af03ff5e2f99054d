"""Measuring processes: they answer, their last words are heard, and none of them outlives the one who asked."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from fastdqn.bench import children as children_module
from fastdqn.bench.children import Children
from fastdqn.errors import UserError

DEADLINE = 60.0  # seconds; reached only when something is broken. What hangs hangs for longer

# A child in small, without torch. Its task says what it does.
STAND_IN = """
import json, os, subprocess, sys, threading
from fastdqn.bench.child import answer, read_task

def note_pids(path, *pids):
    with open(path + ".part", "w") as file:
        file.write(" ".join(map(str, pids)))
    os.replace(path + ".part", path)

def start_another():
    return subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait(100)"])

task = read_task()
doing = task["do"]
if doing == "answer":
    print("progress, which is no answer", flush=True)
    answer({"number": task.get("number"), "pid": os.getpid(), "group": os.getpgid(0), "threads": threading.active_count()})
elif doing == "words":
    print("a first line of progress", flush=True)
    sys.exit("the last words\\nin two lines")
elif doing == "refuse":
    answer({"error": "This cannot be measured."})
    sys.exit(2)
elif doing == "list":
    print(json.dumps([1, 2]), flush=True)
elif doing == "hang":
    note_pids(task["pids"], os.getpid(), start_another().pid)
    threading.Event().wait(100)
elif doing == "hang alone":
    note_pids(task["pids"], os.getpid())
    threading.Event().wait(100)
elif doing == "turns":
    from fastdqn.bench.turns import turns_of
    turns = turns_of(task)
    for turn in range(turns.count + 1):
        with open(task["diary"], "a") as file:
            file.write(task["name"])
        if turn < turns.count:
            turns.over({"name": task["name"], "turn": turn})
    answer({"name": task["name"], "turn": "answer"})
elif doing == "leave one behind":
    note_pids(task["pids"], os.getpid(), start_another().pid)
    sys.exit("died with a child of its own")
elif doing == "answer and leave one behind":
    note_pids(task["pids"], os.getpid(), start_another().pid)
    answer({"number": 7})
"""


class StandIns(Children):
    """Children that are the stand-in unless another module is named."""

    def ask(self, task, module="fastdqn_stand_in", while_waiting=lambda: None):
        return super().ask(task, module, while_waiting)


@pytest.fixture
def children(tmp_path, monkeypatch):
    (tmp_path / "fastdqn_stand_in.py").write_text(STAND_IN)
    (tmp_path / "fastdqn_deaf.py").write_text("import sys\nsys.exit('I never listen')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")])))
    asking = StandIns()
    yield asking
    asking.close()


def until(condition, what):
    """The first true value of `condition`, asked again and again until the deadline."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {DEADLINE:.0f} s")


def pids_in(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def gone(pid: int) -> bool:
    """Ended; one that nobody has waited for yet counts as ended too."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return True


def assert_all_end(pids):
    assert pids
    until(lambda: all(map(gone, pids)), f"the end of {pids}")


@pytest.fixture
def left_over():
    """Pids that are ended after the test, whatever it found."""
    pids = []
    yield pids
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)


# ---------------------------------------------------------------- answers


def test_a_child_answers_with_its_last_line(children):
    answer = children.ask({"do": "answer", "number": 3})
    assert answer["number"] == 3
    assert answer["group"] == answer["pid"], "a group of its own: Ctrl-C in a terminal does not reach it"
    assert answer["threads"] == 2, "one of them waits for the end of the parent"
    assert gone(answer["pid"])


def test_somebody_is_told_while_waiting(children):
    told = []
    children.ask({"do": "answer"}, while_waiting=lambda: told.append(1))
    assert told


def test_the_last_words_of_a_child_that_dies(children):
    with pytest.raises(RuntimeError, match=r"without an answer \(exit code 1\):\nthe last words\nin two lines"):
        children.ask({"do": "words"})


def test_a_module_that_does_not_exist(children):
    with pytest.raises(RuntimeError, match="No module named fastdqn_nobody"):
        children.ask({"do": "answer"}, module="fastdqn_nobody")


def test_a_child_that_dies_before_it_has_read_its_task(children):
    """A task larger than a pipe holds, so that writing it cannot end before the child does."""
    with pytest.raises(RuntimeError, match="I never listen"):
        children.ask({"do": "answer", "ballast": "x" * 2_000_000}, module="fastdqn_deaf")


def test_a_child_that_is_dead_when_its_task_is_written(children, tmp_path, monkeypatch):
    """The broken pipe is not what the user is told of."""
    path = tmp_path / "pids"
    script = f"import os, sys\nopen({str(path)!r}, 'w').write(str(os.getpid()))\nsys.exit('gone')"
    (tmp_path / "fastdqn_deaf.py").write_text(script)

    def late(task):
        until(lambda: pids_in(path) and gone(pids_in(path)[0]), "the child's end")
        return json.dumps(task)

    monkeypatch.setattr(children_module, "json", SimpleNamespace(dumps=late, loads=json.loads))
    with pytest.raises(RuntimeError, match=r"\ngone$"):
        children.ask({"do": "answer"}, module="fastdqn_deaf")


def test_a_sentence_from_the_child_is_the_users(children):
    with pytest.raises(UserError, match=r"^This cannot be measured\.$"):
        children.ask({"do": "refuse"})


def test_an_answer_that_is_none(children):
    with pytest.raises(RuntimeError, match=r"answered \[1, 2\]"):
        children.ask({"do": "list"})


# ---------------------------------------------------------------- nothing is left behind


def test_closing_ends_a_child_and_what_it_started(children, tmp_path, left_over):
    path = tmp_path / "pids"
    result = []

    def ask():
        try:
            result.append(children.ask({"do": "hang", "pids": str(path)}))
        except BaseException as fault:
            result.append(fault)

    asking = threading.Thread(target=ask)
    asking.start()
    pids = until(lambda: pids_in(path), "a child that hangs")
    left_over += pids
    assert len(pids) == 2
    assert not any(map(gone, pids))
    children.close()
    assert gone(pids[0]), "at once, not when somebody looks again"
    assert_all_end(pids)
    asking.join(DEADLINE)
    assert not asking.is_alive()
    assert isinstance(result[0], KeyboardInterrupt)


def test_ctrl_c_while_waiting_ends_the_child(children, tmp_path, left_over):
    path = tmp_path / "pids"

    def interrupt():
        if pids_in(path):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        children.ask({"do": "hang", "pids": str(path)}, while_waiting=interrupt)
    left_over += pids_in(path)
    assert len(left_over) == 2
    assert_all_end(left_over)


@pytest.mark.parametrize("doing", ["leave one behind", "answer and leave one behind"])
def test_a_child_that_leaves_one_of_its_own_behind(children, tmp_path, left_over, doing):
    """It holds the child's stdout open for minutes; nobody waits for that, and it is ended."""
    path = tmp_path / "pids"
    began = time.monotonic()
    if doing == "leave one behind":
        with pytest.raises(RuntimeError, match="died with a child of its own"):
            children.ask({"do": doing, "pids": str(path)})
    else:
        assert children.ask({"do": doing, "pids": str(path)}) == {"number": 7}
    assert time.monotonic() - began < DEADLINE
    left_over += pids_in(path)
    assert len(left_over) == 2
    assert_all_end(left_over)


def test_after_closing_nothing_is_asked_any_more(children):
    children.close()
    with pytest.raises(KeyboardInterrupt):
        children.ask({"do": "answer"})


def test_a_child_ends_when_its_parent_is_killed(children, tmp_path, left_over):
    """SIGKILL: the parent can do nothing any more, the end of stdin tells the child."""
    path = tmp_path / "pids"
    script = textwrap.dedent(f"""
        from fastdqn.bench.children import Children
        Children().ask({{"do": "hang alone", "pids": {str(path)!r}}}, "fastdqn_stand_in")
    """)
    parent = subprocess.Popen([sys.executable, "-c", script])
    try:
        pids = until(lambda: pids_in(path), "a child that hangs")
        left_over += pids
        assert not gone(pids[0])
    finally:
        parent.kill()
        parent.wait()
    assert_all_end(pids)


# ---------------------------------------------------------------- several at a time


def turn_task(name, tmp_path):
    return {"do": "turns", "name": name, "seconds": 1.0, "diary": str(tmp_path / "diary")}, "fastdqn_stand_in"


def test_in_turns_one_at_a_time_and_there_and_back(children, tmp_path):
    told = []
    children.ask_in_turns([turn_task(name, tmp_path) for name in "abc"], 3, lambda *speed: told.append(speed))
    assert (tmp_path / "diary").read_text() == "abc" + "abc" + "cba" + "abc", "a first look each, then three turns"
    assert [(number, speed["name"]) for number, speed, _ in told] == list(
        zip([0, 1, 2, 0, 1, 2, 2, 1, 0, 0, 1, 2], "abcabccbaabc", strict=True)
    )
    assert [final for _, _, final in told] == [False] * 9 + [True] * 3
    assert [speed["turn"] for _, speed, _ in told] == [0] * 3 + [1] * 3 + [2] * 3 + ["answer"] * 3


def test_a_task_without_turns_answers_at_once(children, tmp_path):
    told = []
    tasks = [({"do": "answer", "number": 5}, "fastdqn_stand_in"), turn_task("a", tmp_path)]
    children.ask_in_turns(tasks, 4, lambda *speed: told.append(speed))
    assert told[0][1]["number"] == 5
    assert [(number, final) for number, _, final in told] == [(0, True)] + [(1, False)] * 4 + [(1, True)]


def test_as_many_at_once_as_the_memory_holds(children, tmp_path, monkeypatch):
    free = iter([1000, 900, 800, 150, 2000, 1900])  # the fourth took 650, and 150 are left: four play, then the rest
    monkeypatch.setattr(children_module, "free_memory", lambda device: {"RAM": next(free)})
    children.ask_in_turns([turn_task(name, tmp_path) for name in "abcdef"], 1, lambda *speed: None)
    assert (tmp_path / "diary").read_text() == "abcd" + "abcd" + "ef" + "ef"


def test_a_fault_in_a_turn_ends_all(children, tmp_path, left_over):
    path = tmp_path / "pids"
    hang = {"do": "hang", "pids": str(path)}
    with pytest.raises(UserError, match="cannot be measured"):
        children.ask_in_turns([turn_task("a", tmp_path), ({"do": "refuse"}, "fastdqn_stand_in"), (hang, "")], 2, print)
    assert not path.exists(), "nobody is started after a fault"
    assert not children._running


def test_ctrl_c_in_a_turn_ends_all(children, tmp_path):
    def interrupt(number, speed, final):
        if speed["turn"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        children.ask_in_turns([turn_task(name, tmp_path) for name in "ab"], 4, interrupt)
    assert not children._running


def test_answers_keep_their_numbers(children):
    answers = {}
    children.ask_all(
        [{"do": "answer", "number": 10 * n} for n in range(7)], 3, lambda n, answer: answers.update({n: answer})
    )
    assert {number: answer["number"] for number, answer in answers.items()} == {n: 10 * n for n in range(7)}
    assert len({answer["pid"] for answer in answers.values()}) == 7


def test_one_at_a_time_is_in_order(children):
    order = []
    children.ask_all([{"do": "answer"} for _ in range(3)], 1, lambda number, answer: order.append(number))
    assert order == [0, 1, 2]


def test_several_run_at_the_same_time(children, tmp_path, left_over):
    """Two that hang do not keep the third from answering; an interrupt then ends all."""
    paths = [tmp_path / "first", tmp_path / "second"]
    tasks = [{"do": "hang", "pids": str(path)} for path in paths] + [{"do": "answer", "number": 5}]
    answers = {}

    def interrupt():
        if answers and all(map(pids_in, paths)):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        children.ask_all(tasks, 3, lambda number, answer: answers.update({number: answer["number"]}), interrupt)
    left_over += [pid for path in paths for pid in pids_in(path)]
    assert answers == {2: 5}
    assert len(left_over) == 4
    assert_all_end(left_over)


def test_a_fault_of_one_ends_the_others(children, tmp_path, left_over):
    path = tmp_path / "pids"
    (tmp_path / "fastdqn_stand_in.py").write_text(
        STAND_IN.replace(
            "task = read_task()",
            "task = read_task()\nwhile task['do'] == 'refuse' and not os.path.exists(task['pids']): pass",
        )
    )
    tasks = [{"do": "hang", "pids": str(path)}, {"do": "refuse", "pids": str(path)}, {"do": "answer"}]
    answered = []
    with pytest.raises(UserError, match="cannot be measured"):
        children.ask_all(tasks, 2, lambda number, answer: answered.append(number))
    left_over += pids_in(path)
    assert len(left_over) == 2
    assert_all_end(left_over)
    assert 0 not in answered


def test_an_interrupt_while_a_child_is_started_leaves_no_child(monkeypatch):
    """Between the start of a process and its place in the list nobody would end it."""
    ended = []

    class Starting:
        def __init__(self, task, module):
            signal.raise_signal(signal.SIGINT)

        def end(self):
            ended.append(self)

    monkeypatch.setattr(children_module, "Child", Starting)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            Children().ask({})
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(ended) == 1
