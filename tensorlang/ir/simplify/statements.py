"""Rules for statements: one walk over loop IR with what is known at each place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tensorlang.ir.expr import Const, Expr, Var
from tensorlang.ir.instance import Runs, map_runs
from tensorlang.ir.marks import marks
from tensorlang.ir.simplify.conditions import negated
from tensorlang.ir.simplify.division import Wraps
from tensorlang.ir.simplify.forms import LIMITS, Form, Range
from tensorlang.ir.simplify.integers import extreme
from tensorlang.ir.simplify.prove import Limits
from tensorlang.ir.simplify.scope import Scope
from tensorlang.ir.stmt import (
    Allocate,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    AtomicUpdate,
    Barrier,
    BoxCopy,
    CallMachine,
    CallPython,
    Fail,
    For,
    If,
    Kernel,
    Launch,
    Leaf,
    Let,
    LoopKind,
    MachineCommit,
    MachineWait,
    Mark,
    Prefetch,
    Seq,
    Stmt,
    Store,
    ThreadReduce,
    View,
    map_children,
    map_exprs,
    walk,
)

_EMPTY = Seq(())


def simplify_stmt(stmt: Stmt, ranges: Mapping[str, Range] | None = None) -> Stmt:
    """Return a statement that does the same: empty loops dropped, loops of one iteration inlined, guards decided."""
    return _visit(Scope(ranges or {}), stmt) or _EMPTY


def simplify_kernel(kernel: Kernel) -> Kernel:
    """Return the kernel with its body simplified; sizes are at least zero."""
    body = simplify_stmt(kernel.body, {size.name: (0, None) for size in kernel.sizes})
    return replace(kernel, body=body)


def _visit(scope: Scope, stmt: Stmt) -> Stmt | None:
    """The simplified statement, or None when nothing is left of it."""
    match stmt:
        case For():
            return _for(scope, stmt)
        case Store():
            index = tuple([scope.value(i) for i in stmt.index])
            return Store(stmt.buffer, index, scope.value(stmt.value), _runs(scope, stmt.runs))
        case AtomicUpdate():
            index = tuple([scope.value(i) for i in stmt.index])
            return replace(stmt, index=index, value=scope.value(stmt.value), runs=_runs(scope, stmt.runs))
        case Prefetch():
            return replace(stmt, index=tuple([scope.value(i) for i in stmt.index]))
        case If():
            return _if(scope, stmt)
        case Seq():
            return _seq(scope, stmt)
        case Allocate():
            body = _visit(scope, stmt.body)
            return None if body is None else Allocate(stmt.buffer, body, stmt.threads)
        case Let():
            return _let(scope, stmt)
        case CallMachine():
            views = (View(v.buffer, tuple([scope.value(i) for i in v.index]), v.dims, v.steps) for v in stmt.views)
            accumulates = None if stmt.accumulates is None else scope.value(stmt.accumulates)
            meaning, runs = _visit(scope, stmt.meaning) or _EMPTY, _runs(scope, stmt.runs)
            return CallMachine(stmt.code, tuple(views), meaning, accumulates, runs)
        case AsyncCopy() | BoxCopy() | CallPython() | Mark() | Barrier() | AsyncCommit() | AsyncWait():
            done = map_exprs(stmt, scope.value)
            assert isinstance(done, Leaf)
            return replace(done, runs=_runs(scope, stmt.runs))
        case MachineCommit() | MachineWait():
            return replace(stmt, runs=_runs(scope, stmt.runs))
        case ThreadReduce() | Launch():
            return map_exprs(stmt, scope.value)
        case Fail():
            return stmt


def _seq(scope: Scope, stmt: Seq) -> Stmt | None:
    body: list[Stmt] = []
    for child in stmt.body:
        done = _visit(scope, child)
        if isinstance(done, Seq):
            body += done.body
        elif done is not None:
            body.append(done)
    if len(body) > 1:
        return Seq(tuple(body))
    return body[0] if body else None


def _if(scope: Scope, stmt: If) -> Stmt | None:
    condition = scope.value(stmt.cond)
    if isinstance(condition, Const):
        branch = stmt.then if condition.value else stmt.orelse
        left = marks(stmt.then) if stmt.is_guard and not condition.value else None
        return _seq(scope, Seq(tuple(part for part in (left, branch) if part is not None)))
    visit = _guarded if stmt.is_guard else _branch
    then = visit(scope, condition, True, stmt.then)
    orelse = None if stmt.orelse is None else visit(scope, condition, False, stmt.orelse)
    if then is None:
        return None if orelse is None else If(negated(condition), orelse, None, stmt.is_guard)
    return If(condition, then, orelse, stmt.is_guard)


def _guarded(scope: Scope, condition: Expr, truth: bool, body: Stmt) -> Stmt | None:
    """What a guard is around: its instances are there whether it holds or not, which tells nothing about them."""
    if any(isinstance(s, For) for s in walk(body)):
        return _visit(scope, body)
    before = scope.settled
    settled = body if before else _settled(scope, body)
    scope.settled = True
    done = _branch(scope, condition, truth, settled)
    scope.settled = before
    return done


def _settled(scope: Scope, stmt: Stmt) -> Stmt:
    """A statement with the instances of its leaves as they are to be."""
    if isinstance(stmt, Leaf):
        return replace(stmt, runs=_runs(scope, stmt.runs))
    return map_children(stmt, lambda s: _settled(scope, s))


def _runs(scope: Scope, runs: Runs) -> Runs:
    """The instances of a leaf."""
    return runs if scope.settled else map_runs(runs, scope.value)


def _branch(scope: Scope, condition: Expr, truth: bool, body: Stmt) -> Stmt | None:
    """A statement that runs where a condition holds (or not); a variable of which one value is left is that value."""
    with scope.assuming(condition, truth, lasting=True) as facts:
        table, names = scope.atoms.table, scope.names
        pinned = {
            (e.name, key): n for key, n in scope.facts.pinned(facts).items() if isinstance(e := table[key].expr, Var)
        }
        before = dict(names)
        for (name, key), value in pinned.items():
            if name in names and names[name].terms == {key: 1}:
                names[name] = Form({}, value)
        done = _visit(scope, body)
        scope.names = before
    return done


def _for(scope: Scope, stmt: For) -> Stmt | None:
    lower, upper = _bound(scope, stmt.lower, "max"), _bound(scope, stmt.upper, "min")
    extent = upper.plus(lower, -1)
    least, most = scope.atoms.range(extent)
    prove = scope.facts.nonnegative
    if (most is not None and most <= 0) or ((least is None or least <= 0) and prove(extent.scaled(-1))):
        return None
    if stmt.kind is not LoopKind.BOUND and (least is None or least <= 1) and prove(extent.scaled(-1).shifted(1)):
        body = _once(scope, stmt.var, lower, stmt.body)
        if body is None or prove(extent.shifted(-1)):
            return body
        return If(scope.value(stmt.lower < stmt.upper), body)
    var = _loop_variable(scope, stmt, lower, upper)
    body = _with_name(scope, stmt.var.name, var, stmt.body)
    scope.facts.bounds.pop(next(iter(var.terms)), None)
    if body is None:
        return None
    first, end = (scope.atoms.emit(bound, "int64") for bound in (lower, upper))
    return For(stmt.var, first, end, stmt.kind, body, stmt.axis, stmt.thread, stmt.pragmas)


def _bound(scope: Scope, bound: Expr, made: str) -> Form:
    """A lower bound as a `max` of forms, an upper one as a `min`, with what is added to it inside."""
    known = scope.form(bound)
    parts = scope.facts.alternatives(known, made)
    try:
        return known if len(parts) == 1 else extreme(scope, made, parts, "int64")
    except Wraps:
        return known


def _loop_variable(scope: Scope, stmt: For, lower: Form, upper: Form) -> Form:
    """A variable with the loop's range, and its bounds as facts; loops over the same in one place have the same."""
    key = stmt.var.name, stmt.var.dtype, lower.key(), upper.key()
    known = scope.place.loops.get(key)
    if known is None:
        known = scope.place.loops[key] = _new_variable(scope, stmt.var, lower, upper)
    var, limits = known
    scope.facts.bounds[next(iter(var.terms))] = limits
    return var


