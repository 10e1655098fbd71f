"""The interpreter as a target: slow, checked at every access, and the meaning that other targets must match."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

from tensorlang.dataclass import dataclass
from tensorlang.ir import threads
from tensorlang.ir.interpret import Interpreted, translate
from tensorlang.ir.stmt import Kernel, Launch, walk
from tensorlang.runtime.arguments import Signature
from tensorlang.runtime.arrays import Array
from tensorlang.runtime.executable import Executable
from tensorlang.target.spec import Target


@dataclass(frozen=True, slots=True)
class _Launch:
    """Runs a translated kernel on checked arrays and sizes."""

    interpreted: Interpreted | threads.Threaded

    def __call__(self, arrays: Sequence[Array], sizes: Sequence[int]) -> None:
        kernel = self.interpreted.kernel
        names = [p.name for p in kernel.params]
        self.interpreted(dict(zip(names, arrays, strict=True)), _by_name(kernel, sizes))


def _by_name(kernel: Kernel, sizes: Sequence[int]) -> dict[str, int]:
    return {v.name: value for v, value in zip(kernel.sizes, sizes, strict=True)}


@dataclass(frozen=True, slots=True)
class InterpreterBackend:
    """Runs loop IR as Python on NumPy arrays; every kind of loop runs here, bound ones included.

    The launches of a kernel run thread by thread in lockstep, with a check for races (`ir.threads`).
    """

    kind: str = "interpreter"

    def compile(self, kernel: Kernel, target: Target, signature: Signature | None = None) -> Executable:
        """Return a callable for `kernel`; its source "python" is what runs if it holds no launch."""
        if any(isinstance(stmt, Launch) for stmt in walk(kernel.body)):
            return Executable(kernel, target, _Launch(threads.translate(kernel)), signature=signature)
        interpreted = translate(kernel)
        sources = {"python": lambda: interpreted.source}
        return Executable(kernel, target, _Launch(interpreted), sources=sources, signature=signature)

    def pack(self, kernel: Kernel, target: Target) -> bytes:
        """The kernel itself: it is translated where it runs."""
        return pickle.dumps(kernel)

    def unpack(self, packed: bytes, target: Target) -> Executable:
        """Return a callable for a packed kernel."""
        return self.compile(pickle.loads(packed), target)


BACKEND = InterpreterBackend()
