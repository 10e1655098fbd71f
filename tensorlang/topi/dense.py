"""Dense layers `data[m, k] @ weight[n, k].T + bias[n]`, with weights as they are or laid out ahead."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, ExprLike, as_expr, cast, same
from tensorlang.ir.simplify import simplify
from tensorlang.schedules.cpu.register_tile import MANY, register_tile
from tensorlang.target import parse
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.te.terms import term_axis
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed
from tensorlang.topi.matmul import matmul, matmul_reference
from tensorlang.topi.operator import Operator

Array = npt.NDArray[Any]


@checked
def dense(
    data: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    out_dtype: str | None = None,
    name: str = "dense",
    precision: str | None = None,
) -> Tensor:
    """Return `data[m, k] @ weight[n, k].T + bias[n]` of shape (m, n).

    The result is of `out_dtype`, the dtype of `data` unless given, and so are sums; those of narrow floats are added up
    in float32 and rounded once, with the bias. `precision` is that of `matmul`.
    DefinitionError when the shapes do not fit, and for precisions as there.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.dense, [[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]])
        array([[11., 17.]], dtype=float32)
    """
    if data.ndim != 2 or weight.ndim != 2 or not same(data.shape[1], weight.shape[1]):
        raise DefinitionError(f"dense wants data[m, k] and weight[n, k], got {data} and {weight}")
    dtype = out_dtype or data.dtype
    sums, named = _sums(dtype, bias, name)
    product = matmul(data, weight, transpose_b=True, out_dtype=sums, name=named, precision=precision)
    return _finished(product, bias, dtype, name)


@checked
def pack_weight(
    weight: Tensor, transposed: bool = True, target: str | Target | None = None, name: str = "packed"
) -> Tensor:
    """Return weights [n, k] laid out for `dense_packed`: [n / w, k, w], w columns side by side, zeros after the last.

    `transposed`: False for weights [k, n]. The width w suits the registers of `target`, this machine by default.

        >>> from tensorlang import te, topi
        >>> packed = topi.pack_weight(te.placeholder((100, 64)), target="llvm -mcpu=haswell")
        >>> packed.ndim, packed.shape[1]
        (3, 64)
    """
    if weight.ndim != 2:
        raise DefinitionError(f"pack_weight wants a matrix, got {weight}")
    n, k = weight.shape[not transposed], weight.shape[transposed]
    width = panel_width(extent_of(n), dtypes.info(weight.dtype).bits, parse(target))

    def element(panel: Expr, r: Expr, lane: Expr) -> Expr:
        column = panel * width + lane
        value = weight[column, r] if transposed else weight[r, column]
        return te.if_then_else(column < n, value, cast(as_expr(0), weight.dtype))

    shape = (simplify((n + (width - 1)) // width), k, width)
    made: Tensor = te.compute(shape, element, name=name)
    return made


@checked
def dense_packed(
    data: Tensor,
    packed: Tensor,
    units: ExprLike,
    bias: Tensor | None = None,
    out_dtype: str | None = None,
    name: str = "dense",
) -> Tensor:
    """Return what `dense` does, of shape (m, units), from weights laid out by `pack_weight`.

    `units`: the number of columns, which the layout only gives rounded up. DefinitionError when the shapes do not fit.

        >>> from tensorlang import te, topi
        >>> packed = topi.pack_weight(te.placeholder((100, 64)))
        >>> topi.dense_packed(te.placeholder((8, 64)), packed, units=100).shape
        (8, 100)
    """
    if data.ndim != 2 or packed.ndim != 3 or not same(data.shape[1], packed.shape[1]):
        raise DefinitionError(f"dense_packed wants data[m, k] and packed[panels, k, width], got {data} and {packed}")
    n, width = as_expr(units), extent_of(packed.shape[2])
    if width is None or not same(simplify((n + (width - 1)) // width), packed.shape[0]):
        raise DefinitionError(f"dense_packed: {packed} does not hold {n} units in panels of {packed.shape[2]}")
    k = term_axis(data.shape[1], data, packed)
    dtype = out_dtype or data.dtype
    sums, named = _sums(dtype, bias, name)

    def element(i: Expr, j: Expr) -> Expr:
        return te.sum(cast(data[i, k], sums) * cast(packed[j // width, k, j % width], sums), axis=k)

    product: Tensor = te.compute((data.shape[0], n), element, name=named)
    return _finished(product, bias, dtype, name)


def panel_width(units: int | None, bits: int, target: Target) -> int:
    """The columns of a panel of weights that suit the registers of a target, by the bits of a sum."""
    return register_tile(MANY, units or MANY, target, bits).width


def _sums(dtype: str, bias: Tensor | None, name: str) -> tuple[str, str]:
    """The dtype in which sums of a layer are added up, and the name of their stage."""
    wide = dtypes.at_least_float32(dtype)
    return wide, name if bias is None and wide == dtype else f"{name}_product"


def _finished(product: Tensor, bias: Tensor | None, dtype: str, name: str) -> Tensor:
    """The layer of a product: its sums with the bias, rounded once where the dtype is narrower."""
    if bias is None:
        return (
            product
            if product.dtype == dtype
            else computed(product.shape, lambda i, j: cast(product[i, j], dtype), name)
        )
    if bias.ndim != 1 or not same(bias.shape[0], product.shape[1]):
        raise DefinitionError(f"the bias of {name} has {product.shape[1]} elements, got {bias}")
    return computed(product.shape, lambda i, j: cast(product[i, j] + cast(bias[j], product.dtype), dtype), name)


def dense_reference(data: Array, weight: Array, bias: Array) -> list[Array]:
    """The exact layer, rounded once."""
    if dtypes.info(dtypes.canonical(data.dtype)).is_float:
        wide = data.astype(np.float64) @ weight.astype(np.float64).T + bias
        return [wide.astype(data.dtype)]
    return [matmul_reference(data, weight.T)[0] + bias]


def dense_numpy(data: Array, weight: Array, bias: Array, out: Array) -> None:
    """What a NumPy user writes."""
    np.matmul(data, weight.T, out=out)
    out += bias


def _dense(m: int, n: int, k: int, dtype: str = "float32") -> list[Tensor]:
    data, weight = te.placeholder((m, k), dtype, "data"), te.placeholder((n, k), dtype, "weight")
    bias = te.placeholder((n,), dtype, "bias")
    return [data, weight, bias, dense(data, weight, bias)]


def pack_reference(weight: Array) -> list[Array]:
    """Panels side by side, with zeros after the last column."""
    n, k = weight.shape
    width = panel_width(n, dtypes.info(dtypes.canonical(weight.dtype)).bits, parse())
    panels = np.pad(weight, ((0, -n % width), (0, 0))).reshape(-1, width, k)
    return [np.ascontiguousarray(panels.transpose(0, 2, 1))]


def pack_numpy(weight: Array, out: Array) -> None:
    """What a NumPy user writes."""
    padded = np.zeros((out.shape[0] * out.shape[2], out.shape[1]), weight.dtype)
    padded[: len(weight)] = weight
    out[...] = padded.reshape(out.shape[0], out.shape[2], -1).transpose(0, 2, 1)


def dense_packed_reference(data: Array, packed: Array, bias: Array) -> list[Array]:
    """The layer of the columns that the bias counts."""
    weight = packed.transpose(0, 2, 1).reshape(-1, packed.shape[1])[: len(bias)]
    return dense_reference(data, weight, bias)


def dense_packed_numpy(data: Array, packed: Array, bias: Array, out: Array) -> None:
    """What a NumPy user writes: a product for each panel."""
    columns = np.matmul(data, packed).transpose(1, 0, 2).reshape(len(data), -1)
    np.add(columns[:, : len(bias)], bias, out=out)


def _pack(n: int, k: int, dtype: str = "float32") -> list[Tensor]:
    weight = te.placeholder((n, k), dtype, "weight")
    return [weight, pack_weight(weight)]


def _dense_packed(m: int, n: int, k: int, dtype: str = "float32") -> list[Tensor]:
    data, weight = te.placeholder((m, k), dtype, "data"), te.placeholder((n, k), dtype, "weight")
    packed = te.placeholder(pack_weight(weight).shape, dtype, "packed")
    bias = te.placeholder((n,), dtype, "bias")
    return [data, packed, bias, dense_packed(data, packed, n, bias)]


OPERATORS = (
    Operator("dense", ("M", "N", "K"), _dense, dense_reference, dense_numpy),
    Operator("pack_weight", ("N", "K"), _pack, pack_reference, pack_numpy),
    Operator("dense_packed", ("M", "N", "K"), _dense_packed, dense_packed_reference, dense_packed_numpy),
)
