"""The host program and the kernels of a kernel in region form do what it does serially."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tensorlang.errors import InternalError, TargetError
from tensorlang.ir import interpret, threads
from tensorlang.ir.construct import StmtLike, array, indices, kernel, load, loop, store
from tensorlang.ir.expr import Buffer, Const, Expr, Select, Var, binary, cast
from tensorlang.ir.stmt import (
    Allocate,
    Barrier,
    CallPython,
    Combiner,
    DeviceKernel,
    Fail,
    For,
    If,
    Kernel,
    Launch,
    Let,
    LoopKind,
    Prefetch,
    Seq,
    Stmt,
    walk,
)
from tensorlang.ir.verify import verify
from tensorlang.lowering.pipeline import to_device

i, j, k, b, c, r, n = indices("i j k b c r n")
A, B = array("A", (6, 40)), array("B", (6, 40))
C = array("C", (100,))


def bound(var: Var, extent: Expr | int, body: StmtLike, thread: str, lower: Expr | int = 0) -> For:
    return loop(var, lower, extent, body, LoopKind.BOUND, thread)


def launches(made: Kernel) -> list[DeviceKernel]:
    return [s.kernel for s in walk(made.body) if isinstance(s, Launch)]


def filled(buffer: Buffer, sizes: Mapping[str, int], seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    shape = tuple(int(interpret.evaluate(e, {Var(v, "int64"): x for v, x in sizes.items()})) for e in buffer.shape)
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(buffer.dtype)


def same(
    source: Kernel, reducers: Mapping[str, Combiner] | None = None, sizes: Mapping[str, int] | None = None
) -> list[DeviceKernel]:
    """Compare the kernel on the device with itself in series; return its launches."""
    verify(source, lanes=False)
    made = to_device(source, reducers)
    verify(made)
    wanted = {p.name: filled(p, sizes or {}, seed) for seed, p in enumerate(source.params)}
    got = {name: x.copy() for name, x in wanted.items()}
    interpret.run(source, wanted, sizes)
    threads.run(made, got, sizes)
    for name, x in wanted.items():
        np.testing.assert_array_equal(got[name], x, err_msg=name)
    return launches(made)


def in_blocks(body: StmtLike) -> Kernel:
    """One block for each row of A and B."""
    return kernel("rows", [A, B], "B", bound(b, 6, body, "blockIdx.x"))


def test_blocks_of_two_branches() -> None:
    """A block runs one of them: the grid is large enough for either, and those that one does not have are idle."""
    wide = bound(c, 5, bound(i, 8, store(B, (b, 8 * c + i), 1.0), "threadIdx.x"), "blockIdx.y")
    narrow = bound(c, 2, bound(i, 20, store(B, (b, 20 * c + i), 2.0), "threadIdx.x"), "blockIdx.y")
    alone = bound(i, 40, store(B, (b, i), load(B, b, i) + 1.0), "threadIdx.x")
    for parts, blocks in (((wide, narrow), 5), ((narrow, wide), 5), ((wide, alone), 5), ((alone, narrow), 2)):
        (made,) = same(in_blocks(If(b < 4, *parts)))
        assert [str(e) for e in made.grid] == ["6", str(blocks), "1"]
    varying = bound(c, binary("min", Const(3, "int64"), n), store(B, (b, c), 3.0), "blockIdx.y")
    nest = bound(b, 6, If(b < 4, wide, varying), "blockIdx.x")
    (made,) = same(kernel("rows", [A, B], "B", nest, [n]), sizes={"n": 2})
    assert str(made.grid[1]) == "5"


def test_stores_beside_a_nest_of_one_block_are_in_its_kernel() -> None:
    first, last = store(C, 0, 1.0), store(C, 1, load(C, 2) * 2.0)
    nest = bound(i, 40, store(C, i + 2, load(C, 0) + load(C, i + 3)), "threadIdx.x")
    other = bound(i, 6, bound(j, 4, store(C, 4 * i + j, 5.0), "threadIdx.x"), "blockIdx.x")

    def kernels(*body: Stmt) -> list[tuple[int, int]]:
        """Barriers and threads of each kernel."""
        made = to_device(kernel("f", [C], "C", Seq(body)))
        return [(sum(isinstance(s, Barrier) for s in walk(m.body)), m.block[0]) for m in launches(made)]

    assert kernels(first, nest, last) == [(2, 40)]
    assert kernels(first, first, nest, nest) == [(2, 40), (0, 40)]
    assert kernels(nest, loop(k, 0, 3, first)) == [(0, 40), (0, 1)]
    assert kernels(first, other, last) == [(0, 1), (0, 4), (0, 1)]
    reads = bound(i, 40, store(C, i + 2, load(C, 0) + 1.0), "threadIdx.x")
    same(kernel("f", [C], "C", Seq((first, reads, last))))


def test_guards_of_a_tail() -> None:
    row = 32 * b + i
    body = bound(b, 4, bound(i, binary("min", Const(32, "int64"), 100 - 32 * b), store(C, row, 1.0), "threadIdx.x"),
                 "blockIdx.x")  # fmt: skip
    (made,) = same(kernel("tail", [C], "C", body))
    assert made.block == (32, 1, 1) and [int(str(e)) for e in made.grid] == [4, 1, 1]
    assert made.indices == "int32" and made.name == "tail_kernel0"


def test_regions_of_other_extents_and_shared_memory() -> None:
    s = array("s", (42,), scope="shared")
    body = Allocate(s, Seq((
        bound(i, 42, store(s, i, cast(i, "float32")), "threadIdx.x"),
        Barrier(),
        bound(j, 40, store(B, (b, j), load(s, j) + load(s, j + 2) + load(A, b, j)), "threadIdx.x"),
    )))  # fmt: skip
    (made,) = same(in_blocks(body))
    assert made.block == (42, 1, 1) and [x.name for x in made.shared] == ["s"]


def test_a_loop_cut_short_keeps_its_threads() -> None:
    # The loop over i begins later in the first block, and its iterations still meet those of j on their threads.
    own = array("own", (40,), scope="local")
    first = binary("max", Const(0, "int64"), 3 - 2 * b)
    inner = Seq((
        bound(i, 40, store(own, i, load(A, b, i)), "threadIdx.x", first),
        bound(j, 40, store(B, (b, j), load(own, j)), "threadIdx.x", first),
    ))  # fmt: skip
    (made,) = same(in_blocks(Allocate(own, inner, ("threadIdx.x",))))
    (mine,) = [s.buffer for s in walk(made.body) if isinstance(s, Allocate)]
    assert mine.shape == () and not made.shared


def test_copies_of_threads_keep_their_other_dimensions() -> None:
    own = array("own", (4, 10, 3), scope="local")
    y, x = "threadIdx.y", "threadIdx.x"
    fill = bound(
        r, 4, bound(i, 10, loop(k, 0, 3, store(own, (r, i, k), load(A, b, 10 * r + i) + k.astype("float32"))), x), y
    )
    use = bound(r, 4, bound(i, 10, loop(k, 0, 3, store(B, (b, 10 * r + i), load(own, r, i, k))), x), y)
    (made,) = same(in_blocks(Allocate(own, Seq((fill, use)), (y, x))))
    (mine,) = [s.buffer for s in walk(made.body) if isinstance(s, Allocate)]
    assert [str(e) for e in mine.shape] == ["3"]


def test_the_copy_of_another_thread_is_refused() -> None:
    own = array("own", (41,), scope="local")
    body = Seq((
        bound(i, 40, store(own, i, load(A, b, i)), "threadIdx.x"),
        bound(j, 39, store(B, (b, j), load(own, j + 1)), "threadIdx.x"),
    ))  # fmt: skip
    with pytest.raises(InternalError, match=r"uses own\[threadIdx.x \+ 1\], which is not its own"):
        to_device(in_blocks(Allocate(own, body, ("threadIdx.x",))))


def test_threads_that_lack_an_axis_have_the_same_copies() -> None:
    # own has a copy for each row r; all threads of the row read it.
    own = array("own", (4,), scope="local")
    y, x = "threadIdx.y", "threadIdx.x"
    body = Seq((
        bound(r, 4, store(own, r, load(A, b, r)), y),
        bound(r, 4, bound(i, 10, store(B, (b, 10 * r + i), load(own, r)), x), y),
    ))  # fmt: skip
    same(in_blocks(Allocate(own, body, (y,))))


def test_copies_are_made_when_what_they_are_made_of_is_there() -> None:
    # In series only the first thread of a row reads what it has written; on the device all threads of the row do.
    own, s = array("own", (4,), scope="local"), array("s", (4,), scope="shared")
    y, x = "threadIdx.y", "threadIdx.x"
    body = Seq((
        bound(r, 4, store(s, r, load(A, b, r)), y),
        bound(r, 4, store(own, r, load(s, r) + 1.0), y),
        bound(r, 4, store(s, r, 7.0), y),
        bound(r, 4, bound(i, 10, store(B, (b, 10 * r + i), load(own, r)), x), y),
    ))  # fmt: skip
    (made,) = same(in_blocks(Allocate(s, Allocate(own, body, (y,)))))
    assert sum(isinstance(s, Barrier) for s in walk(made.body)) == 2


def test_statements_outside_of_regions_run_once() -> None:
    s = array("s", (1,), scope="global")
    body = Allocate(s, Seq((
        store(s, 0, load(A, b, 3)),
        Barrier(),
        bound(j, 40, store(B, (b, j), load(s, 0)), "threadIdx.x"),
        Barrier(),
        store(B, (b, 7), load(s, 0) + load(B, b, 8)),
    )))  # fmt: skip
    (made,) = same(in_blocks(body))
    assert [x.name for x in made.shared] == ["s"]


def test_barriers_in_serial_loops() -> None:
    s = array("s", (40,), scope="shared")
    step: list[Stmt] = [
        bound(i, 40, store(s, i, load(A, b, i) + cast(k, "float32")), "threadIdx.x"),
        Barrier(),
        bound(j, 40, store(B, (b, j), load(B, b, j) + load(s, 39 - j)), "threadIdx.x"),
        Barrier(),
    ]
    same(in_blocks(Allocate(s, loop(k, 0, b + 1, step))))


def test_host_loops_launch_again_and_again() -> None:
    inner = bound(b, n - k, bound(i, 8, store(C, 8 * b + i, load(C, 8 * b + i) + cast(k, "float32")), "threadIdx.x"),
                  "blockIdx.x")  # fmt: skip
    made = same(kernel("steps", [C], "C", loop(k, 0, n, inner), [n]), sizes={"n": 4})
    assert len(made) == 1 and [v.name for v in made[0].scalars] == ["n", "k"] and made[0].indices == "int64"


def test_statements_without_bound_loops_share_a_kernel_of_one_thread() -> None:
    body: list[Stmt] = [
        loop(i, 0, 10, store(C, i, 1.0)),
        store(C, 3, 5.0),
        bound(b, 2, bound(i, 50, store(C, 50 * b + i, load(C, 50 * b + i) + 1.0), "threadIdx.x"), "blockIdx.x"),
        loop(i, 0, 10, store(C, i, load(C, i) + load(C, i + 1))),
    ]
    made = same(kernel("3 parts", [C], "C", body))
    assert [m.name for m in made] == ["_3_parts_kernel0", "_3_parts_kernel1", "_3_parts_kernel2"]
    assert made[0].block == (1, 1, 1) and made[1].block == (50, 1, 1)


def test_scratch_of_one_thread_is_device_memory() -> None:
    t = array("t", (n, 100))
    body = loop(k, 0, 3, Allocate(t, _through(t)))
    made = to_device(kernel("scratch", [C], "C", body, [n]))
    assert isinstance(made.body, Allocate) and made.body.buffer == t
    same(kernel("scratch", [C], "C", body, [n]), sizes={"n": 2})


def _through(t: Buffer) -> Stmt:
    there = loop(i, 0, 100, store(t, (0, i), load(C, i) + 1.0))
    back = loop(j, 0, 100, store(C, j, load(t, 0, 99 - j)))
    return Seq((there, back))


def test_arrays_between_kernels_are_global() -> None:
    t = array("t", (100,), scope="local")
    first = bound(i, 100, store(t, i, load(C, 99 - i)), "threadIdx.x")
    second = bound(j, 100, store(C, j, load(t, j)), "threadIdx.x")
    made = same(kernel("two", [C], "C", Allocate(t, Seq((first, second)))))
    assert [p.scope for m in made for p in m.params] == ["global"] * 4


def test_values_that_only_the_device_tells() -> None:
    x = Var("x", "float32")
    inner = bound(i, 40, store(B, (0, i), x), "threadIdx.x")
    same(kernel("tested", [A, B], "B", Let(x, load(A, 0, 0), If(load(A, 1, 1) > 100.0, inner, inner))))
    kept = If(load(B, 1, 1) > 0.0, inner)
    with pytest.raises(TargetError, match=r"evaluates .*B\[1, 1\].* which write B; bind a loop around"):
        to_device(kernel("tested", [A, B], "B", Let(x, load(A, 0, 0), kept)))
    rows = loop(j, 0, cast(load(A, 0, 0), "int64"), bound(i, 40, store(B, (0, i), 1.0), "threadIdx.x"))
    with pytest.raises(TargetError, match="the loop j runs on the host"):
        to_device(kernel("rows", [A, B], "B", rows))


def test_several_blocks_along_each_axis() -> None:
    body = bound(b, 6, If(b < 5, bound(c, 5, bound(i, 8, store(B, (b, 8 * c + i), 2.0), "threadIdx.x"), "blockIdx.x")),
                 "blockIdx.y")  # fmt: skip
    (made,) = same(kernel("grid", [A, B], "B", body))
    assert [int(str(e)) for e in made.grid] == [5, 6, 1]


def test_blocks_that_depend_on_other_blocks() -> None:
    # As many blocks as the longest row needs; those beyond the end of their row do nothing.
    body = bound(b, 6, bound(c, b + 1, bound(i, 4, store(B, (b, 4 * c + i), 2.0), "threadIdx.x"), "blockIdx.y", b),
                 "blockIdx.x")  # fmt: skip
    same(kernel("one", [A, B], "B", body))
    body = bound(b, 6, bound(c, b, bound(i, 4, store(B, (b, 4 * c + i), 2.0), "threadIdx.x"), "blockIdx.y"),
                 "blockIdx.x")  # fmt: skip
    (made,) = same(kernel("triangle", [A, B], "B", body))
    assert [int(str(e)) for e in made.grid] == [6, 5, 1]


@pytest.mark.parametrize("count", [0, 3, 65535, 65600])
def test_more_blocks_than_a_device_launches(count: int) -> None:
    z = array("Z", (n,))
    body = bound(b, n, bound(i, 1, store(z, b, load(z, b) + 1.0), "threadIdx.x"), "blockIdx.y")
    made = to_device(kernel("many", [z], "Z", body, [n]))
    (device,) = launches(made)
    assert int(interpret.evaluate(device.grid[1], {n: count})) == min(count, 65535)
    # Each block by the interpreter is slow: run the code of a few.
    for block in {0, min(count, 65535) // 2, 64, 65, 65534}:
        if block < min(count, 65535):
            wanted = np.zeros(count, np.float32)
            wanted[block::65535] = 1.0
            got = np.zeros(count, np.float32)
            code = Let(Var("blockIdx.y", "int64"), Const(block, "int64"), _without_barriers(device.body))
            interpret.run(kernel("block", [z], "Z", code, [n]), {"Z": got}, {"n": count})
            np.testing.assert_array_equal(got, wanted)


def _without_barriers(stmt: Stmt) -> Stmt:
    match stmt:
        case For():
            return replace(stmt, body=_without_barriers(stmt.body))
        case Seq():
            return Seq(tuple(s for s in stmt.body if not isinstance(s, Barrier)))
    return stmt


def test_loops_of_a_thread() -> None:
    vector = loop(j, 0, 40, store(B, (b, j), load(A, b, j)), LoopKind.VECTORIZED)
    odd = loop(j, 0, 7, store(B, (b, j), 3.0), LoopKind.VECTORIZED)
    virtual = bound(k, 2, bound(i, 20, store(B, (b, 20 * k + i), 1.0), "threadIdx.x"), "vthread")
    (made,) = same(in_blocks([vector, Barrier(), odd, Barrier(), Prefetch(A, (b, b)), virtual]))
    kinds = [(s.kind, str(s.upper)) for s in walk(made.body) if isinstance(s, For)]
    unrolled, vectors, serial = LoopKind.UNROLLED, LoopKind.VECTORIZED, LoopKind.SERIAL
    assert kinds == [(unrolled, "5"), (vectors, "8"), (serial, "7"), (unrolled, "2")]


S = array("s", (n,))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            loop(k, 0, 3, bound(b, 6, store(B, (b, k), 1.0), "blockIdx.x"), LoopKind.BOUND, "threadIdx.x"),
            r"the loop b on blockIdx.x stands inside the loop k on threadIdx.x; .* outermost",
        ),
        (
            bound(b, 6, loop(k, 0, 3, bound(c, 4, store(B, (b, c), 1.0), "blockIdx.y")), "blockIdx.x"),
            "the loop c on blockIdx.y stands inside the loop k of kind serial",
        ),
        (
            bound(b, 6, Seq((store(B, (b, 0), 1.0), bound(c, 4, store(B, (b, c), 1.0), "blockIdx.y"))), "blockIdx.x"),
            "the loop c on blockIdx.y stands beside other statements",
        ),
        (
            bound(b, 6, bound(c, 4, store(B, (b, c), 1.0), "blockIdx.x"), "blockIdx.x"),
            "the loop c is bound to blockIdx.x, and so is a loop around it",
        ),
        (
            bound(b, 6, bound(i, cast(load(A, b, b), "int64"), store(B, (b, i), 1.0), "blockIdx.y"), "blockIdx.x"),
            "the number of blocks must be known before they run",
        ),
        (
            bound(b, 6, bound(i, n, store(B, (b, i), 1.0), "threadIdx.x"), "blockIdx.x"),
            "the loop i on threadIdx.x runs from 0 to n, .*split it by a constant factor",
        ),
        (
            bound(b, 6, Allocate(S, bound(i, 3, store(B, (b, i), load(S, i)), "threadIdx.x")), "blockIdx.x"),
            r"keeps s: float32\[n\] in .* memory, whose arrays need a constant shape",
        ),
        (Seq((CallPython("f", (A,)), Fail("x"))), "the operation f calls a Python function"),
    ],
)
def test_what_a_device_cannot_run(body: Stmt, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        to_device(kernel("refused", [A, B], "B", body, [n]))


def test_python_between_launches() -> None:
    body = Seq((bound(i, 3, store(B, (0, i), 1.0), "threadIdx.x"), CallPython("f", (B,))))
    made = to_device(replace(kernel("calls", [A, B], "B", body), callbacks=(("f", print),)), python=True)
    assert isinstance(made.body, Seq) and isinstance(made.body.body[1], CallPython) and made.callbacks


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (load(A, b, i), "int32"),
        (load(A, b, cast(load(array("N", (6,), "int32"), b), "int64")), "int32"),
        (load(A, b, load(array("K", (6,), "int64"), b)), "int64"),
        (cast(i * 100_000_000, "float32"), "int64"),
        (Select(i * 100_000_000 - b < 5, load(A, b, i), load(A, b, 0), "float32"), "int64"),
    ],
)
def test_width_of_indices(value: Expr, dtype: str) -> None:
    body = bound(b, 6, bound(i, 40, store(B, (b, i), value), "threadIdx.x"), "blockIdx.x")
    (made,) = launches(
        to_device(kernel("wide", [A, B, array("K", (6,), "int64"), array("N", (6,), "int32")], "B", body))
    )
    assert made.indices == dtype
