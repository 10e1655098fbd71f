"""Vector loops whose reads overlap: whole cache lines and shuffles read the same elements, and no others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tensorlang import dtypes
from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.construct import kernel as build
from tensorlang.ir.expr import Buffer, Expr, binary, select
from tensorlang.ir.stmt import Allocate, Kernel, LoopKind, Stmt
from tensorlang.runtime.executable import Executable

Compile = Callable[..., Executable]
Body = Callable[[Buffer, Buffer], Stmt]
ROW, AT, LOWER, UPPER = indices("i j lower upper")
AVX512, AVX2 = "llvm -mcpu=skylake-avx512", "llvm -mcpu=haswell"
ROWS = 4
FAR = 20


def _star(p: Buffer, q: Buffer) -> Stmt:
    """Reads on both sides, above and below, and one in the line after next."""
    ends = load(p, ROW, AT - 1) + load(p, ROW, AT + 1) * 2 + load(p, ROW, AT + FAR) * 11
    return store(q, (ROW, AT), load(p, ROW, AT) * 3 + ends + load(p, ROW - 1, AT) * 5 + load(p, ROW + 1, AT) * 7)


def _star_of(p: np.ndarray, i: int, at: np.ndarray) -> np.ndarray:
    """What `_star` stores."""
    ends = p[i, at - 1] + p[i, at + 1] * 2 + p[i, at + FAR] * 11
    return np.asarray(p[i, at] * 3 + ends + p[i - 1, at] * 5 + p[i + 1, at] * 7)


def _on_copies(width: int, bounds: tuple[Expr | int, Expr | int], body: Body, dtype: str, stride: int) -> Kernel:
    """A body between an array P of ours, a copy of A, and Q, a copy of B that becomes B again."""
    a, b = (array(name, (ROWS, width), dtype) for name in "AB")
    p, q = (array(name, (ROWS, stride), dtype) for name in "PQ")
    r, c = indices("r c")

    def copied(to: Buffer, source: Buffer) -> Stmt:
        return loop(r, 0, ROWS, loop(c, 0, width, store(to, (r, c), load(source, r, c))))

    inside = loop(ROW, 1, ROWS - 1, loop(AT, *bounds, body(p, q), LoopKind.VECTORIZED))
    lines = (copied(p, a), copied(q, b), inside, copied(b, q))
    sizes = [v for v in (LOWER, UPPER) if v in bounds]
    made = build("copies", [a, b], "B", lines, sizes)
    return Kernel(made.name, made.params, made.sizes, made.outputs, Allocate(p, Allocate(q, made.body)))


def _check(run: Executable, width: int, lower: int, upper: int, dtype: str, *sizes: int) -> None:
    values = np.random.default_rng(0).integers(-50, 50, (2, ROWS, width)).astype(dtypes.info(dtype).numpy)
    got, expected = values[1].copy(), values[1].copy()
    for i in range(1, ROWS - 1):
        at = np.arange(lower, upper)
        expected[i, at] = _star_of(values[0], i, at)
    run(values[0], got, *sizes)
    np.testing.assert_array_equal(got, expected, err_msg=f"{lower} to {upper}")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int16", "uint8"])
@pytest.mark.parametrize(
    ("lower", "upper"), [(1, 480), (1, 5), (3, 17), (16, 272), (17, 273), (32, 459), (1, 129), (5, 260), (15, 16)]
)
def test_known_bounds(compiled: Compile, lower: int, upper: int, dtype: str) -> None:
    kernel = _on_copies(500, (lower, upper), _star, dtype, 512)
    _check(compiled(kernel), 500, lower, upper, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bounds_that_are_known_late(compiled: Compile, dtype: str) -> None:
    a, b = (array(name, (ROWS, 500), dtype) for name in "AB")
    sizes = array("S", (LOWER, UPPER), "int8")
    made = _on_copies(500, (LOWER, UPPER), _star, dtype, 512)
    run = compiled(Kernel(made.name, (a, b, sizes), made.sizes, made.outputs, made.body))
    for lower, upper in ((1, 480), (1, 5), (16, 16), (16, 272), (20, 11), (33, 300), (15, 16), (1, 129)):
        _check(run, 500, lower, max(lower, upper), dtype, np.zeros((lower, upper), "int8"))  # type: ignore[arg-type]


@pytest.mark.parametrize(("lower", "upper"), [(1, 480), (3, 17), (64, 320)])
def test_bools(compiled: Compile, lower: int, upper: int) -> None:
    def body(p: Buffer, q: Buffer) -> Stmt:
        return store(q, (ROW, AT), binary("and", load(p, ROW, AT - 1), load(p, ROW, AT + 1)))

    a, b = np.random.default_rng(0).random((2, ROWS, 500)) < 0.6
    expected = b.copy()
    expected[1:-1, lower:upper] = a[1:-1, lower - 1 : upper - 1] & a[1:-1, lower + 1 : upper + 1]
    compiled(_on_copies(500, (lower, upper), body, "bool", 512))(a, b)
    np.testing.assert_array_equal(b, expected)


def test_lines_are_joined_where_registers_are_as_wide(compiled: Compile) -> None:
    kernel = _on_copies(500, (1, 480), _star, "float32", 512)
    assert "valignd" in compiled(kernel, AVX512).source("asm")
    assert "shufflevector <8 x" not in compiled(kernel, AVX2).source("ll")


def _joins(compiled: Compile, body: Body, stride: int = 512) -> bool:
    return "valignd" in compiled(_on_copies(500, (1, 480), body, "float32", stride), AVX512).source("asm")


def test_rows_that_begin_inside_of_lines_are_read_as_they_are(compiled: Compile) -> None:
    assert not _joins(compiled, _star, 510)
    _check(compiled(_on_copies(500, (1, 480), _star, "float32", 510)), 500, 1, 480, "float32")


def test_what_a_loop_writes_is_read_anew(compiled: Compile) -> None:
    assert not _joins(compiled, lambda p, q: store(q, (ROW, AT), load(q, ROW, AT - 1) + load(q, ROW, AT)))


def test_reads_that_may_not_happen_are_left_alone(compiled: Compile) -> None:
    def body(p: Buffer, q: Buffer) -> Stmt:
        return store(
            q, (ROW, AT), select(load(q, 0, 0) > 0, load(p, ROW, AT - 1) + load(p, ROW, AT), load(p, ROW, AT + 1))
        )

    assert not _joins(compiled, body)


def test_reads_that_decide_about_others_are_joined(compiled: Compile) -> None:
    def body(p: Buffer, q: Buffer) -> Stmt:
        return store(q, (ROW, AT), select(load(p, ROW, AT - 1) > load(p, ROW, AT + 1), load(p, ROW, 0), 0.0))

    assert _joins(compiled, body)
