"""What was generated is checked: the kernel that a target gets runs exactly the wanted instances, in the proven order.

Its leaves say which instances they run. Read back, and turned into isl's sets, every instance of the schedule's domain
must run, and exactly once; and the code must run them in the order of the schedule, whose legality was proven.
"""

from __future__ import annotations

from tensorlang.errors import InternalError
from tensorlang.ir.expr import to_text
from tensorlang.ir.stmt import Kernel, Leaf, walk
from tensorlang.lowering.read_back.code_order import disorder
from tensorlang.lowering.read_back.instances import check_instances
from tensorlang.lowering.read_back.lifetimes import check_lifetimes
from tensorlang.lowering.read_back.reader import runs_of
from tensorlang.lowering.read_back.runs import Run
from tensorlang.polyhedral.statement import Role, Scop


def check_implemented(kernel: Kernel, scop: Scop, parts: frozenset[tuple[int, int]]) -> None:
    """Raise InternalError unless a kernel runs the instances of `scop`, each once, in its order.

    `parts` are the statements, by number, and their parts that leaves had when they were made (`parts_of`).
    """
    runs = runs_of(kernel)
    by_part: dict[tuple[int, int], list[Run]] = {}
    for run in runs:
        by_part.setdefault((run.statement, run.part), []).append(run)
    for k, statement in enumerate(scop.statements):
        if statement.role is not Role.PREFETCH:  # changes no value
            for part in sorted({0, *(part for number, part in parts | by_part.keys() if number == k)}):
                check_instances(statement, by_part.get((k, part), []), scop)
    check_lifetimes(runs, scop)
    found = disorder([run for run in runs if run.part == 0], scop)
    if found is not None:
        first, then = (_shown(run, scop) for run in found)
        raise InternalError(f"the generated code runs {first} and {then} in another order than the schedule")


def parts_of(kernel: Kernel) -> frozenset[tuple[int, int]]:
    """The statements that leaves run, by number, and the parts of them."""
    return frozenset((run.statement, run.part) for s in walk(kernel.body) if isinstance(s, Leaf) for run in s.runs)


def _shown(run: Run, scop: Scop) -> str:
    values = ", ".join(map(to_text, run.values))
    return f"{scop.statements[run.statement].name}[{values}]"
