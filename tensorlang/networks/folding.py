"""Moves of elements become indices: what only renames, splits or reorders dimensions is no stage of its own.

Two rewrites of the program, which keep what it computes. A stage whose elements are those of one array at affine places
is read where its source is (`_without_moves`). An elementwise stage takes the domain of what it follows, so that it can
be computed in its tile, whatever shapes the model had in between (`_following`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Buffer, Expr, Load, Var, as_expr, binary, rewrite, substitute, variables, walk
from tensorlang.ir.simplify import simplify
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.operation import ComputeOp, Operation, at_own_place, axes_at, buffers, loads
from tensorlang.te.program import Program, unique
from tensorlang.te.tags import ATTENTION

Place = tuple[Expr, ...]
Moved = tuple[Buffer, ComputeOp, Place]
"""The array that has the elements of a stage, the stage as it was, and the place there of an element of it."""
_ROUNDS = 8


def folded(program: Program) -> Program:
    """The program with moves folded into indices, and elementwise stages over the domains of what they follow."""
    for _ in range(_ROUNDS):
        made = _following(_without_moves(program))
        if made.text == program.text:
            break
        program = made
    return program


def _without_moves(program: Program) -> Program:
    moved: dict[str, Moved] = {}
    ops: list[Operation] = []
    for op in program.ops:
        op = _reading(op, moved)
        if isinstance(op, ComputeOp) and op.name not in program.outputs and _only_computed(program, op.name):
            place = _move(op)
            kept = place is not None and _joins_windows(program, op, place[1])
            if place is not None and not kept and (not _is_attended(program, op.name) or _keeps_rows(op, place[1])):
                moved[op.name] = place[0], op, place[1]
                continue
        ops.append(op)
    return replace(program, ops=tuple(ops))


def _only_computed(program: Program, name: str) -> bool:
    return all(isinstance(program[reader], ComputeOp) for reader in program.consumers[name])


def _is_attended(program: Program, name: str) -> bool:
    """Whether an attention reads a stage, by its rows."""
    readers = (program[reader] for reader in program.consumers[name])
    return any(isinstance(op, ComputeOp) and op.tag.startswith(f"{ATTENTION}.") for op in readers)


def _keeps_rows(op: ComputeOp, place: Place) -> bool:
    """Whether rows of a stage lie in rows of the array that it moves elements of, as attentions want it."""
    last = zip(op.axes[-2:], place[-2:], strict=False)
    return len(op.axes) > 1 < len(place) and all(axis.name in variables(index) for axis, index in last)


def _joins_windows(program: Program, stage: ComputeOp, place: Place) -> bool:
    """Whether elements that windows slide over lie along one dimension with others, as pixels do that are tokens.

    Windows are seen by what they read: images stay images for them.
    """
    axes = {axis.name for axis in stage.axes}
    joined = [names for index in place if len(names := axes & variables(index)) > 1]
    if not joined:
        return False
    slid = set[str]()
    for reader in (program[name] for name in program.consumers[stage.name]):
        if isinstance(reader, ComputeOp) and reader.reduce_axes:
            own, summed = ({a.name for a in part} for part in (reader.axes, reader.reduce_axes))
            for load in loads(reader):
                if load.buffer.name == buffers(stage)[0].name:
                    pairs = zip(stage.axes, map(variables, load.index), strict=True)
                    slid |= {axis.name for axis, names in pairs if names & own and names & summed}
    return any(names & slid for names in joined)


def _move(op: ComputeOp) -> tuple[Buffer, Place] | None:
    """The array that a stage only reads at other places, and these; None for any other stage."""
    if op.where or op.reduce_axes or len(op.body) > 1 or not isinstance(op.body[0], Load):
        return None
    load = op.body[0]
    if any(affine(index) is None for index in load.index):
        return None
    return load.buffer, load.index


def _reading(op: Operation, moved: Mapping[str, Moved]) -> Operation:
    """An operation that reads sources in place of what was moved."""
    if not isinstance(op, ComputeOp) or not any(load.buffer.name in moved for load in loads(op)):
        return op
    ranges = _ranges(op)

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer.name not in moved:
            return None
        source, stage, place = moved[node.buffer.name]
        values = {a.name: i for a, i in zip(stage.axes, node.index, strict=True)}
        return _load(source, [simplify(substitute(i, values), ranges) for i in place], op.axes)

    return replace(op, body=tuple(rewrite(b, rule) for b in op.body))


def _load(buffer: Buffer, index: Sequence[Expr], axes: Sequence[Axis]) -> Load:
    """A load where dimensions of one element are read at the axes of one element in their places, not at 0."""
    if len(index) == len(axes):
        ones = [extent_of(n) == 1 == extent_of(a.extent) for n, a in zip(buffer.shape, axes, strict=True)]
        index = [Var(a.name) if one else i for i, a, one in zip(index, axes, ones, strict=True)]
    return Load(buffer, tuple(index))


def _ranges(op: ComputeOp) -> dict[str, tuple[int | None, int | None]]:
    found: dict[str, tuple[int | None, int | None]] = {}
    for axis in (*op.axes, *op.reduce_axes):
        extent, lower = extent_of(axis.extent), extent_of(axis.lower)
        found[axis.name] = (lower, None if extent is None or lower is None else lower + extent - 1)
    return found


def _following(program: Program) -> Program:
    """Elementwise stages over the domain of the first stage that they read in whole, a reduction rather than others."""
    made: dict[str, Moved] = {}
    done: dict[str, ComputeOp] = {}
    ops: list[Operation] = []
    for op in program.ops:
        op = _reading(op, made)
        if isinstance(op, ComputeOp):
            if op.name in program.outputs:
                op = _renamed(_with_leader_in_shape(program, op, done), done)
            elif _only_computed(program, op.name) and not _is_attended(program, op.name):
                op = _follower(program, op, done, made)
            done[op.name] = op
        ops.append(op)
    return replace(program, ops=tuple(done.get(op.name, op) for op in ops))


def _follower(program: Program, op: ComputeOp, done: Mapping[str, ComputeOp], made: dict[str, Moved]) -> ComputeOp:
    """A stage over the domain of what it follows, or in its order; where its elements are then is noted."""
    if op.where or len(op.body) > 1:
        return op
    reads = [load for load in loads(op) if load.buffer.name in done]
    if op.reduce_axes:
        return _in_order(op, reads, made)
    for load in sorted(reads, key=lambda load: not done[load.buffer.name].reduce_axes):
        leader = done[load.buffer.name]
        inverse = _inverse(op, leader, load.index)
        if inverse is None:
            continue
        if _joins_windows(program, op, load.index):
            return op
        axes = tuple(Axis(a.name, a.extent) for a in leader.axes)
        if [a.name for a in op.axes] == [a.name for a in axes] and all(
            isinstance(i, Var) and i.name == a.name for i, a in zip(load.index, axes, strict=True)
        ):
            return op
        new = replace(op, axes=axes)
        new = replace(new, body=(_with_simple_indices(substitute(op.body[0], inverse), new),))
        made[op.name] = buffers(new)[0], op, load.index
        return new
    return _in_order(op, reads, made)


def _with_leader_in_shape(program: Program, op: ComputeOp, done: dict[str, ComputeOp]) -> ComputeOp:
    """An output that alone reads a sum, which gets the axes of one element that the output has besides."""
    if op.reduce_axes or op.where or len(op.body) > 1:
        return op
    wide = tuple(a.name for a in op.axes if extent_of(a.extent) != 1)
    for load in loads(op):
        leader = done.get(load.buffer.name)
        if leader is None or not leader.reduce_axes or program.consumers[leader.name] != (op.name,):
            continue
        if leader.name in program.outputs or axes_at(load) != wide or len(wide) == len(op.axes):
            continue
        taken = {a.name for a in (*leader.axes, *leader.reduce_axes)}
        own = iter(leader.axes)
        axes = (next(own) if a.name in wide else replace(a, name=unique(a.name, taken)) for a in op.axes)
        done[leader.name] = new = replace(leader, axes=tuple(axes))
        reads: dict[Expr, Expr] = {load: Load(buffers(new)[0], tuple(Var(a.name) for a in op.axes))}
        return replace(op, body=(rewrite(op.body[0], reads.get),))
    return op


def _renamed(op: ComputeOp, done: Mapping[str, ComputeOp]) -> ComputeOp:
    """A stage with the names of the axes of what it follows, where each element is at its own place already."""
    if op.reduce_axes or op.where or len(op.body) > 1:
        return op
    for load in loads(op):
        leader = done.get(load.buffer.name)
        if leader is not None and at_own_place(op, load):
            values = {a.name: Var(b.name) for a, b in zip(op.axes, leader.axes, strict=True)}
            axes = tuple(replace(a, name=b.name) for a, b in zip(op.axes, leader.axes, strict=True))
            return replace(op, axes=axes, body=(substitute(op.body[0], values),))
    return op


def _in_order(op: ComputeOp, reads: Sequence[Load], made: dict[str, Moved]) -> ComputeOp:
    """A stage with its axes in the order in which they move through the first array that all of them move in."""
    own = [a.name for a in op.axes]
    for load in reads:
        order = [node.name for i in load.index for node in walk(i) if isinstance(node, Var) and node.name in own]
        order = list(dict.fromkeys(order))
        still = [a.name for a in op.axes if extent_of(a.extent) == 1 and a.name not in order]
        if sorted([*order, *still]) != sorted(own):
            continue
        if order == [name for name in own if name in order]:
            return op
        moving = iter(order)
        axes = {a.name: a for a in op.axes}
        places = [name if name in still else next(moving) for name in own]
        new = replace(op, axes=tuple(axes[name] for name in places))
        made[op.name] = buffers(new)[0], op, tuple(Var(name) for name in places)
        return new
    return op


def _with_simple_indices(expr: Expr, op: ComputeOp) -> Expr:
    """An expression over the axes of a stage with the indices of its loads simplified."""
    ranges = _ranges(op)

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Load):
            return _load(node.buffer, [simplify(i, ranges) for i in node.index], op.axes)
        return None

    return rewrite(expr, rule)


def _inverse(op: ComputeOp, leader: ComputeOp, index: Sequence[Expr]) -> dict[str, Expr] | None:
    """The axes of a stage by those of another, all of whose elements it reads, each once; None where it does not.

    Each dimension of the other is read at a number in mixed radix whose digits are axes.
    """
    extents = {a.name: extent_of(a.extent) for a in op.axes}
    if None in extents.values():
        return None
    found: dict[str, Expr] = {}
    for axis, place in zip(leader.axes, index, strict=True):
        form = affine(place)
        if form is None or form.get("", 0):
            return None
        digits = sorted((c, n) for n, c in form.items() if n)
        radix = 1
        for k, (factor, name) in enumerate(digits):
            if name in found or factor != radix:
                return None
            value: Expr = Var(axis.name) if radix == 1 else binary("floordiv", Var(axis.name), radix)
            radix *= extents[name] or 1
            found[name] = value if k == len(digits) - 1 else binary("floormod", value, extents[name])
        if extent_of(axis.extent) != radix:
            return None
    rest = [name for name, n in extents.items() if name not in found]
    if any(extents[name] != 1 for name in rest):
        return None
    return found | {name: as_expr(0) for name in rest}
