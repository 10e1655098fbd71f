"""Small kernels on blocks and threads, which every target that has threads must run as the reference does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensorlang
from tensorlang import dtypes, nd, te
from tensorlang.errors import KernelError
from tensorlang.testing.check import check_schedule
from tests import opencl_builds
from tests.device_targets import DEVICE_TARGETS, on_cuda, on_opencl
from tests.programs import Case, argmax, chain, matmul, row_sum, stencil
from tests.threaded_programs import (
    BLOCK_X,
    BLOCK_Y,
    THREAD_X,
    THREAD_Y,
    on_threads,
    reduced_by_threads,
    shared_matmul,
    two_kernels,
)

n = te.var("n")
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@pytest.fixture(params=DEVICE_TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    """A target with threads."""
    return str(request.param)


def elementwise(dtype: str, body: Callable[[Any, Any], Any], extent: Any = 77) -> Case:
    """C = body(A, B), an element a thread."""
    A, B = te.placeholder((extent,), dtype, name="A"), te.placeholder((extent,), dtype, name="B")
    C = te.compute((extent,), lambda i: body(A[i], B[i]), name="C")
    s = te.create_schedule(C.op)
    on_threads(s, C, C.op.axis[0])
    return Case(s, (A, B, C))


def convert(source: str, target: str) -> Case:
    """A of one dtype as another, and back; two kernels."""
    A = te.placeholder((19,), source, name="A")
    B = te.compute((19,), lambda i: A[i].astype(target), name="B")
    C = te.compute((19,), lambda i: B[i].astype(source), name="C")
    s = te.create_schedule([B.op, C.op])
    for stage in (B, C):
        on_threads(s, stage, stage.op.axis[0], 8)
    return Case(s, (A, B, C))


def intrinsic(function: Callable[[Any], Any], dtype: str = "float32") -> Case:
    """C = function(0.1 + |A| / 4), which lies in every function's domain."""
    A = te.placeholder((21,), dtype, name="A")
    C = te.compute((21,), lambda i: function(te.abs(A[i]) * te.const(0.25, dtype) + te.const(0.125, dtype)), name="C")
    s = te.create_schedule(C.op)
    on_threads(s, C, C.op.axis[0], 8)
    return Case(s, (A, C))


def tiled_matmul(m: Any, columns: Any, k: Any, dtype: str = "float32") -> Case:
    """C = A B, each thread a tile of 2 x 4 in loops of its own, each block 8 x 16."""
    s, args = matmul(m, columns, k, dtype)
    C = args[2]
    i, j = C.op.axis
    i_o, j_o, i_i, j_i = s[C].tile(i, j, 8, 16)
    i_t, j_t, i_e, j_e = s[C].tile(i_i, j_i, 2, 4)
    for axis, tag in ((i_o, BLOCK_Y), (j_o, BLOCK_X), (i_t, THREAD_Y), (j_t, THREAD_X)):
        s[C].bind(axis, tag)
    s[C].reorder(i_o, j_o, i_t, j_t, C.op.reduce_axis[0], i_e, j_e)
    return Case(s, args)


def block_sum(dtype: str) -> Case:
    """Sums of rows of a dtype."""
    return reduced_by_threads(row_sum(5, 50, dtype), "B", 16)


def copies_while_reducing() -> Case:
    """Threads that reduce, each of which copies what it reads inside the loops that they run on their own."""
    A, B = te.placeholder((3, 5), name="A"), te.placeholder((8,), name="B")
    k, m = te.reduce_axis((0, 3), name="k"), te.reduce_axis((0, 8), name="m")
    T = te.compute((4, 5), lambda i, j: te.sum(A[k, j] * B[m] + i, axis=[k, m]), name="T")
    s = te.create_schedule(T.op)
    outer, inner = s[T].split("m", factor=2)
    s[T].reorder("i", "k", outer, inner, "j")
    s[T].bind("i", BLOCK_X)
    s[T].bind(outer, THREAD_X)
    copy = s.cache_read(B, "local", [T])
    s[copy].compute_at(s[T], inner)
    return Case(s, (A, B, T))


