"""What the commands of benchmarks have in common: how many threads they take, and the file of a result."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click


def threads_or_all(threads: int | None) -> int:
    """So many threads, or one for each core that this process may use; UsageError for more than that."""
    cores = len(os.sched_getaffinity(0))
    if threads is not None and threads > cores:
        raise click.UsageError(f"--threads {threads}: only {cores} cores can be used")
    return threads or cores


def write_result(out: Path | None, result: Mapping[str, Any]) -> None:
    """Write a result as JSON, where a file is asked for; its folders are made."""
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
