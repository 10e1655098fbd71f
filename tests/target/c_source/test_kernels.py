"""Texts of kernels: parameters, index types, loops, names, asynchronous copies; golden files of whole ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tensorlang.errors import InternalError, TargetError
from tensorlang.ir.construct import array, index, indices, load, loop, store
from tensorlang.ir.expr import Const, Expr, Var, binary, cast
from tensorlang.ir.stmt import (
    INDEX,
    Allocate,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Barrier,
    CallPython,
    DeviceKernel,
    If,
    Let,
    LoopKind,
    Seq,
    Stmt,
)
from tensorlang.target.c_source import CUDA, OPENCL, Dialect, device_source, module_source
from tests.target.c_source.device_programs import BX, TX, Array, device_kernel, interpreted, same_values
from tests.target.c_source.test_together import argmax_kernel, matmul, reduction
from tests.target.cuda.compiled import check_compiles

Run = Callable[..., int]
i, j, k = indices("i j k")
n = Var("n", INDEX)


def symbolic(wide: bool = True) -> DeviceKernel:
    """out[i, j] = A[j, i] + j, of any size."""
    a, out = array("A", (n, n)), array("out", (n, n))
    at = BX * 32 + TX
    body = If(at < n, loop(j, 0, n, store(out, (at, j), load(a, j, at) + cast(j, "float32"))))
    grid = binary("floordiv", n + 31, index(32))
    return device_kernel((a, out), body, (grid,), (32,), (), (n,), "int64" if wide else "int32", "transpose")


@pytest.mark.parametrize("wide", [False, True])
def test_sizes_are_scalars(run: Run, wide: bool) -> None:
    a = np.arange(40 * 40, dtype=np.float32).reshape(40, 40)
    out = np.zeros_like(a)
    run(symbolic(wide), {"A": a, "out": out}, {"n": 40})
    np.testing.assert_array_equal(out, a.T + np.arange(40, dtype=np.float32))


def test_the_index_type_is_the_kernels() -> None:
    assert "for (long long j = 0; j < n; ++j)" in device_source(symbolic(True), CUDA).text
    assert "for (long j = 0; j < n; ++j)" in device_source(symbolic(True), OPENCL).text
    narrow = device_source(symbolic(False), CUDA).text
    assert "long long n_long" in narrow and "for (int j = 0; j < n; ++j)" in narrow


def test_data_is_wide_where_indices_are_narrow(run: Run) -> None:
    out = array("out", (64,), "int64")
    kernel = device_kernel((out,), store(out, TX, (TX * 100000 + BX) * 1000000 - (TX * 5000000) * TX), (), (64,))
    given: dict[str, Array] = {"out": np.zeros(64, np.int64)}
    expected = {"out": np.zeros(64, np.int64)}
    interpreted(kernel, expected)
    run(kernel, given)
    same_values(given["out"], expected["out"])
    assert expected["out"].max() > 2**40


def test_quotients_of_what_is_not_negative_are_plain(run: Run) -> None:
    out = array("out", (4, 64), "int32")
    tests: list[Expr] = [TX, TX - 30]
    stores = [
        store(out, (row, TX), cast(binary(op, value, index(6)), "int32"))
        for row, (op, value) in enumerate((op, v) for op in ("floordiv", "floormod") for v in tests)
    ]
    kernel = device_kernel((out,), stores, (), (64,))
    text = device_source(kernel, CUDA).text
    assert "= thread_x / 6;" in text and "= thread_x % 6;" in text
    assert "floordiv_int32(thread_x - 30, 6)" in text
    given: dict[str, Array] = {"out": np.zeros((4, 64), np.int32)}
    run(kernel, given)
    x = np.arange(64)
    np.testing.assert_array_equal(given["out"], [x // 6, (x - 30) // 6, x % 6, (x - 30) % 6])


def test_loops_over_registers_are_unrolled() -> None:
    acc, out = array("acc", (4, 4), scope="local"), array("out", (64, 16))
    fill = loop(i, 0, 4, loop(j, 0, 4, store(acc, (i, j), 0.0)))
    steps = loop(k, 0, 32, loop(i, 0, 4, loop(j, 0, 4, store(acc, (i, j), load(acc, i, j) + cast(k, "float32")))))
    last = loop(i, 0, 4, loop(j, 0, 4, store(out, (TX, i * 4 + j), load(acc, i, j))))
    kernel = device_kernel((out,), Allocate(acc, Seq((fill, steps, last))), (), (64,))
    source = device_source(kernel, CUDA)
    assert source.text.count("#pragma unroll\n") == 6
    assert all(r.kernels[0].stack == 0 for r in check_compiles(source.text).values())


def test_unrolled_loops_say_so() -> None:
    out = array("out", (64,))
    body = loop(i, 0, 8, store(out, TX * 8 + i, 1.0), LoopKind.UNROLLED)
    text = device_source(device_kernel((out,), body, (), (8,)), OPENCL).text
    assert "#pragma unroll\n    for (int i = 0; i < 8; ++i) {" in text


def test_names_become_identifiers(run: Run) -> None:
    names = ("i.o", "i_o", "for", "float4", "exp", "2nd", "i.o")
    a, out = array("global", (64,)), array("A.shared", (64,))
    total: Expr = Const(0, INDEX)
    variables = [Var(name, INDEX) for name in names]
    for var in variables[:-1]:
        total = total + var
    body: Stmt = Seq((store(out, total, load(a, total)), loop(variables[-1], 0, 0, store(out, variables[-1], 0.0))))
    for var in variables[:-1]:
        body = loop(var, 1, 3, body)
    kernel = device_kernel((a, out), body)
    check_compiles(device_source(kernel, CUDA).text, ("sm_80",))
    given: dict[str, Array] = {"global": np.arange(64, dtype=np.float32), "A.shared": np.zeros(64, np.float32)}
    expected = {name: values.copy() for name, values in given.items()}
    interpreted(kernel, expected)
    run(kernel, given)
    same_values(given["A.shared"], expected["A.shared"])


def test_a_variable_may_hide_another(run: Run) -> None:
    out, t = array("out", (64,), "int64"), Var("t", INDEX)
    inner = Let(t, t * 2 + 1, Seq((store(out, t, t), loop(t, 40, 44, store(out, t, t * 3)))))
    body = Let(t, index(7), Seq((inner, store(out, t, t * 5), Let(t, t + 1, store(out, t, t)))))
    kernel = device_kernel((out,), body)
    given, expected = ({"out": np.zeros(64, np.int64)} for _ in range(2))
    interpreted(kernel, expected)
    run(kernel, given)
    same_values(given["out"], expected["out"])


def staged(elements: int = 4, offset: int = 0, dtype: str = "float32") -> DeviceKernel:
    """Tiles come to shared memory asynchronously, two stages ahead, and zeros behind the end."""
    a, out = array("A", (4 * 64 * elements,), dtype), array("out", (4, 64 * elements), dtype)
    stages = array("stages", (3, 64 * elements + offset), dtype, "shared")

    def fetch(tile: Expr) -> Stmt:
        where = binary("floormod", tile, index(3))
        source = (tile * (64 * elements) + TX * elements,)
        copy = AsyncCopy(stages, (where, TX * elements + offset), a, source, elements, tile < 3)
        return Seq((copy, AsyncCommit()))

    at = (63 - TX) * elements
    held = [load(stages, binary("floormod", k, index(3)), at + n + offset) for n in range(elements)]
    use = [store(out, (k, at + n), value) for n, value in enumerate(held)]
    steps = loop(k, 0, 4, [AsyncWait(1), Barrier(), *use, fetch(k + 2)])
    body = Seq((fetch(index(0)), fetch(index(1)), steps))
    return device_kernel((a, out), body, (), (64,), (stages,), name="staged")


@pytest.mark.parametrize(
    ("elements", "offset", "dtype", "called"),
    [(4, 0, "float32", "cg_16"), (1, 1, "float32", "ca_4"), (4, 4, "float16", "ca_8"), (1, 0, "float16", "")],
)
def test_asynchronous_copies(elements: int, offset: int, dtype: str, called: str) -> None:
    kernel = staged(elements, offset, dtype)
    source = device_source(kernel, CUDA)
    assert (f"tl_cp_async_{called}_zfill(" in source.text) == bool(called)
    assert "tl_cp_async_wait<1>();" in source.text
    check_compiles(source.text)
    check_compiles(source.text, ("sm_75",))
    assert "async" not in device_source(kernel, OPENCL).text


def test_copies_where_there_are_no_asynchronous_ones(run: Run) -> None:
    a, out = np.arange(1024, dtype=np.float32), np.ones((4, 256), np.float32)
    run(staged(), {"A": a, "out": out})
    wanted = a.reshape(4, 256).copy()
    wanted[3] = 0
    np.testing.assert_array_equal(out, wanted)


def test_what_a_thread_cannot_do_is_refused() -> None:
    out = array("out", (64,))
    sized = Allocate(array("own", (n,), scope="local"), store(out, TX, 1.0))
    with pytest.raises(TargetError, match="no constant size"):
        device_source(device_kernel((out,), sized, (), (64,), (), (n,)), CUDA)
    with pytest.raises(InternalError, match="CallPython"):
        device_source(device_kernel((out,), CallPython("f", (out,))), CUDA)
    with pytest.raises(InternalError, match="not defined"):
        device_source(device_kernel((out,), store(out, i, 1.0)), OPENCL)
    with pytest.raises(InternalError, match="still bound"):
        device_source(device_kernel((out,), loop(i, 0, 4, store(out, i, 1.0), LoopKind.BOUND, "threadIdx.x")), OPENCL)


@pytest.mark.parametrize("dialect", [CUDA, OPENCL], ids=["cuda", "opencl"])
def test_whole_texts(golden: Callable[..., None], dialect: Dialect) -> None:
    kernels = (matmul(), symbolic(), staged(), argmax_kernel(64), reduction((6, 4), "x", "float16", "max"))
    named = [replace(kernel, name=f"kernel{position}") for position, kernel in enumerate(kernels)]
    golden(module_source(named, dialect).text)
