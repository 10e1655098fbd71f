"""Other layouts in memory: transform_layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Const, Expr, Load, Var, binary, rewrite, select, substitute
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, dims, index_text
from tensorlang.polyhedral.ast_expr import from_pw_aff
from tensorlang.schedule.index_text import names_lookup, parse_index
from tensorlang.schedule.primitive import Identifier, IndexText, Outputs, Primitive, StageName, primitive
from tensorlang.schedule.primitives.placement import on_copy
from tensorlang.schedule.primitives.storage import in_program_order
from tensorlang.schedule.rewrites.bounds import RuntimeChecks, inside
from tensorlang.schedule.state import ScheduleState
from tensorlang.schedule.storage import Storage
from tensorlang.te.axis import Axis
from tensorlang.te.operation import ComputeOp, HybridOp, Operation, PlaceholderOp, buffers
from tensorlang.te.program import unique


@primitive("transform_layout")
@dataclass(frozen=True, slots=True)
class TransformLayout(Primitive):
    """Store a stage, or an input, under other indices: packing, blocking, transposing.

    Rewrite: `T[k, j] = f(k, j)` -> `T[j // 32, k, j % 32] = f(k, j)`, and every read of T follows. The array that a
    caller passes for an input or an output has the new shape.
    Legal when: the map is affine and injective, that of an output fills the new array, and the loops of the stage are
    still as declared.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((100, 100), name="A")
        >>> B = te.compute((100, 100), lambda i, j: A[i, j] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> T = s.cache_read(A, "global", [B])
        >>> [str(a) for a in s[T].transform_layout(lambda i, j: (j // 32, i, j % 32))]
        ['p0', 'p1', 'p2']
    """

    stage: StageName
    axes: tuple[Identifier, ...]
    index: tuple[IndexText, ...]

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        op = _whole_array(state, self.stage)
        if len(self.axes) != len(op.axes):
            raise BadArgument("", f"{self.stage} has {len(op.axes)} dimensions, the map takes {len(self.axes)}")
        stage = state.stages.get(self.stage)
        if stage is not None and (stage.relations or stage.annotations or state.attached_to(self.stage)):
            raise BadArgument("", f"transform_layout must come before other steps on {self.stage}")
        known: dict[str, Expr] = {name: a.as_expr() for name, a in zip(self.axes, op.axes, strict=True)}
        index = [parse_index(text, names_lookup(known, state.decisions, state.sizes)) for text in self.index]
        instead = [on_copy(self.stage, self.text())] if self.stage in state.program.outputs else None
        moved = laid_out(state, op, index, instead)
        declared = state.program[self.stage]
        made = replace(declared, shape=moved.shape) if isinstance(declared, PlaceholderOp) else moved
        changed: dict[str, Operation] = {self.stage: made}
        for user in state.program.consumers[self.stage]:
            consumer = state.program[user]
            if not isinstance(consumer, ComputeOp):
                raise BadArgument("", f"{user} is an extern stage and needs {self.stage} in its own layout")
            changed[user] = _follow(consumer, op, moved, index, state.sizes)
        program = state.program.replacing(changed)
        rest = {n: s for n, s in state.stages.items() if n != self.stage}
        stages = in_program_order(program, rest)
        if stage is not None:
            stages[self.stage] = replace(stages[self.stage], attach=stage.attach, storage=Storage(stage.storage.scope))
        made_axes = () if stage is None else tuple(a.name for a in moved.axes)
        return replace(state, program=program, stages=stages), made_axes

    def text(self) -> str:
        index = f"[{', '.join(self.index)}]"
        return f"s[{self.stage!r}].transform_layout(lambda {', '.join(self.axes)}: {index})"


def indices_of(shape: Sequence[Expr]) -> list[Axis]:
    """Axes over the elements of an array that no loops make."""
    return [Axis(f"i{k}", extent) for k, extent in enumerate(shape)]


def array_axes(op: Operation) -> Sequence[Axis]:
    """The axes over the elements of what an operation makes."""
    return indices_of(op.shape) if isinstance(op, PlaceholderOp) else op.axis


def _whole_array(state: ScheduleState, name: str) -> ComputeOp:
    """The operation of a stage; an input as one that could make its array."""
    op = state.program.by_name.get(name)
    if not isinstance(op, PlaceholderOp):
        return state.compute_op(name)
    if any(isinstance(state.program[user], HybridOp) for user in state.program.consumers[name]):
        raise BadArgument("", f"{name} is read, or updated, in its own layout by statements in order", suggested=[])
    return ComputeOp(name, tuple(indices_of(op.shape)), (), (Const(0, op.dtype),))


def laid_out(
    state: ScheduleState, op: ComputeOp, index: Sequence[Expr], instead: Sequence[str] | None = None
) -> ComputeOp:
    """The operation with its elements under other indices; BadArgument unless the map is affine and injective.

    `instead`: every place of the new array is to hold an element, and what to do where that is not so.
    """
    new, inverse, where = _invert(state, op, index, {a.name for a in op.reduce_axes} | state.sizes, instead)
    env: dict[str, Expr] = {a.name: e for a, e in zip(op.axes, inverse, strict=True)}
    return replace(
        op,
        axes=new,
        body=tuple(substitute(b, env) for b in op.body),
        where=(*(substitute(w, env) for w in op.where), *where),
    )


def _invert(
    state: ScheduleState, op: ComputeOp, index: Sequence[Expr], taken: set[str], instead: Sequence[str] | None
) -> tuple[tuple[Axis, ...], list[Expr], list[Expr]]:
    """The new axes, the old axes in terms of them, and the conditions that cut off padding."""
    new_names: list[str] = []
    for k in range(len(index)):
        new_names.append(unique(f"p{k}", taken | set(new_names)))
    namer = Namer(state.sizes | {f"@{n}" for n in new_names})
    params = [namer.parameter(Var(f"@{n}")) for n in new_names]
    names = dims([a.name for a in op.axes])
    texts = [index_text(e, names, namer) for e in index]
    if any(t is None for t in texts):
        raise BadArgument("", f"the index map is not affine: {', '.join(map(str, index))}")
    box = " and ".join(f"0 <= {names[a.name]} < {index_text(a.extent, {}, namer)}" for a in op.axes)
    old = ", ".join(names.values())
    context = " and ".join(f"{p} >= 0" for p in namer.parameters)
    forward = isl.make_map(f"{namer.prefix()}{{ [{old}] -> [{', '.join(str(t) for t in texts)}] : {box} }}")
    forward = forward.intersect_params(isl.make_set(f"{namer.prefix()}{{ : {context} }}"))
    if not forward.is_injective():
        raise BadArgument("", f"the index map sends two elements to one place: {', '.join(map(str, index))}")
    image = forward.range()
    kept = {a.name: a.extent for a in op.axes}
    axes = tuple(
        _new_axis(name, image, k, namer, kept.get(e.name) if isinstance(e, Var) else None)
        for k, (name, e) in enumerate(zip(new_names, index, strict=True))
    )
    if instead is not None and not _is_full(image, axes, namer, context):
        why = f"{op.name} is an output, and some places of the new array would hold no element of it"
        raise BadArgument("", why, suggested=instead)
    equal = " and ".join(f"{p} = {t}" for p, t in zip(params, texts, strict=True))
    back = isl.make_set(f"{namer.prefix()}{{ [{old}] : {equal} }}")
    if not back.is_bounded():  # several axes in one index, which only their extents tell apart
        back = isl.make_set(f"{namer.prefix()}{{ [{old}] : {equal} and {box} }}")
    rename: dict[str, Expr] = {f"@{n}": Var(n) for n in new_names}
    inverse = [substitute(_value(back, k, namer), rename) for k in range(len(op.axes))]
    where = [c for a, e in zip(op.axes, inverse, strict=True) for c in (binary("ge", e, 0), binary("lt", e, a.extent))]
    where += [
        binary("eq", substitute(f, dict(zip([a.name for a in op.axes], inverse, strict=True))), Var(n))
        for f, n in zip(index, new_names, strict=True)
    ]
    return axes, inverse, where


def _is_full(image: isl.Set, axes: Sequence[Axis], namer: Namer, context: str) -> bool:
    """Whether every place of the new array holds an element."""
    names = dims([a.name for a in axes])
    box = " and ".join(f"0 <= {names[a.name]} < {index_text(a.extent, {}, namer)}" for a in axes)
    places = isl.make_set(f"{namer.prefix()}{{ [{', '.join(names.values())}] : {box} }}")
    return bool(places.intersect_params(isl.make_set(f"{namer.prefix()}{{ : {context} }}")).is_subset(image))


def _new_axis(name: str, image: isl.Set, k: int, namer: Namer, own: Expr | None) -> Axis:
    """A new axis; `own` is the extent of the axis that it is, if it is one."""
    low, high = image.dim_min(k), image.dim_max(k)
    if low.n_piece() and not low.is_equal(low.sub(low)):
        start = (
            f"starts at {from_pw_aff(low, namer.parameters)}" if low.n_piece() == 1 else "has no single smallest value"
        )
        raise BadArgument("", f"index {k} of the map {start}, and must start at 0")
    if high.n_piece() != 1 and own is not None:
        return Axis(name, own)
    if high.n_piece() != 1:
        raise BadArgument("", f"index {k} of the map has no single largest value")
    extent = from_pw_aff(isl.plus(high, 1), namer.parameters)
    return Axis(name, binary("max", extent, 0) if _may_be_negative(extent, namer) else extent)


def _may_be_negative(extent: Expr, namer: Namer) -> bool:
    """True for extents such as `2 * n - 1`, which hold for a layout with elements only."""
    negative = isl.make_set(f"{namer.prefix()}{{ : {index_text(extent, {}, namer)} < 0 }}")
    context = " and ".join([f"{p} >= 0" for p in namer.parameters]) or "0 = 0"
    return not negative.intersect_params(isl.make_set(f"{namer.prefix()}{{ : {context} }}")).is_empty()


def _value(back: isl.Set, k: int, namer: Namer) -> Expr:
    value = back.dim_min(k)
    if value.n_piece() != 1:
        raise BadArgument("", f"the index map has no affine inverse (axis {k})")
    return from_pw_aff(value, namer.parameters)


def _follow(
    reader: ComputeOp, old: ComputeOp, new: ComputeOp, index: Sequence[Expr], sizes: frozenset[str]
) -> ComputeOp:
    """A reader of the old layout as one of the new.

    An index that is checked at run time must stay within the old bounds: outside them it becomes -1.
    """
    moved = dict(zip([b.name for b in buffers(old)], buffers(new), strict=True))
    checks = RuntimeChecks(reader, sizes)

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer.name not in moved:
            return None
        at = {a.name: i for a, i in zip(old.axes, node.index, strict=True)}
        first, *rest = (substitute(e, at) for e in index)
        if node in checks:
            first = select(inside(node, old), first, -1)
        return Load(moved[node.buffer.name], (first, *rest))

    return replace(reader, body=tuple(rewrite(b, rule) for b in reader.body))
