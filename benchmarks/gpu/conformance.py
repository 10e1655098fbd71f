"""The tests that tell whether kernels are right on the devices of this machine, run by pytest in a process."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.gpu import lost_device
from benchmarks.gpu.time_limit import NO_TIME, PLUGIN

ROOT = Path(__file__).resolve().parents[2]
ON_A_GPU = (
    "tests/conformance",
    "tests/target/cuda",
    "tests/topi/gpu",
    "tests/test_classic_gpu_programs.py",
    "tests/autotune/gpu",
)
"""Where the tests of CUDA devices are."""
CUDA_TESTS = "cuda_device"
"""The mark of those that run on a device."""
WITHOUT = ("tests/conformance/test_device_kernels.py", "tests/target/opencl")
"""Tests that need an OpenCL runtime, of the CPU for instance, or nothing."""
_LONGEST_REASON = 300
_TEST_SHARE = 0.9
"""Of the time, that is over when the last test begins."""
_MOST_PROCESSES = 8
"""Of pytest-xdist, where it is installed: each has a context on the device, of about half a gigabyte."""


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
"""Runs tests: a name for them, their paths, the marks of those chosen (pytest's -m), and the seconds they may take."""


def check(name: str, paths: Sequence[str], marks: str, seconds: float) -> Checked:
    """Run tests of this project; those that are not begun in time are counted as a problem."""
    there = [path for path in paths if (ROOT / path).exists()]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = [
            "-q",
            "--tb=line",
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
            *("-p", PLUGIN, f"--time-limit={_TEST_SHARE * seconds}"),
            *_together(),
            *(["-m", marks] if marks else []),
        ]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-m", "pytest", *options, *there]
        try:
            done = subprocess.run(
                command, check=False, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", timeout=seconds
            )
        except subprocess.TimeoutExpired:
            return Checked(name, problem=f"not done within {seconds:.0f} s")
        if not report.exists():
            return Checked(name, problem=(done.stderr or done.stdout).strip()[-_LONGEST_REASON:])
        return _read(name, ElementTree.parse(report).getroot(), seconds)


def _together() -> list[str]:
    """Options of pytest for several processes; one that has lost its device is ended, and replaced."""
    count = min(_MOST_PROCESSES, os.cpu_count() or 1)
    if count == 1 or importlib.util.find_spec("xdist") is None:
        return []
    return ["-p", lost_device.PLUGIN, f"-n{count}", "--dist=worksteal", "--max-worker-restart=100"]


def _read(name: str, root: ElementTree.Element, limit: float) -> Checked:
    cases = list(root.iter("testcase"))
    failed = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
    skipped = [c for c in cases if c.find("skipped") is not None]
    seconds = sum(float(suite.get("time", 0)) for suite in root.iter("testsuite"))
    names = tuple(f"{c.get('classname')}.{c.get('name')}" for c in failed)
    late = sum(NO_TIME in (reason.get("message") or "") for case in skipped for reason in case.iter("skipped"))
    problem = f"{late} tests were not begun within {_TEST_SHARE * limit:.0f} s" if late else ""
    return Checked(name, len(cases) - len(failed) - len(skipped), len(skipped), names, seconds, problem)
