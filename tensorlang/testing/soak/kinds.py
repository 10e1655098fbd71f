"""The kinds of cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tensorlang.errors import DefinitionError

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "programs": "tensorlang.testing.soak.programs:run",
        "ordered": "tensorlang.testing.soak.ordered:run",
        "devices": "tensorlang.testing.soak.devices:run",
        "records": "tensorlang.testing.soak.records:run",
        "calls": "tensorlang.testing.soak.calls:run",
    }
)
"""Name -> the function that draws and runs a case of it."""


def known(names: Sequence[str]) -> dict[str, str]:
    """The functions of kinds, by name; all of the table, if none is given. DefinitionError for one that there is not.

    A kind may be a function of somebody else, as `module:function`.
    """
    unknown = [name for name in names if name not in KINDS and ":" not in name]
    if unknown:
        raise DefinitionError(f"unknown kind {unknown[0]!r}; known: {', '.join(KINDS)}, or module:function")
    return {name: KINDS.get(name, name) for name in dict.fromkeys(names or KINDS)}
