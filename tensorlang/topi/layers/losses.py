"""Losses."""

from __future__ import annotations

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import extents
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed


@checked
def nll_loss(
    predictions: Tensor,
    targets: Tensor,
    weights: Tensor,
    reduction: str = "mean",
    ignore_index: int = -100,
    name: str = "nll_loss",
) -> Tensor:
    """Return the negative log-likelihood loss `-predictions[n, targets[n, ...], ...] * weights[targets]`.

    `predictions` [n, classes, ...] of floats (or [classes] for one), `targets` [n, ...] of integers, `weights`
    [classes]. Targets of `ignore_index` count for nothing; another one that is no class is an error when the kernel
    runs. `reduction`: none for a loss of each, sum, or mean, by the sum of weights. DefinitionError for other shapes,
    dtypes and words.

        >>> from tensorlang import te, topi
        >>> x, at, w = te.placeholder((4, 10)), te.placeholder((4,), "int32"), te.placeholder((10,))
        >>> topi.nn.nll_loss(x, at, w, "none").shape
        (4,)
    """
    shape, single = extents(name, predictions), predictions.ndim == 1
    rest = shape[:1] + shape[2:] if not single else ()
    classes = shape[-1] if single else shape[1] if len(shape) > 1 else -1
    dtype = predictions.dtype
    kinds = dtypes.info(dtype).is_float and dtypes.info(targets.dtype).is_integer and weights.dtype == dtype
    if not kinds or extents(name, targets) != rest or extents(name, weights) != (classes,):
        wanted = "float predictions [n, classes, ...], integers [n, ...] and a weight for each class"
        raise DefinitionError(f"{name} wants {wanted}; got {predictions}, {targets}, {weights}")
    if reduction not in ("none", "mean", "sum"):
        raise DefinitionError(f"the reduction of {name} is none, mean or sum, got {reduction!r}")
    wide, zero = dtypes.at_least_float32(dtype), te.const(0, dtypes.at_least_float32(dtype))

    def counted(value: Expr, i: tuple[Expr, ...]) -> Expr:
        return te.if_then_else(binary("ne", targets(*i), te.const(ignore_index, "int64")), value, zero)

    def loss(*i: Expr) -> Expr:
        at = targets(*i)
        value = predictions(at) if single else predictions(i[0], at, *i[1:])
        return counted(-cast(value, wide) * cast(weights(at), wide), i)

    if reduction == "none":
        return computed(rest, lambda *i: cast(loss(*i), dtype), name)
    axes = [te.reduce_axis((0, n), f"k{d}") for d, n in enumerate(rest)]
    at = tuple(axis.var for axis in axes)

    def total(value: Expr, word: str) -> Tensor:
        return computed((), lambda: te.sum(value, axis=axes) if axes else value, f"{name}_{word}")

    losses = total(loss(*at), "total")
    if reduction == "sum":
        return computed((), lambda: cast(losses(), dtype), name)
    weight = total(counted(cast(weights(targets(*at)), wide), at), "weight")
    return computed((), lambda: cast(losses() / weight(), dtype), name)
