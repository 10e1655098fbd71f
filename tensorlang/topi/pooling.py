"""Pooling: the largest or the mean element of windows that slide over each channel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, as_expr, binary, cast
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi import layouts, reduction
from tensorlang.topi.checked import checked
from tensorlang.topi.layouts import Blocked, Layout, Place
from tensorlang.topi.operator import Operator
from tensorlang.topi.windows import OUTPUT_AXES, Padding, Pair, Window, pair, sliding, windows

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Pool:
    """What windows are made into: their largest elements, or their means, which are summed in `dtype`."""

    name: str
    is_mean: bool
    dtype: str
    made: str

    @classmethod
    def of(cls, name: str, data: Tensor, pool_type: str) -> Pool:
        """The pool of a word; DefinitionError for other words, and for means of integers."""
        if pool_type not in ("max", "avg"):
            raise DefinitionError(f"pool_type is max or avg, got {pool_type!r}")
        if pool_type == "avg" and not dtypes.info(data.dtype).is_float:
            raise DefinitionError(f"means want floats, got {data.dtype}; topi.cast the tensor first")
        dtype = dtypes.at_least_float32(data.dtype) if pool_type == "avg" else data.dtype
        return cls(name, pool_type == "avg", dtype, data.dtype)

    def over(
        self,
        shape: Sequence[Expr | int],
        inner: Sequence[Axis],
        element: Callable[..., tuple[Expr, Expr | None]],
        count: Callable[..., Expr],
        names: Sequence[str] | None = None,
    ) -> Tensor:
        """The pooled tensor: `element` gives an element of a window and the condition under which it counts."""
        combine = te.sum if self.is_mean else te.max

        def combined(*index: Expr) -> Expr:
            value, where = element(*index)
            return combine(value, axis=inner, where=where)

        stage = f"{self.name}_sum" if self.is_mean else self.name
        made: Tensor = te.compute(shape, combined, name=stage, varargs_names=names)
        if not self.is_mean:
            return made

        def mean(*index: Expr) -> Expr:
            return cast(made(*index) / cast(count(*index), self.dtype), self.made)

        result: Tensor = te.compute(shape, mean, name=self.name, varargs_names=names)
        return result


@checked
def pool2d(
    data: Tensor,
    kernel: Pair,
    stride: Pair = 1,
    dilation: Pair = 1,
    padding: Padding = 0,
    pool_type: str = "max",
    ceil_mode: bool = False,
    layout: str = "NCHW",
    count_include_pad: bool = True,
    name: str = "pool2d",
) -> Tensor:
    """Return the maximum (`max`) or the mean (`avg`) of windows that slide over each channel.

    `layout`: NCHW, NHWC or in blocks such as NCHW16c. `ceil_mode`: a last window may reach beyond the padded end. The
    mean is over all places of the window, or over those in the image where `count_include_pad` is false.
    DefinitionError for other words, and for means of integers.

        >>> from tensorlang import te, topi
        >>> topi.pool2d(te.placeholder((1, 8, 9, 9)), [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], "max").shape
        (1, 8, 5, 5)
    """
    images, (down, right) = _images(data, layout), windows(pair("kernel", kernel), stride, padding, dilation)
    pool = Pool.of(name, data, pool_type)
    slide = sliding(data, images, down, right, ceil_mode)
    start = _least(pool.dtype) if pool_type == "max" else cast(0, pool.dtype)
    beside = start if images.letters[-1] == "W" else None

    def element(*index: Expr) -> tuple[Expr, Expr | None]:
        at: dict[str, Place] = dict(zip(images.letters, index, strict=True))
        if "C" in images.blocks:
            at["C"] = Blocked(index[images.letters.index("C")], index[images.letters.index("c")], images.blocks["C"])
        return slide.element(at, pool.dtype, beside)

    high, wide = images.extent(data, "H"), images.extent(data, "W")

    def count(*index: Expr) -> Expr:
        if count_include_pad:
            return as_expr(down.size * right.size)
        at = dict(zip(images.letters, index, strict=True))
        return te.max(inside_window(down, at["H"], high) * inside_window(right, at["W"], wide), 1)

    shape = [{"H": slide.rows, "W": slide.columns}.get(k, n) for k, n in zip(images.letters, data.shape, strict=True)]
    return pool.over(shape, [slide.y, slide.x], element, count, [OUTPUT_AXES[letter] for letter in images.letters])


@checked
def max_pool2d(
    data: Tensor,
    kernel: Pair,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
    layout: str = "NCHW",
) -> Tensor:
    """Return `pool2d` of maxima.

    >>> import numpy as np
    >>> from tensorlang import te, topi
    >>> image = np.arange(16.0).reshape(1, 1, 4, 4)
    >>> te.evaluate(topi.max_pool2d, image, kernel=2, stride=2).tolist()
    [[[[5.0, 7.0], [13.0, 15.0]]]]
    """
    return pool2d(data, kernel, stride, dilation, padding, "max", ceil_mode, layout, name="max_pool2d")


@checked
def avg_pool2d(
    data: Tensor,
    kernel: Pair,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
    layout: str = "NCHW",
    count_include_pad: bool = True,
) -> Tensor:
    """Return `pool2d` of means.

    >>> import numpy as np
    >>> from tensorlang import te, topi
    >>> image = np.arange(16.0).reshape(1, 1, 4, 4)
    >>> te.evaluate(topi.avg_pool2d, image, kernel=2, stride=2).tolist()
    [[[[2.5, 4.5], [10.5, 12.5]]]]
    """
    return pool2d(
        data, kernel, stride, dilation, padding, "avg", ceil_mode, layout, count_include_pad, name="avg_pool2d"
    )


@checked
def global_pool(data: Tensor, pool_type: str, layout: str = "NCHW") -> Tensor:
    """Return the maximum or the mean of each channel over all pixels, with height and width of 1.

    >>> import numpy as np
    >>> from tensorlang import te, topi
    >>> image = np.arange(16.0).reshape(1, 1, 4, 4)
    >>> te.evaluate(topi.global_pool, image, pool_type="avg").tolist()
    [[[[7.5]]]]
    """
    images = _images(data, layout)
    Pool.of("global_pool", data, pool_type)
    along = [images.letters.index(letter) for letter in "HW"]
    if pool_type == "max":
        return reduction.max(data, along, keepdims=True, name="global_pool")
    return reduction.mean(data, along, keepdims=True, name="global_pool")


def _images(data: Tensor, text: str) -> Layout:
    images = layouts.layout(text, "NCHW", ("C",))
    if data.ndim != len(images.letters):
        raise DefinitionError(f"pooling wants {text}, which has {len(images.letters)} dimensions; got {data}")
    return images


def _least(dtype: str) -> Expr:
    """What every element is at least."""
    return -te.infinity(dtype) if dtypes.limits(dtype)[0] == -np.inf else te.min_value(dtype)


def inside_window(window: Window, at: Expr, extent: Expr) -> Expr:
    """How many elements of a window are no padding."""
    first = window.at(at, 0)
    passed = binary("floordiv", te.max(-first, 0) + (window.dilation - 1), window.dilation)
    before_end = binary("floordiv", te.max(extent - first, 0) + (window.dilation - 1), window.dilation)
    return te.max(te.min(before_end, window.size) - passed, 0)


def pool_reference(
    data: Array,
    kernel: Pair,
    stride: Pair = 1,
    dilation: Pair = 1,
    padding: Padding = 0,
    pool_type: str = "max",
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Array:
    """Pooling of NCHW data, means in float64."""
    down, right = windows(pair("kernel", kernel), stride, padding, dilation)
    counts = [
        extent_of(w.count(as_expr(n), ceil_mode)) or 0 for w, n in zip((down, right), data.shape[2:], strict=True)
    ]
    is_float = dtypes.info(dtypes.canonical(data.dtype)).is_float
    a = data.astype(np.float64) if is_float else data
    lowest = -np.inf if is_float else np.iinfo(data.dtype).min
    result = np.full((*data.shape[:2], *counts), lowest if pool_type == "max" else 0, a.dtype)
    inside = np.zeros(tuple(counts))
    for y in range(down.size):
        for x in range(right.size):
            rows = np.arange(counts[0]) * down.stride + y * down.dilation - down.before
            columns = np.arange(counts[1]) * right.stride + x * right.dilation - right.before
            r, c = (rows >= 0) & (rows < data.shape[2]), (columns >= 0) & (columns < data.shape[3])
            at = np.ix_(*(np.arange(n) for n in data.shape[:2]), np.flatnonzero(r), np.flatnonzero(c))
            seen = a[:, :, rows[r]][:, :, :, columns[c]]
            result[at] = np.maximum(result[at], seen) if pool_type == "max" else result[at] + seen
            inside += r[:, None] & c[None]
    if pool_type == "avg":
        result /= down.size * right.size if count_include_pad else np.maximum(inside, 1)
    return result.astype(data.dtype)


def _workload(
    n: int,
    c: int,
    h: int,
    w: int,
    dtype: str = "float32",
    kernel: Pair = 3,
    stride: Pair = 2,
    padding: Padding = 1,
) -> list[Tensor]:
    """Windows of 3 * 3 at every other pixel, as after the first convolution of a residual network."""
    data = te.placeholder((n, c, h, w), dtype, "data")
    return [data, max_pool2d(data, kernel, stride, padding=padding)]


def _workload_reference(data: Array, kernel: Pair = 3, stride: Pair = 2, padding: Padding = 1) -> list[Array]:
    return [pool_reference(data, kernel, stride, 1, padding)]


def pool_numpy(data: Array, out: Array, kernel: Pair = 3, stride: Pair = 2, padding: Padding = 1) -> None:
    """What a NumPy user writes; the competitor of the tables."""
    down, right = windows(pair("kernel", kernel), stride, padding, 1)
    lowest = -np.inf if np.issubdtype(data.dtype, np.floating) else np.iinfo(data.dtype).min
    around = ((0, 0), (0, 0), (down.before, down.after), (right.before, right.after))
    padded = np.pad(data, around, constant_values=lowest)
    seen = np.lib.stride_tricks.sliding_window_view(padded, (down.size, right.size), axis=(2, 3))
    seen[:, :, :: down.stride, :: right.stride].max((4, 5), out=out)


OPERATORS = (
    Operator(
        "max_pool2d",
        ("N", "C", "H", "W"),
        _workload,
        _workload_reference,
        pool_numpy,
        {"kernel": 3, "stride": 2, "padding": 1},
    ),
)
