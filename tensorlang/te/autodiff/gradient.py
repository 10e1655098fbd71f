"""te.gradient: the adjoints of a program's tensors, from its output back to its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, shown
from tensorlang.ir.expr import (
    Call,
    Cast,
    Const,
    Expr,
    Var,
    binary,
    cast,
    const,
    rewrite,
    same,
    select,
    walk,
)
from tensorlang.location import caller
from tensorlang.te.autodiff.invert import Equation, Inverse, invert
from tensorlang.te.autodiff.recurrent import Recurrent, adjoint_from_the_end, recurrent_of
from tensorlang.te.autodiff.reduction import derivative, stages
from tensorlang.te.autodiff.space import Space
from tensorlang.te.autodiff.terms import Term, conjuncts, terms, value_reads
from tensorlang.te.axis import Axis
from tensorlang.te.define import compute
from tensorlang.te.operation import ComputeOp, ExternOp, HybridOp, Operation, Read, Reduce, Tensor
from tensorlang.te.program import unique
from tensorlang.te.reductions import all_, sum_
from tensorlang.te.tags import DERIVED, SHIFT

_KIND = {ExternOp: "te.extern", HybridOp: "te.hybrid.script, te.scan or te.recurrence"}


def gradient(output: Tensor, inputs: Tensor | Sequence[Tensor], head: Tensor | None = None) -> list[Tensor]:
    """Return the derivatives of `output` with respect to each of `inputs`, as tensors to schedule like any others.

    With a `head` of shape `prefix + output.shape`, each result is the head times the Jacobian, summed over the axes of
    the output: shape `prefix + input.shape`. Without one, it is the Jacobian: shape `output.shape + input.shape`.
    Inputs may be tensors on the way, too; a tensor that the output does not depend on gets zeros.

    Where a function has a kink, the first operand of min and max takes ties, abs has 0, and the terms of a maximum or
    minimum that are equal share alike. Raises DefinitionError for what has no derivative here: integer tensors, custom
    reducers, and operations that are neither computes nor recurrences which read themselves a constant distance back
    along one axis.

        >>> from tensorlang import te
        >>> x = te.placeholder((3,), name="x")
        >>> y = te.compute((3,), lambda i: x[i] * x[i])
        >>> [g.shape for g in te.gradient(y, x)]
        [(3, 3)]
    """
    wanted = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    _check(output, wanted, head)
    order = _path(output, wanted)
    path = {op.output(k) for op in order for k in range(op.num_outputs)}
    sweep = _Sweep(output, head, path, _names([output, *wanted, *([] if head is None else [head])]))
    for op in reversed(order):
        sweep.pass_back(op)
    return [sweep.result(tensor) for tensor in wanted]


def _check(output: Any, inputs: tuple[Any, ...], head: Any) -> None:
    named = [("output", output), *(("input", t) for t in inputs), *([] if head is None else [("head", head)])]
    for what, tensor in named:
        if not isinstance(tensor, Tensor):
            raise DefinitionError(f"the {what} of te.gradient must be a tensor, got {shown(tensor)}", caller())
        if not dtypes.info(tensor.dtype).is_float:
            raise DefinitionError(
                f"the {what} {tensor.name} of te.gradient has dtype {tensor.dtype}; derivatives need floats", caller()
            )
    if head is None:
        return
    suffix = head.shape[head.ndim - output.ndim :] if head.ndim >= output.ndim else ()
    if len(suffix) != output.ndim or not all(_equal(a, b) for a, b in zip(suffix, output.shape, strict=True)):
        raise DefinitionError(
            f"the head {head.name} has shape ({', '.join(map(str, head.shape))}), which does not end with "
            f"({', '.join(map(str, output.shape))}), the shape of {output.name}",
            caller(),
        )
    if head.dtype != output.dtype:
        raise DefinitionError(f"the head is {head.dtype}, but {output.name} is {output.dtype}; cast one", caller())


def _equal(a: Expr, b: Expr) -> bool:
    return a.value == b.value if isinstance(a, Const) and isinstance(b, Const) else same(a, b)


def _path(output: Tensor, inputs: tuple[Tensor, ...]) -> list[Operation]:
    """The operations through which the output depends on the inputs, producers first, inputs included."""
    roots = {t.op for t in inputs}
    on_path: dict[Operation, bool] = {}
    for op in _needed([output], _sources):
        on_path[op] = op in roots or any(on_path[source.op] for source in _sources(op))
    return [op for op, yes in on_path.items() if yes]


def _needed(tensors: Sequence[Tensor], sources: Callable[[Operation], list[Tensor]]) -> list[Operation]:
    """The operations that tensors are made by and from, producers first."""
    ordered: dict[Operation, None] = {}
    pending = [(t.op, False) for t in reversed(tensors)]
    while pending:
        op, sources_done = pending.pop()
        if sources_done:
            ordered[op] = None
        elif op not in ordered:
            pending += [(op, True), *((source.op, False) for source in reversed(sources(op)))]
    return list(ordered)


def _sources(op: Operation) -> list[Tensor]:
    """The tensors that an operation's values are computed from."""
    if not isinstance(op, ComputeOp):
        return op.input_tensors
    if op.attrs.get(SHIFT):
        return []
    return list(dict.fromkeys(read.tensor for body in _derived(op).body for read in value_reads(body)))


