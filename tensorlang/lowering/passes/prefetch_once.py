"""Copies of an unrolled loop that prefetch the same line do so once."""

from __future__ import annotations

from functools import partial

from tensorlang.ir.expr import to_text
from tensorlang.ir.loops import with_body
from tensorlang.ir.stmt import For, If, Kernel, Let, Prefetch, Seq, Stmt, map_children

_Place = tuple[str, int, str]
_NOTHING = Seq(())


def prefetch_once(kernel: Kernel) -> Kernel:
    """Leave out what was prefetched before in the same iteration.

    Words of codes that lie in the same bytes ask for the same line.
    """
    return with_body(kernel, _visit(kernel.body, set()))


def _visit(stmt: Stmt, seen: set[_Place]) -> Stmt:
    """A statement without what is `seen`, to which its own prefetches are added, but for those of inner scopes."""
    match stmt:
        case Prefetch():
            place = (stmt.buffer.name, stmt.level, ", ".join(map(to_text, stmt.index)))
            if place in seen:
                return _NOTHING
            seen.add(place)
            return stmt
        case For() | If() | Let():
            return map_children(stmt, lambda child: _visit(child, set(seen)))
        case Seq():
            return Seq(tuple(part for child in stmt.body if (part := _visit(child, seen)) != _NOTHING))
    return map_children(stmt, partial(_visit, seen=seen))
