"""Writing the files of an exported kernel."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from tensorlang.errors import ArgumentError, TargetError, shown
from tensorlang.export.archive import archive, undefined
from tensorlang.export.cmake import config
from tensorlang.export.header import Described, header
from tensorlang.export.linking import HOW, link, link_wasm, linker
from tensorlang.export.metadata import Variant, metadata
from tensorlang.export.program import Checked, program_of
from tensorlang.export.words import check_name
from tensorlang.ir.expr import Buffer, Var
from tensorlang.runtime.arguments import Signature
from tensorlang.runtime.facts import FactCheck
from tensorlang.target.detect import host_cpu, target_cpu
from tensorlang.target.llvm.library.build import FACES, THREADS, Draft, Wanted, draft
from tensorlang.target.llvm.library.emit import as_json
from tensorlang.target.llvm.library.runner import FUNCTIONS as OPENMP
from tensorlang.target.spec import Target
from tensorlang.te.operation import PlaceholderOp

FORMATS = ("so", "o", "a", "h", "cmake", "c")
_NAMES = {
    **{form: f"{{}}.{form}" for form in ("so", "wasm", "o", "a", "h", "json")},
    "cmake": "{}Config.cmake",
    "c": "{}_test.c",
}
_WITH = {"cmake": ("a", "h"), "c": ("a", "h")}
"""Files that are of no use without others."""
_GOMP, _LIBM = "libgomp.so.1", "libm.so.6"
_FLAGS = {_GOMP: "gomp", _LIBM: "m"}
_FUNCTIONS = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs floor fma fmax fmin
    fmod hypot ldexp lgamma log log10 log1p log2 modf nearbyint pow remainder rint round roundeven sin sincos sinh sqrt
    tan tanh tgamma trunc"""
_MATH = frozenset(f"{name}{end}" for name in _FUNCTIONS.split() for end in ("", "f"))


class NoLinker(UserWarning):
    """A shared library was asked for, and nothing here links one: the object and the archive were written instead."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The files that were written, by format (`json` for the metadata), and what links them where no linker was."""

    name: str
    files: Mapping[str, Path]
    note: str = ""

    def __str__(self) -> str:
        lines = [f"{form:5} {path} ({path.stat().st_size} bytes)" for form, path in self.files.items()]
        return "\n".join([*lines, *([self.note] if self.note else [])])


@dataclass(frozen=True, slots=True)
class Choices:
    """How a kernel is exported, as the caller said it."""

    formats: tuple[str, ...]
    threads: str
    faces: tuple[str, ...]
    linker: str | None

    def __post_init__(self) -> None:
        _check("formats", self.formats, FORMATS)
        _check("threads", (self.threads,), THREADS)
        _check("faces", self.faces, FACES)


def _check(what: str, given: Sequence[str], known: Sequence[str]) -> None:
    for word in given:
        if word not in known:
            raise ArgumentError(f"export: {what} has {shown(word)}; there are {', '.join(known)}")


def write(
    path: str | Path,
    signature: Signature,
    variants: Sequence[Variant],
    facts: Sequence[FactCheck],
    how: Choices,
    left_out: Mapping[str, str],
    answer: Sequence[Any] | None,
) -> Exported:
    """Write the files of a kernel; its variants are for several instruction sets, best first. See `Lowered.export`.

    `left_out` are instruction sets that have none; `answer` holds what a call is given, before it and after it.
    """
    stem = Path(path)
    name = check_name(stem.name)
    arrays = tuple(b for b in signature if isinstance(b, Buffer))
    inputs = {op.name for op in variants[0].schedule.original.ops if isinstance(op, PlaceholderOp)}
    updated = frozenset(variants[0].kernel.outputs) & inputs
    wanted = Wanted(name, arrays, how.threads, how.faces, updated)
    made = draft([(v.kernel, v.target) for v in variants], wanted)
    known = metadata(name, signature, variants, how.threads, made, facts, left_out)
    code = made.compile(as_json(known))
    imports = undefined(code)
    needs = _needs(imports)
    libraries = [_FLAGS[need] for need in needs]
    formats = {*how.formats, *(other for form in how.formats for other in _WITH.get(form, ()))}
    if made.architecture == "wasm32" and "so" in formats:
        formats = (formats - {"so"}) | {"wasm"}
    command = linker(how.linker, _is_native(variants)) if "so" in formats else None
    notes = [f"left out {isa}: {why}" for isa, why in left_out.items()]
    if "so" in formats and command is None:
        notes.append(_by_hand(stem, needs))
        warnings.warn(NoLinker(notes[-1]), stacklevel=4)
        formats = (formats - {"so"}) | {"o", "a", "h"}
    test = _test(name, signature, variants[0], answer, libraries) if "c" in formats else None
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = {form: stem.with_name(_NAMES[form].format(name)) for form in _NAMES if form in {*formats, "json"}}
    texts = {
        "o": code,
        "a": archive(f"{name}.o", code, made.symbols),
        "h": header(_described(name, arrays, variants[0], made, how, facts)).encode(),
        "cmake": config(name, libraries).encode(),
        "c": b"" if test is None else test.text.encode(),
    }
    for form in files.keys() & texts.keys():
        files[form].write_bytes(texts[form])
    for file, data in {} if test is None else test.data.items():
        stem.with_name(f"{name}_data").mkdir(exist_ok=True)
        (stem.with_name(f"{name}_data") / file).write_bytes(data)
    if "wasm" in files and not _link_wasm(code, files["wasm"], made.symbols):
        notes.append(f"no linker for WebAssembly is here (wasm-ld); tensorlang takes {HOW}")
        del files["wasm"]
    if command is not None:
        _link(command, code, files["so"], made, needs)
    digests = {
        form: sha256(files[form].read_bytes()).hexdigest() for form in ("so", "wasm", "o", "a", "h") if form in files
    }
    known |= {"imports": imports, "libraries": libraries, "sha256": digests}
    files["json"].write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return Exported(name, files, "\n".join(notes))


