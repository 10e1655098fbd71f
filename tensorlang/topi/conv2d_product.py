"""Convolutions as products of matrices, as tensor cores take them: windows of the data as rows, weights as columns.

The implicit form of the product: a schedule computes the rows in tiles, in shared memory, and none in global memory.
Padding is zeros in the rows, which are multiplied as all else.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorlang import dtypes, te
from tensorlang.ir.expr import Const, Expr, cast
from tensorlang.ir.simplify import simplify
from tensorlang.schedules.gpu.tensor_cores import multiplies
from tensorlang.schedules.tags import CONV2D_PRODUCT
from tensorlang.target import parse
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.te.terms import term_axis
from tensorlang.topi.layouts import Layout
from tensorlang.topi.windows import OUTPUT_AXES, Sliding

_ACCESS, _STEP = 16, 32
"""Bytes of neighbouring channels that are copied at once, and of terms that one instruction multiplies."""
_FEWEST = 16
"""Output channels of a group, with fewer of which most of a tile would be computed for nothing."""
_TOGETHER = 8
"""Output channels that fragments of sums have side by side: lanes would hold other ones behind a group with a rest."""


@dataclass(frozen=True, slots=True)
class ConvolutionProduct:
    """A convolution in numbers: `depth` input channels and `features` output channels of each of `groups`.

    `rows` and `columns` count the windows of an image. `dtype`: of the sums.
    """

    slide: Sliding
    weight: Tensor
    kernels: Layout
    groups: int
    depth: int
    features: int
    rows: int
    columns: int
    dtype: str

    @property
    def terms(self) -> int:
        """Terms of a sum: the places of a window times its channels."""
        return self.slide.down.size * self.slide.right.size * self.depth

    @property
    def by_features(self) -> bool:
        """Whether neighbouring weights are those of neighbouring outputs, and not of neighbouring inputs."""
        return self.kernels.letters[-1] == "O"

    def place(self, term: Expr) -> tuple[Expr, Expr, Expr]:
        """The row and column of a term in its window, and its channel in its group."""
        wide = self.slide.right.size
        return term // (wide * self.depth), term // self.depth % wide, term % self.depth


def conv2d_product(
    slide: Sliding, weight: Tensor, kernels: Layout, features: Expr, groups: int, dtype: str
) -> ConvolutionProduct | None:
    """The product that tensor cores of the target in use take for a convolution; None where they do not.

    They take data and weights of one dtype, with sums of 32 bits, whose channels lie side by side: input channels of a
    group in multiples of 16 bytes, those of a window of 32 bytes; output channels in multiples of 16 bytes where it is
    these that lie side by side in the weights, which they must not for bytes. Several groups have a multiple of 8
    output channels each.
    """
    data, images = slide.data, slide.images
    known = [extent_of(e) for e in (images.extent(data, "C"), features, slide.rows, slide.columns)]
    if not multiplies(parse(), data.dtype, weight.dtype, dtype) or images.blocks or kernels.blocks:
        return None
    depth, count, rows, columns = (n or 0 for n in known)
    p = ConvolutionProduct(slide, weight, kernels, groups, depth // groups, count // groups, rows, columns, dtype)
    size = dtypes.info(data.dtype).bytes
    if 0 in (depth, rows, columns) or images.letters[-1] != "C" or kernels.letters[-1] not in "IO":
        return None
    fits = p.depth * size % _ACCESS == 0 and p.terms * size % _STEP == 0 and p.features >= _FEWEST
    packed = p.by_features and (size == 1 or p.features * size % _ACCESS)
    cut = p.groups > 1 and p.features % _TOGETHER
    return p if fits and not packed and not cut else None


def declared(p: ConvolutionProduct, name: str) -> Tensor:
    """The convolution in the layout of its data, out of a product that has an image's pixels as rows."""
    rows, columns = _windows(p, f"{name}_windows"), _filters(p, f"{name}_filters")
    k = term_axis(Const(p.terms, "int32"), rows, columns)

    def element(*index: Expr) -> Expr:
        *group, m, f = index
        factor = columns(*group, k, f) if p.by_features else columns(*group, f, k)
        return te.sum(cast(rows(*group, m, k), p.dtype) * cast(factor, p.dtype), axis=k)

    groups = [Const(p.groups, "int32")] * (p.groups > 1)
    count = rows.shape[-2]
    made = te.compute((*groups, count, Const(p.features, "int32")), element, name=f"{name}_product")
    images = p.slide.images
    extents = {"N": images.extent(p.slide.data, "N"), "H": p.slide.rows, "W": p.slide.columns}
    extents["C"] = Const(p.features * p.groups, "int32")

    def pixel(*index: Expr) -> Expr:
        at = dict(zip(images.letters, index, strict=True))
        m = (at["N"] * p.rows + at["H"]) * p.columns + at["W"]
        feature = (at["C"] // p.features, m, at["C"] % p.features) if groups else (m, at["C"])
        value: Expr = made(*feature)
        return value

    shape, names = [extents[x] for x in images.letters], [OUTPUT_AXES[x] for x in images.letters]
    result: Tensor = te.compute(shape, pixel, name=name, tag=CONV2D_PRODUCT, varargs_names=names)
    return result


def _windows(p: ConvolutionProduct, name: str) -> Tensor:
    """The windows as rows, [pixel, term]; in groups [group, pixel, term]."""
    slide, data = p.slide, p.slide.data
    images = slide.images

    def element(*index: Expr) -> Expr:
        *group, m, k = index
        row, column, channel = p.place(k)
        y, x = m // p.columns % p.rows, m % p.columns
        c = group[0] * p.depth + channel if group else channel
        place = {"N": m // (p.rows * p.columns), "C": c, "H": slide.down.at(y, row), "W": slide.right.at(x, column)}
        tests = slide.down.inside(y, row, images.extent(data, "H"), slide.rows)
        tests += slide.right.inside(x, column, images.extent(data, "W"), slide.columns)
        value: Expr = data(*images.index(place))
        return te.if_then_else(te.all(*tests), value, te.const(0, data.dtype)) if tests else value

    pixels = simplify(images.extent(data, "N") * (p.rows * p.columns))
    groups = [Const(p.groups, "int32")] * (p.groups > 1)
    made: Tensor = te.compute((*groups, pixels, Const(p.terms, "int32")), element, name=name)
    return made


def _filters(p: ConvolutionProduct, name: str) -> Tensor:
    """The weights as a matrix, [term, feature] or [feature, term], as they lie; in groups one for each."""

    def element(*index: Expr) -> Expr:
        *group, i, j = index
        k, f = (i, j) if p.by_features else (j, i)
        row, column, channel = p.place(k)
        o = group[0] * p.features + f if group else f
        value: Expr = p.weight(*p.kernels.index({"O": o, "I": channel, "H": row, "W": column}))
        return value

    shape = (p.terms, p.features) if p.by_features else (p.features, p.terms)
    groups = [p.groups] * (p.groups > 1)
    made: Tensor = te.compute((*groups, *shape), element, name=name)
    return made
