"""Writes docs/operators.md: the library's operators, their sizes on the command line, and the dtypes that they run in.

A dtype is listed when the scheduled kernel of this machine agrees with the operator's reference in it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tensorlang
from tensorlang import topi
from tensorlang.autotune import create_task
from tensorlang.autotune.measuring.seeded import seeded_inputs
from tensorlang.errors import TensorlangError
from tensorlang.te.reference import tolerance

PAGE = Path(__file__).with_name("operators.md")
DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64")
SMALL = {"N": 5, "M": 7, "K": 3, "C": 4, "H": 6, "W": 9, "O": 8, "Q": 2, "D": 4}
"""Sizes that the test of the page takes, by name."""

HEAD = """# Operators

What `tensorlang.topi` has by name, for `tensorlang tune NAME --shape ...` and `autotune.create_task(NAME, ...)`: the
sizes in their order, the options with what they are when they are left out (`--option stride=2`, or `"stride=2"` after
the dtype), and the dtypes in which the kernel that the library schedules agrees with the operator's NumPy reference.
This page is written by `python docs/make_operators.py`; a test runs every entry. The functions take more (axes,
layouts, epilogues): their docstrings say what.

| operator | sizes | options | dtypes |
|---|---|---|---|
"""


def runs(name: str, dtype: str) -> bool:
    """Whether a small kernel of an operator is right in a dtype; False when the operator refuses the dtype."""
    operator = topi.operator(name)
    try:
        task = create_task(name, (*(SMALL[size] for size in operator.sizes), dtype), threads=1)
        kernel = tensorlang.build(topi.schedule(list(task.outputs), task.target, tuned=False), list(task.tensors))
    except TensorlangError:
        return False
    inputs = seeded_inputs(task, 0)
    if "div" in name or "mod" in name:
        inputs[1][inputs[1] == 0] = 1  # what integers give then is nobody's promise
    wanted = operator.reference(*inputs)
    made = [np.empty_like(array) for array in wanted]
    kernel(*inputs, *made)
    rtol, atol = tolerance(task.program)
    return all(
        np.allclose(got.astype(float), right.astype(float), rtol, atol, equal_nan=True)
        for got, right in zip(made, wanted, strict=True)
    )


def page() -> str:
    """The text of the page."""
    rows = []
    for name, operator in topi.OPERATORS.items():
        dtypes = ", ".join(dtype for dtype in DTYPES if runs(name, dtype))
        options = ", ".join(f"`{option}={value}`" for option, value in operator.options.items())
        rows.append(f"| `{name}` | {','.join(operator.sizes)} | {options} | {dtypes} |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
