"""NVRTC, NVIDIA's run-time compiler: CUDA text to the machine code of one architecture. It needs no GPU and no driver.

Cubins are asked for, never PTX: a driver older than the compiler refuses the newer PTX, and takes the cubin.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError, MissingDependency, TargetError
from tensorlang.runtime.cache import cached
from tensorlang.target.cuda.report import Report, read_report

OPTIONS = ("-std=c++17", "--ptxas-options=-v", "-default-device")
"""What every compilation gets. Nothing that changes results: no fast math, and products contracted as is usual."""
_MINIMAL = ("--minimal",), (12, 4)
"""No declarations of textures and of the CUDA runtime, which no text of ours names; and the first NVRTC to know it."""

_PROGRAM = "kernel.cu"
_ELF = b"\x7fELF"
_INVALID_OPTION = 5
_SONAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
_WHEEL_FOLDERS = ("cu13/lib", "cu12/lib", "cuda_nvrtc/lib")
_BUILTINS = "libnvrtc-builtins.so*"
_SHOWN_LINES = 3


@dataclass(frozen=True, slots=True)
class Compiled:
    """Machine code for one architecture, the log of its compilation, and what that says of each kernel."""

    text: str
    architecture: str
    options: tuple[str, ...]
    cubin: bytes
    log: str

    @property
    def report(self) -> Report:
        """Registers, spills and shared memory of the kernels."""
        return read_report(self.log)

    @property
    def names(self) -> tuple[str, ...]:
        """The kernels of the module, in the order of the assembler."""
        return tuple(k.name for k in self.report.kernels)

    def ptx(self) -> str:
        """The PTX of the text; it is compiled again for it, without the assembler."""
        virtual = self.architecture.replace("sm_", "compute_")
        options = (f"-arch={virtual}", *(o for o in self.options if not o.startswith("--ptxas-options")))
        return _compiled(self.text, options, "PTX")[0].decode().rstrip("\0")


def compile_cuda(text: str, architecture: str, options: Sequence[str] = ()) -> Compiled:
    """Compile CUDA text for an architecture (`sm_90a`), or find what was compiled before on disk.

    `options` come after ours. MissingDependency without NVRTC, TargetError for an architecture that it does not
    know, InternalError with its log and the lines around for a text that it refuses.
    """
    check_architecture(architecture)
    without, first = _MINIMAL
    given = (*OPTIONS, *(without if version() >= first else ()), *options)
    key = ("nvrtc", ".".join(map(str, version())), architecture, *given, text)

    def make() -> bytes:
        cubin, log = _compiled(text, (f"-arch={architecture}", *given), "CUBIN")
        return json.dumps(log).encode() + b"\n" + cubin

    def use(code: bytes) -> Compiled:
        log, _, cubin = code.partition(b"\n")
        if not cubin.startswith(_ELF):
            raise InternalError("NVRTC gave no cubin")
        return Compiled(text, architecture, given, cubin, json.loads(log))

    return cached(key, make, use)


def check_architecture(architecture: str) -> None:
    """Raise TargetError unless this NVRTC compiles for the architecture."""
    known = supported_architectures()
    if architecture not in known:
        number = ".".join(map(str, version()))
        raise TargetError(
            f"NVRTC {number} has no architecture -arch={architecture}; it compiles for {', '.join(known)}. "
            "A newer GPU needs a newer NVRTC (pip install -U nvidia-cuda-nvrtc), an older GPU an older one"
        )


@cache
def version() -> tuple[int, int]:
    """Major and minor number of NVRTC; MissingDependency when there is none."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "its version")
    return major.value, minor.value


@cache
def supported_architectures() -> tuple[str, ...]:
    """The architectures that this NVRTC compiles for, `sm_90a` and its like included."""
    library, count = _library(), ctypes.c_int()
    _check(library.nvrtcGetNumSupportedArchs(ctypes.byref(count)), "its architectures")
    numbers = (ctypes.c_int * count.value)()
    _check(library.nvrtcGetSupportedArchs(numbers), "its architectures")
    # Instructions of one architecture only exist since compute capability 9.0.
    return tuple(f"sm_{n}{suffix}" for n in sorted(numbers) for suffix in (("", "a") if n >= 90 else ("",)))


