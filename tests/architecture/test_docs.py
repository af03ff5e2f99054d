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
from fastdqn.report.markdown import rewrite
from fastdqn.report.records import load_records
from fastdqn.run import folder
from fastdqn.run.machine import describe_machine
from fastdqn.runner.shared import make_shared
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


@pytest.mark.parametrize("switch", LADDER, ids=lambda switch: switch.name)
def test_every_switch_has_its_line(switch):
    """A section '## name' with its file, its promise and the test that holds it to that promise."""
    sections = dict(re.findall(r"^## `?(\w+)`?\n(.*?)(?=^## |\Z)", read("switches.md"), re.MULTILINE | re.DOTALL))
    assert switch.name in sections, "add a section to docs/switches.md"
    text = sections[switch.name]
    assert f"`{switch.file}`" in text
    assert switch.promise.name in text
    tests = re.findall(r"`(tests/[\w/]+\.py)`", text)
    assert tests
    assert all((ROOT / test).is_file() for test in tests)


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


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_named_in_the_text_exist(page):
    """`tests/...`, `examples/...` and `docs/...` in backticks."""
    for target in re.findall(r"`((?:tests|examples|docs)/[\w./-]+\.\w+)`", page.read_text()):
        assert (ROOT / target).exists(), target


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, text) of every fenced block."""
    return re.findall(r"^ *```(\w*)\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_are_understood(page):
    """Every `fastdqn ...` line of a block, and every example's own one, is parsed by the real command line."""
    lines = [line for _, text in blocks(page) for line in text.splitlines()]
    for line in lines + re.findall(r"`(fastdqn [a-z]+ [^`]*--[^`]+)`", page.read_text()):
        words = shlex.split(line.partition("  #")[0]) if re.match(r"(PYTHONPATH=\w+ )?fastdqn ", line) else []
        if "fastdqn" in words:
            given = words[words.index("fastdqn") + 1 :]
            assert tyro.cli(Command, args=given) is not None, line


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_in_the_text_is_python(page):
    for language, text in blocks(page):
        if language == "python":
            ast.parse(textwrap.dedent(text))


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "results.md", DOCS / "seeds.md"], ids=name_of)
def test_tables_and_figures_are_what_the_records_say(page):
    """`make tables` writes them; nobody else may."""
    folder = ROOT / "benchmarks" / "records"
    records = {record.id: record for record in load_records([str(folder)])} if any(folder.glob("**/record.json")) else {}
    assert rewrite(page.read_text(), records, page.parent) == page.read_text()


def test_every_page_is_in_the_index():
    index = read("README.md")
    for page in DOCS.rglob("*.md"):
        target = str(page.relative_to(DOCS))
        assert page.name == "README.md" or f"]({target})" in index, target


def test_the_numbers_of_the_data_path_are_real():
    result = doctest.testfile(str(DOCS / "data-path.md"), module_relative=False)
    assert result.attempted > 15
    assert result.failed == 0
