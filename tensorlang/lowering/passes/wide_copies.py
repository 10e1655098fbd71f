"""Wide asynchronous copies: the lanes of a vectorised loop that copies neighbouring elements become one copy."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.ir.expr import Binary, Cast, Const, Expr, Var, binary, same, substitute, substitution
from tensorlang.ir.instance import Instance
from tensorlang.ir.loops import constant_extent, uses, with_body, with_kind
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX, AsyncCopy, For, If, Kernel, LoopKind, Seq, Stmt, map_children, walk


def wide_copies(kernel: Kernel) -> Kernel:
    """Return the kernel with the asynchronous copies of neighbouring elements joined, and no other in vectors."""
    return with_body(kernel, _visit(kernel.body))


def _visit(stmt: Stmt) -> Stmt:
    if isinstance(stmt, For) and stmt.kind is LoopKind.VECTORIZED and any(isinstance(s, AsyncCopy) for s in walk(stmt)):
        extent = constant_extent(stmt)
        wide = None if extent is None else _joined(stmt.body, stmt, extent)
        return with_kind(stmt, LoopKind.UNROLLED if extent is not None else LoopKind.SERIAL) if wide is None else wide
    return map_children(stmt, _visit)


def _joined(stmt: Stmt, loop: For, extent: int) -> Stmt | None:
    """All lanes of a statement at once, if they are neighbours."""
    name = loop.var.name
    match stmt:
        case If(orelse=None) if not uses(stmt.cond, name):
            inside = _joined(stmt.then, loop, extent)
            return None if inside is None else replace(stmt, then=inside)
        case Seq():
            parts = [_joined(s, loop, extent) for s in stmt.body]
            whole = [part for part in parts if part is not None]
            return Seq(tuple(whole)) if len(whole) == len(parts) else None
        case AsyncCopy() if stmt.elements == 1 and (stmt.valid is None or _is_alike(stmt.valid, loop, extent)):
            if _is_run(stmt.index, name) and _is_run(stmt.source_index, name):
                first = substitution({name: loop.lower})
                at, source = (tuple(map(first, index)) for index in (stmt.index, stmt.source_index))
                valid = None if stmt.valid is None else first(stmt.valid)
                runs = tuple(_of_lanes(instance, loop, extent) for instance in stmt.runs)
                return replace(stmt, index=at, source_index=source, elements=extent, valid=valid, runs=runs)
    return None


def _of_lanes(instance: Instance, loop: For, extent: int) -> Instance:
    """The instances that the lanes of a loop run."""
    lane = Var(f"{loop.var.name}.lane", INDEX)
    moved = instance.map(substitution({loop.var.name: binary("add", loop.lower, lane)}))
    return replace(moved, over=(*moved.over, (lane.name, 0, extent)))


def _is_run(index: tuple[Expr, ...], name: str) -> bool:
    """Whether a variable moves an access along a row, element by element."""
    if any(uses(i, name) for i in index[:-1]):
        return False
    var = Var(name, INDEX)
    step = simplify(binary("sub", substitute(index[-1], {name: binary("add", var, 1)}), index[-1]))
    return isinstance(step, Const) and step.value == 1


def _is_alike(test: Expr, loop: For, extent: int) -> bool:
    """Whether a test has the same outcome in all lanes: without the lane, or `lane + a < b` of multiples a and b."""
    name = loop.var.name
    match test:
        case _ if not uses(test, name):
            return True
        case Binary(op="and"):
            return _is_alike(test.a, loop, extent) and _is_alike(test.b, loop, extent)
        case Binary(op="lt"):
            left, right = _residue(test.a, name, extent), _residue(test.b, name, extent)
            even = extent & (extent - 1) == 0 and same(loop.lower, Const(0, INDEX))
            return even and left == (1, 0) and right == (0, 0)
    return False


def _residue(expr: Expr, name: str, modulus: int) -> tuple[int, int] | None:
    """How often a variable is in a sum, and what the rest leaves on division by a power of two; None if unknown.

    Conversions between integers keep both, since these wrap around at multiples of it.
    """
    match expr:
        case Const(value=value):
            return 0, int(value) % modulus
        case Var():
            return (1, 0) if expr.name == name else None
        case Cast():
            return _residue(expr.value, name, modulus)
        case Binary(op="add" | "sub"):
            left, right = _residue(expr.a, name, modulus), _residue(expr.b, name, modulus)
            if left is None or right is None:
                return None
            sign = 1 if expr.op == "add" else -1
            return left[0] + sign * right[0], (left[1] + sign * right[1]) % modulus
        case Binary(op="mul", a=rest, b=Const(value=factor)) | Binary(op="mul", a=Const(value=factor), b=rest):
            if int(factor) % modulus == 0 and not uses(rest, name):
                return 0, 0
    return None
