"""Reductions: comm_reducer, and sum, prod, min, max, all, any, which also combine their operands directly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce
from inspect import signature
from typing import Any

from tensorlang.errors import DefinitionError, shown
from tensorlang.ir.expr import Const, Expr, ExprLike, Var, as_expr, binary, cast, const, rewrite
from tensorlang.ir.traverse import distinct
from tensorlang.location import caller
from tensorlang.te.axis import Axis, AxisKind
from tensorlang.te.limited import limited
from tensorlang.te.operation import Read, Reduce, Reducer, Tensor
from tensorlang.te.reducer import BUILTIN, builtin

Combine = Callable[[Any, Any], Any]
Reduction = Callable[..., Any]


def comm_reducer(fcombine: Combine, fidentity: Callable[..., Any], name: str = "reduce") -> Reduction:
    """Return a reduction function made from an associative, commutative combiner.

    `fcombine(x, y)` takes and returns elements, or tuples of elements; `fidentity(dtype, ...)` returns the neutral
    element, or a tuple of them. The result is called as `f(expr, axis=..., where=None, init=None)` with an
    expression or a tuple of expressions, and returns as many; or as `f(a, b, ...)` to combine elements directly.

        >>> from tensorlang import te
        >>> largest = te.comm_reducer(lambda x, y: te.maximum(te.abs(x), te.abs(y)), lambda t: te.const(0, t))
        >>> k = te.reduce_axis((0, 3), "k")
        >>> te.evaluate(lambda A: te.compute((), lambda: largest(A[k], axis=k)), [1, -5, 3])
        array(5, dtype=int32)
    """

    def reduction(expr: Any, *operands: Any, axis: Any = None, where: Any = None, init: Any = None) -> Any:
        operands, axis, where, init = _arguments(name, expr, operands, axis, where, init)
        if axis is None:
            return _directly(fcombine, name, [expr, *operands])
        several = isinstance(expr, tuple | list)
        sources = tuple(as_expr(e) for e in (expr if several else (expr,)))
        reducer = _define(name, fcombine, fidentity, tuple(s.dtype for s in sources), several)
        values = _reduce(reducer, sources, axis, where, init)
        return values if several else values[0]

    return _named(reduction, name)


def _named(reduction: Reduction, name: str) -> Reduction:
    """The function under its name, with the parameters that classic te has."""
    reduction.__name__ = reduction.__qualname__ = name
    setattr(reduction, "__signature__", signature(_classic))  # noqa: B010
    return reduction


def _classic(expr: Any, axis: Any = None, where: Any = None, init: Any = None, *rest: Any) -> Any:
    """The parameters of a reduction in classic te. What comes without a name may be an operand."""


def _are_axes(axis: Any) -> bool:
    return isinstance(axis, Axis | tuple | list)


def _arguments(
    name: str, expr: Any, operands: tuple[Any, ...], axis: Any, where: Any, init: Any
) -> tuple[tuple[Any, ...], Any, Any, Any]:
    """The operands, the axes, the condition and the start: the last three may come without their names.

    What is called as if it were a reduction of whole tensors is refused.
    """
    if axis is None and operands and (_are_axes(operands[0]) or isinstance(operands[0], str)):
        axis, *unnamed = operands
        where, init = (*unnamed, *(where, init)[len(unnamed) :])[:2]
        operands = ()
    operands = tuple(v for v in operands if v is not None)
    whole = isinstance(expr, Tensor) and expr.ndim
    if (axis is not None and (whole or not _are_axes(axis))) or (axis is None and whole and not operands):
        got = f"{shown(expr)}, axis {axis!r}"
        raise DefinitionError(f"{name} is of elements over reduce axes, got {got}: {_usage(name)}", caller())
    return operands, axis, where, init


def _directly(fcombine: Combine, name: str, values: list[Any]) -> Any:
    if len(values) < 2:
        raise DefinitionError(
            f"{name} needs axis=<reduce axis>, or two operands to combine directly: {_usage(name)}", caller()
        )
    result = values[0]
    for value in values[1:]:
        result = fcombine(result, value)
    return result


def _usage(name: str) -> str:
    return f"te.{name}(A[i, k], axis=k) over k = te.reduce_axis((0, n)), or of a whole tensor topi.{name}(A, axis=1)"


def _define(name: str, fcombine: Combine, fidentity: Any, types: tuple[str, ...], several: bool) -> Reducer:
    """The reducer for these element dtypes, after checking that the combiner is closed over them."""
    lhs, rhs = (tuple(Var(f"{side}{n}" if several else side, t) for n, t in enumerate(types)) for side in ("x", "y"))
    combined = fcombine(lhs, rhs) if several else fcombine(lhs[0], rhs[0])
    neutral = fidentity(*types)
    result = tuple(as_expr(r) for r in (combined if several else (combined,)))
    identity = tuple(neutral if several else (neutral,))
    if len(result) != len(types) or len(identity) != len(types):
        raise DefinitionError(
            f"reducer {name} combines {len(types)} elements, but its combiner gives {len(result)} "
            f"and its identity {len(identity)}",
            caller(),
        )
    for value, dtype in zip(result, types):
        if value.dtype != dtype:
            raise DefinitionError(f"reducer {name} combines {dtype} into {value.dtype} ({value}); cast it", caller())
        known = {v.name for v in (*lhs, *rhs)}
        for node in distinct(value):
            if isinstance(node, Read | Reduce) or (isinstance(node, Var) and node.name not in known):
                raise DefinitionError(f"the combiner of reducer {name} may use its operands only, got {node}", caller())
    starts = tuple(_literal(name, i, t) for i, t in zip(identity, types))
    return Reducer(name, lhs, rhs, result, starts)


def _literal(name: str, value: Any, dtype: str) -> Expr:
    expr = as_expr(value, dtype) if isinstance(value, bool | int | float) else as_expr(value)
    if not isinstance(expr, Const):
        raise DefinitionError(f"the identity of reducer {name} must be a constant, got {expr}", caller())
    return expr if expr.dtype == dtype else const(expr.value, dtype)


def _reduce(reducer: Reducer, sources: tuple[Expr, ...], axis: Any, where: Any, init: Any) -> tuple[Reduce, ...]:
    axes = (axis,) if isinstance(axis, Axis) else tuple(axis)
    _check_axes(reducer.name, axes)
    axes, renamed = _apart(axes)
    sources = tuple(rewrite(source, renamed) for source in sources)
    axes, ends, wrong = limited(axes, sources, is_whole=where is None)
    sources = tuple(rewrite(source, _own_variables(axes)) for source in sources)
    for source in sources:
        if any(isinstance(node, Reduce) for node in distinct(source)):
            raise DefinitionError(
                f"{reducer.name} over {source}: a reduction inside a reduction; reduce over both axes at once, "
                "or give the inner one its own te.compute",
                caller(),
            )
    condition = None if where is None else rewrite(as_expr(where), renamed)
    if condition is not None and condition.dtype != "bool":
        raise DefinitionError(f"where= of {reducer.name} must be a condition, got {condition}", caller())
    if ends:
        if condition is not None:
            ends.append(rewrite(reduce(partial(binary, "or"), wrong, condition), _own_variables(axes)))
        condition = reduce(partial(binary, "and"), ends)
    start = () if init is None else _start(reducer, sources, init, {a.name for a in axes})
    return tuple(Reduce(reducer, sources, axes, condition, n, source.dtype, start) for n, source in enumerate(sources))


def _check_axes(name: str, axes: tuple[Any, ...]) -> None:
    for axis in axes:
        if not isinstance(axis, Axis) or axis.kind is not AxisKind.REDUCE:
            raise DefinitionError(f"{name} runs over reduce axes, got {axis}; declare it with te.reduce_axis", caller())
    if not axes or len({id(a) for a in axes}) != len(axes):
        got = ", ".join(a.name for a in axes) or "none"
        raise DefinitionError(f"{name} needs one or several reduce axes, each once, got {got}", caller())


def _apart(axes: tuple[Axis, ...]) -> tuple[tuple[Axis, ...], Callable[[Expr], Expr | None]]:
    """Axes of different names, and what gives the variables of those that had one name their own."""
    taken = {a.name for a in axes}
    if len(taken) == len(axes):
        return axes, lambda node: None
    found: list[Axis] = []
    for axis in axes:
        if axis.name in {a.name for a in found}:
            name = next(n for k in range(1, len(axes) + 1) if (n := f"{axis.name}_{k}") not in taken)
            taken.add(name)
            found.append(replace(axis, name=name, declared=axis))
        else:
            found.append(axis)
    return tuple(found), _own_variables(tuple(found))


def _own_variables(axes: tuple[Axis, ...]) -> Callable[[Expr], Expr | None]:
    """What gives axes that stand for others, of the same name, their own variables."""
    own = {id(a.declared.var): a.var for a in axes if a.declared is not None}
    return lambda node: own.get(id(node))


def _start(reducer: Reducer, sources: tuple[Expr, ...], init: Any, axes: set[str]) -> tuple[Expr, ...]:
    parts = tuple(init) if isinstance(init, tuple | list) else (init,)
    if len(parts) != len(sources):
        raise DefinitionError(f"init= of {reducer.name} needs {len(sources)} values, got {len(parts)}", caller())
    result = []
    for part, source in zip(parts, sources):
        weak = isinstance(part, bool | int | float)
        value = as_expr(part, source.dtype) if weak else cast(part, source.dtype)
        used = {n.name for n in distinct(value) if isinstance(n, Var)} & axes
        if used or any(isinstance(n, Reduce) for n in distinct(value)):
            raise DefinitionError(
                f"init= of {reducer.name} is one value for the whole reduction, got {value}", caller()
            )
        result.append(value)
    return tuple(result)


def _builtin(name: str, expr: Any, axis: Any, where: Any, init: Any) -> Reduce:
    if isinstance(expr, tuple | list):
        raise DefinitionError(f"{name} reduces one expression; for a tuple define a te.comm_reducer", caller())
    source = as_expr(expr)
    if source.dtype == "bool" and name in ("sum", "prod"):
        source = cast(source, "int32")
    if name in ("all", "any") and source.dtype != "bool":
        raise DefinitionError(f"{name} needs conditions, got {source} of dtype {source.dtype}; compare first", caller())
    return _reduce(builtin(name, source.dtype), (source,), axis, where, init)[0]


def _arithmetic(name: str, doc: str, shown: str) -> Callable[..., Expr]:
    def reduction(expr: Any, *operands: Any, axis: Any = None, where: Any = None, init: Any = None) -> Expr:
        operands, axis, where, init = _arguments(name, expr, operands, axis, where, init)
        if axis is not None:
            return _builtin(name, expr, axis, where, init)
        result: Expr = _directly(BUILTIN[name][0], name, [expr, *operands])
        return result

    _named(reduction, name).__doc__ = (
        f"{doc} of `expr` over reduce axes, where `where` holds (everywhere), starting from `init`.\n\n"
        f"The result has the dtype of `expr` (int32 for the sum or product of bools). `{name}(a, b, ...)`, without\n"
        "an axis, combines the operands directly.\n\n"
        "    >>> from tensorlang import te\n"
        '    >>> k = te.reduce_axis((0, 3), "k")\n'
        f"    >>> te.evaluate(lambda A: te.compute((), lambda: te.{name}(A[k], axis=k)), [2, 5, 4])\n"
        f"    array({shown}, dtype=int32)\n"
    )
    return reduction


sum_ = _arithmetic("sum", "Sum", "11")
prod_ = _arithmetic("prod", "Product", "40")
max_ = _arithmetic("max", "Maximum (NaN if one is)", "5")
min_ = _arithmetic("min", "Minimum (NaN if one is)", "2")


def all_(*conditions: ExprLike, axis: Any = None, where: ExprLike | None = None, init: ExprLike | None = None) -> Expr:
    """Whether all conditions hold; with `axis`, whether the one condition holds all over the reduce axes.

    >>> from tensorlang import te
    >>> k = te.reduce_axis((0, 2), "k")
    >>> te.evaluate(lambda A: te.compute((2,), lambda i: te.all(A[i, k] > 1, axis=k)), [[1, 2], [3, 4]])
    array([False,  True])
    """
    return _logical("all", conditions, axis, where, init)


def any_(*conditions: ExprLike, axis: Any = None, where: ExprLike | None = None, init: ExprLike | None = None) -> Expr:
    """Whether one of the conditions holds; with `axis`, whether the one condition holds somewhere on the axes.

    >>> from tensorlang import te
    >>> k = te.reduce_axis((0, 2), "k")
    >>> te.evaluate(lambda A: te.compute((2,), lambda i: te.any(A[i, k] > 1, axis=k)), [[1, 2], [3, 4]])
    array([ True,  True])
    """
    return _logical("any", conditions, axis, where, init)


def _logical(name: str, conditions: tuple[Any, ...], axis: Any, where: Any, init: Any) -> Expr:
    if axis is None and len(conditions) > 1 and _are_axes(conditions[-1]):
        *first, axis = conditions
        conditions = tuple(first)
    if not conditions:
        raise DefinitionError(f"te.{name} needs at least one condition", caller())
    if axis is not None:
        if len(conditions) > 1:
            raise DefinitionError(f"te.{name} over an axis takes one condition, got {len(conditions)}", caller())
        return _builtin(name, conditions[0], axis, where, init)
    result = as_expr(conditions[0])
    for condition in conditions:
        if as_expr(condition).dtype != "bool":
            raise DefinitionError(f"te.{name} needs conditions, got {condition}; compare first", caller())
    for condition in conditions[1:]:
        result = binary("and" if name == "all" else "or", result, condition)
    return result
