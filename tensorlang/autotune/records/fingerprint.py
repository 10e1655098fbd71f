"""Where and with what a record was measured."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from tensorlang.autotune.records.record import Json
from tensorlang.target.detect import cache_sizes, cpu_model
from tensorlang.version import VERSION


def host(peak_gflops: float = 0.0) -> Json:
    """The fingerprint of this machine: its name, system, CPU model, cores, caches and memory.

    `peak_gflops` is the speed of multiply-adds measured here, for the record's dtype and threads; 0 when unknown.
    """
    return with_peak(_machine(), peak_gflops)


def with_peak(machine: Json, peak_gflops: float) -> Json:
    """The fingerprint of a machine with its peak, where that is known."""
    return machine | ({"peak_gflops": round(peak_gflops, 1)} if peak_gflops > 0 else {})


@cache
def _machine() -> Json:
    return {
        "name": platform.node(),
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "cpu": cpu_model(),
        "cores": os.cpu_count() or 1,
        "caches": list(cache_sizes()),
        "memory": _memory(),
    }


def _memory() -> int:
    """Bytes of memory; 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0


@cache
def _installed() -> Json:
    found: Json = {"tensorlang": VERSION, "python": platform.python_version()}
    for name in ("numpy", "llvmlite", "islpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def versions() -> Json:
    """Versions of what can change a measurement."""
    return dict(_installed())
