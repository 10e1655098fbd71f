"""In-place updates in another layout: cache_inplace."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Buffer, Const, Expr, Load, Var, rewrite, substitute, to_text
from tensorlang.ir.index import to_index
from tensorlang.ir.stmt import INDEX, For, LoopKind, Seq, Stmt, Store, map_children, map_exprs, stmt_exprs
from tensorlang.ir.stmt import walk as statements
from tensorlang.polyhedral.extract import unproven_among
from tensorlang.schedule.index_text import names_lookup, parse_index
from tensorlang.schedule.primitive import Identifier, IndexText, Outputs, Primitive, StageName, primitive
from tensorlang.schedule.primitives.layout import laid_out
from tensorlang.schedule.primitives.storage import in_program_order
from tensorlang.schedule.state import ScheduleState, initial_stage
from tensorlang.te.axis import Axis
from tensorlang.te.operation import ComputeOp, HybridOp, Operation, buffers


@primitive("cache_inplace")
@dataclass(frozen=True, slots=True)
class CacheInplace(Primitive):
    """Update arrays in copies under other indices: copied in before, and back after.

    Rewrite: `for t: for i: A[i] = f(A[i - 1])` -> `P[map(i)] = A[i]; for t: for i: P[map(i)] = f(P[map(i - 1)]);
    A[i] = P[map(i)]`.
    Legal when: the map is affine and injective, every array of the stage is updated in place and indexed by affine
    expressions, and the loops of the stage are still as declared.
    Example:
        >>> from tensorlang import te
        >>> @te.hybrid.script
        ... def sweep(A):
        ...     for i in range(1, 8):
        ...         for j in range(1, 8):
        ...             A[i, j] = A[i - 1, j] + A[i, j - 1]
        ...     return A
        >>> s = te.create_schedule(sweep(te.placeholder((8, 8), name="A")).op)
        >>> s["sweep"].cache_inplace(lambda i, j: (i + j, i)).name
        'sweep.packed'
    """

    stage: StageName
    axes: tuple[Identifier, ...]
    index: tuple[IndexText, ...]

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        op, inputs = _in_place(state, self.stage)
        prefix = _prefix(state.sizes)
        lookup = {n: Var(f"{prefix}{k}", INDEX) for k, n in enumerate(self.axes)}
        index = [parse_index(text, names_lookup(dict(lookup), state.decisions, state.sizes)) for text in self.index]
        layout = _Layout(prefix, tuple(index))
        for array in op.outputs:
            if len(array.shape) != len(self.axes):
                why = f"{array.name} has {len(array.shape)} dimensions, the map takes {len(self.axes)}"
                raise BadArgument("", why)
        taken = {*state.program.by_name, *state.program.buffers}
        inner_name = state.program.fresh_name(f"{self.stage}.packed")
        copies = []
        for k, old in enumerate(inputs):
            wish = f"{inner_name}.from{k}" if len(inputs) > 1 else f"{inner_name}.from"
            axes = tuple(Axis(f"{prefix}{d}", extent) for d, extent in enumerate(old.shape))
            plain = ComputeOp(_unused(wish, taken), axes, (), (Load(old, tuple(a.as_expr() for a in axes)),))
            copies.append(laid_out(state, plain, index))
        inner = _moved(op, inner_name, copies, layout)
        outer = replace(op, body=_copied_back(op.outputs, inner.outputs, layout), axes=())
        before: list[Operation] = [*copies, inner]
        program = state.program.replacing({self.stage: outer}, {self.stage: before})
        rest = {name: stage for name, stage in state.stages.items() if name != self.stage}
        return replace(state, program=program, stages=in_program_order(program, rest)), (inner_name,)

    def text(self) -> str:
        index = f"[{', '.join(self.index)}]"
        return f"s[{self.stage!r}].cache_inplace(lambda {', '.join(self.axes)}: {index})"


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where elements are in the copies: expressions of dimensions that are named by the prefix and a number."""

    prefix: str
    index: tuple[Expr, ...]

    def at(self, point: Sequence[Expr]) -> tuple[Expr, ...]:
        """The place in the copy of an element."""
        env = {f"{self.prefix}{d}": to_index(e) for d, e in enumerate(point)}
        return tuple(to_index(substitute(e, env)) for e in self.index)


