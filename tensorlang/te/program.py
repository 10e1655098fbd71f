"""A program in canonical form: operations in order, keyed by unique names, bodies over buffers.

Canonical programs are what schedules transform: equal text is equal meaning. Logs name their forms (te.forms).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from heapq import heappop, heappush

from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, InternalError
from tensorlang.ir.expr import Buffer, Expr, Load, Var, rewrite, to_text, walk
from tensorlang.ir.printer import stmt_text
from tensorlang.ir.stmt import Allocate, For, Stmt, map_exprs, stmt_exprs, with_buffers
from tensorlang.ir.stmt import walk as walk_stmt
from tensorlang.location import caller
from tensorlang.names import lookup
from tensorlang.te.check import check_length
from tensorlang.te.exact import exact
from tensorlang.te.forms import form_of, text_key
from tensorlang.te.operation import (
    PRECISION,
    ComputeOp,
    ExternOp,
    HybridOp,
    Operation,
    PlaceholderOp,
    Read,
    Tensor,
    buffers,
    loads,
)


@dataclass(frozen=True)
class Program:
    """Operations, producers first, and the names of those that are outputs.

    `hidden` are buffers of such an operation that the caller does not get: operations fused into one hold some.
    """

    ops: tuple[Operation, ...]
    outputs: tuple[str, ...]
    hidden: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> Operation:
        return self.by_name[name]

    def _repr_html_(self) -> str:
        """What a notebook shows: a row for each operation."""
        return str(lookup(__name__, "program_html")(self))

    @cached_property
    def by_name(self) -> dict[str, Operation]:
        """Operations by name."""
        return {op.name: op for op in self.ops}

    @cached_property
    def buffers(self) -> dict[str, Buffer]:
        """Buffers by name."""
        return {b.name: b for op in self.ops for b in buffers(op)}

    @cached_property
    def producer(self) -> dict[str, str]:
        """Buffer name -> name of the operation that writes it."""
        return {b.name: op.name for op in self.ops for b in buffers(op)}

    def is_output(self, buffer: str) -> bool:
        """Whether the caller gets a buffer."""
        return self.producer[buffer] in self.outputs and buffer not in self.hidden

    @cached_property
    def storage(self) -> dict[str, tuple[str, int]]:
        """Buffer name -> the buffer whose memory it has, and how often that was updated in place before."""
        found: dict[str, tuple[str, int]] = {}
        for op in self.ops:
            updated = op.updates if isinstance(op, HybridOp) else (None,) * op.num_outputs
            for buffer, old in zip(buffers(op), updated, strict=True):
                root, times = (buffer.name, -1) if old is None else found[old.name]
                found[buffer.name] = root, times + 1
        return found

    @cached_property
    def consumers(self) -> dict[str, tuple[str, ...]]:
        """Operation name -> names of the operations that read it, in program order."""
        found: dict[str, list[str]] = {op.name: [] for op in self.ops}
        for op in self.ops:
            for name in dict.fromkeys(self.producer[b] for b in read_buffers(op)):
                found[name].append(op.name)
        return {name: tuple(users) for name, users in found.items()}

    @cached_property
    def sizes(self) -> tuple[Var, ...]:
        """The symbolic sizes, in order of first use in shapes and bounds."""
        found: dict[str, Var] = {}
        for op in self.ops:
            for expr in _bounds(op):
                for node in walk(expr):
                    if isinstance(node, Var):
                        found.setdefault(node.name, node)
        return tuple(found.values())

    @property
    def inputs(self) -> frozenset[str]:
        """The names of the arrays that come from outside."""
        return frozenset(op.name for op in self.ops if isinstance(op, PlaceholderOp))

    @cached_property
    def text(self) -> str:
        """The program as text. Equal text, equal program."""
        hidden = f" without {', '.join(sorted(self.hidden))}" if self.hidden else ""
        return "".join(f"{op_text(op)}\n" for op in self.ops) + f"return {', '.join(self.outputs)}{hidden}\n"

    @property
    def key(self) -> str:
        """A stable hash of the program, whatever its names: the workload key of tuning logs."""
        return form_of(self.text).key

    @property
    def keys(self) -> tuple[str, str]:
        """`key`, and that of the text with its names: the oldest records have no other."""
        return self.key, text_key(self.text)

    def replacing(self, changed: dict[str, Operation], before: dict[str, Sequence[Operation]] | None = None) -> Program:
        """Return the program with operations replaced by name, and new ones put in front of named ones."""
        ops: list[Operation] = []
        for op in self.ops:
            ops += (before or {}).get(op.name, ())
            ops.append(changed.get(op.name, op))
        return replace(self, ops=tuple(ops))

    def without(self, name: str) -> Program:
        """Return the program without one operation (which nobody reads any more)."""
        return replace(self, ops=tuple(op for op in self.ops if op.name != name))

    def needed(self, wanted: Iterable[str], without: str) -> set[str]:
        """Return the names of inputs and of what some operations need, but for what one of them alone does."""
        found = set(wanted)
        for op in reversed(self.ops):
            if op.name != without and (op.name in found or isinstance(op, PlaceholderOp)):
                found |= {op.name, *(self.producer[b] for b in read_buffers(op))}
        return found - {without}

    def fresh_name(self, wish: str) -> str:
        """Return `wish`, or `wish_1`, ... so that no operation has that name yet."""
        return unique(wish, self.by_name)


def _bounds(op: Operation) -> list[Expr]:
    """The expressions of an operation that may name symbolic sizes: shapes, and the bounds of axes and loops."""
    bounds = [e for b in buffers(op) for e in b.shape]
    match op:
        case ComputeOp():
            bounds += [e for a in (*op.axes, *op.reduce_axes) for e in (a.lower, a.extent)]
        case HybridOp():
            loops = {s.var.name for s in walk_stmt(op.body) if isinstance(s, For)}
            shapes = [e for s in walk_stmt(op.body) if isinstance(s, Allocate) for e in s.buffer.shape]
            free = [n for e in (*shapes, *stmt_exprs(op.body)) for n in walk(e) if isinstance(n, Var)]
            bounds += [n for n in free if n.name not in loops]
        case _:
            pass
    return bounds


def unique(wish: str, taken: Iterable[str]) -> str:
    """Return `wish`, or `wish_1`, `wish_2`, ... whichever is not taken yet."""
    names, name, n = taken if isinstance(taken, set | dict) else set(taken), wish, 0
    while name in names:
        n += 1
        name = f"{wish}_{n}"
    return name


@lru_cache(maxsize=4096)
def read_buffers(op: Operation) -> tuple[str, ...]:
    """Names of the buffers that a canonical operation reads."""
    match op:
        case ComputeOp():
            names = [load.buffer.name for load in loads(op)]
        case ExternOp():
            names = [b.name for b in op.inputs if isinstance(b, Buffer)]
        case HybridOp():
            own = {b.name for b in (*buffers(op), *local_arrays(op))}
            read = [n.buffer.name for e in stmt_exprs(op.body) for n in walk(e) if isinstance(n, Load)]
            names = [b.name for b in op.updates if b is not None] + [n for n in read if n not in own]
        case PlaceholderOp():
            names = []
    return tuple(dict.fromkeys(names))


@lru_cache(maxsize=512)
def local_arrays(op: HybridOp) -> tuple[Buffer, ...]:
    """The arrays that an operation allocates for itself."""
    return tuple(s.buffer for s in walk_stmt(op.body) if isinstance(s, Allocate))


def op_text(op: Operation) -> str:
    """Return a canonical operation as text: one line, unless it is a hybrid one."""
    match op:
        case PlaceholderOp():
            return f"input {buffers(op)[0]}"
        case ExternOp():
            inputs = ", ".join(b.name for b in op.inputs)
            return f"extern {', '.join(map(str, buffers(op)))} = {op.function.__qualname__}({inputs})"
        case HybridOp():
            made = zip(buffers(op), op.updates, strict=True)
            outputs = ", ".join(f"{b}" if old is None else f"{b} updates {old.name}" for b, old in made)
            body = "".join(f"\n  {line}" for line in stmt_text(op.body).splitlines())
            return f"hybrid {outputs}:{body}"
        case ComputeOp():
            axes = ", ".join(f"{a.name} < {to_text(a.extent)}" for a in op.axes)
            where = "".join(f" where {to_text(w)}" for w in op.where)
            within = f" in {op.attrs[PRECISION]}" if PRECISION in op.attrs else ""
            arrays = ", ".join(map(str, buffers(op)))
            return f"{arrays} [{axes}]{where}{within} = {', '.join(to_text(b) for b in op.body)}"


def canonical(outputs: Sequence[Tensor | Operation]) -> tuple[Program, dict[int, str]]:
    """Return the program that computes `outputs`, and the name given to each user operation by its id."""
    for output in outputs:
        if not isinstance(output, Tensor | PlaceholderOp | ComputeOp | ExternOp | HybridOp):
            raise DefinitionError(
                f"expected tensors or their operations, got {output!r}; as in te.create_schedule(C.op)", caller()
            )
    roots: list[Operation] = [o.op if isinstance(o, Tensor) else o for o in outputs]
    ordered = readers_first(producers_first(roots))
    names: dict[int, str] = {}
    taken: set[str] = set()
    for key, op in ordered.items():
        names[key] = unique(op.name, taken)
        taken.add(names[key])
    made: dict[int, Operation] = {}
    for key, op in ordered.items():
        made[key] = canonical_op(op, names[key], made)
    program = Program(tuple(made.values()), tuple(dict.fromkeys(names[id(op)] for op in roots)))
    for key, op in ordered.items():
        for member in op.members if isinstance(op, HybridOp) else ():
            names.setdefault(id(member.op), names[key])
    _check_sizes(program)
    _check_updates(program)
    return program, names


def producers_first(roots: Sequence[Operation]) -> dict[int, Operation]:
    """Every operation that the roots need, by its id, in depth-first order (chains may be thousands long)."""
    ordered: dict[int, Operation] = {}
    pending: list[tuple[Operation, bool]] = [(op, False) for op in reversed(roots)]
    while pending:
        op, inputs_done = pending.pop()
        if id(op) in ordered:
            continue
        if inputs_done:
            ordered[id(op)] = op
        else:
            pending.append((op, True))
            pending += [(t.op, False) for t in reversed(op.input_tensors)]
    return ordered


def readers_first(ordered: dict[int, Operation]) -> dict[int, Operation]:
    """The operations, with those that read an array in front of the one that updates it in place.

    DefinitionError when one of them needs the update as well.
    """
    updates = {key: _ids(op.updates) for key, op in ordered.items() if isinstance(op, HybridOp)}
    needs = {key: {id(t.op) for t in op.input_tensors} for key, op in ordered.items()}
    for updater, changed in updates.items():
        for key, op in ordered.items() if changed else ():
            if key != updater and changed & _ids(op.input_tensors) - updates.get(key, set()):
                needs[updater].add(key)
    place = {key: number for number, key in enumerate(ordered)}
    waiting = {key: len(before) for key, before in needs.items()}
    users: dict[int, list[int]] = {key: [] for key in ordered}
    for key, before in needs.items():
        for other in before:
            users[other].append(key)
    ready = [(place[key], key) for key, count in waiting.items() if not count]
    done: dict[int, Operation] = {}
    while ready:
        _, key = heappop(ready)
        done[key] = ordered[key]
        for user in users[key]:
            waiting[user] -= 1
            if not waiting[user]:
                heappush(ready, (place[user], user))
    if len(done) < len(ordered):
        raise _cannot_wait(ordered, needs, updates)
    return done


def _ids(tensors: Iterable[Tensor | Buffer | None]) -> set[tuple[int, int]]:
    return {(id(t.op), t.value_index) for t in tensors if isinstance(t, Tensor)}


def _cannot_wait(
    ordered: dict[int, Operation], needs: dict[int, set[int]], updates: dict[int, set[tuple[int, int]]]
) -> DefinitionError:
    """The error of an operation that reads an array before and after its update."""
    for updater, changed in updates.items():
        for reader in needs[updater] & set(_needing(updater, needs)):
            array = next(t for t in ordered[reader].input_tensors if (id(t.op), t.value_index) in changed)
            word = ordered[updater].name
            return DefinitionError(
                f"{ordered[reader].name} reads {array.name} as it was before {word} updates it in place, and needs "
                f"what {word} makes; pass {word} a copy of {array.name}",
                ordered[reader].location,
            )
    raise InternalError("operations need each other, and none reads an array before its update")


def _needing(key: int, needs: dict[int, set[int]]) -> Iterator[int]:
    """The operations that need one, directly or not."""
    found, grown = {key}, True
    while grown:
        more = {k for k, before in needs.items() if k not in found and before & found}
        yield from more
        grown, found = bool(more), found | more


def canonical_op(op: Operation, name: str, made: dict[int, Operation]) -> Operation:
    """A user's operation by a name, over the buffers of what is `made` already of those that it reads, by their ids."""

    def buffer(tensor: Tensor) -> Buffer:
        return buffers(made[id(tensor.op)])[tensor.value_index]

    def rule(node: Expr) -> Expr | None:
        return Load(buffer(node.tensor), node.index) if isinstance(node, Read) else None

    match op:
        case PlaceholderOp():
            return replace(op, name=name)
        case ExternOp():
            return replace(op, name=name, inputs=tuple(buffer(t) if isinstance(t, Tensor) else t for t in op.inputs))
        case ComputeOp():
            axes = (*op.axes, *op.reduce_axes)
            check_length(name, op.body, op.location)
            return replace(op, name=name, body=tuple(exact(rewrite(b, rule), axes) for b in op.body))
        case HybridOp():
            return _canonical_hybrid(op, name, buffer, rule)


