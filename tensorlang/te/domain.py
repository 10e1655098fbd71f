"""Shapes, symbolic sizes and ranges: the integers that a program is declared over."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang import dtypes
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const, Expr, ExprLike, Load, Var, as_expr, walk
from tensorlang.ir.thread_tags import BLOCKS, THREADS, VIRTUAL
from tensorlang.location import caller
from tensorlang.te.axis import ZERO, Axis, AxisKind, Range
from tensorlang.te.check import check_axis_name
from tensorlang.te.operation import Read, Reduce, constant

INDEX_DTYPES = ("int32", "int64")
"""What sizes are counted in."""


def size_var(name: str = "size", dtype: str = "int32") -> Var:
    """Return a symbolic size of dtype int32 or int64, as `te.var` does; every size of tensorlang is non-negative.

    >>> from tensorlang import te
    >>> n = te.size_var("n", "int64")
    >>> n.dtype
    'int64'
    """
    name, index = check_axis_name("size", name), dtypes.canonical(dtype)
    if index not in INDEX_DTYPES:
        raise DefinitionError(f"te.size_var {name!r} is a size: its dtype is int32 or int64, got {dtype}", caller())
    return Var(name, index)


def integer(value: Any, what: str, of_data: bool = False) -> Expr:
    """Return a size, or a bound, as an integer expression over symbolic sizes; `what` begins the error text.

    A float that is whole counts: classic programs write `N / 32` of Python ints. `of_data`: it may read tensors.
    """
    if isinstance(value, float) and value.is_integer():
        return constant(int(value))
    if isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_):
        return constant(int(value))
    if isinstance(value, bool | float | str | np.generic | np.ndarray) or value is None:
        raise DefinitionError(f"{what} must be an integer, got {value!r}; {_instead(value)}", caller())
    expr = as_expr(value)
    if isinstance(expr, Const) and dtypes.info(expr.dtype).is_integer:
        return constant(int(expr.value))  # an extent of 4 is one, whatever dtype it was written in
    if expr.dtype not in INDEX_DTYPES:
        raise DefinitionError(f"{what} must be int32 or int64, got {expr} of dtype {expr.dtype}", caller())
    for node in walk(expr):
        if isinstance(node, Reduce | Load) or (isinstance(node, Read) and not of_data):
            raise DefinitionError(
                f"{what} must not read a tensor, got {expr}; sizes are known before a kernel runs", caller()
            )
    return expr


def _instead(value: Any) -> str:
    """What to give in place of what is no integer."""
    match value:
        case str() if value.isidentifier():
            return f"te.var({value!r}) is a size of that name"
        case str():
            return "give the number, or a size by te.var"
        case float() | np.floating():
            return "make it one by int(...) or //"
        case np.ndarray():
            return "give the shape of the array, as in a.shape"
    return "give a number, or a size by te.var"


def shape_of(shape: Any, name: str) -> tuple[Expr, ...]:
    """Return a shape as expressions. An int or an expression alone is one dimension. Zero extents are allowed."""
    parts = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    extents = tuple(integer(p, f"extent {n} of {name}") for n, p in enumerate(parts))
    for n, extent in enumerate(extents):
        if isinstance(extent, Const) and extent.value < 0:
            raise DefinitionError(f"extent {n} of {name} is {extent.value}; extents are zero or more", caller())
    return extents


def reduce_axis(dom: Range | tuple[ExprLike, ExprLike] | list[ExprLike], name: str = "rv") -> Axis:
    """Return a reduction axis over `lower <= name < upper`, where `dom` is (lower, upper) or a Range.

    The name is the axis's identity: the reduce axes and the axes of one operation all have different names. The upper
    bound may be data, as where the rows of a sparse matrix end; then an array that is read along the axis limits it.

        >>> from tensorlang import te
        >>> te.reduce_axis((0, 8), "k")
        k[0, 8)
    """
    name = check_axis_name("reduce axis", name)
    lower, extent = _bounds(dom, f"reduce axis {name}", of_data=True)
    if isinstance(extent, Const) and extent.value < 0:
        raise DefinitionError(f"reduce axis {name} has the range {dom}, which ends before it begins", caller())
    return Axis(name, extent, AxisKind.REDUCE, lower)


def _bounds(dom: Any, what: str, of_data: bool = False) -> tuple[Expr, Expr]:
    if isinstance(dom, Range):
        return integer(dom.min, f"the minimum of {what}"), integer(dom.extent, f"the extent of {what}", of_data)
    if not isinstance(dom, tuple | list) or len(dom) != 2:
        usual = "as in te.reduce_axis((0, 16))"
        raise DefinitionError(f"the range of {what} must be (lower, upper), got {dom!r}; {usual}", caller())
    lower, upper = integer(dom[0], f"the lower bound of {what}"), integer(dom[1], f"the upper bound of {what}", of_data)
    return lower, upper - lower


_TAGS = (VIRTUAL, *BLOCKS, *THREADS)


def thread_axis(dom: Any = None, tag: str = "", name: str = "") -> Axis:
    """Return a thread axis to bind loops to. `tag` is blockIdx.x ... threadIdx.z, or vthread.

    `te.thread_axis("threadIdx.x")` works as well. Without a range (`dom`: an extent, or (0, extent)) the
    extent is 0 here, and that of the loop once bound.

        >>> from tensorlang import te
        >>> te.thread_axis("threadIdx.x").name
        'threadIdx.x'
    """
    if isinstance(dom, str):
        dom, tag = None, dom
    if tag not in _TAGS:
        raise DefinitionError(f"unknown thread tag {tag!r}; known: {', '.join(_TAGS)}", caller())
    label = name or tag
    if dom is None:
        return Axis(label, ZERO, AxisKind.THREAD, thread=tag)
    pair = dom if isinstance(dom, tuple | list | Range) else (0, dom)
    lower, extent = _bounds(pair, f"thread axis {label}")
    return Axis(label, extent, AxisKind.THREAD, lower, tag)
