"""Names that a module offers without importing what they stand for (PEP 562).

The package root wires them, by text, so that `import tensorlang` stays light and so that a lower floor can show a
name of an upper one (`te.create_schedule`) without knowing of it. A module takes part by a `__getattr__` that calls
`lookup`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

_offered: dict[str, dict[str, str]] = {}
_absent: dict[str, dict[str, str]] = {}


def offer(module: str, names: Mapping[str, str]) -> None:
    """Let `module` have attributes: name -> `package.module:attribute`, or a module alone."""
    _offered.setdefault(module, {}).update(names)


def refuse(module: str, names: Mapping[str, str]) -> None:
    """Explain attributes that classic te's users look for and that `module` lacks: name -> what to do instead."""
    _absent.setdefault(module, {}).update(names)


def lookup(module: str, name: str) -> Any:
    """Return an offered attribute and keep it in the module; AttributeError for any other name."""
    target = _offered.get(module, {}).get(name)
    if target is None:
        advice = _absent.get(module, {}).get(name)
        reason = f": TVM has it, tensorlang does not; {advice}" if advice else ""
        raise AttributeError(f"module {module!r} has no attribute {name!r}{reason}", name=name, obj=sys.modules[module])
    path, _, attribute = target.partition(":")
    value = getattr(import_module(path), attribute) if attribute else import_module(path)
    setattr(sys.modules[module], name, value)
    return value


def listing(module: str) -> list[str]:
    """The attributes of a module, with those it offers: what `dir` shows."""
    return sorted({*vars(sys.modules[module]), *_offered.get(module, {})})
