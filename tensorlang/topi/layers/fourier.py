"""Discrete Fourier transforms by their definition: whole signals, and short windows of one (Gabor 1946)."""

from __future__ import annotations

import math

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, as_expr, binary, cast
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import extents
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed, widened


@checked
def dft(re_data: Tensor, im_data: Tensor, inverse: bool = False, name: str = "dft") -> tuple[Tensor, Tensor]:
    """Return real and imaginary parts of the Fourier transform along the last axis, or of the inverse one.

    The inverse is divided by the number of elements. Half precision is added up in float32. DefinitionError for other
    dtypes than floats, and parts of different shapes.

        >>> from tensorlang import te, topi
        >>> [x.round(6).tolist() for x in te.evaluate(topi.dft, [1.0, 2.0], [0.0, 0.0])]
        [[3.0, -1.0], [0.0, 0.0]]
    """
    shape = extents(name, re_data)
    if not shape or shape != extents(name, im_data) or re_data.dtype != im_data.dtype or not _floats(re_data):
        raise DefinitionError(f"{name} wants two parts of one shape, of floats; got {re_data} and {im_data}")
    size = shape[-1]
    turns = _turns(size, dtypes.at_least_float32(re_data.dtype), name)
    sign, share = (1, max(size, 1)) if inverse else (-1, 1)

    def part(real: bool) -> Tensor:
        k = te.reduce_axis((0, size), "k")

        def element(*i: Expr) -> Expr:
            at = binary("floormod", cast(i[-1], "int64") * k.var, max(size, 1))
            cosine, sine = turns(0, at), turns(1, at) * sign
            a, b = widened(re_data(*i[:-1], k)), widened(im_data(*i[:-1], k))
            return te.sum(a * cosine - b * sine if real else a * sine + b * cosine, axis=k)

        total = computed(shape, element, f"{name}_{'re' if real else 'im'}_sum")
        return computed(shape, lambda *i: cast(total(*i) / share, re_data.dtype), f"{name}_{'re' if real else 'im'}")

    return part(True), part(False)


@checked
def stft(
    data: Tensor,
    n_fft: int,
    hop_length: int,
    win_length: int,
    window: Tensor,
    normalized: bool = False,
    onesided: bool = True,
    output_shape: tuple[int, ...] | None = None,
    name: str = "stft",
) -> Tensor:
    """Return the Fourier transforms of windows of signals [batch, time]: [batch, frequency, window, 2].

    A window begins every `hop_length` elements, as long as `n_fft` elements are left; `win_length` of them are
    multiplied by `window`. There are `n_fft // 2 + 1` frequencies (`onesided`) or `n_fft`, k of them k turns in
    `win_length` elements; the last axis is the real and the imaginary part. `normalized` divides by the root of
    `n_fft`. `output_shape`, which follows, is compared. DefinitionError for sizes that do not fit.

        >>> from tensorlang import te, topi
        >>> topi.stft(te.placeholder((2, 20)), 8, 4, 8, te.placeholder((8,))).shape
        (2, 5, 4, 2)
    """
    shape = extents(name, data)
    fits = len(shape) == 2 and extents(name, window) == (win_length,) and window.dtype == data.dtype and _floats(data)
    if not fits or not 0 < win_length <= n_fft or hop_length < 1 or n_fft > shape[1]:
        raise DefinitionError(
            f"{name} wants signals [batch, time] of floats, a window of win_length, at most n_fft, elements of one "
            f"dtype, and hops of at least 1; got {data}, {window}, n_fft {n_fft}, win_length {win_length}"
        )
    frequencies, count = n_fft // 2 + 1 if onesided else n_fft, (shape[1] - n_fft) // hop_length + 1
    made = (shape[0], frequencies, count, 2)
    if output_shape is not None and tuple(output_shape) != made:
        raise DefinitionError(f"{name}: the output shape is {made}, got {output_shape}")
    turns = _turns(win_length, dtypes.at_least_float32(data.dtype), name)
    share, k = math.sqrt(n_fft) if normalized else 1.0, te.reduce_axis((0, win_length), "k")

    def element(b: Expr, frequency: Expr, number: Expr, part: Expr) -> Expr:
        at = binary("floormod", cast(frequency, "int64") * k.var, win_length)
        turned = te.select(binary("eq", part, as_expr(0)), turns(0, at), -turns(1, at))
        return te.sum(widened(data(b, number * hop_length + k)) * widened(window(k)) * turned, axis=k)

    total = computed(made, element, f"{name}_sum")
    return computed(made, lambda *i: cast(total(*i) / share, data.dtype), name)


def _floats(x: Tensor) -> bool:
    return dtypes.info(x.dtype).is_float


def _turns(size: int, wide: str, name: str) -> Tensor:
    """Cosines and sines of the fractions of a turn, [2, size]: places in a turn are exact, whatever the signal."""

    def element(part: Expr, k: Expr) -> Expr:
        angle = te.cast(k, wide) * te.const(2 * math.pi / max(size, 1), wide)
        return te.select(binary("eq", part, as_expr(0)), te.cos(angle), te.sin(angle))

    return computed((2, size), element, f"{name}_turns")
