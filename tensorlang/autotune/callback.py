"""What a template's tuner tells while it runs: to a log, to a terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from tensorlang.autotune.records.log import LogWriter
from tensorlang.autotune.records.store import log_path
from tensorlang.autotune.tuners.measure import MeasureInput, MeasureResult
from tensorlang.autotune.tuners.tuner import Callback, Tuner
from tensorlang.errors import DefinitionError, shown
from tensorlang.location import caller

__all__ = ["Monitor", "log_to_file", "progress_bar"]

_SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def log_to_file(file_out: str | os.PathLike[str]) -> Callback:
    """Append every measurement to a log (`default`: this machine's in the default store).

    RecordError, at once, when the file cannot be written. It is open only while it is written to: nobody tells a
    callback that tuning is over, and others may want to replace the log then.
    """
    path = log_path(file_out)
    LogWriter(path).close()

    def append(tuner: Tuner, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        with LogWriter(path) as writer:
            for result in results:
                if result.record is not None:
                    writer.append(result.record)

    return append


def progress_bar(total: int, prefix: str = "", si_prefix: str = "G", file: TextIO | None = None) -> Callback:
    """Show speed now and at best, trials of `total`, failures and time, in one line that is written again and again.

    What is no terminal gets a line for each new best, and one at the end.
    """
    if si_prefix not in _SCALES:
        raise DefinitionError(f"si_prefix is one of {', '.join(map(repr, _SCALES))}, got {shown(si_prefix)}", caller())
    scale = _SCALES[si_prefix]
    begun = time.monotonic()
    done = [0, 0]

    def show(tuner: Tuner, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        out = file or sys.stderr
        done[0] += len(results)
        done[1] += sum(not r.ok for r in results)
        now = max((tuner.task.flop / r.seconds for r in results if r.ok), default=0.0)
        failed = f" | {done[1]} failed" if done[1] else ""
        refused = f" | {tuner.filtered} refused unmeasured" if tuner.filtered else ""
        line = (
            f"{prefix} Current/Best: {now / scale:8.2f}/{tuner.best_flops / scale:8.2f} {si_prefix}FLOPS"
            f" | Progress: ({done[0]}/{total}){failed}{refused} | {time.monotonic() - begun:.1f} s"
        )
        last = done[0] >= total
        if out.isatty():
            print(f"\r{line}", end="\n" if last else "", file=out, flush=True)
        elif last or any(r is tuner.best for r in results):
            print(line.strip(), file=out, flush=True)

    return show


class Monitor:
    """Keeps the speed of every trial, in operations a second, and when it ended."""

    def __init__(self) -> None:
        self.scores: list[float] = []
        self.timestamps: list[float] = []

    def __call__(self, tuner: Tuner, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for result in results:
            self.scores.append(tuner.task.flop / result.seconds if result.ok else 0.0)
            self.timestamps.append(result.timestamp)

    def reset(self) -> None:
        """Forget everything."""
        self.scores.clear()
        self.timestamps.clear()
