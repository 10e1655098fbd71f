"""The one text form of loop IR."""

from __future__ import annotations

from collections.abc import Iterator

from tensorlang.ir.expr import Const
from tensorlang.ir.stmt import (
    Allocate,
    AtomicUpdate,
    CallMachine,
    CallPython,
    Fail,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Prefetch,
    Seq,
    Stmt,
    Store,
)


def kernel_text(kernel: Kernel) -> str:
    """Return a kernel as readable text, one statement a line."""
    params = [str(p) for p in kernel.params] + [f"{v.name}: size" for v in kernel.sizes]
    lines = [f"kernel {kernel.name}({', '.join(params)}):", *(f"  {line}" for line in _lines(kernel.body))]
    lines += [f"nontemporal {name}" for name in kernel.streamed]
    for text in kernel.imports:
        lines += ["import llvm:", *(f"  {line}" for line in text.strip().splitlines())]
    return "\n".join(lines) + "\n"


def stmt_text(stmt: Stmt) -> str:
    """Return a statement as readable text."""
    return "\n".join(_lines(stmt))


def _indent(stmt: Stmt) -> Iterator[str]:
    for line in _lines(stmt):
        yield f"  {line}"


def _store_text(stmt: Store | AtomicUpdate) -> str:
    if isinstance(stmt, AtomicUpdate):
        return f"atomic {_store_text(stmt.stored)}"
    return f"{stmt.buffer.name}[{', '.join(map(str, stmt.index))}] = {stmt.value}"


def _lines(stmt: Stmt) -> Iterator[str]:
    match stmt:
        case For():
            start = "" if isinstance(stmt.lower, Const) and stmt.lower.value == 0 else f"{stmt.lower}, "
            word = "for" if stmt.kind is LoopKind.SERIAL else stmt.thread or stmt.kind.value
            for name, value in stmt.pragmas:
                yield f"pragma {name} = {value}"
            yield f"{word} {stmt.var} in range({start}{stmt.upper}):"
            yield from _indent(stmt.body)
        case Store() | AtomicUpdate():
            yield _store_text(stmt)
        case Prefetch():
            yield f"prefetch {stmt.buffer.name}[{', '.join(map(str, stmt.index))}]"
        case If():
            yield f"if {stmt.cond}:"
            yield from _indent(stmt.then)
            if stmt.orelse is not None:
                yield "else:"
                yield from _indent(stmt.orelse)
        case Seq():
            for s in stmt.body:
                yield from _lines(s)
        case Allocate():
            yield f"allocate {stmt.buffer} in {stmt.buffer.scope}"
            yield from _lines(stmt.body)
        case Let():
            yield f"let {stmt.var} = {stmt.value}"
            yield from _lines(stmt.body)
        case Fail():
            yield f"fail {stmt.message!r}"
        case CallPython():
            yield f"python {stmt.name}({', '.join(b.name for b in stmt.buffers)})"
        case CallMachine():
            tiles = (f"{v.buffer.name}[{', '.join(map(str, v.index))}]" for v in stmt.views)
            yield f"machine {stmt.code.name}({', '.join(tiles)}):"
            yield from _indent(stmt.meaning)
