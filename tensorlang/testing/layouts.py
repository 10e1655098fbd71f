"""Arrays of callers in the layouts that a schedule gives to its inputs and outputs (transform_layout)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang.ir.expr import Expr, Var
from tensorlang.schedule import Schedule
from tensorlang.schedule.index_text import names_lookup, parse_index
from tensorlang.schedule.primitives import TransformLayout
from tensorlang.te.numpy_eval import Grid, value

Array = npt.NDArray[Any]
Places = tuple[Array, ...]


def laid_out(schedule: Schedule, name: str, array: Array, sizes: Mapping[str, int]) -> Array:
    """An array of the program as the kernel takes it; places that no element has are zero."""
    for places in _places(schedule, name, array.shape, sizes):
        made = np.zeros(_shape(places), array.dtype)
        made[places] = array
        array = made
    return array


def as_declared(schedule: Schedule, name: str, array: Array, shape: tuple[int, ...], sizes: Mapping[str, int]) -> Array:
    """An array of the kernel in the layout that the program declares, of this shape."""
    for places in reversed(list(_places(schedule, name, shape, sizes))):
        array = array[places]
    return array


def _places(schedule: Schedule, name: str, shape: tuple[int, ...], sizes: Mapping[str, int]) -> Iterator[Places]:
    """Where the elements of each array go in the next one, step by step."""
    for step in schedule.trace.steps:
        if not isinstance(step, TransformLayout) or step.stage != name.partition(".v")[0]:
            continue
        axes: dict[str, Expr] = {axis: Var(axis) for axis in step.axes}
        lookup = names_lookup(axes, schedule.state.decisions, schedule.state.sizes)
        grid = dict(zip(step.axes, np.indices(shape), strict=True)) | {k: np.asarray(n) for k, n in sizes.items()}
        found = [value(parse_index(text, lookup), Grid(grid, {})) for text in step.index]
        places = tuple(np.broadcast_to(part, shape).astype(np.int64) for part in found)
        yield places
        shape = _shape(places)


def _shape(places: Places) -> tuple[int, ...]:
    return tuple(int(part.max(initial=-1)) + 1 for part in places)
