"""Numbers in shapes, and stages on the way to an output, in the words of `topi.utils`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tensorlang.errors import DefinitionError, shown
from tensorlang.ir.expr import Const, Expr
from tensorlang.location import caller
from tensorlang.schedule import Schedule
from tensorlang.te.operation import ComputeOp, Operation, PlaceholderOp
from tensorlang.topi.windows import Padding, around


def get_const_int(expr: int | Expr) -> int:
    """Return the integer that an extent is; DefinitionError for a size that is passed."""
    value = expr.value if isinstance(expr, Const) else expr
    if isinstance(value, bool) or not isinstance(value, int):
        raise DefinitionError(f"expect a constant integer, got {shown(expr)}", caller())
    return value


def get_const_float(expr: float | Expr) -> float:
    """Return the number that an expression is; DefinitionError for any other."""
    value = expr.value if isinstance(expr, Const) else expr
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DefinitionError(f"expect a constant number, got {shown(expr)}", caller())
    return float(value)


def get_const_tuple(in_tuple: Sequence[int | Expr]) -> tuple[Any, ...]:
    """Return a shape as Python's integers; extents that are passed stay as they are."""
    return tuple(n.value if isinstance(n, Const) else n for n in in_tuple)


def equal_const_int(expr: Any, value: int) -> bool:
    """Return whether an expression is that integer; False for what is not known."""
    plain = expr.value if isinstance(expr, Const) else expr
    return isinstance(plain, int | float) and plain == value


def prod(x: Sequence[int | Expr]) -> Any:
    """Return the product of extents; 1 of none."""
    return math.prod(get_const_tuple(x))


def simplify(expr: Any) -> Any:
    """Return the number that an expression is, or the expression: it is simplified on the way to loops."""
    return expr.value if isinstance(expr, Const) else expr


def is_empty_shape(shape: Sequence[int | Expr]) -> bool:
    """Return whether a tensor of that shape has no elements."""
    return any(equal_const_int(n, 0) for n in shape)


def get_max_power2_factor(n: int, max_value: int | None = None) -> int:
    """Return the largest power of two that divides n, at most `max_value`."""
    factor = 1
    while n % (2 * factor) == 0 and (max_value is None or 2 * factor <= max_value):
        factor *= 2
    return factor


def get_pad_tuple(padding: Padding, kernel: Sequence[int]) -> tuple[int, int, int, int]:
    """Return padding above, to the left, below and to the right, of a number, of two or four, or of SAME or VALID."""
    (top, left), (bottom, right) = around("padding", padding, [n - 1 for n in get_const_tuple(kernel)])
    return top, left, bottom, right


def traverse_inline(s: Schedule, final_op: Operation, callback: Callable[[Any], object]) -> None:
    """Inline what only maps elements on the way to an output, but for outputs, and call `callback` for each operation.

    That is what has no reduction, and no tag or one of a map (`elemwise`, `broadcast`, `injective`). Readers come
    before what they read is inlined, and are called for after it.
    """
    outputs, seen = s.outputs, set[int]()

    def visit(op: Any) -> None:
        seen.add(id(op))
        if _is_map(op) and op not in outputs:
            s[op].compute_inline()
        for tensor in op.input_tensors:
            if not isinstance(tensor.op, PlaceholderOp) and id(tensor.op) not in seen:
                visit(tensor.op)
        callback(op)

    visit(final_op)


def _is_map(op: Any) -> bool:
    plain = isinstance(op, ComputeOp) and not op.reduce_axis
    return plain and (not op.tag or any(word in op.tag for word in ("elemwise", "broadcast", "injective")))
