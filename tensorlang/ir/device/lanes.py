"""Scalar expressions as Python functions over the threads of a block: one NumPy operation for all of them.

A value is a NumPy scalar where all threads have one, else an array with an element a thread. A mask tells the threads
at work; the others compute something too, but read no memory. Values are those of ir.interpret_expr.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.ir import intrinsics
from tensorlang.ir.device.clock import Array, Clock, Lanes
from tensorlang.ir.device.memory import Memory, Offset, Value
from tensorlang.ir.device.sites import Sites
from tensorlang.ir.expr import Binary, Buffer, Call, Cast, Const, Expr, Load, Select, Unary, Var, walk
from tensorlang.ir.numpy_math import converted, truncated_quotient
from tensorlang.ir.shuffle import Shuffle
from tensorlang.ir.thread_tags import THREADS

Mask: TypeAlias = Array | None  # one bool a thread, None for all


@dataclass(slots=True)
class State:
    """What expressions read: variables and arrays by name.

    `fixed` keeps values that stay for the whole block, `places` offsets that all threads went to before. `shares`
    number the values of variables that differ between threads, and are the same whenever they have that number.
    """

    clock: Clock
    values: dict[str, Value] = field(default_factory=dict)
    memories: dict[str, Memory] = field(default_factory=dict)
    fixed: dict[int, Value] = field(default_factory=dict)
    places: dict[tuple[Any, ...], Offset] = field(default_factory=dict)
    shares: dict[str, int] = field(default_factory=dict)


Code: TypeAlias = Callable[[State, Mask], Value]
Place: TypeAlias = Callable[[State, Mask, Lanes], Offset]

_MOST_PLACES = 1 << 22  # offsets kept, of all threads together


def lanes_of(mask: Mask) -> Lanes:
    """The numbers of the threads at work."""
    return None if mask is None else np.flatnonzero(mask)


def _truncdiv(a: Value, b: Value) -> Value:
    return (a - np.fmod(a, b)) // b


def _least(a: Value, b: Value) -> Value:
    found: Value = np.where((a < b) | (a != a), a, b)
    return found[()]


def _greatest(a: Value, b: Value) -> Value:
    found: Value = np.where((a > b) | (a != a), a, b)
    return found[()]


_BOTH: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "floordiv": operator.floordiv, "floormod": operator.mod, "truncmod": np.fmod,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "bitand": operator.and_, "bitor": operator.or_, "bitxor": operator.xor, "and": operator.and_, "or": operator.or_,
    "shl": operator.lshift, "shr": operator.rshift,
}  # fmt: skip
_OF_FLOATS = _BOTH | {"min": _least, "max": _greatest, "truncdiv": truncated_quotient}
_OF_OTHERS = _BOTH | {"min": np.minimum, "max": np.maximum, "truncdiv": _truncdiv}
_UNARY: dict[str, Callable[[Any], Any]] = {"neg": operator.neg, "not": np.logical_not, "invert": operator.invert}


def binary_function(op: str, dtype: str) -> Callable[[Any, Any], Any]:
    """The function of an operator of ir.expr.Binary on operands of a dtype."""
    return (_OF_FLOATS if dtypes.info(dtype).is_float else _OF_OTHERS)[op]


class Compiler:
    """Turns expressions into functions. `steady` are names of variables that stay for the whole block."""

    def __init__(self, sites: Sites, steady: frozenset[str] = frozenset()) -> None:
        self.sites = sites
        self.steady = steady
        self._fixed = 0

    def expr(self, expr: Expr, site: int) -> Code:
        """A function that gives the value of an expression, which stands in the statement of a number."""
        code = self._node(expr, site)
        if isinstance(expr, Const | Var | Load) or not self._is_steady(expr):
            return code
        self._fixed += 1
        key = self._fixed

        def fixed(s: State, mask: Mask) -> Value:
            if key not in s.fixed:
                s.fixed[key] = code(s, None)
            return s.fixed[key]

        return fixed

    def _is_steady(self, expr: Expr) -> bool:
        found = [n for n in walk(expr) if isinstance(n, Var | Load)]
        return all(isinstance(n, Var) and n.name in self.steady for n in found)

    def _node(self, expr: Expr, site: int) -> Code:
        match expr:
            case Const():
                value = dtypes.info(expr.dtype).numpy.type(expr.value)
                return lambda s, mask: value
            case Var():
                return self._variable(expr)
            case Load():
                return self._load(expr, site)
            case Binary(op="and" | "or"):
                return self._logical(expr, site)
            case Binary():
                a, b, function = (
                    self.expr(expr.a, site),
                    self.expr(expr.b, site),
                    binary_function(expr.op, expr.a.dtype),
                )
                return lambda s, mask: function(a(s, mask), b(s, mask))
            case Unary():
                operand, single = self.expr(expr.a, site), _UNARY[expr.op]
                return lambda s, mask: single(operand(s, mask))
            case Cast():
                operand, goal = self.expr(expr.value, site), expr.dtype
                return lambda s, mask: converted(operand(s, mask), goal)
            case Select():
                return self._select(expr, site)
            case Shuffle():
                return self._shuffle(expr, site)
            case Call():
                row, args = intrinsics.TABLE[expr.name], [self.expr(a, site) for a in expr.args]
                storage = dtypes.info(expr.dtype).numpy
                return lambda s, mask: np.asarray(row.numpy(*(a(s, mask) for a in args))).astype(storage, copy=False)[
                    ()
                ]
        raise InternalError(f"the device interpreter cannot evaluate {type(expr).__name__} {expr}")

    def _variable(self, expr: Var) -> Code:
        name = expr.name

        def variable(s: State, mask: Mask) -> Value:
            if name not in s.values:
                self.sites.fault(f"the variable {name} is used outside its scope")
            return s.values[name]

        return variable

    def place(self, buffer: Buffer, index: Sequence[Expr], site: int) -> Place:
        """A function that gives the offsets of elements; it keeps those made of the thread and of uniform variables."""
        name, parts = buffer.name, [self.expr(i, site) for i in index]
        nodes = [n for i in index for n in walk(i)]
        free = sorted({n.name for n in nodes if isinstance(n, Var)} - set(THREADS))
        reads = any(isinstance(n, Load) for n in nodes)
        self._fixed += 1
        number = self._fixed

        def compute(s: State, mask: Mask, lanes: Lanes) -> Offset:
            return s.memories[name].offset([part(s, mask) for part in parts], lanes, site)

        def place(s: State, mask: Mask, lanes: Lanes) -> Offset:
            if mask is not None or reads:
                return compute(s, mask, lanes)
            known = s.values | s.shares if s.shares else s.values
            try:
                key = (number, *[known[variable] for variable in free])
                if key in s.places:
                    return s.places[key]
            except (KeyError, TypeError):  # a variable out of its scope; one that differs between threads
                return compute(s, mask, lanes)
            at = compute(s, mask, lanes)
            if len(s.places) * s.clock.count < _MOST_PLACES:
                s.places[key] = at
            return at

        return place

    def _load(self, expr: Load, site: int) -> Code:
        name, place = expr.buffer.name, self.place(expr.buffer, expr.index, site)

        def load(s: State, mask: Mask) -> Value:
            lanes = None if mask is None else np.flatnonzero(mask)
            return s.memories[name].read(place(s, mask, lanes), lanes, site)

        return load

    def _shuffle(self, expr: Shuffle, site: int) -> Code:
        """What the threads have that others name; they read their own registers, and have to be at work, too."""
        value, lane, wanted = (self.expr(e, site) for e in expr.children())
        width = expr.width

        def shuffle(s: State, mask: Mask) -> Value:
            everyone, first = s.clock.lanes, s.clock.lanes // width * width
            test = np.broadcast_to(wanted(s, mask), s.clock.count)
            takes = test if mask is None else test & mask
            lanes = np.broadcast_to(lane(s, mask), s.clock.count)
            source = np.where(takes, first + lanes, everyone)
            apart = takes & ((lanes < 0) | (lanes >= width) | (source >= s.clock.count))
            apart |= takes & (False if mask is None else ~mask[np.where(apart, 0, source)])
            if apart.any():
                thread = int(apart.argmax())
                who = f"{s.clock.thread(thread)} of {s.clock.here}"
                self.sites.fault(f"{who} takes {expr.value} of lane {lanes[thread]}, which is not there", site)
            given = np.zeros(s.clock.count, np.bool_)
            given[source[takes]] = True
            values = np.broadcast_to(value(s, given), s.clock.count) if given.any() else np.zeros(s.clock.count)
            return values[source].astype(dtypes.info(expr.dtype).numpy, copy=False)

        return shuffle

    def _logical(self, expr: Binary, site: int) -> Code:
        """The right operand reads no memory where the left one decides."""
        a, b = self.expr(expr.a, site), self.expr(expr.b, site)
        function, goes_on = _BOTH[expr.op], expr.op == "and"
        reads = any(isinstance(n, Load) for n in walk(expr.b))

        def logical(s: State, mask: Mask) -> Value:
            left = a(s, mask)
            if not isinstance(left, np.ndarray):
                return b(s, mask) if bool(left) == goes_on else left
            if not reads:
                return function(left, b(s, mask))
            anyone, asked = narrowed(left if goes_on else ~left, mask)
            return function(left, b(s, asked)) if anyone else left

        return logical

    def _select(self, expr: Select, site: int) -> Code:
        cond, then, orelse = (self.expr(e, site) for e in (expr.cond, expr.then, expr.orelse))
        reads = any(isinstance(n, Load) for e in (expr.then, expr.orelse) for n in walk(e))

        def select(s: State, mask: Mask) -> Value:
            test = cond(s, mask)
            if not isinstance(test, np.ndarray):
                return then(s, mask) if test else orelse(s, mask)
            if not reads:
                return np.where(test, then(s, mask), orelse(s, mask))
            (some, yes), (others, no) = narrowed(test, mask), narrowed(~test, mask)
            if not others:
                return then(s, yes)
            return np.where(test, then(s, yes), orelse(s, no)) if some else orelse(s, no)

        return select


def narrowed(test: Array, mask: Mask) -> tuple[bool, Mask]:
    """Whether a test holds for any of the threads at work, and for which."""
    active = test if mask is None else test & mask
    return bool(active.any()), None if active.all() else active
