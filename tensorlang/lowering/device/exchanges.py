"""Code of a thread in which reads of other lanes' registers are shuffles, with all lanes at each of them.

A shuffle stands in front of the statement that uses its value. A test that only some lanes pass moves inwards, to the
statements behind the shuffles; a loop that runs differently for them gets common bounds, and a test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from itertools import product

from tensorlang.dataclass import dataclass
from tensorlang.errors import TargetError
from tensorlang.ir.expr import (
    Binary,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    binary,
    const,
    select,
    to_text,
    variables,
    walk,
)
from tensorlang.ir.loops import constant_extent, reads_memory, uses, with_kind
from tensorlang.ir.shuffle import ALWAYS, Shuffle
from tensorlang.ir.simplify import proves, simplify
from tensorlang.ir.spread import Group, Spread
from tensorlang.ir.stmt import (
    INDEX,
    Allocate,
    CallMachine,
    For,
    If,
    Let,
    LoopKind,
    Seq,
    Stmt,
    Store,
    children,
    map_children,
    map_exprs,
    stmt_exprs,
)
from tensorlang.lowering.device.arrays import accesses
from tensorlang.lowering.device.ranges import Ranges, inside, range_of
from tensorlang.lowering.passes.full_tile import conjunction

MOST_SHUFFLES = 8
"""How many registers a read may choose from: each is a shuffle."""

_OTHER_SCOPE = "use scope 'shared'"


@dataclass(frozen=True, slots=True)
class Around:
    """What is around a statement: ranges of variables, tests that hold, and variables that differ between lanes.

    Of the tests the `pending` ones are asked by what is made of the statement, not around it: all lanes come there.
    They are part of it where it `is_guarded`.
    """

    ranges: Ranges
    tests: tuple[Expr, ...] = ()
    pending: tuple[Expr, ...] = ()
    varying: frozenset[str] = frozenset()
    is_guarded: bool = False

    def varies(self, expr: Expr) -> bool:
        """Whether lanes may see different values."""
        return bool(variables(expr) & self.varying) or reads_memory(expr)

    def inside(self, stmt: Stmt, child: Stmt) -> Around:
        """What is around a part of a statement that stays as it is."""
        match stmt:
            case For():
                varies = self.varies(stmt.lower) or self.varies(stmt.upper)
                return replace(self.knowing(stmt.var, varies), ranges=inside(stmt, self.ranges))
            case Let():
                ranges = {**self.ranges, stmt.var.name: range_of(stmt.value, self.ranges)}
                return replace(self.knowing(stmt.var, self.varies(stmt.value)), ranges=ranges)
            case If():
                return self.tested(stmt.cond if child is stmt.then else ~stmt.cond)
        return self

    def knowing(self, var: Var, varies: bool) -> Around:
        """The same with one more variable."""
        return replace(self, varying=self.varying | {var.name} if varies else self.varying - {var.name})

    def tested(self, test: Expr) -> Around:
        """The same with a test more around."""
        return replace(self, tests=(*self.tests, test))

    def asking(self, test: Expr, is_guard: bool = False) -> Around:
        """The same with a test that parts are to ask."""
        tests, pending = (*self.tests, test), (*self.pending, test)
        return replace(self, tests=tests, pending=pending, is_guarded=self.is_guarded or is_guard)

    def asked(self, stmt: Stmt) -> Stmt:
        """A part with the tests that it is to ask."""
        return If(conjunction(self.pending), stmt, is_guard=self.is_guarded)

    def holds(self, condition: Expr, tests: tuple[Expr, ...] = ()) -> bool:
        """Whether a condition follows from what is known here, and tests."""
        known = (*self.tests, *tests)
        return proves(Binary("or", ~conjunction(known), condition, "bool") if known else condition, self.ranges)


@dataclass(slots=True)
class Exchanges:
    """Rewrites the code of a thread over its parts of arrays that are spread over the lanes of a group."""

    spreads: Mapping[str, Spread]
    group: Group
    count: int = 0

    def visit(self, stmt: Stmt, around: Around) -> Stmt:
        """The statement over the thread's own registers. Raises TargetError for a read that is no shuffle."""
        if around.pending and not self._foreign(stmt, around):
            return around.asked(self.visit(stmt, replace(around, pending=(), is_guarded=False)))
        match stmt:
            case Seq():
                return map_children(stmt, lambda s: self.visit(s, around))
            case Allocate():
                spread = self.spreads.get(stmt.buffer.name)
                own = stmt if spread is None else replace(stmt, buffer=spread.buffer)
                return map_children(own, lambda s: self.visit(s, around))
            case If():
                return self._if(stmt, around)
            case For():
                return self._for(stmt, around)
            case Let():
                return self._let(stmt, around)
            case CallMachine():
                return stmt
        reads = _Reads(self, around)
        made = self._stored(map_exprs(stmt, reads.rewritten), around)
        return reads.before(around.asked(made) if around.pending else made)

    def _if(self, stmt: If, around: Around) -> Stmt:
        reads = _Reads(self, around)
        cond = reads.rewritten(stmt.cond)
        if not (around.varies(cond) or reads.found) or not any(self._foreign(s, around) for s in children(stmt)):
            orelse = None if stmt.orelse is None else self.visit(stmt.orelse, around.tested(~stmt.cond))
            return reads.before(
                replace(stmt, cond=cond, then=self.visit(stmt.then, around.tested(stmt.cond)), orelse=orelse)
            )
        if reads_memory(cond) or reads.found:  # the branches may change what it reads
            cond = reads.named(select(conjunction(around.pending), cond, False) if around.pending else cond)
        parts = [self.visit(stmt.then, around.asking(cond, stmt.is_guard))]
        if stmt.orelse is not None:
            parts.append(self.visit(stmt.orelse, around.asking(~cond, stmt.is_guard)))
        return reads.before(Seq(tuple(parts)) if len(parts) > 1 else parts[0])

    def _for(self, stmt: For, around: Around) -> Stmt:
        within = around.inside(stmt, stmt.body)
        foreign = self._foreign(stmt.body, within)
        if foreign and stmt.kind is LoopKind.VECTORIZED:
            stmt = with_kind(stmt, LoopKind.UNROLLED)
        varies = around.varies(stmt.lower) or around.varies(stmt.upper)
        low, high = within.ranges[stmt.var.name]
        unknown = low is None or high is None or reads_memory(stmt.lower) or reads_memory(stmt.upper)
        if foreign and varies and unknown:
            raise TargetError(
                f"the loop {stmt.axis or stmt.var.name} runs from {stmt.lower} to {stmt.upper}, which may differ "
                "between the lanes of a warp, and its body reads registers of other lanes, to which all of them have "
                f"to come; give it a constant bound (split), or {_OTHER_SCOPE}"
            )
        if not (foreign and varies) and (
            unknown or constant_extent(stmt) is not None or not self._numbers(stmt, within.ranges)
        ):
            return self._kept(stmt, within, around)
        # With constant bounds it can be unrolled, so that registers have constant numbers.
        common = replace(stmt, lower=const(low or 0, INDEX), upper=const((high or 0) + 1, INDEX))
        within = around.inside(common, stmt.body)
        test = simplify(binary("and", stmt.var >= stmt.lower, stmt.var < stmt.upper), within.ranges)
        if foreign and varies:
            return replace(common, body=self.visit(stmt.body, within.asking(test)))
        return replace(common, body=If(test, self.visit(stmt.body, within.tested(test))))

    def _numbers(self, loop: For, ranges: Ranges) -> bool:
        """Whether the variable of a loop tells registers apart."""
        found = (
            self.spreads[buffer.name].place(index, ranges)[1]
            for buffer, index in accesses(loop.body)
            if buffer.name in self.spreads
        )
        return any(uses(part, loop.var.name) for where in found for part in where)

    def _kept(self, stmt: For, within: Around, around: Around) -> Stmt:
        reads = _Reads(self, around)
        lower, upper = reads.rewritten(stmt.lower), reads.rewritten(stmt.upper)
        return reads.before(replace(stmt, lower=lower, upper=upper, body=self.visit(stmt.body, within)))

    def _let(self, stmt: Let, around: Around) -> Stmt:
        reads = _Reads(self, around)
        value = reads.rewritten(stmt.value)
        if around.pending and reads_memory(value):
            value = select(conjunction(around.pending), value, const(0, value.dtype))
        within = around.inside(stmt, stmt.body)
        if reads.found:
            within = within.knowing(stmt.var, varies=True)
        return reads.before(Let(stmt.var, value, self.visit(stmt.body, within)))

    def _foreign(self, stmt: Stmt, around: Around) -> bool:
        """Whether a statement reads elements that another lane may hold."""
        if isinstance(stmt, CallMachine):
            return False
        for expr in stmt_exprs(map_children(stmt, lambda s: Seq(()))):
            for node in walk(expr):
                if isinstance(node, Load) and node.buffer.name in self.spreads and not self.is_own(node, around):
                    return True
        return any(self._foreign(child, around.inside(stmt, child)) for child in children(stmt))

    def is_own(self, load: Load, around: Around, tests: tuple[Expr, ...] = ()) -> bool:
        """Whether a thread reads what it holds itself."""
        lane, _ = self.spreads[load.buffer.name].place(load.index, around.ranges)
        return around.holds(binary("eq", lane, self.group.number), tests)

    def _stored(self, stmt: Stmt, around: Around) -> Stmt:
        """A store to a spread array as one to the register that has the element."""
        if isinstance(stmt, Store) and stmt.buffer.name in self.spreads:
            spread = self.spreads[stmt.buffer.name]
            return replace(stmt, buffer=spread.buffer, index=spread.place(stmt.index, around.ranges)[1])
        return stmt

    def fresh(self, dtype: str) -> Var:
        """A variable that is named like no other."""
        self.count += 1
        return Var(f"lane.value{self.count}", dtype)


