"""Random kernels in region form do on the device what they do in series, and no threads race there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given, note, settings
from hypothesis import strategies as st

from tensorlang.ir import interpret, threads
from tensorlang.ir.construct import array, index, indices, kernel, load, loop, store
from tensorlang.ir.expr import Buffer, Const, Expr, Load, Var, binary, cast
from tensorlang.ir.loops import THREAD_REDUCE
from tensorlang.ir.printer import kernel_text
from tensorlang.ir.stmt import Allocate, Barrier, Combiner, For, If, Kernel, LoopKind, Seq, Stmt, Store
from tensorlang.ir.verify import verify
from tensorlang.lowering.pipeline import to_device

b, c, h, n = indices("b c h n")
X, Y, Z = "threadIdx.x", "threadIdx.y", "threadIdx.z"
ROWS, WIDTH = 5, 12
DATA = array("data", (ROWS, 3, WIDTH), "int32")
OUT = array("out", (ROWS, 3, WIDTH), "int32")
SHARED = array("shared", (3, WIDTH), "int32", "shared")
OWN = array("own", (3, WIDTH, 2), "int32", "local")
LINE = array("line", (3,), "int32", "local")
TOTAL = array("total", (3,), "int32", "shared")
SUM = Combiner(
    (Var("x", "int32"),), (Var("y", "int32"),), (Var("x", "int32") + Var("y", "int32"),), (Const(0, "int32"),)
)
REDUCERS = {"line": SUM, "total": SUM}


@dataclass(frozen=True, slots=True)
class Region:
    """The loops of a region: their variables and extents along y and x; a region may lack one of them."""

    number: int
    rows: int
    columns: int

    @property
    def row(self) -> Var:
        return Var(f"r{self.number}", "int64")

    @property
    def column(self) -> Var:
        return Var(f"i{self.number}", "int64")


def bound(var: Var, lower: Expr | int, upper: Expr | int, body: Stmt, thread: str) -> For:
    return loop(var, lower, upper, body, LoopKind.BOUND, thread)


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    """Blocks of a row each, in which regions follow each other, a barrier between them; some in a serial loop."""
    regions: list[Stmt] = []
    for number in range(draw(st.integers(1, 4))):
        regions += [draw(_regions(number)), Barrier()]
    body: Stmt = Seq((_start(), Barrier(), *regions))
    if draw(st.booleans()):
        body = Seq((_start(), Barrier(), loop(h, 0, draw(st.sampled_from((index(2), b, n))), Seq(tuple(regions)))))
    for buffer, tags in ((TOTAL, ()), (SHARED, ()), (LINE, (Y,)), (OWN, (Y, X))):
        body = Allocate(buffer, body, tags)
    if draw(st.booleans()):
        body = If(binary("le", b, n), body)
    upper: Expr = draw(st.sampled_from([index(ROWS), binary("min", n, index(ROWS))]))
    return kernel("regions", [DATA, OUT], "data out", bound(b, draw(st.integers(0, 2)), upper, body, "blockIdx.x"), [n])


def _start() -> Stmt:
    """Write all scratch once: its content is not defined."""
    r, i = indices("r i")
    each = Seq((store(SHARED, (r, i), cast(i, "int32")), store(OWN, (r, i, 0), 1), store(OWN, (r, i, 1), 2)))
    lines = Seq((store(LINE, r, cast(r, "int32")), store(TOTAL, r, 5)))
    whole = bound(r, 0, 3, bound(i, 0, WIDTH, each, X), Y)
    return Seq((whole, Barrier(), bound(r, 0, 3, lines, Y)))


@st.composite
def _regions(draw: st.DrawFn, number: int) -> Stmt:
    region = Region(number, draw(st.integers(1, 3)), draw(st.integers(1, WIDTH)))
    kind = draw(st.sampled_from(["both", "both", "both", "rows", "columns", "once", "reduce", "reduce"]))
    if kind == "reduce":
        return draw(_reductions(region))
    row, column = region.row, region.column
    if kind == "once":
        return store(OUT, (b, 2, draw(st.integers(0, WIDTH - 1))), draw(_values(index(0), index(1), ())))
    if kind == "rows":
        line = store(LINE, row, draw(_values(row, index(0), (load(LINE, row), load(TOTAL, row)))))
        return bound(row, 0, region.rows, line, Y)
    if kind == "columns":
        at = (b, 1, column)
        return bound(column, 0, region.columns, store(OUT, at, draw(_values(index(1), column, (load(OUT, *at),)))), X)
    body = draw(_bodies(region))
    lower: Expr = draw(st.sampled_from([index(0), index(1), binary("max", index(0), 2 - b)]))
    upper: Expr = draw(st.sampled_from([index(region.columns), binary("min", index(region.columns), 2 * b + 3)]))
    if draw(st.booleans()):
        body = If(draw(st.sampled_from([row + column < 5, column > b, row < n])), body)
    inside = bound(column, lower, upper, body, X)
    return bound(row, 0, region.rows, inside, Y) if draw(st.booleans()) else _swapped(row, region.rows, inside)


def _swapped(row: Var, rows: int, inside: For) -> Stmt:
    return replace(inside, body=bound(row, 0, rows, inside.body, Y))


@st.composite
def _bodies(draw: st.DrawFn, region: Region) -> Stmt:
    """What a thread does with elements of its own, and with those of others that no thread of the region writes."""
    row, column = region.row, region.column
    mine = [(SHARED, (row, column)), (OWN, (row, column, index(draw(st.integers(0, 1))))), (OUT, (b, row, column))]
    target = draw(st.sampled_from(mine))
    own = [Load(OWN, (row, column, index(1))), Load(LINE, (row,))]
    others = [_element(SHARED, (draw(st.integers(0, 2)), column + draw(st.integers(0, 9))))]
    read = [*own, *(e for e in others if target[0] is not SHARED), Load(*target)]
    value = draw(_values(row, column, tuple(read)))
    body: Stmt = Store(target[0], target[1], value)
    if draw(st.booleans()):
        k = Var(f"k{region.number}", "int64")
        kind = draw(st.sampled_from([LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.PARALLEL]))
        again = Store(target[0], target[1], Load(*target) * 3 + cast(k, "int32"))
        body = Seq(
            (
                body,
                loop(
                    k,
                    0,
                    draw(st.sampled_from((index(2), b, column))) if kind is LoopKind.SERIAL else index(2),
                    again,
                    kind,
                ),
            )
        )
    if draw(st.booleans()):
        t = array(f"t{region.number}", (2,), "int32", draw(st.sampled_from(["local", "global", "shared"])))
        body = Allocate(t, Seq((store(t, 1, value + 1), body, Store(target[0], target[1], Load(*target) + load(t, 1)))))
    return body


@st.composite
def _reductions(draw: st.DrawFn, region: Region) -> Stmt:
    """Columns that reduce into a row's element, of the block or of the row's threads."""
    row, column, o = region.row, region.column, Var(f"o{region.number}", "int64")
    target = draw(st.sampled_from([LINE, TOTAL]))
    place = binary("floormod", column + 4 * o, index(WIDTH))
    update: Stmt = Store(target, (row,), Load(target, (row,)) + load(DATA, b, row, place))
    if draw(st.booleans()):
        tests = [column > b, column + 4 * o < 7, row + column < 4, row < n, binary("lt", load(DATA, b, row, place), 3)]
        update = If(draw(st.sampled_from(tests)), update)
    if draw(st.booleans()):
        update = loop(o, 0, draw(st.sampled_from((index(2), b, row))), update)
    else:
        update = loop(o, 0, 1, update)
    pragma = ((THREAD_REDUCE, 1),)
    p = Var(f"p{region.number}", "int64")
    columns = draw(st.sampled_from((index(region.columns), binary("min", index(region.columns), 4 * p))))
    if draw(st.booleans()):
        inner = replace(bound(column, 0, columns, update, X), pragmas=pragma)
        nest = bound(row, 0, region.rows, inner, Y)
    else:
        nest = replace(bound(column, 0, columns, bound(row, 0, region.rows, update, Y), X), pragmas=pragma)
    body = If(draw(st.sampled_from([p < b, p < n])), nest) if draw(st.booleans()) else nest
    return loop(p, 0, draw(st.integers(1, 3)), Seq((body, Barrier())) if draw(st.booleans()) else body)


def _element(buffer: Buffer, at: tuple[Expr | int, ...]) -> Load:
    extents = (int(e.value) for e in buffer.shape if isinstance(e, Const))
    return load(buffer, *(binary("floormod", index(i), index(e)) for i, e in zip(at, extents, strict=True)))


@st.composite
def _values(draw: st.DrawFn, row: Expr, column: Expr, read: tuple[Load, ...]) -> Expr:
    terms: list[Expr] = [load(DATA, b, row, column), cast(column + 3 * row + b, "int32"), *read]
    total = draw(st.sampled_from(terms))
    for term in draw(st.lists(st.sampled_from(terms), max_size=2)):
        total = total * draw(st.integers(1, 3)) + term
    return total


@settings(deadline=None)
@given(kernels())
def test_regions_keep_meaning(source: Kernel) -> None:
    verify(source)
    made = to_device(source, REDUCERS)
    note(f"{kernel_text(source)}\n->\n{kernel_text(made)}")
    verify(made)
    for size in (0, 4):
        random = np.random.default_rng(size)
        start = {x.name: random.integers(-9, 9, (ROWS, 3, WIDTH)).astype(np.int32) for x in (DATA, OUT)}
        wanted, got = ({name: x.copy() for name, x in start.items()} for _ in range(2))
        interpret.run(source, wanted, {"n": size})
        threads.run(made, got, {"n": size})
        for name, x in wanted.items():
            np.testing.assert_array_equal(got[name], x, err_msg=f"{name} for n = {size}")
