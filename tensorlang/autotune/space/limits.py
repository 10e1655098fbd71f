"""What a device allows of a register tile, whatever the sketch."""

from __future__ import annotations

import numpy as np

from tensorlang.autotune.model.nest import Array
from tensorlang.autotune.search.sketch import Columns, Constraint, Mask
from tensorlang.autotune.space.structure import Stage
from tensorlang.autotune.task import Task

MOST_UNROLLED = 256


def tile_constraints(task: Task, stage: Stage, vectorize: bool = True) -> tuple[Constraint, ...]:
    """Limits on the decisions `rows`, `width` and `unroll` (absent ones count as 1)."""
    registers = task.target.vector_registers
    lanes = task.target.lanes(stage.bits) if vectorize else 1

    def tile(values: Columns) -> tuple[Array, Array]:
        one = np.ones_like(values["unroll"])
        return values.get("rows", one), np.ceil(values.get("width", one) / lanes)

    def fits_registers(values: Columns) -> Mask:
        rows, vectors = tile(values)
        # With one vector a row, the broadcast folds into the multiply-add.
        spare = np.where(vectors > 1, vectors + 1, 1)
        return np.asarray(rows * vectors + spare <= registers)

    def short_body(values: Columns) -> Mask:
        rows, vectors = tile(values)
        return np.asarray(rows * vectors * values["unroll"] <= MOST_UNROLLED)

    return (
        Constraint(f"the register tile fits {registers} vector registers", fits_registers),
        Constraint(f"an unrolled body has at most {MOST_UNROLLED} vector operations", short_body),
    )
