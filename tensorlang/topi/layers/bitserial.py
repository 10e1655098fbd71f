"""Products and convolutions of numbers of a few bits, bit by bit: words of bits are combined and counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import at, extents, new_place, normalized
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed, replaced
from tensorlang.topi.windows import Padding, Pair, windows

_PACKED = ("uint8", "uint16", "uint32", "uint64")


@checked
def bitpack(
    data: Tensor, bits: int, pack_axis: int, bit_axis: int, pack_type: str, name: str = "QuantizeInput"
) -> Tensor:
    """Return the low `bits` of integers in words of `pack_type`: neighbours along `pack_axis` share a word of each bit.

    The first of them is the highest bit of a word. The axis of bits is new, at `bit_axis` of the result, the lowest bit
    first. DefinitionError where words are not full, and for other dtypes.

        >>> from tensorlang import te, topi
        >>> topi.nn.bitpack(te.placeholder((2, 64, 5), "uint8"), 2, 1, 2, "uint32").shape
        (2, 2, 2, 5)
    """
    where, place = normalized(name, data, pack_axis), new_place(name, data, bit_axis)
    shape, known = extents(name, data), pack_type in _PACKED and dtypes.info(data.dtype).is_integer
    width = dtypes.info(pack_type).bits if known else 1
    if not known or not 1 <= bits <= dtypes.info(data.dtype).bits or shape[where] % width:
        wanted = f"integers of {bits} bits, a multiple of {width} along axis {where}, and words of {_PACKED}"
        raise DefinitionError(f"{name} wants {wanted}; got {data} and {pack_type!r}")
    packed = [n // width if d == where else n for d, n in enumerate(shape)]

    def word(*i: Expr) -> Expr:
        bit, rest = i[place], [*i[:place], *i[place + 1 :]]
        made: Expr = te.const(0, pack_type)
        for k in range(width):
            value = data(*replaced(rest, where, rest[where] * width + k))
            one = cast(value >> cast(bit, data.dtype), pack_type) & te.const(1, pack_type)
            made = made | (one << te.const(width - 1 - k, pack_type))
        return made

    return computed(at(packed, place, bits), word, name)


@checked
def bitserial_dense(
    data: Tensor,
    weight: Tensor,
    data_bits: int,
    weight_bits: int,
    pack_dtype: str = "uint32",
    out_dtype: str = "int16",
    unipolar: bool = True,
    name: str = "bitserial_dense",
) -> Tensor:
    """Return `data[m, k] @ weight[n, k].T` of integers of so many bits.

    A bit of a weight counts as it is, or with `unipolar` 1 for 1 and -1 for 0. Weights may be packed already, by
    `bitpack(weight, weight_bits, 1, 1, pack_dtype)`. DefinitionError where shapes do not fit.

        >>> from tensorlang import te, topi
        >>> te.evaluate(
        ...     topi.bitserial_dense, [[1, 2, 3, 0] * 8], [[1] * 32], data_bits=2, weight_bits=1, unipolar=False
        ... )
        array([[48]], dtype=int16)
    """
    if data.ndim != 2 or weight.ndim not in (2, 3):
        raise DefinitionError(f"{name} wants data [m, k] and weights [n, k], or packed ones; got {data} and {weight}")
    rows = bitpack(data, data_bits, 1, 1, pack_dtype, f"{name}_data")
    columns = weight if weight.ndim == 3 else bitpack(weight, weight_bits, 1, 1, pack_dtype, f"{name}_weight")
    (m, bits, words), (n, of_weight, own) = extents(name, rows), extents(name, columns)
    if own != words or columns.dtype != pack_dtype:
        raise DefinitionError(f"{name}: {weight} does not fit {data}")
    k, a, b = (te.reduce_axis((0, e), w) for e, w in ((words, "k"), (bits, "db"), (of_weight, "wb")))

    def element(i: Expr, j: Expr) -> Expr:
        return te.sum(_counted(rows(i, a, k), columns(j, b, k), a.var + b.var, out_dtype, unipolar), axis=[k, a, b])

    return computed((m, n), element, name)


@checked
def bitserial_conv2d_nchw(
    data: Tensor,
    kernel: Tensor,
    stride: Pair,
    padding: Padding,
    activation_bits: int,
    weight_bits: int,
    pack_dtype: str = "uint32",
    out_dtype: str = "int16",
    unipolar: bool = True,
    name: str = "bitserial_conv2d_nchw",
) -> Tensor:
    """Return the convolution of NCHW data with OIHW weights, integers of so many bits; bits of padding are 0.

    Bits of weights count as in bitserial_dense. Weights may be packed already, by `bitpack(kernel, weight_bits, 1, 4,
    pack_dtype)`. DefinitionError where shapes do not fit.

        >>> from tensorlang import te, topi
        >>> data, kernel = te.placeholder((1, 32, 6, 6), "uint32"), te.placeholder((8, 32, 3, 3), "uint32")
        >>> topi.bitserial_conv2d_nchw(data, kernel, 1, 0, activation_bits=2, weight_bits=1).shape
        (1, 8, 4, 4)
    """
    _ranks(name, data, kernel)
    images = bitpack(data, activation_bits, 1, 2, pack_dtype, f"{name}_data")
    weight = kernel if kernel.ndim == 5 else bitpack(kernel, weight_bits, 1, 4, pack_dtype, f"{name}_weight")
    n, words, bits, *pixels = extents(name, images)
    outputs, inputs, *size, of_weight = extents(name, weight)
    _fits(name, data, kernel, inputs == words and weight.dtype == pack_dtype)

    def read(b: Expr, word: Expr, bit: Expr, y: Expr, x: Expr) -> Expr:
        return images(b, word, bit, y, x)

    def weigh(f: Expr, word: Expr, y: Expr, x: Expr, bit: Expr) -> Expr:
        return weight(f, word, y, x, bit)

    element, counts = _convolved(
        read, weigh, words, bits, of_weight, pixels, size, stride, padding, out_dtype, unipolar
    )
    return computed((n, outputs, *counts), element, name)


@checked
def bitserial_conv2d_nhwc(
    data: Tensor,
    kernel: Tensor,
    stride: Pair,
    padding: Padding,
    activation_bits: int,
    weight_bits: int,
    pack_dtype: str = "uint32",
    out_dtype: str = "int16",
    unipolar: bool = True,
    name: str = "bitserial_conv2d_nhwc",
) -> Tensor:
    """Return `bitserial_conv2d_nchw` of NHWC data with HWIO weights.

    Weights may be packed already, by `bitpack(kernel, weight_bits, 2, 4, pack_dtype)`.

        >>> from tensorlang import te, topi
        >>> data, kernel = te.placeholder((1, 6, 6, 32), "uint32"), te.placeholder((3, 3, 32, 8), "uint32")
        >>> topi.bitserial_conv2d_nhwc(data, kernel, 1, 0, activation_bits=2, weight_bits=1).shape
        (1, 4, 4, 8)
    """
    _ranks(name, data, kernel)
    images = bitpack(data, activation_bits, 3, 4, pack_dtype, f"{name}_data")
    weight = kernel if kernel.ndim == 5 else bitpack(kernel, weight_bits, 2, 4, pack_dtype, f"{name}_weight")
    n, *pixels, words, bits = extents(name, images)
    *size, inputs, outputs, of_weight = extents(name, weight)
    _fits(name, data, kernel, inputs == words and weight.dtype == pack_dtype)

    def read(b: Expr, word: Expr, bit: Expr, y: Expr, x: Expr) -> Expr:
        return images(b, y, x, word, bit)

    def weigh(f: Expr, word: Expr, y: Expr, x: Expr, bit: Expr) -> Expr:
        return weight(y, x, word, f, bit)

    element, counts = _convolved(
        read, weigh, words, bits, of_weight, pixels, size, stride, padding, out_dtype, unipolar
    )
    return computed((n, *counts, outputs), lambda b, y, x, f: element(b, f, y, x), name)


@checked
def binarize_pack(data: Tensor, axis: int | None = None, name: str = "binarize_pack") -> Tensor:
    """Return the signs of `data`, 1 for what is not negative, as bits: 32 neighbours along an axis are one uint32.

    The first is the highest bit; no axis is the last one. DefinitionError for extents that 32 does not divide.

        >>> import numpy as np
        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.nn.binarize_pack, [[-1.0] * 30 + [1.0, -1.0]])
        array([[2]], dtype=uint32)
    """
    where = normalized(name, data, -1 if axis is None else axis)
    shape = extents(name, data)
    if shape[where] % 32:
        raise DefinitionError(f"{name} wants a multiple of 32 along axis {where}, got {data}")

    def element(*i: Expr) -> Expr:
        words = [
            cast(data(*replaced(i, where, i[where] * 32 + k)) >= 0, "uint32") << te.const(31 - k, "uint32")
            for k in range(32)
        ]
        return reduce(lambda a, b: a | b, words)

    return computed(replaced(data.shape, where, shape[where] // 32), element, name)


@checked
def binary_dense(data: Tensor, weight: Tensor, name: str = "binary_dense") -> Tensor:
    """Return `data[m, k] @ weight[n, k].T` of signs, as `binarize_pack` makes them of both, in float32.

    DefinitionError for other dtypes, and rows that differ in length.

        >>> import numpy as np
        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.nn.binary_dense, np.array([[3]], np.uint32), np.array([[1]], np.uint32)).tolist()
        [[30.0]]
    """
    if data.ndim != 2 or weight.ndim != 2 or {data.dtype, weight.dtype} != {"uint32"}:
        raise DefinitionError(f"{name} wants two matrices of uint32, got {data} and {weight}")
    (m, words), (n, own) = extents(name, data), extents(name, weight)
    if words != own:
        raise DefinitionError(f"{name}: {weight} does not fit {data}")
    k = te.reduce_axis((0, words), "k")
    differ = computed(
        (m, n),
        lambda i, j: te.sum(cast(te.popcount(data(i, k) ^ weight(j, k)), "int32"), axis=k),
        f"{name}_differing",
    )
    return computed((m, n), lambda i, j: cast(32 * words - 2 * differ(i, j), "float32"), name)


def _ranks(name: str, data: Tensor, kernel: Tensor) -> None:
    if data.ndim != 4 or kernel.ndim not in (4, 5):
        raise DefinitionError(f"{name} wants data and weights of 4 dimensions, or packed ones; got {data}, {kernel}")


def _fits(name: str, data: Tensor, kernel: Tensor, fits: bool) -> None:
    if not fits:
        raise DefinitionError(f"{name}: {kernel} does not fit {data}")


def _counted(a: Expr, b: Expr, shift: Expr, dtype: str, unipolar: bool) -> Expr:
    """What a word of bits of data and one of weights add to a sum, by the places of their bits."""
    count = cast(te.popcount(a & b), dtype)
    if unipolar:
        count = count - cast(te.popcount(a & ~b), dtype)
    return count << cast(shift, dtype)


def _convolved(
    read: Callable[..., Expr],
    weigh: Callable[..., Expr],
    words: int,
    bits: int,
    of_weight: int,
    pixels: Sequence[int],
    size: Sequence[int],
    stride: Pair,
    padding: Padding,
    dtype: str,
    unipolar: bool,
) -> tuple[Callable[[Expr, Expr, Expr, Expr], Expr], list[int]]:
    """The element of a convolution by image, channel and place, and how many rows and columns there are."""
    slides = windows(size, stride, padding, 1)
    counts = [max(w.number(n), 0) for n, w in zip(pixels, slides, strict=True)]
    axes = [
        te.reduce_axis((0, n), word)
        for n, word in ((words, "rc"), (size[0], "ry"), (size[1], "rx"), (of_weight, "b2"), (bits, "b1"))
    ]
    rc, ry, rx, b2, b1 = (axis.var for axis in axes)

    def element(b: Expr, f: Expr, y: Expr, x: Expr) -> Expr:
        places = [w.at(place, k) for w, place, k in zip(slides, (y, x), (ry, rx), strict=True)]
        tests = [t for p, n in zip(places, pixels, strict=True) for t in (binary("ge", p, 0), binary("lt", p, n))]
        part = _counted(read(b, rc, b1, *places), weigh(f, rc, ry, rx, b2), b1 + b2, dtype, unipolar)
        return te.sum(part, axis=axes, where=te.all(*tests))

    return element, counts
