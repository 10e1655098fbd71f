"""Arrays of bytes seen as elements of other dtypes: narrower ones than a byte, and those that take several bytes."""

from __future__ import annotations

import operator
import re
from functools import reduce
from typing import Any

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, as_expr, cast, const
from tensorlang.location import caller
from tensorlang.te.machine import reinterpret
from tensorlang.te.operation import Tensor

_PART = re.compile(r"(u?int)([124])")


@dataclass(frozen=True, slots=True)
class View:
    """The bytes of a tensor as elements of a dtype: `view[i, j]` is an expression, proven in bounds as any read is.

    Its last index counts elements of the dtype: the lowest bits of a byte are the first of its parts, and of several
    bytes the first is the lowest (little-endian).
    """

    tensor: Tensor
    dtype: str

    def __getitem__(self, index: Any) -> Expr:
        *outer, last = index if isinstance(index, tuple) else (index,)
        place = as_expr(last)
        part = _PART.fullmatch(self.dtype)
        if part is None:
            return self._whole(outer, place)
        bits, signed = int(part[2]), part[1] == "int"
        each = 8 // bits
        byte = as_expr(self.tensor[(*outer, place // each)])
        if not signed:
            return (byte >> cast(place % each * bits, "uint8")) & const(2**bits - 1, "uint8")
        up = byte << cast((each - 1 - place % each) * bits, "uint8")
        return cast(up, "int8") >> const(8 - bits, "int8")

    def _whole(self, outer: list[Any], place: Expr) -> Expr:
        d = dtypes.info(self.dtype)
        bytes_ = [cast(self.tensor[(*outer, place * d.bytes + n)], f"uint{8 * d.bytes}") for n in range(d.bytes)]
        return reinterpret(self.dtype, reduce(operator.or_, (byte << 8 * n for n, byte in enumerate(bytes_))))


def view(tensor: Tensor, dtype: str) -> View:
    """See the bytes of a uint8 tensor as another dtype, or as `uint4`, `int4`, `uint2`, `int2`, `uint1` or `int1`.

    Of rows of bytes the last dimension is the one that is seen otherwise: `te.view(rows, "float16")[i, 4]` is made of
    the bytes 8 and 9 of row i, `te.view(rows, "uint4")[i, 5]` is the upper half of byte 2. Raises DefinitionError for
    other tensors and dtypes.

        >>> from tensorlang import te
        >>> rows = te.placeholder((2, 8), "uint8")
        >>> te.view(rows, "float16")[0, 3].dtype
        'float16'
    """
    if not isinstance(tensor, Tensor) or tensor.dtype != "uint8" or not tensor.shape:
        got = f"{tensor.dtype}{list(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor).__name__
        raise DefinitionError(f"te.view takes a uint8 tensor of one dimension or more, got {got}", caller())
    if _PART.fullmatch(str(dtype)):
        return View(tensor, dtype)
    name = dtypes.canonical(dtype)
    if name == "bool":
        raise DefinitionError("te.view has no bool; use uint1, or compare with 0", caller())
    return View(tensor, name)
