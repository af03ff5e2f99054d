"""The report: what it says, what it refuses, and that it loads nothing from elsewhere. Records here are fake."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fastdqn.cli import main
from fastdqn.errors import UserError
from fastdqn.report import write_report
from fastdqn.report.curves import curve_series
from fastdqn.report.headline import claims, headline, newest_of_each
from fastdqn.report.numbers import count, interval, number, span, tick_text, ticks, ticks_between, times
from fastdqn.report.page import in_reading_order, titles_of
from fastdqn.report.records import Record, load_records
from tests.fake_records import (
    SERVER,
    fake_envs,
    fake_gpu_ladder,
    fake_growth,
    fake_ladder,
    fake_peers,
    fake_profile,
    fake_record,
    fake_runs,
    fake_sweep,
    fake_throughput,
    write_fake_records,
    write_record,
)

MAKERS = [
    fake_ladder,
    fake_gpu_ladder,
    fake_peers,
    fake_sweep,
    fake_growth,
    fake_profile,
    fake_envs,
    fake_throughput,
    fake_runs,
]


def page_of(folder, *records):
    for record in records:
        write_record(folder / "records", record)
    return write_report([str(folder / "records")], str(folder / "report.html")).read_text(encoding="utf-8")


def loaded(record):
    return Record(record, Path("record.json"), record.get("metrics", []))


class Page(HTMLParser):
    """Tags with their attributes, and the text outside of style and script."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.words, self._inside = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside.append(tag)

    def handle_endtag(self, tag):
        if tag in self._inside:
            while self._inside.pop() != tag:
                pass

    def handle_data(self, data):
        if not {"style", "script"} & set(self._inside):
            self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A page of one record of every kind."""
    folder = tmp_path_factory.mktemp("report")
    write_fake_records(folder / "records")
    return write_report([str(folder / "records")], str(folder / "report.html")).read_text(encoding="utf-8")


def test_the_headline_names_textbook_and_peer(whole):
    said = "2.9× faster than the textbook DQN on 2 CPU cores, at equal samples per step; 4.1× faster than stable-baselines3"
    assert said in re.sub(r"</?em>", "", whole)


def test_one_machine_is_this_machine(tmp_path):
    assert headline([loaded(fake_ladder())]).startswith("2.9× faster than the textbook DQN on this machine, at equal")


def test_every_record_has_its_section_command_file_and_machine(whole):
    page = Page(whole)
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    copies = {attributes["data-copy"] for _, attributes in page.tags if "data-copy" in attributes}
    links = {attributes.get("href") for tag, attributes in page.tags if tag == "a"}
    for make in MAKERS:
        record = make()
        assert f"record-{record['id']}" in ids
        assert record["command"] in copies
        assert f"records/{record['id']}/record.json" in links
        assert record["title"] in page.text
        assert record["machine"]["cpu"] in page.text
        assert record["machine"]["commit"] in page.text


def test_numbers_have_thousands_and_units(whole):
    text = Page(whole).text
    for said in ("5,410", "1,860 → 5,410 steps/s", "5,275 to 5,545", "4,148,260", "1.23 min", "910 MB", "10.8 GB", "178 %"):
        assert said in text, said
    for label in ("environment steps per second", "score per game", "environment steps", "minutes of training",
                  "minutes until the target score of 15", "microseconds per environment step",
                  "times the steps per second of stable-baselines3", "learner.batch_size"):  # fmt: skip
        assert label in text, label


def test_verdicts_are_words_beside_glyphs(whole):
    text = Page(whole).text
    for said in ("▲ faster", "▼ slower", "≈ no clear difference", "✓ learns as well", "▼ learns worse", "? undecided",
                 "◆ reference", "○ not measured"):  # fmt: skip
        assert said in text, said
    assert "skipped: needs a processor with bfloat16 arithmetic" in text


def test_other_programs_that_disturbed_are_named(whole):
    text = Page(whole).text
    assert "others 41 %" in text
    assert "others 3 %" not in text


def test_the_page_loads_nothing(whole):
    """Not one address that a browser would fetch: no http, no files beside it, no imports in the style."""
    assert "http:" not in whole
    assert "https:" not in whole
    for tag, attributes in Page(whole).tags:
        assert "src" not in attributes, (tag, attributes)
        assert "srcset" not in attributes
        if tag == "link":
            assert attributes["href"] == "data:,"
    assert "@import" not in whole
    assert set(re.findall(r"url\(([^)]*)\)", whole)) == {"#hatch-down"}


def test_ids_are_unique_and_references_lead_somewhere(whole):
    page = Page(whole)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.tags:
        named = [attributes[key] for key in ("aria-labelledby", "aria-controls", "aria-describedby") if key in attributes]
        href = attributes.get("href", "")
        targets = " ".join(named).split() + ([href[1:]] if href.startswith("#") else [])
        assert set(targets) <= set(ids), attributes


def test_every_chart_says_in_words_what_it_shows(whole):
    images = re.findall(r'<svg [^>]*role="img"[^>]*>(<title id="[^"]+">[^<]+</title><desc id="[^"]+">[^<]+</desc>)?', whole)
    assert len(images) >= 30
    assert all(images)


def test_what_grows_has_a_chart_each_with_the_run_as_it_is_among_its_points(tmp_path):
    html = page_of(tmp_path, fake_growth())
    text = " ".join(Page(html).words)
    for heading in ("Speed by lanes", "Speed by batch size", "Speed by capacity"):
        assert heading in text
    assert "One more stored step takes 313 bytes" in text
    assert "32: 8,100, faster; 128: 5,400, baseline; 512: 1,700, slower" in html


def test_kinds_that_are_missing_do_not_appear(tmp_path):
    html = page_of(tmp_path, fake_peers())
    text = Page(html).text
    assert "Speed against stable-baselines3" in text
    for absent in ("Speed by rung", "Learning curves", "Time to target", "Where the time goes", "The environment alone"):
        assert absent not in text, absent


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_each_kind_alone_makes_a_page(tmp_path, make):
    assert make()["title"] in Page(page_of(tmp_path, make())).text


@pytest.mark.parametrize("kind", ["ladder", "sweep", "profile", "envs", "peers", "throughput", "run", "unheard_of"])
@pytest.mark.parametrize(
    "row",
    [
        None,
        {},
        {"steps_per_second": None, "split": {}},
        {"steps_per_second": float("nan"), "lanes": 1},
        {"steps_per_second": 0.0, "lanes": 1, "ratio": 0.0, "minutes_to_target": 0.0, "change": 0.0, "split": {"env": 0.0}},
    ],
)
def test_a_record_with_little_in_it_still_makes_a_page(tmp_path, kind, row):
    bare = {"version": 1, "kind": kind, "id": "bare", "rows": [] if row is None else [row]}
    assert "bare" in page_of(tmp_path, bare)


def test_what_a_record_says_is_text_and_never_markup(tmp_path):
    record = fake_ladder()
    evil = "<script>alert(1)</script>\"'>&"
    record |= {"title": evil, "command": evil, "notes": [evil], "env_id": evil}
    record["rows"][1] |= {"rung": evil, "summary": evil, "speed_verdict": evil, "skipped": ""}
    record["rows"][2]["split"] = {evil: 1.0}
    record["metrics"][0]["rung"] = evil
    html = page_of(tmp_path, record)
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert [tag for tag, _ in Page(html).tags].count("script") == 2


def test_learning_that_got_worse_is_in_the_headline():
    record = fake_ladder()
    record["rows"][6]["learning_verdict"] = "learns worse"
    assert headline([loaded(record)]).endswith(", but it learns worse")


def test_different_samples_per_step_are_in_the_headline():
    record = fake_ladder()
    record["rows"][6]["samples_per_step"] = 2.0
    assert "at 2 samples per step against 4" in headline([loaded(record)])
    assert "equal" not in headline([loaded(record)])


def test_another_precision_is_in_the_headline():
    ladder, peers = fake_ladder(), fake_peers()
    assert "in " not in headline([loaded(ladder), loaded(peers)]).replace("on this machine", "")
    ladder["ceiling"]["precision"] = "bfloat16"
    peers["rows"] = [row for row in peers["rows"] if row["name"] != "fastdqn default in fp32"]
    said = headline([loaded(ladder), loaded(peers)])
    assert "at equal samples per step, in bfloat16; 4.5× faster than stable-baselines3, in bf16" in said


def test_rows_beside_the_ladder_never_make_the_headline():
    record = fake_ladder()
    record["rows"] = record["rows"][:9]
    assert (record["rows"][-1]["part"], record["rows"][-1]["vs_textbook"] > 4) == ("extra", True)
    assert headline([loaded(record)]).startswith("2.9×")


def test_a_newer_table_of_roles_does_not_take_the_place_of_the_ladder():
    """It has the ladder's two ends, and may have them at another speed."""
    ladder, roles = fake_ladder(), fake_ladder()
    ends = [roles["rows"][0], roles["rows"][6] | {"rung": "default", "adds": None, "vs_textbook": 5.0}]
    roles["rows"] = [*ends, roles["rows"][1] | {"rung": "in processes", "part": "roles"}]
    records = [loaded(roles), loaded(ladder)]  # newest first
    assert len(newest_of_each(records)) == 2
    assert headline(records).startswith("2.9×")
    assert [claim.figure for claim in claims(records)] == [claim.figure for claim in claims([loaded(ladder)])]


