"""New arrays of scripts begin as zeros wherever that can be seen, in kernels as in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te
from tensorlang.testing.check import check_schedule


@te.hybrid.script
def lower_half(a: Any) -> Any:
    n = a.shape[0]
    out = te.output_tensor((n, n), "float32")
    for i in range(n):
        for j in range(i):
            out[i, j] = a[i, j]
    return out


@te.hybrid.script
def chosen(a: Any) -> Any:
    n = a.shape[0]
    out = te.output_tensor((n,), "float32")
    for i in range(n):
        t = te.allocate((3,), "float32")
        if a[i] > 0:
            t[1] = a[i]
        out[i] = t[1] + 1.0
    return out


def test_an_intermediate_array_that_is_written_in_part() -> None:
    n = te.var("n")
    a = te.placeholder((n, n), name="A")
    b = lower_half(a)
    c = te.compute((n, n), lambda i, j: b[i, j] * 2, name="C")
    s = te.create_schedule(c.op)
    assert "lower_half[lower_half.z0, lower_half.z1] = 0.0" in str(tensorlang.lower(s, [a, c]))
    check_schedule(s, [a, c], sizes={"n": 5})


def test_an_array_that_is_written_whole_is_not_filled() -> None:
    @te.hybrid.script
    def doubled(a: Any) -> Any:
        out = te.output_tensor((8,), "float32")
        for i in range(8):
            out[7 - i] = a[i] * 2.0
        return out

    a = te.placeholder((8,), name="A")
    b = doubled(a)
    c = te.compute((8,), lambda i: b[i] + 1, name="C")
    text = str(tensorlang.lower(te.create_schedule(c.op), [a, c]))
    assert "doubled.z0" not in text


@pytest.mark.parametrize("target", ["interpreter", "llvm"])
def test_a_local_array_that_data_decides_on(target: str) -> None:
    a = te.placeholder((6,), name="A")
    out = chosen(a)
    s = te.create_schedule(out.op)
    s["chosen"].parallel("i")
    given = np.array([1, -1, 2, -2, 3, 0], "float32")
    made = np.zeros(6, "float32")
    tensorlang.build(s, [a, out], target=target)(given, made)
    np.testing.assert_array_equal(made, chosen.run(given))
    check_schedule(s, [a, out])
