"""Reads that only small sizes put outside of an array: they are left to a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te
from tensorlang.errors import DefinitionError, KernelError

N = te.var("n")


@pytest.mark.parametrize("target", ["llvm", "interpreter"])
@pytest.mark.parametrize(
    ("index", "least", "row"), [(lambda n: 0, 1, 0), (lambda n: n - 1, 1, -1), (lambda n: n // 2 + 1, 3, 4)]
)
def test_what_too_few_rows_do_not_have_is_told(index: Any, least: int, row: int, target: str) -> None:
    a = te.placeholder((N, 5), name="A")
    b = te.compute((5,), lambda i: a[index(N), i] + 1, name="B")
    s = te.create_schedule(b.op)
    s[b].vectorize(b.op.axis[0])
    kernel = tensorlang.build(s, [a, b], target=target)
    values, out = np.arange(30, dtype=np.float32).reshape(6, 5), np.zeros(5, np.float32)
    kernel(values, out)
    np.testing.assert_array_equal(out, values[row] + 1)
    kernel(values[:least], out)
    with pytest.raises(KernelError, match=r"B reads A\[.*\] out of bounds of A"):
        kernel(values[: least - 1], out)


def test_reads_of_scripts_and_of_sums() -> None:
    def first(a):  # type: ignore[no-untyped-def]
        made = te.output_tensor((3,), "float32")
        for i in range(3):
            made[i] = a[i]
        return made

    a, k = te.placeholder((N,), name="A"), te.reduce_axis((0, 4), "k")
    for b in (te.hybrid.script(name="B")(first)(a), te.compute((1,), lambda i: te.sum(a[k], axis=k), name="B")):
        kernel = tensorlang.build(te.create_schedule(b.op), [a, b])
        values = np.arange(5, dtype=np.float32)
        np.testing.assert_array_equal(kernel(values), [0, 1, 2] if b.ndim and len(kernel(values)) == 3 else [6])
        with pytest.raises(KernelError, match="out of bounds of A"):
            kernel(values[:2])


def test_what_large_sizes_put_outside_is_refused() -> None:
    a, m = te.placeholder((N,), name="A"), te.var("m")
    for shape, place in (((N,), lambda i: i + 1), ((m,), lambda i: i), ((4,), lambda i: i - 1)):
        b = te.compute(shape, lambda i, place=place: a[place(i)], name="B")
        with pytest.raises(DefinitionError, match=r"B reads A\[.*\] outside A of shape \(n\)"):
            te.create_schedule(b.op)
