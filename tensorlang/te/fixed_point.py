"""Products with fixed-point numbers, rounded to the nearest one, as quantized programs write them."""

from __future__ import annotations

from tensorlang.ir.expr import Expr, ExprLike, as_expr, cast
from tensorlang.te.math import maximum, select


def q_multiply_shift(x: Expr, y: ExprLike, q: ExprLike, s: ExprLike) -> Expr:
    """Return `x * y * 2**(s - q)` in the dtype of `x`, rounded to the nearest integer, halves up.

    `y` is a number with q fractional bits. The product has 64 bits: `x` is shifted to the left by s before, or the
    product to the right by -s.

        >>> from tensorlang import te, tir
        >>> A = te.placeholder((3,), "int32", "A")
        >>> te.evaluate(lambda A: te.compute((3,), lambda i: tir.q_multiply_shift(A[i], 1 << 30, 31, 1)), [1, 5, -7])
        array([ 1,  5, -7], dtype=int32)
    """
    shift = cast(as_expr(s), "int64")
    return q_multiply_shift_per_axis(x, y, maximum(shift, 0), maximum(-shift, 0), q, True, True)


def q_multiply_shift_per_axis(
    x: Expr,
    y: ExprLike,
    ls: ExprLike,
    rs: ExprLike,
    q: ExprLike,
    is_lshift_required: ExprLike,
    is_rshift_required: ExprLike,
) -> Expr:
    """Return `x * 2**ls * y * 2**(-q - rs)` in the dtype of `x`, rounded to the nearest integer, halves up.

    A shift counts where it is required. The product has 64 bits.
    """
    left, right = (
        select(as_expr(required), cast(as_expr(shift), "int64"), as_expr(0, "int64"))
        for required, shift in ((is_lshift_required, ls), (is_rshift_required, rs))
    )
    places = cast(as_expr(q), "int64") + right
    product = (cast(x, "int64") << left) * cast(as_expr(y), "int64")
    return cast((product + (as_expr(1, "int64") << (places - 1))) >> places, x.dtype)
