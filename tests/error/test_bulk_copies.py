"""Stages that no bulk copy fills, and tiles that the hardware has no boxes for: refused, with what was found."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import tensorlang
from tensorlang import te
from tensorlang.errors import BadArgument, TargetError
from tests.error.refusal import Refusal, Step, refused
from tests.programs import Case, chain, matmul

n = te.var("n")


def doubled(shape: tuple[Any, ...] = (64, 64), dtype: str = "float32") -> Case:
    """C = 2 A."""
    A = te.placeholder(shape, dtype, name="A")
    C = te.compute(shape, lambda *i: A(*i) + A(*i), name="C")
    return Case(te.create_schedule(C.op), (A, C))


def turned() -> Case:
    """T is A with its dimensions exchanged."""
    A = te.placeholder((64, 64), name="A")
    T = te.compute((64, 64), lambda i, j: A[j, i], name="T")
    C = te.compute((64, 64), lambda i, j: T[i, j] * 2, name="C")
    return Case(te.create_schedule(C.op), (A, C))


def neighbours() -> Case:
    """C adds two elements of each row of A."""
    A = te.placeholder((8, 64), name="A")
    C = te.compute((8, 62), lambda i, j: A[i, j] + A[i, j + 2], name="C")
    return Case(te.create_schedule(C.op), (A, C))


def masked() -> Case:
    """T is A below the diagonal, and zero elsewhere."""
    A = te.placeholder((64, 64), name="A")
    T = te.compute((64, 64), lambda i, j: te.if_then_else(j <= i, A[i, j], 0.0), name="T")
    C = te.compute((64, 64), lambda i, j: T[i, j] * 2, name="C")
    return Case(te.create_schedule(C.op), (A, C))


def tiled(rows: int, columns: int, *more: Step) -> tuple[Step, ...]:
    """A copy of A in shared memory, in tiles of so many rows and columns."""

    def steps(s: Any) -> None:
        s.cache_read("A", "shared", ["C"])
        *_, i, j = (axis.name for axis in s["C"].op.axis)
        s["C"].split(i, rows)
        s["C"].split(j, columns)
        s["C"].reorder(f"{i}_o", f"{j}_o", f"{i}_i", f"{j}_i")
        s["A.shared"].compute_at(s["C"], f"{j}_o")

    return (steps, *more)


def of(stage: str) -> Step:
    return lambda s: s[stage].bulk_copy()


COPY = of("A.shared")


def swizzled(s: Any) -> None:
    s["A.shared"].swizzle()


REFUSALS = {
    "what is computed": Refusal(chain, (), of("B"), ("take elements of an argument as they are, and B computes",)),
    "a copy of what is computed": Refusal(
        chain,
        (lambda s: s.cache_read("B", "shared", ["C"]),),
        of("B.shared"),
        ("take elements of an argument as they are, and B.shared computes B[ax0]",),
    ),
    "dimensions exchanged": Refusal(
        turned, (), of("T"), ("keeps the dimensions in their order, and T[i, j] is A[j, i]",)
    ),
    "zeros inside of the array": Refusal(
        masked, (), of("T"), ("a bulk copy has zeros outside of A, and T also where not j <= i",)
    ),
    "only what is new of a tile": Refusal(
        neighbours,
        (*tiled(1, 16), lambda s: s["A.shared"].rolling_buffer()),
        COPY,
        ("the tile of A.shared is folded, or not in one piece",),
        legal=(),
        advice=("s['A.shared'].pipeline(stages) in place of rolling_buffer or fold_storage",),
    ),
    "a copy elsewhere": Refusal(
        doubled,
        (lambda s: s.cache_read("A", "local", ["C"]),),
        of("A.local"),
        ("bulk copies go to shared memory, and A.local is in local memory",),
        legal=("s['A.local'].set_scope('shared'); s['A.local'].bulk_copy()",),
    ),
    "a tile of no constant size": Refusal(
        partial(doubled, (n, 64)),
        (lambda s: s.cache_read("A", "shared", ["C"]),),
        COPY,
        ("has a tile of constant size, and A.shared has [n, 64]",),
        legal=(),
        advice=("compute_at first, where the tile has a constant size",),
    ),
    "rows of the argument askew": Refusal(
        partial(doubled, (64, 66)),
        tiled(16, 16),
        COPY,
        ("rows of A: float32[64, 66] are 264 bytes apart, and a bulk copy takes multiples of 16",),
    ),
    "short rows of a tile": Refusal(
        doubled,
        tiled(16, 6),
        COPY,
        ("rows of the tile 16x6 of A.shared are 24 bytes, and a bulk copy takes multiples",),
    ),
    "long rows of a tile": Refusal(
        partial(doubled, (16, 1024)),
        tiled(4, 512),
        COPY,
        ("rows of the tile 4x512 of A.shared are 512 elements, and a bulk copy takes at most 256",),
        legal=(),
        advice=("smaller tiles along the last dimension",),
    ),
    "long rows, swizzled": Refusal(
        doubled,
        tiled(16, 64, swizzled),
        COPY,
        ("rows of the tile 16x64 of A.shared are 256 bytes, and a swizzled bulk copy takes 32, 64, 128",),
        legal=("s['A.shared'].swizzle(panels=True); s['A.shared'].bulk_copy()",),
        advice=("tiles of 32 float32 along the last dimension",),
    ),
    "few rows, swizzled": Refusal(
        doubled,
        tiled(4, 32, swizzled),
        COPY,
        ("bulk copies of the tile 4x32 of A.shared have 512 bytes, and must have multiples of 8 rows",),
    ),
    "a small tile": Refusal(
        doubled, tiled(1, 16), COPY, ("the tile 1x16 of A.shared have 64 bytes, and must have multiples of 128 bytes",)
    ),
    "a prime number of rows": Refusal(
        partial(doubled, (257, 32)),
        tiled(257, 32),
        COPY,
        ("the tile 257x32 of A.shared would take 257 bulk copies of 1x32, and at most 16 are made",),
    ),
    "many dimensions": Refusal(
        partial(doubled, (2, 2, 2, 2, 2, 32)),
        tiled(2, 32),
        COPY,
        ("a bulk copy has 1 to 5 dimensions, and A: float32[2, 2, 2, 2, 2, 32] has 6",),
    ),
    "a tile with rows further apart": Refusal(
        partial(matmul, 32, 32, 32),
        (
            lambda s: s.cache_read("A", "shared", ["C"]),
            lambda s: s["A.shared"].compute_at(s["C"], "i"),
            lambda s: s["A.shared"].storage_align("ax0", 32, 1),
        ),
        COPY,
        ("rows of the tile 1x33 of A.shared are 132 bytes",),
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refused_step(name: str) -> None:
    refused(REFUSALS[name])


def on_threads(s: Any) -> None:
    block, *_, thread = s["C"].leaf_iter_vars
    s["C"].bind(block, "blockIdx.x")
    s["C"].bind(thread, "threadIdx.x")


def ahead(s: Any) -> None:
    s["A.shared"].pipeline(2)


def apart(s: Any) -> None:
    s["A.shared"].storage_align("ax0", 32, 1)


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        (
            (),
            TargetError,
            r"bulk copies of A\.shared run ahead .* s\['A\.shared'\]\.pipeline\(stages\), or leave bulk_copy out",
        ),
        ((ahead, apart), BadArgument, "rows of the tile 16x33 of A.shared are 132 bytes"),
    ],
    ids=["no pipeline", "apart"],
)
def test_refused_when_lowered(more: tuple[Step, ...], error: type[Exception], message: str) -> None:
    s, args = doubled()
    for step in (*tiled(16, 32), COPY, *more, on_threads):
        step(s)
    with pytest.raises(error, match=message):
        tensorlang.lower(s, list(args), target="cuda -arch=sm_90a")
    tensorlang.lower(s, list(args), target="cuda -arch=sm_80")