def _derived(op: ComputeOp) -> ComputeOp:
    """The operation whose derivatives an operation has: itself, unless it says otherwise."""
    other = op.attrs.get(DERIVED)
    return other if isinstance(other, ComputeOp) else op


def _names(tensors: Sequence[Tensor]) -> set[str]:
    """Every name of an axis or a size in the operations that tensors are made from."""
    found: set[str] = set()
    needed = _needed(tensors, lambda op: op.input_tensors)
    for op in (*needed, *(_derived(op) for op in needed if isinstance(op, ComputeOp))):
        axes = (*op.axis, *op.reduce_axis)
        bounds = [e for a in axes for e in (a.lower, a.extent)]
        shapes = [e for k in range(op.num_outputs) for e in op.output(k).shape]
        found |= {a.name for a in axes} | {n.name for e in (*bounds, *shapes) for n in walk(e) if isinstance(n, Var)}
    return found


@dataclass(slots=True)
class _Sweep:
    """The way back: the tensors on the path, and the parts of their adjoints that have been found.

    A part is an expression over the indices of `tensor`'s adjoint, and named after the operation that it comes from.
    """

    output: Tensor
    head: Tensor | None
    path: set[Tensor]
    taken: set[str]
    parts: dict[Tensor, list[tuple[str, Expr]]] = field(default_factory=dict)
    adjoints: dict[Tensor, Tensor] = field(default_factory=dict)

    @property
    def prefix(self) -> tuple[Axis, ...]:
        """The axes that an adjoint has before those of its tensor."""
        shape = self.output.shape if self.head is None else self.head.shape[: self.head.ndim - self.output.ndim]
        return self.named([f"p{n}" for n in range(len(shape))], shape)

    def named(self, wishes: Sequence[str], shape: Sequence[Expr]) -> tuple[Axis, ...]:
        """Axes of names that no operation on the path uses."""
        return tuple(Axis(unique(wish, self.taken), extent) for wish, extent in zip(wishes, shape, strict=True))

    def indices(self, tensor: Tensor) -> tuple[Axis, ...]:
        """The axes of a tensor's adjoint behind the prefix."""
        return self.named([f"e{n}" for n in range(tensor.ndim)], tensor.shape)

    def pass_back(self, op: Operation) -> None:
        """Give the tensors that an operation reads their parts of its adjoint."""
        if not any(source in self.path for source in _sources(op)):
            return
        if isinstance(op, HybridOp) and (recurrent := recurrent_of(op)) is not None:
            self.pass_from_the_end(recurrent)
            return
        if not isinstance(op, ComputeOp):
            raise DefinitionError(
                f"te.gradient knows no derivative of {op.name}, made by {_KIND[type(op)]}; take the "
                f"gradient up to its result (inputs=[{op.name}]), and write its own part by hand",
                caller(),
            )
        if isinstance(why := op.attrs.get(DERIVED), str):
            raise DefinitionError(f"te.gradient knows no derivative of {op.name}: {why}", caller())
        seeds = [self.seed(op.output(k)) for k in range(op.num_outputs)]
        if all(seed is None for seed in seeds):
            return
        *before, last = stages(_derived(op))
        self.path |= {stage.output() for stage in before}
        self.spread(last, seeds)
        for stage in reversed(before):
            self.spread(stage, [self.seed(stage.output())])

    def pass_from_the_end(self, recurrent: Recurrent) -> None:
        """The same for a recurrence, whose later elements pass a part on to earlier ones."""
        op, result = recurrent.op, recurrent.result
        seed = self.seed(result)
        if seed is None:
            return
        if isinstance(seed, Const):
            seed = _where([binary("eq", p.var, a.var) for p, a in zip(self.prefix, op.axes, strict=True)], seed)
        turned = adjoint_from_the_end(recurrent, self.prefix, seed, f"{op.name}_grad_turned")
        last = recurrent.axis.extent - 1
        index = (last - a.var if a is recurrent.axis else a.var for a in (*self.prefix, *op.axes))
        self.path.discard(result)
        self.spread(op, [Read(turned, tuple(index))])

    def seed(self, tensor: Tensor) -> Expr | None:
        """The adjoint of a computed tensor's element at its axes: None if it is zero, a literal 1 if there is no head.

        The latter stands for 1 where prefix and axes are equal; elsewhere it is 0.
        """
        if tensor == self.output and self.head is None:
            return const(1, tensor.dtype)
        adjoint = self.adjoint(tensor)
        return None if adjoint is None else Read(adjoint, tuple(a.var for a in (*self.prefix, *tensor.op.axis)))

    def spread(self, op: ComputeOp, seeds: Sequence[Expr | None]) -> None:
        """Pass the adjoints of a simple operation's outputs on to what its body reads."""
        for k, (body, seed) in enumerate(zip(op.body, seeds, strict=True)):
            if seed is None:
                continue
            own = Read(op.output(k), tuple(a.var for a in op.axes))
            if isinstance(body, Reduce):
                held = () if body.where is None else tuple(conjuncts(body.where))
                adjoint, chosen = derivative(op, seed)
                found = terms(body.sources[0], adjoint, (*held, *chosen), self.path.__contains__)
            else:
                found = [_reusing(t, body, own) for t in terms(body, seed, (), self.path.__contains__)]
            for term in found:
                self.add(op, term, identity=isinstance(seed, Const))

    def add(self, op: ComputeOp, term: Term, identity: bool) -> None:
        """Add what one read of an operation gives to the adjoint of the tensor that is read."""
        tensor, indices = term.read.tensor, self.indices(term.read.tensor)
        known = (*self.prefix, *indices)
        space = Space()
        for axis in known:
            space.declare(axis.name, axis.lower, axis.extent)
        names = self.taken | {axis.name for axis in known}

        def fresh(wish: str) -> str:
            names.add(name := unique(wish, names))
            return name

        equations: list[Equation] = [(i, e.var) for i, e in zip(term.read.index, indices, strict=True)]
        if identity:
            equations += [(axis.var, p.var) for axis, p in zip(op.axes, self.prefix, strict=True)]
        here = Read(tensor, tuple(e.var for e in indices))
        part = _gathered(_at(term, here), invert(space, (*op.axes, *op.reduce_axes), equations, fresh))
        if part is not None:
            self.parts.setdefault(tensor, []).append((op.name, part))

    def adjoint(self, tensor: Tensor) -> Tensor | None:
        """The adjoint of a tensor whose readers have all passed theirs on; None if it is zero everywhere."""
        if tensor == self.output:
            return self.head
        if tensor not in self.adjoints and tensor in self.parts:
            self.adjoints[tensor] = self.total(tensor, self.parts[tensor])
        return self.adjoints.get(tensor)

    def total(self, tensor: Tensor, parts: list[tuple[str, Expr]]) -> Tensor:
        """The sum of all parts; a reduction beside others, or in a wider dtype, is a tensor of its own."""
        name = f"{_label(tensor)}_grad"
        if len(parts) == 1 and parts[0][1].dtype == tensor.dtype:
            return self.tensor(tensor, parts[0][1], name)
        total: Expr | None = None
        for reader, part in parts:
            if isinstance(part, Reduce):
                own = self.tensor(tensor, part, f"{name}_{reader}")
                part = Read(own, tuple(a.var for a in (*self.prefix, *self.indices(tensor))))
            value = cast(part, tensor.dtype)
            total = value if total is None else total + value
        assert total is not None
        return self.tensor(tensor, total, name)

    def tensor(self, like: Tensor, value: Expr, name: str) -> Tensor:
        """A tensor over the prefix and the indices of another."""
        axes = (*self.prefix, *self.indices(like))
        made: Tensor = compute(
            tuple(a.extent for a in axes), lambda *_: value, name=name, varargs_names=[a.name for a in axes]
        )
        return made

    def result(self, tensor: Tensor) -> Tensor:
        """The derivative with respect to a tensor."""
        adjoint = self.adjoint(tensor)
        if adjoint is not None:
            return adjoint
        one, zero = const(1, tensor.dtype), const(0, tensor.dtype)
        if tensor != self.output:
            return self.tensor(tensor, zero, f"{_label(tensor)}_grad")
        pairs = zip(self.prefix, self.indices(tensor), strict=True)
        value = _where([binary("eq", p.var, e.var) for p, e in pairs], one)
        return self.tensor(tensor, value, f"{_label(tensor)}_grad")


