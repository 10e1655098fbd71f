"""Programs of any size under random schedules: right for every size, those of no element included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import event, given, note, settings
from hypothesis import strategies as st

from tensorlang import te
from tensorlang.testing.check import check_schedule
from tensorlang.testing.traces import schedules
from tests.property.test_random_schedules import CASES, part_of

n, m = te.var("n"), te.var("m")
SIZES = ({"n": 0, "m": 3}, {"n": 3, "m": 0}, {"n": 1, "m": 1}, {"n": 2, "m": 7}, {"n": 6, "m": 4}, {"n": 9, "m": 5})


def product() -> tuple[te.Tensor, ...]:
    A, B = te.placeholder((n, 5), "int32", name="A"), te.placeholder((5, m), "int32", name="B")
    k = te.reduce_axis((0, 5), "k")
    return A, B, te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")


def sums() -> tuple[te.Tensor, ...]:
    A = te.placeholder((n, m), "int32", name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    return A, te.compute((n, m), lambda i, j: A[i, j] - B[i], name="C")


def stencil() -> tuple[te.Tensor, ...]:
    A = te.placeholder((n + 2, m), "int32", name="A")
    B = te.compute((n + 2, m), lambda i, j: A[i, j] * 2, name="B")
    return A, te.compute((n, m), lambda i, j: B[i, j] - B[i + 1, j] + B[i + 2, m - 1 - j], name="C")


def padding() -> tuple[te.Tensor, ...]:
    A = te.placeholder((n,), "int32", name="A")
    P = te.compute((n + 4,), lambda i: te.if_then_else(te.all(i >= 2, i < n + 2), A[i - 2], 0), name="P")
    k = te.reduce_axis((0, 5), "k")
    return A, te.compute((n,), lambda i: te.sum(P[i + k] * (k + 1), axis=k), name="C")


def triangle() -> tuple[te.Tensor, ...]:
    A = te.placeholder((n, n), "int32", name="A")
    k = te.reduce_axis((0, n), "k")
    return A, te.compute((n,), lambda i: te.max(A[i, k], axis=k, where=k <= i, init=0), name="C")


def pair() -> tuple[te.Tensor, ...]:
    A = te.placeholder((n,), "int32", name="A")
    S, D = te.compute((n,), lambda i: (A[i] + 1, A[i] - 1), name="S")
    return A, te.compute((n,), lambda i: S[i] * D[n - 1 - i], name="C")


PROGRAMS: dict[str, Callable[[], tuple[te.Tensor, ...]]] = {
    made.__name__: made for made in (product, sums, stencil, padding, triangle, pair)
}


@pytest.mark.parametrize("part", range(2))
def test_schedules_of_any_size_keep_meaning(part: int) -> None:
    @part_of(part)
    @settings(max_examples=CASES // 2)
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(PROGRAMS)))
        args: Any = PROGRAMS[name]()
        schedule = data.draw(schedules(args[-1:]))
        event(name)
        note(f"{schedule.original.text}{schedule.trace.to_python()}")
        used = {v.name for v in schedule.original.sizes}
        for sizes in SIZES:
            check_schedule(schedule, args, {k: v for k, v in sizes.items() if k in used}, targets=("interpreter",))

    run()
