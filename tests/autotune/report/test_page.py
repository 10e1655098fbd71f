"""The report page: whole HTML, with all that it should show, nothing from elsewhere, and no markup of strangers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tensorlang.autotune import LogWriter, Status, TuningRecord, create_task
from tensorlang.autotune.report.charts import clock_step, linear, logarithmic, nice_step, whole_step
from tensorlang.autotune.report.drawings import draw_trials, standalone
from tensorlang.autotune.report.figures import searches_of
from tensorlang.autotune.report.writing import Report, make_report, report_logs
from tensorlang.errors import RecordError, TensorlangError
from tensorlang.words import format_seconds

from ..records.hand import TARGET, hand_record, record_of
from .searches import HOSTILE, made_search

VOID = {"meta", "br"}
OPERATORS = Path(__file__).parents[1] / "operators.py"


class Page(HTMLParser):
    """Reads a page: tags with attributes, texts, and whether all that opens is closed."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)

    def count(self, tag: str) -> int:
        return sum(found == tag for found, _ in self.tags)


def page_of(report: Report) -> Page:
    """The page of a report, whole and without anything from elsewhere."""
    html = report.to_html()
    assert len(html.encode()) < 2_000_000
    assert not re.search(r"(nan|inf)\b", re.sub(r">[^<]*<", "><", html))
    page = Page(html)
    assert page.open == []
    assert page.count("script") == page.count("img") == page.count("iframe") == page.count("link") == 0
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in {"src", "href"}:
                assert value is not None
                assert value.startswith("#search-")
    style = html.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    return page


def report_on(records: Sequence[TuningRecord]) -> Report:
    return make_report("tuning.jsonl", records)


def test_a_page_shows_a_search() -> None:
    report = report_on(made_search())
    page = page_of(report)
    best = report.searches[0].best
    assert best is not None
    for words in (
        "tuning.jsonl: 1 program, 40 trials",
        "matmul(24, 40, 16, float32)",
        "40 trials; 4 failed",
        "signal 36",
        "Best so far, over 0:39 and 40 trials",
        "times differ by less from what was estimated before",
        "Estimated against measured",
        "Times of all trials",
        "of the measured peak, 250 GFLOP/s",
        "s['C'].split('i', factor=8",
        "for i_o in range(3)",
        "bench, Some CPU, 2 cores, 16 GiB",
        "tensorlang 1.2.3",
        "rows=8",
        "input A: float32[24, 16]",
    ):
        assert words in re.sub(r"\s+", " ", page.text), words
    assert format_seconds(best.median).split()[0] in page.texts
    assert page.count("svg") == 3
    assert page.count("h2") == 1


def test_several_programs_have_a_table_that_leads_to_them() -> None:
    page = page_of(report_on([*made_search(), hand_record((8, 8, 8)), replace(hand_record((4, 4, 4)), threads=2)]))
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    ids = [f"#{attributes['id']}" for tag, attributes in page.tags if tag == "section" and "id" in attributes]
    assert links == ids == ["#search-1", "#search-2", "#search-3"]


def test_a_hostile_log_is_only_text() -> None:
    record = hand_record()
    workload = replace(
        record.workload,
        name=HOSTILE,
        arguments=(HOSTILE,),
        program=HOSTILE,
        key=HOSTILE,
        dtype=HOSTILE,
        args=(HOSTILE,),
    )
    bad = replace(
        record,
        workload=workload,
        target={HOSTILE: HOSTILE},
        sketch=HOSTILE,
        decisions={HOSTILE: 1},
        trace=[{"step": HOSTILE}],
        host=dict.fromkeys(("name", "cpu", "cores", "system"), HOSTILE),
        versions={HOSTILE: HOSTILE},
        time=HOSTILE,
    )
    failed = replace(bad, status=Status.CRASH, seconds=(), error=f"{HOSTILE}\x00\x1b[2J\ud800\u202e")
    report = make_report(HOSTILE, [bad, failed], skipped=[HOSTILE])
    page = page_of(report)
    assert page.text.count("alert(1)") > 20
    assert "\\u0000\\u001b[2J\\ud800\\u202e" in page.text
    json.dumps(report.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    "changes",
    [
        {"seconds": (math.inf,)},
        {"seconds": (1e-300,)},
        {"estimate": 1e300},
        {"estimate": -1.0},
        {"estimate": 1e-12},
        {"trace": "no trace"},
        {"trace": [{"step": "split"}]},
        {"target": {"kind": 5, "caches": None}},
        {"host": {"peak_gflops": 1e-200, "memory": math.nan}},
        {"host": {"peak_gflops": 1e29}},
        {"threads": -(10**30)},
        {"time": "0001-01-01T00:00:00+23:59"},
        {"decisions": {"x": 10**300}},
    ],
)
def test_damaged_records_make_a_page_too(changes: dict[str, object]) -> None:
    records = made_search(6, 1)
    report = make_report("log", [replace(records[0], **changes), *records[1:]])  # type: ignore[arg-type]
    page_of(report)
    page_of(make_report("log", [replace(records[0], **changes)]))  # type: ignore[arg-type]
    json.dumps(report.to_json(), allow_nan=False)


