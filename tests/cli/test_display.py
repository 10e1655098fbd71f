"""The live display: what it says of a run, and how long it thinks the rest will take."""

from __future__ import annotations

import io
import re
import sys
from collections import Counter
from dataclasses import replace

import pytest
from rich.console import Console

from tensorlang.autotune import Phase, Progress, Status, TuningRecord, create_task
from tensorlang.autotune.phases import timed_phases
from tensorlang.autotune.records.record import WorkloadId
from tensorlang.cli.arguments import UNLIMITED
from tensorlang.cli.curve import draw_curve
from tensorlang.cli.display import CURVE_ROWS, PHASES, Screen, describe, open_display, pace, plain_lines, time_left

WORKLOAD = WorkloadId("matmul", (8, 8, 8, "float32"), "key", (), "float32", 1e9)
RECORD = TuningRecord(WORKLOAD, {}, 1, "s", [], "t", {}, Status.OK, (0.01,))
HALFWAY = Progress(RECORD, RECORD, 10, 0, Counter({"crash": 2}), 5.0, 200.0)


def test_a_run_is_described_in_words() -> None:
    assert dict(describe(HALFWAY, 20, None)) == {
        "trials": "10/20",
        "best": "10 ms, 100.0 GFLOP/s",
        "of peak": "50%",
        "failures": "2 crash",
        "left": "0:05",
    }


def test_a_run_without_a_limit_on_trials_counts_them() -> None:
    assert dict(describe(HALFWAY, UNLIMITED, 60.0))["trials"] == "10"


def test_nothing_is_claimed_before_the_first_good_candidate() -> None:
    cells = dict(describe(replace(HALFWAY, best=None, failures=Counter()), 20, None))
    assert cells["best"] == "none yet"
    assert "of peak" not in cells
    assert cells["failures"] == "none"


def test_an_unknown_peak_is_left_out() -> None:
    assert "of peak" not in dict(describe(replace(HALFWAY, peak_gflops=0.0), 20, None))


@pytest.mark.parametrize(
    ("trials", "seconds", "resumed", "left"),
    [
        (20, None, 0, 5.0),
        (20, 7.0, 0, 2.0),
        (12, 100.0, 0, 1.0),
        (20, None, 5, 10.0),
        (10, 100.0, 0, 0.0),
        (20, 3.0, 0, 0),
    ],
)
def test_time_left_is_what_ends_first(trials: int, seconds: float | None, resumed: int, left: float) -> None:
    assert time_left(replace(HALFWAY, resumed=resumed), trials, seconds) == pytest.approx(left)


def test_the_pace_leaves_the_preparation_out() -> None:
    assert pace(HALFWAY) == 0.5
    assert pace(replace(HALFWAY, elapsed=13.5), first=9.0) == 0.5
    assert pace(replace(HALFWAY, trials=1), first=5.0) == 5.0
    assert time_left(replace(HALFWAY, elapsed=13.5), 20, None, first=9.0) == 5.0


def test_without_a_terminal_new_bests_and_the_end_get_a_line() -> None:
    text = io.StringIO()
    show = plain_lines(Console(file=text, width=200), 12, None)
    slower = replace(RECORD, seconds=(1.0,))
    show(HALFWAY)
    show(replace(HALFWAY, record=slower, trials=11))
    show(replace(HALFWAY, record=slower, trials=12))
    assert [line.split()[1] for line in text.getvalue().splitlines()] == ["10/12", "12/12"]


class Terminal(io.StringIO):
    """A terminal, as far as programs ask."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("silent", [False, True])
def test_a_terminal_is_drawn_on_and_left_clean(silent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    task = create_task("matmul", (8, 8, 8), "llvm -mcpu=haswell", threads=1)
    with open_display(task, 20, None, silent) as show:
        show(HALFWAY)
    shown = re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue())
    if silent:
        assert shown == ""
        return
    assert shown.startswith("tuning matmul(8, 8, 8, float32) for llvm -mcpu=haswell, 1 thread\n")
    assert "now  reading: log, inputs, reference" in shown
    assert "10 of 20" in shown
    assert shown.endswith("\x1b[2K")  # the last line of the picture is taken away again


def screen_text(screen: Screen, width: int, encoding: str = "utf-8") -> list[str]:
    """What a terminal shows of a screen, line by line."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    Console(file=file, width=width, force_terminal=True, no_color=True).print(screen)
    file.flush()
    text = re.sub(r"\x1b\[[\d;]*m", "", raw.getvalue().decode(encoding))
    return [line.rstrip() for line in text.splitlines()]


