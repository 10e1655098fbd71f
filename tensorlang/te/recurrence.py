"""te.recurrence: a tensor whose elements are computed from earlier ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorlang import dtypes
from tensorlang.errors import DefinitionError
from tensorlang.ir.construct import block
from tensorlang.ir.expr import Binary, Buffer, Cast, Const, Expr, Load, Select, Var, as_expr, same, walk
from tensorlang.ir.foreign import elements
from tensorlang.ir.stmt import INDEX, Allocate, For, Stmt, Store
from tensorlang.ir.traverse import Asking, bounded, unwound
from tensorlang.location import Location, caller
from tensorlang.te.axis import Axis
from tensorlang.te.check import check_read, check_tensor_name
from tensorlang.te.define import axis_names, current_tag, known_sizes
from tensorlang.te.domain import shape_of
from tensorlang.te.nests import Nests, Over, negated
from tensorlang.te.operation import HybridOp, Read, Reduce

_FIRST_TRIES = ("float32", "int32", "bool")


class Earlier:
    """The tensor that a recurrence defines, while it is being defined: `self[i - 1]` reads an earlier element."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer

    @property
    def shape(self) -> tuple[Expr, ...]:
        """The extents."""
        return self._buffer.shape

    @property
    def dtype(self) -> str:
        """The dtype of an element."""
        return self._buffer.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._buffer.shape)

    def __getitem__(self, index: Any) -> Load:
        parts = index if isinstance(index, tuple) else (index,)
        return Load(self._buffer, check_read(self._buffer.name, self.ndim, parts))

    def __call__(self, *index: Any) -> Load:
        return self[index]


