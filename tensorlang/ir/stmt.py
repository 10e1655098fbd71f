"""Loop IR: what lowering produces and every target consumes.

A kernel is a tree of loops, guards and stores over named buffers. Loop variables and index
expressions are int64. Loops run `lower <= var < upper` in steps of one. Whatever the kind of a loop,
running it serially in order gives the right result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from enum import Enum
from operator import is_
from typing import Any, TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Buffer, Const, Expr, Load, Var, binary, cast, const, rewrite
from tensorlang.ir.fragment import Fragment
from tensorlang.ir.instance import Runs, map_runs

INDEX = "int64"


class LoopKind(Enum):
    """How the iterations of a loop run."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"
    BOUND = "bound"


@dataclass(frozen=True, slots=True)
class For:
    """`for var in range(lower, upper)`. `axis` names its schedule axis; `thread` the tag of a BOUND loop.

    A VECTORIZED loop holds no other loop than UNROLLED or SERIAL ones whose bounds do not use `var`. An UNROLLED
    loop that survives lowering has constant extent. `pragmas` are wishes about the code, with their values: they do
    not change what the loop does.
    """

    var: Var
    lower: Expr
    upper: Expr
    kind: LoopKind
    body: Stmt
    axis: str = ""
    thread: str = ""
    pragmas: tuple[tuple[str, int | str], ...] = ()


