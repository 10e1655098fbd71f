"""Build a CUDA text with g++ against the emulation, and run a kernel of it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorlang.errors import ArgumentError, KernelError, MissingDependency
from tensorlang.runtime.cache import cached
from tensorlang.testing.cuda_emulation.binary import (
    INTEGER,
    POINTER,
    REAL,
    TENSOR_MAP,
    Array,
    Dim3,
    Settings,
    TensorMap,
    Value,
    encoded,
    whole,
)
from tensorlang.testing.cuda_emulation.translate import Translation, translate

Argument: TypeAlias = "npt.NDArray[Any] | int | float | np.generic | TensorMap"
Extent: TypeAlias = int | Sequence[int]
Mode: TypeAlias = Literal["late", "at_once"]

_MOST_THREADS = 1024
_FLAGS = ("-std=c++20", "-fPIC", "-w", "-U_FORTIFY_SOURCE", "-fno-gnu-unique", "-fno-strict-aliasing")
_CHECKS = ("-fsanitize=bounds,alignment,signed-integer-overflow,integer-divide-by-zero",)
_GARBAGE = ("-ftrivial-auto-var-init=pattern",)
_running = threading.Lock()


def unavailable() -> str | None:
    """Return why nothing can be emulated here; None when it can."""
    if not sys.platform.startswith("linux"):
        return f"CUDA texts are emulated on Linux only, this is {sys.platform}"
    if shutil.which("g++") is None:
        return "CUDA texts are emulated with g++, which is not on the PATH; install it (Debian: apt install g++)"
    return None


def emulate(
    source: str,
    kernel_name: str,
    grid: Extent,
    block: Extent,
    args: Sequence[Argument],
    dynamic_shared_bytes: int = 0,
    *,
    mode: Mode = "late",
    seed: int = 0,
    arch: str = "sm_90a",
) -> None:
    """Run a kernel of a CUDA text on the CPU; arrays are changed in place.

    `grid` counts blocks and `block` threads, along x, y, z. `args` are the kernel's: NumPy arrays for pointers,
    numbers, and TensorMap. Asynchronous copies are made as late as their waits allow (`mode="late"`; their target is
    garbage until then) or at once. The order of the threads is drawn by `seed`. `arch` sets `__CUDA_ARCH__`.
    Raises KernelError for what is wrong at run time: threads that wait for ever or at different barriers, accesses
    outside of arrays or misaligned, misuse of matrix and copy instructions; then the arrays are as they were.
    Raises ArgumentError when the text is no C++ that the emulation knows, or the arguments do not fit it, and
    MissingDependency where `unavailable` says why.
    """
    if why := unavailable():
        raise MissingDependency(why)
    translation = translate(source)
    known = translation.kernels if kernel_name in translation.kernels else (kernel_name,)
    library = _library(translation.text, known, arch)
    settings = _settings(grid, block, dynamic_shared_bytes, translation, mode, seed)
    arrays: list[npt.NDArray[Any]] = []
    values = (Value * len(args))(*(_value(argument, arrays) for argument in args))
    for k, array in enumerate(arrays):
        if any(np.may_share_memory(array, other) for other in arrays[:k]):
            raise ArgumentError(f"argument arrays {k} and an earlier one overlap; pass the same array, or copies")
    names = [f"array {k} ({a.dtype}{list(a.shape)})" for k, a in enumerate(arrays)]
    structures = (Array * len(arrays))(
        *(Array(a.ctypes.data, a.nbytes, a.itemsize, n.encode()) for a, n in zip(arrays, names, strict=True))
    )
    with _running:
        number = known.index(kernel_name)
        wrong = library.emu_run(number, ctypes.byref(settings), structures, len(arrays), values, len(args))
    if wrong:
        raise KernelError(f"{kernel_name}: {wrong.decode()}")


def prepare(source: str, arch: str = "sm_90a") -> None:
    """Build what `emulate` will run of a text, so that its first launch takes no longer; errors as there."""
    if why := unavailable():
        raise MissingDependency(why)
    translation = translate(source)
    _library(translation.text, translation.kernels, arch)


def _settings(grid: Extent, block: Extent, dynamic: int, translation: Translation, mode: Mode, seed: int) -> Settings:
    if mode not in ("late", "at_once"):
        raise ArgumentError(f'mode is "late" or "at_once", got {mode!r}')
    extents = [(extent,) if isinstance(extent, int) else tuple(extent) for extent in (grid, block)]
    if any(not 1 <= len(e) <= 3 or min(e) < 1 for e in extents):
        raise ArgumentError(f"grid and block have one to three extents of 1 or more, got {grid} and {block}")
    sizes = [e + (1,) * (3 - len(e)) for e in extents]
    if np.prod(sizes[1]) > _MOST_THREADS:
        raise ArgumentError(f"a block has at most {_MOST_THREADS} threads, got {block}")
    late = int(mode == "late")
    return Settings(Dim3(*sizes[0]), Dim3(*sizes[1]), seed, dynamic, translation.dynamic_alignment, late)


def _value(argument: Argument, arrays: list[npt.NDArray[Any]]) -> Value:
    match argument:
        case np.ndarray():
            value = Value(POINTER, _number(argument, arrays), argument.itemsize)
        case TensorMap():
            value = Value(TENSOR_MAP, _number(argument.array, arrays))
            value.map = encoded(argument)
        case bool() | int() | np.integer() | np.bool_():
            value = Value(INTEGER, integer=int(argument))
        case float() | np.floating():
            value = Value(REAL, real=float(argument))
        case _:
            raise ArgumentError(f"arguments are arrays, numbers and TensorMap, got {type(argument).__name__}")
    return value


def _number(array: npt.NDArray[Any], arrays: list[npt.NDArray[Any]]) -> int:
    """Return where an array stands in the list, in which each is once."""
    for k, other in enumerate(arrays):
        if array is other:
            return k
    whole(array)
    arrays.append(array)
    return len(arrays) - 1


@cache
def _library(text: str, kernels: tuple[str, ...], arch: str) -> Any:
    """Build and load a translated text; the machine is built apart, once."""
    bodies = ", ".join(f"[](const emu::Value* v) {{ emu::call({kernel}, v); }}" for kernel in kernels)
    entry = (
        f'#include "emulation.h"\n#line 1 "kernel.cu"\n{text}\n#include "entry.h"\n'
        f"static const emu::Body emu_bodies[] = {{{bodies}}};\n"
        'extern "C" const char* emu_run(int k, const emu::Settings* s, emu::Array* a, int n, emu::Value* v, int m) {\n'
        "  return emu::run(*s, a, n, v, m, emu_bodies[k]);\n}\n"
    )
    version = arch.removeprefix("sm_").rstrip("a") + "0"
    flags = ("-O1", *_FLAGS, *_CHECKS, *_GARBAGE, f"-D__CUDA_ARCH__={version}")
    parts = (_headers(), entry, " ".join(flags), _compiler())
    return cached(("cuda emulation", *parts), lambda: _linked(entry, flags), _loaded)


def _loaded(code: bytes) -> Any:
    with tempfile.TemporaryDirectory(prefix="tensorlang-cuda-") as folder:
        path = Path(folder, "kernel.so")
        path.write_bytes(code)
        library = ctypes.CDLL(str(path))
    library.emu_run.restype = ctypes.c_char_p
    return library


def _linked(entry: str, flags: tuple[str, ...]) -> bytes:
    machine = cached(("cuda emulation", _headers(), _compiler()), _machine, _object)
    with tempfile.TemporaryDirectory(prefix="tensorlang-cuda-") as folder:
        at = Path(folder)
        at.joinpath("machine.o").write_bytes(machine)
        at.joinpath("kernel.cpp").write_text(entry, encoding="utf-8")
        _compile([*flags, "-I", str(_folder()), "-c", "kernel.cpp", "-o", "kernel.o"], at)
        _compile(["-shared", "-o", "kernel.so", "kernel.o", "machine.o"], at)
        return at.joinpath("kernel.so").read_bytes()


def _object(code: bytes) -> bytes:
    if not code.startswith(b"\x7fELF"):
        raise ArgumentError("g++ gave no object file")
    return code


def _machine() -> bytes:
    with tempfile.TemporaryDirectory(prefix="tensorlang-cuda-") as folder:
        _compile(["-O1", *_FLAGS, "-c", str(_folder() / "runtime.cpp"), "-o", "machine.o"], Path(folder))
        return Path(folder, "machine.o").read_bytes()


def _compile(arguments: list[str], folder: Path) -> None:
    done = subprocess.run(["g++", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line][:10]
        raise ArgumentError("the emulation cannot build the CUDA text:\n" + "\n".join(errors or [done.stderr[-2000:]]))


def _folder() -> Path:
    return Path(str(resources.files(__package__)))


@cache
def _headers() -> str:
    """The texts that a build depends on."""
    found = sorted(path for path in _folder().iterdir() if path.suffix in (".h", ".cpp"))
    return "\n".join(path.read_text(encoding="utf-8") for path in found)


@cache
def _compiler() -> str:
    return subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout.partition("\n")[0]
