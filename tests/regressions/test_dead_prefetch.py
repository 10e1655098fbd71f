"""An array that only a prefetch names is one that a device kernel has."""

from __future__ import annotations

from typing import Any

import numpy as np

import tensorlang
from tensorlang import te


def test_a_prefetch_of_what_no_thread_reads() -> None:
    """The condition of the read never holds, which the compiler sees."""
    a = te.placeholder((3, 1), name="a")
    k, r = te.reduce_axis((0, 5), "k"), te.reduce_axis((0, 4), "r")

    def total(i: Any) -> Any:
        return te.sum(te.select(te.all(i + 2 >= 0, i + 2 < 1), a[i, i + 2], 1.0), axis=[k, r])

    b = te.compute((3,), total, name="b")
    s = te.create_schedule(b)
    s[b].bind(k, "threadIdx.x")
    s[b].prefetch(a, r, 2)
    made = np.empty(3, np.float32)
    tensorlang.build(s, [a, b], target="interpreter")(np.zeros((3, 1), np.float32), made)
    np.testing.assert_array_equal(made, [20, 20, 20])
