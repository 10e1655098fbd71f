"""The llvm backend. What was compiled before is loaded without the emitter, which is imported when a kernel is."""

from __future__ import annotations

from collections.abc import Callable

from tensorlang.dataclass import dataclass
from tensorlang.ir.stmt import Kernel
from tensorlang.runtime.arguments import Signature
from tensorlang.runtime.executable import Executable
from tensorlang.target.llvm.objects import unpacked
from tensorlang.target.spec import Target


@dataclass(frozen=True, slots=True)
class LlvmBackend:
    """Compiles kernels for CPUs. Executables for another CPU show their assembly but cannot be called."""

    kind: str = "llvm"

    def compile(self, kernel: Kernel, target: Target, signature: Signature | None = None) -> Executable:
        """Return an executable; TargetError for what a CPU does not have, such as bound threads."""
        return self.begin(kernel, target, signature)()

    def begin(self, kernel: Kernel, target: Target, signature: Signature | None = None) -> Callable[[], Executable]:
        """Write a kernel as LLVM IR; what is returned compiles that, in any thread. Raises what `compile` does."""
        from tensorlang.target.llvm.compiling import begin

        return begin(kernel, target, signature)

    def pack(self, kernel: Kernel, target: Target) -> bytes:
        """Compile a kernel, and return all that another process of this machine needs to call it."""
        from tensorlang.target.llvm.compiling import pack

        return pack(kernel, target)

    def unpack(self, packed: bytes, target: Target) -> Executable:
        """An executable without sources."""
        return unpacked(packed, target)

    def restore(self, packed: bytes, kernel: Kernel, target: Target, signature: Signature) -> Executable:
        """An executable of the object that was packed, with sources; its loops are written again when one is asked."""
        from tensorlang.target.llvm.compiling import restore

        return restore(packed, kernel, target, signature)


BACKEND = LlvmBackend()
