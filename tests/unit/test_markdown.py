"""Tables and figures of the Markdown pages, written from records."""

import json

import pytest

from fastdqn.errors import UserError
from fastdqn.report.markdown import main, rewrite
from fastdqn.report.records import load_records

ROWS = [
    {"rung": "textbook", "steps_per_second": 1234.4, "samples_per_step": 4.0, "speed_verdict": "not measured"},
    {
        "rung": "+ frame_ring",
        "steps_per_second": 2469.0,
        "change": 2.0,
        "change_interval": [1.9, 2.1],
        "vs_textbook": 2.0,
        "samples_per_step": 4.0,
        "speed_verdict": "faster",
        "learning_verdict": "learns as well",
        "learning": {"reached": 7},
    },
    {"rung": "default + tf32", "skipped": "needs a CUDA device"},
]
PAGE = """# A page

<!-- table 2026-01-02-mine -->
old
<!-- end -->

It is <!--= 2026-01-02-mine; + frame_ring; vs_textbook; .1f -->old<!--/--> times as fast,
<!--= 2026-01-02-mine; + frame_ring; learning.reached; d --><!--/--> seeds, <!--= 2026-01-02-mine; ; title; s -->x<!--/-->.
"""


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "benchmarks" / "records" / "2026-01-02-mine"
    path.mkdir(parents=True)
    record = {
        "version": 1,
        "kind": "ladder",
        "id": path.name,
        "title": "Mine",
        "command": "fastdqn bench ladder mine",
        "machine": {"usable_cores": 2, "cpu": "A processor", "gpu": None},
        "rows": ROWS,
    }
    (path / "record.json").write_text(json.dumps(record))
    return tmp_path


def records_in(folder):
    return {record.id: record for record in load_records([str(folder / "benchmarks" / "records")])}


def test_tables_and_figures_are_written(folder):
    text = rewrite(PAGE, records_in(folder), folder / "docs")
    lines = text.splitlines()
    assert "| + frame_ring | 2,469 | 2.00 (1.90 to 2.10) | 2.00 | 4.00 | faster | learns as well |" in lines
    assert "| textbook | 1,234 |  |  | 4.00 | not measured |  |" in lines
    assert "minutes to target" not in text, "nor does a column in which nothing was measured"
    assert "tf32" not in text, "a rung that was skipped here says nothing"
    assert "[2026-01-02-mine](../benchmarks/records/2026-01-02-mine)" in text
    assert "`fastdqn bench ladder mine` on 2 CPU cores (A processor)" in text
    assert "-->2.0<!--/--> times" in text
    mark = "<!--= 2026-01-02-mine; + frame_ring; change; x -->"
    assert rewrite(mark + "<!--/-->", records_in(folder), folder) == mark + "2.00x (1.90 to 2.10)<!--/-->"
    assert "-->7<!--/--> seeds" in text
    assert "-->Mine<!--/-->" in text
    assert "old" not in text


def test_writing_twice_changes_nothing(folder):
    once = rewrite(PAGE, records_in(folder), folder)
    assert rewrite(once, records_in(folder), folder) == once
    (folder / "page.md").write_text(PAGE)
    assert main([str(folder / "page.md")], str(folder / "benchmarks" / "records")) == 0
    assert (folder / "page.md").read_text() == once


def test_a_page_without_marks_stays(folder):
    assert rewrite("nothing <!-- here -->\n", {}, folder) == "nothing <!-- here -->\n"


@pytest.mark.parametrize(
    ("mark", "sentence"),
    [
        ("<!-- table 2026-01-02-other -->\n<!-- end -->", "There is no record '2026-01-02-other'"),
        ("<!--= 2026-01-02-mine; + nothing; vs_textbook; .1f --><!--/-->", r"has no row '\+ nothing'"),
    ],
)
def test_what_is_not_there_is_refused(folder, mark, sentence):
    with pytest.raises(UserError, match=sentence):
        rewrite(mark, records_in(folder), folder)
