"""Logs of the assembler, read: registers, spills, stack, shared memory, advice and warnings."""

from __future__ import annotations

import pytest

from tensorlang.target.cuda.report import KernelReport, read_report
from tests.target.cuda.compiled import check_compiles, needs_nvrtc

LOG = """\
kernel.cu(1): warning #177-D: variable "y" was declared but never referenced
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_80'
ptxas info    : Function properties for first
ptxas         .     256 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 30 registers, used 0 barriers, 256 bytes cumulative stack size, 360 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Compile time = 16.419 ms
ptxas info    : Function properties for _Z3foof
ptxas         .     512 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Compiling entry function 'second' for 'sm_80'
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum register requirement.
ptxas info    : Function properties for second
ptxas         .     416 bytes stack frame, 864 bytes spill stores, 892 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 416 bytes cumulative stack size, 400 bytes smem, 364 bytes cmem[0]
"""

SPILLS = """
extern "C" __global__ void __launch_bounds__(1024, 2) spills(float* x, int n) {
  float a[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) a[i] = x[i * 1000 + threadIdx.x];
  for (int r = 0; r < n; ++r) {
#pragma unroll
    for (int i = 0; i < 64; ++i) a[i] = a[i] * a[(i + 7) & 63] + a[63 - i];
  }
#pragma unroll
  for (int i = 0; i < 64; ++i) x[i * 77 + threadIdx.x] = a[i];
}
"""


def test_each_kernel_has_its_own_numbers() -> None:
    report = read_report(LOG)
    assert report["first"] == KernelReport("first", "sm_80", registers=30, stack=256, constant=368)
    assert report["second"] == KernelReport("second", "sm_80", 32, 1, 416, 864, 892, 400, 364)
    assert report["second"].spills == 1756
    assert str(report["second"]) == (
        "second: 32 registers, 400 bytes of static shared memory, 416 bytes of stack, 864 + 892 bytes spilled"
    )
    assert not report.clean


def test_advice_is_not_a_warning() -> None:
    report = read_report(LOG)
    assert len(report.advice) == 1
    assert "C7508" in report.advice[0]
    assert len(report.warnings) == 1
    assert "#177-D" in report.warnings[0]


def test_advice_alone_is_not_clean() -> None:
    lines = LOG.splitlines()
    assert read_report("\n".join(lines[2:6])).clean
    assert not read_report("\n".join([*lines[2:6], lines[10]])).clean


def test_an_unknown_kernel_is_named_with_those_there_are() -> None:
    with pytest.raises(KeyError, match=r"third.*first, second"):
        read_report(LOG)["third"]
    assert read_report("").kernels == ()


@needs_nvrtc
def test_a_kernel_that_spills_is_seen() -> None:
    for report in check_compiles(SPILLS).values():
        assert report["spills"].registers == 32
        assert report["spills"].spill_stores > 0
        assert not report.clean
