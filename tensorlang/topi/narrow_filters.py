"""Weights of convolutions of narrow numbers, laid out as [groups, o / w, kh, runs, k / g, w, g].

A window is read as runs of neighbouring terms of the data. A panel holds w output channels, for which g terms of a run
fill a word of 32 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import te
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const, Expr, as_expr, cast
from tensorlang.ir.simplify import simplify
from tensorlang.schedule.rewrites.narrow_product import SUMS, terms_of_word
from tensorlang.schedules.cpu.narrow_product import operand_dtype, panel_of
from tensorlang.target import parse
from tensorlang.target.spec import Target
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import checked
from tensorlang.topi.layouts import layout
from tensorlang.topi.operator import Operator
from tensorlang.topi.quantized import sign_shift
from tensorlang.topi.windows import Pair, pair

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Runs:
    """How a window is read: `columns` runs in each of its rows, of `run` neighbouring terms, in so many words."""

    columns: int
    run: int
    words: int


def runs_of(wide: int, dilation: int, depth: int, group: int) -> Runs:
    """A row of the window is one run where its pixels are neighbours, and otherwise one for each pixel."""
    columns, run = (1, wide * depth) if dilation == 1 else (wide, depth)
    return Runs(columns, run, -(-run // group))


@checked
def pack_narrow_conv2d(
    weight: Tensor,
    dilation: Pair = 1,
    groups: int = 1,
    kernel_layout: str = "OIHW",
    target: str | Target | None = None,
    name: str = "packed",
) -> Tensor:
    """Return weights of bfloat16 or int8 laid out for `conv2d_narrow`, with zeros after the last of panels and words.

    `dilation`, `groups`: those of the convolution. The width of a panel suits the registers of `target`, this machine
    by default. DefinitionError for other dtypes and shapes.

        >>> from tensorlang import te, topi
        >>> topi.pack_narrow_conv2d(te.placeholder((32, 16, 3, 3), "int8")).dtype
        'int8'
    """
    kernels = layout(kernel_layout, "OIHW")
    if weight.ndim != 4 or weight.dtype not in {w for _, w in SUMS}:
        raise DefinitionError(f"pack_narrow_conv2d wants {kernel_layout} of bfloat16 or int8, got {weight}")
    features, depth, high, wide = (number_of(kernels.extent(weight, letter), weight) for letter in "OIHW")
    if groups < 1 or features % groups:
        raise DefinitionError(f"pack_narrow_conv2d: {groups} groups do not divide {features} output channels")
    group, units = terms_of_word(weight.dtype), features // groups
    runs = runs_of(wide, pair("dilation", dilation)[1], depth, group)
    width = panel_of(units, parse(target))
    panels = -(-units // width)

    def element(g: Expr, p: Expr, y: Expr, x: Expr, word: Expr, lane: Expr, term: Expr) -> Expr:
        o, k = p * width + lane, word * group + term
        at = {"O": g * units + o, "I": k % depth, "H": y, "W": k // depth if runs.columns == 1 else x}
        value: Expr = weight(*kernels.index(at))
        tests = [o < units] * (units % width > 0) + [k < runs.run] * (runs.run % group > 0)
        return te.if_then_else(te.all(*tests), value, cast(as_expr(0), weight.dtype)) if tests else value

    shape = (groups, panels, high, runs.columns, runs.words, width, group)
    made: Tensor = te.compute(shape, element, name=name)
    return made


@checked
def narrow_conv2d_offsets(
    packed: Tensor, data: str = "int8", zero_point: int = 0, target: str | Target | None = None, name: str = "offsets"
) -> Tensor:
    """Return what `conv2d_narrow` subtracts for data of a dtype and zero point, from weights of `pack_narrow_conv2d`.

    Shape [groups, o / w, w]: the zero point times the sum of each channel's weights, of data as the target multiplies
    them.

        >>> from tensorlang import te, topi
        >>> packed = topi.pack_narrow_conv2d(te.placeholder((32, 16, 3, 3), "int8"))
        >>> topi.narrow_conv2d_offsets(packed, "uint8", zero_point=3).dtype
        'int32'
    """
    if packed.ndim != 7 or SUMS.get((data, packed.dtype)) != "int32":
        wanted = "int8 or uint8 data and int8 weights of pack_narrow_conv2d"
        raise DefinitionError(f"{name}: wanted {wanted}, got {data}, {packed}")
    operand = operand_dtype(data, packed.dtype, parse(target)) or data
    return window_offsets(packed, operand, sign_shift(data, operand, zero_point, name), name)


def window_offsets(packed: Tensor, operand: str, shift: int, name: str) -> Tensor:
    """A number times the sums of each channel's weights, as a product of data of a dtype has them."""
    groups, panels, high, columns, words, width, group = packed.shape
    zeros = te.compute((group,), lambda t: te.const(shift, operand), name=f"{name}_zero")
    y, x = te.reduce_axis((0, high), "ry"), te.reduce_axis((0, columns), "rx")
    k = te.reduce_axis((0, simplify(words * group)), "rk")

    def element(g: Expr, p: Expr, lane: Expr) -> Expr:
        factor = packed[g, p, y, x, k // group, lane, k % group]
        return te.sum(cast(zeros[k % group], "int32") * cast(factor, "int32"), axis=[y, x, k])

    made: Tensor = te.compute((groups, panels, width), element, name=name)
    return made


def number_of(extent: Expr, tensor: Tensor) -> int:
    """An extent of a tensor, which has to be known."""
    if not isinstance(extent, Const):
        raise DefinitionError(f"a convolution of narrow numbers has known sizes, got {tensor}")
    return int(extent.value)


def pack_conv2d_reference(weight: Array) -> list[Array]:
    """Rows of windows with channels innermost, cut into words, in panels, with zeros after the last."""
    o, c, high, wide = weight.shape
    group, width = 4 // weight.itemsize, panel_of(o, parse())
    runs = weight.transpose(0, 2, 3, 1).reshape(o, high, wide * c)
    whole = np.pad(runs, ((0, -o % width), (0, 0), (0, -wide * c % group)))
    words = whole.reshape(-1, width, high, 1, whole.shape[2] // group, group)
    return [np.ascontiguousarray(words.transpose(0, 2, 3, 4, 1, 5)[None])]


def pack_conv2d_numpy(weight: Array, out: Array) -> None:
    """What a NumPy user writes."""
    out[...] = pack_conv2d_reference(weight)[0]


def _pack_conv2d(o: int, c: int, k: int, dtype: str = "int8") -> list[Tensor]:
    weight = te.placeholder((o, c, k, k), dtype, "weight")
    return [weight, pack_narrow_conv2d(weight)]


OPERATORS = (Operator("pack_conv2d_int8", ("O", "C", "K"), _pack_conv2d, pack_conv2d_reference, pack_conv2d_numpy),)
