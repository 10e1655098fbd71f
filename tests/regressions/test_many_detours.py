"""Dependences of which isl cannot say in reasonable time which follow from others: all of them are kept."""

from __future__ import annotations

from typing import Any

import pytest

from tensorlang import te
from tensorlang.errors import IllegalParallel


def test_a_program_whose_dependences_compose_in_very_many_ways() -> None:
    @te.hybrid.script
    def mixed(a: Any, b: Any, n: Any) -> Any:
        out = output_tensor((2 * n + 3,), "int32")  # type: ignore[name-defined]  # noqa: F821
        for i in range(n):
            for j in range(i, n - i):
                b[n - i] = b[n - i] * i
                for k in range(i, n - i):
                    if (i + k) % 2 == 0 and b[2 * k + 1] > 0:
                        b[k - j + n] = b[k - j + n] - max(b[n - k] + 3, b[2 * j])
                        out[n - k] = min(b[j + j], b[k + j]) - a[j]
        return out

    n = te.var("n")
    a, b = (te.placeholder((2 * n + 3,), "int32", name=name) for name in "ab")
    made = mixed(a, b, n)
    s = te.create_schedule(made.op)
    with pytest.raises(IllegalParallel):
        s[made.op].parallel("k")
