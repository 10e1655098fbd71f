"""Statements of loop IR to instructions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tensorlang.errors import TargetError
from tensorlang.ir.expr import Expr, Load, Var, variables
from tensorlang.ir.loops import UNROLL_FULL, constant_extent
from tensorlang.ir.stmt import (
    Allocate,
    AtomicUpdate,
    CallMachine,
    CallPython,
    Fail,
    For,
    If,
    Let,
    LoopKind,
    Prefetch,
    Seq,
    Stmt,
    Store,
)
from tensorlang.ir.stmt import walk as statements
from tensorlang.target.llvm import memory
from tensorlang.target.llvm.arithmetic import binary, unary
from tensorlang.target.llvm.atomic import atomic_update
from tensorlang.target.llvm.expressions import address, index, place, value
from tensorlang.target.llvm.requirements import check_requirements
from tensorlang.target.llvm.scope import Scope, Storage, has_loads
from tensorlang.target.llvm.storage.frame import call_symbol, own_slot
from tensorlang.target.llvm.text import INDEX, Function, Value, literal
from tensorlang.target.llvm.threads.parallel import parallel_loop
from tensorlang.target.llvm.vectors.interleaved import put_together, write_pixels
from tensorlang.target.llvm.vectors.loops import vector_loop, vectorizable
from tensorlang.target.llvm.vectors.reduction import is_tree, tree_loop
from tensorlang.target.llvm.vectors.row_trees import are_rows, rows_loop
from tensorlang.target.llvm.vectors.transposed import rows, transposed_loop

_MOST_COPIES = 64
"""An unrolled loop of more iterations stays a loop."""
_NEAREST = 4
"""Less the level of a cache, what a prefetch is told of where data are to stay."""
_IN_ORDER = 'call void asm sideeffect "", ""() nounwind willreturn memory(inaccessiblemem: readwrite)'
"""No instruction, but loads stay behind it: LLVM would move them ahead of a prefetch, which then waits with them."""


class Emitter:
    """Emits the statements of one kernel; collects its calls to Python in the order of their slots.

    `streamed` names buffers that are written past the caches.
    """

    def __init__(self, sizes: tuple[Var, ...], streamed: frozenset[str] = frozenset()) -> None:
        self.sizes = sizes
        self.streamed = streamed
        self.calls: list[CallPython] = []

    def emit(self, fn: Function, scope: Scope, stmt: Stmt) -> None:
        """Append the instructions of a statement."""
        match stmt:
            case Store():
                self._store(fn, scope, stmt)
            case AtomicUpdate():
                atomic_update(fn, scope, stmt)
            case Prefetch():
                self._prefetch(fn, scope, stmt)
            case Seq():
                self._sequence(fn, scope, stmt)
            case For():
                self._loop(fn, scope, stmt)
            case If():
                self._if(fn, scope, stmt)
            case Let():
                self._let(fn, scope, stmt)
            case Allocate():
                self.emit(fn, own_slot(fn, scope, stmt.buffer), stmt.body)
            case Fail():
                self._fail(fn, scope, stmt)
            case CallPython():
                self._call_python(fn, scope, stmt)
            case CallMachine():
                self._call_machine(fn, scope, stmt)

    def _sequence(self, fn: Function, scope: Scope, stmt: Seq) -> None:
        """Statements in their order; whole pixels of lanes are written when the last element has its value."""
        pixels = put_together(scope, stmt.body)
        waiting: dict[int, Value] = {}
        members = {n for pixel in pixels.values() for n in pixel}
        for number, part in enumerate(stmt.body):
            if number not in members or not isinstance(part, Store):
                self.emit(fn, scope, part)
                continue
            waiting[number] = value(fn, scope, part.value)
            if number in pixels:
                first = stmt.body[pixels[number][0]]
                assert isinstance(first, Store) and scope.lanes is not None
                where = place(fn, scope, Load(first.buffer, first.index))
                write = memory.stream if first.buffer.name in self.streamed else memory.store
                values = [waiting[n] for n in pixels[number]]
                write_pixels(fn, where, values, scope.lanes.mask, write)

    def _store(self, fn: Function, scope: Scope, stmt: Store) -> None:
        result = value(fn, scope, stmt.value)
        mask = scope.lanes.mask if scope.lanes else None
        where = place(fn, scope, Load(stmt.buffer, stmt.index))
        if mask is not None and where.step is not None and where.step.integer == 0:
            # All lanes write one element: as a scatter, of which the last active lane wins.
            where = replace(where, step=None, offsets=(_zeros(where.width),))
        if scope.lanes is None and result.lanes:  # a vector of machine code
            where = replace(where, width=result.lanes, step=literal(1, INDEX))
        if stmt.buffer.name in self.streamed:
            memory.stream(fn, where, result, mask)
        else:
            memory.store(fn, where, result, mask)

    def _prefetch(self, fn: Function, scope: Scope, stmt: Prefetch) -> None:
        callee = fn.module.declare("llvm.prefetch.p0", "void", "ptr, i32, i32, i32")
        where = address(fn, scope, Load(stmt.buffer, stmt.index))
        fn.do(f"call void {callee}(ptr {where}, i32 0, i32 {_NEAREST - stmt.level}, i32 1)")  # a read, of data
        fn.do(_IN_ORDER)

    def _loop(self, fn: Function, scope: Scope, stmt: For) -> None:
        def iteration(at: Value) -> None:
            self.emit(fn, scope.bind(stmt.var.name, at), stmt.body)

        extent = constant_extent(stmt)
        match stmt.kind:
            case LoopKind.BOUND:
                raise TargetError(
                    f"the loop over {stmt.var.name} is bound to {stmt.thread}; target llvm has no such threads. "
                    'Use parallel instead, or build for target="interpreter"'
                )
            case LoopKind.PARALLEL if not scope.in_parallel and scope.lanes is None:
                parallel_loop(fn, scope, stmt, self.sizes, self.emit, repeat)
            case LoopKind.VECTORIZED if scope.lanes is None and vectorizable(stmt):
                vector_loop(fn, scope, stmt, self.emit, repeat)
            case LoopKind.UNROLLED if extent is not None and extent <= _MOST_COPIES:
                lower = index(fn, scope, stmt.lower)
                for number in range(extent):
                    iteration(binary(fn, "add", lower, literal(number, INDEX)))
            case _ if is_tree(scope, stmt):
                tree_loop(fn, scope, stmt, repeat)
            case _ if are_rows(scope, stmt):
                rows_loop(fn, scope, stmt, repeat)
            case _ if reads := rows(scope, stmt):
                transposed_loop(fn, scope, stmt, reads, self.emit, repeat)
            case _:
                lower, upper = index(fn, scope, stmt.lower), index(fn, scope, stmt.upper)
                shaped = "full" if (UNROLL_FULL, 1) in stmt.pragmas else "kept" if _is_shaped(stmt.body) else ""
                repeat(fn, lower, upper, iteration, shaped)

    def _if(self, fn: Function, scope: Scope, stmt: If) -> None:
        test = value(fn, scope, stmt.cond)
        if test.lanes:
            self._if_lanes(fn, scope, stmt, test)
        elif stmt.orelse is None:
            with fn.when(test):
                self.emit(fn, scope, stmt.then)
        else:
            then, orelse, join = fn.fresh("then"), fn.fresh("else"), fn.fresh("join")
            fn.branch(test, then, orelse)
            for label, branch in ((then, stmt.then), (orelse, stmt.orelse)):
                fn.start(label)
                self.emit(fn, scope, branch)
                fn.jump(join)
            fn.start(join)

    def _if_lanes(self, fn: Function, scope: Scope, stmt: If, test: Value) -> None:
        """A condition that differs between lanes: both branches run, each for its lanes."""
        outer = scope.lanes.mask if scope.lanes else None
        tests = [(test, stmt.then)]
        if stmt.orelse is not None:
            tests.append((unary(fn, "not", test), stmt.orelse))
        for lanes, branch in tests:
            mask = lanes if outer is None else binary(fn, "and", outer, lanes)
            self.emit(fn, scope.masked(mask), branch)

    def _let(self, fn: Function, scope: Scope, stmt: Let) -> None:
        bound = value(fn, scope, stmt.value)
        inner = scope.bind(stmt.var.name, bound)
        if scope.varies(stmt.value):
            known = None if _reads(scope, stmt.value) else stmt.value
            inner = replace(inner, varying={**scope.varying, stmt.var.name: known})
        self.emit(fn, inner, stmt.body)

    def _fail(self, fn: Function, scope: Scope, stmt: Fail) -> None:
        def record() -> None:
            fn.do(f"store atomic i64 {fn.module.message(stmt.message)}, ptr %context monotonic, align 8")

        if scope.lanes is not None and scope.lanes.mask is not None:
            with fn.when(memory.any_lane(fn, scope.lanes.mask)):
                record()
        else:
            record()

    def _call_python(self, fn: Function, scope: Scope, stmt: CallPython) -> None:
        """Call slot `number` of the context with the pointers of the buffers, then the sizes."""
        if stmt not in self.calls:
            self.calls.append(stmt)
        number = self.calls.index(stmt)
        slots = [("ptr", scope.storage(b).pointer) for b in stmt.buffers]
        slots += [("i64", scope.values[v.name].text) for v in self.sizes]
        block = fn.alloca(f"[{max(1, len(slots))} x i64]", 8 * len(slots))
        for position, (type_, operand) in enumerate(slots):
            fn.do(f"store {type_} {operand}, ptr {fn.field(block, 8 * position)}, align 8")
        callback = fn.op(f"load ptr, ptr {fn.field('%context', 8 * (number + 1))}, align 8")
        fn.do(f"call void {callback}(ptr %context, ptr {block})")

    def _call_machine(self, fn: Function, scope: Scope, stmt: CallMachine) -> None:
        """Emit machine code over its own arrays, each a tile of one in sight."""
        check_requirements(stmt.code, fn.target)
        fn.module.add_source(stmt.code.source)
        around = stmt.code.around if stmt.code.around != fn.around else None
        tiles: dict[str, Storage] = {}
        strides: dict[str, Value] = {}
        for param, view in zip(stmt.code.params, stmt.views, strict=True):
            held = scope.storage(view.buffer)
            steps = tuple(_stride(fn, held, d, n) for d, n in zip(view.dims, view.steps, strict=True))
            first = place(fn, scope, Load(view.buffer, view.index)).pointer
            tiles[param.buffer.name] = Storage(param.buffer, first, steps, aligned=False)
            named = zip(param.strides, steps, strict=True)
            strides |= {declared.name: step for declared, step in named if isinstance(declared, Var)}
        inner = Scope(strides, {**scope.buffers, **tiles}, in_parallel=True)
        if around is not None:
            call_symbol(fn, around[0])
        self.emit(fn, inner, stmt.code.body)
        if around is not None:
            call_symbol(fn, around[1])


def _reads(scope: Scope, expr: Expr) -> bool:
    """Whether an expression, or the definition of a variable in it that differs between lanes, reads memory."""
    return has_loads(expr) or any(scope.varying.get(name, expr) is None for name in variables(expr))


def repeat(fn: Function, lower: Value, upper: Value, body: Callable[[Value], None], shaped: str = "") -> None:
    """Emit `for v in range(lower, upper)`, the test at the end.

    LLVM may unroll the loop as it likes, not at all (`shaped` is kept), or has to (full).
    """
    head, latch, end = fn.fresh("loop"), fn.fresh("next"), fn.fresh("end")
    if lower.integer is not None and upper.integer is not None and lower.integer < upper.integer:
        fn.jump(head)
    else:
        fn.branch(binary(fn, "lt", lower, upper), head, end)
    before, step = fn.block, f"%{fn.fresh('i')}"
    fn.start(head)
    at = fn.value(f"phi i64 [{lower.text}, %{before}], [{step}, %{latch}]", INDEX)
    body(at)
    fn.jump(latch)
    fn.start(latch)
    fn.do(f"{step} = add nsw i64 {at.text}, 1")
    again = fn.value(f"icmp slt i64 {step}, {upper.text}", "bool")
    fn.branch(again, head, end, fn.module.loop_metadata(shaped))
    fn.start(end)


def _is_shaped(body: Stmt) -> bool:
    """Whether a loop body has unrolled or vector loops: the schedule has given it its shape."""
    return any(isinstance(s, For) and s.kind in (LoopKind.UNROLLED, LoopKind.VECTORIZED) for s in statements(body))


def _stride(fn: Function, held: Storage, dim: int, step: int) -> Value:
    """The elements between neighbours of a tile; a dimension that the array does not have has one element."""
    return literal(1, INDEX) if dim < 0 else binary(fn, "mul", held.strides[dim], literal(step, INDEX))


def _zeros(lanes: int) -> Value:
    return Value("zeroinitializer", INDEX, lanes)
