"""Write docs/reference.md from the code's own tables, and docs/primitives.md from those of its tests.

Run `python docs/make_reference.py` after a change of a docstring or of a row; tests compare the pages with them.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tensorlang import dtypes, errors
from tensorlang.config import SETTINGS
from tensorlang.ir import intrinsics
from tensorlang.schedule import Schedule, Stage
from tensorlang.schedule.primitive import REGISTRY
from tensorlang.te.hybrid import ScriptError
from tensorlang.testing.traces import MAKERS

PAGE = Path(__file__).with_name("reference.md")
TABLE = Path(__file__).with_name("primitives.md")
ROOT = Path(__file__).parent.parent

FAMILIES = {
    "loops": "Loops",
    "shift": "Loops moved and reversed",
    "affine": "Loops by a matrix, tiles by hyperplanes",
    "cut": "Loops in parts",
    "distribute": "Loops taken apart and joined",
    "annotate": "How iterations run",
    "atomic": "How iterations run: shared sums",
    "pragma": "Hints",
    "prefetch": "Hints: memory",
    "prepare": "Machine instructions: layouts they take",
    "tensorize": "Machine instructions",
    "placement": "Where a stage is computed",
    "reverse_compute_at": "Where a consumer is computed",
    "storage": "Copies in other memory",
    "buffering": "Memory used again",
    "predicate": "Stores under a condition",
    "layout": "Layout",
    "pad": "Padding",
    "inplace": "Layout of what is updated in place",
    "reduction": "Reductions in parts",
    "assume": "What a proof takes for granted",
    "sample": "Open decisions",
}
"""Module of tensorlang.schedule.primitives -> title, in the order of the page."""

COMPOSED = (
    Stage.tile,
    Stage.time_tile,
    Stage.wavefront,
    Schedule.create_group,
    Schedule.sample_perfect_tile,
    Schedule.auto_order,
)

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
    method = _method(key)
    text, _, example = doc.partition("Example:\n")
    sentence, _, rest = text.partition("\n\n")
    body = rest.replace("Rewrite:", "- **Rewrite:**", 1).replace("Legal when:", "- **Legal when:**", 1)
    code = textwrap.dedent(example).rstrip()
    return f"#### `{_call(method)}`\n\n{sentence}\n\n{body.rstrip()}\n\n```python\n{code}\n```\n"


def _call(method: Callable[..., Any]) -> str:
    """`s[C].split(parent, factor=None)`: a method as a user calls it."""
    owner = "s[C]" if hasattr(Stage, method.__name__) else "s"
    signature = inspect.signature(method)
    shown = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values() if p.name != "self"]
    plain = signature.replace(parameters=shown, return_annotation=inspect.Signature.empty)
    return f"{owner}.{method.__name__}{plain}"


TABLE_HEAD = """\
# Every step, and how it is tested

Made by `docs/make_reference.py` from the table of `tests/schedule/primitive_uses.py`; a step without a row fails the
tests, and so does a cell that is not true. For every row, `tests/schedule/test_every_primitive.py` applies the step and
checks that

- **proof**: the step passes in its own use, and a wrong use is refused with this error, with the smallest
  counter-example unless it is a `BadArgument`; the schedule stays as it was;
- **text**: the schedule and its loops are those of the golden file `tests/golden/schedule/every_primitive`;
- **trace**: the step, printed as Python and kept as JSON, makes the same schedule again;
- **results**: the kernels of these targets compute what the reference computes.

A `BadArgument` is found from the arguments, before any proof. Every primitive also has an example in its docstring,
which is run. Those marked **random**, or made of such, are drawn into random schedules of random programs, whose
verdicts are compared with an enumeration of all pairs of instances, and whose results with the reference
(`tests/property`).

| step | what it does | proof: a wrong use is | text | trace | results = reference | random |
|---|---|---|---|---|---|---|
"""


def primitives() -> str:
    """The table of steps as Markdown text."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from tests.schedule.primitive_uses import USES

    return TABLE_HEAD + "".join(_tested(key, use) for key, use in USES.items())


def _tested(key: str, use: Any) -> str:
    golden = ROOT / "tests" / "golden" / "schedule" / "every_primitive" / f"loops-{key}.txt"
    doc = inspect.getdoc(REGISTRY.get(key) or _method(key)) or ""
    sentence = " ".join(doc.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    made = f" ({', '.join(dict.fromkeys(use.recorded))})" if use.recorded else ""
    error = f"`{use.refused.error.__name__}`"
    text = "golden" if golden.exists() else "–"
    drawn = "yes" if set(use.recorded or (key,)) <= set(MAKERS) else "–"
    return f"| `{key}`{made} | {sentence} | {error} | {text} | Python, JSON | {', '.join(use.targets)} | {drawn} |\n"


def _method(key: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(Stage, key, None) or getattr(Schedule, key)
    return found


def _errors() -> Iterator[str]:
    yield "## Errors\n"
    found = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.TensorlangError)]
    found.insert(found.index(errors.DefinitionError) + 1, ScriptError)
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
    TABLE.write_text(primitives(), encoding="utf-8")