@dataclass(frozen=True, slots=True)
class Store:
    """`buffer[index] = value`."""

    buffer: Buffer
    index: tuple[Expr, ...]
    value: Expr
    runs: Runs = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AtomicUpdate:
    """`buffer[index] = buffer[index] op value` (operators of ir.expr.Binary) in one step, that others do not cut."""

    buffer: Buffer
    index: tuple[Expr, ...]
    op: str
    value: Expr
    runs: Runs = field(default=(), compare=False, repr=False)

    @property
    def stored(self) -> Store:
        """The same as an ordinary store, for when nobody else is at the element."""
        return Store(self.buffer, self.index, binary(self.op, Load(self.buffer, self.index), self.value))


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Bring an element closer to the CPU, into its cache of a `level`. It changes no value, and may lie outside."""

    buffer: Buffer
    index: tuple[Expr, ...]
    level: int = 1


@dataclass(frozen=True, slots=True)
class If:
    """`if cond: then else: orelse`.

    `is_guard`: the test is part of what the statements inside do, not of whether they are reached.
    """

    cond: Expr
    then: Stmt
    orelse: Stmt | None = None
    is_guard: bool = field(default=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Seq:
    """Statements one after the other."""

    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """Nothing: of the instances that it runs, other statements do all there is to do. Gone before a target sees it."""

    runs: Runs


@dataclass(frozen=True, slots=True)
class Allocate:
    """A scratch buffer, uninitialised, alive in `body`; private to the iteration that allocates it.

    Its shape is constant, or made of size parameters only. `threads`: tags of device threads that each have an array of
    their own, over the leading dimensions of the shape, outer ones first.
    """

    buffer: Buffer
    body: Stmt
    threads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Let:
    """`var = value` inside `body`; evaluated once."""

    var: Var
    value: Expr
    body: Stmt


@dataclass(frozen=True, slots=True)
class Fail:
    """Record a run-time fault; the call raises KernelError with `message` after the kernel returns."""

    message: str


@dataclass(frozen=True, slots=True)
class CallPython:
    """Call a Python function with whole buffers as NumPy arrays: `function(*buffers)` (te.extern).

    Equality and printing go by `name`; the callable itself is looked up in the kernel's `callbacks`.
    """

    name: str
    buffers: tuple[Buffer, ...]
    runs: Runs = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MachineParam:
    """An array that machine code works on, and the distance in elements between neighbours of each dimension.

    A stride that is a variable has the value of the tile that the code is called on. `fragment`: how lanes hold an
    array of scope `warp`, whose elements have no distance.
    """

    buffer: Buffer
    strides: tuple[Expr, ...]
    fragment: Fragment | None = None


@dataclass(frozen=True, slots=True)
class MachineCode:
    """What an intrinsic does, as the target runs it: statements over `params` with expressions of ir.machine.

    `features`: what the CPU must have, by LLVM's names; `architecture`: which CPU, if not any. `source` is LLVM IR
    that defines functions it calls. For a GPU these are its architecture (`sm_80`), `cuda` and CUDA C; then as many
    neighbouring threads as there are `lanes` run the code together. What the body only begins counts to the `group`
    that the thread closes next: its work on all arrays goes on until the thread has waited for that. `around` are two
    functions of the source, to be called before the code and after it, once for as many calls of it as may be.
    """

    name: str
    params: tuple[MachineParam, ...]
    body: Stmt
    architecture: str = ""
    features: tuple[str, ...] = ()
    source: str = ""
    lanes: int = 0
    group: str = ""
    around: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class View:
    """A tile of `buffer` that begins at `index`.

    Dimension k of the tile goes along dimension `dims[k]` of the buffer in steps of `steps[k]` elements of it; -1 for
    a dimension of one element that the buffer does not have.
    """

    buffer: Buffer
    index: tuple[Expr, ...]
    dims: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CallMachine:
    """Run machine code on one tile of each of its arrays; `meaning` does the same in plain loops.

    `accumulates` is what ir.machine.ACCUMULATES stands for in the code, an int32; None: 1.
    """

    code: MachineCode
    views: tuple[View, ...]
    meaning: Stmt
    accumulates: Expr | None = None
    runs: Runs = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MachineCommit:
    """Close the group of the machine code that this thread has begun since the last one, even if there is none.

    `group` begins the names of the functions that close one and wait, as MachineCode has it.
    """

    group: str
    runs: Runs = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MachineWait:
    """Wait until at most `pending` of the groups of machine code that this thread has closed are under way."""

    group: str
    pending: int
    runs: Runs = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of a block wait for each other here, and see what the others wrote before.

    `scope` is `block`, or `warp` where only the threads of a warp do.
    """

    scope: str = "block"
    runs: Runs = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AsyncCopy:
    """Begin to copy `elements` neighbouring elements from global to shared memory; zeros where `valid` does not hold.

    The copy counts to the group that the thread commits next. The thread itself sees it once it has waited for the
    group, others after a barrier that follows.
    """

    buffer: Buffer
    index: tuple[Expr, ...]
    source: Buffer
    source_index: tuple[Expr, ...]
    elements: int
    valid: Expr | None = None
    runs: Runs = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class BoxCopy:
    """Begin to copy a box of an array in global memory, which one thread does for its block: a bulk tensor copy.

    The box has as many elements along each dimension of `source` as `box` says, from `source_index` on, which may lie
    outside, where there are zeros. It goes to as many elements along the last dimensions of `buffer` from `index` on,
    which lie in one piece. The copy counts to the group of `barriers` that is committed next; threads see it once they
    have waited for that group.
    """

    buffer: Buffer
    index: tuple[Expr, ...]
    source: Buffer
    source_index: tuple[Expr, ...]
    box: tuple[int, ...]
    barriers: Buffer
    runs: Runs = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AsyncCommit:
    """Close the group of the copies that this thread has begun since the last one, even if there are none.

    `barriers`, an array in shared memory, count bulk copies: then it is their group, and all threads come here.
    """

    barriers: Buffer | None = None
    runs: Runs = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AsyncWait:
    """Wait until at most `pending` of the groups that this thread has closed are under way, the last ones.

    `barriers`: as in AsyncCommit.
    """

    pending: int
    barriers: Buffer | None = None
    runs: Runs = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Combiner:
    """How two values, or two tuples of values, become one: `results` over `lhs` and `rhs`; `identity` changes none."""

    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    results: tuple[Expr, ...]
    identity: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class ThreadReduce:
    """Combine the `values` of threads that differ in `threads` only, and the result into the `targets`.

    `threads` gives tags of threadIdx and how many of each take part; every thread of the block comes here. The result
    is combined into targets that threads share by the thread that is first in each of `threads`; into targets of its
    own by each.
    """

    targets: tuple[tuple[Buffer, tuple[Expr, ...]], ...]
    values: tuple[Expr, ...]
    combiner: Combiner
    threads: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """The code of one launch, as every thread of a grid runs it.

    `params` are arrays in device memory, `scalars` int64 values. `grid` and `block` are the extents along x, y, z: of
    blocks, made of scalars, and of threads. `shared` are arrays that the threads of a block have together. In `body`,
    variables named `blockIdx.x` ... `threadIdx.z` tell the thread. `indices` is the dtype that holds every offset.
    `blocks_per_core` is a wish: how many blocks one multiprocessor holds at a time at least; 0 for none.
    """

    name: str
    params: tuple[Buffer, ...]
    scalars: tuple[Var, ...]
    grid: tuple[Expr, Expr, Expr]
    block: tuple[int, int, int]
    shared: tuple[Buffer, ...]
    body: Stmt
    indices: str = INDEX
    blocks_per_core: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """Run a kernel on the device, after those launched before; `scalars` are the values of its scalars."""

    kernel: DeviceKernel
    scalars: tuple[Expr, ...]


