"""Write docs/reference.md: the steps of a schedule, the intrinsics and the settings, from the code's own tables.

Run `python docs/make_reference.py` after a change of a docstring; a test compares the page with the code.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tensorlang import dtypes, errors
from tensorlang.config import SETTINGS
from tensorlang.ir import intrinsics
from tensorlang.schedule.primitive import REGISTRY
from tensorlang.schedule.schedule import Schedule, Stage

PAGE = Path(__file__).with_name("reference.md")

FAMILIES = {
    "loops": "Loops",
    "annotate": "How iterations run",
    "placement": "Where a stage is computed",
    "storage": "Copies in other memory",
    "layout": "Layout",
    "reduction": "Reductions in parts",
    "sample": "Open decisions",
}
"""Module of tensorlang.schedule.primitives -> title, in the order of the page."""

COMPOSED = (Stage.tile, Schedule.sample_perfect_tile)

HEAD = """\
# Reference

Made from the code by `docs/make_reference.py`. `s` is a schedule (`s = te.create_schedule(C.op)`), `s[C]` the stage of
`C`. Axes are given as objects or by name. Every step is checked when it is applied; a refused step raises a
`ScheduleError` and leaves the schedule as it was.
"""


def reference() -> str:
    """The page as Markdown text."""
    parts = [HEAD, *_primitives(), *_errors(), *_dtypes(), *_intrinsics(), *_settings()]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _primitives() -> Iterator[str]:
    yield "## Steps of a schedule\n"
    for module, title in FAMILIES.items():
        yield f"### {title}\n"
        for key, primitive in REGISTRY.items():
            if _family(primitive) == module:
                yield _primitive(key, inspect.getdoc(primitive) or "")
    yield "### Several steps at once\n"
    for method in COMPOSED:
        yield f"#### `{_call(method)}`\n\n{inspect.getdoc(method)}\n"


def _family(primitive: type[Any]) -> str:
    return primitive.__module__.rpartition(".")[2]


def _primitive(key: str, doc: str) -> str:
    method = getattr(Stage, key, None) or getattr(Schedule, key)
    text, _, example = doc.partition("Example:\n")
    sentence, _, rest = text.partition("\n\n")
    body = rest.replace("Rewrite:", "- **Rewrite:**", 1).replace("Legal when:", "- **Legal when:**", 1)
    code = textwrap.dedent(example).rstrip()
    return f"#### `{_call(method)}`\n\n{sentence}\n\n{body.rstrip()}\n\n```python\n{code}\n```\n"


def _call(method: Callable[..., Any]) -> str:
    """`s[C].split(parent, factor=None)`: a method as a user calls it."""
    owner = "s[C]" if method.__qualname__.startswith("Stage.") else "s"
    signature = inspect.signature(method)
    shown = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values() if p.name != "self"]
    plain = signature.replace(parameters=shown, return_annotation=inspect.Signature.empty)
    return f"{owner}.{method.__name__}{plain}"


def _errors() -> Iterator[str]:
    yield "## Errors\n"
    found = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.TensorlangError)]
    yield "| error | is a | when |\n|---|---|---|\n" + "\n".join(_error_row(c) for c in found) + "\n"


def _error_row(cls: type[BaseException]) -> str:
    above = ", ".join(f"`{b.__name__}`" for b in cls.__bases__)
    return f"| `{cls.__name__}` | {above} | {(inspect.getdoc(cls) or '').partition(chr(10))[0]} |"


def _dtypes() -> Iterator[str]:
    yield "## Element types\n"
    yield ", ".join(f"`{name}`" for name in dtypes.TABLE) + ".\n"
    yield (dtypes.__doc__ or "").partition("\n\n")[2].strip() + "\n"


def _intrinsics() -> Iterator[str]:
    yield "## Math intrinsics\n"
    yield (intrinsics.__doc__ or "").partition("\n\n")[2].strip() + "\n"
    rows = [f"| `{row.name}` | {row.family} | {row.doc} |" for row in intrinsics.TABLE.values()]
    yield "| `te.` | family | value |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _settings() -> Iterator[str]:
    yield "## Settings\n"
    yield "Environment variables, read when they are used; `tensorlang.config.override` sets them for a block.\n"
    rows = [f"| `{s.variable}` | {s.takes} | `{s.default}` | {s.meaning} |" for s in SETTINGS.values()]
    table = "| variable | takes | default | does |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    yield table.replace("| `` |", "| |")


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
