"""What is left of a vector loop after its full pieces: masked, or in narrower pieces.

A masked store delays a read of the same place (it cannot be forwarded from the store buffer) and keeps a buffer of the
stack out of registers. So masks serve loops that stream: whose accesses are rows, or become rows in registers, and that
do not read what they write. The others run in pieces of half, a quarter, ... of the lanes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tensorlang import dtypes
from tensorlang.ir.expr import Expr, Load, Var, walk
from tensorlang.ir.loops import constant_extent
from tensorlang.ir.stmt import Fail, For, If, Let, Prefetch, Seq, Stmt, Store, children
from tensorlang.target.detect import target_cpu
from tensorlang.target.llvm.expressions import coefficient
from tensorlang.target.llvm.scope import Lanes, Scope
from tensorlang.target.llvm.text import INDEX, Function, Value, literal
from tensorlang.target.llvm.vectors.body import Body
from tensorlang.target.llvm.vectors.transposed import rows
from tensorlang.target.spec import Target

_MOST_COPIED = 16
"""Stores of a body that is copied for pieces of every width; larger ones run lane by lane."""
_AVX512 = frozenset(("avx512f", "avx512bw", "avx512vl"))


def masks_fit(fn: Function, scope: Scope, loop: For, body: Body, moved: Iterable[str]) -> bool:
    """Whether a masked piece of a vector loop, which moves some dtypes, is good code."""
    if not has_masks(fn.target, moved):
        return False
    wanted = replace(scope, lanes=Lanes(loop.var.name, literal(0, INDEX), 2))
    return _plain(loop.body, loop.var.name) and _streams(wanted, body)


def has_masks(target: Target, moved: Iterable[str]) -> bool:
    """Whether the CPU loads and stores some lanes of a vector of each dtype in one instruction."""
    features = target_cpu(target).features
    return features >= _AVX512 or ("avx2" in features and all(dtypes.info(d).bits in (32, 64) for d in moved))


def first_lanes(fn: Function, count: Value, lanes: int, bits: int) -> Value:
    """The mask of the first `count` (at most `lanes`) of `lanes` lanes, for a dtype of so many bits."""
    if count.integer is not None:
        return these_lanes(range(count.integer), lanes)
    # AVX-512 has masks of their own, for which bytes do; AVX2 has the sign bits of lanes of the dtype.
    element = "i8" if target_cpu(fn.target).features >= _AVX512 else f"i{bits}"
    short = count.text if element == "i64" else fn.op(f"trunc {count.typed} to {element}")
    type_ = f"<{lanes} x {element}>"
    first = fn.op(f"insertelement {type_} poison, {element} {short}, i64 0")
    every = fn.op(f"shufflevector {type_} {first}, {type_} poison, <{lanes} x i32> zeroinitializer")
    numbers = ", ".join(f"{element} {lane}" for lane in range(lanes))
    return fn.value(f"icmp ult {type_} <{numbers}>, {every}", "bool", lanes)


def these_lanes(active: range, lanes: int) -> Value:
    """The mask of known lanes."""
    bools = ", ".join(f"i1 {'true' if lane in active else 'false'}" for lane in range(lanes))
    return Value(f"<{bools}>", "bool", lanes)


def is_short(body: Stmt) -> bool:
    """Whether a body may be copied for pieces of every width."""
    return _copies(body) <= _MOST_COPIED


def _copies(stmt: Stmt) -> int:
    below = sum(_copies(child) for child in children(stmt))
    if isinstance(stmt, For):
        return below * (constant_extent(stmt) or 1)
    return below + isinstance(stmt, Store)


def _plain(stmt: Stmt, lane: str) -> bool:
    """Nothing but stores, uniform loops and uniform conditions: masks of masks are left to the general code."""
    match stmt:
        case Store() | Prefetch() | Fail():
            return True
        case Let():
            return not _mentions(stmt.value, lane) and _plain(stmt.body, lane)
        case If():
            return not _mentions(stmt.cond, lane) and all(_plain(s, lane) for s in children(stmt))
        case Seq() | For():
            return all(_plain(s, lane) for s in children(stmt))
    return False


def _mentions(expr: Expr, name: str) -> bool:
    return any(isinstance(n, Var) and n.name == name for n in walk(expr))


def _streams(scope: Scope, body: Body) -> bool:
    places = [Load(written.store.buffer, written.store.index) for written in body.stores]
    written = {place.buffer.name for place in places}
    turned = {read for loop in body.loops for read in rows(scope, loop)}
    reads = [(load, names) for load, names in body.reads if not turned or load not in turned]
    if any(load.buffer.name in written for load, _ in reads):
        return False
    if any(place.buffer.scope == "local" for place in (*places, *(load for load, _ in reads))):
        return False
    return all(_is_row(scope, place) for place in places) and all(
        not scope.moves(names) or _is_row(scope, load) for load, names in reads
    )


def _is_row(scope: Scope, access: Load) -> bool:
    """Whether lanes are neighbours in the last dimension."""
    if not access.index:
        return False
    *outer, last = access.index
    return coefficient(scope, last) == 1 and not any(scope.varies(i) for i in outer)
