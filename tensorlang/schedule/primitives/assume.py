"""What a proof takes for granted, and what it keeps: assume, strict."""

from __future__ import annotations

from dataclasses import replace

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.polyhedral.facts import FACTS, Fact
from tensorlang.schedule.names import nearest
from tensorlang.schedule.primitive import Outputs, Primitive, primitive, unnamed
from tensorlang.schedule.state import ScheduleState
from tensorlang.te.operation import PlaceholderOp


@primitive("assume")
@dataclass(frozen=True, slots=True)
class Assume(Primitive):
    """State a fact about an input array that is used as an index; later steps are proven with its help.

    `injective`: no two elements are equal, so `C[idx[i]]` is another element for every `i`. `monotonic`: elements never
    decrease. `range`: `low <= element < high`. With TENSORLANG_CHECK=1 every call of the kernel tests the fact first.
    Rewrite: none.
    Legal when: the array is an input of integers that nothing updates; the fact is the user's to answer for.
    Example:
        >>> from tensorlang import te
        >>> idx, x = te.placeholder((8,), "int32", name="idx"), te.placeholder((8,), name="x")
        >>> C = te.compute((8,), lambda i: x[idx[i]], name="C")
        >>> s = te.create_schedule(C.op)
        >>> s.assume("injective", idx)
        >>> s.assume("range", idx, 0, 8)
        >>> s.trace.to_python().splitlines()
        ["s.assume('injective', 'idx')", "s.assume('range', 'idx', 0, 8)"]
    """

    fact: str
    array: str
    low: int | None = unnamed(None)
    high: int | None = unnamed(None)

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        if self.fact not in FACTS:
            raise BadArgument("", f"unknown fact {self.fact!r}; there are {', '.join(FACTS)}")
        self._check_array(state)
        limits = (self.low, self.high)
        if self.fact == "range":
            if any(isinstance(v, bool) or not isinstance(v, int) for v in limits):
                raise BadArgument("", f"a range needs whole numbers low and high, got {self.low!r} and {self.high!r}")
            if self.low >= self.high:  # type: ignore[operator]
                raise BadArgument("", f"no whole number is at least {self.low} and below {self.high}; low comes first")
        elif limits != (None, None):
            raise BadArgument("", f"{self.fact} takes no range", suggested=[f"s.assume({self.fact!r}, {self.array!r})"])
        fact = Fact(self.fact, self.array, self.low, self.high)
        return (state if fact in state.facts else replace(state, facts=(*state.facts, fact))), ()

    def _check_array(self, state: ScheduleState) -> None:
        program = state.program
        if self.array not in program.buffers:
            raise BadArgument("", f"no array {self.array!r}; {nearest(self.array, program.buffers)}")
        if not isinstance(program[program.producer[self.array]], PlaceholderOp):
            raise BadArgument("", f"{self.array} is computed; facts can be stated about inputs")
        buffer = program.buffers[self.array]
        if not dtypes.info(buffer.dtype).is_integer:
            raise BadArgument("", f"facts are about indices, and {self.array} holds {buffer.dtype}")
        if self.fact == "monotonic" and len(buffer.shape) != 1:
            raise BadArgument(
                "", f"monotonic is about arrays of one dimension, and {self.array} has {len(buffer.shape)}"
            )
        updated = [n for n, (root, times) in program.storage.items() if root == self.array and times]
        if updated:
            raise BadArgument("", f"{self.array} is updated in place ({updated[0]}), so the fact may not stay true")


@primitive("strict")
@dataclass(frozen=True, slots=True)
class Strict(Primitive):
    """Keep the order in which floating-point reductions are declared, so that every schedule gives the same bits.

    Rewrite: none; from here on, and for the steps so far, updates of floats may not change places.
    Legal when: the steps so far keep the order.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((8, 9), name="A")
        >>> k = te.reduce_axis((0, 9), "k")
        >>> B = te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="B")
        >>> s = te.create_schedule(B.op)
        >>> s.strict()
        >>> s.trace == te.create_schedule(B.op, strict=True).trace
        True
    """

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        if state.reassociated:
            raise BadArgument(
                "",
                f"rfactor has changed the order of the floating-point updates of {', '.join(state.reassociated)}",
                suggested=["te.create_schedule(..., strict=True)"],
            )
        return replace(state, strict=True), ()
