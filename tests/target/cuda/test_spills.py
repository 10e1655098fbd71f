"""Kernels that spill by the assembler's choice of blocks get more registers; others are compiled as they are."""

from __future__ import annotations

import pytest

from tensorlang.target.cuda import spills
from tensorlang.target.cuda.nvrtc import Compiled
from tensorlang.target.cuda.spills import compile_without_spills

TEXT = (
    'extern "C" __global__ void __launch_bounds__(128) first(float *x) {}\n'
    'extern "C" __global__ void __launch_bounds__(64) second(float *x) {}\n'
)
ENTRY = "ptxas info : Compiling entry function '{name}' for 'sm_80'\nptxas info : Function properties for {name}\n"
PROPERTIES = "    0 bytes stack frame, {bytes} bytes spill stores, {bytes} bytes spill loads\n"


def log(first: int, second: int) -> str:
    both = (("first", first), ("second", second))
    return "".join((ENTRY + PROPERTIES).format(name=name, bytes=count) for name, count in both)


@pytest.mark.parametrize(("crowded", "alone", "wanted"), [(8, 0, True), (8, 8, False), (0, 0, False)])
def test_what_spills_is_compiled_with_room(
    crowded: int, alone: int, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []

    def compiled(text: str, architecture: str) -> Compiled:
        texts.append(text)
        spilled = alone if "(128, 1)" in text else crowded
        return Compiled(text, architecture, (), b"", log(spilled, 0))

    monkeypatch.setattr(spills, "compile_cuda", compiled)
    made = compile_without_spills(TEXT, "sm_80")
    roomy = TEXT.replace("__launch_bounds__(128) ", "__launch_bounds__(128, 1) ")
    assert made.text == (roomy if wanted else TEXT)
    assert texts == ([TEXT, roomy] if crowded else [TEXT])
