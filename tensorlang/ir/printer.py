"""The one text form of loop IR."""

from __future__ import annotations

from collections.abc import Iterator

from tensorlang.ir.expr import Buffer, Const, Expr
from tensorlang.ir.stmt import (
    Allocate,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    AtomicUpdate,
    Barrier,
    BoxCopy,
    CallMachine,
    CallPython,
    DeviceKernel,
    Fail,
    For,
    If,
    Kernel,
    Launch,
    Let,
    LoopKind,
    MachineCommit,
    MachineWait,
    Prefetch,
    Seq,
    Stmt,
    Store,
    ThreadReduce,
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
    return f"{_element(stmt.buffer, stmt.index)} = {stmt.value}"


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
            where = "" if stmt.level == 1 else f" into cache {stmt.level}"
            yield f"prefetch {_element(stmt.buffer, stmt.index)}{where}"
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
            each = f", one for each {', '.join(stmt.threads)}" if stmt.threads else ""
            yield f"allocate {stmt.buffer} in {_scope(stmt.buffer)}{each}"
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
            where = "" if stmt.accumulates is None else f" accumulating where {stmt.accumulates}"
            yield f"machine {stmt.code.name}({', '.join(tiles)}){where}:"
            yield from _indent(stmt.meaning)
        case _:
            yield from _device_statement(stmt)


def _device_statement(stmt: Stmt) -> Iterator[str]:
    """What stands in the code of threads, or runs it."""
    match stmt:
        case Barrier():
            yield f"barrier of the {stmt.scope}"
        case AsyncCopy():
            to, source = _element(stmt.buffer, stmt.index), _element(stmt.source, stmt.source_index)
            where = "" if stmt.valid is None else f" where {stmt.valid}"
            yield f"begin copy {to} = {source} of {stmt.elements} elements{where}"
        case BoxCopy():
            to, source = _element(stmt.buffer, stmt.index), _element(stmt.source, stmt.source_index)
            yield f"begin copy {to} = {source} of a box [{', '.join(map(str, stmt.box))}] for {stmt.barriers.name}"
        case AsyncCommit():
            yield f"commit copies{_counted(stmt.barriers)}"
        case AsyncWait():
            yield f"wait for copies{_counted(stmt.barriers)}, all but {stmt.pending} groups"
        case MachineCommit():
            yield f"commit {stmt.group}"
        case MachineWait():
            yield f"wait for {stmt.group}, all but {stmt.pending} groups"
        case ThreadReduce():
            targets = ", ".join(_element(b, index) for b, index in stmt.targets)
            threads = ", ".join(f"{tag} in {extent}" for tag, extent in stmt.threads)
            yield f"combine {', '.join(map(str, stmt.values))} over {threads} into {targets}"
        case Launch():
            yield f"launch {stmt.kernel.name}({', '.join(map(str, stmt.scalars))}):"
            yield from (f"  {line}" for line in _device_lines(stmt.kernel))


def _counted(barriers: Buffer | None) -> str:
    return f" for {barriers.name}" if barriers else ""


def _device_lines(kernel: DeviceKernel) -> Iterator[str]:
    params = [str(p) for p in kernel.params] + [f"{v.name}: {v.dtype}" for v in kernel.scalars]
    grid, block = (", ".join(map(str, extents)) for extents in (kernel.grid, kernel.block))
    yield f"device kernel {kernel.name}({', '.join(params)}) on [{grid}] blocks of [{block}] threads:"
    yield from (f"  allocate {b} in {_scope(b)}" for b in kernel.shared)
    yield from _indent(kernel.body)


def _scope(buffer: Buffer) -> str:
    return f"{buffer.scope}, swizzled{' in panels' * buffer.panels}" if buffer.swizzled else buffer.scope


def _element(buffer: Buffer, index: tuple[Expr, ...]) -> str:
    return f"{buffer.name}[{', '.join(map(str, index))}]"
