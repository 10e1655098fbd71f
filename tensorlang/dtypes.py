"""One table of element types, and the promotion rule of mixed arithmetic.

Promotion (`promote`), for two expressions of different dtype:

| operands | result |
|---|---|
| equal | that dtype |
| bool and another | the other |
| two signed, or two unsigned integers | the wider |
| signed and unsigned integer | the signed one if it is wider, else the next signed width (int64 at most) |
| integer and float | the float |
| two floats | the wider; two different ones of one width (float16 with bfloat16) give float32 |

Python literals are weak: they take the dtype of the other operand (a float literal beside an
integer or bool makes float32; an int literal beside a bool makes int32).

The narrow floats (float16, bfloat16, float8_e4m3fn, float8_e5m2) are computed in float32, and every result is rounded
to the nearest, ties to even. What is too large becomes an infinity; float8_e4m3fn has none, and it becomes NaN: 464 is
still its largest value 448, all above is not. Nothing saturates: clip first where it should. float64 and int64 go to
bfloat16 and to float8 through float32. (OCP 8-bit Floating Point Specification; ml_dtypes.)
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from typing import Any, Literal

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.location import caller

Kind = Literal["bool", "int", "uint", "float"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: name, kind, storage bits, and LLVM type name.

    bfloat16 is its bits there: LLVM gives up on vectors of its own bfloat type that are no power of two long. So are
    the floats of 8 bits, which LLVM does not have.
    """

    name: str
    kind: Kind
    bits: int
    llvm: str

    @property
    def bytes(self) -> int:
        """Bytes of one stored element."""
        return max(8, self.bits) // 8

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype that stores one element."""
        return _extension(self.name) if self.is_extension else np.dtype(self.name)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_narrow_float(self) -> bool:
        """Whether it is a float that is computed in float32 and rounded."""
        return self.is_float and self.bits < 32

    @property
    def is_extension(self) -> bool:
        """Whether it is a float that only ml_dtypes gives to NumPy; other libraries hold its bits as integers."""
        return self.is_float and self.llvm.startswith("i")

    @property
    def bits_dtype(self) -> str:
        """The unsigned integers that hold the bits of an element: uint16 for bfloat16."""
        return f"uint{8 * self.bytes}"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")


TABLE: dict[str, DType] = {
    d.name: d
    for d in (
        DType("bool", "bool", 1, "i1"),
        *(DType(f"{k}{b}", k, b, f"i{b}") for k in ("int", "uint") for b in (8, 16, 32, 64)),
        DType("float16", "float", 16, "half"),
        DType("bfloat16", "float", 16, "i16"),
        DType("float8_e4m3fn", "float", 8, "i8"),
        DType("float8_e5m2", "float", 8, "i8"),
        DType("float32", "float", 32, "float"),
        DType("float64", "float", 64, "double"),
    )
}


@cache
def _extension(name: str) -> np.dtype[Any]:
    """What ml_dtypes gives to NumPy; it is imported where it is asked for."""
    import ml_dtypes

    made: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return made


_ALIASES = {"int": "int32", "uint": "uint32", "float": "float32", "double": "float64", "half": "float16"} | {
    "e4m3_float8": "float8_e4m3fn", "e5m2_float8": "float8_e5m2"
}  # fmt: skip


def info(name: str) -> DType:
    """Return the table row of a dtype name, or raise DefinitionError naming the nearest one."""
    try:
        return TABLE[name]
    except (KeyError, TypeError):
        raise DefinitionError(f"unknown dtype {name!r}; known: {', '.join(TABLE)}{_meant(name)}", caller()) from None


def _meant(name: object) -> str:
    close = get_close_matches(name, TABLE, n=1) if isinstance(name, str) else ()
    return f"; did you mean {close[0]}?" if close else ""


def canonical(name: Any) -> str:
    """Return the tensorlang name of a dtype given as text, NumPy dtype, scalar type or dtype of PyTorch."""
    if type(name).__module__ == "torch":
        name = str(name).removeprefix("torch.")
    if isinstance(name, str):
        return info(_ALIASES.get(name, name)).name
    try:
        return info(np.dtype(name).name).name
    except (TypeError, ValueError):
        raise DefinitionError(f"unknown dtype {name!r}; known: {', '.join(TABLE)}", caller()) from None


@cache
def limits(name: str) -> tuple[int | float, int | float]:
    """Return the smallest and the largest value of a dtype: infinities for floats that have them."""
    d = info(name)
    if d.name == "float8_e4m3fn":
        return smallest_float(name), -smallest_float(name)
    if d.kind == "float":
        return float("-inf"), float("inf")
    if d.kind == "bool":
        return 0, 1
    return (0, 2**d.bits - 1) if d.kind == "uint" else (-(2 ** (d.bits - 1)), 2 ** (d.bits - 1) - 1)


def at_least_float32(name: str) -> str:
    """Return the dtype in which sums of elements are kept: float32 for narrow floats, others as they are."""
    return "float32" if info(name).is_narrow_float else name


def smallest_float(name: str) -> float:
    """Return the most negative finite value of a float dtype."""
    import ml_dtypes

    return float(ml_dtypes.finfo(info(name).numpy).min)


@cache
def promote(a: str, b: str) -> str:
    """Return the dtype of arithmetic between two expressions (table in the module docstring)."""
    x, y = info(a), info(b)
    if x.name == y.name:
        return x.name
    if "bool" in (x.kind, y.kind):
        return y.name if x.kind == "bool" else x.name
    if x.is_float or y.is_float:
        if not (x.is_float and y.is_float):
            return x.name if x.is_float else y.name
        return "float32" if x.bits == y.bits else max(x, y, key=lambda d: d.bits).name
    if x.kind == y.kind:
        return max(x, y, key=lambda d: d.bits).name
    signed, unsigned = (x, y) if x.kind == "int" else (y, x)
    return signed.name if signed.bits > unsigned.bits else f"int{min(64, 2 * unsigned.bits)}"