def test_a_peer_that_is_faster_is_said_so():
    record = fake_peers()
    record["rows"] = [record["rows"][1], record["rows"][2]]
    assert headline([loaded(record)]) == "No clear difference in speed to stable-baselines3 on this machine"
    record["rows"][1] |= {"ratio": 0.8, "ratio_interval": [0.78, 0.82]}
    assert headline([loaded(record)]) == "0.80× the speed of stable-baselines3 on this machine"


def test_a_peer_measured_elsewhere_is_not_put_beside_the_ladder():
    elsewhere = loaded(fake_peers() | {"machine": SERVER})
    assert "stable-baselines3" not in headline([loaded(fake_ladder()), elsewhere])


def test_an_incomplete_record_is_marked_and_makes_no_headline(tmp_path):
    text = Page(page_of(tmp_path, fake_ladder() | {"complete": False})).text
    assert "⚠ incomplete" in text
    assert "faster than the textbook" not in text


def test_the_newest_of_a_kind_stands_first():
    old, new = loaded(fake_ladder() | {"date": "2026-01-01T00:00:00+0000"}), loaded(fake_ladder())
    peers = loaded(fake_peers() | {"date": "2027-01-01T00:00:00+0000"})
    assert in_reading_order([peers, old, new]) == [new, old, peers]