def is_available() -> bool:
    """Whether there is an NVRTC to compile with."""
    try:
        version()
    except MissingDependency:
        return False
    return True


@cache
def _library() -> Any:
    """The loaded library: of the wheel, else of a CUDA toolkit, else where the loader finds it."""
    for path in _candidates():
        try:
            _load_builtins_beside(path)
            library = ctypes.CDLL(path)
        except OSError:
            continue
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        return library
    raise MissingDependency(
        "target cuda compiles with NVRTC, and no libnvrtc is found in the wheel nvidia-cuda-nvrtc, under CUDA_PATH "
        "or by the loader: pip install 'tensorlang[cuda]'"
    )


def _load_builtins_beside(path: str) -> None:
    """Load the declarations that NVRTC opens by their name alone, and some wheels (13.0) do not find beside it."""
    for builtins in Path(path).parent.glob(_BUILTINS) if Path(path).is_absolute() else ():
        ctypes.CDLL(str(builtins))


def _candidates() -> Iterator[str]:
    for folder in (*wheel_folders(_WHEEL_FOLDERS), *toolkit_folders("lib64", "lib")):
        yield from (str(path) for path in sorted(folder.glob("libnvrtc.so*"), reverse=True) if path.is_file())
    yield from _SONAMES


def wheel_folders(names: Sequence[str]) -> Iterator[Path]:
    """The folders of these names in the wheels of NVIDIA, those that exist."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        yield from (folder for name in names if (folder := Path(root, name)).is_dir())


def toolkit_folders(*names: str) -> Iterator[Path]:
    """The folders of these names in the CUDA toolkit, those that exist."""
    roots = [os.environ[v] for v in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(v)]
    for root in (*roots, "/usr/local/cuda"):
        yield from (folder for name in names if (folder := Path(root, name)).is_dir())


def _compiled(text: str, options: Sequence[str], form: str) -> tuple[bytes, str]:
    """Compile, and return the code (`form`: CUBIN or PTX) and the log."""
    library, program = _library(), ctypes.c_void_p()
    created = library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), _PROGRAM.encode(), 0, None, None)
    _check(created, "a program")
    try:
        words = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        status = library.nvrtcCompileProgram(program, len(options), words)
        log = _bytes(program, library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog).decode(errors="replace")
        if status:
            raise _refused(text, options, log.rstrip("\0"), status)
        code = _bytes(program, getattr(library, f"nvrtcGet{form}Size"), getattr(library, f"nvrtcGet{form}"))
        return code, log.rstrip("\0")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _bytes(program: ctypes.c_void_p, size: Callable[..., int], read: Callable[..., int]) -> bytes:
    count = ctypes.c_size_t()
    _check(size(program, ctypes.byref(count)), "the size of a result")
    room = ctypes.create_string_buffer(max(1, count.value))
    _check(read(program, room), "a result")
    return room.raw[: count.value]


def _refused(text: str, options: Sequence[str], log: str, status: int) -> Exception:
    """What to raise for a text that does not compile."""
    if status == _INVALID_OPTION:
        return TargetError(f"NVRTC refuses the options {' '.join(options)}: {log.strip()}")
    why = _library().nvrtcGetErrorString(status).decode()
    return InternalError(f"NVRTC refuses the generated CUDA text: {why}\n{log.strip()}\n{_numbered(text, log)}")


def _numbered(text: str, log: str) -> str:
    """The numbered lines of a text around those that a log complains about; the beginning when it names none."""
    lines = text.splitlines()
    named = [int(n) for n in re.findall(rf"{re.escape(_PROGRAM)}\((\d+)\): error", log)] or [1]
    near = {n for line in named for n in range(line - _SHOWN_LINES, line + _SHOWN_LINES + 1)}
    return "\n".join(f"{n:>5}  {lines[n - 1]}" for n in sorted(near) if 1 <= n <= len(lines))


def _check(status: int, wanted: str) -> None:
    if status:
        raise InternalError(f"NVRTC does not give {wanted}: {_library().nvrtcGetErrorString(status).decode()}")
