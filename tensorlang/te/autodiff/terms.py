"""The derivative of one expression: what each element that it reads gets of the adjoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tensorlang import dtypes
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import COMPARE, Binary, Call, Cast, Expr, Select, Unary, cast, same
from tensorlang.location import caller
from tensorlang.te.autodiff import partials
from tensorlang.te.operation import Read, Reduce, Tensor


@dataclass(frozen=True, slots=True)
class Term:
    """`adjoint` goes to the element `read`, where all conditions hold; each is evaluated where those before hold."""

    read: Read
    adjoint: Expr
    conditions: tuple[Expr, ...]


def value_reads(expr: Expr) -> Iterator[Read]:
    """The reads that a value is computed from: not those of indices and conditions."""
    if isinstance(expr, Read):
        yield expr
        return
    match expr:
        case Reduce():
            parts = (*expr.sources, *expr.init)
        case Select():
            parts = (expr.then, expr.orelse)
        case _:
            parts = () if expr.dtype == "bool" else expr.children()
    for part in parts:
        yield from value_reads(part)


def terms(value: Expr, adjoint: Expr, conditions: tuple[Expr, ...], wanted: Callable[[Tensor], bool]) -> list[Term]:
    """The terms of a value, free of reductions, whose own adjoint is given, for the reads of wanted tensors.

    Terms of one element under the same conditions are added up.
    """
    found: list[Term] = []
    for term in _terms(value, adjoint, conditions, wanted):
        twin = next((n for n, other in enumerate(found) if _alike(other, term)), None)
        if twin is None:
            found.append(term)
        else:
            found[twin] = replace(term, adjoint=_sum(found[twin].adjoint, term.adjoint))
    return found


def _sum(a: Expr, b: Expr) -> Expr:
    """a + b, added before both are rounded to a narrower dtype."""
    if isinstance(a, Cast) and isinstance(b, Cast) and a.value.dtype == b.value.dtype:
        return cast(a.value + b.value, a.dtype)
    return a + b


def _alike(a: Term, b: Term) -> bool:
    pairs = zip(a.conditions, b.conditions, strict=False)
    return len(a.conditions) == len(b.conditions) and same(a.read, b.read) and all(same(x, y) for x, y in pairs)


def _terms(node: Expr, adjoint: Expr, conditions: tuple[Expr, ...], wanted: Callable[[Tensor], bool]) -> Iterator[Term]:
    if not any(wanted(read.tensor) for read in value_reads(node)):
        return
    match node:
        case Read():
            yield Term(node, adjoint, conditions)
        case Cast() if dtypes.info(node.value.dtype).is_float:
            if dtypes.info(node.dtype).is_float:
                yield from _terms(node.value, cast(adjoint, node.value.dtype), conditions, wanted)
        case Cast():
            _refuse_integers(node, wanted)
        case Unary(op="neg"):
            yield from _terms(node.a, partials.negated(adjoint), conditions, wanted)
        case Select() | Binary(op="min" | "max"):
            for part, condition in partials.of_choice(node):
                yield from _terms(part, adjoint, (*conditions, condition), wanted)
        case Binary() | Call():
            factors = partials.of_binary(node) if isinstance(node, Binary) else partials.of_call(node)
            for part, factor in zip(node.children(), factors, strict=True):
                if factor is not None:
                    yield from _terms(part, partials.times(adjoint, factor), conditions, wanted)


def _refuse_integers(node: Cast, wanted: Callable[[Tensor], bool]) -> None:
    """A float made of integers is constant, if those are made here; an integer tensor on the way is not meant so."""
    for read in value_reads(node.value):
        if wanted(read.tensor) and dtypes.info(read.dtype).is_integer:
            raise DefinitionError(
                f"{read.tensor.name} of dtype {read.dtype} lies between the output and an input of te.gradient, and "
                "integers have no derivative; compute it in a float dtype, or leave out the inputs behind it",
                caller(),
            )


def conjuncts(condition: Expr, truth: bool = True) -> Iterator[Expr]:
    """The conditions that all hold if `condition` is `truth`, in order."""
    match condition:
        case Unary(op="not"):
            yield from conjuncts(condition.a, not truth)
        case Binary(op="and" | "or") if (condition.op == "and") == truth:
            yield from conjuncts(condition.a, truth)
            yield from conjuncts(condition.b, truth)
        case Binary() if not truth and condition.op in COMPARE and not dtypes.info(condition.a.dtype).is_float:
            yield Binary(_OPPOSITE[condition.op], condition.a, condition.b, "bool")
        case _:
            yield condition if truth else Unary("not", condition, "bool")


_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
