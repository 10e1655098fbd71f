"""The only importer of islpy: sets and maps from text, and the operation budget.

islpy's `==` is mathematical while its `hash` is structural: never key a dict by an isl object.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import islpy

Set: TypeAlias = Any
Map: TypeAlias = Any
PwAff: TypeAlias = Any
AstExpr: TypeAlias = Any
AstNode: TypeAlias = Any

DIM = islpy.dim_type
ExprType = islpy.ast_expr_type
NodeType = islpy.ast_node_type
OpType = islpy.ast_expr_op_type
AstBuild = islpy.AstBuild
Schedule = islpy.Schedule


# One iteration of a band stays in one place: a tile-local array lives no longer than the code around it.
islpy.DEFAULT_CONTEXT.set_ast_build_group_coscheduled(1)


class BudgetExceeded(Exception):
    """isl needed more operations than allowed."""


def make_set(text: str) -> Set:
    """Parse a set."""
    return islpy.Set(text)


def make_map(text: str) -> Map:
    """Parse a map."""
    return islpy.Map(text)


def lex_lt(dims: int) -> Map:
    """Vectors of `dims` entries -> lexicographically later ones."""
    return islpy.Map.lex_lt(islpy.Space.set_alloc(islpy.DEFAULT_CONTEXT, 0, dims))


def parse_schedule(text: str) -> Any:
    """Parse a schedule tree from its YAML text."""
    return islpy.Schedule.read_from_str(islpy.DEFAULT_CONTEXT, text)


def number(value: Any) -> int:
    """Return an isl integer value as int."""
    return int(value.to_python())


def plus(value: PwAff, number: int) -> PwAff:
    """Return a piecewise affine function with a number added."""
    return value.add_constant_val(islpy.Val(number))


@contextmanager
def budget(operations: int) -> Iterator[None]:
    """Bound the isl operations of a block; BudgetExceeded when it needs more. Nested blocks keep the outer bound."""
    context = islpy.DEFAULT_CONTEXT
    if context.get_max_operations():
        yield
        return
    context.reset_operations()
    context.set_max_operations(operations)
    try:
        yield
    except (islpy.Error, TypeError) as error:
        if _exhausted():
            raise BudgetExceeded(str(error)) from error
        raise
    finally:
        context.set_max_operations(0)
        context.reset_operations()


def _exhausted() -> bool:
    """True when even a small operation fails: what failed first may have told another story (a syntax error)."""
    try:
        islpy.Set("{ [i] : i = 0 }")
    except islpy.Error as probe:
        return "operations" in str(probe)
    return False
