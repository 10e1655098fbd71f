"""The llvm backend: kernel to IR text, to an object (kept on disk), to an executable."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tensorlang.errors import TargetError
from tensorlang.ir.stmt import Kernel
from tensorlang.runtime import cpython, openmp, threads
from tensorlang.runtime.arguments import Signature
from tensorlang.runtime.cache import cached
from tensorlang.runtime.executable import Executable, Fast, Launch
from tensorlang.target.detect import machine_options, runs_here
from tensorlang.target.llvm import engine
from tensorlang.target.llvm.entry import emit_entry
from tensorlang.target.llvm.kernel import Emitted, emit_kernel
from tensorlang.target.llvm.launch import CompiledLaunch
from tensorlang.target.llvm.storage.scratch import scratch_memory
from tensorlang.target.spec import Target


@dataclass(frozen=True, slots=True)
class LlvmBackend:
    """Compiles kernels for CPUs. Executables for another CPU show their assembly but cannot be called."""

    kind: str = "llvm"

    def compile(self, kernel: Kernel, target: Target, signature: Signature | None = None) -> Executable:
        """Return an executable; TargetError for what a CPU does not have, such as bound threads."""
        emitted = emit_kernel(kernel, target)
        text = emitted.module.text()
        machine = engine.Machine(*machine_options(target))
        sources: dict[str, Callable[[], str]] = {
            "ll": lambda: text,
            "asm": lambda: engine.assembly(text, machine, emitted.module.sources),
        }
        launch: Launch = _elsewhere(target)
        fast = None
        if runs_here(target):
            launch, fast = _load(kernel, emitted, machine, target)
        memory = partial(scratch_memory, kernel, cores=target.cores)
        return Executable(kernel, target, launch, sources=sources, fast=fast, signature=signature, memory=memory)


BACKEND = LlvmBackend()


def _load(
    kernel: Kernel, emitted: Emitted, machine: engine.Machine, target: Target
) -> tuple[CompiledLaunch, Fast | None]:
    """Compile or find the object, link it, and wrap it: the checked launch, and the fast entry if it has one."""
    entry = emit_entry(emitted, kernel) if cpython.layout_is_known() else None
    text = emitted.module.text()
    tag = sys.implementation.cache_tag or ""
    sources = emitted.module.sources
    missing = engine.missing_symbols(emitted.module.externs, sources) if emitted.module.externs else []
    if missing:
        raise TargetError(
            f"no C function {' or '.join(missing)} is loaded; give its LLVM IR as source= of te.decl_tensor_intrin or "
            "by the pragma import_llvm, or load its library first: ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)"
        )
    key = (text, *sources, engine.fingerprint(machine), tag)
    code = cached(key, lambda: engine.compile_object(text, machine, sources))
    exports = [emitted.symbol] if entry is None else [emitted.symbol, entry]
    library = engine.load(code, exports, _imports(emitted.module.imports, target.cores))
    launch = CompiledLaunch(kernel, library, emitted.symbol, emitted.calls, tuple(emitted.module.messages))
    if entry is None:
        return launch, None
    return launch, lambda checked: cpython.builtin(library.addresses[entry], launch.slow(checked), kernel.name)


def _imports(symbols: set[str], cores: int) -> dict[str, int]:
    """The addresses of the symbols that a module leaves open; OpenMP is opened only when one is its."""
    known = cpython.addresses() | threads.addresses()
    if symbols - set(known):
        known |= openmp.addresses(cores)
    return {symbol: known[symbol] for symbol in symbols}


def _elsewhere(target: Target) -> Launch:
    def launch(arrays: object, sizes: object) -> None:
        raise TargetError(f"this executable was built for {target}, which this machine cannot run; see source('asm')")

    return launch
