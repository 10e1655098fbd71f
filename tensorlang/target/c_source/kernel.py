"""Whole kernels, and modules of several, as C text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from tensorlang.errors import InternalError
from tensorlang.ir.expr import Buffer, Const, Expr, Load, walk
from tensorlang.ir.idle_rounds import without_idle_rounds
from tensorlang.ir.machine import ASYNC_PROXY
from tensorlang.ir.shuffle import shuffles
from tensorlang.ir.stmt import (
    AsyncCopy,
    AtomicUpdate,
    BoxCopy,
    CallMachine,
    DeviceKernel,
    Store,
    ThreadReduce,
    stmt_exprs,
)
from tensorlang.ir.stmt import walk as statements
from tensorlang.lowering.device.arrays import written
from tensorlang.target.c_source.boxes import alignments, box_copies, declare_maps, open_barriers
from tensorlang.target.c_source.code import INT32, UNKNOWN, Code
from tensorlang.target.c_source.dialect import Dialect
from tensorlang.target.c_source.memory import ALIGNMENT, SWIZZLED, declaration, size
from tensorlang.target.c_source.prelude import definitions
from tensorlang.target.c_source.scope import Scope, Storage, Text
from tensorlang.target.c_source.source import Module, Source
from tensorlang.target.c_source.statements import emit

_AXES = ("x", "y", "z")
_POOL, _ALIGNED = "shared_memory", "shared_tiles"
_SCRATCH = "reduce_scratch"


def device_source(kernel: DeviceKernel, dialect: Dialect) -> Source:
    """Print one kernel. Raises TargetError for what the dialect cannot say."""
    return module_source((kernel,), dialect).kernels[0]


def module_source(kernels: Sequence[DeviceKernel], dialect: Dialect) -> Module:
    """Print kernels into one text, that numbers their faults together. Raises TargetError as `device_source`."""
    messages: list[str] = []
    calls: dict[str, str] = {}
    brought: dict[str, None] = {}
    bodies, sources = [], []
    for kernel in kernels:
        text = Text(dialect, messages, kernel.indices)
        body, source = _kernel(kernel, text)
        calls |= text.calls
        brought |= text.sources
        bodies.append(body)
        sources.append(source)
    words = {word for body in bodies for word in re.findall(r"\w+", body)}
    functions = definitions(dialect, {name: text for name, text in calls.items() if name in words})
    whole = "\n\n".join([*_extensions(dialect, [*functions, *bodies]), *functions, *brought, *bodies]) + "\n"
    shared = tuple(messages)
    return Module(whole, tuple(replace(s, text=whole, messages=shared) for s in sources), shared)


def _extensions(dialect: Dialect, texts: Sequence[str]) -> list[str]:
    used = [name for word, name in dialect.extensions if any(word in text for text in texts)]
    return ["\n".join(f"#pragma OPENCL EXTENSION {name} : enable" for name in used)] if used else []


def _kernel(kernel: DeviceKernel, text: Text) -> tuple[str, Source]:
    """The text of a kernel without the functions that it calls."""
    dialect = text.dialect
    if not re.fullmatch(r"[A-Za-z_]\w*", kernel.name, re.ASCII):
        raise InternalError(f"{kernel.name!r} is no name for a kernel in C")
    text.names.add(kernel.name)
    stored = written(kernel.body)
    read = {n.buffer.name for e in stmt_exprs(kernel.body) for n in walk(e) if isinstance(n, Load)}
    read |= {s.source.name for s in statements(kernel.body) if isinstance(s, AsyncCopy)}
    passed_on = bool(stored & read & {b.name for b in kernel.params})
    scope = Scope(text, kernel.block, writes_what_it_reads=passed_on, fenced=_fenced(kernel))
    scope, params = _parameters(scope, kernel, stored)
    scope, images, maps = declare_maps(scope, kernel)
    shared = [(scope.fresh(buffer.name), buffer) for buffer in kernel.shared]
    for name, buffer in shared:
        scope = scope.declare(buffer, Storage(name, buffer, "shared"))
    scope = open_barriers(_threads(_scalars(scope, kernel), kernel), kernel)
    opening, text.lines = text.lines, []
    emit(scope, without_idle_rounds(kernel.body))
    body, text.lines = text.lines, []
    shared_bytes, dynamic = _shared(scope, shared, _apart(kernel))
    lines = [*text.lines, *opening, *body]
    params += images
    if text.uses_fault:
        params.append(f"{dialect.spaces['global']}int *fault")
    head = f"{dialect.kernel.format(bounds=_bounds(kernel, dialect))} {kernel.name}("
    listed = ",\n    ".join(params)
    whole = "\n".join([f"{head}\n    {listed}) {{", *lines, "}"])
    wide = text.wide_accesses
    return whole, Source("", kernel.name, (), text.uses_fault, shared_bytes, dynamic, wide_accesses=wide, maps=maps)


def _bounds(kernel: DeviceKernel, dialect: Dialect) -> str:
    threads = str(prod(kernel.block))
    launch = f"{threads}, {kernel.blocks_per_core}" if kernel.blocks_per_core else threads
    x, y, z = kernel.block
    bounds = dialect.bounds.format(launch=launch, x=x, y=y, z=z)
    return (
        f"{bounds} {dialect.whole_warps}"
        if dialect.whole_warps and next(shuffles(kernel.body), None) is not None
        else bounds
    )


def _parameters(scope: Scope, kernel: DeviceKernel, written: set[str]) -> tuple[Scope, list[str]]:
    """The declarations of the arrays and scalars."""
    dialect, listed = scope.dialect, []
    for buffer in kernel.params:
        name = scope.fresh(buffer.name)
        scope = scope.declare(buffer, Storage(name, buffer, "global"))
        const = "" if buffer.name in written else "const "
        listed.append(f"{dialect.spaces['global']}{const}{dialect.word(buffer.dtype)} *{dialect.restrict} {name}")
    for var in kernel.scalars:
        name = scope.fresh(var.name if kernel.indices != "int32" else f"{var.name}_long")
        scope = scope.bind(var.name, Code(name, "int64", interval=UNKNOWN, unknown=True))
        listed.append(f"{dialect.types['int64']} {name}")
    return scope, listed


def _scalars(scope: Scope, kernel: DeviceKernel) -> Scope:
    """Scalars in the index type of the kernel."""
    for var in kernel.scalars if kernel.indices == "int32" else ():
        name = scope.fresh(var.name)
        scope.line(f"const int {name} = (int){scope.variables[var.name].text};")
        scope = scope.bind(var.name, scope.index_code(name, UNKNOWN, unknown=True))
    return scope


def _threads(scope: Scope, kernel: DeviceKernel) -> Scope:
    """The indices of the thread, as signed integers; 0 along axes of one."""
    used = {n.name for e in stmt_exprs(kernel.body) for n in walk(e) if hasattr(n, "name")}
    if next(shuffles(kernel.body), None) is not None or any(
        isinstance(s, ThreadReduce | CallMachine | BoxCopy) for s in statements(kernel.body)
    ):
        used |= {f"threadIdx.{axis}" for axis in _AXES}
    rows: tuple[tuple[str, Sequence[Expr | int]], ...] = (("blockIdx", kernel.grid), ("threadIdx", kernel.block))
    for word, extents in rows:
        names = scope.dialect.block_index if word == "blockIdx" else scope.dialect.thread_index
        for axis, extent in zip(_AXES, extents, strict=True):
            tag = f"{word}.{axis}"
            if isinstance(extent, Const):
                extent = int(extent.value)
            most = extent if isinstance(extent, int) else INT32[1]
            if most == 1:
                scope = scope.bind(tag, Code("0", "int64", interval=(0, 0), narrow=True), 0)
            elif tag in used:
                name = f"(int){names[axis]}"
                if word == "blockIdx" or scope.dialect.keeps_thread_index:
                    value, name = name, scope.fresh(f"{word[:-3]}_{axis}")
                    scope.line(f"const int {name} = {value};")
                scope = scope.bind(tag, scope.index_code(name, (0, max(most - 1, 0)), not isinstance(extent, int)))
    return scope


def _fenced(kernel: DeviceKernel) -> bool:
    """Whether hardware reads shared memory past the threads that write some of it."""
    codes = [s for s in statements(kernel.body) if isinstance(s, CallMachine)]
    passing = [s for s in codes if ASYNC_PROXY in s.code.features]
    stored = {v.buffer.name for s in codes if ASYNC_PROXY not in s.code.features for v in s.views}
    for s in statements(kernel.body):
        match s:
            case Store() | AtomicUpdate() | AsyncCopy():
                stored.add(s.buffer.name)
            case ThreadReduce():
                stored |= {b.name for b, _ in s.targets}
    return bool(passing) and not stored.isdisjoint(b.name for b in kernel.shared)


def _apart(kernel: DeviceKernel) -> dict[str, int]:
    """Bytes that arrays in shared memory begin at a multiple of, where the hardware has to know their layout."""
    found = alignments(box_copies(kernel.body))
    codes = [s for s in statements(kernel.body) if isinstance(s, CallMachine) and ASYNC_PROXY in s.code.features]
    found |= {v.buffer.name: SWIZZLED for s in codes for v in s.views}
    return {b.name: SWIZZLED if b.swizzled else found[b.name] for b in kernel.shared if b.name in found}


def _shared(scope: Scope, arrays: Sequence[tuple[str, Buffer]], apart: Mapping[str, int]) -> tuple[int, bool]:
    """Declare shared memory, arrays `apart` by multiples of bytes: its bytes, and whether the launch asks for them."""
    dialect = scope.dialect
    places, total = [], 0
    most = ALIGNMENT
    for name, buffer in sorted(arrays, key=lambda pair: -apart.get(pair[1].name, 0)):
        wanted = apart.get(buffer.name, ALIGNMENT)
        total, most = -(-total // wanted) * wanted, max(most, wanted)
        places.append((name, buffer, total))
        total += -(-size(buffer) // ALIGNMENT) * ALIGNMENT
    scratch, total = total, total + scope.text.scratch_bytes
    byte, align = dialect.types["uint8"], dialect.align.format(bytes=most)
    dynamic, pool = total > dialect.static_shared, _POOL
    if dynamic:
        scope.line(f"extern {dialect.shared} {align} {byte} {_POOL}[];")
        if most > ALIGNMENT:
            # What the launch gives is aligned to less.
            pool, total = _ALIGNED, total + most
            scope.line(f"{byte} *{pool} = {_POOL} + (-(unsigned long long){_POOL} & {most - 1});")
    for name, buffer, at in places:
        if dynamic:
            word = dialect.word(buffer.dtype)
            scope.line(f"{word} *{name} = ({word} *){f'({pool} + {at})' if at else pool};")
        else:
            scope.line(f"{dialect.shared} {align} {declaration(dialect, buffer, name)};")
    if scope.text.scratch_bytes:
        if dynamic:
            scope.line(f"{byte} *{_SCRATCH} = {pool} + {scratch};")
        else:
            scope.line(f"{dialect.shared} {align} {byte} {_SCRATCH}[{scope.text.scratch_bytes}];")
    return total, dynamic
