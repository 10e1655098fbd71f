"""Vectorized loops: which accesses are wide, and that lanes mean what iterations do."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tensorlang import dtypes
from tensorlang.ir.construct import array, index, indices, load, loop, store
from tensorlang.ir.expr import Buffer, Expr, Var, binary, cast, select
from tensorlang.ir.stmt import INDEX, Allocate, DeviceKernel, For, If, Let, LoopKind, Seq, Stmt, with_buffers
from tensorlang.target.c_source import CUDA, OPENCL, device_source
from tests.target.c_source.device_programs import BX, TX, Array, device_kernel, interpreted, same_values
from tests.target.cuda.compiled import check_compiles

Run = Callable[..., int]
(v,) = indices("v")
SIZE = 512
A, B = array("A", (SIZE,)), array("B", (SIZE,))


def lanes(count: int, *body: Stmt) -> For:
    return loop(v, 0, count, body, LoopKind.VECTORIZED)


def wide(text: str) -> list[str]:
    """The types of the wide accesses of a CUDA text, a pair for each copy."""
    return re.findall(r"\*\(const (\w+(?: int| short)?) \*\)", text)


def printed(body: Stmt, dtype: str = "float32", threads: int = 16) -> str:
    params = (array("A", (SIZE,), dtype), array("B", (SIZE,), dtype))
    return device_source(device_kernel(params, body, (2,), (threads,)), CUDA).text


@pytest.mark.parametrize(
    ("dtype", "count", "types"),
    [
        ("float32", 4, ["float4"]),
        ("float32", 2, ["float2"]),
        ("float32", 8, ["float4", "float4"]),
        ("float16", 8, ["uint4"]),
        ("int8", 16, ["uint4"]),
        ("int8", 4, ["unsigned int"]),
        ("float64", 4, ["double2", "double2"]),
        ("int64", 2, ["longlong2"]),
        ("bool", 2, ["unsigned short"]),
    ],
)
def test_a_copy_has_the_widest_accesses(dtype: str, count: int, types: list[str]) -> None:
    a, b = array("A", (SIZE,), dtype), array("B", (SIZE,), dtype)
    text = printed(lanes(count, store(b, TX * count + v, load(a, TX * count + v))), dtype)
    assert wide(text) == types
    check_compiles(text, ("sm_80",))


@pytest.mark.parametrize(
    ("where", "types"),
    [
        (TX * 4 + v, ["float4", "float4"]),
        (TX * 6 + v, ["float2", "float2", "float2", "float2"]),
        (TX * 4 + v + 2, ["float2", "float2", "float2", "float2"]),
        (TX * 4 + v + 1, []),
        (TX * 5 + v, []),
        (v * 2 + TX * 8, []),
        (binary("floordiv", TX * 4 + v, index(4)) * 4 + binary("floormod", TX * 4 + v, index(4)), ["float4", "float4"]),
        (binary("floordiv", TX, index(2)) * 8 + v, ["float4", "float4"]),
    ],
)
def test_wide_accesses_are_aligned(where: Expr, types: list[str]) -> None:
    assert wide(printed(lanes(4, store(B, where, load(A, where) + 1.0)))) == types


def bodies() -> dict[str, Stmt]:
    """Loops over lanes of all kinds, which write B from A."""
    at, t = BX * 256 + TX * 4 + v, Var("t", "float32")
    shared = load(A, TX) * load(A, at)
    padded = select(TX > 3, load(A, at - 4), 0.0)
    ragged = select(v > 1, load(A, at), load(A, at + 1))
    once = load(A, at)
    branches = select(TX > 9, once * 2.0, select(TX > 3, once * 3.0, 0.0))
    local, k = array("r", (4,), scope="local"), Var("k", INDEX)
    return {
        "arithmetic": lanes(4, store(B, at, load(A, at) * 2.0 + load(B, at))),
        "broadcast": lanes(4, store(B, at, shared + load(A, at))),
        "guarded": lanes(4, store(B, at, padded)),
        "one load of two branches": lanes(4, store(B, at, branches)),
        "other lanes": lanes(4, store(B, at, ragged)),
        "uniform if": lanes(4, If(TX < 5, store(B, at, load(A, at)), store(B, at, cast(TX, "float32")))),
        "if of lanes": lanes(4, If(v < 3, store(B, at, load(A, at)))),
        "let of lanes": lanes(4, Let(t, load(A, at) + 1.0, Seq((store(B, at, t * t), store(B, at, load(B, at) - t))))),
        "uniform let": lanes(4, Let(t, load(A, TX) + 1.0, store(B, at, t * load(A, at)))),
        "loop inside": Seq(
            (
                lanes(4, store(B, at, 0.0)),
                lanes(4, loop(k, 0, 3, store(B, at, load(B, at) + load(A, k * 4 + TX)))),
            )
        ),
        "gather": lanes(4, store(B, at, load(A, cast(cast(load(A, at), "int32"), INDEX)))),
        "reversed": lanes(4, store(B, at, load(A, BX * 256 + 255 - TX * 4 - v))),
        "registers": Allocate(
            local,
            Seq((lanes(4, store(local, v, load(A, at))), lanes(4, store(B, at, load(local, index(3) - v))))),
        ),
        "halves": lanes(4, store(B, at, cast(cast(load(A, at), "float16") * cast(load(A, TX), "float16"), "float32"))),
        "bytes": lanes(16, store(B, BX * 256 + TX * 4 + binary("floormod", v, index(4)), cast(v, "float32"))),
    }


def all_bodies() -> DeviceKernel:
    """All of them in one kernel, each with a B of its own."""
    made = bodies()
    own = {name: array(f"B{number}", (SIZE,)) for number, name in enumerate(made)}
    parts = []
    for name, body in made.items():

        def place(buffer: Buffer, to: Buffer = own[name]) -> Buffer:
            return to if buffer == B else buffer

        parts.append(with_buffers(body, place))
    return device_kernel((A, *own.values()), parts, (2,), (64,), name="lanes")


def check_lanes(run: Callable[[DeviceKernel, dict[str, Array]], object]) -> None:
    """Run them all, and compare with iterations one by one."""
    kernel = all_bodies()
    arrays: dict[str, Array] = {b.name: np.ones(SIZE, np.float32) for b in kernel.params}
    arrays["A"] = np.random.default_rng(1).integers(0, 100, SIZE).astype(np.float32)
    expected = {n: values.copy() for n, values in arrays.items()}
    interpreted(kernel, expected)
    run(kernel, arrays)
    for name, buffer in zip(bodies(), kernel.params[1:], strict=True):
        same_values(arrays[buffer.name], expected[buffer.name], name)


def test_lanes_are_iterations(run: Run) -> None:
    check_lanes(run)


def test_cuda_lanes_compile() -> None:
    check_compiles(device_source(all_bodies(), CUDA).text, ("sm_80",))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "int8", "uint64", "bool", "float64"])
def test_lanes_of_every_width(run: Run, dtype: str) -> None:
    a, b = array("A", (64,), dtype), array("B", (64,), dtype)
    value = load(a, TX * 8 + v) if dtype == "bool" else load(a, TX * 8 + v) + load(a, TX * 8 + v)
    kernel = device_kernel((a, b), lanes(8, store(b, TX * 8 + v, value)), (), (8,))
    numpy_dtype = dtypes.info(dtype).numpy
    values = np.arange(64).astype(numpy_dtype)
    made = {"A": values, "B": np.zeros(64, numpy_dtype)}
    run(kernel, made)
    same_values(made["B"], values if dtype == "bool" else values + values)


def test_opencl_needs_no_alignment() -> None:
    text = device_source(device_kernel((A, B), lanes(4, store(B, TX * 5 + v, load(A, TX * 5 + v))), (), (16,)), OPENCL)
    assert "vstore4(vload4(0, A + 5 * (int)get_local_id(0)), 0, B + 5 * (int)get_local_id(0));" in text.text
    assert not text.wide_accesses