def test_ten_thousand_records_make_a_small_page() -> None:
    report = report_on(made_search(10_000, 100))
    page = page_of(report)
    assert "10,000" in page.texts
    assert len(report.to_html()) < 200_000


def test_hundreds_of_programs_make_a_page_below_the_limit() -> None:
    records = []
    for n in range(150):
        for record in made_search(30, 5):
            workload = replace(record.workload, key=f"{n:016x}", name=f"w{n}", program="x" * 5000)
            records.append(replace(record, workload=workload, error="e" * 5000 if not record.ok else ""))
    page = page_of(report_on(records))
    assert "150 programs, 4,500 trials" in page.text
    assert "w149" in page.text
    assert "110 are not" in page.text


def test_only_failures_make_a_page() -> None:
    page = page_of(report_on([hand_record(status=Status.TIMEOUT, error="no end after 10 s")]))
    assert "No candidate was timed." in page.text
    assert "no end after 10 s" in page.text
    assert page.count("svg") == 0


def test_an_illegal_schedule_shows_why_it_has_no_loops() -> None:
    record = hand_record()
    broken = replace(record, trace=[{**record.trace[0], "axis": "nowhere"}])
    report = report_on([broken])
    assert "nowhere" in report.schedules[0].nest_error
    assert "nowhere" in page_of(report).text


def test_files_of_records_run_only_when_asked(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    mark = tmp_path / "ran"
    source = OPERATORS.read_text(encoding="utf-8")
    file.write_text(source, encoding="utf-8")
    task = create_task(f"{file}:max_of_min", (7, 19, 5, "int32"), TARGET, threads=1)
    file.write_text(f"{source}\nimport pathlib\npathlib.Path({str(mark)!r}).touch()\n", encoding="utf-8")
    record = record_of(task)
    assert "--run-files" in make_report("log", [record]).schedules[0].nest_error
    assert not mark.exists()
    assert "for " in make_report("log", [record], [task]).schedules[0].nest
    assert not mark.exists()
    assert "for " in make_report("log", [record], run_files=True).schedules[0].nest
    assert mark.exists()


def test_logs_are_selected_by_program(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with LogWriter(log) as writer:
        for record in (hand_record(), hand_record((8, 8, 8))):
            writer.append(record)
    log.write_bytes(log.read_bytes() + b'{"torn')
    report = report_logs([log], "matmul(8, ")
    assert [s.name for s in report.searches] == ["matmul(8, 8, 8, float32)"]
    assert "skipped 1 torn line" in page_of(report).text
    assert len(report_logs([log]).searches) == 2
    with pytest.raises(RecordError, match=r"no program 'conv'; it has matmul\(24, 40, 16, float32\), matmul\(8"):
        report_logs([log], "conv")
    log.write_bytes(b"")
    with pytest.raises(RecordError, match="has no records"):
        report_logs([log])


def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TensorlangError, match=r"cannot write .*page\.html: No such file"):
        report_on([hand_record()]).write(tmp_path / "nowhere" / "page.html")


def test_a_picture_stands_alone() -> None:
    (search,) = searches_of(made_search())
    picture = standalone(draw_trials(search, 100, "title & all"))
    assert picture.startswith('<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -10 500 316">')
    assert "title &amp; all" in picture
    assert Page(picture).open == []


@pytest.mark.parametrize("high", [1e-9, 0.3, 1.0, 7.0, 99.0, 100.0, 1234.5, 3e11])
def test_ticks_are_round_and_few(high: float) -> None:
    for axis in (linear("x", high, str), linear("x", high, str, tight=True), linear("n", high, str, step=whole_step)):
        assert 1 <= len(axis.ticks) <= 10
        assert axis.high >= high * (1 - 1e-6)
        assert axis.ticks[0][0] == 0
    assert 4 <= high / nice_step(high) <= 10.01


def test_clocks_tick_at_round_times() -> None:
    assert [clock_step(s) for s in (100, 300, 3000, 10_000, 100_000, 1e6)] == [15, 60, 600, 1800, 21600, 180_000]


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (1.2e-3, 1.25e-3), (1.0, 3.0), (1e-6, 3e-4), (1e-12, 1e12)])
def test_logarithmic_axes_hold_their_values(low: float, high: float) -> None:
    axis = logarithmic("x", low, high, format_seconds)
    assert 0 < axis.place(low) <= axis.place(high) < 1
    assert 2 <= len(axis.ticks) <= 8
    assert len({words for _, words in axis.ticks}) == len(axis.ticks)
    assert all(axis.low <= value <= axis.high for value, _ in axis.ticks)
