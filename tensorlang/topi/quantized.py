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
from tensorlang.ir.expr import Expr, ExprLike, as_expr, cast, same
from tensorlang.ir.simplify import simplify
from tensorlang.schedules.cpu.narrow_product import (
    dot_instruction,
)
from tensorlang.schedules.cpu.register_tile import MANY, whole_width
from tensorlang.schedules.plain import PLAIN
from tensorlang.target import parse
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import checked
from tensorlang.topi.operator import Operator
from tensorlang.topi.requantize import requantize, requantize_reference
from tensorlang.topi.terms import term_axis

Array = npt.NDArray[Any]

_WORD = 32
SIGN = 128
"""What is added to signed bytes where the machine multiplies unsigned ones only."""
_FEWEST_ROWS = 8
"""With fewer rows of data, laying out the weights takes longer than the product."""
SUMS = {("bfloat16", "bfloat16"): "float32", ("int8", "int8"): "int32", ("uint8", "int8"): "int32"}
"""The dtypes of data and weights that have dot instructions, and of their sums."""


def is_narrow(m: Expr, n: Expr, k: Expr, data: str, weight: str, sums: str) -> bool:
    """Whether a product that is given at the call is best summed by dot instructions of this machine."""
    known = extent_of(n) is not None and extent_of(k) is not None and (extent_of(m) or MANY) >= _FEWEST_ROWS
    return known and SUMS.get((data, weight)) == sums and operand_dtype(data, weight, parse()) is not None


@checked
def pack_narrow(
    weight: Tensor, transposed: bool = True, target: str | Target | None = None, name: str = "packed"
) -> Tensor:
    """Return weights [n, k] of bfloat16 or int8 laid out for `dense_narrow`, with zeros after the last.

    `transposed`: False for weights [k, n]. The width of a panel suits the registers of `target`, this machine by
    default. DefinitionError for other dtypes.
    """
    if weight.ndim != 2 or weight.dtype not in {w for _, w in SUMS}:
        raise DefinitionError(f"pack_narrow wants a matrix of bfloat16 or int8, got {weight}")
    n, k = weight.shape[not transposed], weight.shape[transposed]
    width = panel_of(extent_of(n), parse(target))
    group = terms_of_word(weight.dtype)
    panels, words = _parts(n, width), _parts(k, group)
    extents = (panels * width, words * group) if transposed else (words * group, panels * width)
    whole = _grown(weight, tuple(map(simplify, extents)), weight.dtype, f"{name}_whole")

    def element(panel: Expr, word: Expr, lane: Expr, term: Expr) -> Expr:
        column, row = panel * width + lane, word * group + term
        value: Expr = whole[column, row] if transposed else whole[row, column]
        return value

    made: Tensor = te.compute((panels, words, width, group), element, name=name, tag="narrow_panels")
    return made