@dataclass(slots=True)
class _Reads:
    """What stands in front of one statement, in order: each shuffle is named, and made once."""

    exchanges: Exchanges
    place: Around
    found: list[tuple[Var, Expr]] = field(default_factory=list)
    known: dict[str, Expr] = field(default_factory=dict)

    def before(self, stmt: Stmt) -> Stmt:
        """The statement behind its shuffles."""
        for var, value in reversed(self.found):
            stmt = Let(var, value, stmt)
        return stmt

    def named(self, value: Expr) -> Var:
        """A name for a value."""
        var = self.exchanges.fresh(value.dtype)
        self.found.append((var, value))
        return var

    def rewritten(self, expr: Expr, tests: tuple[Expr, ...] = ()) -> Expr:
        """The expression over named shuffles; `tests` hold where it is evaluated."""
        match expr:
            case Select():
                cond = self.rewritten(expr.cond, tests)
                then = self.rewritten(expr.then, (*tests, cond))
                return Select(cond, then, self.rewritten(expr.orelse, (*tests, ~cond)), expr.dtype)
            case Binary(op="and" | "or"):
                first = self.rewritten(expr.a, tests)
                goes_on = first if expr.op == "and" else Unary("not", first, "bool")
                return Binary(expr.op, first, self.rewritten(expr.b, (*tests, goes_on)), expr.dtype)
            case Load() if expr.buffer.name in self.exchanges.spreads:
                return self._read(expr, tests)
        made = tuple(self.rewritten(child, tests) for child in expr.children())
        return expr.with_children(made) if made else expr

    def _read(self, load: Load, tests: tuple[Expr, ...]) -> Expr:
        spread = self.exchanges.spreads[load.buffer.name]
        lane, where = spread.place(load.index, self.place.ranges)
        if self.exchanges.is_own(load, self.place, tests):
            return Load(spread.buffer, where)
        if any(map(reads_memory, load.index)):
            raise TargetError(
                f"a thread reads {load}, whose index is read from memory: in which register of another lane of the "
                f"warp the element is has to be known before; {_OTHER_SCOPE}"
            )
        wanted = (*self.place.pending, *tests)
        key = to_text(conjunction((*wanted, ALWAYS))) + to_text(load)
        if key not in self.known:
            choices = [
                (chosen, self.named(self._shuffle(Load(spread.buffer, at), lane, (*wanted, *chosen))))
                for at, chosen in self._registers(load, spread, where, tests)
            ]
            value: Expr = choices[-1][1]
            for chosen, other in reversed(choices[:-1]):
                value = select(conjunction(chosen), other, value)
            self.known[key] = value
        return self.known[key]

    def _shuffle(self, register: Load, lane: Expr, wanted: tuple[Expr, ...]) -> Expr:
        return Shuffle(register, lane, conjunction(wanted) if wanted else ALWAYS, self.exchanges.group.lanes)

    def _registers(
        self, load: Load, spread: Spread, where: tuple[Expr, ...], tests: tuple[Expr, ...]
    ) -> list[tuple[tuple[Expr, ...], tuple[Expr, ...]]]:
        """The registers that a read may mean, the same ones for all lanes, each with the tests that it does."""
        extents = [int(e.value) for e in spread.buffer.shape if isinstance(e, Const)]
        parts = [list(self._indices(*part, tests)) for part in zip(where, extents, strict=True)]
        found = [
            (tuple(at for at, _ in choice), tuple(test for _, own in choice for test in own))
            for choice in product(*parts)
        ]
        if len(found) > MOST_SHUFFLES or not found:
            raise TargetError(
                f"a thread reads {load}, which is in one of {len(found)} registers of another lane of its warp, and a "
                f"shuffle is of one that all lanes name (up to {MOST_SHUFFLES} are tried); let the index without the "
                f"lane not depend on it, or {_OTHER_SCOPE}"
            )
        return found

    def _indices(self, part: Expr, extent: int, tests: tuple[Expr, ...]) -> Iterator[tuple[Expr, tuple[Expr, ...]]]:
        """The values of an index that are the same for all lanes, each with the test that it is the one meant."""
        low, high = range_of(part, self.place.ranges)
        if not self.place.varies(part):
            within = low is not None and low >= 0 and high is not None and high < extent
            last = const(extent - 1, INDEX)
            yield part if within else binary("max", const(0, INDEX), binary("min", part, last)), ()
            return
        end = extent if high is None else min(high + 1, extent)
        numbers = [const(n, INDEX) for n in range(max(0, low or 0), end)]
        if len(numbers) <= MOST_SHUFFLES:
            holds = partial(self.place.holds, tests=tests)
            numbers = [n for n in numbers if not holds(binary("ne", part, n))]
        yield from ((n, (binary("eq", part, n),) if len(numbers) > 1 else ()) for n in numbers)
