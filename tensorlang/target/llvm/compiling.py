"""Kernels to IR text, to objects (kept on disk), to executables."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

from tensorlang.errors import TargetError
from tensorlang.ir.overflow import SizeCheck, exact_limit
from tensorlang.ir.stmt import Kernel, Seq
from tensorlang.runtime import cpython
from tensorlang.runtime.arguments import Signature
from tensorlang.runtime.cache import cached
from tensorlang.runtime.executable import Executable, Fast, Launch
from tensorlang.target.detect import machine_options, runs_here
from tensorlang.target.llvm import engine
from tensorlang.target.llvm.entry import emit_entry
from tensorlang.target.llvm.host import Machine, fingerprint
from tensorlang.target.llvm.kernel import Emitted, emit_kernel
from tensorlang.target.llvm.objects import Object, elsewhere, load, order_of, packed
from tensorlang.target.llvm.storage.scratch import scratch_memory
from tensorlang.target.llvm.text import Module
from tensorlang.target.spec import Target

T = TypeVar("T")


def begin(kernel: Kernel, target: Target, signature: Signature | None = None) -> Callable[[], Executable]:
    """Write a kernel as LLVM IR; what is returned compiles that, in any thread. TargetError as `build`."""
    emitted = emit_kernel(kernel, target)
    ir = _ir(emitted)  # the kernel's alone: an entry is added when it is compiled

    def finish() -> Executable:
        if not runs_here(target):
            return _whole(kernel, target, lambda: ir, elsewhere(target), None, signature)
        machine = Machine(*machine_options(target))
        taken = kernel.params if signature is None else signature
        found, (launch, fast) = _object(
            kernel, emitted, machine, lambda found: (found, load(found, target, taken)), signature=taken
        )
        made = _whole(kernel, target, lambda: ir, launch, fast, signature)
        made.packed = partial(packed, found)
        return made

    return finish


def pack(kernel: Kernel, target: Target) -> bytes:
    """Compile a kernel, and return all that another process of this machine needs to call it."""
    emitted = emit_kernel(kernel, target)
    return _object(kernel, emitted, Machine(*machine_options(target)), packed)


def restore(data: bytes, kernel: Kernel, target: Target, signature: Signature) -> Executable:
    """An executable of the object that was packed, with sources; its loops are written again when one is asked."""
    launch: Launch = elsewhere(target)
    fast = None
    if runs_here(target):
        launch, fast = load(pickle.loads(data), target, signature)
    return _whole(kernel, target, lambda: _ir(emit_kernel(kernel, target)), launch, fast, signature)


def adapted(
    kernel: Kernel,
    emitted: Emitted,
    target: Target,
    outside: Mapping[str, int],
    messages: tuple[str, ...],
    limit: int,
    signature: Signature,
) -> Executable:
    """An executable around functions at addresses `outside`, which the emitted code calls by these names.

    `messages` are those of its codes from 1 on, `limit` says up to which sizes it is exact.
    """

    def use(found: Object) -> Executable:
        known = replace(found, messages=messages, imports=found.imports - outside.keys())
        launch, fast = load(known, target, signature, outside)
        exact = SizeCheck(kernel, limit, whole=False)
        return Executable(kernel, target, launch, fast=fast, signature=signature, exact=exact)

    return _object(kernel, emitted, Machine(*machine_options(target)), use, limit, signature)


def _ir(emitted: Emitted) -> engine.Part:
    module = emitted.module
    return engine.Part(module.text(), module.sources, module.externs)


def _whole(
    kernel: Kernel,
    target: Target,
    ir: Callable[[], engine.Part],
    launch: Launch,
    fast: Fast | None,
    signature: Signature | None,
) -> Executable:
    """The executable of a kernel that can be looked at."""

    def text() -> str:
        return ir().text

    def assembly() -> str:
        part = ir()
        return engine.assembly(part.text, Machine(*machine_options(target)), part.sources, part.called)

    sources: dict[str, Callable[[], str]] = {"ll": text, "asm": assembly}
    memory = partial(scratch_memory, kernel, cores=target.cores)
    return Executable(kernel, target, launch, sources=sources, fast=fast, signature=signature, memory=memory)


def _object(
    kernel: Kernel,
    emitted: Emitted,
    machine: Machine,
    use: Callable[[Object], T],
    known: int | None = None,
    signature: Signature | None = None,
) -> T:
    """What `use` makes of the object, compiled or found, with the fast entry if the kernel has one.

    `known`: up to which sizes the kernel is exact, if its loops do not say; `signature`: what the entry takes.
    """
    limit = exact_limit(kernel) if known is None else known
    taken = kernel.params if signature is None else signature
    entry = emit_entry(emitted, kernel, limit, taken) if cpython.layout_is_known() else None
    module = emitted.module
    text = module.text()
    tag = sys.implementation.cache_tag or ""
    sources = module.sources
    _check_externs(module)
    key = (text, *sources, *sorted(module.externs), fingerprint(machine), tag)
    bare = replace(kernel, body=Seq(()))
    names = (
        emitted.symbol,
        entry,
        limit,
        emitted.calls,
        frozenset(module.imports),
        tuple(module.messages),
        order_of(taken),
    )
    make = partial(engine.compile_object, text, machine, sources, module.externs)
    return cached(key, make, lambda code: use(Object(bare, code, *names)))


def _check_externs(module: Module) -> None:
    """TargetError for C functions that nobody has, and for a source that would give the kernel other ones than its own.

    What a source defines is called by the bodies that name it, never by the code around them.
    """
    missing = engine.missing_symbols(module.externs, module.sources) if module.externs else []
    if missing:
        raise TargetError(
            f"no C function {' or '.join(missing)} is loaded; give its LLVM IR as source= of te.decl_tensor_intrin or "
            "by the pragma import_llvm, or load its library first: ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)"
        )
    both = module.externs & module.own
    replaced = sorted(both & engine.defined_by(module.sources)) if both else []
    if replaced:
        taken = f"the LLVM IR that was given as source defines {replaced[0]}, which the kernel calls itself"
        raise TargetError(f"{taken}: name it otherwise")