def _canonical_hybrid(
    op: HybridOp, name: str, buffer: Callable[[Tensor], Buffer], rule: Callable[[Expr], Expr | None]
) -> HybridOp:
    """The arrays of a hybrid operation get names that are unique in the program."""
    check_length(name, tuple(stmt_exprs(op.body)), op.location)
    names = (name,) if op.num_outputs == 1 else tuple(f"{name}.v{k}" for k in range(op.num_outputs))
    made = tuple(replace(b, name=n) for b, n in zip(op.outputs, names, strict=True))
    own = {old.name: new for old, new in zip(op.outputs, made, strict=True)}
    own |= {b.name: replace(b, name=f"{name}.{b.name}") for b in local_arrays(op)}
    updates = tuple(buffer(t) if isinstance(t, Tensor) else t for t in op.updates)
    body = with_buffers(op.body, lambda b: own.get(b.name, b))
    members = tuple(replace(m, arrays=tuple(own[a].name for a in m.arrays)) for m in op.members)
    return replace(op, name=name, outputs=made, updates=updates, body=_exact_body(body, rule), members=members)


def _exact_body(body: Stmt, rule: Callable[[Expr], Expr | None]) -> Stmt:
    return map_exprs(body, lambda e: exact(rewrite(e, rule), ()))


