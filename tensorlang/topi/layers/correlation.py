"""How alike two images are at displaced places (Dosovitskiy et al. 2015)."""

from __future__ import annotations

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, binary
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import extents
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed
from tensorlang.topi.windows import Padding, around


@checked
def correlation_nchw(
    data1: Tensor,
    data2: Tensor,
    kernel_size: int,
    max_displacement: int,
    stride1: int,
    stride2: int,
    padding: Padding,
    is_multiply: bool,
    name: str = "correlation_nchw",
) -> Tensor:
    """Return the mean products of windows of `data1` with displaced ones of `data2`: [n, displacements, rows, columns].

    Both are NCHW; windows of `kernel_size`, which is odd, are `stride1` apart, and displaced by multiples of `stride2`
    up to `max_displacement`, down and to the right. Without `is_multiply` means of absolute differences. The padding is
    0. DefinitionError for other shapes and numbers.

        >>> from tensorlang import te, topi
        >>> x, y = te.placeholder((1, 3, 10, 10)), te.placeholder((1, 3, 10, 10))
        >>> topi.nn.correlation_nchw(x, y, 1, 4, 1, 2, 4, True).shape
        (1, 25, 10, 10)
    """
    numbers = kernel_size > 0 and kernel_size % 2 and min(stride1, stride2) > 0 and max_displacement >= 0
    fits = data1.ndim == 4 and data1.dtype == data2.dtype and dtypes.info(data1.dtype).is_float
    if not numbers or not fits or extents(name, data1) != extents(name, data2):
        raise DefinitionError(
            f"{name} wants two NCHW tensors of floats of one shape, an odd kernel_size, strides of at least 1; got "
            f"{data1}, {data2}, {kernel_size}, {max_displacement}, {stride1} and {stride2}"
        )
    n, channels, high, wide = extents(name, data1)
    (top, left), (bottom, right) = around(name, padding, (0, 0))
    border, radius = max_displacement + kernel_size // 2, max_displacement // stride2
    across = 2 * radius + 1
    counts = [
        max((extent - 2 * border + stride1 - 1) // stride1, 0) for extent in (high + top + bottom, wide + left + right)
    ]
    rc, ry, rx = (te.reduce_axis((0, k), w) for k, w in ((channels, "rc"), (kernel_size, "ry"), (kernel_size, "rx")))
    dtype = dtypes.at_least_float32(data1.dtype)

    def read(data: Tensor, b: Expr, y: Expr, x: Expr) -> Expr:
        inside = te.all(binary("ge", y, 0), binary("lt", y, high), binary("ge", x, 0), binary("lt", x, wide))
        return te.if_then_else(inside, te.cast(data(b, rc, y, x), dtype), te.const(0, dtype))

    def element(b: Expr, q: Expr, i: Expr, j: Expr) -> Expr:
        y = i * stride1 + (max_displacement - top) + ry
        x = j * stride1 + (max_displacement - left) + rx
        down = (binary("floordiv", q, across) - radius) * stride2
        beside = (binary("floormod", q, across) - radius) * stride2
        a, b2 = read(data1, b, y, x), read(data2, b, y + down, x + beside)
        return te.sum(a * b2 if is_multiply else te.abs(a - b2), axis=[rc, ry, rx])

    total = computed((n, across * across, *counts), element, f"{name}_sum")
    size = max(kernel_size * kernel_size * channels, 1)
    return computed(total.shape, lambda *i: te.cast(total(*i) / size, data1.dtype), name)
