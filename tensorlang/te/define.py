"""placeholder, compute and extern: how operations are declared, and what is checked when they are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Literal, TypeAlias, overload
from weakref import WeakKeyDictionary

from tensorlang import dtypes
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, ExprLike, Var, as_expr, walk
from tensorlang.ir.foreign import elements
from tensorlang.location import Location, caller
from tensorlang.te.array_buffer import check_buffer
from tensorlang.te.axis import Axis
from tensorlang.te.check import check_axis_name, check_length, check_tensor_name
from tensorlang.te.domain import INDEX_DTYPES, shape_of, size_var
from tensorlang.te.operation import ComputeOp, ExternOp, Operation, PlaceholderOp, Reduce, Tensor
from tensorlang.te.packed import whole_array_function

Shape: TypeAlias = ExprLike | Sequence[ExprLike]
"""Extents: numbers and symbolic sizes; one alone is a shape of one dimension."""
_INDICES = "ijklmn"
_tag: ContextVar[str] = ContextVar("tag", default="")


@contextmanager
def tag_scope(tag: str) -> Iterator[None]:
    """Give `tag` to every operation declared inside; also a decorator. Scopes do not nest.

    >>> from tensorlang import te
    >>> with te.tag_scope("elementwise"):
    ...     B = te.compute((4,), lambda i: i * 2)
    >>> B.op.tag
    'elementwise'
    """
    if _tag.get():
        raise DefinitionError(f"tag scope {tag!r} inside tag scope {_tag.get()!r}; tag scopes do not nest", caller())
    token = _tag.set(tag)
    try:
        yield
    finally:
        _tag.reset(token)


def current_tag(tag: str) -> str:
    if tag and _tag.get():
        raise DefinitionError(f"tag {tag!r} inside tag scope {_tag.get()!r}; give one of them", caller())
    return tag or _tag.get()


def placeholder(shape: Shape, dtype: Any = None, name: str = "placeholder") -> Tensor:
    """Declare an input of a shape (integers or symbolic sizes; `()` is a scalar) and a dtype (float32).

    >>> from tensorlang import te
    >>> te.placeholder((te.var("n"), 3), "int8", name="A")
    Tensor(shape=[n, 3], dtype=int8, name=A)
    """
    checked = check_tensor_name(name)
    op = PlaceholderOp(checked, shape_of(shape, checked), dtypes.canonical(dtype or "float32"), caller())
    return op.output()


@overload
def var(name: str = "tindex", dtype: Literal["int32", "int64"] = "int32") -> Var: ...
@overload
def var(name: str = "tindex", dtype: str = "int32") -> Any: ...
def var(name: str = "tindex", dtype: str = "int32") -> Any:
    """Return a symbolic size, of int32 or int64: it is bound from the shapes of the arrays a kernel is called with.

    Of another dtype it is a number that the kernel takes as an argument: an input of shape (), which stands for its
    element in an expression.

        >>> from tensorlang import te
        >>> n = te.var("n")
        >>> te.placeholder((n, n)).shape
        (n, n)
    """
    checked, element = check_axis_name("variable", name), dtypes.canonical(dtype)
    if element in INDEX_DTYPES:
        return size_var(checked, element)
    return PlaceholderOp(checked, (), element, caller()).output()


@overload
def compute(
    shape: Shape,
    fcompute: Callable[..., ExprLike | Tensor],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Tensor: ...
@overload
def compute(
    shape: Shape,
    fcompute: Callable[..., tuple[ExprLike, ...] | list[ExprLike]],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> tuple[Tensor, ...]: ...
def compute(
    shape: Shape,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Any:
    """Declare a tensor by a function from its indices to its element.

    `fcompute` takes one int32 variable per dimension, and its parameter names become the axis names
    (`varargs_names`, or i0, i1, ... for those of `*indices`). It returns an expression, one reduction, or a tuple of
    expressions for as many outputs of one shape. Returns the Tensor, or the tuple of Tensors.

    Raises DefinitionError, naming the line, for a wrong rank, extent, name, dtype, variable or reduction, and for more
    than 100,000 operations or 6,000 levels of them in one expression.

        >>> from tensorlang import te
        >>> A = te.placeholder((4, 3), name="A")
        >>> te.compute((3, 4), lambda i, j: A[j, i] + 1, name="B")
        Tensor(shape=[3, 4], dtype=float32, name=B)
    """
    where, checked = caller(), check_tensor_name(name)
    extents = shape_of(shape, checked)
    names = axis_names(fcompute, len(extents), varargs_names, checked)
    known = ComputeOp(checked, (), (), (), (), current_tag(tag), dict(attrs or {}), where)
    op, several = _defined(known, tuple(map(Axis, names, extents)), fcompute)
    sizes = known_sizes(op)
    if sizes & set(names):  # an axis may have any name: one that is the name of a size gets another
        taken = sizes | {a.name for a in op.reduce_axes}
        op, several = _defined(known, tuple(Axis(_apart(n, taken), e) for n, e in zip(names, extents)), fcompute)
    check_names(op, where)
    outputs = tuple(op.output(n) for n in range(op.num_outputs))
    return outputs if several and len(outputs) > 1 else outputs[0]


def _defined(known: ComputeOp, axes: tuple[Axis, ...], fcompute: Callable[..., Any]) -> tuple[ComputeOp, bool]:
    """The operation whose elements a function gives, and whether it gave a tuple."""
    result = elements(fcompute, [axis.var for axis in axes])
    several = isinstance(result, tuple | list)
    body = tuple(_element(part, known.name) for part in (result if several else (result,)))
    if not body:
        raise DefinitionError(f"{known.name} computes an empty tuple; return at least one expression", known.location)
    check_length(known.name, body, known.location)
    assert known.location is not None
    reduce_axes = check_reductions(body, known.name, known.location)
    return replace(known, axes=axes, reduce_axes=reduce_axes, body=body), several


def _apart(name: str, taken: Collection[str]) -> str:
    """A name with a number behind it, if it is taken."""
    numbered = (name, *(f"{name}_{k}" for k in range(1, len(taken) + 1)))
    return next(n for n in numbered if n not in taken)


def extern(
    shape: Any,
    inputs: Tensor | Sequence[Tensor],
    fcompute: Callable[..., Any],
    name: str = "extern",
    dtype: str | Sequence[str] | None = None,
    in_buffers: Any = None,
    out_buffers: Any = None,
    tag: str = "",
) -> Any:
    """Declare tensors that a Python function makes from whole input arrays.

    `shape` is one shape, or a list of shapes for several outputs; `dtype` one dtype or one per output, and defaults to
    that of the inputs when they agree. `fcompute` is either a plain function, called as `f(*inputs, *outputs)` with
    NumPy arrays, that fills the outputs; or, as in classic te, `lambda ins, outs: tir.call_packed(function, ins[0],
    outs[0])` with two parameters of those names, where `function` (or the one registered under that name) gets
    NDArrays. `in_buffers` and `out_buffers`, by `te.decl_buffer`, are compared with these. Returns the Tensor, or the
    tuple of Tensors.

        >>> import numpy as np
        >>> from tensorlang import te
        >>> A = te.placeholder((3,), name="A")
        >>> sort = te.extern((3,), [A], lambda a, out: np.copyto(out, np.sort(a)), dtype="float32")
        >>> sort.shape
        (3,)
    """
    where, checked = caller(), check_tensor_name(name)
    sources = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    for source in sources:
        if not isinstance(source, Tensor):
            raise DefinitionError(f"inputs of {checked} must be tensors, got {source!r}", where)
    several = isinstance(shape, list | tuple) and any(isinstance(s, list | tuple) for s in shape)
    shapes = tuple(shape_of(s, checked) for s in shape) if several else (shape_of(shape, checked),)
    types = _extern_dtypes(dtype, sources, len(shapes), checked, where)
    function = whole_array_function(fcompute, len(sources), len(shapes), checked)
    op = ExternOp(checked, sources, shapes, types, function, current_tag(tag), where)
    outputs = tuple(op.output(n) for n in range(len(shapes)))
    for word, tensors, declared in (("input", sources, in_buffers), ("output", outputs, out_buffers)):
        given = [] if declared is None else declared if isinstance(declared, list | tuple) else [declared]
        for number, (tensor, buffer) in enumerate(zip(tensors, given, strict=False)):
            check_buffer(f"{word} {number} of {checked}", tensor.shape, tensor.dtype, buffer)
    return outputs if len(outputs) > 1 else outputs[0]


def _extern_dtypes(dtype: Any, inputs: tuple[Tensor, ...], count: int, name: str, where: Location) -> tuple[str, ...]:
    if dtype is None:
        known = {t.dtype for t in inputs}
        if len(known) != 1:
            raise DefinitionError(f"the dtype of {name} does not follow from its inputs; give dtype=", where)
        return tuple(known) * count
    types = tuple(dtypes.canonical(d) for d in dtype) if isinstance(dtype, list | tuple) else ()
    types = types or (dtypes.canonical(dtype),) * count
    if len(types) != count:
        raise DefinitionError(f"{name} has {count} outputs, but {len(types)} dtypes", where)
    return types


def axis_names(fcompute: Any, rank: int, varargs_names: Sequence[str] | None, name: str) -> tuple[str, ...]:
    """The axis names that a compute function declares for `rank` dimensions."""
    if not callable(fcompute):
        raise DefinitionError(
            f"{name} needs a function from indices to an element, as in lambda i: A[i] * 2, got {fcompute!r}", caller()
        )
    try:
        parameters = list(inspect.signature(fcompute).parameters.values())
    except (TypeError, ValueError):
        raise DefinitionError(f"the parameters of {fcompute!r} are unknown; wrap it in a lambda", caller()) from None
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p.name for p in positional if p.default is p.empty]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        rest = max(0, rank - len(positional))
        extra = tuple(varargs_names) if varargs_names is not None else tuple(f"i{n}" for n in range(rest))
        names = tuple(p.name for p in positional) + extra
    else:
        names = tuple(required) if len(required) >= rank else tuple(p.name for p in positional[:rank])
    if len(names) != rank:
        raise DefinitionError(
            f"{name} has {rank} dimensions, but its function takes {len(names)} indices "
            f"({', '.join(names) or 'none'}); write {_with_indices(rank)}",
            caller(),
        )
    for axis in names:
        check_axis_name(f"axis of {name}", axis)
    if len(set(names)) != len(names):
        raise DefinitionError(f"{name} has two axes of one name: {', '.join(names)}", caller())
    return names


def _with_indices(rank: int) -> str:
    """How a function of so many indices begins."""
    return f"lambda {', '.join(_INDICES[:rank])}: ..." if rank <= len(_INDICES) else "lambda *i: ..."


def _element(value: Any, name: str) -> Expr:
    if value is None:
        raise DefinitionError(f"{name} must compute an expression, got None; its function lacks a return", caller())
    try:
        return as_expr(value)
    except DefinitionError as error:
        raise DefinitionError(f"{name} must compute an expression: {error.message}", error.where) from None


def check_reductions(body: tuple[Expr, ...], name: str, where: Location) -> tuple[Axis, ...]:
    """Return the reduce axes of a body, after checking that it is free of reductions, or made of one."""
    for part in body:
        inside = part.children() if isinstance(part, Reduce) else (part,)
        if any(isinstance(node, Reduce) for child in inside for node in walk(child)):
            raise DefinitionError(
                f"{name} = {part}: a reduction must be the whole value; give the reduction its own te.compute "
                "and use its result here",
                where,
            )
    first = body[0]
    if not isinstance(first, Reduce):
        if any(isinstance(part, Reduce) for part in body):
            raise DefinitionError(f"{name} mixes reductions and plain expressions; use a te.compute for each", where)
        return ()
    if not all(isinstance(part, Reduce) and _one_reduction(part, first) for part in body):
        raise DefinitionError(
            f"{name} mixes different reductions; use a te.compute for each, or one te.comm_reducer over a tuple", where
        )
    order = [part.index for part in body if isinstance(part, Reduce)]
    if order != list(range(len(first.sources))):
        raise DefinitionError(
            f"{name} returns values {order} of the {len(first.sources)} that {first.reducer.name} gives; "
            "return them all, in order",
            where,
        )
    return first.axes


def _one_reduction(a: Reduce, b: Reduce) -> bool:
    """Whether two values come from one reduction."""
    same_axes = tuple(x.name for x in a.axes) == tuple(x.name for x in b.axes)
    same_where = a.where is b.where or (a.where is not None and b.where is not None and bool(a.where == b.where))
    return a.reducer == b.reducer and a.sources == b.sources and a.init == b.init and same_axes and same_where


def check_names(op: ComputeOp, where: Location) -> None:
    """Every variable of a body is an axis in scope, or a size that a shape or range defines."""
    spatial, reduced = {a.name for a in op.axes}, {a.name for a in op.reduce_axes}
    for name in spatial & reduced:
        raise DefinitionError(f"{op.name} has an axis and a reduce axis named {name}; rename one of them", where)
    free: set[str] = set()
    for part in op.body:
        inner = (*part.sources, *(() if part.where is None else (part.where,))) if isinstance(part, Reduce) else (part,)
        free |= {n.name for child in inner for n in walk(child) if isinstance(n, Var)} - spatial - reduced
        outer = part.init if isinstance(part, Reduce) else ()
        free |= {n.name for child in outer for n in walk(child) if isinstance(n, Var)} - spatial
    bounds = [e for a in (*op.axes, *op.reduce_axes) for e in (a.lower, a.extent)]
    own = {n.name for e in bounds for n in walk(e) if isinstance(n, Var)}
    for name in sorted(own & (spatial | reduced)):
        raise DefinitionError(
            f"axis {name} of {op.name} has the name of a size in its shape or ranges; rename one of them "
            "(a range that depends on an axis is written with where=)",
            where,
        )
    unknown = sorted(free - own - known_sizes(op)) if free - own else []
    if unknown:
        raise DefinitionError(
            f"{op.name} uses {', '.join(unknown)}, which is neither an axis of it, nor a reduce axis of a reduction "
            "around that use, nor a size in the shapes it is made from; a reduce axis is used in a reduction over it, "
            f"as in te.sum(..., axis={unknown[0]})",
            where,
        )


_SIZES: WeakKeyDictionary[Operation, frozenset[str]] = WeakKeyDictionary()


def known_sizes(op: Operation) -> frozenset[str]:
    """The sizes in the shapes and ranges of everything that an operation is made from; asked for each only once."""
    pending = [op]
    while pending:
        below = [t.op for t in pending[-1].input_tensors if t.op not in _SIZES]
        if not below:
            current = pending.pop()
            _SIZES[current] = _own_sizes(current).union(*(_SIZES[t.op] for t in current.input_tensors))
        pending += below
    return _SIZES[op]


def _own_sizes(op: Operation) -> frozenset[str]:
    shapes = op.shapes if isinstance(op, ExternOp) else (op.shape,)
    bounds = (e for a in op.reduce_axis for e in (a.lower, a.extent))
    return frozenset(n.name for e in (*bounds, *(e for s in shapes for e in s)) for n in walk(e) if isinstance(n, Var))
