"""Outputs that a call makes itself and returns, where it is given the inputs alone."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError
from tensorlang.ir.expr import Buffer
from tensorlang.runtime.arguments import ArgumentCheck, Signature


def made_by_calls(signature: Signature, outputs: Collection[str], inputs: Collection[str]) -> tuple[str, ...]:
    """The outputs that are no inputs that are changed in place: a call may leave them out."""
    return tuple(p.name for p in signature if p.name in outputs and p.name not in inputs)


@dataclass(slots=True)
class Returned:
    """The outputs, by name, that a kernel does not read: a call may leave all of them out."""

    names: tuple[str, ...] = ()

    def lacking(self, check: ArgumentCheck, count: int) -> bool:
        """Whether so many arguments are all but the outputs."""
        return bool(self.names) and count == len(check.signature) - len(self.names)

    def completed(self, check: ArgumentCheck, args: Sequence[Any]) -> tuple[list[Any], Any]:
        """All arguments, with new outputs among them, and what the call returns: these, or the only one.

        They are of the library of the inputs: PyTorch's or CuPy's if one of these is, else NumPy's.
        """
        shapes = check.shapes_without(args, frozenset(self.names))
        given, every, made = iter(args), list[Any](), list[Any]()
        for param in check.signature:
            if param.name in shapes:
                assert isinstance(param, Buffer)
                made.append(_zeros(check.name, args, shapes[param.name], param.dtype))
                every.append(made[-1])
            else:
                every.append(next(given))
        return every, made[0] if len(made) == 1 else tuple(made)


def _zeros(name: str, args: Sequence[Any], shape: tuple[int, ...], dtype: str) -> Any:
    """An output, which scripts and calls of Python may write in parts: nobody gets to see what memory held before."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None:
        beside = next((a for a in args if isinstance(a, torch.Tensor)), None)
        if beside is not None and not hasattr(torch, dtype):
            raise ArgumentError(f"{name}: PyTorch has no {dtype}, so the call cannot make its output; pass one")
        if beside is not None:
            return torch.zeros(shape, dtype=getattr(torch, dtype), device=beside.device)
    if cupy is not None and any(isinstance(a, cupy.ndarray) for a in args):
        return cupy.zeros(shape, dtypes.info(dtype).numpy)
    return np.zeros(shape, dtypes.info(dtype).numpy)