def _check_updates(program: Program) -> None:
    """Refuse an array that is updated in place and also wanted, or updated twice, with its old contents."""
    updated: dict[str, str] = {}
    for op in program.ops:
        for old in op.updates if isinstance(op, HybridOp) else ():
            if old is None:
                continue
            if old.name in updated:
                raise DefinitionError(
                    f"{op.name} and {updated[old.name]} both update {old.name} in place; pass one of them the result "
                    f"of the other, or a copy",
                    op.location,
                )
            updated[old.name] = op.name
            if program.producer[old.name] in program.outputs and not _is_input(program, old.name):
                raise DefinitionError(
                    f"{old.name} is an output, and {op.name} updates it in place; pass {op.name} a copy", op.location
                )


def _is_input(program: Program, buffer: str) -> bool:
    return isinstance(program[program.producer[buffer]], PlaceholderOp)


def _check_sizes(program: Program) -> None:
    """Refuse an axis that has the name of a symbolic size: it would shadow it."""
    sizes = {v.name for v in program.sizes}
    for op in program.ops:
        if isinstance(op, ComputeOp):
            for axis in (*op.axes, *op.reduce_axes):
                if axis.name in sizes:
                    raise DefinitionError(
                        f"axis {axis.name} of {op.name} has the name of a symbolic size; rename one of them",
                        op.location,
                    )