def registers_ahead() -> Case:
    """Registers that are filled a tile ahead, beside shared memory that is: they outlive regions of threads."""
    A, B = te.placeholder((16, 32), name="A"), te.placeholder((32,), name="B")
    k = te.reduce_axis((0, 32), "k")
    C = te.compute((16,), lambda i: te.sum(A[i, k] * B[k], axis=k), name="C")
    s = te.create_schedule(C.op)
    on_threads(s, C, "i", 8)
    outer, _ = s[C].split("k", factor=4)
    shared, own = s.cache_read(B, "shared", [C]), s.cache_read(A, "local", [C])
    for copy in (shared, own):
        s[copy].compute_at(s[C], outer)
        s[copy].pipeline(2)
    s[shared].bind(s[shared].op.axis[0], THREAD_X)
    return Case(s, (A, B, C))


def tiles_beside_tiles_ahead() -> Case:
    """A tile that iterations which only fill others ahead do not use."""
    A = te.placeholder((6, 8), name="A")
    T = te.compute((6, 8), lambda i, j: A[i, 7 - j] * 2, name="T")
    C = te.compute((6, 8), lambda i, j: T[i, j] + T[i, 7 - j], name="C")
    s = te.create_schedule(C.op)
    outer, inner = s[C].split("i", factor=3)
    s[C].bind(outer, BLOCK_X)
    s[T].compute_at(s[C], inner)
    s[T].bind("j", THREAD_X)
    copy = s.cache_read(A, "shared", [T])
    s[copy].compute_at(s[C], inner)
    s[copy].bind("ax1", THREAD_X)
    s[copy].pipeline(3)
    return Case(s, (A, C))


def updated_atomically() -> Case:
    """A sum whose updates meet in blocks and in threads, none of which may store it otherwise."""
    s, args = row_sum(3, 24, "int32")
    s["B"].atomic()
    outer, inner = s["B"].split("k", factor=12)
    most, least = s["B"].split(inner, factor=3)
    s["B"].reorder(outer, most, least, "i")
    s["B"].bind(outer, BLOCK_X)
    s["B"].bind(most, THREAD_X)
    s["B"].parallel(least)
    return Case(s, args)


def updated_atomically_in_rows() -> Case:
    """Elements of threads, each updated by several others once it has begun."""
    s, args = row_sum(6, 8, "int32")
    s["B"].atomic()
    outer, inner = s["B"].split("i", factor=3)
    s["B"].bind(outer, BLOCK_X)
    s["B"].bind(inner, THREAD_Y)
    s["B"].bind("k", THREAD_X)
    return Case(s, args)


