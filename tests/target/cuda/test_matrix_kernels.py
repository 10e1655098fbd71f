"""Two products of bf16 matrices written by hand over the table: what schedules for tensor cores are to come to."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tensorlang.errors import TargetError
from tensorlang.target.cuda.intrinsics import INTRINSICS, declarations, used
from tensorlang.target.cuda.nvrtc import Compiled, compile_cuda, is_available
from tensorlang.target.cuda.sass import disassembler, sass
from tensorlang.target.cuda.swizzle import swizzled_offset

FOLDER = Path(__file__).parent / "kernels"

nvrtc = pytest.mark.skipif(not is_available(), reason="no NVRTC: pip install nvidia-cuda-nvrtc")
disassembles = pytest.mark.skipif(disassembler() is None, reason="no nvdisasm: pip install nvidia-cuda-nvdisasm")


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel, an architecture, and the registers that it may take."""

    name: str
    arch: str
    registers: int


CASES = [
    Case("gemm_bf16_mma", "sm_80", 128),
    Case("gemm_bf16_mma", "sm_90a", 128),
    Case("gemm_bf16_wgmma", "sm_90a", 168),
]
CASE = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.arch}")


def text(name: str) -> str:
    return (FOLDER / f"{name}.cu").read_text(encoding="utf-8")


def compiled(case: Case) -> Compiled:
    body = text(case.name)
    return compile_cuda(declarations(body, case.arch) + body, case.arch)


@nvrtc
@CASE
def test_no_kernel_spills_or_waits_for_its_products(case: Case) -> None:
    report = compiled(case).report
    assert report.clean and not report.warnings, str(report)
    assert report[case.name].stack == 0
    assert 0 < report[case.name].registers <= case.registers


@nvrtc
@CASE
def test_every_call_comes_to_its_instruction(case: Case) -> None:
    ptx = compiled(case).ptx()
    wanted = {name: INTRINSICS[name].mnemonic for name in used(text(case.name))}
    assert len(wanted) >= 6
    assert [name for name, mnemonic in wanted.items() if mnemonic not in ptx] == []


@pytest.mark.sampled(2)
@nvrtc
@disassembles
@CASE
def test_the_inner_loop_is_made_of_matrix_instructions(case: Case) -> None:
    found = Counter(re.findall(r"\b([A-Z][A-Z0-9]+(?:\.[A-Z0-9_x]+)*)\b", sass(compiled(case).cubin)))
    assert not [name for name in found if name.startswith(("LDL", "STL"))]
    if case.name == "gemm_bf16_mma":
        assert found["HMMA.16816.F32.BF16"] == 32
        assert (found["LDSM.16.M88.4"], found["LDSM.16.MT88.4"]) == (8, 4)
        assert found["LDGSTS.E.BYPASS.128"] + found["LDGSTS.E.BYPASS.128.ZFILL"] >= 8
    else:
        assert found["HGMMA.64x256x16.F32.BF16"] >= 4
        assert found["UTMALDG.2D"] >= 2


def test_the_kernel_of_groups_has_no_older_architecture() -> None:
    with pytest.raises(TargetError, match="needs sm_90a, runs on no other"):
        declarations(text("gemm_bf16_wgmma"), "sm_80")


@pytest.mark.parametrize(("row_bytes", "divisor", "mask"), [(64, 2, 3), (256, 1, 7)])
def test_the_offsets_written_out_are_the_swizzle(row_bytes: int, divisor: int, mask: int) -> None:
    """a_offset and b_offset of gemm_bf16_mma, with the shifts that its text has."""
    written = {64: "row * 64 + ((chunk ^ (row >> 1 & 3)) << 4)", 256: "row * 256 + ((chunk ^ (row & 7)) << 4)"}
    assert f"return {written[row_bytes]};" in text("gemm_bf16_mma")
    for row in range(32):
        for chunk in range(row_bytes // 16):
            offset = row * row_bytes + ((chunk ^ (row // divisor & mask)) << 4)
            assert offset == swizzled_offset(row, chunk * 16, row_bytes)
