"""Products of narrow numbers, summed in 32 bits by the dot instructions of the machine.

bfloat16 by bfloat16 gives float32; 8-bit by 8-bit integers give int32, exactly as long as the sums fit. Weights are
laid out as [n / w, k / g, w, g]: panels of w columns, of which g neighbouring terms fill a word of 32 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import ExprLike, as_expr, cast, same
from tensorlang.schedule.rewrites.narrow_product import (
    SIGN,
    SUMS,
    WORD,
    panel_offsets,
    panels,
    parts,
    product_of_panels,
    terms_of_word,
)
from tensorlang.schedules.cpu.matrix_tiles import Sums
from tensorlang.schedules.cpu.narrow_product import operand_dtype, panel_of
from tensorlang.target import parse
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import checked
from tensorlang.topi.dense import dense
from tensorlang.topi.operator import Operator
from tensorlang.topi.requantize import requantize, requantize_reference

Array = npt.NDArray[Any]


@checked
def pack_narrow(
    weight: Tensor, transposed: bool = True, target: str | Target | None = None, name: str = "packed"
) -> Tensor:
    """Return weights [n, k] of bfloat16 or int8 laid out for `dense_narrow`, with zeros after the last.

    `transposed`: False for weights [k, n]. The width of a panel suits the registers of `target`, this machine by
    default. DefinitionError for other dtypes.

        >>> from tensorlang import te, topi
        >>> packed = topi.pack_narrow(te.placeholder((100, 64), "int8"))
        >>> packed.dtype
        'int8'
    """
    if weight.ndim != 2 or weight.dtype not in {w for _, w in SUMS}:
        raise DefinitionError(f"pack_narrow wants a matrix of bfloat16 or int8, got {weight}")
    width = panel_of(extent_of(weight.shape[not transposed]), parse(target))
    return panels(weight, transposed, width, name)


@checked
def narrow_offsets(
    packed: Tensor, data: str = "int8", zero_point: int = 0, target: str | Target | None = None, name: str = "offsets"
) -> Tensor:
    """Return what `dense_narrow` subtracts for data of a dtype and zero point, from weights of `pack_narrow`.

    Shape [n / w, w]: the zero point times the sum of each column, of data as the target multiplies them.

        >>> from tensorlang import te, topi
        >>> packed = topi.pack_narrow(te.placeholder((100, 64), "int8"))
        >>> topi.narrow_offsets(packed, "uint8", zero_point=3).dtype
        'int32'
    """
    if packed.ndim != 4 or SUMS.get((data, packed.dtype)) != "int32":
        raise DefinitionError(
            f"{name}: wanted int8 or uint8 data and int8 weights of pack_narrow, got {data}, {packed}"
        )
    operand = operand_dtype(data, packed.dtype, parse(target)) or data
    return panel_offsets(packed, operand, sign_shift(data, operand, zero_point, name), name)


@checked
def dense_narrow(
    data: Tensor,
    packed: Tensor,
    units: ExprLike,
    bias: Tensor | None = None,
    offsets: Tensor | None = None,
    zero_point: int = 0,
    name: str = "dense",
    target: str | Target | None = None,
) -> Tensor:
    """Return `(data[m, k] - zero_point) @ weight[n, k].T + bias[n]` in 32 bits, from weights laid out by `pack_narrow`.

    `units`: the number of columns n. `offsets`: made ahead by `narrow_offsets`, for the dtype and the zero point of
    data and the same target, which saves a pass over the weights. DefinitionError when shapes or dtypes do not fit.

        >>> from tensorlang import te, topi
        >>> packed = topi.pack_narrow(te.placeholder((100, 64), "int8"))
        >>> made = topi.dense_narrow(te.placeholder((8, 64), "uint8"), packed, units=100)
        >>> made.shape, made.dtype
        ((8, 100), 'int32')
    """
    _check_packed(data, packed, units, name)
    _check_offsets(data, packed, offsets, zero_point, name)
    if bias is not None and (bias.ndim != 1 or not same(bias.shape[0], as_expr(units))):
        raise DefinitionError(f"the bias of {name} has {units} elements, got {bias}")
    product = name if bias is None else f"{name}_product"
    rows, words, width = (extent_of(e) or 0 for e in (data.shape[0], *packed.shape[1:3]))
    sums = None if offsets is not None or not (rows and words and width) else Sums(rows, 1, (1, 1), words, width)
    operand = operand_dtype(data.dtype, packed.dtype, parse(target), sums) or data.dtype
    zero = sign_shift(data.dtype, operand, zero_point, product)
    made = product_of_panels(data, packed, as_expr(units), False, operand, zero, offsets, product)
    if bias is None:
        return made
    biased: Tensor = te.compute(made.shape, lambda i, j: made[i, j] + cast(bias[j], made.dtype), name=name)
    return biased


def sign_shift(data: str, operand: str, zero_point: int, name: str) -> int:
    """What a zero of data is when they are multiplied as `operand`; DefinitionError if the zero point is no value."""
    low, high = dtypes.limits(data) if data != "bfloat16" else (0, 0)
    if not low <= zero_point <= high:
        raise DefinitionError(f"{name}: the zero point of data has to be a value of their dtype, got {zero_point!r}")
    return zero_point + SIGN * (operand != data)


def weight_dtype(data: str) -> str:
    """The dtype of weights that data of a dtype are multiplied with; DefinitionError if there is none."""
    for known, weight in SUMS:
        if known == data:
            return weight
    raise DefinitionError(f"narrow numbers are {', '.join(known for known, _ in SUMS)}, got {data}")


def pairs() -> str:
    """The dtypes of data and weights that are multiplied, as text."""
    return ", ".join(f"{a} by {b}" for a, b in SUMS)


def _check_packed(data: Tensor, packed: Tensor, units: ExprLike, name: str) -> None:
    wanted = f"{name} wants data[m, k] and packed[n / w, k / g, w, g] of pack_narrow"
    if data.ndim != 2 or packed.ndim != 4:
        raise DefinitionError(f"{wanted}, got {data} and {packed}")
    if (data.dtype, packed.dtype) not in SUMS:
        raise DefinitionError(f"{name} multiplies {pairs()}, got {data.dtype} by {packed.dtype}")
    width, group = extent_of(packed.shape[2]), extent_of(packed.shape[3])
    if width is None or group != terms_of_word(packed.dtype) or not same(parts(data.shape[1], group), packed.shape[1]):
        raise DefinitionError(f"{wanted}, got {data} and {packed}")
    if not same(parts(as_expr(units), width), packed.shape[0]):
        raise DefinitionError(f"{name}: {packed} does not hold {units} units in panels of {width}")


def _check_offsets(data: Tensor, packed: Tensor, offsets: Tensor | None, zero_point: int, name: str) -> None:
    if data.dtype == "bfloat16" and (zero_point or offsets is not None):
        raise DefinitionError(f"{name}: bfloat16 has no zero point, and nothing to subtract for it")
    if offsets is None:
        return
    if zero_point:
        raise DefinitionError(f"{name}: give the zero point {zero_point} to narrow_offsets, which made the offsets")
    shape = (packed.shape[0], packed.shape[2])
    if offsets.dtype != "int32" or offsets.ndim != 2 or not all(map(same, offsets.shape, shape)):
        raise DefinitionError(f"{name}: the offsets are those of narrow_offsets({packed.op.name}), got {offsets}")


def quantized_dense_reference(data: Array, weight: Array, scale: Array) -> list[Array]:
    """The exact sums, scaled in float32."""
    return [requantize_reference(data.astype(np.int64) @ weight.astype(np.int64).T, scale)]


def quantized_dense_numpy(data: Array, weight: Array, scale: Array, out: Array) -> None:
    """What a NumPy user writes."""
    out[...] = np.clip(np.rint((data.astype(np.int32) @ weight.T.astype(np.int32)) * scale), -128, 127)


def pack_narrow_reference(weight: Array) -> list[Array]:
    """Words of neighbouring terms, in panels, with zeros after the last."""
    (n, k), group = weight.shape, WORD // (8 * weight.itemsize)
    width = panel_of(n, parse())
    whole = np.pad(weight, ((0, -n % width), (0, -k % group)))
    return [np.ascontiguousarray(whole.reshape(-1, width, whole.shape[1] // group, group).transpose(0, 2, 1, 3))]


def pack_narrow_numpy(weight: Array, out: Array) -> None:
    """What a NumPy user writes."""
    panels, words, width, group = out.shape
    whole = np.zeros((panels * width, words * group), weight.dtype)
    whole[: weight.shape[0], : weight.shape[1]] = weight
    out[...] = whole.reshape(panels, width, words, group).transpose(0, 2, 1, 3)


def dense_narrow_reference(data: Array, packed: Array, bias: Array) -> list[Array]:
    """The layer of the columns that the bias counts, and of the terms that data have."""
    exact = np.int64 if bias.dtype == np.int32 else np.float64
    sums = data.astype(exact) @ _unpacked(packed, len(bias), data.shape[1]).astype(exact).T
    return [(sums + bias).astype(bias.dtype)]


def dense_narrow_numpy(data: Array, packed: Array, bias: Array, out: Array) -> None:
    """What a NumPy user writes."""
    weight = _unpacked(packed, len(bias), data.shape[1])
    out[...] = data.astype(bias.dtype) @ weight.astype(bias.dtype).T + bias


def _unpacked(packed: Array, n: int, k: int) -> Array:
    rows = packed.transpose(0, 2, 1, 3).reshape(packed.shape[0] * packed.shape[2], -1)
    return np.asarray(rows[:n, :k])


def _quantized_dense(m: int, n: int, k: int, dtype: str = "int8") -> list[Tensor]:
    if SUMS.get((dtype, "int8")) is None:
        raise DefinitionError(f"quantized_dense takes data of int8 or uint8, got {dtype}")
    data, weight = te.placeholder((m, k), dtype, "data"), te.placeholder((n, k), "int8", "weight")
    scale = te.placeholder((n,), "float32", "scale")
    return [data, weight, scale, requantize(dense(data, weight, out_dtype="int32"), scale)]


def _pack_narrow(n: int, k: int, dtype: str = "int8") -> list[Tensor]:
    weight = te.placeholder((n, k), dtype, "weight")
    return [weight, pack_narrow(weight)]


def _dense_narrow(m: int, n: int, k: int, dtype: str = "int8") -> list[Tensor]:
    narrow = weight_dtype(dtype)
    data, weight = te.placeholder((m, k), dtype, "data"), te.placeholder((n, k), narrow, "weight")
    packed = te.placeholder(pack_narrow(weight).shape, narrow, "packed")
    bias = te.placeholder((n,), SUMS[dtype, narrow], "bias")
    return [data, packed, bias, dense_narrow(data, packed, n, bias)]


OPERATORS = (
    Operator("quantized_dense", ("M", "N", "K"), _quantized_dense, quantized_dense_reference, quantized_dense_numpy),
    Operator("pack_narrow", ("N", "K"), _pack_narrow, pack_narrow_reference, pack_narrow_numpy),
    Operator("dense_narrow", ("M", "N", "K"), _dense_narrow, dense_narrow_reference, dense_narrow_numpy),
)
