"""Faults as text files: what it was, the command that runs it again, what was drawn, and the traceback."""

from __future__ import annotations

from pathlib import Path

from tensorlang.testing.soak.worker import Ended


def write(ended: Ended, folder: Path) -> Path:
    """Write a fault into a folder, which is made; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    case, report = ended.case, ended.report
    name = f"{case.kind.replace(':', '.')}-{case.seed}-{report.outcome.value}.txt"
    parts = [
        f"kind: {case.kind}\nseed: {case.seed}\noutcome: {report.outcome.value}\nseconds: {ended.seconds:.1f}",
        f"again: {case.command}",
        report.traceback.rstrip(),
        f"drawn:\n{ended.told.rstrip() or 'nothing was told yet'}",
        "the same process ran before, last ones last: "
        + (", ".join(f"{c.kind} {c.seed}" for c in ended.earlier) or "nothing"),
    ]
    path = folder / name
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8", errors="backslashreplace")
    return path