def _prefix(sizes: Collection[str]) -> str:
    """What names of axes may begin with, so that no size is among them."""
    prefix = "ax"
    while any(size.startswith(prefix) for size in sizes):
        prefix += "_"
    return prefix


def _in_place(state: ScheduleState, stage: str) -> tuple[HybridOp, list[Buffer]]:
    """The operation of a stage and the arrays that it updates; BadArgument unless it updates all that it makes."""
    op = state.looped(stage)
    if not isinstance(op, HybridOp) or op.members:
        raise BadArgument("", f"{stage} updates nothing in place; cache_write and transform_layout are for such stages")
    inputs = [old for old in op.updates if isinstance(old, Buffer)]
    if len(inputs) != len(op.outputs):
        fresh = next(b.name for b, old in zip(op.outputs, op.updates, strict=True) if old is None)
        raise BadArgument("", f"{fresh} is a new array; cache_inplace is for stages that update all their arrays")
    if state.stages[stage] != initial_stage(op) or state.attached_to(stage):
        raise BadArgument("", f"cache_inplace must come before other steps on {stage}")
    own = {b.name for b in op.outputs}
    loops = [s.var.name for s in statements(op.body) if isinstance(s, For)]
    stored: list[Expr] = [Load(s.buffer, s.index) for s in statements(op.body) if isinstance(s, Store)]
    for load, _ in unproven_among([*stored, *stmt_exprs(op.body)], loops, state.sizes):
        if load.buffer.name in own:
            raise BadArgument(
                "", f"{to_text(load)} is indexed by data, or not affine: no other layout is known to hold it"
            )
    return op, inputs


def _unused(wish: str, taken: set[str]) -> str:
    name, number = wish, 0
    while name in taken:
        number += 1
        name = f"{wish}_{number}"
    taken.add(name)
    return name


def _moved(op: HybridOp, name: str, copies: Sequence[ComputeOp], layout: _Layout) -> HybridOp:
    """The operation on the copies."""
    names = (name,) if len(copies) == 1 else tuple(f"{name}.v{k}" for k in range(len(copies)))
    held = tuple(buffers(copy)[0] for copy in copies)
    made = tuple(Buffer(n, b.shape, b.dtype) for n, b in zip(names, held, strict=True))
    new = {old.name: b for old, b in zip(op.outputs, made, strict=True)}

    def load(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer.name in new:
            return Load(new[node.buffer.name], layout.at(node.index))
        return None

    def store(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store) and stmt.buffer.name in new:
            return Store(new[stmt.buffer.name], layout.at(stmt.index), stmt.value)
        return map_children(stmt, store)

    body = store(map_exprs(op.body, lambda e: rewrite(e, load)))
    return replace(op, name=name, outputs=made, updates=held, body=body)


def _copied_back(outputs: Sequence[Buffer], packed: Sequence[Buffer], layout: _Layout) -> Stmt:
    """Loops that copy every array back to where it came from."""
    parts: list[Stmt] = []
    for k, (out, held) in enumerate(zip(outputs, packed, strict=True)):
        start = layout.prefix if len(outputs) == 1 else f"{layout.prefix}{k}_"
        axes = tuple(Var(f"{start}{d}", INDEX) for d in range(len(out.shape)))
        body: Stmt = Store(out, axes, Load(held, layout.at(axes)))
        for axis, extent in reversed(list(zip(axes, out.shape, strict=True))):
            body = For(axis, Const(0, INDEX), to_index(extent), LoopKind.SERIAL, body)
        parts.append(body)
    return parts[0] if len(parts) == 1 else Seq(tuple(parts))
