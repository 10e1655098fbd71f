"""What one thread of a team runs: its share of the iterations of a nest of parallel loops.

Perfectly nested parallel loops, whose bounds do not depend on each other, have one range of numbers: those of their
iterations in order. A share is a piece of it, and runs as loops again: only where it begins and ends is divided.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Const, Expr, Load, Var, binary, walk
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX, For, Let, LoopKind, Stmt

FIRST, LAST = Var("share.first", INDEX), Var("share.last", INDEX)
"""The iterations of a share: from FIRST up to, but not with, LAST."""
_ZERO, _ONE = Const(0, INDEX), Const(1, INDEX)


@dataclass(frozen=True, slots=True)
class Nest:
    """Parallel loops that share one range, outermost first; between them there are Lets at most."""

    loops: tuple[For, ...]

    @property
    def count(self) -> Expr:
        """How many iterations they have together."""
        return reduce(lambda a, b: binary("mul", a, b), map(_extent, self.loops))

    @property
    def share(self) -> Stmt:
        """The iterations FIRST to LAST in order; the loops run one after the other's end, and innermost fastest."""
        return _share(self.loops[0], self.loops[1:], FIRST, LAST)


def nest(loop: For) -> Nest:
    """The largest nest of parallel loops that begins with `loop`."""
    loops, bound = [loop], {loop.var.name}
    inside: Stmt = loop.body
    while True:
        match inside:
            case Let(var, _, body):
                bound.add(var.name)
                inside = body
            case For(kind=LoopKind.PARALLEL, pragmas=()) if _is_fixed(inside, bound):
                loops.append(inside)
                bound.add(inside.var.name)
                inside = inside.body
            case _:
                return Nest(tuple(loops))


def _is_fixed(loop: For, bound: set[str]) -> bool:
    """Whether the bounds of a loop can be computed outside the loops around it."""
    nodes = [node for bounds in (loop.lower, loop.upper) for node in walk(bounds)]
    return not any(isinstance(n, Load) or (isinstance(n, Var) and n.name in bound) for n in nodes)


def _share(loop: For, inner: tuple[For, ...], first: Expr, last: Expr) -> Stmt:
    """Iterations `first` to `last` of a loop and those nested in it."""
    if not inner:
        return _serial(loop, binary("add", loop.lower, first), binary("add", loop.lower, last), loop.body)
    size = simplify(binary("max", Nest(inner).count, _ONE))  # a share of nothing is never run, but must be text
    up = binary("sub", binary("add", last, size), _ONE)
    begin = binary("add", loop.lower, binary("floordiv", first, size))
    end = binary("add", loop.lower, binary("floordiv", up, size))
    done = binary("mul", binary("sub", loop.var, loop.lower), size)
    from_here = binary("max", binary("sub", first, done), _ZERO)
    to_here = binary("min", binary("sub", last, done), size)
    rest = _share(inner[0], inner[1:], from_here, to_here)
    return _serial(loop, begin, end, _with_inner(loop.body, rest))


def _with_inner(body: Stmt, rest: Stmt) -> Stmt:
    """The body of a loop with other loops in place of the next parallel one."""
    return replace(body, body=_with_inner(body.body, rest)) if isinstance(body, Let) else rest


def _serial(loop: For, lower: Expr, upper: Expr, body: Stmt) -> For:
    return replace(loop, lower=simplify(lower), upper=simplify(upper), kind=LoopKind.SERIAL, body=body)


def _extent(loop: For) -> Expr:
    return simplify(binary("max", binary("sub", loop.upper, loop.lower), _ZERO))
