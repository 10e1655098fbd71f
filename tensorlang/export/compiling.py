"""The code of an exported kernel, and all that is known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.errors import TargetError
from tensorlang.export.archive import undefined
from tensorlang.export.header import Described
from tensorlang.export.metadata import Variant, metadata
from tensorlang.ir.expr import Buffer
from tensorlang.ir.stmt import Kernel
from tensorlang.runtime.arguments import Signature
from tensorlang.runtime.facts import FactCheck
from tensorlang.target.llvm.library.build import Draft, Wanted, draft
from tensorlang.target.llvm.library.emit import as_json
from tensorlang.target.llvm.library.runner import FUNCTIONS as OPENMP
from tensorlang.target.spec import Target

_GOMP, _LIBM = "libgomp.so.1", "libm.so.6"
_FLAGS = {_GOMP: "gomp", _LIBM: "m"}
_FUNCTIONS = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs floor fma fmax fmin
    fmod hypot ldexp lgamma log log10 log1p log2 modf nearbyint pow remainder rint round roundeven sin sincos sinh sqrt
    tan tanh tgamma trunc"""
_MATH = frozenset(f"{name}{end}" for name in _FUNCTIONS.split() for end in ("", "f"))


@dataclass(frozen=True, slots=True)
class Call:
    """How a library is called: its name, what the caller passes in order, and the kernel that tells outputs and sizes.

    `beside`: the file's ending of arguments that have a file of their own beside the library.
    """

    name: str
    signature: Signature
    kernel: Kernel
    beside: Mapping[str, str] = field(default_factory=dict)

    @property
    def arrays(self) -> tuple[Buffer, ...]:
        """The arrays of a call, in the caller's order."""
        return tuple(b for b in self.signature if isinstance(b, Buffer))


@dataclass(frozen=True, slots=True)
class Request:
    """What is exported: arguments, kernels for several instruction sets (best first), and what they assume.

    `left_out` are instruction sets that have no kernel, with the reason.
    """

    name: str
    signature: Signature
    variants: Sequence[Variant]
    facts: Sequence[FactCheck]
    left_out: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Compiled:
    """The object of a library, its metadata, and what it needs beside libc: libraries, with what it calls of each.

    `about` is what its header begins with, `facts` what it assumes of arguments, `files` what is written beside it, by
    ending.
    """

    call: Call
    draft: Draft
    code: bytes
    metadata: dict[str, Any]
    needs: Mapping[str, Sequence[str]]
    about: str
    facts: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def libraries(self) -> list[str]:
        """The libraries as linkers name them."""
        return [_FLAGS[need] for need in self.needs]

    @property
    def left_out(self) -> Mapping[str, str]:
        """Instruction sets that it has no kernel for, with the reason."""
        found: Mapping[str, str] = self.metadata["left_out"]
        return found

    @property
    def described(self) -> Described:
        """What its header says."""
        call = self.call
        return Described(
            call.name,
            call.arrays,
            frozenset(call.kernel.outputs),
            tuple(v.name for v in call.kernel.sizes),
            self.draft.face.threads,
            self.draft.limit,
            self.draft.externs,
            self.draft.messages,
            self.facts,
            self.about,
            takes_tensors=f"{call.name}_dl" in self.draft.symbols,
            faces=self.draft.faces,
            beside=call.beside,
        )


def compiled(asked: Request, threads: str, faces: tuple[str, ...]) -> Compiled:
    """Compile a kernel that is exported. TargetError for what cannot leave this process."""
    first = asked.variants[0]
    call = Call(asked.name, asked.signature, first.kernel)
    wanted = Wanted(asked.name, call.arrays, threads, faces, first.schedule.original.inputs & {*first.kernel.outputs})
    made = draft([(v.kernel, v.target) for v in asked.variants], wanted)
    known = metadata(asked.name, asked.signature, asked.variants, threads, made, asked.facts, asked.left_out)
    about = (
        f"{asked.name}: a kernel of tensorlang. {'Proven for all sizes.' if call.kernel.sizes else 'Sizes are fixed.'}"
    )
    return finished(call, made, known, about, tuple(map(str, asked.facts)))


def finished(
    call: Call,
    made: Draft,
    known: dict[str, Any],
    about: str,
    facts: tuple[str, ...] = (),
    files: Mapping[str, bytes] | None = None,
) -> Compiled:
    """A draft compiled, with all that is known of it."""
    code = made.compile(as_json(known))
    imports = undefined(code)
    needs = _needs(imports)
    known = known | {"imports": imports, "libraries": [_FLAGS[need] for need in needs]}
    return Compiled(call, made, code, known, needs, about, facts, files or {})


def _needs(imports: Sequence[str]) -> dict[str, list[str]]:
    """The libraries that a kernel needs beside libc, by file name, with the functions that it calls of each."""
    found = {_GOMP: [n for n in imports if n in OPENMP], _LIBM: [n for n in imports if n in _MATH]}
    return {name: symbols for name, symbols in found.items() if symbols}


def refuse_target(target: Target) -> None:
    """TargetError unless kernels of a target can be exported."""
    if not target.can.native:
        raise TargetError(f"export writes code for CPUs; {target} is none: build for target='llvm'")