def recurrence(
    shape: Any,
    fcompute: Callable[..., Any],
    name: str = "recurrence",
    dtype: str | Sequence[str] | None = None,
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Any:
    """Declare a tensor whose elements are computed one after the other, in lexicographic order of its axes.

    `fcompute(self, *axes)` returns an element; `self[...]` reads elements that came before (guard the first ones with
    te.if_then_else). Reductions may stand anywhere in it. For several tensors of one shape, `dtype` lists their dtypes,
    `self` is a tuple of as many, and `fcompute` returns the elements in the order in which they are computed. Without
    `dtype`, the narrowest dtype of the tensors read that the body keeps is taken; float32 if it reads none.

        >>> from tensorlang import te
        >>> A = te.placeholder((100,), name="A")
        >>> te.recurrence((100,), lambda self, i: te.if_then_else(i > 0, self[i - 1] + A[i], A[i]), name="prefix")
        Tensor(shape=[100], dtype=float32, name=prefix)
    """
    where, checked = caller(), check_tensor_name(name)
    if not callable(fcompute):
        raise DefinitionError(
            f"{checked} needs a function from itself and indices to an element, got {fcompute!r}", where
        )
    extents = shape_of(shape, checked)
    names = axis_names(functools.partial(fcompute, None), len(extents), varargs_names, checked)
    axes = tuple(Axis(axis, extent) for axis, extent in zip(names, extents, strict=True))
    body = _Body(checked, fcompute, axes, where)
    several = isinstance(dtype, list | tuple)
    if dtype is None:
        types: tuple[str, ...] = (body.inferred(),)
    else:
        types = tuple(dtypes.canonical(d) for d in (dtype if several else (dtype,)))
    outputs = body.buffers(types)
    op = _operation(body, outputs, current_tag(tag), dict(attrs or {}))
    made = tuple(op.output(n) for n in range(len(outputs)))
    return made if several else made[0]


class _Body:
    """What a recurrence computes per element, for given dtypes of its tensors."""

    def __init__(self, name: str, fcompute: Callable[..., Any], axes: tuple[Axis, ...], where: Location) -> None:
        self.name = name
        self.fcompute = fcompute
        self.axes = axes
        self.where = where

    def buffers(self, types: Sequence[str]) -> tuple[Buffer, ...]:
        """The arrays of the operation."""
        shape = tuple(a.extent for a in self.axes)
        names = [self.name] if len(types) == 1 else [f"{self.name}.v{k}" for k in range(len(types))]
        return tuple(Buffer(n, shape, t) for n, t in zip(names, types, strict=True))

    def elements(self, outputs: Sequence[Buffer]) -> tuple[Expr, ...]:
        """The elements as expressions; literals take the dtype of their tensor."""
        handles = tuple(Earlier(b) for b in outputs)
        first = handles if len(handles) > 1 else handles[0]
        result = elements(self.fcompute, [a.var for a in self.axes], first)
        parts = tuple(result) if isinstance(result, tuple | list) else (result,)
        if len(parts) != len(outputs):
            raise DefinitionError(
                f"{self.name} computes {len(parts)} elements for {len(outputs)} tensors; "
                "list the dtype of each tensor in dtype=[...]",
                self.where,
            )
        return tuple(
            as_expr(p, b.dtype) if isinstance(p, bool | int | float) else as_expr(p)
            for p, b in zip(parts, outputs, strict=True)
        )

    def inferred(self) -> str:
        """The narrowest dtype among those of what the body reads with which it computes that dtype again."""
        tried = next((d for d in _FIRST_TRIES if self._result(d)), _FIRST_TRIES[0])
        (first,) = self.elements(self.buffers((tried,)))
        candidates = sorted(_leaves(first), key=_width) or ["float32"]
        for dtype in candidates:
            if self._result(dtype) == dtype:
                return dtype
        found = ", ".join(f"{d} gives {self._result(d) or 'none'}" for d in candidates)
        raise DefinitionError(
            f"the dtype of {self.name} does not follow from its body ({found}); give dtype=", self.where
        )

    def _result(self, dtype: str) -> str:
        """The dtype that the body computes from elements of `dtype`; empty when it cannot."""
        try:
            return self.elements(self.buffers((dtype,)))[0].dtype
        except DefinitionError:
            return ""


def _width(dtype: str) -> tuple[bool, int, str]:
    """Integers come before floats, narrow ones first."""
    info = dtypes.info(dtype)
    return info.is_float, info.bits, dtype


@bounded
def _leaves(expr: Expr) -> set[str]:
    """The dtypes that a value is made from, those of casts included (many come from the dtype that is tried)."""
    match expr:
        case Read() | Var() | Const():
            return {expr.dtype}
        case Load():
            return set()
        case Select():
            return _leaves(expr.then) | _leaves(expr.orelse)
        case Binary() if expr.dtype == "bool":
            return {"bool"}
        case Reduce():
            return {d for source in expr.sources for d in _leaves(source)}
    own = {expr.dtype} if isinstance(expr, Cast) else set()
    return own | {d for child in expr.children() for d in _leaves(child)}


def _operation(body: _Body, outputs: tuple[Buffer, ...], tag: str, attrs: Mapping[str, Any]) -> HybridOp:
    """One nest of loops over the axes; in it, the reductions of each element, and its store."""
    elements = body.elements(outputs)
    for element, output in zip(elements, outputs, strict=True):
        if element.dtype != output.dtype:
            raise DefinitionError(
                f"{output.name} computes {element.dtype}, and its dtype is {output.dtype}; cast the result", body.where
            )
    sizes = _check_names(body, elements)
    nests = Nests(sizes | {a.name for a in body.axes} | {b.name for b in outputs})
    over = Over(body.axes, {a.name: a.name for a in body.axes})
    lifted = _Lifted(nests, over, body)
    at = tuple(over.index(a) for a in body.axes)
    point: list[Stmt] = []
    for element, output in zip(elements, outputs, strict=True):
        plain = lifted.plain(element)
        point += [*lifted.statements, nests.pointwise(plain, over, Load(output, at))]
        lifted.statements.clear()
    inside = block(point)
    for scalar in reversed(lifted.scalars):
        inside = Allocate(scalar, inside)
    nest = nests.around(body.axes, over, inside)
    updates = (None,) * len(outputs)
    return HybridOp(body.name, outputs, nest, updates, tag, body.where, attrs, axes=body.axes)


def only_store(op: HybridOp) -> Store | None:
    """The statement of an operation that is loops over its axes, from 0 on, around nothing else, at just these."""
    stmt, axes = op.body, list(op.axes)
    while isinstance(stmt, For) and axes and stmt.var.name == axes[0].name and same(stmt.lower, Const(0, INDEX)):
        stmt, axes = stmt.body, axes[1:]
    if axes or not isinstance(stmt, Store):
        return None
    at = [index.name if isinstance(index, Var) else "" for index in stmt.index]
    return stmt if at == [axis.name for axis in op.axes] else None


class _Lifted:
    """The reductions inside elements, each computed into a scalar of its own before the element is stored."""

    def __init__(self, nests: Nests, over: Over, body: _Body) -> None:
        self.nests = nests
        self.over = over
        self.body = body
        self.scalars: list[Buffer] = []
        self.statements: list[Stmt] = []
        self._done: list[tuple[Reduce, tuple[Expr, ...], Load]] = []

    def plain(self, expr: Expr, conditions: tuple[Expr, ...] = ()) -> Expr:
        """The expression with scalars for reductions; `conditions` are those under which it is computed."""
        return unwound(self._plain, expr, conditions)

    def _plain(self, expr: Expr, conditions: tuple[Expr, ...]) -> Asking[Expr]:
        match expr:
            case Reduce():
                known = self._known(expr, conditions)
                return self._scalar(expr, conditions) if known is None else known
            case Select():
                cond = yield expr.cond, conditions
                then = yield expr.then, (*conditions, cond)
                orelse = yield expr.orelse, (*conditions, negated(cond))
                return Select(cond, then, orelse, expr.dtype)
        made: list[Expr] = []
        for part in expr.children():
            made.append((yield part, conditions))
        same_parts = all(a is b for a, b in zip(made, expr.children(), strict=True))
        return expr if same_parts else expr.with_children(tuple(made))

    def _known(self, reduce: Reduce, conditions: tuple[Expr, ...]) -> Load | None:
        """The scalar of a reduction that was met before under conditions that hold here, too."""
        met = (s for r, tests, s in self._done if r is reduce and _begins(conditions, tests))
        return next(met, None)

    def _scalar(self, reduce: Reduce, conditions: tuple[Expr, ...]) -> Load:
        check_one_value(reduce, self.body.name, self.body.where)
        word = reduce.reducer.name
        scalar = Buffer(self.nests.fresh(word), (), reduce.dtype, "local")
        self.scalars.append(scalar)
        tests = [self.nests.value(c, self.over) for c in conditions]
        inner = self.nests.inside(self.over, reduce.axes)
        self.statements.append(self.nests.reduction(reduce, self.over, inner, Load(scalar, ()), tests))
        self._done.append((reduce, conditions, Load(scalar, ())))
        return Load(scalar, ())


def _begins(conditions: tuple[Expr, ...], tests: tuple[Expr, ...]) -> bool:
    return len(tests) <= len(conditions) and all(same(a, b) for a, b in zip(conditions, tests, strict=False))


def check_one_value(reduce: Reduce, name: str, where: Location | None) -> None:
    """Refuse a reduction of tuples: its values could not be updated one statement at a time."""
    if len(reduce.sources) > 1:
        raise DefinitionError(
            f"{name} reduces tuples ({reduce.reducer.name}), which runs as one step; "
            "compute it by te.compute outside, or reduce the values one by one",
            where,
        )


def _check_names(body: _Body, elements: tuple[Expr, ...]) -> set[str]:
    """Return the sizes in scope, after checking that every variable is one of them, an axis, or reduced over."""
    axes = {a.name for a in body.axes}
    tensors = {n.tensor for e in elements for n in walk(e) if isinstance(n, Read)}
    sizes = {n.name for a in body.axes for n in walk(a.extent) if isinstance(n, Var)}
    sizes |= {name for t in tensors for name in known_sizes(t.op)}
    sizes |= {
        n.name
        for e in elements
        for r in walk(e)
        if isinstance(r, Reduce)
        for a in r.axes
        for bound in (a.lower, a.extent)
        for n in walk(bound)
        if isinstance(n, Var)
    }
    unknown = sorted({name for e in elements for name in _free(e)} - axes - sizes)
    if unknown:
        raise DefinitionError(
            f"{body.name} uses {', '.join(unknown)}, which is neither an axis of it, nor a reduce axis of a reduction "
            "around that use, nor a size in the shapes it is made from",
            body.where,
        )
    if axes & sizes:
        raise DefinitionError(
            f"axis {min(axes & sizes)} of {body.name} has the name of a size; rename one of them", body.where
        )
    return sizes


@bounded
def _free(expr: Expr) -> set[str]:
    """The variables of an expression that no reduction inside binds."""
    if isinstance(expr, Var):
        return {expr.name}
    own = {a.name for a in expr.axes} if isinstance(expr, Reduce) else set()
    return {name for child in expr.children() for name in _free(child)} - own
