"""Lets the OpenCL loader find the CPU runtime of the wheel `intel-opencl-rt`, which registers itself nowhere.

The loader reads `.icd` files, each the name of a driver's library, from /etc/OpenCL/vendors, or from the folder that
OCL_ICD_VENDORS names. It reads them once, when a process first asks for platforms.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path

_CHOSEN = "OCL_ICD_VENDORS"
_SYSTEM = "/etc/OpenCL/vendors"
_RUNTIME = ("intel-opencl-rt", "libintelocl.so")
_NEEDED = ("libintlc.so.5", "libimf.so", "libirng.so", "libsvml.so")
"""Libraries of the wheel `intel-cmplr-lib-rt` that the runtime's own search path does not lead to."""


@contextmanager
def wheel_drivers() -> Iterator[None]:
    """Ask for platforms for the first time in this block: those of the system and of the wheel are there.

    Does nothing where the wheel is not installed or cannot be loaded, where the system knows its runtime already, and
    where OCL_ICD_VENDORS says which drivers to use.
    """
    library = _file(*_RUNTIME)
    system = _registered(Path(os.environ.get("OPENCL_VENDOR_PATH") or _SYSTEM))
    known = any(_RUNTIME[1] in name for name in system.values())
    if library is None or not _preload() or known or os.environ.get(_CHOSEN):
        yield
        return
    folder = Path(tempfile.mkdtemp(prefix="tensorlang-opencl-"))
    try:
        for file, name in (system | {"tensorlang-wheel.icd": str(library)}).items():
            (folder / file).write_text(f"{name}\n", encoding="utf-8")
        os.environ[_CHOSEN] = str(folder)
        yield
    finally:
        os.environ.pop(_CHOSEN, None)
        shutil.rmtree(folder, ignore_errors=True)


def _registered(folder: Path) -> dict[str, str]:
    """The registered drivers: file name -> name of the library."""
    found = {}
    for file in sorted(folder.glob("*.icd")):
        with suppress(OSError, UnicodeDecodeError):
            found[file.name] = file.read_text(encoding="utf-8").strip()
    return found


def _file(distribution: str, name: str) -> Path | None:
    """Where an installed distribution has a file."""
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name == name:
            path = Path(os.path.normpath(str(file.locate())))
            return path if path.exists() else None
    return None


def _preload() -> bool:
    """Load what the runtime needs, for all to see; False when a library is missing."""
    for name in _NEEDED:
        path = _file("intel-cmplr-lib-rt", name)
        try:
            ctypes.CDLL(name if path is None else str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError:
            return False
    return True
