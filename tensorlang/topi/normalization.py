"""Normalization: layer norm and rms norm over some axes, batch norm with known statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import mul
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, ExprLike, as_expr, same
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import normalized, normalized_all
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed, widened
from tensorlang.topi.operator import Operator

Array = npt.NDArray[Any]


@checked
def layer_norm(
    data: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    axis: int | Sequence[int] = -1,
    epsilon: ExprLike = 1e-5,
    name: str = "layer_norm",
) -> Tensor:
    """Return `(data - mean) / sqrt(variance + epsilon) * gamma + beta`, mean and variance taken over some axes.

    `gamma` and `beta` have the shape of these axes; without them they are 1 and 0. Half precision is computed in
    float32. DefinitionError for wrong axes, shapes or dtypes.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.layer_norm, [[1.0, 3.0]], epsilon=0.0)
        array([[-1.,  1.]], dtype=float32)
    """
    return layer_norm_in(data.dtype, data, gamma, beta, axis, epsilon, name)


def layer_norm_in(
    dtype: str,
    data: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    axis: int | Sequence[int],
    epsilon: ExprLike,
    name: str,
) -> Tensor:
    """`layer_norm`, rounded to a dtype."""
    axes = _checked("layer_norm", data, axis, gamma, beta)
    rest = _rest(data, axes)
    mean = _mean_over(data, axes, lambda value, _: value, f"{name}_mean")
    variance = _mean_over(data, axes, lambda value, i: (value - mean(*i)) * (value - mean(*i)), f"{name}_var")
    scale = te.compute(
        tuple(data.shape[d] for d in rest),
        lambda *i: te.rsqrt(variance(*i) + epsilon),
        name=f"{name}_scale",
    )

    def element(*i: Expr) -> Expr:
        outside = [i[d] for d in rest]
        made = (widened(data(*i)) - mean(*outside)) * scale(*outside)
        return _affine(made, gamma, beta, [i[d] for d in axes]).astype(dtype)

    return computed(data.shape, element, name)


@checked
def rms_norm(
    data: Tensor,
    weight: Tensor | None = None,
    axis: int | Sequence[int] = -1,
    epsilon: ExprLike = 1e-5,
    name: str = "rms_norm",
) -> Tensor:
    """Return `data / sqrt(mean(data**2) + epsilon) * weight`, the mean taken over some axes.

    `weight` has the shape of these axes; without it, it is 1. Half precision is computed in float32.
    DefinitionError for wrong axes, shapes or dtypes.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.rms_norm, [[3.0, 4.0]], epsilon=0.0).round(4)
        array([[0.8485, 1.1314]], dtype=float32)
    """
    axes = _checked("rms_norm", data, axis, weight)
    rest = _rest(data, axes)
    square = _mean_over(data, axes, lambda value, _: value * value, f"{name}_square")
    scale = te.compute(
        tuple(data.shape[d] for d in rest),
        lambda *i: te.rsqrt(square(*i) + epsilon),
        name=f"{name}_scale",
    )

    def element(*i: Expr) -> Expr:
        made = widened(data(*i)) * scale(*[i[d] for d in rest])
        return _affine(made, weight, None, [i[d] for d in axes]).astype(data.dtype)

    made = te.compute(data.shape, element, name=name)
    assert isinstance(made, Tensor)
    return made


@checked
def batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int = 1,
    epsilon: ExprLike = 1e-5,
    center: bool = True,
    scale: bool = True,
    name: str = "batch_norm",
) -> Tensor:
    """Return `(data - moving_mean) / sqrt(moving_var + epsilon) * gamma + beta` per channel (`axis`): inference.

    `center` and `scale` say whether `beta` and `gamma` take part. The four have one element per channel.
    Half precision is computed in float32. DefinitionError for a wrong axis, shape or dtype.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.batch_norm, [[[[2.0]]]], [1.0], [0.0], [1.0], [1.0], epsilon=0.0).tolist()
        [[[[1.0]]]]
    """
    where = normalized("batch_norm", data, axis)
    _checked("batch_norm", data, where, gamma, beta, moving_mean, moving_var)
    channels = (data.shape[where],)

    def factor(c: Expr) -> Expr:
        inverse: Expr = te.rsqrt(widened(moving_var(c)) + epsilon)
        return widened(gamma(c)) * inverse if scale else inverse

    slope = te.compute(channels, factor, name=f"{name}_slope")

    def offset(c: Expr) -> Expr:
        shift: Expr = -widened(moving_mean(c)) * slope(c)
        return shift + widened(beta(c)) if center else shift

    start = te.compute(channels, offset, name=f"{name}_start")
    made = te.compute(
        data.shape,
        lambda *i: (widened(data(*i)) * slope(i[where]) + start(i[where])).astype(data.dtype),
        name=name,
    )
    assert isinstance(made, Tensor)
    return made


def _checked(operator: str, data: Tensor, axis: int | Sequence[int], *weights: Tensor | None) -> tuple[int, ...]:
    """The axes in rising order; DefinitionError where dtypes or shapes do not fit them."""
    axes = normalized_all(operator, data, axis)
    if not dtypes.info(data.dtype).is_float or not axes:
        raise DefinitionError(f"{operator} wants floats and at least one axis, got {data.dtype} and axes {list(axes)}")
    shape = [data.shape[d] for d in axes]
    for weight in weights:
        if weight is None:
            continue
        if weight.ndim != len(shape) or not all(same(a, b) for a, b in zip(weight.shape, shape, strict=True)):
            wanted = ", ".join(map(str, shape))
            raise DefinitionError(
                f"{operator} over axes {list(axes)} of {data} wants the shape ({wanted}), got {weight}"
            )
        if weight.dtype != data.dtype:
            raise DefinitionError(f"{operator} of {data.dtype} wants {weight.name} in it, got {weight.dtype}")
    return axes


def _mean_over(data: Tensor, axes: Sequence[int], term: Callable[[Expr, Sequence[Expr]], Expr], name: str) -> Tensor:
    """The mean over some axes of a term made of an element and of the indices of the other axes."""
    rest = _rest(data, axes)
    shape = tuple(data.shape[d] for d in rest)
    reduced = {d: te.reduce_axis((0, data.shape[d]), name=f"k{d}") for d in axes}

    def total(*outside: Expr) -> Expr:
        at = dict(zip(rest, outside, strict=True)) | {d: k.as_expr() for d, k in reduced.items()}
        value = widened(data(*[at[d] for d in range(data.ndim)]))
        made: Expr = te.sum(term(value, outside), axis=list(reduced.values()))
        return made

    count = reduce(mul, (as_expr(data.shape[d]) for d in axes))
    sums = te.compute(shape, total, name=f"{name}_sum")
    made = te.compute(shape, lambda *i: sums(*i) / count.astype(sums.dtype), name=name)
    assert isinstance(made, Tensor)
    return made


def _rest(data: Tensor, axes: Sequence[int]) -> list[int]:
    return [d for d in range(data.ndim) if d not in axes]


def _affine(value: Expr, gamma: Tensor | None, beta: Tensor | None, index: Sequence[Expr]) -> Expr:
    scaled = value if gamma is None else value * widened(gamma(*index))
    return scaled if beta is None else scaled + widened(beta(*index))


def layer_norm_reference(x: Array, gamma: Array, beta: Array) -> list[Array]:
    """Along the last axis, in float64."""
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    made = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    return [(made * gamma + beta).astype(x.dtype)]


def rms_norm_reference(x: Array, weight: Array) -> list[Array]:
    """Along the last axis, in float64."""
    wide = x.astype(np.float64)
    made = wide / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + 1e-5)
    return [(made * weight).astype(x.dtype)]


def batch_norm_reference(x: Array, gamma: Array, beta: Array, mean: Array, var: Array) -> list[Array]:
    """Along axis 1 of four, in float64."""
    g, b, m, v = (a.astype(np.float64)[:, None, None] for a in (gamma, beta, mean, np.abs(var)))
    return [((x.astype(np.float64) - m) / np.sqrt(v + 1e-5) * g + b).astype(x.dtype)]


def layer_norm_numpy(x: Array, gamma: Array, beta: Array, out: Array) -> None:
    """What a NumPy user writes; the competitor of the tables."""
    np.subtract(x, x.mean(axis=-1, keepdims=True), out=out)
    np.divide(out, np.sqrt((out * out).mean(axis=-1, keepdims=True) + x.dtype.type(1e-5)), out=out)
    np.multiply(out, gamma, out=out)
    np.add(out, beta, out=out)


def rms_norm_numpy(x: Array, weight: Array, out: Array) -> None:
    """What a NumPy user writes; the competitor of the tables."""
    np.divide(x, np.sqrt((x * x).mean(axis=-1, keepdims=True) + x.dtype.type(1e-5)), out=out)
    np.multiply(out, weight, out=out)


def batch_norm_numpy(x: Array, gamma: Array, beta: Array, mean: Array, var: Array, out: Array) -> None:
    """What a NumPy user writes; the competitor of the tables."""
    slope = gamma / np.sqrt(np.abs(var) + x.dtype.type(1e-5))
    np.multiply(x, slope[:, None, None], out=out)
    np.add(out, (beta - mean * slope)[:, None, None], out=out)


def _layer_norm_workload(n: int, m: int, dtype: str = "float32") -> list[Tensor]:
    x = te.placeholder((n, m), name="X", dtype=dtype)
    gamma, beta = (te.placeholder((m,), name=name, dtype=dtype) for name in ("gamma", "beta"))
    return [x, gamma, beta, layer_norm(x, gamma, beta)]


def _rms_norm_workload(n: int, m: int, dtype: str = "float32") -> list[Tensor]:
    x, weight = te.placeholder((n, m), name="X", dtype=dtype), te.placeholder((m,), name="W", dtype=dtype)
    return [x, weight, rms_norm(x, weight)]


def _batch_norm_workload(n: int, c: int, h: int, w: int, dtype: str = "float32") -> list[Tensor]:
    x = te.placeholder((n, c, h, w), name="X", dtype=dtype)
    gamma, beta, mean, var = (te.placeholder((c,), name=v, dtype=dtype) for v in ("gamma", "beta", "mean", "var"))
    positive = te.compute((c,), lambda i: te.abs(var[i]), name="positive")
    return [x, gamma, beta, mean, var, batch_norm(x, gamma, beta, mean, positive)]


OPERATORS = (
    Operator("layer_norm", ("N", "M"), _layer_norm_workload, layer_norm_reference, layer_norm_numpy),
    Operator("rms_norm", ("N", "M"), _rms_norm_workload, rms_norm_reference, rms_norm_numpy),
    Operator("batch_norm", ("N", "C", "H", "W"), _batch_norm_workload, batch_norm_reference, batch_norm_numpy),
)
