"""Random conditions that divide loops: remainders, quotients, and sums of loops that equal another.

They tell apart the instances of checkerboards, of colours, of tiles that follow single elements. Needs the `test` extra
(hypothesis).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensorlang import te
from tensorlang.errors import MissingDependency
from tensorlang.ir.expr import Buffer, Const, Expr, Load, Var, cast
from tensorlang.ir.stmt import INDEX, For, If, LoopKind, Seq, Stmt, Store
from tensorlang.te.operation import HybridOp
from tensorlang.testing.ordered_programs import SIZE, OrderedCase

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise MissingDependency("random programs need hypothesis: pip install 'tensorlang[test]'") from error

Pick = Callable[[Sequence[Any]], Any]
DIVISORS = (2, 2, 3, 4, 5)
FACTORS = (2, 3, 4)
EXTENTS = (2, 2, 3, 4, 4, 5, 8)
KINDS = (
    "rest",
    "rest",
    "class",
    "class",
    "class",
    "colour",
    "colour",
    "colour",
    "rests",
    "part",
    "parts",
    "sum",
    "digit",
)


@st.composite
def boards(draw: Callable[[Any], Any]) -> OrderedCase:
    """Draw two to four loops, of any size or up to eight iterations, around one or two updates of some elements each.

    Updates add what tells their instances apart. They are of an element of their own in each iteration, or also in turn
    of one that several iterations update.
    """

    def pick(options: Sequence[Any]) -> Any:
        return draw(st.sampled_from(list(options)))

    n = te.var(SIZE)
    extents = tuple(pick((n, *EXTENTS, *EXTENTS)) for _ in range(pick((2, 2, 3, 3, 4))))
    axes = tuple(Var(f"l{k}", INDEX) for k in range(len(extents)))
    held = te.placeholder(extents, "int32", name="A")
    array = Buffer("P", held.shape, "int32")
    number = sum((axis * 10**k for k, axis in enumerate(axes)), Const(1, INDEX))
    index = tuple(pick((axis,) * 8 + (Const(0, INDEX),)) for axis in axes)
    update: Stmt = Store(array, index, Load(array, index) * 3 + cast(number, "int32"))
    guarded = [If(divided_condition(pick, axes), update) for _ in range(pick((1, 1, 2)))]
    body: Stmt = Seq(tuple(guarded)) if len(guarded) > 1 else guarded[0]
    for axis, size in reversed(tuple(zip(axes, extents, strict=True))):
        body = For(axis, Const(0, INDEX), cast(size, INDEX) if size is n else Const(size, INDEX), LoopKind.SERIAL, body)
    made = HybridOp("P", (array,), body, (held,))
    sizes = tuple({SIZE: value} for value in (7, 0, 1, 4, 10)) if n in extents else ({},)
    return OrderedCase((held,), (made.output(0),), sizes)


def divided_condition(pick: Pick, loops: Sequence[Expr]) -> Expr:
    """One condition, or two together, on integer loops; `pick` draws one of some options."""
    first = _single(pick, loops)
    match pick(("one", "one", "one", "both", "either")):
        case "both":
            return te.all(first, _single(pick, loops))
        case "either":
            return te.any(first, _single(pick, loops))
    return first


def _single(pick: Pick, loops: Sequence[Expr]) -> Expr:
    divisor, other = pick(DIVISORS), pick(DIVISORS)
    left = _total(pick, loops)
    right = _total(pick, [loop for loop in loops if loop is not left] or loops)
    match pick(KINDS):
        case "rest":
            return _compared(pick, left % divisor, pick(range(divisor)))
        case "class":
            return _compared(pick, left % divisor, right)
        case "rests":
            return _compared(pick, left % divisor, right % other)
        case "colour":
            return _compared(pick, left % divisor, right // other)
        case "part":
            return _compared(pick, left // divisor, pick(range(3)))
        case "parts":
            return _compared(pick, left // divisor, right // other)
        case "sum":
            return _compared(pick, left, right)
    return _compared(pick, left // divisor % other, pick(range(other)))


def _total(pick: Pick, loops: Sequence[Expr]) -> Expr:
    """A loop, or a sum of multiples of some."""
    total: Expr = pick(loops)
    for _ in range(pick((0, 0, 0, 0, 1, 2))):
        total = pick(FACTORS) * total + pick(loops)
    return total


def _compared(pick: Pick, a: Expr, b: Any) -> Expr:
    """Mostly equal: that is where loops have strides."""
    made: Expr = pick((a == b, a == b, a == b, a == b, a <= b, a != b))
    return made
