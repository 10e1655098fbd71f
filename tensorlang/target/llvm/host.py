"""This machine as LLVM knows it, remembered from one process to the next: asking LLVM means to import it.

What was learnt holds for a CPU that answers `cpuid` in the same way, and for the same library.
"""

from __future__ import annotations

import ctypes
import importlib.util
import pickle
import platform
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tensorlang.dataclass import dataclass
from tensorlang.runtime import cache as kept
from tensorlang.target.llvm.image import Image, image_of, load_image
from tensorlang.target.llvm.sources import RULE

SPEED_LEVEL = 2
CODEGEN_LEVEL = 3
_ARCH_PRCTL, _ASK_FOR_STATE, _TILE_DATA = 158, 0x1023, 18


@dataclass(frozen=True, slots=True)
class Machine:
    """What code is generated for: triple (empty: this process's), CPU name and feature changes."""

    triple: str
    cpu: str
    features: str


@dataclass(frozen=True, slots=True)
class Host:
    """What LLVM says: its `version`, this process's triple, the CPU's name and its features."""

    version: str
    triple: str
    cpu: str
    features: frozenset[str]


def fingerprint(machine: Machine) -> str:
    """Everything on this side of the IR text that can change the object made from it."""
    known = host()
    triple = machine.triple or known.triple
    levels = f"O{SPEED_LEVEL} codegen {CODEGEN_LEVEL} {RULE}"
    return f"{known.version} {levels} {triple} {machine.cpu} {machine.features}"


def this_cpu() -> tuple[str, frozenset[str]]:
    """Return the name of this machine's CPU and its features, as LLVM spells them; without those we may not use."""
    known = host()
    if _may_use_tiles(known.features):
        return known.cpu, known.features
    return known.cpu, frozenset(name for name in known.features if not name.startswith("amx-"))


def _may_use_tiles(features: frozenset[str]) -> bool:
    """Whether the system lets this process use tile registers, of which it asks here for all of its threads.

    Source: the Linux kernel's documentation, x86/xstate.
    """
    if "amx-tile" not in features or platform.system() != "Linux":
        return False
    return int(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ASK_FOR_STATE, _TILE_DATA)) == 0


@cache
def host() -> Host:
    """What LLVM says of this machine, or said of it to an earlier process."""
    library = _library()
    asked = _answers(library) if library else None
    if not asked:
        return _told()
    key = ("host", library, platform.machine(), asked)
    known: Host = kept.cached(key, lambda: pickle.dumps(_told()), pickle.loads)
    return known


def _told() -> Host:
    from tensorlang.target.llvm import engine

    return engine.host()


def _library() -> str:
    """What changes with LLVM's library, as text; "" where it is not found."""
    try:
        found = importlib.util.find_spec("llvmlite")
        folder = Path(found.origin or "").parent / "binding" if found else Path()
        (file,) = folder.glob("*llvmlite.so")
        status = file.stat()
    except (OSError, ValueError):
        return ""
    return f"{file} {status.st_size} {status.st_mtime_ns}"


_LEAVES = (
    (0, 0), (1, 0), (7, 0), (7, 1), (7, 2), (0xD, 1), (0x14, 0), (0x19, 0), (0x1E, 0), (0x1E, 1), (0x24, 0),
    (0x80000001, 0), (0x80000008, 0), (0x80000021, 0),
)  # fmt: skip
"""What is asked about features, family and model; nothing that tells of cores or of loads."""
_HAS_STATES = 1 << 27
_QUESTIONS = """
define void @cpuid(i32 %leaf, i32 %part, ptr %answers) {
  %made = call { i32, i32, i32, i32 } asm sideeffect "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx}"(i32 %leaf, i32 %part)
  store { i32, i32, i32, i32 } %made, ptr %answers
  ret void
}
define i32 @states() {
  %made = call { i32, i32 } asm sideeffect "xgetbv", "={ax},={dx},{cx}"(i32 0)
  %low = extractvalue { i32, i32 } %made, 0
  ret i32 %low
}
"""


def _answers(library: str) -> str | None:
    """What the CPU says of itself; None where it is not asked."""
    if platform.machine() != "x86_64":
        return None
    key = ("cpuid", library, _QUESTIONS)
    image: Image | None = kept.cached(key, lambda: pickle.dumps(_question_image()), pickle.loads)
    return _asked(image) if image else None


def _question_image() -> Image | None:
    from tensorlang.target.llvm import engine

    return image_of(engine.compile_library([engine.Part(_QUESTIONS)], Machine("", "", ""), ()))


def _asked(image: Image) -> str:
    held = load_image(image, ["cpuid", "states"], {})
    types = (ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)
    ask = ctypes.CFUNCTYPE(None, *types)(held.addresses["cpuid"])
    states: Callable[[], int] = ctypes.CFUNCTYPE(ctypes.c_uint32)(held.addresses["states"])
    answers = (ctypes.c_uint32 * 4)()

    def leaf(number: int, part: int = 0) -> list[int]:
        ask(number, part, ctypes.addressof(answers))
        return [*answers]

    most = {group: leaf(group)[0] for group in (0, 0x80000000)}
    found = {(number, part): leaf(number, part) for number, part in _LEAVES if number <= most[number & 0x80000000]}
    found[1, 0][1] = 0  # the number of the core that was asked
    found[2, 0] = [states() if found[1, 0][2] & _HAS_STATES else 0]
    return repr(found)
