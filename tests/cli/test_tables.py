"""Tables of records: one line each in a pipe, and headings with what is shared in a narrow terminal."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from click import unstyle

from tensorlang.autotune import Status, TuningRecord
from tensorlang.cli.tables import print_records, print_table, wrapped

from ..autotune.records.hand import hand_record

RECORDS = [
    hand_record(sketch="reuse.pack-block.rows.tile", decisions={"tile_x": 17}, settings={"tile_x": [-1, 16]}),
    hand_record(sketch="reuse.pack-block.rows.tile", status=Status.TIMEOUT, error="it took 10 s\nand more"),
    hand_record((8, 8, 8), decisions={f"a_rather_long_name_{n}": n for n in range(6)}, time="2026-01-02T03:04:05Z"),
]


def terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """Make standard output a terminal."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))


def test_a_narrow_terminal_shows_what_is_shared_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(monkeypatch, 80)
    print_records(RECORDS)
    lines = unstyle(capsys.readouterr().out).splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert lines[0] == "matmul(24, 40, 16, float32), 1 thread, 2026-01-01"
    assert lines[1].split() == ["time", "status", "median", "GFLOP/s", "schedule"]
    assert lines[2].split()[:4] == ["00:00:00", "ok", "1", "ms"]
    text = " ".join(" ".join(lines).split())
    assert "reuse.pack-block.rows.tile: tile_x=[-1,16]" in text
    assert "it took 10 s" in text
    assert "and more" not in text
    assert text.count("matmul(24") == text.count("matmul(8, 8, 8, float32), 1 thread, 2026-01-02") == 1
    assert "a_rather_long_name_5=5" in text


@pytest.mark.parametrize("columns", [300, None])
def test_where_there_is_room_a_record_has_one_line(
    columns: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if columns is not None:
        terminal(monkeypatch, columns)
    print_records(RECORDS)
    lines = unstyle(capsys.readouterr().out).splitlines()
    assert len(lines) == 1 + len(RECORDS)
    assert lines[1].split()[-2:] == ["reuse.pack-block.rows.tile", "tile_x=[-1,16]"]


def test_a_long_cell_is_not_cut(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    terminal(monkeypatch, 40)
    print_table(("name", "count"), [("x" * 90, 7)])
    assert capsys.readouterr().out.count("x") == 90


def test_no_records_are_an_empty_table(capsys: pytest.CaptureFixture[str]) -> None:
    empty: list[TuningRecord] = []
    print_records(empty)
    assert capsys.readouterr().out.split() == [
        "time", "workload", "threads", "status", "median", "GFLOP/s", "sketch", "decisions"
    ]  # fmt: skip


def test_hostile_text_steers_no_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    terminal(monkeypatch, 80)
    hostile = replace(RECORDS[1], sketch="\x1b[31mred", error="\x1b]0;title\x07", time="\x1b[2JT\x1b[2J")
    print_records([hostile])
    out = capsys.readouterr().out
    assert all(code not in out for code in ("\x1b[31m", "\x1b]0;", "\x1b[2J", "\x07"))


def test_a_long_line_is_indented_where_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "  terms: " + ", ".join(f"a-long-name-{n} {n} ms" for n in range(6))
    assert wrapped(line) == line
    terminal(monkeypatch, 40)
    lines = wrapped(line).split("\n")
    assert all(len(part) <= 40 for part in lines)
    assert [len(part) - len(part.lstrip()) for part in lines] == [2, *[6] * (len(lines) - 1)]
    assert " ".join(part.strip() for part in lines) == line.strip()
