"""Where and with what a record was measured."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from tensorlang.autotune.records.record import Json
from tensorlang.version import VERSION


def host() -> Json:
    """The machine: its name, system and architecture."""
    return {"name": platform.node(), "system": platform.system(), "machine": platform.machine()}


def versions() -> Json:
    """Versions of what can change a measurement."""
    found: Json = {"tensorlang": VERSION, "python": platform.python_version()}
    for name in ("numpy", "llvmlite", "islpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
