"""Random numbers of distributions: uniform and normal ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, binary
from tensorlang.te.operation import Tensor
from tensorlang.topi.accumulate import cumsum
from tensorlang.topi.axes import extents
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed
from tensorlang.topi.random.threefry import threefry_generate

_FRACTION = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}
"""Bits of the fraction of a dtype: so many random ones make a number from 0 to 1."""


@checked
def uniform(
    gen: Tensor,
    low: float | Tensor,
    high: float | Tensor,
    out_shape: Sequence[int],
    out_dtype: str = "float32",
    name: str = "uniform",
) -> tuple[Tensor, Tensor]:
    """Return the generator that goes on, and floats of a shape that are uniform from `low` on, below `high`.

    Bounds are numbers, or tensors of shape () of the dtype. DefinitionError for other dtypes, numbers of elements that
    are no multiple of 4, and for what is no generator.

        >>> from tensorlang import te, topi
        >>> [x.shape for x in topi.random.uniform(te.placeholder((10,), "uint64"), 0, 1, (3, 4), "float64")]
        [(10,), (3, 4)]
    """
    if out_dtype not in _FRACTION:
        raise DefinitionError(f"{name} makes floats, of {', '.join(_FRACTION)}; got {out_dtype}")
    bounds = [_bound(name, bound, out_dtype) for bound in (low, high)]
    after, bits = threefry_generate(gen, out_shape, f"{name}_bits")
    wide, fraction = dtypes.at_least_float32(out_dtype), _FRACTION[out_dtype]

    def element(*i: Expr) -> Expr:
        share = te.cast(bits(*i) >> te.const(64 - fraction, "uint64"), wide) * te.const(2.0**-fraction, wide)
        first, last = (te.cast(bound, wide) for bound in bounds)
        return te.cast(share * (last - first) + first, out_dtype)

    return after, computed(bits.shape, element, name)


@checked
def normal(
    gen: Tensor,
    mean: float | Tensor,
    scale: float | Tensor,
    out_shape: Sequence[int],
    out_dtype: str = "float32",
    name: str = "normal",
) -> tuple[Tensor, Tensor]:
    """Return the generator that goes on, and floats of a shape that are normal, with a mean and a standard deviation.

    Pairs of uniform numbers become pairs of normal ones (Box and Muller 1958). DefinitionError as for uniform.

        >>> from tensorlang import te, topi
        >>> [x.shape for x in topi.random.normal(te.placeholder((10,), "uint64"), 0.0, 1.0, (3, 4))]
        [(10,), (3, 4)]
    """
    wide, count = dtypes.at_least_float32(out_dtype), math.prod(out_shape)
    bounds = [_bound(name, bound, out_dtype) for bound in (mean, scale)]
    after, even = uniform(gen, 0.0, 1.0, (-(-count // 4) * 4,), wide, f"{name}_uniform")
    half = -(-count // 4) * 2

    def element(*i: Expr) -> Expr:
        flat: Expr = te.const(0, "int64")
        for index, extent in zip(i, out_shape, strict=True):
            flat = flat * extent + index
        pair = binary("floormod", flat, max(half, 1))
        radius = te.sqrt(te.const(-2, wide) * te.log(te.const(1, wide) - even(pair)))
        turn = even(pair + half) * te.const(2 * math.pi, wide)
        value = radius * te.select(binary("lt", flat, half), te.cos(turn), te.sin(turn))
        middle, wider = (te.cast(bound, wide) for bound in bounds)
        return te.cast(middle + value * wider, out_dtype)

    return after, computed(tuple(out_shape), element, name)


def _bound(name: str, bound: float | Tensor, dtype: str) -> Expr:
    if isinstance(bound, Tensor) and (bound.ndim or bound.dtype != dtype):
        raise DefinitionError(f"{name} takes numbers or one {dtype}, got {bound}")
    return bound() if isinstance(bound, Tensor) else te.const(bound, dtype)


@checked
def multinomial(gen: Tensor, probs: Tensor, num_samples: int, name: str = "multinomial") -> tuple[Tensor, Tensor]:
    """Return the generator that goes on, and places drawn from rows of weights, int32[rows, num_samples].

    A place is as likely as its share in the sum of its row; negative weights count 0. `probs` may be one row: then the
    result is, too. DefinitionError for other shapes and dtypes, and where the number of samples of all rows is no
    multiple of 4.

        >>> from tensorlang import te, topi
        >>> weights = te.placeholder((2, 5))
        >>> [x.shape for x in topi.random.multinomial(te.placeholder((10,), "uint64"), weights, 6)]
        [(10,), (2, 6)]
    """
    if probs.ndim not in (1, 2) or not dtypes.info(probs.dtype).is_float:
        raise DefinitionError(f"{name} wants rows of floats, got {probs}")
    *rows, places = extents(name, probs)
    weights = computed(probs.shape, lambda *i: te.maximum(te.cast(probs(*i), "float32"), 0.0), f"{name}_weights")
    sums = cumsum(weights, -1, name=f"{name}_sums")
    after, drawn = uniform(gen, 0.0, 1.0, (*rows, num_samples), "float32", f"{name}_drawn")
    k = te.reduce_axis((0, places), "k")

    def element(*i: Expr) -> Expr:
        mark = drawn(*i) * sums(*i[:-1], places - 1)
        return te.sum(te.cast(sums(*i[:-1], k) <= mark, "int32"), axis=k)

    passed = computed(drawn.shape, element, f"{name}_passed")
    return after, computed(drawn.shape, lambda *i: te.minimum(passed(*i), places - 1), name)
