"""Schedules that keep arrays in the registers of a warp and read them from other lanes, for every target's tests."""

from __future__ import annotations

from collections.abc import Callable

from tensorlang import te
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.stage import Stage
from tensorlang.te.axis import Axis
from tensorlang.te.operation import Tensor

Made = tuple[Schedule, list[Tensor]]

BLOCK, LANE, ROW, PLANE = "blockIdx.x", "threadIdx.x", "threadIdx.y", "threadIdx.z"


def on_lanes(stage: Stage, axis: Axis | str, lanes: int) -> None:
    """Bind the inner part of an axis to the lanes."""
    _, inner = stage.split(axis, factor=lanes)
    stage.bind(inner, te.thread_axis(LANE))


def rotated(n: int, lanes: int = 32, dtype: str = "float32") -> Made:
    """Each element from the next lane, the last one of 32 from the first: `test_lower_warp_memory` of TVM."""
    A = te.placeholder((n,), name="A", dtype=dtype)
    B = te.compute((n // 32 * 32,), lambda i: A[i // 32 * 32 + (i + 1) % 32], name="B")
    s = te.create_schedule(B.op)
    held = s.cache_read(A, "warp", [B])
    block, inner = s[B].split(B.op.axis[0], factor=32)
    s[B].bind(block, te.thread_axis(BLOCK))
    on_lanes(s[B], inner, lanes)
    s[held].compute_at(s[B], block)
    on_lanes(s[held], held.op.axis[0], lanes)
    return s, [A, B]


def stencil(n: int, rows: int = 4, lanes: int = 32, padded: bool = False) -> Made:
    """The mean of neighbours, which other lanes hold; of elements at the ends, two lie in a second register."""
    A = te.placeholder((n,), name="A")

    def at(i: te.Expr) -> te.Expr:
        return te.if_then_else(te.all(i >= 0, i < n), A[i], 0.0) if padded else A[i]

    first = -1 if padded else 0
    B = te.compute(
        (n + 2 * first + (2 if padded else -2),),
        lambda i: at(i + first) + at(i + first + 1) + at(i + first + 2),
        name="B",
    )
    s = te.create_schedule(B.op)
    held = s.cache_read(A, "warp", [B])
    block, inner = s[B].split(B.op.axis[0], factor=rows * lanes)
    row, lane = s[B].split(inner, factor=lanes)
    s[B].bind(block, te.thread_axis(BLOCK))
    s[B].bind(row, te.thread_axis(ROW if lanes == 32 else PLANE))
    s[B].bind(lane, te.thread_axis(LANE))
    s[held].compute_at(s[B], row)
    on_lanes(s[held], held.op.axis[0], lanes)
    return s, [A, B]


def product(m: int, n: int, k: int, lanes: int = 32, rows: int = 2) -> Made:
    """A matrix product: 32 elements of a row of A are spread over the lanes, each is given to all in its turn."""
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), "k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    s = te.create_schedule(C.op)
    held = s.cache_read(A, "warp", [C])
    i, j = C.op.axis
    i_o, i_i = s[C].split(i, factor=rows)
    j_o, j_i = s[C].split(j, factor=lanes)
    k_o, k_i = s[C].split(r, factor=lanes)
    s[C].reorder(i_o, j_o, i_i, j_i, k_o, k_i)
    s[C].bind(i_o, te.thread_axis("blockIdx.y"))
    s[C].bind(j_o, te.thread_axis(BLOCK))
    s[C].bind(i_i, te.thread_axis(ROW if lanes == 32 else PLANE))
    s[C].bind(j_i, te.thread_axis(LANE))
    s[held].compute_at(s[C], k_o)
    on_lanes(s[held], held.op.axis[1], lanes)
    return s, [A, B, C]


def quads(n: int) -> Made:
    """Tiles of 4 x 4 transposed in the registers of four lanes: each element from one of four registers."""
    A = te.placeholder((n, 4, 4), name="A")
    B = te.compute((n, 4, 4), lambda t, i, j: A[t, j, i], name="B")
    s = te.create_schedule(B.op)
    held = s.cache_read(A, "warp", [B])
    t, i, j = B.op.axis
    t_o, t_i = s[B].split(t, factor=8)
    s[B].reorder(t_o, t_i, j, i)
    s[B].bind(t_o, te.thread_axis(BLOCK))
    s[B].bind(t_i, te.thread_axis(PLANE))
    s[B].bind(j, te.thread_axis(LANE))
    s[held].compute_at(s[B], t_i)
    s[held].bind(held.op.axis[2], te.thread_axis(LANE))
    return s, [A, B]


def wide(n: int) -> Made:
    """Four neighbouring elements a lane, stored as a vector; reversed, they come from the other end of the warp."""
    A = te.placeholder((n,), name="A", dtype="int32")
    B = te.compute((n,), lambda i: A[i // 128 * 128 + 127 - i % 128] * 2, name="B")
    s = te.create_schedule(B.op)
    held = s.cache_read(A, "warp", [B])
    block, inner = s[B].split(B.op.axis[0], factor=128)
    lane, four = s[B].split(inner, factor=4)
    s[B].bind(block, te.thread_axis(BLOCK))
    s[B].bind(lane, te.thread_axis(LANE))
    s[B].vectorize(four)
    s[held].compute_at(s[B], block)
    lane, four = s[held].split(held.op.axis[0], factor=4)
    s[held].bind(lane, te.thread_axis(LANE))
    s[held].vectorize(four)
    return s, [A, B]


def pairs(n: int = 64) -> Made:
    """Two neighbouring elements a lane, and zeros outside: a lane alone holds those beyond the warp, as its third."""
    A = te.placeholder((n,), name="A")

    def at(i: te.Expr) -> te.Expr:
        return te.if_then_else(te.all(i >= 0, i < n), A[i], 0.0)

    B = te.compute((n,), lambda i: at(i - 2) + at(i + 1) * 2, name="B")
    s = te.create_schedule(B.op)
    held = s.cache_read(A, "warp", [B])
    block, inner = s[B].split(B.op.axis[0], factor=64)
    lane, two = s[B].split(inner, factor=2)
    s[B].bind(block, te.thread_axis(BLOCK))
    s[B].bind(lane, te.thread_axis(LANE))
    s[B].vectorize(two)
    s[held].compute_at(s[B], block)
    _, inner = s[held].split(held.op.axis[0], factor=64)
    lane, _ = s[held].split(inner, factor=2)
    s[held].bind(lane, te.thread_axis(LANE))
    return s, [A, B]


def turned_pairs(n: int = 64) -> Made:
    """32 lanes along two axes: rows of 16, each read by the other one."""
    A = te.placeholder((n, 2, 16), name="A")
    B = te.compute((n, 2, 16), lambda t, i, j: A[t, 1 - i, 15 - j], name="B")
    s = te.create_schedule(B.op)
    held = s.cache_read(A, "warp", [B])
    for stage in (s[B], s[held]):
        _, i, j = stage.op.axis
        stage.bind(i, te.thread_axis(ROW))
        stage.bind(j, te.thread_axis(LANE))
    s[B].bind(B.op.axis[0], te.thread_axis(BLOCK))
    s[held].compute_at(s[B], B.op.axis[0])
    return s, [A, B]


PROGRAMS: dict[str, Callable[[], Made]] = {
    "rotated": lambda: rotated(96),
    "rotated by half warps": lambda: rotated(96, lanes=16),
    "rotated bytes": lambda: rotated(64, dtype="uint8"),
    "rotated halves": lambda: rotated(64, dtype="float16"),
    "rotated bools": lambda: rotated(64, dtype="bool"),
    "stencil": lambda: stencil(300),
    "stencil of 8 lanes": lambda: stencil(75, rows=6, lanes=8),
    "padded stencil": lambda: stencil(77, rows=1, padded=True),
    "product": lambda: product(5, 40, 50),
    "product of 16 lanes": lambda: product(6, 32, 32, lanes=16, rows=3),
    "transposed quads": lambda: quads(11),
    "vectors": lambda: wide(256),
    "pairs": pairs,
    "lanes of two axes": turned_pairs,
}
