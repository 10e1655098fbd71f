"""Every example in a docstring runs, and every primitive documents itself in the one form."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

import tensorlang
from tensorlang import autotune, te
from tensorlang.schedule import Schedule
from tensorlang.schedule.primitive import REGISTRY
from tensorlang.schedule.stage import Stage
from tensorlang.topi import table

FORM = re.compile(r"\A[A-Z][^\n]+\.\n\n.*^ *Rewrite: .*^ *Legal when: .*^ *Example:\n *>>> ", re.DOTALL | re.MULTILINE)
PACKAGE = Path(tensorlang.__file__).parent
PARTS = ("Rewrite:", "Legal when:", "Example:")


MODULES = [
    ".".join(("tensorlang", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(PACKAGE.rglob("*.py"))
    if re.search(
        r"^ *>>> |^    return named\(name, |with_example\(name, TABLE|^class Const\(",
        path.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.attempted and not result.failed


def test_the_examples_are_found() -> None:
    names = ("annotate", "layout", "loops", "placement", "reduction", "sample", "storage")
    families = {f"tensorlang.schedule.primitives.{name}" for name in names}
    assert families <= set(MODULES)


def public_functions() -> Iterator[tuple[str, Any]]:
    """The functions of te, topi and autotune, and the methods of schedules and stages, by name."""
    yield from table.functions().items()
    for room in (te, autotune):
        names = (n for n in dir(room) if not n.startswith("_"))
        yield from ((f"{room.__name__}.{n}", f) for n in names if inspect.isroutine(f := getattr(room, n)))
    for cls in (Schedule, Stage):
        names = (n for n in dir(cls) if not n.startswith("_"))
        yield from ((f"{cls.__name__}.{n}", f) for n in names if inspect.isfunction(f := getattr(cls, n)))


def test_every_public_function_has_an_example() -> None:
    """A step of a schedule has that of its primitive."""
    texts = {name: inspect.getdoc(f) or "" for name, f in public_functions()}
    own = {name for name, text in texts.items() if ">>> " in text}
    steps = {name for name in texts if name.startswith(("Schedule.", "Stage.")) and name.partition(".")[2] in REGISTRY}
    assert len(texts) > 450
    assert texts.keys() - own - steps == set()


@pytest.mark.parametrize("key", REGISTRY)
def test_every_primitive_documents_itself(key: str) -> None:
    cls = REGISTRY[key]
    text = inspect.cleandoc(cls.__doc__ or "")
    assert FORM.search(text), f"{cls.__name__} needs a sentence, then {', '.join(PARTS)}"
    assert [text.count(part) for part in PARTS] == [1, 1, 1]
    assert is_dataclass(cls) and [f.type for f in fields(cls)[:1]] in (["str"], ["StageName"], ["Identifier"], [])


@pytest.mark.parametrize("key", REGISTRY)
def test_every_primitive_has_a_method(key: str) -> None:
    """A step prints as a call of the method of its own name, on the schedule or on a stage."""
    first = [f.name for f in fields(REGISTRY[key])[:1]]
    home = Stage if first == ["stage"] and not hasattr(Schedule, key) else Schedule
    method = getattr(home, key)
    assert inspect.getdoc(method)
    example = doctest.DocTestParser().get_examples(REGISTRY[key].__doc__ or "")
    calls = {
        n.func.attr
        for e in example
        for n in ast.walk(ast.parse(e.source))
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
    }
    assert key in calls, f"the example of {key} does not call it"
