"""Writing the files of an exported kernel."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError, shown
from tensorlang.export.archive import archive
from tensorlang.export.cmake import config
from tensorlang.export.compiling import Compiled
from tensorlang.export.header import header
from tensorlang.export.linking import HOW, link, link_wasm, linker
from tensorlang.export.program import check_program
from tensorlang.export.words import check_name
from tensorlang.files import writing
from tensorlang.target.detect import host_cpu, target_cpu
from tensorlang.target.llvm.library.build import FACES, THREADS
from tensorlang.target.spec import Target

FORMATS = ("so", "o", "a", "h", "cmake", "c")
_NAMES = {
    **{form: f"{{}}.{form}" for form in ("so", "wasm", "o", "a", "h", "weights", "json")},
    "cmake": "{}Config.cmake",
    "c": "{}_test.c",
}
_WITH = {"cmake": ("a", "h"), "c": ("a", "h")}
"""Files that are of no use without others."""
_HASHED = ("so", "wasm", "o", "a", "h", "weights")


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


def name_of(path: str | Path) -> str:
    """The name of the C function of files at a path; ArgumentError where C cannot have it."""
    return check_name(Path(path).name)


def write(path: str | Path, made: Compiled, how: Choices, answer: Sequence[Any] | None) -> Exported:
    """Write the files of a kernel or of a network. See `Lowered.export`.

    `answer` holds what a call is given, before it and after it.
    """
    stem = Path(path)
    formats, command = _formats(how, made)
    notes = [f"left out {isa}: {why}" for isa, why in made.left_out.items()]
    if "so" in formats and command is None:
        notes.append(_by_hand(stem, made.needs))
        warnings.warn(NoLinker(notes[-1]), stacklevel=4)
        formats = (formats - {"so"}) | {"o", "a", "h"}
    contents = _contents(made, formats, answer)
    formats |= {"json", *made.files}
    with writing(stem):
        stem.parent.mkdir(parents=True, exist_ok=True)
    files = {form: stem.with_name(_NAMES[form].format(stem.name)) for form in _NAMES if form in formats}
    for file, content in contents.items():
        _put(stem.parent / file, content)
    if "wasm" in files and not _link_wasm(made, files["wasm"]):
        notes.append(f"no linker for WebAssembly is here (wasm-ld); tensorlang takes {HOW}")
        del files["wasm"]
    if "so" in files and command is not None:
        _link(command, made, files["so"])
    digests = {form: sha256(files[form].read_bytes()).hexdigest() for form in _HASHED if form in files}
    text = json.dumps({**made.metadata, "sha256": digests}, indent=1)
    files["json"].write_text(f"{text}\n", encoding="utf-8")
    return Exported(stem.name, files, "\n".join(notes))


def _formats(how: Choices, made: Compiled) -> tuple[set[str], list[str] | None]:
    """The files that are wanted, with those that they need, and what begins the command that links a shared library."""
    formats = {*how.formats, *(other for form in how.formats for other in _WITH.get(form, ()))}
    if made.draft.architecture == "wasm32" and "so" in formats:
        return (formats - {"so"}) | {"wasm"}, None
    return formats, linker(how.linker, _is_native(made.draft.target)) if "so" in formats else None


def _contents(made: Compiled, formats: set[str], answer: Sequence[Any] | None) -> dict[str, bytes]:
    """What is written without a linker, by file name."""
    name = made.call.name
    found: dict[str, tuple[str, Callable[[], bytes]]] = {
        f"{name}.o": ("o", lambda: made.code),
        f"{name}.a": ("a", lambda: archive(f"{name}.o", made.code, made.draft.symbols)),
        f"{name}.h": ("h", lambda: header(made.described).encode()),
        f"{name}Config.cmake": ("cmake", lambda: config(name, made.libraries).encode()),
    }
    texts = {file: content() for file, (form, content) in found.items() if form in formats}
    texts |= {f"{name}.{form}": content for form, content in made.files.items()}
    if "c" not in formats:
        return texts
    test = check_program(made.call, answer, made.libraries)
    return {**texts, f"{name}_test.c": test.text.encode(), **test.data}


def _put(file: Path, content: bytes) -> None:
    """Write a file beside and put it in place, so that one that somebody has mapped stays whole."""
    file.parent.mkdir(exist_ok=True)
    fresh = file.with_name(f".{file.name}.new")
    try:
        with writing(file):
            fresh.write_bytes(content)
            fresh.replace(file)
    finally:
        _remove(fresh)


def _link_wasm(made: Compiled, module: Path) -> bool:
    objects = module.with_suffix(".wasm.o")
    try:
        with writing(module):
            objects.write_bytes(made.code)
        return link_wasm(objects, module, made.draft.symbols)
    finally:
        _remove(objects)


def _link(command: Sequence[str], made: Compiled, library: Path) -> None:
    """Link in a file beside, so that a library that is loaded stays whole."""
    objects = library.with_name(f".{library.name}.o")
    fresh = library.with_name(f".{library.name}.new")
    try:
        with writing(library):
            objects.write_bytes(made.code)
        link(command, objects, fresh, library.name, made.draft.machine, made.needs)
        fresh.replace(library)
    finally:
        _remove(objects, fresh)


def _remove(*files: Path) -> None:
    """Remove files that may not have been made."""
    for file in files:
        with contextlib.suppress(OSError):
            file.unlink()


def _by_hand(stem: Path, needs: Mapping[str, Sequence[str]]) -> str:
    """How to link without a linker of ours."""
    flags = "".join(f" -l{name.removeprefix('lib').partition('.')[0]}" for name in needs)
    by_hand = f"cc -shared -o {stem.name}.so {stem.name}.o{flags}"
    return f"nothing here links a shared library; elsewhere: {by_hand} (here tensorlang would take {HOW})"


def _is_native(target: Target) -> bool:
    """Whether this machine's own compiler links for the target."""
    return not target.triple and target_cpu(target).architecture == host_cpu().architecture
