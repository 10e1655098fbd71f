"""The table of operators that the command line knows by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from tensorlang.errors import DefinitionError
from tensorlang.te.operation import Tensor
from tensorlang.topi.matmul import matmul, matmul_numpy, matmul_reference

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator by name.

    `compute(*sizes, dtype)` returns the tensors, inputs first; `sizes` names its integers.
    `reference(*inputs)` returns the outputs; `numpy(*inputs, *outputs)` is what a NumPy user would run.
    """

    name: str
    sizes: tuple[str, ...]
    compute: Callable[..., list[Tensor]]
    reference: Callable[..., list[Array]]
    numpy: Callable[..., None]

    def tensors(self, sizes: Sequence[int], dtype: str) -> list[Tensor]:
        """Build the tensors; DefinitionError when the number or the sign of `sizes` is wrong."""
        if len(sizes) != len(self.sizes) or any(n < 1 for n in sizes):
            wanted, got = ",".join(self.sizes), ",".join(map(str, sizes))
            raise DefinitionError(f"{self.name} wants the shape {wanted} as positive integers, got {got or 'nothing'}")
        return self.compute(*sizes, dtype)


OPERATORS: dict[str, Operator] = {
    op.name: op for op in (Operator("matmul", ("M", "N", "K"), matmul, matmul_reference, matmul_numpy),)
}


def operator(name: str) -> Operator:
    """Return the operator of that name, or raise DefinitionError with the nearest one."""
    if name in OPERATORS:
        return OPERATORS[name]
    near = difflib.get_close_matches(name, OPERATORS, 1)
    meant = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(OPERATORS)}"
    raise DefinitionError(f"unknown operator {name!r}{meant} (your own: path/to/file.py:function)")
