"""What the machine code looks like: instructions of each CPU, and accumulators that stay in registers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tensorlang.errors import TargetError
from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.stmt import Allocate, Kernel, LoopKind
from tensorlang.runtime.executable import Executable
from tensorlang.target.detect import parse

Compile = Callable[..., Executable]
UNROLLED, VECTORIZED = LoopKind.UNROLLED, LoopKind.VECTORIZED


def _register_tile(rows: int, columns: int, depth: int = 64) -> Kernel:
    """C = A * B with the whole of C in a local buffer: the micro-kernel of a matrix multiplication."""
    a, b = array("A", (rows, depth)), array("B", (depth, columns))
    c, acc = array("C", (rows, columns)), array("acc", (rows, columns), scope="local")
    i, j, k, i0, j0, i1, j1 = indices("i j k i0 j0 i1 j1")
    update = store(acc, (i, j), load(acc, i, j) + load(a, i, k) * load(b, k, j))
    body = [
        loop(i0, 0, rows, loop(j0, 0, columns, store(acc, (i0, j0), 0.0), VECTORIZED), UNROLLED),
        loop(k, 0, depth, loop(i, 0, rows, loop(j, 0, columns, update, VECTORIZED), UNROLLED)),
        loop(i1, 0, rows, loop(j1, 0, columns, store(c, (i1, j1), load(acc, i1, j1)), VECTORIZED), UNROLLED),
    ]
    return Kernel("tile", (a, b, c), (), ("C",), Allocate(acc, loop(indices("once")[0], 0, 1, body)))


def _innermost(assembly: str, marker: str) -> list[str]:
    """The instructions of the loop that holds the multiply-adds."""
    lines = assembly.splitlines()
    marks = [n for n, line in enumerate(lines) if marker in line]
    first = max(n for n in range(marks[0]) if lines[n].startswith(".L"))
    last = next(n for n in range(marks[-1], len(lines)) if lines[n].lstrip().startswith(("j", "b.", "cbnz")))
    return lines[first:last]


@pytest.mark.parametrize(
    ("target", "rows", "columns", "multiply", "register"),
    [
        ("llvm -mcpu=skylake-avx512", 12, 32, "vfmadd", "%zmm"),
        ("llvm -mcpu=x86-64-v4", 8, 48, "vfmadd", "%zmm"),
        ("llvm -mcpu=haswell", 6, 16, "vfmadd", "%ymm"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", 8, 12, "fmla", "v"),
    ],
)
def test_a_register_tile_stays_in_registers(
    compiled: Compile, target: str, rows: int, columns: int, multiply: str, register: str
) -> None:
    assembly = compiled(_register_tile(rows, columns), target).source("asm")
    inside = _innermost(assembly, multiply)
    vectors = rows * columns // parse(target).lanes(32)
    multiplies = [line for line in inside if multiply in line]
    assert len(multiplies) % vectors == 0 and multiplies
    assert all(register in line for line in multiplies)
    assert not [line for line in inside if "(%rsp" in line or "(%rbp" in line or "[sp" in line]


def test_a_register_tile_computes(compiled: Compile) -> None:
    random = np.random.default_rng(0)
    a, b = random.integers(-8, 8, (12, 64)).astype("f4"), random.integers(-8, 8, (64, 32)).astype("f4")
    c = np.zeros((12, 32), "f4")
    compiled(_register_tile(12, 32))(a, b, c)
    np.testing.assert_array_equal(c, a @ b)


def _add(size: int, dtype: str = "float32") -> Kernel:
    a, b = array("A", (size,), dtype), array("B", (size,), dtype)
    (i,) = indices("i")
    return Kernel("add", (a, b), (), ("B",), loop(i, 0, size, store(b, i, load(a, i) + load(b, i)), VECTORIZED))


@pytest.mark.parametrize(
    ("cpu", "wanted", "absent"),
    [
        ("x86-64", "addps\t", "%ymm"),
        ("haswell", "%ymm", "%zmm"),
        ("skylake-avx512", "%zmm", "%rsp"),
        ("neoverse-n1", "fadd\tv", "ymm"),
    ],
)
def test_vector_loops_use_the_widest_registers(compiled: Compile, cpu: str, wanted: str, absent: str) -> None:
    assembly = compiled(_add(64), f"llvm -mcpu={cpu}").source("asm")
    assert wanted in assembly
    assert absent not in assembly


def test_a_remainder_is_one_narrower_piece(compiled: Compile) -> None:
    text = compiled(_add(28), "llvm -mcpu=skylake-avx512").source("ll")
    assert "<16 x float>" in text
    assert "<12 x float>" in text
    assert "br " not in text


def test_many_pieces_become_a_loop(compiled: Compile) -> None:
    text = compiled(_add(16 * 100 + 3), "llvm -mcpu=skylake-avx512").source("ll")
    assert text.count("load <16 x float>") == 2
    assert "load <3 x float>" in text


def test_narrow_types_fill_the_register(compiled: Compile) -> None:
    assert "<64 x i8>" in compiled(_add(64, "int8"), "llvm -mcpu=skylake-avx512").source("ll")
    assert "<8 x double>" in compiled(_add(64, "float64"), "llvm -mcpu=skylake-avx512").source("ll")
    assert "<16 x half>" in compiled(_add(64, "float16"), "llvm -mcpu=skylake-avx512").source("ll")


def test_code_for_another_machine_is_shown_but_not_run(compiled: Compile) -> None:
    executable = compiled(_add(4), "llvm -mtriple=aarch64-linux-gnu")
    assert ".type\tadd.kernel,@function" in executable.source("asm")
    values = np.zeros(4, "f4")
    with pytest.raises(TargetError, match=r"was built for llvm -mtriple=aarch64-linux-gnu -mcpu=generic"):
        executable(values, values.copy())


def test_bound_loops_are_refused(compiled: Compile) -> None:
    a = array("A", (8,))
    (i,) = indices("i")
    kernel = Kernel("f", (a,), (), ("A",), loop(i, 0, 8, store(a, i, 1.0), LoopKind.BOUND, "threadIdx.x"))
    with pytest.raises(TargetError, match=r"bound to threadIdx\.x.*interpreter"):
        compiled(kernel)


def test_float16_needs_its_conversion_instructions(compiled: Compile) -> None:
    with pytest.raises(TargetError, match="float16 needs the CPU feature f16c, which llvm -mcpu=nehalem lacks"):
        compiled(_add(8, "float16"), "llvm -mcpu=nehalem")
    assert "vcvtph2ps" in compiled(_add(8, "float16"), "llvm -mcpu=haswell").source("asm")