def equal_on_a_slant() -> Case:
    """A thread's own array of equal elements, of which rows begin and end at different columns."""
    A = te.placeholder((2,), "int32", name="A")
    B = te.compute((5, 4), lambda i, j: A[1] + 1, name="B")
    k = te.reduce_axis((0, 1), name="k")
    C = te.compute((2,), lambda i: te.sum(B[i + k, 3] + B[4, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    s[C].bind("k", THREAD_X)
    s[B].transform_layout(lambda i, j: [i + j, i])
    s[B].set_scope("local")
    return Case(s, (A, C))


def read_by_other_threads() -> Case:
    """A stage that reads, inside a loop on threads, what others of the threads there have stored."""
    A = te.placeholder((4, 8), "int32", name="A")
    B = te.compute((4, 8), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((4, 8), lambda i, j: B[i, 7 - j], name="C")
    s = te.create_schedule([B.op, C.op])
    s[B].bind("i", THREAD_Y)
    s[B].bind("j", THREAD_X)
    s[C].reverse_compute_at(s[B], "i")
    s[C].bind("j", THREAD_X)
    return Case(s, (A, B, C))


def tiles_of_virtual_threads() -> Case:
    """A tile that virtual threads fill one after the other."""
    A = te.placeholder((4, 8), "int32", name="A")
    C = te.compute((4, 8), lambda i, j: A[i, 7 - j], name="C")
    s = te.create_schedule(C.op)
    copy = s.cache_read(A, "global", [C])
    outer, inner = s[C].split("i", factor=2)
    s[C].bind(outer, BLOCK_X)
    s[C].bind(inner, "vthread")
    s[C].bind("j", THREAD_X)
    s[copy].compute_at(s[C], inner)
    s[copy].bind("ax1", THREAD_X)
    return Case(s, (A, C))


def rows(case: Case, name: str) -> Case:
    """A reduction whose rows are threads."""
    s, args = case
    on_threads(s, name, s[name].op.axis[0], 4)
    return Case(s, args)


def with_scratch() -> Case:
    """A stage that each thread computes for itself."""
    s, args = stencil(50)
    outer, inner = s["C"].split("i", factor=16)
    s["C"].bind(outer, BLOCK_X)
    s["C"].bind(inner, THREAD_X)
    s["B"].compute_at(s["C"], inner)
    return Case(s, args)


def vectors() -> Case:
    """Four elements a thread, in vectors."""
    s, args = chain(128)
    s["B"].compute_inline()
    outer, lanes = s["C"].split("i", factor=4)
    blocks, threads = s["C"].split(outer, factor=8)
    s["C"].bind(blocks, BLOCK_X)
    s["C"].bind(threads, THREAD_X)
    s["C"].vectorize(lanes)
    return Case(s, args)


def unbound() -> Case:
    """Loops that nothing binds, in one thread."""
    return chain(10)


CASES: dict[str, Callable[[], Case]] = {
    **{f"add {d}": partial(elementwise, d, lambda a, b: a * 2 + b) for d in (*FLOATS, "float8_e5m2", *INTEGERS)},
    **{f"divide {d}": partial(elementwise, d, lambda a, b: a // (b * b + 1) + a % 3) for d in INTEGERS},
    **{f"least {d}": partial(elementwise, d, te.min) for d in ("float32", "bfloat16", "int8", "uint64")},
    **{f"convert {a} to {b}": partial(convert, a, b) for a, b in zip(FLOATS, ("int8", "float32", "int64", "uint16"))},
    **{f.__name__: partial(intrinsic, f) for f in (te.exp, te.log, te.tanh, te.sqrt, te.erf, te.sigmoid, te.floor)},
    "exp in half precision": partial(intrinsic, te.exp, "float16"),
    "matmul": partial(tiled_matmul, 16, 32, 24),
    "matmul with tails": partial(tiled_matmul, 13, 37, 11),
    "matmul float64": partial(tiled_matmul, 9, 17, 5, "float64"),
    "matmul int32": partial(tiled_matmul, 9, 17, 5, "int32"),
    "sum of rows": lambda: rows(row_sum(10, 21), "B"),
    "argmax of rows": lambda: rows(argmax(6, 29), "T"),
    "matmul in shared memory": partial(shared_matmul, 16, 24, 32),
    "matmul in shared memory with tails": partial(shared_matmul, 13, 21, 19),
    "matmul in shared memory int64": partial(shared_matmul, 9, 8, 7, "int64"),
    **{f"block sum {d}": partial(block_sum, d) for d in ("float16", "float32", "float64", "int32", "uint8")},
    "block argmax": lambda: reduced_by_threads(argmax(6, 29), "T", 8),
    "block sum of odd threads": lambda: reduced_by_threads(row_sum(5, 40), "B", 12),
    "copies of threads that reduce": copies_while_reducing,
    "equal elements on a slant": equal_on_a_slant,
    "elements of other threads": read_by_other_threads,
    "tiles of virtual threads": tiles_of_virtual_threads,
    "atomic updates of blocks and threads": updated_atomically,
    "atomic updates in rows of threads": updated_atomically_in_rows,
    "registers ahead of the tile": registers_ahead,
    "a tile beside tiles ahead": tiles_beside_tiles_ahead,
    "scratch of a thread": with_scratch,
    "two kernels": two_kernels,
    "vectors": vectors,
    "unbound": unbound,
}


@pytest.mark.covering(1)
@pytest.mark.filterwarnings("ignore::tensorlang.errors.OneThread")
@pytest.mark.parametrize("name", CASES)
def test_kernel(name: str, target: str) -> None:
    s, args = CASES[name]()
    check_schedule(s, args, targets=(target,))


SIZED: dict[str, Callable[[], Case]] = {
    "elements": lambda: elementwise("float32", lambda a, b: a + b, n),
    "two kernels": lambda: two_kernels(n),
    "matmul": lambda: tiled_matmul(n, 12, n),
    "matmul in shared memory": lambda: shared_matmul(n, 12, n),
    "block sum": lambda: reduced_by_threads(row_sum(6, n), "B", 16),
}


@pytest.mark.covering(1)
@pytest.mark.parametrize("name", SIZED)
def test_kernel_of_any_size(name: str, target: str) -> None:
    s, args = SIZED[name]()
    for size in (0, 1, 31, 40):
        check_schedule(s, args, {"n": size}, targets=(target,))


def test_extreme_integers_wrap(target: str) -> None:
    for dtype in ("int8", "int32", "int64", "uint8", "uint64"):
        low, high = dtypes.limits(dtype)
        s, args = elementwise(dtype, lambda a, b: a + b * 3 - 1, extent=9)
        values = np.array([low, high, 0, 1, high, low, 2, high, low], dtypes.info(dtype).numpy)
        check_schedule(s, args, targets=(target,), inputs={"A": values, "B": values[::-1].copy()})


@pytest.mark.parametrize("bad", [-1, 6, 2**31 - 1])
def test_an_index_out_of_range_is_a_kernel_error(target: str, bad: int) -> None:
    A, rows_of = te.placeholder((6,), name="A"), te.placeholder((16,), "int32", name="I")
    C = te.compute((16,), lambda i: A[rows_of[i]] + 1, name="C")
    s = te.create_schedule(C.op)
    on_threads(s, C, C.op.axis[0], 4)
    kernel = tensorlang.build(s, (A, rows_of, C), target=target)
    a, index, out = np.arange(6, dtype=np.float32), np.arange(16, dtype=np.int32) % 6, np.zeros(16, np.float32)
    kernel(a, index, out)
    assert out.tolist() == (a[index] + 1).tolist()
    index[13] = bad
    with pytest.raises(KernelError, match=r"C reads A\[I\[i\]\] out of bounds of A"):
        kernel(a, index, out)
    index[13] = 0
    kernel(a, index, out)
    assert out[13] == 1


def test_a_kernel_writes_nothing_but_its_outputs(target: str) -> None:
    s, args = tiled_matmul(9, 18, 11)
    kernel = tensorlang.build(s, args, target=target)
    a, b = np.ones((9, 11), np.float32), np.ones((11, 18), np.float32)
    room = np.full((11, 18), 7.0, np.float32)
    kernel(a, b, room[1:10])
    assert (a == 1).all() and (b == 1).all() and (room[1:10] == 11).all()
    assert (room[0] == 7).all() and (room[10] == 7).all()


@pytest.mark.parametrize("target", [on_opencl, on_cuda], indirect=True)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool"])
def test_arrays_stay_on_the_device(target: str, dtype: str) -> None:
    s, args = elementwise(dtype, te.max)
    kernel = tensorlang.build(s, args, target=target)
    a = (np.arange(77) % 5 > 2).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    given = [nd.array(x, nd.device(target)) for x in (a, a[::-1], np.zeros_like(a))]
    kernel(*given)
    np.testing.assert_array_equal(given[2].numpy(), np.maximum(a, a[::-1]))
    assert ("threadIdx.x" if target == "cuda" else "get_local_id(0)") in kernel.source(target)
    assert kernel.time_evaluator(number=2, repeat=2)(*given).mean > 0


def test_a_narrow_integer_beside_a_wide_one(target: str) -> None:
    """OpenCL's min and max are overloaded, and take two operands of one type."""
    A = te.placeholder((37,), "int8", name="A")
    B = te.compute((37,), lambda i: te.min(A[i].astype("int32"), 0) + te.max(A[i].astype("int64"), 1), name="B")
    s = te.create_schedule(B.op)
    s[B].bind("i", "threadIdx.x")
    check_schedule(s, [A, B], targets=[target])


def test_a_thread_keeps_its_number_over_barriers(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a driver for CPUs made of it, optimised, was the number of the first thread for all."""
    monkeypatch.setattr(opencl_builds, "is_optimised", lambda _: True)
    A = te.placeholder((1,), "float64", name="A")
    C = te.compute((6, 2), lambda i, j: A[0] * A[0] - i.astype("float64"), name="C")
    s = te.create_schedule(C.op)
    near = s.cache_read(A, "shared", [C])
    block, thread = s[C].split("i", factor=4)
    s[C].reorder(block, thread, "j")
    s[C].bind(block, "blockIdx.x")
    s[C].bind(thread, "threadIdx.x")
    s[near].compute_at(s[C], "j")
    check_schedule(s, [A, C], targets=[target])
