"""Tests that do not change inside a loop move out of it, and tests that follow each other become one.

The passes that version tiles put their tests where the tile is; this moves them out of the micro-kernel.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.ir.expr import Load, same, walk
from tensorlang.ir.loops import uses, with_body
from tensorlang.ir.stmt import For, If, Kernel, LoopKind, Prefetch, Seq, Stmt, map_children

_CROSSED = (LoopKind.SERIAL, LoopKind.UNROLLED)


def hoist_tests(kernel: Kernel) -> Kernel:
    """Turn `for: if c: A else: B` into `if c: for: A else: for: B` for serial and unrolled loops.

    Prefetches beside the test go into both loops. Before, `if c: A else: B` and `if c: C else: D` in a row become
    `if c: A; C else: B; D`. Conditions that read memory stay where they are.
    """
    return with_body(kernel, _visit(kernel.body))


def _visit(stmt: Stmt) -> Stmt:
    stmt = map_children(stmt, _visit)
    match stmt:
        case Seq():
            return _merged(stmt)
        case For():
            return _hoisted(stmt)
    return stmt


def _hoisted(loop: For) -> Stmt:
    parts = _parts(loop.body)
    hints = [part for part in parts if _only_prefetches(part)]
    rest = [part for part in parts if part not in hints]
    test = rest[0] if len(rest) == 1 else None
    if loop.kind not in _CROSSED or not isinstance(test, If) or not _steady(test) or uses(test.cond, loop.var.name):
        return loop

    def version(branch: Stmt | None) -> Stmt | None:
        if branch is None and not hints:
            return None
        body = (*hints, *_parts(branch))
        return _hoisted(replace(loop, body=body[0] if len(body) == 1 else Seq(body)))

    return replace(test, then=version(test.then) or Seq(()), orelse=version(test.orelse))


def _only_prefetches(stmt: Stmt) -> bool:
    return isinstance(stmt, Prefetch) or (isinstance(stmt, For) and all(map(_only_prefetches, _parts(stmt.body))))


def _merged(stmt: Seq) -> Stmt:
    body: list[Stmt] = []
    for child in stmt.body:
        last = body[-1] if body else None
        if isinstance(child, If) and isinstance(last, If) and _steady(child) and _alike(last, child):
            body[-1] = _joined(last, child)
        else:
            body.append(child)
    if len(body) == 1:
        return body[0]
    return stmt if len(body) == len(stmt.body) else Seq(tuple(body))


def _joined(first: If, second: If) -> If:
    then = _merged(Seq((*_parts(first.then), *_parts(second.then))))
    orelse = (*_parts(first.orelse), *_parts(second.orelse))
    return replace(first, then=then, orelse=_merged(Seq(orelse)) if orelse else None)


def _alike(first: If, second: If) -> bool:
    return first.is_guard == second.is_guard and same(first.cond, second.cond)


def _parts(stmt: Stmt | None) -> tuple[Stmt, ...]:
    if stmt is None:
        return ()
    return stmt.body if isinstance(stmt, Seq) else (stmt,)


def _steady(test: If) -> bool:
    """Whether no store can change the condition."""
    return not any(isinstance(node, Load) for node in walk(test.cond))
