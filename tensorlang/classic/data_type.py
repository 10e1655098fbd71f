"""`tvm.DataType`: a dtype, which is text, with its parts."""

from __future__ import annotations

from typing import Any, Self

from tensorlang.dtypes import DType, canonical, info

_CODES = {"int": 0, "uint": 1, "bool": 1, "float": 2}
_BFLOAT = 4


class DataType(str):
    """The name of a dtype, `DataType("float32") == "float32"`, as classic programs ask it for its parts.

    DefinitionError for a dtype that there is not, vectors (`float32x4`) among them.
    """

    __slots__ = ()

    def __new__(cls, dtype_str: Any) -> Self:
        return super().__new__(cls, canonical(dtype_str))

    @property
    def _info(self) -> DType:
        return info(str(self))

    @property
    def bits(self) -> int:
        """Bits of an element; 1 of bool."""
        return self._info.bits

    @property
    def itemsize(self) -> int:
        """Bytes of an element in memory."""
        return self._info.bytes

    @property
    def lanes(self) -> int:
        """Elements of a vector: 1, since vectors are made by schedules."""
        return 1

    @property
    def type_code(self) -> int:
        """TVM's number of the kind: 0 of signed integers, 1 of unsigned ones and bool, 2 of floats, 4 of bfloat16."""
        return _BFLOAT if self == "bfloat16" else _CODES[self._info.kind]