Stmt: TypeAlias = (
    For
    | Store
    | AtomicUpdate
    | Prefetch
    | If
    | Seq
    | Mark
    | Allocate
    | Let
    | Fail
    | CallPython
    | CallMachine
    | MachineCommit
    | MachineWait
    | Barrier
    | AsyncCopy
    | BoxCopy
    | AsyncCommit
    | AsyncWait
    | ThreadReduce
    | Launch
)


Leaf: TypeAlias = (
    Store
    | AtomicUpdate
    | CallPython
    | CallMachine
    | MachineCommit
    | MachineWait
    | Barrier
    | AsyncCopy
    | BoxCopy
    | AsyncCommit
    | AsyncWait
    | Mark
)
"""Statements that run instances."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One function: `params` are the caller's arrays in order, `sizes` int64 scalars bound from their shapes.

    `outputs` names the params that are written. `noalias` promises that written params overlap no other.
    `callbacks` holds the Python functions of CallPython by name, and is not part of its identity. `imports` are texts
    of LLVM IR whose functions machine code may call. `streamed` names params that are written past the caches.
    """

    name: str
    params: tuple[Buffer, ...]
    sizes: tuple[Var, ...]
    outputs: tuple[str, ...]
    body: Stmt
    callbacks: tuple[tuple[str, Callable[..., Any]], ...] = ()
    imports: tuple[str, ...] = ()
    streamed: tuple[str, ...] = ()


def children(stmt: Stmt) -> tuple[Stmt, ...]:
    """The direct sub-statements."""
    match stmt:
        case For() | Allocate() | Let():
            return (stmt.body,)
        case If():
            return (stmt.then,) if stmt.orelse is None else (stmt.then, stmt.orelse)
        case Seq():
            return stmt.body
        case CallMachine():
            return (stmt.meaning,)
        case Store() | AtomicUpdate() | Prefetch() | Fail() | CallPython() | ThreadReduce() | Launch() | Mark():
            return ()
        case Barrier() | AsyncCopy() | BoxCopy() | AsyncCommit() | AsyncWait() | MachineCommit() | MachineWait():
            return ()


def walk(stmt: Stmt) -> Iterator[Stmt]:
    """Yield every statement, parents first."""
    waiting = [stmt]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += reversed(children(found))


def map_children(stmt: Stmt, function: Callable[[Stmt], Stmt]) -> Stmt:
    """A statement with `function` applied to its direct sub-statements: the same one where that changes nothing."""
    match stmt:
        case For():
            body = function(stmt.body)
            if body is stmt.body:
                return stmt
            return For(stmt.var, stmt.lower, stmt.upper, stmt.kind, body, stmt.axis, stmt.thread, stmt.pragmas)
        case Allocate():
            body = function(stmt.body)
            return stmt if body is stmt.body else Allocate(stmt.buffer, body, stmt.threads)
        case Let():
            body = function(stmt.body)
            return stmt if body is stmt.body else Let(stmt.var, stmt.value, body)
        case If():
            then, orelse = function(stmt.then), None if stmt.orelse is None else function(stmt.orelse)
            same = then is stmt.then and orelse is stmt.orelse
            return stmt if same else If(stmt.cond, then, orelse, stmt.is_guard)
        case Seq():
            made = tuple([function(s) for s in stmt.body])
            return stmt if all(map(is_, made, stmt.body)) else Seq(made)
        case CallMachine():
            meaning = function(stmt.meaning)
            return stmt if meaning is stmt.meaning else replace(stmt, meaning=meaning)
        case Store() | AtomicUpdate() | Prefetch() | Fail() | CallPython() | ThreadReduce() | Launch() | Mark():
            return stmt
        case Barrier() | AsyncCopy() | BoxCopy() | AsyncCommit() | AsyncWait() | MachineCommit() | MachineWait():
            return stmt


