"""The derivative of one expression: what each element that it reads gets of the adjoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Binary, Call, Cast, Expr, Select, Unary, cast, same
from tensorlang.ir.operators import COMPARE
from tensorlang.ir.traverse import children_first
from tensorlang.location import caller
from tensorlang.te.autodiff import partials
from tensorlang.te.check import check_length
from tensorlang.te.operation import Read, Reduce, Tensor


@dataclass(frozen=True, slots=True)
class Term:
    """`adjoint` goes to the element `read`, where all conditions hold; each is evaluated where those before hold."""

    read: Read
    adjoint: Expr
    conditions: tuple[Expr, ...]


def value_reads(expr: Expr) -> Iterator[Read]:
    """The reads that a value is computed from: not those of indices and conditions."""
    yield from (node for node in children_first(expr, None, _parts) if isinstance(node, Read))


def _parts(expr: Expr) -> tuple[Expr, ...]:
    """What a value is computed from."""
    match expr:
        case Read():
            return ()
        case Reduce():
            return (*expr.sources, *expr.init)
        case Select():
            return (expr.then, expr.orelse)
    return () if expr.dtype == "bool" else expr.children()


def terms(value: Expr, adjoint: Expr, conditions: tuple[Expr, ...], wanted: Callable[[Tensor], bool]) -> list[Term]:
    """The terms of a value, free of reductions, whose own adjoint is given, for the reads of wanted tensors.

    Terms of one element under the same conditions are added up.
    """
    found: list[Term] = []
    places: dict[tuple[int, ...], list[int]] = {}
    for term in _terms(value, adjoint, conditions, wanted):
        near = places.setdefault(tuple(map(hash, (term.read, *term.conditions))), [])
        twin = next((n for n in near if _alike(found[n], term)), None)
        if twin is None:
            near.append(len(found))
            found.append(term)
        else:
            found[twin] = replace(term, adjoint=_sum(found[twin].adjoint, term.adjoint))
    check_length("the derivative", [e for term in found for e in (term.adjoint, *term.conditions)], caller())
    return found


def _sum(a: Expr, b: Expr) -> Expr:
    """a + b, added before both are rounded to a narrower dtype."""
    if isinstance(a, Cast) and isinstance(b, Cast) and a.value.dtype == b.value.dtype:
        return cast(a.value + b.value, a.dtype)
    return a + b


def _alike(a: Term, b: Term) -> bool:
    pairs = zip(a.conditions, b.conditions, strict=False)
    return len(a.conditions) == len(b.conditions) and same(a.read, b.read) and all(same(x, y) for x, y in pairs)


def _terms(
    value: Expr, adjoint: Expr, conditions: tuple[Expr, ...], wanted: Callable[[Tensor], bool]
) -> Iterator[Term]:
    useful: set[int] = set()
    for node in children_first(value, None, _parts):
        if any(id(part) in useful for part in _parts(node)) or (isinstance(node, Read) and wanted(node.tensor)):
            useful.add(id(node))
    waiting = [(value, adjoint, conditions)]
    while waiting:
        node, given, held = waiting.pop()
        if id(node) not in useful:
            continue
        if isinstance(node, Read):
            yield Term(node, given, held)
        else:
            waiting += reversed(list(_below(node, given, held, wanted)))


def _below(
    node: Expr, adjoint: Expr, conditions: tuple[Expr, ...], wanted: Callable[[Tensor], bool]
) -> Iterator[tuple[Expr, Expr, tuple[Expr, ...]]]:
    """What the operands of a node get: the adjoint of each, and the conditions."""
    match node:
        case Cast() if dtypes.info(node.value.dtype).is_float:
            if dtypes.info(node.dtype).is_float:
                yield node.value, cast(adjoint, node.value.dtype), conditions
        case Cast():
            _refuse_integers(node, wanted)
        case Unary(op="neg"):
            yield node.a, partials.negated(adjoint), conditions
        case Select() | Binary(op="min" | "max"):
            for part, condition in partials.of_choice(node):
                yield part, adjoint, (*conditions, condition)
        case Call(name=name) if name.endswith("_of_bits"):
            raise DefinitionError(
                f"no derivative of bits that te.reinterpret takes as {node.dtype}, and that follow from an input of "
                "te.gradient; write it as arithmetic (te.abs, te.exp2, ...), or leave out that input",
                caller(),
            )
        case Binary() | Call():
            factors = partials.of_binary(node) if isinstance(node, Binary) else partials.of_call(node)
            for part, factor in zip(node.children(), factors, strict=True):
                if factor is not None:
                    yield part, partials.times(adjoint, factor), conditions


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
    waiting = [(condition, truth)]
    while waiting:
        part, holds = waiting.pop()
        match part:
            case Unary(op="not"):
                waiting.append((part.a, not holds))
            case Binary(op="and" | "or") if (part.op == "and") == holds:
                waiting += [(part.b, holds), (part.a, holds)]
            case Binary() if not holds and part.op in COMPARE and not dtypes.info(part.a.dtype).is_float:
                yield Binary(_OPPOSITE[part.op], part.a, part.b, "bool")
            case _:
                yield part if holds else Unary("not", part, "bool")


_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
