"""Where the programs of a log come from: what the user names, what is registered, what ships with tensorlang."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorlang.autotune.files import load_file, load_function
from tensorlang.autotune.importers.lines import HASH
from tensorlang.autotune.search_task import find_workload
from tensorlang.autotune.templates.registry import TemplateFunction, find_template
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, RecordError


@dataclass(frozen=True, slots=True)
class Source:
    """A function that makes programs, or a template, and what records call it."""

    name: str
    function: Callable[..., Any]

    def template(self) -> TemplateFunction | None:
        """The template that it is; None for a plain function."""
        candidates = self.function, getattr(self.function, "__wrapped__", None)
        return next((f for f in candidates if isinstance(f, TemplateFunction)), None)


Program = Source | Callable[..., Any] | str
"""A function or template, or the `file.py:function` where one is."""


def source_of(name: str, program: Program) -> Source:
    """A program as it was given; DefinitionError when the file has none."""
    match program:
        case Source():
            return program
        case str():
            return Source(program, load_function(program))
    return Source(name, program)


def sources_from(words: Sequence[str]) -> dict[str, Source]:
    """Programs of a command line, `[NAME=]FILE.py[:FUNCTION]`, by the names that logs call them.

    A file without a function stands for all of its functions and templates.
    """
    found: dict[str, Source] = {}
    for word in words:
        name, _, place = word.rpartition("=")
        if not place.endswith(".py"):
            source = Source(place, load_function(place))
            template = source.template()
            found[name or (place.rpartition(":")[2] if template is None else template.name)] = source
            continue
        if name:
            raise DefinitionError(f"{word!r} names no function; write {name}={place}:function")
        module = load_file(Path(place))
        for attribute, value in vars(module).items():
            if isinstance(value, TemplateFunction):
                found[value.name] = Source(f"{place}:{attribute}", value)
            elif callable(value) and getattr(value, "__module__", "") == module.__name__:
                found[attribute] = Source(f"{place}:{attribute}", value)
    return found


def workload_source(name: str, known: Mapping[str, Source]) -> Source:
    """The function of a workload; RecordError says what to do where it is unknown."""
    if name in known:
        return known[name]
    registered = find_workload(name)
    if registered is not None:
        return Source(name, registered)
    if HASH.fullmatch(name):
        raise RecordError(
            f"its workload is the hash of a graph, {name}, which names no function; if you know it, say which function "
            f"makes that program: {name}=file.py:function"
        )
    raise RecordError(f"its workload {name!r} is unknown; say where that function is: {name}=file.py:function")


def template_source(name: str, known: Mapping[str, Source]) -> tuple[str, TemplateFunction]:
    """The template of a name, and what records call it; RecordError says what to do where there is none."""
    if name not in known:
        try:
            return name, find_template(name)
        except DefinitionError as error:
            raise RecordError(f"{error.message}; or give the file that defines it: file.py") from None
    template = known[name].template()
    if template is None:
        raise RecordError(f"{known[name].name} is no template; AutoTVM's {name!r} takes one of that name")
    return known[name].name, template
