"""A kernel to LLVM IR: one function `NAME.kernel(buffers..., sizes..., context)`.

The context is an array of 64-bit words: the status (0, a Fail's number, or NO_MEMORY), then one function
pointer per call to Python.
"""

from __future__ import annotations

from tensorlang.dataclass import dataclass
from tensorlang.ir.empty_rounds import skipping_empty_rounds
from tensorlang.ir.expr import Load, walk
from tensorlang.ir.idle_rounds import without_idle_rounds
from tensorlang.ir.stmt import AtomicUpdate, CallMachine, CallPython, Kernel, stmt_exprs
from tensorlang.ir.stmt import walk as statements
from tensorlang.target.llvm.scope import Scope, Storage
from tensorlang.target.llvm.statements import Emitter
from tensorlang.target.llvm.storage.frame import close_frame, open_frame, parameter, storage
from tensorlang.target.llvm.text import INDEX, Function, Module, Value, identifier
from tensorlang.target.llvm.threads.balance import with_shares
from tensorlang.target.spec import Target


@dataclass(frozen=True, slots=True)
class Emitted:
    """A kernel's module, the symbol of its function, and its calls to Python in the order of their slots."""

    module: Module
    symbol: str
    calls: tuple[CallPython, ...]


def emit_kernel(kernel: Kernel, target: Target, module: Module | None = None) -> Emitted:
    """Write a kernel as LLVM IR, maybe to the module of a library; TargetError when the target cannot run it."""
    kernel = with_shares(kernel)
    module = module or Module(target)
    symbol = module.unique(f"{identifier(kernel.name)}.kernel")
    pointers = {p.name: f"%p{n}.{identifier(p.name)}" for n, p in enumerate(kernel.params)}
    sizes = {v.name: Value(f"%n{n}.{identifier(v.name)}", INDEX) for n, v in enumerate(kernel.sizes)}
    declared = [parameter(Storage(p, "", (), aligned=False), pointers[p.name]) for p in kernel.params]
    declared += [v.typed for v in sizes.values()]
    fn = Function(module, symbol, [*declared, "ptr %context"], internal=module.library)
    scope = Scope(sizes, {})
    buffers = {p.name: storage(fn, scope, p, pointers[p.name], aligned=False) for p in kernel.params}
    scope, piece = open_frame(fn, Scope(sizes, buffers), kernel.body)
    for text in kernel.imports:
        module.add_source(text)
    streamed = frozenset(kernel.streamed)
    emitter = Emitter(kernel.sizes, streamed - _read(kernel) if streamed else streamed)
    body = skipping_empty_rounds(kernel.body, frozenset(v.name for v in kernel.sizes))
    emitter.emit(fn, scope, without_idle_rounds(body))
    close_frame(fn, piece)
    fn.finish()
    return Emitted(module, symbol, tuple(emitter.calls))


def _read(kernel: Kernel) -> set[str]:
    """The buffers that a kernel reads: to write those past the caches would be a loss."""
    reads = {n.buffer.name for e in stmt_exprs(kernel.body) for n in walk(e) if isinstance(n, Load)}
    machine = {v.buffer.name for s in statements(kernel.body) if isinstance(s, CallMachine) for v in s.views}
    return reads | machine | {s.buffer.name for s in statements(kernel.body) if isinstance(s, AtomicUpdate)}
