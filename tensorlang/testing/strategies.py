"""Hypothesis strategies for random te programs: small, exact, and rich in index forms.

    @given(programs())
    def test_my_schedule(case):
        ...build case.outputs, call it on case.inputs, compare with case.expected()...

Inputs hold small integers, and floats stay so small that every sum and product of them is exact: results must be
equal, not close. Needs the `test` extra (hypothesis).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.dataclass import dataclass
from tensorlang.errors import MissingDependency
from tensorlang.ir.expr import Const, Expr
from tensorlang.te.program import Program, canonical
from tensorlang.te.reference import evaluate
from tensorlang.testing.divided import divided_condition

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise MissingDependency("random programs need hypothesis: pip install 'tensorlang[test]'") from error

Draw = Callable[[Any], Any]
DTYPES = ("float32", "int32", "int8", "float64")
_EXACT = 2.0**22  # floats are exact integers below this
_MAGNITUDE = 2.0  # of the inputs


@dataclass(frozen=True)
class ProgramCase:
    """A random program: its placeholders, every computed tensor, those that are outputs, and an array per placeholder.

    `inputs[n]` belongs to `placeholders[n]`.
    """

    placeholders: tuple[te.Tensor, ...]
    stages: tuple[te.Tensor, ...]
    outputs: tuple[te.Tensor, ...]
    inputs: tuple[npt.NDArray[Any], ...]

    @property
    def tensors(self) -> tuple[te.Tensor, ...]:
        """The arguments of a kernel: placeholders, then outputs."""
        return (*self.placeholders, *self.outputs)

    @cached_property
    def program(self) -> Program:
        """The program in canonical form."""
        return canonical(self.outputs)[0]

    def expected(self) -> tuple[npt.NDArray[Any], ...]:
        """The reference's arrays for the outputs."""
        named = {t.name: array for t, array in zip(self.placeholders, self.inputs)}
        values = evaluate(self.program, {op.name: named[op.name] for op in self.program.ops if op.name in named})
        return tuple(values[t.name] for t in self.outputs)

    def __repr__(self) -> str:
        return f"ProgramCase(\n{self.program.text})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What hypothesis prints: the program, not its parts."""
        printer.text(repr(self))


@st.composite
def programs(
    draw: Draw,
    dtypes_from: Sequence[str] = DTYPES,
    max_stages: int = 3,
    max_rank: int = 3,
    max_extent: int = 9,
    divided: bool = False,
) -> ProgramCase:
    """Draw a program of up to `max_stages` stages over tensors of ranks up to `max_rank`, extents up to `max_extent`.

    Stages are elementwise, broadcasting, transposed, stencils with guards, quasi-affine, gathers, or reductions
    (sum, max, min, and product of integers) over one or two axes. `divided`: reductions are over what conditions leave
    that divide axes.
    """
    growing = _Growing(draw, draw(st.sampled_from(list(dtypes_from))), max_rank, max_extent, divided)
    for _ in range(draw(st.integers(1, 2))):
        growing.placeholder(growing.shape())
    for _ in range(draw(st.integers(1, max_stages))):
        growing.stage()
    return growing.case()


def _extents(tensor: te.Tensor) -> list[int]:
    return [int(extent.value) for extent in tensor.shape if isinstance(extent, Const)]


