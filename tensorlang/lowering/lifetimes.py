"""Arrays live as long as what was proven takes them to: what is stored is there when it is read.

The proof tells the elements of an array apart by the iterations of the loops in which it is new (its `version`), and by
their index. Code may make it anew in iterations of a loop that touch no element in common, and in no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from tensorlang.errors import InternalError
from tensorlang.ir.expr import Expr, substitute, variables
from tensorlang.lowering.read_back import unknowns
from tensorlang.lowering.runs import Run
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, dims
from tensorlang.polyhedral.rows import NotLinear, Rows
from tensorlang.polyhedral.statement import Access, Scop

_MOST = 1_000_000
"""Operations of isl for an array; what takes more is left to the tests."""


def check_lifetimes(runs: Iterable[Run], scop: Scop) -> None:
    """Raise InternalError where an array is made anew in iterations of the code that have to share it."""
    users: dict[tuple[str, tuple[str, ...]], list[Run]] = {}
    for run in runs:
        for made in run.allocated:
            users.setdefault(made, []).append(run)
    for (array, loops), found in users.items():
        touched = [(run, access) for run in found for access in _accesses(run, array, scop)]
        if all(_names(_version(run, access, scop)).issuperset(loops) for run, access in touched):
            continue
        if isl.attempt(_MOST, partial(_are_shared, touched, loops, scop)):
            raise InternalError(
                f"the generated code makes {array} anew in iterations of {', '.join(loops)} that share it"
            )


def _accesses(run: Run, array: str, scop: Scop) -> Iterator[Access]:
    statement = scop.statements[run.statement]
    for access in (*statement.writes, *statement.reads):
        if access.array == array and (access.version or access.index is not None):
            yield access


def _version(run: Run, access: Access, scop: Scop) -> tuple[Expr, ...]:
    """The iteration of the loops in which an array is new."""
    values = dict(zip(scop.statements[run.statement].loops, run.values, strict=True))
    return tuple(values[name] for name in access.version)


def _names(exprs: Iterable[Expr]) -> set[str]:
    """The names in some expressions."""
    return {name for expr in exprs for name in variables(expr)}


def _are_shared(touched: Sequence[tuple[Run, Access]], loops: Sequence[str], scop: Scop) -> bool:
    """Whether one element is touched in several iterations of loops, as isl sees it."""
    namer = Namer(scop.sizes | unknowns(run for run, _ in touched))
    made = [_iterations(run, access, loops, scop, namer) for run, access in touched]
    seen = [piece for piece in made if piece is not None]
    return len(seen) == len(made) and not isl.union_of(seen).is_single_valued()


def _iterations(run: Run, access: Access, loops: Sequence[str], scop: Scop, namer: Namer) -> isl.Map | None:
    """The elements of an access -> the iterations of loops in which they are touched; None where isl sees none."""
    values = dict(zip(scop.statements[run.statement].loops, run.values, strict=True))
    element = (*_version(run, access, scop), *(substitute(i, values) for i in access.index or ()))
    names = dims(run.loops)
    rows = Rows(names, namer)
    rows.require(run.conditions)
    for k, value in enumerate(element):
        try:
            form = rows.form(value)
        except NotLinear:
            return None
        if form is None:
            return None
        rows.equate(f"v{k}", form)
    if not rows.exact:
        return None
    made = rows.make(list(names.values()), [f"v{k}" for k in range(len(element))])
    for k in reversed(range(len(run.loops))):
        if run.loops[k] not in loops:
            made = made.project_out(isl.DIM.in_, k, 1)
    return made.reverse()
