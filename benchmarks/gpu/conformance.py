"""The tests that tell whether kernels are right on the devices of this machine, run by pytest in a process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
ON_A_GPU = ("tests/conformance/test_device_kernels.py", "tests/target/cuda/test_on_device.py", "tests/topi/gpu")
"""Tests that run on a CUDA device where there is one."""
WITHOUT = ("tests/conformance/test_device_kernels.py", "tests/target/opencl")
"""Tests that need an OpenCL runtime, of the CPU for instance, or nothing."""
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class Checked:
    """What pytest found: numbers of tests, the names of those that failed, and why there is no result, if so."""

    name: str
    passed: int = 0
    skipped: int = 0
    failed: tuple[str, ...] = ()
    seconds: float = 0.0
    problem: str = ""

    @property
    def good(self) -> bool:
        """Whether tests ran, and none failed."""
        return not self.failed and not self.problem and self.passed > 0


Check = Callable[[str, Sequence[str], str, float], Checked]
"""Runs tests: a name for them, their paths, words of those chosen (pytest's -k), and the seconds they may take."""


def check(name: str, paths: Sequence[str], words: str, seconds: float) -> Checked:
    """Run tests of this project."""
    there = [path for path in paths if (ROOT / path).exists()]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = [
            "-q",
            "--tb=line",
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
            *(["-k", words] if words else []),
        ]
        command = [sys.executable, "-m", "pytest", *options, *there]
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=seconds)  # noqa: PLW1510
        except subprocess.TimeoutExpired:
            return Checked(name, problem=f"not done within {seconds:.0f} s")
        if not report.exists():
            return Checked(name, problem=(done.stderr or done.stdout).strip()[-_LONGEST_REASON:])
        return _read(name, ElementTree.parse(report).getroot())


def _read(name: str, root: ElementTree.Element) -> Checked:
    cases = list(root.iter("testcase"))
    failed = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
    skipped = [c for c in cases if c.find("skipped") is not None]
    seconds = sum(float(suite.get("time", 0)) for suite in root.iter("testsuite"))
    names = tuple(f"{c.get('classname')}.{c.get('name')}" for c in failed)
    return Checked(name, len(cases) - len(failed) - len(skipped), len(skipped), names, seconds)
