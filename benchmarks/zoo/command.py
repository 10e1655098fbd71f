"""`python -m benchmarks zoo`: architectures of others and the backend tests of ONNX, and the page that shows them."""

from __future__ import annotations

import fnmatch
import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from benchmarks.command_line import write_result
from benchmarks.machine import describe
from benchmarks.zoo import backend_tests
from benchmarks.zoo.page import page_of
from benchmarks.zoo.runs import TOLERANCE, WAYS, Run, chosen, run

PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"
PACKAGES = ("torch", "torchvision", "timm", "transformers", "onnxscript", "onnx", "onnxruntime")
_EACH = 8
"""Architectures of a process: packages take seconds to import, and modules take memory."""


@click.command("zoo")
@click.option("--only", default="", metavar="PATTERN", help="Architectures whose names hold this: resnet, Bert.")
@click.option("--way", "ways", multiple=True, type=click.Choice(WAYS), help="Through ONNX or from PyTorch only.")
@click.option("--tests", is_flag=True, help="Run the backend tests of ONNX, and no architectures.")
@click.option(
    "--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="The result, to which rows are added."
)
@click.option("--page", is_flag=True, help="Run nothing: write the page of the documentation from the result.")
def command(only: str, ways: Sequence[str], tests: bool, out: Path | None, page: bool) -> None:
    """Compile architectures of torchvision, timm and transformers with random weights; compare what they make.

    Each goes through `torch.onnx.export`, beside onnxruntime, and from PyTorch, beside PyTorch. Exit code 1 when one
    does not run or is not equal, or when a test fails.
    """
    held: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out is not None and out.is_file() else {}
    if page:
        if not held:
            raise click.UsageError("--page needs the result: --json FILE")
        PAGE.write_text(page_of(held), encoding="utf-8")
        return
    result = {"networks": [], "tests": {}, **held, **describe(_versions()), "tolerance": TOLERANCE}
    if tests:
        result["tests"] = _tests()
    else:
        names = chosen(lambda name: fnmatch.fnmatch(name, f"*{only}*"))
        if not names:
            raise click.UsageError(f"no architecture is called like {only!r}, or its package is not installed")
        for row in _rows(names, ways or WAYS):
            others = [r for r in result["networks"] if (r["name"], r["way"]) != (row.name, row.way)]
            result["networks"] = [*others, asdict(row)]
            write_result(out, result)
    write_result(out, result)
    sys.exit(any(row["why"] for row in result["networks"]) or bool(result["tests"].get("failed")))


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _rows(names: Mapping[str, str], ways: Sequence[str]) -> Iterator[Run]:
    """Each architecture in each way; what ends its process is said, and the others go on."""
    left = [(name, way) for name in names for way in ways]
    while left:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            for _ in range(min(_EACH, len(left))):
                name, way = left.pop(0)
                try:
                    row = pool.submit(run, name, way).result()
                except BrokenProcessPool:
                    row = Run(name, names[name], way, why="its process ended")
                click.echo(_line(row))
                yield row
                if row.why == "its process ended":
                    break


def _line(row: Run) -> str:
    made = f"{row.kernels:>4} kernels, error {row.error:.1e}" if row.kernels else ""
    return f"{row.package:<13}{row.name:<34}{row.way:<6}{made:<28}{row.why[:400]}"


def _tests() -> dict[str, Any]:
    """Counts of the backend tests, reasons of what is not taken, and all that failed."""
    ends = []
    for case in backend_tests.cases():
        ends.append(backend_tests.ending(case))
        if ends[-1].state == backend_tests.FAILED:
            click.echo(f"{ends[-1].name}: {ends[-1].why[0]}")
    kinds = Counter((end.kind, end.state) for end in ends)
    reasons = Counter(reason for end in ends for reason in {*map(backend_tests.reason, end.why)} if _is_refused(end))
    counts = {kind: {state: n for (k, state), n in kinds.items() if k == kind} for kind in backend_tests.KINDS}
    click.echo(json.dumps(counts, indent=1))
    failed = {end.name: end.why for end in ends if end.state == backend_tests.FAILED}
    return {"counts": counts, "not taken": dict(reasons.most_common()), "failed": failed}


def _is_refused(end: backend_tests.Ending) -> bool:
    return end.state == backend_tests.REFUSED
