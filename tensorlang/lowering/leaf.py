"""Statement bodies: stores of pure statements, initialisations and updates, at given loop values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from tensorlang.ir.expr import Binary, Buffer, Expr, Load, Unary, Var, binary, cast, rewrite, substitute, to_text, walk
from tensorlang.ir.index import to_index
from tensorlang.ir.stmt import INDEX, AtomicUpdate, CallPython, Fail, If, Let, Seq, Stmt, Store
from tensorlang.lowering.storage import Storage
from tensorlang.polyhedral.extract import GuardedLoad, tested, tested_among, unproven_among
from tensorlang.polyhedral.ordered import own_element, sources, updated
from tensorlang.polyhedral.statement import Role, Statement
from tensorlang.te.operation import ComputeOp, ExternOp, HybridOp, Operation, Reduce, buffers

Localize: TypeAlias = Callable[[Expr], Expr]
Element: TypeAlias = tuple[Buffer, tuple[Expr, ...]]


def build_leaf(
    op: Operation,
    statement: Statement,
    values: Mapping[str, Expr],
    storage: Storage,
    sizes: frozenset[str],
    unseen: Sequence[Expr],
    atomic: bool = False,
) -> Stmt:
    """Return the loop IR of one statement instance; `values` gives the loops around it.

    The conditions that isl did not see (`unseen`) are tested here: around the checks of data-dependent reads, or inside
    them if they read memory themselves. `atomic`: threads may meet at the element that an update touches.
    """
    if isinstance(op, ExternOp):
        arrays = tuple(b for b in op.inputs if isinstance(b, Buffer)) + buffers(op)
        return CallPython(op.name, tuple(storage.plans[b.name].buffer for b in arrays))
    assert isinstance(op, ComputeOp | HybridOp)
    axes = {name: substitute(e, dict(values)) for name, e in statement.point}
    env: dict[str, Expr] = {**{name: Var(name, INDEX) for name in sizes}, **axes}

    def localized(expr: Expr) -> Expr:
        return loads_of(substitute(expr, env), values, storage, axes)

    hidden = [loads_of(substitute(c, dict(values)), values, storage, axes) for c in unseen]
    in_memory = [c for c in hidden if _reads_memory(c)]
    if isinstance(op, HybridOp):
        checked = _ordered(op, statement, axes, in_memory, localized, values, storage, sizes, atomic)
        return _guarded(checked, (c for c in hidden if not _reads_memory(c)))
    own = {n: binary("add", v, statement.ahead_by) if n == statement.ahead else v for n, v in values.items()}
    targets = [storage.place(b.name, tuple(axes[a.name] for a in op.axes), own, axes) for b in buffers(op)]
    used: Sequence[Expr] = op.body
    match statement.role:
        case Role.PURE:
            results = [localized(b) for b in op.body]
        case Role.INIT:
            assert op.reduction is not None
            used = op.reduction.start()
            results = [localized(cast(e, d)) for e, d in zip(used, op.dtypes, strict=True)]
        case _:
            results = _combined(op, targets, localized)
    if atomic and statement.role is Role.UPDATE:
        stored: Stmt = _atomic(op, targets[0], localized)
    else:
        stored = _store_all(targets, results)
    stores = _guarded(stored, in_memory)
    checked = _checked(op.name, tested(op, sizes, used), "reads", stores, localized)
    return _guarded(checked, (c for c in hidden if not _reads_memory(c)))


def _ordered(
    op: HybridOp,
    statement: Statement,
    axes: Mapping[str, Expr],
    conditions: Sequence[Expr],
    localized: Localize,
    values: Mapping[str, Expr],
    storage: Storage,
    sizes: frozenset[str],
    atomic: bool,
) -> Stmt:
    """The store of a hybrid statement, its data-dependent accesses tested: the reads first, then the element stored."""
    source = sources(op)[statement.source]
    store = source.store
    index = tuple(localized(to_index(i)) for i in store.index)
    buffer, at = storage.place(store.buffer.name, index, values, axes)
    names = [loop.var.name for loop in source.loops]
    update = updated(store.value, own_element(store)) if atomic and source.reducer else None
    body: Stmt
    if update is None:
        body = Store(buffer, at, localized(store.value))
    else:
        body = AtomicUpdate(buffer, at, update[0], localized(update[1]))
    written = Load(store.buffer, store.index)
    body = _checked(op.name, unproven_among([written], names, sizes)[:1], "writes", body, localized)
    loads = tested_among(op, [store.value, *store.index], names, source.domain, sizes)
    body = _guarded(_checked(op.name, loads, "reads", body, localized), conditions)
    return _checked(op.name, tested_among(op, source.conditions, names, source.ranges, sizes), "reads", body, localized)


def _guarded(stmt: Stmt, conditions: Iterable[Expr]) -> Stmt:
    """The statement under conditions, the first one tested first: a later one may read what it decides."""
    for condition in reversed(list(conditions)):
        stmt = If(condition, stmt, is_guard=True)
    return stmt


def _reads_memory(expr: Expr) -> bool:
    return any(isinstance(node, Load) for node in walk(expr))


def loads_of(expr: Expr, values: Mapping[str, Expr], storage: Storage, axes: Mapping[str, Expr]) -> Expr:
    """Loads over local buffers, indices in int64."""

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Load):
            return None
        index = tuple(to_index(i) for i in node.index)
        buffer, local = storage.place(node.buffer.name, index, values, axes)
        return Load(buffer, local)

    return rewrite(expr, rule)


def _combined(op: ComputeOp, targets: list[Element], localized: Localize) -> list[Expr]:
    first = op.body[0]
    assert isinstance(first, Reduce)
    reducer = first.reducer
    env: dict[str, Expr] = {}
    for var, (buffer, index) in zip(reducer.lhs, targets, strict=True):
        env[var.name] = Load(buffer, index)
    for var, source in zip(reducer.rhs, first.sources, strict=True):
        env[var.name] = localized(source)
    chosen = [e for body in op.body if isinstance(body, Reduce) for e in (reducer.result[body.index],)]
    return [substitute(e, env) for e in chosen]


def _atomic(op: ComputeOp, target: Element, localized: Localize) -> Stmt:
    """The update of a reduction in one step."""
    reduction = op.reduction
    assert reduction is not None
    (lhs,), (rhs,) = reduction.reducer.lhs, reduction.reducer.rhs
    update = updated(reduction.reducer.result[0], lhs)
    assert update is not None
    word, value = update
    buffer, index = target
    return AtomicUpdate(buffer, index, word, localized(substitute(value, {rhs.name: reduction.sources[0]})))


def _store_all(targets: list[Element], results: list[Expr]) -> Stmt:
    """Store all values; several are computed before the first is stored."""
    if len(results) == 1:
        (buffer, index) = targets[0]
        return Store(buffer, index, results[0])
    temporaries = [Var(f"{buffer.name}.new", r.dtype) for (buffer, _), r in zip(targets, results, strict=True)]
    body: Stmt = Seq(tuple(Store(b, i, t) for (b, i), t in zip(targets, temporaries, strict=True)))
    for var, result in reversed(list(zip(temporaries, results, strict=True))):
        body = Let(var, result, body)
    return body


def _checked(owner: str, loads: Iterable[GuardedLoad], word: str, stores: Stmt, localized: Localize) -> Stmt:
    """Guard a statement by the bounds of its data-dependent accesses; what a test itself reads is tested before."""
    for load, conditions in loads:
        inside: Expr | None = None
        for index, size in zip(load.index, load.buffer.shape, strict=True):
            wide = to_index(index)
            ok = binary("and", binary("ge", wide, 0), binary("lt", wide, to_index(size)))
            inside = ok if inside is None else binary("and", inside, ok)
        if inside is None:
            continue
        for condition in reversed(conditions):
            inside = Binary("or", Unary("not", condition, "bool"), inside, "bool")
        message = f"{owner} {word} {to_text(load)} out of bounds of {load.buffer.name}"
        stores = If(localized(inside), stores, Fail(message), is_guard=True)
    return stores
