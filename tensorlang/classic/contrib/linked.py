"""`tvm.contrib.cc`: shared libraries of objects that kernels were saved to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tensorlang.errors import TargetError
from tensorlang.export.linking import HOW, link_objects, linker


def create_shared(
    output: str | Path, objects: str | Sequence[str], options: Sequence[str] | None = None, cc: str | None = None
) -> None:
    """Link objects to a shared library, which `tensorlang.runtime.load_module` loads where they hold one kernel.

    `options` are those of the linker, `cc` is its command, None for the first that is there. TargetError where there
    is none, and for what it refuses.
    """
    command = [cc, "-shared"] if cc else linker(None, native=True)
    if command is None:
        raise TargetError(f"create_shared takes a linker, and there is none here: {HOW}")
    given = [objects] if isinstance(objects, str | Path) else objects
    link_objects(command, [Path(one) for one in given], Path(output), options or ())
