"""Copies from global to shared memory that run while the thread goes on, and plain ones where there are none."""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.ir.expr import Buffer
from tensorlang.ir.stmt import AsyncCommit, AsyncCopy, AsyncWait, BoxCopy
from tensorlang.target.c_source import code as c
from tensorlang.target.c_source.boxes import emit_box, emit_group
from tensorlang.target.c_source.code import Code
from tensorlang.target.c_source.expressions import factor, offset, offset_code, value
from tensorlang.target.c_source.memory import copy, pieces
from tensorlang.target.c_source.scope import Scope

_SIZES = {16: "cg_16", 8: "ca_8", 4: "ca_4"}
"""Bytes of an asynchronous copy, and the end of the name of the function that begins it."""


def emit(scope: Scope, stmt: AsyncCopy | BoxCopy | AsyncCommit | AsyncWait) -> None:
    """Append the lines of a statement about asynchronous copies."""
    match stmt:
        case AsyncCopy():
            if not (scope.dialect.async_copies and _begin(scope, stmt)):
                _plain(scope, stmt)
        case BoxCopy():
            emit_box(scope, stmt)
        case AsyncCommit(barriers=Buffer()) | AsyncWait(barriers=Buffer()):
            emit_group(scope, stmt)
        case AsyncCommit() if scope.dialect.async_copies:
            scope.line(f"{scope.text.call('tl_cp_async_commit')}();")
        case AsyncWait() if scope.dialect.async_copies:
            scope.line(f"{scope.text.call('tl_cp_async_wait')}<{stmt.pending}>();")


def _begin(scope: Scope, stmt: AsyncCopy) -> bool:
    """Begin a copy by instructions of 4, 8 or 16 bytes; False where its ends may not be aligned to any of these."""
    bytes_ = dtypes.info(stmt.buffer.dtype).bytes
    known = dict(scope.factors)
    ends = ((stmt.buffer, stmt.index), (stmt.source, stmt.source_index))
    apart = [factor(offset(scope, buffer, where), known) * bytes_ for buffer, where in ends]
    total = stmt.elements * bytes_
    size = next((n for n in _SIZES if total % n == 0 and all(a % n == 0 for a in apart)), None)
    if size is None or stmt.buffer.dtype != stmt.source.dtype:
        return False
    scope.text.wide_accesses = True
    name, extra = f"tl_cp_async_{_SIZES[size]}", ""
    if stmt.valid is not None:
        name, extra = f"{name}_zfill", f", {value(scope, stmt.valid).at(c.OR)} ? {size} : 0"
    for begin in range(0, stmt.elements, size // bytes_):
        to, source = (_pointer(scope, stmt, begin, of_source) for of_source in (False, True))
        scope.line(f"{scope.text.call(name)}({to}, {source}{extra});")
    return True


def _plain(scope: Scope, stmt: AsyncCopy) -> None:
    """Copy at once."""
    inside = scope
    if stmt.valid is not None:
        scope.line(f"if ({value(scope, stmt.valid).text}) {{")
        inside = scope.deeper
    target, source = scope.storage(stmt.buffer), scope.storage(stmt.source)
    known = dict(scope.factors)
    apart = [
        factor(offset(scope, b, w), known) for b, w in ((stmt.buffer, stmt.index), (stmt.source, stmt.source_index))
    ]
    width = stmt.elements
    while width > 1 and (pieces(scope, target, width, apart) < width or width not in (2, 4, 8, 16)):
        width -= 1
    width = width if stmt.elements % width == 0 else 1
    for begin in range(0, stmt.elements, width):
        to, where = (_pointer(scope, stmt, begin, of_source) for of_source in (False, True))
        if width == 1:
            inside.line(f"*({to}) = *({where});")
        else:
            inside.line(copy(scope, to, where, stmt.buffer.dtype, width, (target.space, source.space)))
    if stmt.valid is not None:
        scope.line("} else {")
        for begin in range(stmt.elements):
            inside.line(f"*({_pointer(scope, stmt, begin, False)}) = 0;")
        scope.line("}")


def _pointer(scope: Scope, stmt: AsyncCopy, begin: int, of_source: bool) -> str:
    """Where an element of the copy lies."""
    buffer, where = (stmt.source, stmt.source_index) if of_source else (stmt.buffer, stmt.index)
    if buffer.swizzled and begin:
        where, begin = (*where[:-1], where[-1] + begin), 0
    at: Code = offset_code(scope, buffer, where)
    name = scope.storage(buffer).name
    parts = [] if at.constant == 0 else [at.at(c.SUM + 1)]
    return " + ".join([name, *parts, *([str(begin)] if begin else [])])
