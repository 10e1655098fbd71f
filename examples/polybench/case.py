"""What a kernel of the suite is: a script, its arrays, the law that its result obeys, and schedules of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import te
from tensorlang.errors import ScheduleError
from tensorlang.schedule import Schedule, Stage, create_schedule
from tensorlang.te.numpy_eval import extent

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
Sizes = Mapping[str, int]
Random = np.random.Generator
Pairs = Iterable[tuple[Any, Any]]
Tensor = Any  # a te tensor where the script is declared, a NumPy array where it runs as plain Python
Size = Any
Scalar = Any

WIDTH = 4
"""Lanes of a vector, and the edge of small tiles."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A kernel as a tensor program: the tensors by name, and the symbolic sizes that no array's shape holds."""

    inputs: Mapping[str, te.Tensor]
    outputs: Mapping[str, te.Tensor]
    free: Mapping[str, te.Var]

    @property
    def made(self) -> dict[str, te.Tensor]:
        """The outputs that have arrays of their own; the others are inputs, updated in place."""
        return {name: tensor for name, tensor in self.outputs.items() if name not in self.inputs}

    @property
    def args(self) -> list[Any]:
        """The arguments of a build: free sizes, inputs, and outputs that are no inputs."""
        return [*self.free.values(), *self.inputs.values(), *self.made.values()]

    def create_schedule(self) -> Schedule:
        """The default schedule: the order of the script."""
        return create_schedule([t.op for t in self.outputs.values()])

    def call(self, kernel: Callable[..., Any], sizes: Sizes, given: Arrays) -> Arrays:
        """Run what was built from `args` on copies of the arrays, and return the outputs."""
        arrays = {name: given[name].copy() for name in self.inputs}
        for name, tensor in self.made.items():
            arrays[name] = np.zeros([extent(e, sizes) for e in tensor.shape], tensor.dtype)
        kernel(*(sizes[name] for name in self.free), *arrays.values())
        return {name: arrays[name] for name in self.outputs}


@dataclass(frozen=True, slots=True)
class Mistake:
    """Steps of which the last one breaks a dependence, and how it must be refused.

    `kind` and `element` are those of the smallest witness, `distance` the one between its two instances.
    """

    steps: Callable[[Schedule], object]
    error: type[ScheduleError]
    kind: str
    element: str
    distance: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel. Its script takes sizes, scalars and arrays, in the order of its parameters.

    `shapes`, `sizes` and `scalars` are keyed by those parameters; `outputs` are the arrays that it returns, of which
    some may be inputs that it updates in place. `prepare` makes random arrays fit for the kernel (say, positive
    definite). `law(given, got)` yields pairs of arrays that agree when the results are right.
    """

    name: str
    script: Any
    shapes: Mapping[str, tuple[str, ...]]
    sizes: Sizes
    outputs: tuple[str, ...]
    law: Callable[[Arrays, Arrays], Pairs]
    schedule: Callable[[Schedule], None]
    mistakes: Mapping[str, Mistake] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)
    prepare: Callable[[Arrays], Arrays] = dict
    dtype: str = "float64"

    def arrays(self, sizes: Sizes, random: Random) -> Arrays:
        """Inputs for the kernel: floats between 0.5 and 1.5, whole numbers below 10."""
        drawn: Arrays = {}
        for name, shape in self.shapes.items():
            extents = tuple(sizes[n] for n in shape)
            whole = np.issubdtype(np.dtype(self.dtype), np.integer)
            values = random.integers(0, 10, extents) if whole else random.uniform(0.5, 1.5, extents)
            drawn[name] = values.astype(self.dtype)
        return self.prepare(drawn)

    def declare(self, sizes: Sizes | None = None) -> Declared:
        """The kernel as a tensor program, with symbolic sizes unless `sizes` are given."""
        bound: dict[str, Any] = {n: te.var(n) for n in self.sizes} if sizes is None else dict(sizes)
        inputs = {
            name: te.placeholder(tuple(bound[n] for n in shape), self.dtype, name)
            for name, shape in self.shapes.items()
        }
        made = self.script(**self._arguments({**bound, **self.scalars, **inputs}))
        several = made if isinstance(made, list | tuple) else [made]
        shaped = {n for shape in self.shapes.values() for n in shape}
        free = {n: v for n, v in bound.items() if n not in shaped} if sizes is None else {}
        return Declared(inputs, dict(zip(self.outputs, several, strict=True)), free)

    def run(self, sizes: Sizes, given: Arrays) -> Arrays:
        """The script as plain Python on copies of the arrays: the reference."""
        copies = {name: array.copy() for name, array in given.items()}
        made = self.script(**self._arguments({**sizes, **self.scalars, **copies}))
        several = made if isinstance(made, list | tuple) else [made]
        return dict(zip(self.outputs, several, strict=True))

    def _arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: values[name] for name in inspect.signature(self.script).parameters}


def as_vectors(stage: Stage, axis: te.Axis | str) -> None:
    """Run an axis by vectors, with a shorter one at its end."""
    _, lanes = stage.split(axis, factor=WIDTH)
    stage.vectorize(lanes)
