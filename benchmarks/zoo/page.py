"""The page of the documentation that shows a result of `python -m benchmarks zoo`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.report import table

Rows = Sequence[Mapping[str, Any]]
_SHOWN = ("tensorlang", "torch", "torchvision", "timm", "transformers", "onnx", "onnxruntime")
_LEAST = 2
"""Tests that a reason has to be given for, to have a line of its own."""


def page_of(result: Mapping[str, Any]) -> str:
    """The whole page, in Markdown; with the backend tests, where they were run."""
    tests = ["", *_tests(result["tests"])] if result["tests"] else []
    return "\n".join([*_networks(result), *tests]) + "\n"


def _networks(result: Mapping[str, Any]) -> Iterator[str]:
    rows: Rows = result["networks"]
    names = dict.fromkeys((row["package"], row["name"]) for row in rows)
    equal = {way: sum(row["way"] == way and not row["why"] for row in rows) for way in ("onnx", "torch")}
    versions = ", ".join(f"{name} {result['versions'][name]}" for name in _SHOWN if name in result["versions"])
    yield "# Architectures and operators that run"
    yield ""
    yield (
        f"Written by `python -m benchmarks zoo` on {result['date']}, with {versions}. {len(names)} architectures with "
        f"random weights, small where they let one choose, with all kinds of their layers: {equal['onnx']} exported by "
        f"`torch.onnx.export(dynamo=True)` make what onnxruntime makes, and {equal['torch']} read by "
        f"`tensorlang.from_torch` what PyTorch makes. An error is the largest difference of an output over half its "
        f"range; {result['tolerance']:g} is allowed."
    )
    yield ""
    lines = [_cells(package, name, rows) for package, name in names]
    yield from table(("package", "architecture", "kernels", "error through ONNX", "error from PyTorch"), lines)


def _cells(package: str, name: str, rows: Rows) -> tuple[str, ...]:
    found = {row["way"]: row for row in rows if (row["package"], row["name"]) == (package, name)}
    kernels = " / ".join(str(row["kernels"]) for row in found.values()) or "-"
    if len({row["kernels"] for row in found.values()}) == 1:
        kernels = str(next(iter(found.values()))["kernels"])
    return package, name, kernels, *(_error(found.get(way)) for way in ("onnx", "torch"))


def _error(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "not run"
    return f"**{row['why'].splitlines()[0]}**" if row["why"] else f"{row['error']:.0e}"


def _tests(tests: Mapping[str, Any]) -> Iterator[str]:
    """Counts of the backend tests, and why some are not taken."""
    states = ("passed", "not taken", "failed")
    yield "## The backend tests of ONNX"
    yield ""
    yield (
        "`python -m benchmarks zoo --tests` runs them by `tensorlang.networks.onnx.backend`; those called `real` are "
        "the nine light networks of the package. Tolerances are those of the tests, but for float16: four of its steps."
    )
    yield ""
    counts = tests["counts"]
    whole = {state: sum(kind.get(state, 0) for kind in counts.values()) for state in states}
    lines = [(kind, *(str(found.get(state, 0)) for state in states)) for kind, found in counts.items()]
    yield from table(("kind", *states), [*lines, ("all", *(str(whole[state]) for state in states))])
    yield ""
    yield "What is not taken, by operator or kind of element, with the number of tests:"
    yield ""
    reasons = tests["not taken"]
    yield from (f"- {reason}: {count}" for reason, count in reasons.items() if count >= _LEAST)
    rare = [reason for reason, count in reasons.items() if count < _LEAST]
    if rare:
        yield f"- one test each: {'; '.join(rare)}"
