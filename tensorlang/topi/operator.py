"""What the library knows of an operator, and what a rule that schedules it is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy.typing as npt

from tensorlang.errors import DefinitionError, InternalError
from tensorlang.ir.expr import Const, Expr
from tensorlang.schedule import Schedule
from tensorlang.target.spec import Target
from tensorlang.te.operation import ComputeOp, Tensor

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator by name, as the command line and tuning logs know it.

    `compute(*sizes, dtype)` returns the tensors, inputs first; `sizes` names its integers.
    `reference(*inputs)` returns the outputs; `numpy(*inputs, *outputs)` is what a NumPy user would run.
    """

    name: str
    sizes: tuple[str, ...]
    compute: Callable[..., list[Tensor]]
    reference: Callable[..., list[Array]]
    numpy: Callable[..., None]

    def tensors(self, sizes: Sequence[int], dtype: str) -> list[Tensor]:
        """Build the tensors; DefinitionError when the number or the sign of `sizes` is wrong."""
        if len(sizes) != len(self.sizes) or any(n < 1 for n in sizes):
            wanted, got = ",".join(self.sizes), ",".join(map(str, sizes))
            raise DefinitionError(f"{self.name} wants the shape {wanted} as positive integers, got {got or 'nothing'}")
        return self.compute(*sizes, dtype)


@dataclass(frozen=True, slots=True)
class Anchor:
    """An operator in a program that is scheduled as a whole.

    `main` is the stage that carries the operator's tag; `output` the last of the elementwise stages that follow it
    (`main` itself when none does): those between the two are inlined already, so that `output` reads `main` directly,
    element by element, and `main` can be computed in a tile of it.
    """

    main: str
    output: str
    target: Target


Rule: TypeAlias = Callable[[Schedule, Anchor], None]
"""Schedules an anchor by primitives."""


def extent_of(extent: Expr) -> int | None:
    """An extent as a number; None when it is symbolic."""
    return int(extent.value) if isinstance(extent, Const) else None


def compute_op(s: Schedule, stage: str) -> ComputeOp:
    """The operation of a stage of te.compute, as the program holds it: with loads from buffers."""
    op = s.program[stage]
    if not isinstance(op, ComputeOp):
        raise InternalError(f"{stage} is no stage of te.compute")
    return op


def axes_of(s: Schedule, stage: str) -> list[str]:
    """The names of the axes of a stage's output, as declared."""
    return [axis.name for axis in compute_op(s, stage).axes]


def accumulator(s: Schedule, anchor: Anchor) -> str:
    """The stage that holds the results of an anchor while they are made, in local memory: its `main`, or a cache."""
    if anchor.main == anchor.output:
        return str(s.name_of(s.cache_write(anchor.main, "local")))
    s[anchor.main].set_scope("local")
    return anchor.main
