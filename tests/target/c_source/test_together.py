"""Threads that have to do with each other: shared memory, barriers, reductions, atomic updates, faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorlang import dtypes
from tensorlang.ir.construct import array, index, indices, load, loop, store
from tensorlang.ir.expr import Const, Expr, Load, Var, binary, cast, const, select
from tensorlang.ir.stmt import (
    INDEX,
    Allocate,
    AtomicUpdate,
    Barrier,
    Combiner,
    DeviceKernel,
    Fail,
    If,
    Seq,
    Stmt,
    ThreadReduce,
)
from tensorlang.target.c_source import CUDA, OPENCL, device_source, module_source
from tests.target.c_source.device_programs import BX, TX, TY, Array, device_kernel, same_values
from tests.target.cuda.compiled import check_compiles

Run = Callable[..., int]
Execute = Callable[[DeviceKernel, dict[str, Array]], object]
N = 64
i, j, k, ko = indices("i j k ko")


def matmul(tile: int = 16) -> DeviceKernel:
    """C = A B in tiles in shared memory, a thread an element."""
    a, b, out = (array(name, (N, N)) for name in "ABC")
    sa, sb = (array(f"{name}.shared", (tile, tile), scope="shared") for name in "AB")
    acc = array("C.local", (1,), scope="local")
    row, column = BX * 0 + Var("blockIdx.y", INDEX) * tile + TY, BX * tile + TX
    steps: list[Stmt] = [
        store(sa, (TY, TX), load(a, row, ko * tile + TX)),
        store(sb, (TY, TX), load(b, ko * tile + TY, column)),
        Barrier(),
        loop(k, 0, tile, store(acc, 0, load(acc, 0) + load(sa, TY, k) * load(sb, k, TX))),
        Barrier(),
    ]
    body = Allocate(
        acc, Seq((store(acc, 0, 0.0), loop(ko, 0, N // tile, steps), store(out, (row, column), load(acc, 0))))
    )
    return device_kernel((a, b, out), body, (N // tile, N // tile), (tile, tile), (sa, sb), name="matmul")


def test_tiles_in_shared_memory(run: Run) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (N, N)).astype(np.float32) for _ in range(2))
    out = np.zeros((N, N), np.float32)
    run(matmul(), {"A": a, "B": b, "C": out})
    np.testing.assert_array_equal(out, a @ b)


def test_shared_memory_is_counted_and_asked_for() -> None:
    source = device_source(matmul(), CUDA)
    assert (source.shared_bytes, source.dynamic) == (2 * 16 * 16 * 4, False)
    big = array("big", (13000,), scope="shared")
    out = array("out", (64,))
    body = Seq((store(big, TX, 1.0), Barrier(), store(out, TX, load(big, index(63) - TX))))
    kernel = device_kernel((out,), body, (), (64,), (big, array("small", (3,), "int8", "shared")))
    source = device_source(kernel, CUDA)
    assert (source.shared_bytes, source.dynamic) == (52000 + 16, True)
    assert "extern __shared__ __align__(16) unsigned char shared_memory[];" in source.text
    assert not device_source(kernel, OPENCL).dynamic
    check_compiles(source.text)


def combiner(op: str, dtype: str, identity: float) -> Combiner:
    x, y = Var("x", dtype), Var("y", dtype)
    return Combiner((x,), (y,), (binary(op, x, y),), (const(identity, dtype),))


def argmax() -> Combiner:
    """Of value and index; the first of equal ones."""
    vx, ix, vy, iy = Var("vx", "float32"), Var("ix", "int32"), Var("vy", "float32"), Var("iy", "int32")
    first: Any = vx >= vy
    results = (select(first, vx, vy), select(first, ix, iy))
    return Combiner((vx, ix), (vy, iy), results, (Const(float("-inf"), "float32"), Const(0, "int32")))


def reduction(extents: tuple[int, int], axes: str, dtype: str = "float32", op: str = "add") -> DeviceKernel:
    """Each block reduces its tile of A along axes, twice into `total` (of each row), once into `own` of each thread."""
    x, y = extents
    a, own = array("A", (2, y, x), dtype), array("own", (2, y, x), dtype)
    total = array("total", (2, 1 if axes == "xy" else y), dtype)
    names = tuple((f"threadIdx.{axis}", extents["xy".index(axis)]) for axis in axes)
    combine, value = combiner(op, dtype, {"add": 0, "max": -100}[op]), load(a, BX, TY, TX)
    held = array("held", (1,), dtype, "local")
    of_thread = ThreadReduce(((held, (index(0),)),), (value,), combine, names)
    body: Stmt = Allocate(
        held, Seq((store(held, 0, load(own, BX, TY, TX)), of_thread, store(own, (BX, TY, TX), load(held, 0))))
    )
    if axes == "y":
        return device_kernel((a, own), body, (2,), extents)
    target: tuple[Expr, ...] = (BX, index(0) if axes == "xy" else TY)
    shared = loop(Var("again", INDEX), 0, 2, ThreadReduce(((total, target),), (value,), combine, names))
    return device_kernel((a, own, total), Seq((body, shared)), (2,), extents)


def check_reduction(
    run: Callable[[DeviceKernel, dict[str, Array]], object], extents: tuple[int, int], axes: str
) -> None:
    x, y = extents
    a = np.random.default_rng(2).integers(-9, 10, (2, y, x)).astype(np.float32)
    sums = a.sum(tuple({"y": 1, "x": 2}[axis] for axis in axes), keepdims=True)
    arrays: dict[str, Array] = {"A": a, "own": np.full(a.shape, 3, np.float32)}
    if axes != "y":
        arrays["total"] = np.full((2, 1 if axes == "xy" else y), 5, np.float32)
    run(reduction(extents, axes), arrays)
    np.testing.assert_array_equal(arrays["own"], 3 + np.broadcast_to(sums, a.shape))
    if axes != "y":
        np.testing.assert_array_equal(arrays["total"], 5 + 2 * sums.reshape(2, -1))


@pytest.mark.parametrize(("extents", "axes"), [((6, 5), "x"), ((8, 6), "y"), ((16, 4), "xy")])
def test_reductions(run: Run, extents: tuple[int, int], axes: str) -> None:
    check_reduction(run, extents, axes)


@pytest.mark.parametrize("dtype", ["int8", "int64", "bfloat16", "float8_e4m3fn"])
def test_reductions_of_every_kind(run: Run, dtype: str) -> None:
    numpy_dtype = dtypes.info(dtype).numpy
    a = np.random.default_rng(3).integers(-9, 10, (2, 2, 24)).astype(numpy_dtype)
    arrays = {"A": a, "own": a.copy(), "total": np.full((2, 2), -100).astype(numpy_dtype)}
    run(reduction((24, 2), "x", dtype, "max"), arrays)
    same_values(arrays["total"], a.max(2))
    same_values(arrays["own"], np.broadcast_to(a.max(2, keepdims=True), a.shape))


def argmax_kernel(threads: int) -> DeviceKernel:
    a, most, where = array("A", (2, threads)), array("most", (2,)), array("where", (2,), "int32")
    targets = ((most, (BX,)), (where, (BX,)))
    reduce = ThreadReduce(targets, (load(a, BX, TX), cast(TX, "int32")), argmax(), (("threadIdx.x", threads),))
    body = Seq((If(TX.equal(index(0)), Seq((store(most, BX, -1e9), store(where, BX, 0)))), reduce))
    return device_kernel((a, most, where), body, (2,), (threads,))


@pytest.mark.parametrize("threads", [24, 32])
def test_tuples_are_reduced_in_the_order_of_threads(run: Run, threads: int) -> None:
    a = np.random.default_rng(4).integers(0, 5, (2, threads)).astype(np.float32)
    arrays = {"A": a, "most": np.zeros(2, np.float32), "where": np.zeros(2, np.int32)}
    run(argmax_kernel(threads), arrays)
    np.testing.assert_array_equal(arrays["most"], a.max(1))
    np.testing.assert_array_equal(arrays["where"], a.argmax(1))


@pytest.mark.parametrize(
    ("kernel", "shuffles"),
    [
        (reduction((32, 2), "x"), True),
        (reduction((64, 2), "x", "float16", "max"), True),
        (reduction((16, 4), "xy", "int8", "max"), True),
        (reduction((4, 3), "x", "int64"), True),
        (reduction((6, 5), "x", "float64"), False),
        (reduction((8, 4), "y"), False),
        (argmax_kernel(96), True),
    ],
)
def test_consecutive_threads_exchange_values(kernel: DeviceKernel, shuffles: bool) -> None:
    text = device_source(kernel, CUDA).text
    assert ("__shfl" in text) == shuffles
    assert "__shfl" not in device_source(kernel, OPENCL).text
    check_compiles(text, ("sm_90a",))


INTEGER_OPS = ("add", "sub", "min", "max", "bitand", "bitor", "bitxor", "mul")
FLOAT_OPS = ("add", "sub", "min", "max", "mul")


def updates(dtype: str) -> DeviceKernel:
    """All threads update the same few elements: those in global memory, and one in shared memory."""
    ops = FLOAT_OPS if dtypes.info(dtype).is_float else INTEGER_OPS
    a, out = array("A", (64,), dtype), array("out", (len(ops) + 1,), dtype)
    shared = array("total", (3,), dtype, "shared")
    body: list[Stmt] = [AtomicUpdate(out, (index(n),), op, load(a, TX)) for n, op in enumerate(ops)]
    body += [
        If(TX < 3, store(shared, TX, 0)),
        Barrier(),
        AtomicUpdate(shared, (index(1),), "add", load(a, TX)),
        Barrier(),
        If(TX.equal(index(0)), store(out, len(ops), load(shared, 1))),
    ]
    return device_kernel((a, out), body, (), (64,), (shared,))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64", "float16", "float32", "float64"])
def test_atomic_updates(run: Run, dtype: str) -> None:
    kernel = updates(dtype)
    numpy_dtype, is_float = dtypes.info(dtype).numpy, dtypes.info(dtype).is_float
    a = np.array([1, 2, 1, 1] * 16).astype(numpy_dtype)
    ops = FLOAT_OPS if is_float else INTEGER_OPS
    out = np.array([*[3] * len(ops), 0]).astype(numpy_dtype)
    functions = {"add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum, "mul": np.multiply} | {
        "bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor
    }  # fmt: skip
    wanted = [out[0]] * len(ops)
    with np.errstate(all="ignore"):
        for x in a:
            wanted = [functions[op](w, x) for op, w in zip(ops, wanted, strict=True)]
    run(kernel, {"A": a, "out": out})
    same_values(out, np.array([*wanted, 80], numpy_dtype))
    check_compiles(device_source(kernel, CUDA).text, ("sm_80",))


def failing(name: str, limit: int, message: str) -> DeviceKernel:
    a, out = array("A", (8,), "int32"), array("out", (8,), "int32")
    body = If(binary("lt", load(a, TX), const(limit, "int32")), store(out, TX, load(a, TX)), Fail(message))
    return device_kernel((a, out), body, (), (8,), name=name)


def test_faults_are_numbered_through_a_module(run: Run) -> None:
    kernels = (
        failing("first", 3, "too large"),
        failing("second", 5, "far too large"),
        failing("third", 4, "too large"),
    )
    module = module_source(kernels, OPENCL)
    assert module.messages == ("too large", "far too large")
    assert [s.name for s in module.kernels] == ["first", "second", "third"]
    assert all(s.uses_fault and s.text == module.text for s in module.kernels)
    check_compiles(module_source(kernels, CUDA).text, ("sm_80",))
    out = np.zeros(8, np.int32)
    assert run(kernels[0], {"A": np.arange(8, dtype=np.int32), "out": out}) == 1
    np.testing.assert_array_equal(out, [0, 1, 2, 0, 0, 0, 0, 0])
    assert run(kernels[0], {"A": np.zeros(8, np.int32), "out": out}) == 0


def test_loads_of_what_is_written_are_behind_a_barrier_of_global_memory() -> None:
    a = array("A", (64,))
    body = Seq((store(a, TX, 1.0), Barrier(), store(a, index(63) - TX, Load(a, (TX,)) + 1.0)))
    text = device_source(device_kernel((a,), body, (), (64,)), OPENCL).text
    assert "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);" in text
    assert "barrier(CLK_LOCAL_MEM_FENCE);" in device_source(matmul(), OPENCL).text
    assert "__syncwarp();" in device_source(device_kernel((a,), Barrier("warp"), (), (64,)), CUDA).text
