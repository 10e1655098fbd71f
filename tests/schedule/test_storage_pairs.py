"""Every two steps about memory, in both orders: refused with a reason, or the same result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tensorlang import te
from tensorlang.errors import InternalError, OverwrittenValue, ScheduleError
from tensorlang.schedule import Schedule
from tensorlang.testing.check import check_schedule

Step = Callable[[Schedule], Any]
ROWS, COLUMNS, TILE = 4, 16, 8


def tiled(overlap: int) -> tuple[Schedule, list[Any]]:
    """C[i, j] = B[i, j] + B[i, j + overlap] in tiles along j, for each of which B, a copy of A, is computed."""
    A = te.placeholder((ROWS, COLUMNS + overlap), "float32", name="A")
    B = te.compute(A.shape, lambda i, j: A[i, j], name="B")
    C = te.compute((ROWS, COLUMNS), lambda i, j: B[i, j] + B[i, j + overlap], name="C")
    s = te.create_schedule(C.op)
    j_o, j_i = s[C].split("j", factor=TILE)
    s[C].reorder(j_o, "i", j_i)
    s[B].compute_at(s[C], j_o)
    return s, [A, C]


def in_bulk(s: Schedule) -> None:
    s["B"].set_scope("shared")
    s["B"].bulk_copy()


STEPS: dict[str, Step] = {
    "pad": lambda s: s["B"].pad("j", 4),
    "swizzle": lambda s: s["B"].swizzle(),
    "storage_align": lambda s: s["B"].storage_align("i", 8, 4),
    "transform_layout": lambda s: s["B"].transform_layout(lambda i, j: (j, i)),
    "rolling_buffer": lambda s: s["B"].rolling_buffer(),
    "double_buffer": lambda s: s["B"].double_buffer(),
    "pipeline": lambda s: s["B"].pipeline(4, ahead=1),
    "fold rows": lambda s: s["B"].fold_storage("B", 0),
    "fold columns": lambda s: s["B"].fold_storage("B", 1, 11),
    "set_scope": lambda s: s["B"].set_scope("shared"),
    "bulk_copy": in_bulk,
    "compute_inline": lambda s: s["B"].compute_inline(),
    "cache_read": lambda s: s.cache_read("A", "local", ["B"]),
    "cache_write": lambda s: s.cache_write("B", "local"),
}
OF_EVEN_ROWS = ("swizzle", "bulk_copy")


def applied(s: Schedule, names: tuple[str, ...]) -> list[str]:
    """The steps that are refused."""
    refused = []
    for name in names:
        try:
            STEPS[name](s)
        except InternalError:
            raise
        except ScheduleError:
            refused.append(name)
    return refused


@pytest.mark.parametrize("overlap", [0, 1])
def test_every_step_alone(overlap: int) -> None:
    refused = [name for name in STEPS if applied(tiled(overlap)[0], (name,))]
    assert refused == (list(OF_EVEN_ROWS) if overlap else [])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("first", STEPS)
def test_every_step_after_another(first: str) -> None:
    for second in (name for name in STEPS if name != first):
        s, args = tiled(overlap=0 if {first, second} & set(OF_EVEN_ROWS) else 1)
        applied(s, (first, second))
        check_schedule(s, args, targets=("interpreter",))


@pytest.mark.parametrize("buffered", ["double_buffer", "pipeline", "rolling_buffer"])
def test_folds_and_buffers_in_either_order(buffered: str) -> None:
    for names in ((buffered, "fold rows", "fold columns"), ("fold columns", "fold rows", buffered)):
        s, args = tiled(1)
        assert applied(s, names) == []
        check_schedule(s, args)


@pytest.mark.parametrize("buffered", ["double_buffer", "pipeline"])
def test_a_tile_that_is_made_ahead_needs_all_of_its_columns(buffered: str) -> None:
    s, _ = tiled(1)
    STEPS[buffered](s)
    assert s["B"].fold_storage("B", 1) == TILE + 1
    with pytest.raises(OverwrittenValue, match=r"B overwrites the memory of B\["):
        s["B"].fold_storage("B", 1, TILE)