def map_exprs(stmt: Stmt, function: Callable[[Expr], Expr]) -> Stmt:
    """Rebuild a whole statement tree with `function` applied to every top-level expression."""

    def visit(s: Stmt) -> Stmt:
        match s:
            case For():
                lower, upper, body = function(s.lower), function(s.upper), visit(s.body)
                return For(s.var, lower, upper, s.kind, body, s.axis, s.thread, s.pragmas)
            case Let():
                return Let(s.var, function(s.value), visit(s.body))
            case If():
                orelse = None if s.orelse is None else visit(s.orelse)
                return If(function(s.cond), visit(s.then), orelse, s.is_guard)
            case Store():
                index = tuple([function(i) for i in s.index])
                return Store(s.buffer, index, function(s.value), map_runs(s.runs, function))
            case AtomicUpdate():
                index, runs = tuple([function(i) for i in s.index]), map_runs(s.runs, function)
                return replace(s, index=index, value=function(s.value), runs=runs)
            case Prefetch():
                return replace(s, index=tuple(function(i) for i in s.index))
            case CallMachine():
                views = (View(v.buffer, tuple(function(i) for i in v.index), v.dims, v.steps) for v in s.views)
                accumulates = None if s.accumulates is None else function(s.accumulates)
                runs = map_runs(s.runs, function)
                return CallMachine(s.code, tuple(views), visit(s.meaning), accumulates, runs)
            case BoxCopy():
                index, source = (tuple(function(i) for i in at) for at in (s.index, s.source_index))
                return replace(s, index=index, source_index=source, runs=map_runs(s.runs, function))
            case AsyncCopy():
                index, source = (tuple(function(i) for i in at) for at in (s.index, s.source_index))
                valid = None if s.valid is None else function(s.valid)
                runs = map_runs(s.runs, function)
                return replace(s, index=index, source_index=source, valid=valid, runs=runs)
            case ThreadReduce():
                targets = tuple((b, tuple(function(i) for i in index)) for b, index in s.targets)
                return replace(s, targets=targets, values=tuple(function(v) for v in s.values))
            case Launch():
                return replace(s, scalars=tuple(function(v) for v in s.scalars))
            case CallPython() | Barrier() | AsyncCommit() | AsyncWait() | MachineCommit() | MachineWait() | Mark():
                return replace(s, runs=map_runs(s.runs, function)) if s.runs else s
            case _:
                return map_children(s, visit)

    return visit(stmt)


def stmt_exprs(stmt: Stmt) -> Iterator[Expr]:
    """Yield every top-level expression of a statement tree, in program order."""
    for part in walk(stmt):
        yield from own_exprs(part)


def own_exprs(stmt: Stmt) -> Iterator[Expr]:
    """Yield the top-level expressions of a statement, not those of its sub-statements."""
    match stmt:
        case For():
            yield from (stmt.lower, stmt.upper)
        case Let():
            yield stmt.value
        case If():
            yield stmt.cond
        case Store() | AtomicUpdate():
            yield from (*stmt.index, stmt.value)
        case Prefetch():
            yield from stmt.index
        case CallMachine():
            for view in stmt.views:
                yield from view.index
            yield from () if stmt.accumulates is None else (stmt.accumulates,)
        case AsyncCopy():
            yield from (*stmt.index, *stmt.source_index, *(() if stmt.valid is None else (stmt.valid,)))
        case BoxCopy():
            yield from (*stmt.index, *stmt.source_index)
        case ThreadReduce():
            for _, index in stmt.targets:
                yield from index
            yield from stmt.values
        case Launch():
            yield from stmt.scalars
        case _:
            pass


def zeros(buffer: Buffer) -> Stmt:
    """Return loops that set every element of an array to zero."""
    axes = tuple(Var(f"{buffer.name}.z{k}", INDEX) for k in range(len(buffer.shape)))
    body: Stmt = Store(buffer, axes, const(0, buffer.dtype))
    for axis, extent in reversed(list(zip(axes, buffer.shape, strict=True))):
        body = For(axis, Const(0, INDEX), cast(extent, INDEX), LoopKind.SERIAL, body)
    return body


def with_buffers(stmt: Stmt, place: Callable[[Buffer], Buffer]) -> Stmt:
    """Rebuild a statement tree over other buffers, wherever one is stored to, loaded from, allocated or passed on."""

    def load(node: Expr) -> Expr | None:
        return Load(place(node.buffer), node.index) if isinstance(node, Load) else None

    def visit(s: Stmt) -> Stmt:
        match s:
            case Store():
                return Store(place(s.buffer), s.index, s.value, s.runs)
            case AtomicUpdate() | Prefetch():
                return replace(s, buffer=place(s.buffer))
            case Allocate():
                return Allocate(place(s.buffer), visit(s.body), s.threads)
            case AsyncCopy() | BoxCopy():
                return replace(s, buffer=place(s.buffer), source=place(s.source))
            case ThreadReduce():
                return replace(s, targets=tuple((place(b), index) for b, index in s.targets))
            case CallPython():
                return CallPython(s.name, tuple(place(b) for b in s.buffers), s.runs)
            case CallMachine():
                views = tuple(View(place(v.buffer), v.index, v.dims, v.steps) for v in s.views)
                return replace(s, views=views, meaning=visit(s.meaning))
            case _:
                return map_children(s, visit)

    return visit(map_exprs(stmt, lambda e: rewrite(e, load)))
