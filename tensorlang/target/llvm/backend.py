"""The llvm backend: kernel to IR text, to an object (kept on disk), to an executable."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from tensorlang.errors import TargetError
from tensorlang.ir.overflow import SizeCheck, exact_limit
from tensorlang.ir.stmt import CallPython, Kernel, Seq
from tensorlang.runtime import cpython, exchange, openmp, threads
from tensorlang.runtime.arguments import Signature
from tensorlang.runtime.cache import cached
from tensorlang.runtime.executable import Executable, Fast, Launch
from tensorlang.runtime.opaque import opaque
from tensorlang.target.detect import machine_options, runs_here
from tensorlang.target.llvm import engine
from tensorlang.target.llvm.entry import emit_entry
from tensorlang.target.llvm.kernel import Emitted, emit_kernel
from tensorlang.target.llvm.launch import CompiledLaunch
from tensorlang.target.llvm.reader import learning
from tensorlang.target.llvm.storage.scratch import scratch_memory
from tensorlang.target.llvm.text import Module
from tensorlang.target.spec import Target

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LlvmBackend:
    """Compiles kernels for CPUs. Executables for another CPU show their assembly but cannot be called."""

    kind: str = "llvm"

    def compile(self, kernel: Kernel, target: Target, signature: Signature | None = None) -> Executable:
        """Return an executable; TargetError for what a CPU does not have, such as bound threads."""
        return self.begin(kernel, target, signature)()

    def begin(self, kernel: Kernel, target: Target, signature: Signature | None = None) -> Callable[[], Executable]:
        """Write a kernel as LLVM IR; what is returned compiles that, in any thread. Raises what `compile` does."""
        emitted = emit_kernel(kernel, target)
        ir = _ir(emitted)  # the kernel's alone: an entry is added when it is compiled

        def finish() -> Executable:
            if not runs_here(target):
                return _whole(kernel, target, lambda: ir, _elsewhere(target), None, signature)
            machine = engine.Machine(*machine_options(target))
            found, (launch, fast) = _object(kernel, emitted, machine, lambda found: (found, _load(found, target)))
            made = _whole(kernel, target, lambda: ir, launch, fast, signature)
            made.packed = partial(pickle.dumps, found)
            return made

        return finish

    def pack(self, kernel: Kernel, target: Target) -> bytes:
        """Compile a kernel, and return all that another process of this machine needs to call it."""
        emitted = emit_kernel(kernel, target)
        return _object(kernel, emitted, engine.Machine(*machine_options(target)), pickle.dumps)

    def unpack(self, packed: bytes, target: Target) -> Executable:
        """An executable without sources."""
        found: _Object = pickle.loads(packed)
        launch, fast = _load(found, target)
        exact = SizeCheck(found.kernel, found.limit, whole=False)
        return Executable(found.kernel, target, launch, fast=fast, exact=exact)

    def restore(self, packed: bytes, kernel: Kernel, target: Target, signature: Signature) -> Executable:
        """An executable of the object that was packed, with sources; its loops are written again when one is asked."""
        launch: Launch = _elsewhere(target)
        fast = None
        if runs_here(target):
            launch, fast = _load(pickle.loads(packed), target)
        return _whole(kernel, target, lambda: _ir(emit_kernel(kernel, target)), launch, fast, signature)


BACKEND = LlvmBackend()


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

    def use(found: _Object) -> Executable:
        known = replace(found, messages=messages, imports=found.imports - outside.keys())
        launch, fast = _load(known, target, outside)
        exact = SizeCheck(kernel, limit, whole=False)
        return Executable(kernel, target, launch, fast=fast, signature=signature, exact=exact)

    return _object(kernel, emitted, engine.Machine(*machine_options(target)), use, limit)


@dataclass(frozen=True, slots=True)
class _Object:
    """A compiled kernel, as data: the kernel without its body, the object, and what its symbols are.

    `limit`: up to which sizes its index arithmetic is exact.
    """

    kernel: Kernel
    code: bytes
    symbol: str
    entry: str | None
    limit: int
    calls: tuple[CallPython, ...]
    imports: frozenset[str]
    messages: tuple[str, ...]


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
        return engine.assembly(part.text, engine.Machine(*machine_options(target)), part.sources, part.called)

    sources: dict[str, Callable[[], str]] = {"ll": text, "asm": assembly}
    memory = partial(scratch_memory, kernel, cores=target.cores)
    return Executable(kernel, target, launch, sources=sources, fast=fast, signature=signature, memory=memory)


def _object(
    kernel: Kernel, emitted: Emitted, machine: engine.Machine, use: Callable[[_Object], T], known: int | None = None
) -> T:
    """What `use` makes of the object, compiled or found, with the fast entry if the kernel has one.

    `known`: up to which sizes the kernel is exact, if its loops do not say.
    """
    limit = exact_limit(kernel) if known is None else known
    entry = emit_entry(emitted, kernel, limit) if cpython.layout_is_known() else None
    module = emitted.module
    text = module.text()
    tag = sys.implementation.cache_tag or ""
    sources = module.sources
    _check_externs(module)
    key = (text, *sources, *sorted(module.externs), engine.fingerprint(machine), tag)
    bare = replace(kernel, body=Seq(()))
    names = emitted.symbol, entry, limit, emitted.calls, frozenset(module.imports), tuple(module.messages)
    make = partial(engine.compile_object, text, machine, sources, module.externs)
    return cached(key, make, lambda code: use(_Object(bare, code, *names)))


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


def _load(
    found: _Object, target: Target, outside: Mapping[str, int] | None = None
) -> tuple[CompiledLaunch, Fast | None]:
    """Link an object, and wrap it: the checked launch, and the fast entry if it has one.

    `outside`: the addresses of functions that it calls, and that are not of this process.
    """
    entry = found.entry
    exports = [found.symbol] if entry is None else [found.symbol, entry]
    library = engine.load(found.code, exports, _imports(found.imports, target.cores) | dict(outside or {}))
    launch = CompiledLaunch(found.kernel, library, found.symbol, found.calls, found.messages)
    if entry is None:
        return launch, None
    address, name = library.addresses[entry], found.kernel.name
    return launch, lambda checked: cpython.builtin(address, opaque(learning(checked)), launch.fail, name)


def _imports(symbols: frozenset[str], cores: int) -> dict[str, int]:
    """The addresses of the symbols that a module leaves open; OpenMP is opened only when one is its."""
    known = cpython.addresses() | exchange.addresses() | threads.addresses()
    if symbols - set(known):
        known |= openmp.addresses(cores)
    return {symbol: known[symbol] for symbol in symbols}


def _elsewhere(target: Target) -> Launch:
    def launch(arrays: object, sizes: object) -> None:
        raise TargetError(f"this executable was built for {target}, which this machine cannot run; see source('asm')")

    return launch