def _label(tensor: Tensor) -> str:
    return tensor.op.name if tensor.op.num_outputs == 1 else f"{tensor.op.name}_{tensor.value_index}"


def _reusing(term: Term, body: Expr, own: Read) -> Term:
    """A term that reads the result of an intrinsic instead of computing it again."""
    if not isinstance(body, Call):
        return term
    return replace(term, adjoint=rewrite(term.adjoint, lambda node: own if same(node, body) else None))


def _at(term: Term, here: Read) -> Term:
    """A term that reads its element by the indices of the adjoint, which are those of the read wherever it counts."""

    def rule(node: Expr) -> Expr | None:
        return here if same(node, term.read) else None

    return replace(
        term, adjoint=rewrite(term.adjoint, rule), conditions=tuple(rewrite(c, rule) for c in term.conditions)
    )


def _where(conditions: Sequence[Expr], value: Expr) -> Expr:
    return select(all_(*conditions), value, const(0, value.dtype)) if conditions else value


def _gathered(term: Term, inverse: Inverse) -> Expr | None:
    """The sum of a term over all iterations that touch an element; None if there are none.

    Conditions that read memory stand inside those that do not: only there are their reads in bounds.
    """
    guards, tests = list(inverse.guards), list[Expr]()
    for condition in (c for whole in term.conditions for c in conjuncts(whole)):
        here = inverse.at(condition)
        holds = inverse.space.decide(here)
        if holds is False:
            return None
        if holds is None:
            (tests if _reads(here) else guards).append(inverse.space.tidy(here))
    for test in inverse.tests:
        (tests if _reads(test) else guards).append(test)
    value = inverse.at(term.adjoint)
    while isinstance(value, Cast) and inverse.free:
        value = value.value  # sums stay in the wider dtype
    for test in reversed(tests):
        value = _where([test], value)
    guards = list({str(g): g for g in guards}.values())
    if not inverse.free:
        return _where(guards, value)
    return sum_(value, axis=inverse.free, where=all_(*guards) if guards else None)


def _reads(expr: Expr) -> bool:
    return any(isinstance(node, Read) for node in walk(expr))