def _new_variable(scope: Scope, var: Var, lower: Form, upper: Form) -> tuple[Form, Limits]:
    low, high = scope.atoms.range(lower)[0], scope.atoms.range(upper)[1]
    meaning = scope.fresh(var, (low, None if high is None else high - 1))
    facts = scope.facts
    # A bound that reads memory may change while the loop runs.
    lowers = tuple(f for f in facts.alternatives(lower, "max") if facts.stable(f))
    uppers = tuple(f for f in facts.alternatives(upper.shifted(-1), "min") if facts.stable(f))
    return meaning, (lowers, uppers)


def _let(scope: Scope, stmt: Let) -> Stmt | None:
    if stmt.var.dtype not in LIMITS:
        body = _with_name(scope, stmt.var.name, None, stmt.body)
        return None if body is None else Let(stmt.var, scope.value(stmt.value), body)
    known = scope.form(stmt.value)
    if not known.terms or _is_variable(scope, known):
        return _with_name(scope, stmt.var.name, known, stmt.body)
    return _named(scope, stmt.var, known, stmt.body)


def _once(scope: Scope, var: Var, known: Form, body: Stmt) -> Stmt | None:
    """The body for one value of a variable: inlined, unless it reads memory that the body may change."""
    if scope.facts.stable(known):
        return _with_name(scope, var.name, known, body)
    return _named(scope, var, known, body)


def _named(scope: Scope, var: Var, known: Form, body: Stmt) -> Stmt | None:
    """A Let of an integer."""
    meaning = scope.fresh(var, scope.atoms.range(known))
    key = next(iter(meaning.terms))
    if scope.facts.stable(known):
        scope.facts.bounds[key] = ((known,), (known,))
    done = _with_name(scope, var.name, meaning, body)
    scope.facts.bounds.pop(key, None)
    return None if done is None else Let(var, scope.atoms.emit(known, var.dtype), done)


def _is_variable(scope: Scope, known: Form) -> bool:
    if len(known.terms) != 1 or known.const:
        return False
    ((key, c),) = known.terms.items()
    return c == 1 and scope.atoms.table[key].made == "var"


def _with_name(scope: Scope, name: str, meaning: Form | None, body: Stmt) -> Stmt | None:
    """Visit a body in which a name stands for a form (None: a variable that is no integer)."""
    before, place = scope.names.pop(name, None), scope.enter(name, meaning)
    if meaning is not None:
        scope.names[name] = meaning
    result = _visit(scope, body)
    scope.place = place
    scope.names.pop(name, None)
    if before is not None:
        scope.names[name] = before
    return result