@checked
def narrow_offsets(
    packed: Tensor, data: str = "int8", zero_point: int = 0, target: str | Target | None = None, name: str = "offsets"
) -> Tensor:
    """Return what `dense_narrow` subtracts for data of a dtype and zero point, from weights of `pack_narrow`.

    Shape [n / w, w]: the zero point times the sum of each column, of data as the target multiplies them.
    """
    if packed.ndim != 4 or SUMS.get((data, packed.dtype)) != "int32":
        raise DefinitionError(
            f"{name}: wanted int8 or uint8 data and int8 weights of pack_narrow, got {data}, {packed}"
        )
    _, words, _, group = packed.shape
    operand = operand_dtype(data, packed.dtype, parse(target)) or data
    shift = sign_shift(data, operand, zero_point, name)
    zeros = te.compute((group,), lambda t: te.const(shift, operand), name=f"{name}_zero", tag="narrow_moved")
    k = term_axis(simplify(words * group), packed)

    def element(p: Expr, lane: Expr) -> Expr:
        return te.sum(cast(zeros[k % group], "int32") * cast(packed[p, k // group, lane, k % group], "int32"), axis=k)

    made: Tensor = te.compute((packed.shape[0], packed.shape[2]), element, name=name, tag="narrow_offsets")
    return made


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
    """
    _check_packed(data, packed, units, name)
    _check_offsets(data, packed, offsets, zero_point, name)
    if bias is not None and (bias.ndim != 1 or not same(bias.shape[0], as_expr(units))):
        raise DefinitionError(f"the bias of {name} has {units} elements, got {bias}")
    product = name if bias is None else f"{name}_product"
    made = _product(data, packed, as_expr(units), False, offsets, zero_point, product, parse(target))
    if bias is None:
        return made
    biased: Tensor = te.compute(made.shape, lambda i, j: made[i, j] + cast(bias[j], made.dtype), name=name)
    return biased


def narrow_matmul(
    a: Tensor, b: Tensor, transpose_a: bool = False, transpose_b: bool = False, plain: Tensor | None = None
) -> Tensor:
    """Return `a[m, k] @ b[k, n]` in 32 bits: what topi.matmul makes of narrow dtypes, B laid out in the kernel.

    `plain`: the product without a layout, which gives its name, and which GPUs take.
    """
    name = "C" if plain is None else plain.op.name
    packed = pack_narrow(b, transpose_b, name=f"{name}_packed")
    return _product(a, packed, b.shape[not transpose_b], transpose_a, None, 0, name, parse(), plain)


def _product(
    a: Tensor,
    packed: Tensor,
    n: Expr,
    transposed: bool,
    offsets: Tensor | None,
    zero_point: int,
    name: str,
    target: Target,
    plain: Tensor | None = None,
) -> Tensor:
    """Sums of whole panels, then the columns that there are; `plain` is remembered."""
    sums_dtype = SUMS[a.dtype, packed.dtype]
    operand = operand_dtype(a.dtype, packed.dtype, target) or a.dtype
    panels, words, width, group = packed.shape
    m = a.shape[transposed]
    zero = sign_shift(a.dtype, operand, zero_point, name)
    rows = _rows(a, transposed, (m, simplify(words * group)), operand, zero, f"{name}_rows")
    k = term_axis(simplify(words * group), rows, packed)

    def partial(i: Expr, p: Expr, lane: Expr) -> Expr:
        factor = packed[p, k // group, lane, k % group]
        return te.sum(cast(rows[i, k], sums_dtype) * cast(factor, sums_dtype), axis=k)

    sums = te.compute((m, panels, width), partial, name=f"{name}_sums", tag="narrow_sums")
    if sums_dtype == "int32" and offsets is None and (zero_point or operand != a.dtype):
        offsets = narrow_offsets(packed, a.dtype, zero_point, target, f"{name}_offsets")

    def element(i: Expr, j: Expr) -> Expr:
        at = (j // width, j % width)
        value: Expr = sums[i, *at] if offsets is None else sums[i, *at] - offsets[at]
        return value

    attrs = {} if plain is None else {PLAIN: plain.op}
    made: Tensor = te.compute((m, n), element, name=name, tag="narrow_product", attrs=attrs)
    return made


def _rows(a: Tensor, transposed: bool, shape: tuple[Expr, Expr], operand: str, zero: int, name: str) -> Tensor:
    """Data as they are multiplied: rows side by side, as many terms as the weights have, of the operand's dtype."""
    if not transposed:
        return _grown(a, shape, operand, name, zero)
    made: Tensor = te.compute(
        shape, lambda i, k: _value(a, (k, i), shape[::-1], operand, zero), name=name, tag="narrow_moved"
    )
    return made


def _grown(matrix: Tensor, shape: tuple[Expr, ...], dtype: str, name: str, zero: int = 0) -> Tensor:
    """A matrix with zeros behind its last rows and columns, its elements as another 8-bit dtype; itself if it is so."""
    if all(map(same, matrix.shape, shape)) and dtype == matrix.dtype:
        return matrix
    made: Tensor = te.compute(
        shape, lambda i, j: _value(matrix, (i, j), shape, dtype, zero), name=name, tag="narrow_moved"
    )
    return made


def _value(matrix: Tensor, index: tuple[Expr, Expr], shape: tuple[Expr, ...], dtype: str, zero: int) -> Expr:
    """An element, moved to be unsigned if it has to be; `zero` where an index, up to `shape`, is too large."""
    value: Expr = matrix[index]
    if dtype != matrix.dtype:
        value = cast(cast(value, "int32") + SIGN, dtype)
    for position, extent, reached in zip(index, matrix.shape, shape, strict=True):
        if not same(extent, reached):
            value = te.if_then_else(position < extent, value, te.const(zero, dtype))
    return value


def operand_dtype(data: str, weight: str, target: Target) -> str | None:
    """The dtype in which a target multiplies data: their own, or for signed bytes unsigned; None: no dot does it."""
    possible = (data, "uint8") if data == "int8" else (data,)
    return next((p for p in possible if dot_instruction(p, weight, target) is not None), None)


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


def panel_of(units: int | None, target: Target) -> int:
    """The columns of a panel that suit the registers of a target."""
    return whole_width(units or MANY, target, _WORD)


def terms_of_word(dtype: str) -> int:
    """The terms in a word."""
    return _WORD // dtypes.info(dtype).bits


def _parts(extent: Expr, size: int) -> Expr:
    return simplify((extent + (size - 1)) // size)


def _check_packed(data: Tensor, packed: Tensor, units: ExprLike, name: str) -> None:
    wanted = f"{name} wants data[m, k] and packed[n / w, k / g, w, g] of pack_narrow"
    if data.ndim != 2 or packed.ndim != 4:
        raise DefinitionError(f"{wanted}, got {data} and {packed}")
    if (data.dtype, packed.dtype) not in SUMS:
        raise DefinitionError(f"{name} multiplies {pairs()}, got {data.dtype} by {packed.dtype}")
    width, group = extent_of(packed.shape[2]), extent_of(packed.shape[3])
    if width is None or group != terms_of_word(packed.dtype) or not same(_parts(data.shape[1], group), packed.shape[1]):
        raise DefinitionError(f"{wanted}, got {data} and {packed}")
    if not same(_parts(as_expr(units), width), packed.shape[0]):
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
    (n, k), group = weight.shape, _WORD // (8 * weight.itemsize)
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
    data, weight = te.placeholder((m, k), dtype, "data"), te.placeholder((n, k), "int8", "weight")
    scale = te.placeholder((n,), "float32", "scale")
    return [data, weight, scale, requantize(dense_narrow(data, pack_narrow(weight), n), scale)]


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
