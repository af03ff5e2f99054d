"""The documents tell the truth: the map names every file, the pages name every key, links lead somewhere, examples run."""

import ast
import doctest
import os
import re
import shlex
import textwrap
from dataclasses import fields
from pathlib import Path

import pytest
import tyro

from fastdqn.cli import Command
from fastdqn.config import setting_rows
from fastdqn.env.atari_settings import PROTOCOLS, AtariSettings
from fastdqn.evaluator import Score
from fastdqn.metrics import Meter, Timers
from fastdqn.processes.control import control_fields
from fastdqn.processes.figures import Figures
from fastdqn.processes.shared import make_shared
from fastdqn.report.markdown import rewrite
from fastdqn.report.records import load_records
from fastdqn.run import folder
from fastdqn.run.machine import describe_machine
from fastdqn.switches import LADDER, SWITCHES

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "fastdqn"
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])


def read(name: str) -> str:
    return (DOCS / name).read_text()


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_map_names_every_source_file_and_no_other():
    """A line of the map is '- `env/base.py`: what it is'."""
    here = {str(path.relative_to(SOURCE)) for suffix in ("*.py", "*.yaml", "py.typed") for path in SOURCE.rglob(suffix)}
    named = re.findall(r"^- `([\w/]+\.(?:py|yaml|typed))`: \S", read("map.md"), re.MULTILINE)
    assert here - set(named) == set(), "add a line to docs/map.md at the place where a reader should meet the file"
    assert set(named) - here == set(), "docs/map.md names files that are not there"
    assert len(named) == len(set(named)), "a file is named twice"


def test_every_switch_has_its_line():
    """A section '## name' with its file, its promise and the test that holds it to that promise."""
    sections = dict(re.findall(r"^## `?(\w+)`?\n(.*?)(?=^## |\Z)", read("switches.md"), re.MULTILINE | re.DOTALL))
    for switch in LADDER:
        assert switch.name in sections, f"add a section {switch.name} to docs/switches.md"
        text = sections[switch.name]
        assert f"`{switch.file}`" in text, f"{switch.name}: its section does not name its file"
        assert switch.promise.name in text, f"{switch.name}: its section does not name its promise"
        tests = re.findall(r"`(tests/[\w/]+\.py)`", text)
        assert tests, f"{switch.name}: its section names no test"
        assert not [test for test in tests if not (ROOT / test).is_file()], f"{switch.name}: a test that is not there"


def test_no_page_names_a_switch_that_is_gone():
    for page in PAGES:
        for names in re.findall(r"--(?:on|off) ([\w,]+)", page.read_text()):
            unknown = [name for name in names.split(",") if name not in SWITCHES and name not in ("a", "b", "c", "NAME")]
            assert not unknown, f"{name_of(page)}: {unknown}"


def test_no_page_names_a_setting_that_is_gone():
    known = {key for key, _, _ in setting_rows()}
    sections = "|".join({key.split(".")[0] for key in known if "." in key})
    for page in PAGES:
        keys = re.findall(rf"--set ((?:{sections})\.\w+)=|`((?:{sections})\.\w+)(?:=[^`]*)?`", page.read_text())
        unknown = {key for pair in keys for key in pair if key and not key.endswith((".py", ".jsonl"))} - known
        assert not unknown, f"{name_of(page)}: {unknown}"


MODEL_FACTS = {"env_id", "protocol", "step", "update", "state_shape", "num_actions", "saved_at"}


def keys_of_processes() -> set[str]:
    """Of a line of metrics of a run in processes."""
    control = make_shared(control_fields(1), "a test")
    line = Figures(control, 1, "cpu", 0, DOCS).line({"learner": os.getpid()}, [0], 0, [0])
    return {*line, "restarts", "hung"}


