"""Products of warp groups under way (wgmma): where schedules wait for them, what the compiler makes of it, faults."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tensorlang.errors import InternalError, KernelError
from tensorlang.ir import threads
from tensorlang.ir.stmt import Barrier, CallMachine, Kernel, Launch, MachineWait, Seq, Stmt, map_children, walk
from tensorlang.runtime.host_program import device_kernels
from tensorlang.target.cuda.sass import disassembler, sass
from tensorlang.testing.cuda_emulation import unavailable
from tests.target.cuda.compiled import compiled, needs_nvrtc
from tests.target.cuda.tensor_core_gemm import GroupProduct, Product, arrays, kernel
from tests.target.cuda.test_tensor_cores import check, large, result, text

emulated = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

AT_ONCE, LATER = GroupProduct(128, 256, 384), GroupProduct(128, 256, 384, ahead=2)
"""A tile is written again in the step after it was read, and one step later."""

CASES: dict[str, Product | GroupProduct] = {
    "at once": AT_ONCE,
    "one step later": LATER,
    "64 x 64": GroupProduct(64, 64, 320, groups=1, columns=64, stages=3, ahead=1),
    "int8": GroupProduct(128, 128, 640, "s8", columns=128, ahead=2),
    "b as [k][n]": GroupProduct(128, 256, 192, ahead=2, turned=False),
    "a as [k][m], b as [k][n]": GroupProduct(128, 128, 256, columns=128, stages=3, turned=False, a_turned=True),
    "two products of a step": GroupProduct(64, 128, 192, groups=1, columns=128, stages=3, wide=64),
    "one step": GroupProduct(64, 64, 64, groups=1, columns=64, stages=1),
    "warps, a as [k][m]": Product(64, 64, 64, a_turned=True, block=(64, 64), warp=(32, 32)),
}
EMULATED = ("one step later", "a as [k][m], b as [k][n]", "two products of a step", "warps, a as [k][m]")
"""Those that tests/target/cuda/test_tensor_cores.py has nothing of."""
REGISTERS = {"one step later": 168, "b as [k][n]": 172, "64 x 64": 72, "int8": 104}


@pytest.mark.sampled(2)
@emulated
@pytest.mark.parametrize("name", EMULATED)
def test_products_are_right_in_any_order(name: str) -> None:
    p = CASES[name]
    seeds = 3 if p == LATER else 1
    if isinstance(p, GroupProduct) and seeds > 1:
        p = replace(p, n=64, columns=64)  # for the time that it takes
    given, wanted = arrays(p)
    program = kernel(p)
    for mode in ("late", "at_once"):
        for seed in range(seeds):
            check(p, result(program, given, mode, seed), wanted)


def waits(program: Kernel) -> list[int]:
    """How many groups may be under way at the waits for machine code, in the order of the text."""
    (found,) = device_kernels(program)
    return [s.pending for s in walk(found.body) if isinstance(s, MachineWait)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("at once", [0, 0]), ("one step later", [1, 0]), ("64 x 64", [1, 0]), ("int8", [1, 0]),
        ("two products of a step", [0, 0]), ("one step", [0]),
    ],
)  # fmt: skip
def test_waits_stand_before_what_depends_on_products(name: str, wanted: list[int]) -> None:
    """Before the barrier behind which a tile is written again, and before sums are read."""
    assert waits(large(CASES[name]) if name != "one step" else kernel(CASES[name])) == wanted


def test_the_first_product_stores_in_place_of_adding() -> None:
    program = kernel(LATER)
    calls = [s for k in device_kernels(program) for s in walk(k.body) if isinstance(s, CallMachine)]
    assert [str(s.accumulates) for s in calls] == ["int32(k_o != 0)"]
    assert "tl_zero" not in text(program).rpartition("__global__")[2]


@pytest.mark.sampled(2)
@needs_nvrtc
@pytest.mark.skipif(disassembler() is None, reason="no nvdisasm: pip install nvidia-cuda-nvdisasm")
@pytest.mark.parametrize("name", REGISTERS)
def test_the_compiler_lets_products_be_under_way(name: str) -> None:
    program = large(CASES[name])
    made = compiled(text(program), "sm_90a")
    report = made.report["gemm_kernel0"]
    assert made.report.clean and not made.report.warnings and report.stack == 0, str(made.report)
    assert 0 < report.registers <= REGISTERS[name]
    code = sass(made.cubin)
    pending = [int(n, 16) for n in re.findall(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x(\w+)", code)]
    assert set(pending) == set(waits(program))
    products = re.findall(r"\b[HI]GMMA\S+ R\d+, gdesc\[UR\d+\]\S*, (.*?);", code)
    steps = len(products) // 4
    assert len(products) == 4 * steps and steps in (1, 2)  # the compiler may write the loop out twice
    assert "UP" in products[0] and not any("UP" in operands for operands in products[1:4])
    assert len(re.findall(r"\bCS2R\b", code)) < 8  # sums are not cleared


@needs_nvrtc
@pytest.mark.skipif(disassembler() is None, reason="no nvdisasm: pip install nvidia-cuda-nvdisasm")
def test_fragments_of_a_are_turned_on_their_way() -> None:
    made = compiled(text(large(Product(128, 128, 96, a_turned=True))), "sm_80")
    assert made.report.clean and made.report["gemm_kernel0"].registers <= 128
    code = sass(made.cubin)
    assert code.count("LDSM.16.MT88.4") == 12 and code.count("HMMA.16816.F32.BF16") == 32


def rewritten(program: Kernel, change: Callable[[Stmt], Stmt | None]) -> Kernel:
    """The program with statements of its launches replaced."""

    def visit(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Launch):
            return replace(stmt, kernel=replace(stmt.kernel, body=visit(stmt.kernel.body)))
        found = change(stmt)
        return map_children(stmt, visit) if found is None else found

    return replace(program, body=visit(program.body))


def in_order(parts: Sequence[Stmt]) -> bool:
    """Whether statements hold a wait right before a barrier."""
    return any(isinstance(a, MachineWait) and isinstance(b, Barrier) for a, b in pairwise(parts))


def left_out(stmt: Stmt) -> Stmt | None:
    return Seq(()) if isinstance(stmt, MachineWait) else None


def one_more(stmt: Stmt) -> Stmt | None:
    """A wait for one group fewer, in front of a barrier."""
    if not (isinstance(stmt, Seq) and in_order(stmt.body)):
        return None
    return Seq(tuple(replace(s, pending=s.pending + 1) if isinstance(s, MachineWait) else s for s in stmt.body))


def behind(stmt: Stmt) -> Stmt | None:
    """The wait behind the barrier."""
    if not (isinstance(stmt, Seq) and in_order(stmt.body)):
        return None
    parts = list(stmt.body)
    at = next(k for k, s in enumerate(parts) if isinstance(s, MachineWait))
    parts[at], parts[at + 1] = parts[at + 1], parts[at]
    return Seq(tuple(parts))


SMALL = GroupProduct(64, 64, 192, groups=1, columns=64, stages=2)


def test_the_interpreter_takes_products_as_begun() -> None:
    given, wanted = arrays(SMALL)
    threads.run(kernel(SMALL), given, late=True)
    np.testing.assert_array_equal(given["C"], wanted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (left_out, r"writes [AB]\.shared.* while machine code that reads it is under way"),
        (one_more, r"writes [AB]\.shared.* while machine code that reads it is under way"),
        (behind, r"both of block .*, with no barrier between\n[^\n]*begin copy [^\n]*\n[^\n]*machine cuda\.wgmma"),
    ],
)
def test_the_interpreter_finds_waits_that_are_wrong(change: Callable[[Stmt], Stmt | None], message: str) -> None:
    given, _ = arrays(SMALL)
    with pytest.raises(InternalError, match=message):
        threads.run(rewritten(kernel(SMALL), change), given)


def test_the_interpreter_finds_sums_that_are_read_too_early() -> None:
    p = replace(SMALL, k=64, stages=1)
    given, _ = arrays(p)
    with pytest.raises(InternalError, match=r"reads C\.warp\[.*\] while machine code that writes it is under way"):
        threads.run(rewritten(kernel(p), left_out), given)


@emulated
@pytest.mark.parametrize("change", [left_out, one_more])
def test_the_emulation_finds_waits_that_are_wrong(change: Callable[[Stmt], Stmt | None]) -> None:
    p = replace(AT_ONCE, k=512, n=64, columns=64)
    given, wanted = arrays(p)
    wrong = rewritten(kernel(p), change)
    try:
        right = all(np.array_equal(result(wrong, given, "at_once", seed), wanted) for seed in range(3))
    except KernelError:
        right = False
    assert not right
