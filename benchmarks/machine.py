"""Where and with what figures were measured."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tensorlang
from tensorlang.target import Target

PACKAGES = ("numpy", "islpy", "llvmlite")


def describe(peers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Date, target, CPU, and versions: of tensorlang, what it stands on, and peers."""
    own = {"tensorlang": tensorlang.__version__, **{name: version(name) for name in PACKAGES}}
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": cpu_name(),
        "target": Target("llvm").to_json(),
        "python": platform.python_version(),
        "versions": {**own, **(peers or {})},
    }


def cpu_name() -> str:
    """The CPU as the system calls it; LLVM's name where it does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
