"""Numbers in shapes, and stages on the way to an output, in the words of `topi.utils`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError, shown
from tensorlang.ir.expr import Const, Expr, ExprLike, as_expr
from tensorlang.location import caller
from tensorlang.names import lookup
from tensorlang.schedule import Schedule
from tensorlang.target import Target
from tensorlang.te.operation import ComputeOp, Operation, PlaceholderOp, Tensor
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


def get_pad_tuple1d(padding: Padding, kernel: Sequence[int]) -> tuple[int, int]:
    """Return padding before and behind a line, as get_pad_tuple."""
    (before,), (behind,) = around("padding", padding, [n - 1 for n in get_const_tuple(kernel)])
    return before, behind


def get_pad_tuple3d(padding: Padding, kernel: Sequence[int]) -> tuple[int, int, int, int, int, int]:
    """Return padding in front, above, to the left, behind, below and to the right, as get_pad_tuple."""
    (front, top, left), (back, bottom, right) = around("padding", padding, [n - 1 for n in get_const_tuple(kernel)])
    return front, top, left, back, bottom, right


def get_pad_tuple_generic(padding: Padding, kernel: Sequence[int]) -> list[list[int]]:
    """Return padding before and behind each axis, of any number of them."""
    before, behind = around("padding", padding, [n - 1 for n in get_const_tuple(kernel)])
    return [list(before), list(behind)]


def get_float_tuple(in_tuple: Sequence[float | Expr]) -> tuple[float, ...]:
    """Return the numbers that expressions are; DefinitionError for any other."""
    return tuple(map(get_const_float, in_tuple))


def ceil_div(a: int | Expr, b: int | Expr) -> Any:
    """Return the quotient, rounded up."""
    return (a + (b - 1)) // b


def swap(arr: Sequence[Any], axis: int) -> list[Any]:
    """Return a list whose last item and the one at a place are exchanged."""
    made = list(arr)
    made[axis], made[-1] = made[-1], made[axis]
    return made


def ravel_index(indices: Sequence[int | Expr], shape: Sequence[int | Expr]) -> Any:
    """Return the place of an index in a flattened tensor; None without dimensions."""
    place: Any = None
    for index, extent in zip(indices, shape, strict=True):
        place = index if place is None else place * extent + index
    return place


def unravel_index(idx: int | Expr, shape: Sequence[int | Expr]) -> list[Any]:
    """Return the index of a place in a flattened tensor."""
    rest: Any = idx
    found = list[Any]()
    for extent in reversed(shape):
        found.insert(0, rest % extent)
        rest = rest // extent
    return found


def get_shape(src_shape: Sequence[int | Expr], src_layout: str, dst_layout: str) -> tuple[Any, ...]:
    """Return a shape in the order of another layout of the same letters and blocks; DefinitionError for others."""
    source, wanted = ([*re.findall(r"\d*[a-z]|[A-Z]", text)] for text in (src_layout, dst_layout))
    if sorted(source) != sorted(wanted) or len(src_shape) != len(source):
        raise DefinitionError(f"{src_layout} and {dst_layout} are no orders of the {len(src_shape)} axes", caller())
    return get_const_tuple([src_shape[source.index(letter)] for letter in wanted])


def nchw_pack_layout(layout_info: str) -> bool:
    """Return whether a layout has images and channels in blocks, as NCHW4n4c."""
    return re.fullmatch(r"NCHW\d+n\d+c", layout_info) is not None


def nchw_xc_layout(layout_info: str) -> bool:
    """Return whether a layout has channels in blocks, as NCHW16c."""
    return re.fullmatch(r"NCHW\d+c", layout_info) is not None


def within_index(b: ExprLike, e: ExprLike, s: ExprLike, i: ExprLike) -> Expr:
    """Return whether `i` is an index of the slice `b:e:s`; the step goes on, or back."""
    begin, end, step, index = map(as_expr, (b, e, s, i))
    back = step < 0
    inside = te.select(back, te.all(index <= begin, index > end), te.all(index >= begin, index < end))
    return te.all(inside, te.truncmod(index - begin, step).equal(0))


def make_idx(b: ExprLike, e: ExprLike, s: ExprLike, z: ExprLike, i: ExprLike) -> Expr:
    """Return the number of `i` in the slice `b:e:s` of `z` elements, where `within_index` says that it is in it."""
    del e
    begin, step, extent, index = map(as_expr, (b, s, z, i))
    first = te.select(extent < begin, extent - 1, begin)
    return te.floordiv(te.select(step < 0, first - index, index - first), te.abs(step))


def const_matrix(
    matrix: npt.NDArray[Any], name: str = "const_matrix", attrs: Mapping[str, Any] | None = None
) -> Tensor:
    """Return a tensor of the numbers of a matrix, which are part of the program."""
    del attrs  # of TVM's schedules
    return _table(np.asarray(matrix), name)


def const_vector(vector: npt.NDArray[Any], name: str = "const_vector") -> Tensor:
    """Return a tensor of the numbers of a vector, which are part of the program."""
    return _table(np.asarray(vector), name)


def _table(numbers: npt.NDArray[Any], name: str) -> Tensor:
    dtype = dtypes.canonical(numbers.dtype)

    def element(*i: Expr) -> Expr:
        made: Expr = te.const(0, dtype)
        for place in np.ndindex(*numbers.shape):
            here = [k.equal(n) for k, n in zip(i, place, strict=True)]
            made = te.select(te.all(*here), te.const(numbers[place].item(), dtype), made)
        return made

    made = te.compute(numbers.shape, element, name=name)
    assert isinstance(made, Tensor)
    return made


def is_dynamic_shape(shape: Sequence[int | Expr]) -> bool:
    """Return whether an extent is passed with the call."""
    return any(not isinstance(n, int | Const) for n in shape)


def is_target(names: str | Sequence[str]) -> bool:
    """Return whether the current target has one of these names or keys."""
    target = Target.current(allow_none=True)
    wanted = [names] if isinstance(names, str) else names
    return target is not None and any(name in (str(target.kind), *target.keys) for name in wanted)


class InvalidShapeError(ValueError):
    """What programs raise for shapes that an operator does not take."""


def traverse_inline(s: Schedule, final_op: Operation, callback: Callable[[Any], object]) -> None:
    """Inline what only maps elements on the way to an output, but for outputs, and call `callback` for each operation.

    That is what has no reduction, and no tag or one of a map (`elemwise`, `broadcast`, `injective`). What other
    operations read is left alone. Readers come before what they read is inlined, and are called for after it.
    """
    outputs, seen = s.outputs, set[int]()

    def visit(op: Any) -> None:
        seen.add(id(op))
        if _is_map(op) and op not in outputs:
            s[op].compute_inline()
        for tensor in op.input_tensors if _is_map(op) else ():
            if not isinstance(tensor.op, PlaceholderOp) and id(tensor.op) not in seen:
                visit(tensor.op)
        callback(op)

    visit(final_op)


def _is_map(op: Any) -> bool:
    plain = isinstance(op, ComputeOp) and not op.reduce_axis
    return plain and (not op.tag or any(word in op.tag for word in ("elemwise", "broadcast", "injective")))


def __getattr__(name: str) -> Any:
    return lookup(__name__, name)
