"""Convolutions of bytes and of bfloat16, summed in 32 bits by the dot instructions of the machine.

Data are copied once into rows [n, group, y, x * c + channel], with the padding, in the dtype that is multiplied; a row
of a window is one run of such a row. Weights are laid out ahead (`narrow_filters`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorlang import te
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, as_expr, cast, same
from tensorlang.ir.simplify import simplify
from tensorlang.schedule.rewrites.narrow_product import SIGN, SUMS, terms_of_word
from tensorlang.schedules.cpu.matrix_tiles import Sums, tiles_for
from tensorlang.schedules.cpu.narrow_product import operand_dtype
from tensorlang.target import parse
from tensorlang.target.spec import Target
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import checked
from tensorlang.topi.conv2d import conv2d_reference
from tensorlang.topi.layouts import Layout, layout
from tensorlang.topi.narrow_filters import (
    Runs,
    number_of,
    pack_narrow_conv2d,
    runs_of,
    window_offsets,
)
from tensorlang.topi.operator import Operator
from tensorlang.topi.quantized import pairs, sign_shift, weight_dtype
from tensorlang.topi.requantize import requantize, requantize_reference
from tensorlang.topi.windows import OUTPUT_AXES, Padding, Pair, Window, pair, windows

Array = npt.NDArray[Any]
_COPIES = 5
"""Columns of a window for which tiles may be copied, whose pixels at the border are left out of some."""
Read: TypeAlias = Callable[[Expr, Expr, Expr, Expr, Expr], Expr]
"""An element of the data as they are multiplied, by image, group, row, column, and term of the run from there on."""


@dataclass(frozen=True, slots=True)
class _Problem:
    """A convolution of known sizes. `operand`: the dtype in which data are multiplied; `shift`: what zero is then.

    `cut`: windows end with the image, where padding is zeros.
    """

    data: Tensor
    images: Layout
    packed: Tensor
    units: int
    down: Window
    right: Window
    operand: str
    shift: int
    name: str
    cut: bool = False

    def extent(self, letter: str) -> int:
        """The extent of the data along a letter."""
        return number_of(self.images.extent(self.data, letter), self.data)

    @property
    def groups(self) -> int:
        """Parts of the channels, each convolved by itself."""
        return number_of(self.packed.shape[0], self.packed)

    @property
    def depth(self) -> int:
        """Input channels of a group."""
        return self.extent("C") // self.groups

    @property
    def image(self) -> tuple[int, int]:
        """Rows and columns of the output."""
        down, right = (w.count(as_expr(self.extent(x))) for w, x in ((self.down, "H"), (self.right, "W")))
        return number_of(down, self.data), number_of(right, self.data)

    @property
    def sums(self) -> Sums:
        """The sizes of the sums over panels."""
        high, columns, words, width = (number_of(e, self.packed) for e in self.packed.shape[2:6])
        return Sums(*self.image, (high, columns), words, width)

    @property
    def sums_dtype(self) -> str:
        """The dtype of the sums."""
        return SUMS[self.data.dtype, self.packed.dtype]

    @property
    def step(self) -> int:
        """Columns from one copied to the next: those that no window reads are left out."""
        return self.right.stride if self.right.size == 1 else 1

    @property
    def group(self) -> int:
        """The terms of a word."""
        return terms_of_word(self.packed.dtype)

    @property
    def is_direct(self) -> bool:
        """Whether data can be multiplied as they are: single pixels of whole words, in their own dtype."""
        pixels = self.down.size == self.right.size == self.groups == 1 and self.images.letters == "NHWC"
        unpadded = not any((self.down.before, self.down.after, self.right.before, self.right.after))
        return pixels and unpadded and self.operand == self.data.dtype and _runs(self).run % self.group == 0


@checked
def conv2d_narrow(
    data: Tensor,
    packed: Tensor,
    channels: int,
    kernel: Pair,
    strides: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    data_layout: str = "NCHW",
    bias: Tensor | None = None,
    offsets: Tensor | None = None,
    zero_point: int = 0,
    weight_zero_point: int | Tensor = 0,
    name: str = "conv2d",
    target: str | Target | None = None,
) -> Tensor:
    """Return the convolution of `data - zero_point` with `weight - weight_zero_point`, plus bias, in 32 bits.

    `packed`: the weights laid out by `pack_narrow_conv2d`, for the same groups and dilation; `channels` of the output
    and the size of the `kernel` say where they end. `data_layout`: NCHW or NHWC, which the output has too. Padding has
    the value of the zero point. `offsets`: made ahead by `narrow_conv2d_offsets`, for the dtype and zero point of data
    and the same target. `weight_zero_point`: a number, or one for each channel. DefinitionError when shapes or dtypes
    do not fit.

        >>> from tensorlang import te, topi
        >>> packed = topi.pack_narrow_conv2d(te.placeholder((32, 16, 3, 3), "int8"))
        >>> topi.conv2d_narrow(te.placeholder((1, 16, 8, 8), "uint8"), packed, 32, 3).shape
        (1, 32, 6, 6)
    """
    images, machine = layout(data_layout, "NCHW"), parse(target)
    if data.ndim != 4 or packed.ndim != 7 or (data.dtype, packed.dtype) not in SUMS:
        wanted = f"{data_layout} and packed[groups, o / w, kh, kw, k / g, w, g] of pack_narrow_conv2d"
        raise DefinitionError(f"{name} wants {wanted}, of {pairs()}; got {data} and {packed}")
    down, right = windows(pair("kernel", kernel), strides, padding, dilation)
    units = channels // number_of(packed.shape[0], packed)
    p = _Problem(data, images, packed, units, down, right, data.dtype, 0, name)
    _check(p, channels, bias, offsets, weight_zero_point)
    operand = operand_dtype(data.dtype, packed.dtype, machine, None if offsets is not None else p.sums) or data.dtype
    shift = sign_shift(data.dtype, operand, zero_point, name)
    whole = shift or tiles_for(p.sums, operand, packed.dtype, machine) is not None
    p = replace(p, operand=operand, shift=shift, cut=not whole)
    read = _direct(p) if p.is_direct else _rows(p)
    if shift and offsets is None:
        offsets = window_offsets(packed, operand, shift, f"{name}_offsets")
    has_zero = isinstance(weight_zero_point, Tensor) or weight_zero_point != 0
    total = _data_sums(p, read) if has_zero else None
    return _output(p, _sums(p, read), offsets, bias, total, weight_zero_point)


def _direct(p: _Problem) -> Read:
    return lambda n, g, y, x, k: p.data[n, y, x * p.step, k]


def _rows(p: _Problem) -> Read:
    """A copy of data as they are multiplied: pixels side by side, with channels of a group in each, and padding."""
    runs, (high, wide) = _runs(p), p.image
    tall = (high - 1) * p.down.stride + p.down.reach
    reach = (wide - 1) * p.right.stride // p.step + p.right.reach
    slack = max(0, runs.words * p.group - runs.run)
    h, w, depth = p.extent("H"), p.extent("W"), p.depth

    def element(n: Expr, g: Expr, y: Expr, j: Expr) -> Expr:
        row, column = y - p.down.before, j // depth * p.step - p.right.before
        tests = [row >= 0] * (p.down.before > 0) + [row < h] * (tall - p.down.before > h)
        tests += [column >= 0] * (p.right.before > 0)
        tests += [column < w] * (slack > 0 or (reach - 1) * p.step - p.right.before >= w)
        value: Expr = p.data(*p.images.index({"N": n, "C": g * depth + j % depth, "H": row, "W": column}))
        if p.operand != p.data.dtype:
            value = cast(cast(value, "int32") + SIGN, p.operand)
        return te.if_then_else(te.all(*tests), value, te.const(p.shift, p.operand)) if tests else value

    shape = (p.extent("N"), p.groups, tall, reach * depth + slack)
    made: Tensor = te.compute(shape, element, name=f"{p.name}_rows")
    return lambda n, g, y, x, k: made[n, g, y, x * depth + k]


def _sums(p: _Problem, read: Read) -> Tensor:
    """Sums of whole panels; where columns of padding are cut off, of each pixel of a run by itself."""
    groups, panels, high, columns, words, width, group = p.packed.shape
    pixels = p.right.size if _is_cut_by_pixels(p) else 1
    each = simplify(words // pixels)
    y, x = te.reduce_axis((0, high), "ry"), te.reduce_axis((0, simplify(columns * pixels)), "rx")
    k = te.reduce_axis((0, simplify(each * group)), "rk")

    def element(*index: Expr) -> Expr:
        n, g, panel, yy, xx, lane = index
        row, column = yy * p.down.stride + y * p.down.dilation, xx * (p.right.stride // p.step) + x * p.right.dilation
        run, word = (x, k // group) if pixels == 1 else (0, x * each + k // group)
        factor = p.packed[g, panel, y, run, word, lane, k % group]
        product = cast(read(n, g, row, column, k.var), p.sums_dtype) * cast(factor, p.sums_dtype)
        tests = _inside(p.down, row, p.extent("H")) if p.cut else []
        tests += _inside(p.right, column, p.extent("W")) if pixels > 1 else []
        return te.sum(product, axis=[y, x, k], where=te.all(*tests) if tests else None)

    shape = (p.extent("N"), groups, panels, *p.image, width)
    names = ["nn", "gg", "pp", "yy", "xx", "lane"]
    made: Tensor = te.compute(shape, element, name=f"{p.name}_sums", varargs_names=names)
    return made


def _is_cut_by_pixels(p: _Problem) -> bool:
    """Whether windows of few columns end with the image to the left or to the right, and words hold single pixels."""
    padded = bool(_inside(p.right, as_expr(0), p.extent("W")))
    return p.cut and padded and p.right.dilation == 1 and p.right.size <= _COPIES and p.depth % p.group == 0


def _inside(window: Window, place: Expr, extent: int) -> list[Expr]:
    """What tells that a row or a column of the copy is none of padding; nothing where there is none."""
    reach = (window.number(extent) - 1) * window.stride + window.reach
    after = [place < window.before + extent] * (reach > window.before + extent)
    return ([place >= window.before] * (window.before > 0) + after) * (window.size > 1)


def _data_sums(p: _Problem, read: Read) -> Tensor:
    """Of each window, the sum of data less their zero point: what a zero point of the weights is multiplied by."""
    (high, wide), stride = p.image, p.right.stride // p.step
    tall, reach = (high - 1) * p.down.stride + p.down.reach, (wide - 1) * stride + p.right.reach
    c = te.reduce_axis((0, p.depth), "rc")
    pixels: Tensor = te.compute(
        (p.extent("N"), p.groups, tall, reach),
        lambda n, g, y, x: te.sum(cast(read(n, g, y, x, c.var), "int32") - p.shift, axis=c),
        name=f"{p.name}_pixels",
    )
    y, x = te.reduce_axis((0, p.down.size), "ry"), te.reduce_axis((0, p.right.size), "rx")

    def element(n: Expr, g: Expr, yy: Expr, xx: Expr) -> Expr:
        row = yy * p.down.stride + y * p.down.dilation
        return te.sum(pixels[n, g, row, xx * stride + x * p.right.dilation], axis=[y, x])

    made: Tensor = te.compute((p.extent("N"), p.groups, high, wide), element, name=f"{p.name}_windows")
    return made


def _output(
    p: _Problem,
    sums: Tensor,
    offsets: Tensor | None,
    bias: Tensor | None,
    total: Tensor | None,
    weight_zero_point: int | Tensor,
) -> Tensor:
    """The channels that there are, in the layout of the data, less what zero points have brought in."""
    width, units = p.packed.shape[5], p.units
    extents = {"N": as_expr(p.extent("N")), "C": as_expr(units * p.groups)}
    extents |= {letter: as_expr(extent) for letter, extent in zip("HW", p.image, strict=True)}
    shape = [extents[letter] for letter in p.images.letters]
    names = [OUTPUT_AXES[letter] for letter in p.images.letters]

    def element(*index: Expr) -> Expr:
        at = dict(zip(p.images.letters, index, strict=True))
        o = at["C"] % units if p.groups > 1 else at["C"]
        g = at["C"] // units if p.groups > 1 else as_expr(0)
        value: Expr = sums[at["N"], g, o // width, at["H"], at["W"], o % width]
        if offsets is not None:
            value = value - offsets[g, o // width, o % width]
        if total is not None:
            zero = weight_zero_point[at["C"]] if isinstance(weight_zero_point, Tensor) else weight_zero_point
            value = value - total[at["N"], g, at["H"], at["W"]] * cast(as_expr(zero), "int32")
        return value

    name = p.name if bias is None else f"{p.name}_product"
    made: Tensor = te.compute(shape, element, name=name, varargs_names=names)
    if bias is None:
        return made
    channel, offset = p.images.letters.index("C"), bias
    biased: Tensor = te.compute(shape, lambda *at: made(*at) + cast(offset[at[channel]], made.dtype), name=p.name)
    return biased


def _runs(p: _Problem) -> Runs:
    return runs_of(p.right.size, p.right.dilation, p.depth, p.group)


def _check(
    p: _Problem, channels: int, bias: Tensor | None, offsets: Tensor | None, weight_zero_point: int | Tensor
) -> None:
    runs, (groups, panels, high, columns, words, width, _) = _runs(p), (number_of(e, p.packed) for e in p.packed.shape)
    laid = (panels, high, columns, words)
    wanted = (-(-p.units // width), p.down.size, runs.columns, runs.words)
    if channels % groups or p.extent("C") % groups or laid != wanted:
        raise DefinitionError(
            f"{p.name}: {p.packed} does not hold {channels} channels of {p.down.size} by {p.right.size} weights for "
            f"{p.data} in {groups} groups; it needs {wanted} panels, rows, runs and words"
        )
    vectors = [("bias", bias), ("weight_zero_point", weight_zero_point)]
    for what, vector in vectors:
        if isinstance(vector, Tensor) and not (vector.ndim == 1 and same(vector.shape[0], as_expr(channels))):
            raise DefinitionError(f"the {what} of {p.name} has {channels} elements, got {vector}")
    if p.sums_dtype != "int32" and (p.shift or offsets is not None or weight_zero_point != 0):
        raise DefinitionError(f"{p.name}: {p.data.dtype} has no zero point, and nothing to subtract for it")
    if offsets is not None and not (
        offsets.dtype == "int32"
        and offsets.ndim == 3
        and all(map(same, offsets.shape, (*p.packed.shape[:2], p.packed.shape[5])))
    ):
        raise DefinitionError(
            f"{p.name}: the offsets are those of narrow_conv2d_offsets({p.packed.op.name}), got {offsets}"
        )


def conv2d_int8_reference(data: Array, weight: Array, bias: Array, scale: Array) -> list[Array]:
    """The exact sums, with bias and relu, scaled in float32."""
    sums = conv2d_reference(data.astype(np.int64), weight.astype(np.int64), 1, "SAME")
    made = np.maximum(sums + bias[:, None, None], 0).transpose(0, 2, 3, 1)
    return [np.ascontiguousarray(requantize_reference(made, scale).transpose(0, 3, 1, 2))]


def conv2d_int8_numpy(data: Array, weight: Array, bias: Array, scale: Array, out: Array) -> None:
    """What a NumPy user writes: float32 is exact below 2^24, and fast."""
    sums = conv2d_reference(data.astype(np.float32), weight.astype(np.float32), 1, "SAME") + bias[:, None, None]
    out[...] = np.clip(np.rint(np.maximum(sums, 0) * scale[:, None, None]), -128, 127)


def conv2d_int8_packed_reference(data: Array, packed: Array, bias: Array, scale: Array) -> list[Array]:
    """The convolution of the weights that are in the panels."""
    return conv2d_int8_reference(data, _unpacked(packed, len(bias), data.shape[1]), bias, scale)


def conv2d_int8_packed_numpy(data: Array, packed: Array, bias: Array, scale: Array, out: Array) -> None:
    """What a NumPy user writes."""
    conv2d_int8_numpy(data, _unpacked(packed, len(bias), data.shape[1]), bias, scale, out)


def _unpacked(packed: Array, channels: int, depth: int) -> Array:
    panels, high, _, words, width, group = packed.shape[1:]
    runs = packed[0].transpose(0, 4, 1, 2, 3, 5).reshape(panels * width, high, words * group)
    return np.asarray(runs[:channels].reshape(channels, high, -1, depth).transpose(0, 3, 1, 2))


def _quantized_conv2d(
    n: int, c: int, h: int, w: int, o: int, k: int, dtype: str, packed: Tensor, weight: Tensor
) -> list[Tensor]:
    data, bias = te.placeholder((n, c, h, w), dtype, "data"), te.placeholder((o,), "int32", "bias")
    scale = te.placeholder((o,), "float32", "scale")
    sums = conv2d_narrow(data, packed, o, k, 1, "SAME", bias=bias)
    positive = te.compute(sums.shape, lambda *at: te.max(sums(*at), 0), name="relu")
    return [data, weight, bias, scale, requantize(positive, scale, axis=1)]


def _conv2d_int8(n: int, c: int, h: int, w: int, o: int, k: int, dtype: str = "int8") -> list[Tensor]:
    weight = te.placeholder((o, c, k, k), weight_dtype(dtype), "weight")
    return _quantized_conv2d(n, c, h, w, o, k, dtype, pack_narrow_conv2d(weight), weight)


def _conv2d_int8_packed(n: int, c: int, h: int, w: int, o: int, k: int, dtype: str = "int8") -> list[Tensor]:
    narrow = weight_dtype(dtype)
    shape = pack_narrow_conv2d(te.placeholder((o, c, k, k), narrow, "weight")).shape
    packed = te.placeholder(shape, narrow, "packed")
    if c * k % terms_of_word(narrow):
        raise DefinitionError(
            f"conv2d_int8_packed wants rows of windows of whole words, got C * K = {c * k}; conv2d_int8 takes any"
        )
    return _quantized_conv2d(n, c, h, w, o, k, dtype, packed, packed)


SIZES = ("N", "C", "H", "W", "O", "K")
OPERATORS = (
    Operator("conv2d_int8", SIZES, _conv2d_int8, conv2d_int8_reference, conv2d_int8_numpy),
    Operator(
        "conv2d_int8_packed",
        SIZES,
        _conv2d_int8_packed,
        conv2d_int8_packed_reference,
        conv2d_int8_packed_numpy,
    ),
)
