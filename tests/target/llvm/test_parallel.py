"""Regions of threads: nests of parallel loops as one range, and how it is shared out."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.expr import Const, Expr, binary, cast
from tensorlang.ir.stmt import Allocate, For, If, Kernel, Let, LoopKind, Stmt
from tensorlang.runtime.executable import Executable
from tensorlang.target.detect import parse
from tensorlang.target.llvm.kernel import emit_kernel
from tensorlang.target.llvm.threads.balance import DYNAMIC, with_shares
from tensorlang.target.llvm.threads.shares import nest

Compile = Callable[..., Executable]
SERIAL, PARALLEL = LoopKind.SERIAL, LoopKind.PARALLEL
i, j, k, t, n, m = indices("i j k t n m")


def _nested(*inner: tuple[Expr | int, Expr | int], shape: tuple[Expr | int, ...], sizes: tuple[Expr, ...]) -> Kernel:
    out = array("out", shape, "int64")
    body: Stmt = store(out, (i, j, k), (i * 1000 + j) * 1000 + k)
    for var, (lower, upper) in zip((k, j, i), reversed(inner), strict=True):
        body = loop(var, lower, upper, body, PARALLEL)
    return Kernel("nested", (out,), sizes, ("out",), body)  # type: ignore[arg-type]


def _expected(shape: tuple[int, ...], bounds: tuple[tuple[int, int], ...]) -> np.ndarray:
    found = np.full(shape, -1, np.int64)
    inside = np.ix_(*(np.arange(low, high) for low, high in bounds))
    a, b, c = inside
    found[inside] = (a * 1000 + b) * 1000 + c
    return found


@pytest.mark.covering(1)
@pytest.mark.parametrize("cores", [1, 2, 3, 7])
@pytest.mark.parametrize(
    "bounds", [((0, 5), (0, 7), (0, 3)), ((1, 4), (2, 7), (1, 2)), ((0, 5), (3, 3), (0, 3)), ((2, 3), (0, 1), (0, 50))]
)
def test_a_nest_of_parallel_loops_is_one_range(
    compiled: Compile, cores: int, bounds: tuple[tuple[int, int], ...]
) -> None:
    kernel = _nested(*bounds, shape=(5, 7, 50), sizes=())
    found = np.full((5, 7, 50), -1, np.int64)
    executable = compiled(kernel, f"llvm -num-cores={cores}")
    executable(found)
    np.testing.assert_array_equal(found, _expected((5, 7, 50), bounds))
    assert executable.source("ll").count("call void @GOMP_parallel") == (cores > 1)


def test_a_nest_with_sizes(compiled: Compile) -> None:
    kernel = _nested((0, n), (1, m), (0, n), shape=(n, m, n), sizes=(n, m))
    executable = compiled(kernel, "llvm -num-cores=3")
    for rows, columns in ((4, 5), (1, 9), (6, 1), (0, 3), (3, 0)):
        found = np.full((rows, columns, rows), -1, np.int64)
        executable(found)
        expected = _expected(found.shape, ((0, rows), (1, max(1, columns)), (0, rows)))
        np.testing.assert_array_equal(found, expected)


def test_a_nest_divides_only_where_a_share_begins() -> None:
    kernel = _nested((0, 50), (0, 70), (0, 30), shape=(50, 70, 30), sizes=())
    text = emit_kernel(kernel, parse("llvm -num-cores=2")).module.text()
    body = text[text.index("define internal void @nested.kernel.i(") :]
    body = body[: body.index("\n}")]
    innermost = body[body.index("phi i64", body.index("phi i64", body.index("phi i64") + 1) + 1) :]
    assert "div" in body
    assert "div" not in innermost


def test_what_is_one_nest() -> None:
    out = array("out", (9, 9), "int64")
    leaf = store(out, (i, j), i)
    inner = loop(j, 0, n, leaf, PARALLEL)
    assert len(nest(loop(i, 0, 9, inner, PARALLEL)).loops) == 2
    assert len(nest(loop(i, 0, 9, Let(t, i * 2, inner), PARALLEL)).loops) == 2
    others: tuple[Stmt | list[Stmt], ...] = (
        loop(j, 0, i, leaf, PARALLEL),
        Let(t, i * 2, loop(j, 0, t, leaf, PARALLEL)),
        [inner, leaf],
        If(i < 5, inner),
        loop(j, 0, 9, leaf),
        Allocate(array("own", (4,)), inner),
    )
    for apart in others:
        assert len(nest(loop(i, 0, 9, apart, PARALLEL)).loops) == 1


def test_a_let_between_the_loops_of_a_nest(compiled: Compile) -> None:
    out = array("out", (6, 8), "int64")
    body = loop(i, 0, 6, Let(t, i * 10, loop(j, 0, 8, store(out, (i, j), t + j), PARALLEL)), PARALLEL)
    found = np.zeros((6, 8), np.int64)
    compiled(Kernel("between", (out,), (), ("out",), body), "llvm -num-cores=3")(found)
    np.testing.assert_array_equal(found, 10 * np.arange(6)[:, None] + np.arange(8))


A = array("a", (n, n))
OUT = array("out", (n, n))
ROWS = array("rows", (n,), "int64")
_WORK = store(OUT, (i, k), 1.0)
_TAIL = binary("min", i * 0 + 8, n - i * 8)

EVEN: dict[str, Stmt] = {
    "rectangle": loop(k, 0, n, _WORK),
    "same length elsewhere": loop(k, i, i + 8, _WORK),
    "a partial tile at the end": loop(k, 0, _TAIL, loop(j, 0, n, _WORK)),
    "a test of data": If(load(A, i, i) > 0.0, loop(k, 0, n, _WORK)),
    "a test that few fail": If(i < n - 1, loop(k, 0, n, _WORK)),
}
UNEVEN: dict[str, Stmt] = {
    "triangle": loop(k, 0, i, _WORK),
    "triangle the other way": loop(k, i + 1, n, _WORK),
    "triangle of a tile": loop(j, i * 8, i * 8 + 8, loop(k, 0, binary("min", j, n), _WORK)),
    "half of the rows": If(i < n // 2, loop(k, 0, n, _WORK)),
    "as long as data says": loop(k, load(ROWS, i), load(ROWS, i + 1), _WORK),
    "by way of a Let": Let(t, n - i, loop(k, 0, t, _WORK)),
}


def _marked(name: str, body: Stmt) -> bool:
    rows = (n + 7) // 8 if "tile" in name else n
    kernel = Kernel("rows", (A, OUT, ROWS), (n,), ("out",), loop(i, 0, rows, body, PARALLEL))
    outer = with_shares(kernel).body
    assert isinstance(outer, For)
    return (DYNAMIC, 1) in outer.pragmas


@pytest.mark.parametrize("name", EVEN)
def test_even_work_has_fixed_shares(name: str) -> None:
    assert not _marked(name, EVEN[name])


@pytest.mark.parametrize("name", UNEVEN)
def test_uneven_work_is_taken_by_who_is_free(name: str) -> None:
    assert _marked(name, UNEVEN[name])


def test_floats_are_no_numbers_of_iterations() -> None:
    limit = Let(t, load(A, 0, 0), loop(i, 0, n, Let(k, Const(float("-inf"), "float32"), _WORK), PARALLEL))
    kernel = Kernel("floats", (A, OUT), (n,), ("out",), limit)
    assert with_shares(kernel) == kernel


def test_work_inside_serial_loops_is_judged_in_their_middle() -> None:
    lu = loop(t, 0, n, loop(i, t + 1, n, loop(k, t + 1, n, _WORK), PARALLEL))
    text = str(with_shares(Kernel("lu", (OUT,), (n,), ("out",), lu)))
    assert DYNAMIC not in text


@pytest.mark.parametrize("size", [0, 1, 5, 64, 300])
def test_free_blocks_cover_a_triangle(compiled: Compile, size: int) -> None:
    out = array("out", (n,), "int64")
    count = loop(k, 0, i, store(out, i, load(out, i) + 1))
    body = loop(i, 0, n, [store(out, i, cast(i * 0, "int64")), count], PARALLEL)
    executable = compiled(Kernel("triangle", (out,), (n,), ("out",), body), "llvm -num-cores=3")
    assert re.search(r"triangle\.kernel\.i\.team.*?atomicrmw add", executable.source("ll"), re.DOTALL)
    for _ in range(20):
        found = np.full(size, -1)
        executable(found)
        np.testing.assert_array_equal(found, np.arange(size))


@pytest.mark.parametrize("uneven", [False, True])
def test_a_caller_that_is_done_lets_helpers_in_that_have_not_begun(uneven: bool) -> None:
    out = array("out", (500, 500), "int64")
    body = loop(i, 0, 500, loop(j, 0, i if uneven else 500, store(out, (i, j), j)), PARALLEL)
    kernel = with_shares(Kernel("fill", (out,), (), ("out",), body))
    text = emit_kernel(kernel, parse("llvm -num-cores=2 -mtriple=x86_64-unknown-linux-gnu")).module.text()
    team = text[text.index("define internal void @fill.kernel.i.team(") :]
    team = team[: team.index("\n}")]
    assert team.count("atomicrmw add ptr") == 1 + uneven
    assert team.rindex("@fill.kernel.i(") < team.index("@tensorlang.let_in(")
    assert text.count("call i32 @sched_yield()") == 1
    elsewhere = emit_kernel(kernel, parse("llvm -num-cores=2 -mtriple=x86_64-pc-windows-msvc")).module.text()
    assert "sched_yield" not in elsewhere
