"""Stores read back: where a leaf stores is compared with the element that the instance it runs writes.

Plain stores of one instance only, in arrays that have the dimensions they were planned with: what passes over kernels
of a device make of their arrays is not compared, nor is an index that memory is read for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

from tensorlang.errors import InternalError
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Expr, Load, Var, binary, substitute, to_text, walk
from tensorlang.ir.stmt import INDEX, Kernel, Leaf, Stmt, Store, map_children
from tensorlang.ir.stmt import walk as statements
from tensorlang.lowering.read_back.reader import runs_of
from tensorlang.lowering.read_back.runs import Run
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, dims
from tensorlang.polyhedral.rows import NotLinear, Rows
from tensorlang.polyhedral.scan import LeafBuilder
from tensorlang.polyhedral.statement import Scop
from tensorlang.schedule.axis_range import simple

Element = tuple[str, tuple[Expr, ...]]
"""An array of a kernel and an index of it, of the loops of a statement."""


def check_stored(kernel: Kernel, scop: Scop, leaf: LeafBuilder) -> None:
    """Raise InternalError where a plain store is of another element than `leaf` writes for the instance it runs."""
    loops_of_all = {name: Var(name, INDEX) for statement in scop.statements for name in statement.loops}

    @cache
    def written(number: int) -> Mapping[int, Element]:
        return _written(leaf(number, loops_of_all))

    compared = replace(kernel, body=_with_indices(kernel.body, lambda number, part: written(number).get(part)))
    for run in runs_of(compared):
        loops = scop.statements[run.statement].loops
        values, index = run.values[: len(loops)], run.values[len(loops) :]
        at = dict(zip(loops, values, strict=True))
        array, element = written(run.statement)[run.part]
        wanted = tuple(simple(substitute(i, at)) for i in element)
        for have, want in zip(index, wanted, strict=True):
            if _differ(have, want, run, scop, at):
                texts = (f"{array}[{', '.join(map(to_text, i))}]" for i in (index, wanted))
                name = f"{scop.statements[run.statement].name}[{', '.join(map(to_text, values))}]"
                raise InternalError("the generated code of {} stores {}, and it is to store {}".format(name, *texts))


def _domain(scop: Scop, run: Run, at: Mapping[str, Expr]) -> tuple[Expr, ...]:
    """That an instance is one of the statement's: guards, which runs do not have, leave out all else."""
    return tuple(substitute(condition, at) for condition in scop.statements[run.statement].domain)


def _written(stmt: Stmt) -> Mapping[int, Element]:
    """The elements that the body of a statement stores, by the part of the instance, where no memory tells which."""
    stores = [s for s in statements(stmt) if isinstance(s, Store) and len(s.runs) == 1 and not s.runs[0].over]
    return {s.runs[0].part: (s.buffer.name, s.index) for s in stores if not any(map(_reads_memory, s.index))}


def _with_indices(stmt: Stmt, written: Callable[[int, int], Element | None]) -> Stmt:
    """A statement whose stores run their instances at values followed by their indices, and other leaves nothing."""
    if not isinstance(stmt, Leaf):
        return map_children(stmt, lambda s: _with_indices(s, written))
    if isinstance(stmt, Store) and len(stmt.runs) == 1 and not any(map(_reads_memory, stmt.index)):
        (run,) = stmt.runs
        element = None if run.over or run.combined else written(run.statement, run.part)
        if element is not None and (element[0], len(element[1])) == (stmt.buffer.name, len(stmt.index)):
            return replace(stmt, runs=(replace(run, values=(*run.values, *stmt.index)),))
    return replace(stmt, runs=())


def _reads_memory(expr: Expr) -> bool:
    return any(isinstance(node, Load) for node in walk(expr))


def _differ(have: Expr, want: Expr, run: Run, scop: Scop, at: Mapping[str, Expr]) -> bool:
    """Whether two indices are different numbers in some iteration; not where neither sums nor isl tell."""
    form = affine(simple(binary("sub", have, want)))
    if form is not None and not any(form.values()):
        return False
    possible = replace(run, conditions=(*run.conditions, *_domain(scop, run, at)))
    try:
        return _differ_somewhere(have, want, possible, Namer(scop.sizes))
    except (NotLinear, isl.BudgetExceeded):
        return False


def _differ_somewhere(have: Expr, want: Expr, run: Run, namer: Namer) -> bool:
    names = dims(run.loops)
    rows = Rows(names, namer, {names[loop]: (low, end - 1) for loop, (low, end, _) in run.bounds.items()})
    rows.require(run.conditions)
    difference = rows.form(binary("sub", have, want))
    if difference is None or not rows.exact:
        return False
    rows.equate("difference", difference)
    made = rows.make(list(names.values()), ["difference"])
    context = isl.make_set(f"{namer.prefix()}{{ : {namer.context()} }}")
    return not made.intersect_params(context).range().is_subset(isl.make_set("{ [0] }"))
