"""Names that a module offers without importing what they stand for (PEP 562), and names that it explains.

The package root wires them, by text, so that `import tensorlang` stays light and so that a lower floor can show a
name of an upper one (`te.create_schedule`) without knowing of it. A module takes part by a `__getattr__` that calls
`lookup`, a class by the base `Explained`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

PAGE = "docs/from_tvm.md"

_offered: dict[str, dict[str, str]] = {}
_absent: dict[str, dict[str, str]] = {}


def offer(module: str, names: Mapping[str, str]) -> None:
    """Let `module` have attributes: name -> `package.module:attribute`, or a module alone."""
    _offered.setdefault(module, {}).update(names)


def refuse(owner: str, names: Mapping[str, str]) -> None:
    """Explain attributes that TVM has and a module (or a class, by its name) lacks: name -> what to do instead."""
    _absent.setdefault(owner, {}).update(names)


def explanation(advice: str | None) -> str:
    """What follows `has no attribute 'x'`: that TVM has it, what to do instead, and where to read more."""
    return f": TVM has it, tensorlang does not; {advice}; see {PAGE}" if advice else ""


def lookup(module: str, name: str) -> Any:
    """Return an offered attribute and keep it in the module; AttributeError for any other name."""
    target = _offered.get(module, {}).get(name)
    if target is None:
        reason = explanation(_absent.get(module, {}).get(name))
        raise AttributeError(f"module {module!r} has no attribute {name!r}{reason}", name=name, obj=sys.modules[module])
    path, _, attribute = target.partition(":")
    value = getattr(import_module(path), attribute) if attribute else import_module(path)
    setattr(sys.modules[module], name, value)
    return value


def listing(module: str) -> list[str]:
    """The attributes of a module, with those it offers: what `dir` shows."""
    return sorted({*vars(sys.modules[module]), *_offered.get(module, {})})


class Explained:
    """A class whose objects explain the attributes that TVM's have and they lack."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a type checker knows what there is

        def __getattr__(self, name: str) -> Any:
            cls = type(self)
            found = getattr(cls, name, None)
            if isinstance(found, property):  # it raised an AttributeError of its own: let it do so again
                return found.__get__(self, cls)
            reason = explanation(_absent.get(cls.__name__, {}).get(name))
            raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}{reason}", name=name, obj=self)
