"""Calls of kernels in a library: in turn, under conditions and in loops, with arrays in blocks of the caller's."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Literal, TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.target.llvm.arithmetic import binary
from tensorlang.target.llvm.library.emit import compare, load, refuse
from tensorlang.target.llvm.text import INDEX, Function, Value, literal

ENDLESS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where an array is: the argument of that number, or so many bytes from the start of a block."""

    block: Literal["argument", "weights", "arena"]
    at: int


@dataclass(frozen=True, slots=True)
class Test:
    """Whether the byte at a place, counted from where an array is, is not 0 (`holds`), or is."""

    array: Place
    at: int
    holds: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel by its number, the places of its parameters, and what has to be so where it runs."""

    kernel: int
    places: tuple[Place, ...]
    tests: tuple[Test, ...] = ()


@dataclass(frozen=True, slots=True)
class Copy:
    """So many bytes from one array to another one."""

    source: Place
    target: Place
    size: int


@dataclass(frozen=True, slots=True)
class Loop:
    """Calls that run again and again, where all `tests` are so.

    As often as the int64 at `trips` says, and at most `most` times, as long as a byte is not 0: that at `condition`
    before the first time, and then the one that an iteration has left at `tells`, if they tell. An iteration finds how
    many there were at `number` (int64), and the byte at `goes_on`. Copies are made `before` all, `after` each, and at
    the end (`last`); `rows` after each, too, with targets that lie one behind the other.
    """

    trips: Place
    condition: Place
    most: int
    number: Place
    goes_on: Place
    calls: tuple[Step, ...]
    tells: Place | None
    before: tuple[Copy, ...]
    after: tuple[Copy, ...]
    rows: tuple[Copy, ...]
    last: tuple[Copy, ...]
    tests: tuple[Test, ...] = ()


Step: TypeAlias = Call | Loop


@dataclass(frozen=True, slots=True)
class Caller:
    """A function that calls `kernels`, by their prefixes: where `weights` are, and what follows arrays in all calls."""

    fn: Function
    kernels: Sequence[str]
    weights: str
    rest: Sequence[str]

    def emit(self, steps: Sequence[Step]) -> None:
        """Append steps in turn, up to a call that fails, whose code is returned."""
        for step in steps:
            with ExitStack() as tests:
                for test in step.tests:
                    tests.enter_context(self.fn.when(self._tested(test)))
                match step:
                    case Call():
                        self._call(step)
                    case Loop():
                        self._loop(step)

    def _call(self, call: Call) -> None:
        arguments = ", ".join([*(f"ptr {self._pointer(place)}" for place in call.places), *self.rest])
        code = self.fn.op(f"call i32 @{self.kernels[call.kernel]}.run({arguments})")
        refuse(self.fn, compare(self.fn, "ne", "i32", code, "0"), f"i32 {code}")

    def _loop(self, loop: Loop) -> None:
        fn, (head, body, end) = self.fn, map(self.fn.fresh, ("again", "iteration", "done"))
        number, goes_on = self._pointer(loop.number), self._pointer(loop.goes_on)
        self._copy(loop.before)
        told = Value(load(fn, self._pointer(loop.trips), 0, "i64"), INDEX)
        trips = binary(fn, "min", told, literal(loop.most, INDEX))
        fn.do(f"store i64 0, ptr {number}, align 8")
        fn.do(f"store i8 {self._byte(loop.condition)}, ptr {goes_on}, align 1")
        fn.jump(head)
        fn.start(head)
        done = Value(load(fn, number, 0, "i64"), INDEX)
        holds = compare(fn, "ne", "i8", self._byte(loop.goes_on), "0")
        fn.branch(fn.value(f"and {holds.typed}, {binary(fn, 'lt', done, trips).text}", "bool"), body, end)
        fn.start(body)
        self.emit(loop.calls)
        if loop.tells is not None:
            fn.do(f"store i8 {self._byte(loop.tells)}, ptr {goes_on}, align 1")
        self._copy(loop.after)
        self._copy(loop.rows, done)
        fn.do(f"store {binary(fn, 'add', done, literal(1, INDEX)).typed}, ptr {number}, align 8")
        fn.jump(head)
        fn.start(end)
        self._copy(loop.last)

    def _copy(self, copies: Sequence[Copy], number: Value | None = None) -> None:
        """Append copies; targets are the places of a row of that number."""
        for copy in copies:
            target = self._pointer(copy.target)
            if number is not None:
                offset = binary(self.fn, "mul", number, literal(copy.size, INDEX))
                target = self.fn.op(f"getelementptr i8, ptr {target}, {offset.typed}")
            memcpy = self.fn.module.declare("llvm.memcpy.p0.p0.i64", "void", "ptr, ptr, i64, i1")
            self.fn.do(f"call void {memcpy}(ptr {target}, ptr {self._pointer(copy.source)}, i64 {copy.size}, i1 false)")

    def _tested(self, test: Test) -> Value:
        return compare(self.fn, "ne" if test.holds else "eq", "i8", self._byte(test.array, test.at), "0")

    def _byte(self, place: Place, at: int = 0) -> str:
        return self.fn.op(f"load i8, ptr {self.fn.field(self._pointer(place), at)}, align 1")

    def _pointer(self, place: Place) -> str:
        match place.block:
            case "argument":
                return f"%p{place.at}"
            case "weights":
                return self.fn.field(self.weights, place.at)
            case "arena":
                return self.fn.field("%workspace", place.at)
