"""The object file of a library, from kernels for several instruction sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import TargetError
from tensorlang.ir.expr import Buffer
from tensorlang.ir.overflow import exact_limit
from tensorlang.ir.stmt import CallMachine, Kernel, walk
from tensorlang.target.detect import BASE, host_cpu, machine_options, target_cpu
from tensorlang.target.llvm import engine
from tensorlang.target.llvm.host import Machine
from tensorlang.target.llvm.library import chain as chains
from tensorlang.target.llvm.library.chain import Chain, emit_chain, weights_text
from tensorlang.target.llvm.library.dl import emit_dl, has_dl, messages
from tensorlang.target.llvm.library.front import CODES, Face, emit_front
from tensorlang.target.llvm.library.onnxruntime import REGISTER, emit_onnxruntime, tells_shapes
from tensorlang.target.llvm.library.pick import TILES, told
from tensorlang.target.llvm.library.tvm_ffi import PREFIX, emit_tvm_ffi
from tensorlang.target.llvm.library.variant import emit_variant
from tensorlang.target.llvm.library.xla import emit_xla
from tensorlang.target.llvm.text import Module
from tensorlang.target.spec import Target

THREADS = ("host", "openmp", "serial")
FACES = ("c", "tvm_ffi", "xla", "onnxruntime")
_OF_SHAPES = ("tvm_ffi", "xla", "onnxruntime")
"""Faces that read sizes from shapes."""
_OF_RESULTS = {"xla": "XLA's", "onnxruntime": "ONNX Runtime's"}
"""Faces that make results themselves, and whose they are."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a library is to be: its name, the arguments in the caller's order, its threads, and its faces.

    `updated` are arguments that are read and written.
    """

    name: str
    arrays: tuple[Buffer, ...]
    threads: str = "host"
    faces: tuple[str, ...] = ("c",)
    updated: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Draft:
    """A library whose kernels are written, best instruction set first, but not compiled.

    `externs` are C functions that it calls by name; `messages` the text of each code that a call returns; `symbols`
    what others may use; `limit` up to which sizes its index arithmetic is exact. `inner` are the prefixes of kernels
    that others of it call, `chain` those calls.
    """

    face: Face
    target: Target
    modules: tuple[Module, ...]
    messages: dict[int, str]
    faces: tuple[str, ...]
    inner: tuple[str, ...] = ()
    chain: Chain | None = None

    @property
    def limit(self) -> int:
        """The largest size that a call takes."""
        return self.face.limit

    @property
    def symbols(self) -> tuple[str, ...]:
        """The functions that others may call."""
        name = self.face.name
        more = ["dl"] * has_dl(self.face) + ["xla"] * ("xla" in self.faces)
        parts = [f"{name}_{part}" for part in ("run", "workspace_bytes", "message", "metadata", *more)]
        others = {"tvm_ffi": f"{PREFIX}{name}", "onnxruntime": REGISTER}
        return (name, *parts, *(symbol for one, symbol in others.items() if one in self.faces))

    @property
    def machine(self) -> Machine:
        """The least that a CPU has, for what is the same in all; other architectures have one kernel, for one CPU."""
        if self.architecture == "x86_64":
            return Machine(self.target.triple, BASE["x86_64"], "")
        return Machine(*machine_options(self.target))

    @property
    def architecture(self) -> str:
        """The architecture of its code."""
        return target_cpu(self.target).architecture

    @property
    def externs(self) -> tuple[str, ...]:
        """The C functions that it calls by name, and that whoever links it has to have."""
        own = (m.externs - engine.defined_by(m.sources) if m.externs else () for m in self.modules)
        return tuple(sorted({name for names in own for name in names}))

    def compile(self, metadata: str) -> bytes:
        """The object file; `metadata` is what `NAME_metadata` returns."""
        front = Module(replace(self.target, vector_bytes=16), library=True)
        emit_front(front, self.face, metadata, self.messages)
        if has_dl(self.face):
            emit_dl(front, self.face)
        if "tvm_ffi" in self.faces:
            emit_tvm_ffi(front, self.face)
        if "xla" in self.faces:
            emit_xla(front, self.face)
        if "onnxruntime" in self.faces:
            emit_onnxruntime(front, self.face)
        parts = [engine.Part(front.text()), *(engine.Part(m.text(), m.sources, m.externs) for m in self.modules)]
        prefixes = (*self.inner, *(prefix for prefix, _ in self.face.variants))
        hidden = {f"{prefix}.{part}" for prefix in prefixes for part in ("run", "bytes")}
        if self.chain is not None and self.chain.embedded:
            parts.append(engine.Part(weights_text(self.chain)))
            hidden.add(self.chain.symbol)
        return engine.compile_library(parts, self.machine, hidden, pic=self.architecture != "wasm32")


def draft(variants: Sequence[tuple[Kernel, Target]], wanted: Wanted) -> Draft:
    """Write kernels of one program, the best first. TargetError for what cannot leave this process."""
    texts: list[str] = []
    named = [(f"{wanted.name}.v{k}", kernel, target) for k, (kernel, target) in enumerate(variants)]
    modules = tuple(emit_variant(kernel, target, prefix, texts) for prefix, kernel, target in named)
    face = _face(variants[0][0], [(target, [kernel]) for kernel, target in variants], wanted)
    limit = min(exact_limit(kernel) for kernel, _ in variants)
    said = {**CODES, **dict(enumerate(texts, 1))}
    return _drafted(Draft(replace(face, limit=limit), variants[0][1], modules, said, wanted.faces))


def draft_chain(chain: Chain, variants: Sequence[tuple[Sequence[Kernel], Target]], wanted: Wanted) -> Draft:
    """Write the kernels of a chain for some targets, the best first. TargetError for what cannot leave this process."""
    texts: list[str] = []
    modules, inner = list[Module](), list[str]()
    for k, (kernels, target) in enumerate(variants):
        made, own = emit_chain(chain, kernels, target, f"{wanted.name}.v{k}", texts)
        modules += made
        inner += own
    said = {**CODES, **(chains.CODES if chain.seal else {}), **dict(enumerate(texts, 1))}
    face = _face(chain.kernel, [(target, kernels) for kernels, target in variants], wanted)
    return _drafted(Draft(face, variants[0][1], tuple(modules), said, wanted.faces, tuple(inner), chain))


def _face(kernel: Kernel, variants: Sequence[tuple[Target, Sequence[Kernel]]], wanted: Wanted) -> Face:
    """What the functions around kernels for some targets share."""
    several, targets = len(variants) > 1, [target for target, _ in variants]
    pairs = tuple((f"{wanted.name}.v{k}", _asked(*variant, several)) for k, variant in enumerate(variants))
    for name, whose in _OF_RESULTS.items():
        if wanted.updated and name in wanted.faces:
            names = ", ".join(sorted(wanted.updated))
            raise TargetError(f"{whose} arrays are read or written, and {names} is both; leave {name} out of faces")
    alone = target_cpu(targets[0]).architecture == "wasm32"  # no libc, no threads, addresses of 32 bits
    if alone and (wanted.threads == "openmp" or _OF_RESULTS.keys() & set(wanted.faces)):
        raise TargetError(f"{targets[0]} has neither OpenMP, XLA nor ONNX Runtime; take threads='host' and faces of C")
    face = Face(wanted.name, kernel, wanted.arrays, pairs, wanted.threads, 0, 4 if alone else 8, allocates=not alone)
    for name in _OF_SHAPES:
        if name in wanted.faces and not has_dl(face):
            raise TargetError(f"the face {name} reads sizes from shapes, and these tell not all; leave it out of faces")
    if "onnxruntime" in wanted.faces and not tells_shapes(face):
        raise TargetError("ONNX Runtime makes results by the shapes of inputs, which do not tell theirs; leave it out")
    return face


def _drafted(made: Draft) -> Draft:
    """The draft with the codes of calls with tensors, where there are any."""
    return replace(made, messages=made.messages | (messages(made.face) if has_dl(made.face) else {}))


def _asked(target: Target, kernels: Sequence[Kernel], several: bool) -> frozenset[str] | None:
    """The features that the CPU is asked for before kernels of this target run; None where it is not asked.

    Tiles, which the system has to allow, are asked for where machine code uses them.
    """
    cpu = target_cpu(target)
    if (cpu.architecture, host_cpu().architecture) == ("x86_64", "x86_64"):
        calls = (s for kernel in kernels for s in walk(kernel.body) if isinstance(s, CallMachine))
        used = {name for call in calls for name in call.code.features}
        features = told(frozenset(f for f in cpu.features if f in used or not f.startswith(TILES)))
        return features if features or several else None
    if several:
        raise TargetError(
            f"several instruction sets in one file are for x86-64, written on x86-64; {target} on a machine of "
            f"{host_cpu().architecture} gets a file of its own: export each alone, and load the one that fits"
        )
    return None
