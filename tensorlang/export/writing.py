"""Writing the files of an exported kernel."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tensorlang.errors import ArgumentError, TargetError, shown
from tensorlang.export.archive import archive, undefined
from tensorlang.export.header import Described, header
from tensorlang.export.linking import HOW, link, linker
from tensorlang.export.metadata import Variant, metadata
from tensorlang.export.words import check_name
from tensorlang.ir.expr import Buffer
from tensorlang.runtime.arguments import Signature
from tensorlang.runtime.facts import FactCheck
from tensorlang.target.detect import host_cpu, target_cpu
from tensorlang.target.llvm.library.build import THREADS, Draft, Wanted, draft
from tensorlang.target.llvm.library.emit import as_json
from tensorlang.target.llvm.library.runner import FUNCTIONS as OPENMP
from tensorlang.target.spec import Target

FORMATS = ("so", "o", "a", "h")
_GOMP, _LIBM = "libgomp.so.1", "libm.so.6"
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

    formats: tuple[str, ...] = FORMATS
    threads: str = "host"
    faces: tuple[str, ...] = ("c",)
    linker: str | None = None

    def __post_init__(self) -> None:
        _check("formats", self.formats, FORMATS)
        _check("threads", (self.threads,), THREADS)
        _check("faces", self.faces, FACES)


FACES = ("c",)


def _check(what: str, given: Sequence[str], known: Sequence[str]) -> None:
    for word in given:
        if word not in known:
            raise ArgumentError(f"export: {what} has {shown(word)}; there are {', '.join(known)}")


def write(
    path: str | Path, signature: Signature, variants: Sequence[Variant], facts: Sequence[FactCheck], how: Choices
) -> Exported:
    """Write the files of a kernel; its variants are for several instruction sets, best first. See `Lowered.export`."""
    stem = Path(path)
    name = check_name(stem.name)
    arrays = tuple(b for b in signature if isinstance(b, Buffer))
    made = draft([(v.kernel, v.target) for v in variants], Wanted(name, arrays, how.threads, how.faces))
    known = metadata(name, signature, variants, how.threads, made, facts)
    code = made.compile(as_json(known))
    imports = undefined(code)
    needs = _needs(imports)
    command = linker(how.linker, _is_native(variants)) if "so" in how.formats else None
    note, formats = "", set(how.formats)
    if "so" in formats and command is None:
        note = _by_hand(stem, needs)
        warnings.warn(NoLinker(note), stacklevel=4)
        formats = (formats - {"so"}) | {"o", "a", "h"}
    libraries = {_GOMP: "gomp", _LIBM: "m"}
    known |= {"imports": imports, "libraries": [libraries[need] for need in needs]}
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = {form: stem.with_name(f"{name}.{form}") for form in (*FORMATS, "json") if form in {*formats, "json"}}
    texts = {
        "o": code,
        "a": archive(f"{name}.o", code, made.symbols),
        "h": header(_described(name, arrays, variants[0], made, how, facts)).encode(),
    }
    for form in files.keys() & texts.keys():
        files[form].write_bytes(texts[form])
    if command is not None:
        _link(command, code, files["so"], made, needs)
    digests = {form: sha256(file.read_bytes()).hexdigest() for form, file in files.items() if form != "json"}
    files["json"].write_text(json.dumps({**known, "sha256": digests}, indent=1) + "\n", encoding="utf-8")
    return Exported(name, files, note)


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
    )


def refuse_target(target: Target) -> None:
    """TargetError unless kernels of a target can be exported."""
    if not target.can.native:
        raise TargetError(f"export writes code for CPUs; {target} is none: build for target='llvm'")
