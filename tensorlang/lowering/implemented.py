"""What was generated is checked: the kernel that a target gets runs exactly the wanted instances.

Its leaves say which instances they run. Read back, and turned into isl's sets, every instance of the schedule's domain
must run, exactly once, and in a legal order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorlang.errors import InternalError
from tensorlang.ir.expr import Const, Expr, Var, substitute
from tensorlang.ir.stmt import INDEX, Kernel, walk
from tensorlang.lowering.code_order import disorder
from tensorlang.lowering.instances import check_instances
from tensorlang.lowering.read_back import runs_of
from tensorlang.lowering.runs import Run
from tensorlang.polyhedral.legality import violations
from tensorlang.polyhedral.statement import Access, Role, Scop, Statement

_ZERO = Const(0, INDEX)


def check_implemented(kernel: Kernel, scop: Scop, parts: frozenset[tuple[int, int]], order: bool = True) -> None:
    """Raise InternalError unless a kernel runs the instances of `scop`, each once, in a legal order.

    `parts` are the statements, by number, and their parts that leaves had when they were made (`parts_of`).
    `order=False` leaves out the order, which costs most.
    """
    runs = runs_of(kernel)
    by_part: dict[tuple[int, int], list[Run]] = {}
    for run in runs:
        by_part.setdefault((run.statement, run.part), []).append(run)
    for k, statement in enumerate(scop.statements):
        if statement.role is Role.PREFETCH:
            continue
        wanted = [part for number, part in parts | by_part.keys() if number == k] or [0]
        for part in sorted(wanted):
            check_instances(statement, by_part.get((k, part), []), scop)
    found = disorder([run for run in runs if run.part == 0], scop)
    if found is not None:
        import os
        with open("/tmp/disorder.log","a") as f:
            print("DISORDER", os.environ.get("PYTEST_CURRENT_TEST"), kernel.name, file=f)
            for r in found: print("  ", scop.statements[r.statement].name, scop.statements[r.statement].time, [str(v) for v in r.values], r.time, [str(c) for c in r.conditions], r.unordered, r.lanes, sorted(scop.unordered), file=f)
        _check_order(scop, [run for run in runs if run.part == 0])


def parts_of(kernel: Kernel) -> frozenset[tuple[int, int]]:
    """The statements that leaves run, by number, and the parts of them."""
    return frozenset((run.statement, run.part) for s in walk(kernel.body) for run in getattr(s, "runs", ()))


def _check_order(scop: Scop, runs: Sequence[Run]) -> None:
    """The dependences of the generated order, its parallel loops and lanes included."""
    width = {a.array: len(a.version) for s in scop.statements for a in (*s.writes, *s.reads)}
    arrays = tuple(replace(a, shape=(_ZERO,) * width.get(a.name, 0) + a.shape) for a in scop.arrays)
    statements = tuple(_as_run(scop.statements[r.statement], r, k) for k, r in enumerate(runs))
    unordered = frozenset(_unique(name, k) for k, r in enumerate(runs) for name in r.unordered)
    gathered = frozenset(_unique(name, k) for k, r in enumerate(runs) for name in r.gathered)
    checked = Scop(statements, arrays, scop.sizes, unordered, scop.declared, atomic=scop.atomic, gathered=gathered)
    broken = violations(checked)
    if broken:
        raise InternalError(f"the generated order breaks a {broken[0].kind} dependence through {broken[0].array}")


def _unique(name: str, run: int) -> str:
    return f"{name}#{run}"


def _as_run(statement: Statement, run: Run, number: int) -> Statement:
    """A statement with the loops, the guards and the time that it has in the generated code."""
    rename: dict[str, Expr] = {name: Var(_unique(name, number), INDEX) for name in run.loops}
    values = [substitute(v, rename) for v in run.values]
    env = dict(zip(statement.loops, values, strict=True))

    def moved(access: Access) -> Access:
        version = tuple(env[v] for v in access.version)
        index = None if access.index is None else (*version, *(substitute(i, env) for i in access.index))
        conditions = tuple(substitute(c, env) for c in access.conditions)
        origin = tuple(substitute(o, env) for o in access.origin)
        return replace(access, index=index, version=(), conditions=conditions, origin=origin)

    return Statement(
        f"{statement.name}#{number}",
        statement.stage,
        statement.role,
        tuple(_unique(name, number) for name in run.loops),
        tuple(substitute(c, rename) for c in run.conditions),
        tuple((axis, substitute(value, env)) for axis, value in statement.point),
        tuple(moved(a) for a in statement.writes),
        tuple(moved(a) for a in statement.reads),
        tuple(p if isinstance(p, int) else _unique(p, number) for p in run.time),
        tuple(_unique(name, number) for name in run.lanes),
        statement.source,
        placing=tuple(substitute(c, rename) for c in run.conditions),
    )