def _test(
    name: str, signature: Signature, first: Variant, answer: Sequence[Any] | None, libraries: Sequence[str]
) -> Checked:
    """The program that tests the kernel on the arrays of a call."""
    if answer is None:
        raise ArgumentError("export: formats has 'c', a test; give the arrays of a call, outputs too: check=[x, y]")
    half = len(signature)
    places = [k for k, p in enumerate(signature) if isinstance(p, Buffer)]
    arrays = [p for p in signature if isinstance(p, Buffer)]
    given = [answer[k] for k in places], [answer[half + k] for k in places]
    sizes = {p.name: answer[k] for k, p in enumerate(signature) if not isinstance(p, Buffer)}
    for buffer, array in zip(arrays, given[0], strict=True):
        bare = zip(buffer.shape, array.shape, strict=True)
        sizes |= {e.name: length for e, length in bare if isinstance(e, Var)}
    kernel = first.kernel
    if missing := [v.name for v in kernel.sizes if v.name not in sizes]:
        raise ArgumentError(f"export: the shapes of check do not tell {', '.join(missing)}; leave 'c' out of formats")
    values = [sizes[v.name] for v in kernel.sizes]
    return program_of(name, arrays, frozenset(kernel.outputs), [*given[0], *given[1]], values, libraries)


def _link_wasm(code: bytes, module: Path, symbols: Sequence[str]) -> bool:
    objects = module.with_suffix(".wasm.o")
    try:
        objects.write_bytes(code)
        return link_wasm(objects, module, symbols)
    finally:
        objects.unlink(missing_ok=True)


def _link(command: Sequence[str], code: bytes, library: Path, made: Draft, needs: Mapping[str, Sequence[str]]) -> None:
    """Link in a file beside, so that a library that is loaded stays whole."""
    objects = library.with_name(f".{library.name}.o")
    fresh = library.with_name(f".{library.name}.new")
    try:
        objects.write_bytes(code)
        link(command, objects, fresh, library.name, made.machine, needs)
        fresh.replace(library)
    finally:
        objects.unlink(missing_ok=True)
        fresh.unlink(missing_ok=True)


def _needs(imports: Sequence[str]) -> dict[str, list[str]]:
    """The libraries that a kernel needs beside libc, by file name, with the functions that it calls of each."""
    found = {_GOMP: [n for n in imports if n in OPENMP], _LIBM: [n for n in imports if n in _MATH]}
    return {name: symbols for name, symbols in found.items() if symbols}


def _by_hand(stem: Path, needs: Mapping[str, Sequence[str]]) -> str:
    """How to link without a linker of ours."""
    flags = "".join(f" -l{name.removeprefix('lib').partition('.')[0]}" for name in needs)
    by_hand = f"cc -shared -o {stem.name}.so {stem.name}.o{flags}"
    return f"nothing here links a shared library; elsewhere: {by_hand} (here tensorlang would take {HOW})"


def _is_native(variants: Sequence[Variant]) -> bool:
    """Whether this machine's own compiler links for the target."""
    target = variants[0].target
    return not target.triple and target_cpu(target).architecture == host_cpu().architecture


def _described(
    name: str, arrays: Sequence[Buffer], first: Variant, made: Draft, how: Choices, facts: Sequence[FactCheck]
) -> Described:
    kernel = first.kernel
    about = f"{name}: a kernel of tensorlang. {'Proven for all sizes.' if kernel.sizes else 'Sizes are fixed.'}"
    return Described(
        name,
        tuple(arrays),
        frozenset(kernel.outputs),
        tuple(v.name for v in kernel.sizes),
        how.threads,
        made.limit,
        made.externs,
        made.messages,
        tuple(map(str, facts)),
        about,
        takes_tensors=f"{name}_dl" in made.symbols,
        faces=how.faces,
    )


def refuse_target(target: Target) -> None:
    """TargetError unless kernels of a target can be exported."""
    if not target.can.native:
        raise TargetError(f"export writes code for CPUs; {target} is none: build for target='llvm'")