@dataclass
class _Growing:
    """A program while it is being drawn."""

    draw: Draw
    dtype: str
    max_rank: int
    max_extent: int
    divided: bool
    placeholders: list[te.Tensor] = field(default_factory=list)
    inputs: list[npt.NDArray[Any]] = field(default_factory=list)
    stages: list[te.Tensor] = field(default_factory=list)
    bounds: dict[str, float] = field(default_factory=dict)

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def below(self, high: int) -> int:
        return int(self.draw(st.integers(0, max(0, high - 1))))

    def shape(self) -> tuple[int, ...]:
        rank = self.draw(st.integers(1, self.max_rank))
        longest = self.max_extent if rank < 3 else min(5, self.max_extent)
        return tuple(self.draw(st.integers(1, longest)) for _ in range(rank))

    def placeholder(self, shape: tuple[int, ...]) -> te.Tensor:
        is_float = dtypes.info(self.dtype).is_float
        dtype = self.pick((self.dtype, self.dtype, "int32" if is_float else "int8"))
        tensor: te.Tensor = te.placeholder(shape, dtype, name=f"A{len(self.placeholders)}")
        self._feed(tensor, -int(_MAGNITUDE), int(_MAGNITUDE) + 1)
        self.bounds[tensor.name] = _MAGNITUDE
        return tensor

    def _feed(self, tensor: te.Tensor, low: int, high: int) -> None:
        rng = np.random.default_rng(self.draw(st.integers(0, 2**16)))
        extents = _extents(tensor)
        self.placeholders.append(tensor)
        self.inputs.append(rng.integers(low, high, extents).astype(dtypes.info(tensor.dtype).numpy))

    def gather(self, length: int, extent: int) -> te.Tensor:
        """A placeholder of `length` indices below `extent`."""
        tensor: te.Tensor = te.placeholder((length,), "int32", name=f"A{len(self.placeholders)}")
        self._feed(tensor, 0, extent)
        return tensor

    def stage(self) -> None:
        """Draw one more computed tensor."""
        name = f"T{len(self.stages)}"
        shape = self.shape()
        reduced = [self.draw(st.integers(1, 5)) for _ in range(self.pick((1, 2) if self.divided else (0, 0, 1, 2)))]
        starts = [self.pick((0, 0, 0, 3)) for _ in reduced]
        axes = [te.reduce_axis((low, low + n), f"k{d}") for d, (low, n) in enumerate(zip(starts, reduced))]
        limit = _EXACT / float(np.prod([1, *reduced]))
        drawn: list[float] = []

        def body(*indices: Expr) -> Expr:
            inner = list(zip((a.var - low for a, low in zip(axes, starts)), reduced))
            ranges = [*zip(indices, shape), *inner, *inner]  # reduce axes twice: they are to be used
            value, bound = self.value(ranges, limit)
            drawn.append(bound * float(np.prod([1, *reduced])))
            return self.reduction(value, axes, ranges) if axes else value

        tensor = te.compute(shape, body, name=name, varargs_names=[f"i{d}" for d in range(len(shape))])
        self.bounds[name] = drawn[0]
        self.stages.append(tensor)

    def reduction(self, value: Expr, axes: list[te.Axis], ranges: list[tuple[Expr, int]]) -> Expr:
        kinds = ["sum", "max", "min"] + ([] if dtypes.info(self.dtype).is_float else ["prod"])
        kind = {"sum": te.sum, "max": te.max, "min": te.min, "prod": te.prod}[self.pick(kinds)]
        where = self.condition(ranges) if self.divided or self.pick((False, False, True)) else None
        init = self.pick((None, None, 1))
        if kind in (te.max, te.min):  # an empty reduction of floats would be infinite, and not an exact integer
            init = 0 if where is not None else init
        reduced: Expr = kind(value, axis=axes, where=where, init=init)
        return reduced

    def condition(self, ranges: list[tuple[Expr, int]]) -> Expr:
        """A comparison of axes."""
        if self.divided:
            return divided_condition(self.pick, [a for a, _ in ranges])
        (a, n), (b, _) = self.pick(ranges), self.pick(ranges)
        bound, even = self.below(n + 1), te.any(a != b, (a + b) % 2 == 0)
        made: Expr = self.pick((a <= b, a >= b, a < bound, even))
        return made

    def value(self, ranges: list[tuple[Expr, int]], limit: float) -> tuple[Expr, float]:
        """An element made from one to three reads, and the bound of its magnitude, at most `limit` for floats."""
        value, bound = self.term(ranges)
        for _ in range(self.below(3)):
            other, other_bound = self.term(ranges)
            value, bound = self.combine(value, bound, other, other_bound, limit)
        if bound > limit and dtypes.info(self.dtype).is_float:
            return te.maximum(te.minimum(value, 2.0), -2.0), 2.0
        return value, bound

    def combine(self, a: Expr, x: float, b: Expr, y: float, limit: float) -> tuple[Expr, float]:
        options: list[tuple[Callable[[], Expr], float]] = [
            (lambda: a + b, x + y),
            (lambda: a - b, x + y),
            (lambda: te.maximum(a, b), max(x, y)),
            (lambda: te.minimum(a, b), max(x, y)),
            (lambda: te.select(a < b, a, b + 1), max(x, y + 1)),
        ]
        if not dtypes.info(self.dtype).is_float:
            options += [(lambda: a // 3, x), (lambda: a % 5 + b, x + y), (lambda: a ^ b, x + y)]
        if x * y <= limit or not dtypes.info(self.dtype).is_float:
            options += [(lambda: a * b, x * y)] * 2
        make, bound = self.pick(options)
        return make(), bound

    def term(self, ranges: list[tuple[Expr, int]]) -> tuple[Expr, float]:
        """A read, seldom an axis or its guarded neighbour, in the program's dtype."""
        if self.below(8) == 0:
            axis, extent = self.pick(ranges)
            return axis.astype(self.dtype), float(extent)
        pool = [t for t in (*self.placeholders, *self.stages) if t.name in self.bounds]
        source = self.pick(pool)
        drawn = [self.index(extent, ranges) for extent in _extents(source)]
        guards = [g for _, found in drawn for g in found]
        read = source(*(index for index, _ in drawn)).astype(self.dtype)
        bound = self.bounds[source.name]
        return (te.if_then_else(te.all(*guards), read, 0), bound) if guards else (read, bound)

    def index(self, extent: int, ranges: list[tuple[Expr, int]]) -> tuple[Expr, list[Expr]]:
        """An index below `extent`, and the conditions under which it is in range."""
        axis, length = self.pick(ranges)
        options: list[Callable[[], tuple[Expr, list[Expr]]]] = [
            lambda: (axis % extent, []),
            lambda: (te.const(self.below(extent), "int32"), []),
            lambda: self.neighbour(axis, extent),
        ]
        if length <= extent:
            straight: list[Callable[[], tuple[Expr, list[Expr]]]] = [
                lambda: (axis, []),
                lambda: (axis + self.below(extent - length + 1), []),
                lambda: (extent - 1 - axis, []),
            ]
            options += straight * 2
        if (length + 1) // 2 <= extent:
            options.append(lambda: (axis // 2, []))
        if 2 * length - 1 <= extent:
            options.append(lambda: (axis * 2, []))
        other, width = self.pick(ranges)
        if length * width <= extent and other is not axis:
            options.append(lambda: (axis * width + other, []))
        if self.below(6) == 0:
            options.append(lambda: (self.gather(length, extent)(axis), []))
        return self.pick(options)()  # type: ignore[no-any-return]

    def neighbour(self, axis: Expr, extent: int) -> tuple[Expr, list[Expr]]:
        """A stencil's access, guarded against both ends."""
        offset = self.pick((-2, -1, 1, 2))
        return axis + offset, [axis + offset >= 0, axis + offset < extent]

    def case(self) -> ProgramCase:
        """The finished program; what nobody reads is an output."""
        used = {t.name for stage in self.stages for t in stage.op.input_tensors}
        outputs = tuple(t for t in self.stages if t.name not in used or self.below(4) == 0)
        read = {op.name for op in canonical(outputs)[0].ops}
        fed = [(t, array) for t, array in zip(self.placeholders, self.inputs) if t.name in read]
        return ProgramCase(tuple(t for t, _ in fed), tuple(self.stages), outputs, tuple(a for _, a in fed))