def search(count: int, seconds: float | None = None, trials: int = 128) -> Screen:
    """The screen after some trials, a second each; the best is the tenth."""
    now = [0.0]
    screen = Screen(trials, seconds, clock=lambda: now[0])
    best = None
    for n in range(1, count + 1):
        now[0] += 1
        record = replace(RECORD, seconds=(0.01 + 0.001 * abs(n - 10),))
        best = record if best is None or record.median < best.median else best
        screen.add(Progress(record, best, n, 0, Counter({"crash": 1, "timeout": 2}), now[0], 200.0))
    now[0] += 0.5
    return screen


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_terminal_shows_curve_and_figures(width: int) -> None:
    lines = screen_text(search(40), width)
    assert all(len(line) <= width for line in lines)
    assert len(lines) == 4 + CURVE_ROWS + 1
    text = "\n".join(lines)
    assert re.search(r"best  10 ms   100.0 GFLOP/s   50%", lines[0])
    assert "0:40" in lines[CURVE_ROWS + 1]
    assert "2 timeout, 1 crash" in text
    if width >= 80:
        assert "trial 10" in lines[0]
        assert "40 of 128, 60 a minute, 1:27 left" in text
        assert "reading; trial 40: 40 ms, s" in text
    assert re.search("[\u2801-\u28ff]", text)


def test_a_terminal_of_ascii_has_no_curve() -> None:
    lines = screen_text(search(40), 80, "ascii")
    assert len(lines) == 4
    assert "#----" in lines[1]


def test_a_budget_of_seconds_counts_down() -> None:
    (line,) = [line for line in screen_text(search(40, 60.0, UNLIMITED), 80) if "trials" in line]
    assert re.search(r"  40, 60 a minute, 0:19 left$", line)


def test_the_phase_is_named_before_the_first_trial_and_after_it() -> None:
    screen = Screen(64, None)
    assert screen_text(screen, 80) == ["     now  reading: log, inputs, reference outputs  0:00"]
    for phase in Phase:
        screen.enter(phase)
        assert screen_text(screen, 80) == [f"     now  {phase}: {PHASES[phase]}  0:00"]
    running = search(40)
    running.enter(Phase.SKETCHING)
    assert screen_text(running, 80)[-1] == "     now  sketching; trial 40: 40 ms, s"


def test_a_pipe_gets_each_phase_once(capsys: pytest.CaptureFixture[str]) -> None:
    task = create_task("matmul", (8, 8, 8), threads=1)
    with open_display(task, 20, None), timed_phases() as phases:
        for phase in (Phase.READING, Phase.SKETCHING, Phase.READING, Phase.TIMING):
            phases.enter(phase)
    err = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in err[1:]] == ["reading", "sketching", "timing"]


def test_without_a_best_there_is_no_curve() -> None:
    screen = Screen(64, None)
    failed = replace(RECORD, status=Status.CRASH, seconds=(), error="signal 11\nin kernel \x1b[2J")
    screen.add(Progress(failed, None, 1, 0, Counter({"crash": 1}), 1.0, 0.0))
    lines = screen_text(screen, 80)
    assert lines[0] == "    best  none yet"
    assert lines[-1].endswith("trial 1: crash: signal 11 in kernel \\u001b[2J")
    assert len(lines) == 4


def test_a_best_of_an_earlier_run_is_called_so() -> None:
    screen = Screen(64, None)
    slower = replace(RECORD, seconds=(1.0,))
    screen.add(Progress(slower, RECORD, 11, 10, Counter(), 1.0, 0.0))
    lines = screen_text(screen, 80)
    assert lines[0].endswith("from the log")
    assert "11 of 64 (10 from the log)" in "\n".join(lines)


@pytest.mark.parametrize(("trials", "seconds"), [(40, None), (UNLIMITED, 40.0)])
def test_the_end_of_the_budget_is_the_comparison(trials: int, seconds: float | None) -> None:
    assert screen_text(search(40, seconds, trials), 80)[-1] == "     now  timing the best beside NumPy"


def test_a_curve_is_a_staircase_over_dots() -> None:
    rows = draw_curve([(0.0, 0.0), (1.0, 0.0)], [(0.0, 0.5), (0.5, 1.0)], 4, 2, ("dim", "bold"))
    assert [line.plain for line in rows] == ["  ⡏⠉", "⠉⠉⠁⢀"]
    assert [[str(span.style) for span in line.spans] for line in rows] == [
        ["dim", "bold"],
        ["bold", "dim"],
    ]
    assert [line.plain for line in draw_curve([], [], 3, 1, ("dim", "bold"))] == ["   "]