def test_every_key_of_a_run_folder_is_explained():
    row = Meter(Timers(), frame_skip=1, batch_size=1, window_episodes=1).row(1, 1, 0.5, None, None)
    files = set(re.findall(r"^\| `([\w.]+\.(?:yaml|json|jsonl|safetensors|png))` \|", read("run-folder.md"), re.MULTILINE))
    assert {folder.CONFIG, folder.MACHINE, folder.METRICS, folder.MODEL, folder.CURVE} <= files
    keys = (
        set(row)
        | keys_of_processes()
        | {field.name for field in fields(Score)}
        | set(describe_machine())
        | {"run"}
        | MODEL_FACTS
    )
    cells = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", read("run-folder.md"), re.MULTILINE)
    names = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    explained = {name.replace("actorN_", "actor0_").replace("ROLE_", "learner_") for name in names}
    assert keys - explained == set(), "add a line to docs/run-folder.md"
    assert explained - keys == set(), "docs/run-folder.md explains keys that are gone"


def test_the_protocols_are_the_ones_in_the_code():
    text = read("protocols.md")
    for rule in PROTOCOLS["classic"]:
        values = [str(PROTOCOLS[name][rule]).lower() for name in ("classic", "machado")]
        assert re.search(rf"^\| `{rule}` \| {values[0]} \| {values[1]} \|", text, re.MULTILINE), rule
    for name in AtariSettings.model_fields:
        assert f"`{name}`" in text, name


def test_links_lead_somewhere():
    targets = [(page, target) for page in PAGES for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text())]
    assert len(targets) > 50
    dead = [f"{name_of(page)}: {target}" for page, target in targets if not (page.parent / target).exists()]
    assert not dead


def test_files_named_in_the_text_exist():
    """`tests/...`, `examples/...` and `docs/...` in backticks."""
    named = r"`((?:tests|examples|docs)/[\w./-]+\.\w+)`"
    targets = [(page, target) for page in PAGES for target in re.findall(named, page.read_text())]
    assert len(targets) > 50
    assert not [f"{name_of(page)}: {target}" for page, target in targets if not (ROOT / target).exists()]


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, text) of every fenced block."""
    return re.findall(r"^ *```(\w*)\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL)


def commands_of(page: Path) -> list[str]:
    """Every `fastdqn ...` line of a block, and every example's own one."""
    lines = [line for _, text in blocks(page) for line in text.splitlines()]
    lines += re.findall(r"`(fastdqn [a-z]+ [^`]*--[^`]+)`", page.read_text())
    return [line for line in lines if re.match(r"(PYTHONPATH=\w+ )?fastdqn ", line)]


def test_commands_are_understood(capsys):
    """They are parsed by the real command line."""
    commands = {line: page for page in PAGES for line in commands_of(page)}
    assert len(commands) > 50
    for line, page in commands.items():
        words = shlex.split(line.partition("  #")[0])
        try:
            understood = tyro.cli(Command, args=words[words.index("fastdqn") + 1 :])
        except SystemExit:
            pytest.fail(f"{name_of(page)}: {line}\n{capsys.readouterr().err}")
        assert understood is not None, f"{name_of(page)}: {line}"


def test_python_in_the_text_is_python():
    texts = [(page, text) for page in PAGES for language, text in blocks(page) if language == "python"]
    assert texts
    for page, text in texts:
        ast.parse(textwrap.dedent(text), filename=name_of(page))


def test_tables_and_figures_are_what_the_records_say():
    """`make tables` writes them; nobody else may."""
    folder = ROOT / "benchmarks" / "records"
    records = {record.id: record for record in load_records([str(folder)])} if any(folder.glob("**/record.json")) else {}
    for page in (ROOT / "README.md", DOCS / "results.md", DOCS / "seeds.md"):
        assert rewrite(page.read_text(), records, page.parent) == page.read_text(), f"{name_of(page)}: make tables"


def test_every_page_is_in_the_index():
    index = read("README.md")
    for page in DOCS.rglob("*.md"):
        target = str(page.relative_to(DOCS))
        assert page.name == "README.md" or f"]({target})" in index, target


@pytest.mark.parametrize(("page", "lines"), [("data-path.md", 15), ("add-a-learning-part.md", 10)])
def test_the_numbers_of_a_page_are_real(page, lines):
    result = doctest.testfile(str(DOCS / page), module_relative=False)
    assert result.attempted > lines
    assert result.failed == 0