def test_records_are_found_by_folder_file_and_folder_of_folders(tmp_path):
    one = write_record(tmp_path / "all", fake_peers())
    two = write_record(tmp_path / "all" / "deeper", fake_envs())
    assert len(load_records([str(one)])) == 1
    assert len(load_records([str(one / "record.json")])) == 1
    assert {record.kind for record in load_records([str(tmp_path / "all")])} == {"peers", "envs"}
    assert len(load_records([str(one), str(one / "record.json"), str(two)])) == 2


def test_without_a_name_the_records_of_bench_are_taken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_record(tmp_path / "benchmarks" / "records", fake_peers())
    assert write_report([], "report.html").is_file()


def refused(paths, out="report.html"):
    with pytest.raises(UserError) as caught:
        write_report(paths, out)
    return str(caught.value)


def test_no_records_says_where_was_looked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert "looked for record.json in benchmarks/records" in refused([])
    assert "There are no records in 'empty'" in refused(["empty"])
    assert "There is no record 'nowhere'" in refused(["nowhere"])
    assert not (tmp_path / "report.html").exists()


def test_a_newer_record_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = write_record(tmp_path, fake_peers() | {"version": 2})
    said = refused([str(place)])
    assert said == f"'{place.name}/record.json' was made by a newer fastdqn (record version 2, this one reads 1)."


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"version": 1, ', "is not valid JSON"),
        ("[1, 2]", "has no version"),
        ('{"kind": "ladder"}', "has no version"),
        ('{"version": 1, "kind": "ladder"}', "has no kind or no rows"),
        (b"\xff\xfe", "is not valid JSON"),
    ],
)
def test_what_is_no_record_is_named(tmp_path, text, why):
    path = tmp_path / "record.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    said = refused([str(path)], str(tmp_path / "report.html"))
    assert "record.json" in said
    assert why in said


def test_a_broken_line_of_the_curves_is_named_and_a_cut_one_left_out(tmp_path):
    place = write_record(tmp_path, fake_sweep())
    curves = place / "metrics.jsonl"
    good = curves.read_text()
    curves.write_text(good + '{"rung": "32", "st')  # the run was stopped while it wrote
    assert len(load_records([str(place)])[0].metrics) == good.count("\n")
    curves.write_text('{"rung": "32", "st\n' + good)
    assert "Line 1 of" in refused([str(place)], str(tmp_path / "report.html"))


def test_a_page_that_cannot_be_written_is_refused_before_records_are_read(tmp_path):
    assert "does not exist; make it first" in refused(["nowhere"], str(tmp_path / "missing" / "report.html"))
    assert "is a folder" in refused(["nowhere"], str(tmp_path))


def test_the_command_exits_with_two_and_a_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 2
    assert capsys.readouterr().err.startswith("fastdqn: There are no records to report")
    write_record(tmp_path / "here", fake_peers())
    assert main(["report", "here", "--out", "page.html"]) == 0
    assert (tmp_path / "page.html").is_file()


def test_two_records_of_one_name_have_two_sections(tmp_path):
    write_record(tmp_path / "a", fake_peers())
    write_record(tmp_path / "b", fake_peers())
    html = write_report([str(tmp_path)], str(tmp_path / "report.html")).read_text()
    assert 'id="record-2026-11-15-fake-peers-snake"' in html
    assert 'id="record-2026-11-15-fake-peers-snake-2"' in html


