"""From an object to a shared library: with a C compiler, LLVM's linker, or the one of the ziglang wheel."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tensorlang.errors import TargetError
from tensorlang.target.llvm import engine
from tensorlang.target.llvm.host import Machine

HOW = "a C compiler (cc), LLVM's ld.lld, or pip install 'tensorlang[export]', which brings one"


_MAC = sys.platform == "darwin"


def _cc() -> list[str] | None:
    found = shutil.which("cc")
    return None if found is None else [found, "-shared", *([] if _MAC else ["-Wl,--no-as-needed"])]


def _lld() -> list[str] | None:
    found = shutil.which("ld.lld")
    return None if found is None else [found, "-shared", "--no-as-needed"]


def _zig() -> list[str] | None:
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        return None
    return [str(Path(spec.origin).with_name("zig")), "ld.lld", "-shared", "--no-as-needed"]


def _wasm() -> list[str] | None:
    found, zig = shutil.which("wasm-ld"), _zig()
    return [found] if found else [zig[0], "wasm-ld"] if zig else None


LINKERS: Mapping[str, Callable[[], list[str] | None]] = {"cc": _cc, "ld.lld": _lld, "ziglang": _zig}
"""In the order in which they are tried: the command that each begins with, None where it is missing."""
_NATIVE = ("cc",)


def linker(name: str | None, native: bool) -> list[str] | None:
    """The command of a linker, or of the first that is there; `native`: for this machine's own architecture.

    TargetError for a name that is none, or whose linker is missing.
    """
    if name is not None and name not in LINKERS:
        raise TargetError(f"unknown linker {name!r}; there are {', '.join(LINKERS)}")
    able = [n for n in LINKERS if (native or n not in _NATIVE) and name in (None, n)]
    found = next((command for n in able if (command := LINKERS[n]()) is not None), None)
    if found is None and name is not None:
        raise TargetError(f"the linker {name} is not here, or not for this target; tensorlang takes {HOW}")
    return found


def link_wasm(objects: Path, module: Path, symbols: Sequence[str]) -> bool:
    """Link an object to a module of WebAssembly that exports its memory; False where there is no linker."""
    command = _wasm()
    if command is None:
        return False
    exports = [f"--export={symbol}" for symbol in (*symbols, "__heap_base")]
    _run([*command, "--no-entry", "--allow-undefined", *exports, "-o", str(module), str(objects)])
    return True


def link(
    command: Sequence[str],
    objects: Path,
    library: Path,
    name: str,
    machine: Machine,
    needs: Mapping[str, Sequence[str]],
) -> None:
    """Link an object to the shared library `name`, in a file.

    `needs` are libraries that it is to load, by file name, with the functions that it calls. They need not be here: an
    empty one of that name stands in for each.
    """
    with tempfile.TemporaryDirectory() as folder:
        stubs = [_stub(command, Path(folder), name, symbols, machine) for name, symbols in needs.items()]
        _run([*command, *_named(command, name), "-o", str(library), str(objects), *map(str, stubs)])


def link_objects(command: Sequence[str], objects: Sequence[Path], library: Path, options: Sequence[str] = ()) -> None:
    """Link objects to a shared library, with options for the linker; TargetError for what it refuses."""
    named = _named(command, library.name)
    _run([*command, *named, "-o", str(library), *map(str, objects), *options])


def _stub(command: Sequence[str], folder: Path, name: str, symbols: Sequence[str], machine: Machine) -> Path:
    text = "\n".join(f"define void @{symbol}() {{ ret void }}" for symbol in symbols)
    source = folder / f"{name}.o"
    source.write_bytes(engine.compile_library([engine.Part(text)], machine, ()))
    made = folder / name
    bare = ["-nostdlib"] if command[0].endswith("cc") else []
    _run([*command, *bare, *_named(command, name), "-o", str(made), str(source)])
    return made


def _named(command: Sequence[str], name: str) -> list[str]:
    if _MAC:
        return [f"-Wl,-install_name,@rpath/{name}"]
    return [f"-Wl,-soname,{name}"] if command[0].endswith("cc") else ["-soname", name]


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TargetError(f"{Path(command[0]).name} failed: {done.stderr.strip() or f'exit code {done.returncode}'}")
