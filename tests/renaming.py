"""Programs under other names: the same text, respelt."""

from __future__ import annotations

from collections.abc import Callable

from tensorlang.schedule import Schedule
from tensorlang.te.forms import form_of
from tensorlang.te.program import Program
from tensorlang.te.renamed import under_names_of

Spelling = Callable[[str], str]


def respelt(program: Program, stage: Spelling, axis: Spelling) -> str:
    """The text of a program with other names of operations and axes; arrays are called after their operations."""
    ours = form_of(program.text)

    def array(name: str) -> str:
        owner = max((op.name for op in ours.ops if f"{name}.".startswith(f"{op.name}.")), key=len)
        return stage(owner) + name.removeprefix(owner)

    spellings = {"own": array, "read": array, "axis": axis}
    lines = {op.name: "".join(spellings.get(kind, str)(text) for kind, text in op.parts) for op in ours.ops}
    ends = f"return {', '.join(map(stage, program.outputs))}\n"
    return "".join(f"{lines[op.name]}\n" for op in program.ops) + ends


def renamed(program: Program, stage: Spelling, axis: Spelling) -> Program:
    """A program with other names of operations and axes."""
    theirs = form_of(respelt(program, stage, axis))
    return under_names_of(theirs, program, {stage(op.name): op.name for op in program.ops})


def schedule_of(program: Program) -> Schedule:
    """A schedule without steps of a program that nobody has declared."""
    return Schedule(program, {}, [])