def test_curves_are_means_over_seeds_with_lowest_and_highest():
    points = [
        {"rung": "a", "seed": 0, "step": 10, "score": 1.0},
        {"rung": "a", "seed": 0, "step": 20, "score": 3.0},
        {"rung": "a", "seed": 1, "step": 10, "score": 3.0},  # reached its target and ended: holds its score
        {"rung": "b", "seed": 0, "step": 10, "score": None},
    ]
    (series,) = curve_series(points, "rung", "step")
    assert (series.name, series.seeds, series.xs) == ("a", 2, [10.0, 20.0])
    assert (series.means, series.lows, series.highs) == ([2.0, 3.0], [1.0, 3.0], [3.0, 3.0])


def test_negative_scores_have_an_axis(tmp_path):
    points = [{"rung": "textbook", "seed": 0, "step": step, "seconds": step, "score": -21.0} for step in (1, 2)]
    record = fake_record("ladder", "pong", "Pong", "fastdqn bench ladder pong", fake_ladder()["rows"], metrics=points)
    assert ">-20<" in page_of(tmp_path, record)


@pytest.mark.parametrize(
    ("value", "said"), [(5234.4, "5,234"), (1234567, "1,234,567"), (67.48, "67.5"), (0.987, "0.99"), (8, "8")]
)
def test_count(value, said):
    assert count(value) == said


def test_missing_and_broken_numbers_are_no_numbers():
    assert [number(value) for value in (None, True, "5", float("nan"), float("inf"), 5)] == [None] * 5 + [5.0]
    assert interval([1, None]) is None
    assert interval([2, 1]) == (1.0, 2.0)
    assert span([1.3, 1.4], times) == "1.30 to 1.40×"
    assert span(None, times) == ""


def test_ticks_are_round_and_cover():
    assert ticks(9800, 7) == [0, 2000, 4000, 6000, 8000, 10000]
    assert ticks(0, 5) == [0.0, 1.0]
    assert ticks_between(-21, 18, 5) == [-30, -20, -10, 0, 10, 20]
    assert [tick_text(value, 5e6) for value in (0, 2.5e6)] == ["0", "2.5M"]
    assert tick_text(5000, 10_000) == "5,000"
    assert tick_text(5000, 10_000, narrow=True) == "5k"


def test_fake_records_are_named_fake():
    for make in MAKERS:
        assert "fake" in make()["id"]
        assert "FAKE" in json.dumps(make()["machine"])


def record_of(data, **more):
    return Record(data | more, Path("somewhere/record.json"), [])


def test_records_of_one_title_are_told_apart():
    """By what a sweep varies, and otherwise by the record's own name."""
    lanes, batch = (
        record_of(fake_sweep(), id=f"2026-11-16-{key}", rows=[{"value": f"{key}=1, threads=2"}])
        for key in ("lanes", "batch_size")
    )
    ladders = [record_of(fake_ladder(), id=f"2026-11-16-{name}") for name in ("ladder-cpu", "ladder-gpu")]
    once = record_of(fake_peers())
    title, ladder = lanes.text("title"), ladders[0].text("title")
    assert titles_of([lanes, batch, *ladders, once]) == [
        f"{title}: lanes, threads",
        f"{title}: batch size, threads",
        f"{ladder}: ladder-cpu",
        f"{ladder}: ladder-gpu",
        once.text("title"),
    ]


def test_what_was_measured_anew_takes_the_place_of_the_older_record():
    new, old = record_of(fake_peers(), id="new"), record_of(fake_peers(), id="old")
    other = record_of(fake_peers(), id="other", env_id="pong")
    assert [record.id for record in newest_of_each([new, old, other])] == ["new", "other"]
    assert len(claims([new, old, other])) == 2


def test_the_headline_takes_the_ladder_that_gained_most_where_a_peer_was_measured_too():
    small, large, alone = (record_of(fake_ladder(), id=name, env_id=name) for name in ("small", "large", "alone"))
    for record, gain in ((small, 1.5), (large, 3.5), (alone, 9.0)):
        for row in record.rows:
            if row.get("part", "ladder") == "ladder" and row.get("vs_textbook"):
                row["vs_textbook"] = gain
    peers = [record_of(fake_peers(), id=f"peers-{name}", env_id=name) for name in ("small", "large")]
    assert headline([small, large, alone, *peers]).startswith("3.5×")


def test_the_environment_alone_is_no_point_of_a_sweep(tmp_path):
    record = fake_sweep()
    name = "the environment alone"
    record["rows"].append({"value": name, "rung": name, "steps_per_second": 123_456.0, "speed_verdict": "faster"})
    html = page_of(tmp_path, record)
    assert "With the environment alone: 123,456 steps/s." in html
    chart = html[html.index("steps per second by") :]
    assert name not in chart[: chart.index("</svg>")]
