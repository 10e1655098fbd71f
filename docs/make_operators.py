"""Writes docs/operators.md: the library's operators, their sizes on the command line, and the dtypes that they run in.

A dtype is listed when the scheduled kernel of this machine agrees with the operator's reference in it.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np

import tensorlang
from tensorlang import topi
from tensorlang.autotune import create_task
from tensorlang.autotune.measuring.seeded import seeded_inputs
from tensorlang.errors import TensorlangError
from tensorlang.te.reference import tolerance
from tensorlang.topi import table

PAGE = Path(__file__).with_name("operators.md")
DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64")
SMALL = {"N": 5, "M": 7, "K": 3, "C": 4, "H": 6, "W": 9, "O": 8, "Q": 2, "D": 4}
"""Sizes that the test of the page takes, by name."""

HEAD = """# Operators

What `tensorlang.topi` has by name, for `tensorlang tune NAME --shape ...` and `autotune.create_task(NAME, ...)`: the
sizes in their order, the options with what they are when they are left out (`--option stride=2`, or `"stride=2"` after
the dtype), and the dtypes in which the kernel that the library schedules agrees with the operator's NumPy reference.
This page is written by `python docs/make_operators.py`; a test runs every entry. The functions take more (axes,
layouts, epilogues): their docstrings say what. Convolutions by name pad SAME where no padding is said; `topi.conv2d`
pads as it is told, by 0 if left out.

| operator | sizes | options | dtypes |
|---|---|---|---|
"""


FUNCTIONS = """
## Functions

All functions of `tensorlang.topi` that make tensors, with their parameters, which are named and ordered as TVM's; their
docstrings say more, with examples. What is made takes part in programs like any `te.compute`: `topi.schedule` schedules
and fuses it, `te.gradient` goes through it.

| function | parameters | |
|---|---|---|
"""


def functions() -> str:
    """The rows of the functions: their parameters but for names, and the first sentence of what they say."""
    rows = []
    for name, found in table.functions().items():
        if name in ("schedule", "operator"):
            continue
        parameters = [str(p).partition(":")[0] + _default(p) for p in inspect.signature(found).parameters.values()]
        sentence = " ".join(str(inspect.getdoc(found)).partition("\n\n")[0].split()).replace("|", "\\|")
        rows.append(f"| `{name}` | `{', '.join(p for p in parameters if not p.startswith('name='))}` | {sentence} |\n")
    return FUNCTIONS + "".join(rows)


def _default(parameter: inspect.Parameter) -> str:
    value = parameter.default
    return (
        "" if value is parameter.empty else f"={f'te.{value.__name__}' if inspect.isfunction(value) else repr(value)}"
    )


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
    return HEAD + "".join(rows) + functions()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
