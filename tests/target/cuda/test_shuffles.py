"""Arrays in the registers of a warp as CUDA text: run on the CPU by the emulation, and compiled by NVRTC."""

from __future__ import annotations

import pytest

import tensorlang
from tensorlang.target.cuda.sass import disassembler, sass
from tensorlang.testing import check_schedule
from tests.target.cuda.compiled import compiled
from tests.target.cuda.emulated import EmulatedCupy
from tests.warp_programs import PROGRAMS

EMULATED = (
    "rotated halves",
    "rotated bools",
    "stencil of 8 lanes",
    "product of 16 lanes",
    "transposed quads",
    "pairs",
    "lanes of two axes",
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", EMULATED)
def test_the_text_computes_what_the_program_says(name: str, emulated_cuda: EmulatedCupy) -> None:
    s, args = PROGRAMS[name]()
    for seed in range(3):
        emulated_cuda.seed = seed
        check_schedule(s, args, targets=("cuda",), seed=seed)


@pytest.mark.parametrize("name", ["stencil", "product", "vectors"])
def test_registers_stay_registers(name: str) -> None:
    s, args = PROGRAMS[name]()
    text = tensorlang.build(s, args, target="cuda -arch=sm_80").source("cuda")
    code = compiled(text, "sm_80")
    (report,) = code.report.kernels
    assert (report.spill_stores, report.spill_loads, report.stack) == (0, 0, 0)
    if disassembler() is None:
        pytest.skip("no nvdisasm: pip install nvidia-cuda-nvdisasm")
    lines = sass(code.cubin)
    assert "SHFL.IDX" in lines
    assert not any(word in lines for word in ("STL", "LDL", "BAR.SYNC"))
