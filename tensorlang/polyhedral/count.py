"""How many instances a statement has, and at how many points of its own axes, for sizes given as numbers."""

from __future__ import annotations

from collections.abc import Mapping

from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, conditions_text, dims, index_text, with_sizes
from tensorlang.polyhedral.statement import Scop, Statement


def instances(statement: Statement, scop: Scop, sizes: Mapping[str, int]) -> int:
    """The number of runs of a statement; isl enumerates them, so mind the budget."""
    return isl.number(_domain(statement, scop, sizes).count_val())


def points(statement: Statement, scop: Scop, sizes: Mapping[str, int]) -> int:
    """The number of different points, in the axes of its operation, at which a statement runs."""
    names, namer = dims(statement.loops), Namer(scop.sizes)
    values = [index_text(with_sizes(value, sizes), names, namer) for _, value in statement.point]
    if any(v is None for v in values):
        return instances(statement, scop, sizes)
    to_point = isl.make_map(f"{{ [{', '.join(names.values())}] -> [{', '.join(map(str, values))}] }}")
    return isl.number(_domain(statement, scop, sizes).apply(to_point).count_val())


def _domain(statement: Statement, scop: Scop, sizes: Mapping[str, int]) -> isl.Set:
    names, namer = dims(statement.loops), Namer(scop.sizes)
    where, _ = conditions_text([with_sizes(c, sizes) for c in statement.domain], names, namer)
    return isl.make_set(f"{namer.prefix()}{{ [{', '.join(names.values())}] : {where} }}")
