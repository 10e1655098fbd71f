"""Convolutions with windows of 3 * 3 by Winograd's algorithm F(m * m, 3 * 3): fewer products, sums before and after.

Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang import te
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const, Expr, as_expr, binary, cast, same
from tensorlang.ir.simplify import simplify
from tensorlang.te.operation import Operation, Tensor
from tensorlang.te.tags import DERIVED
from tensorlang.topi.checked import checked
from tensorlang.topi.layouts import Layout, layout
from tensorlang.topi.toom_cook import POINTS, WINDOW, by_columns, by_rows, transforms
from tensorlang.topi.windows import OUTPUT_AXES, Padding, Window, window_sizes, windows

BLOCK = 32
"""Output channels of a block of weights: two vectors of the widest registers."""
_CHANNELS = 64
"""Channels of data and output from which on the transforms are worth their time."""
_TILES = 16
"""Tiles of 4 * 4 results for which each transformed weight is used often enough; with fewer, tiles are smaller."""
_WORTH = 49
"""The same where the weights are transformed in every call."""
_UNDERIVED = "it reads weights that are transformed already; take that of conv2d(..., algorithm='winograd')"
_ALGORITHMS = ("direct", "winograd", "auto")


def tile_of(
    algorithm: str, down: Window, right: Window, sizes: Sequence[Expr], groups: int, dtypes: Sequence[str]
) -> int:
    """The side of the tiles by which an algorithm computes a convolution; 0 where it takes no tiles.

    `sizes`: height, width and channels of the data, and channels of the output. `dtypes`: of data, weights and sums.
    """
    if algorithm not in _ALGORITHMS:
        raise DefinitionError(f"conv2d has the algorithms {', '.join(_ALGORITHMS)}, got {algorithm!r}")
    if algorithm == "direct":
        return 0
    plain = all(w.size == WINDOW and w.stride == w.dilation == 1 for w in (down, right)) and groups == 1
    known = [int(n.value) for n in sizes if isinstance(n, Const)]
    taken = plain and len(known) == len(sizes) and len(set(dtypes)) == 1 and dtypes[0] in ("float32", "float64")
    if algorithm == "winograd" and not taken:
        windows_got = f"{down} and {right} in {groups} groups over {', '.join(map(str, sizes))}, {', '.join(dtypes)}"
        raise DefinitionError(
            "the algorithm winograd takes windows of 3 * 3 by steps of 1, without dilation and groups, over images "
            f"whose sizes are numbers, in one dtype, float32 or float64; got {windows_got}; take 'direct', or 'auto'"
        )
    if not taken:
        return 0
    high, wide = (-(-(n + w.before + w.after - WINDOW + 1) // 4) for n, w in zip(known[:2], (down, right), strict=True))
    if algorithm == "auto" and (min(known[2:]) < _CHANNELS or high * wide < _WORTH or dtypes[0] != "float32"):
        return 0
    return 4 if high * wide >= _TILES else 2


@checked
def winograd_pack(
    weight: Tensor, tile: int = 4, block: int = BLOCK, kernel_layout: str = "OIHW", name: str = "transformed"
) -> Tensor:
    """Return weights as `conv2d_winograd` reads them, transformed, [tile + 2, tile + 2, o / block, i, block].

    Built once, as a kernel of its own, it takes the transform out of every call. It is made in float64. The last block
    is filled up with zeros. DefinitionError unless windows are 3 * 3 and `tile` is 2 or 4.

        >>> from tensorlang import te, topi
        >>> topi.winograd_pack(te.placeholder((40, 3, 3, 3)), tile=4, block=32).shape
        (6, 6, 2, 3, 32)
    """
    kernels = layout(kernel_layout, "OIHW", ("O", "I"))
    _check_tile(tile)
    if weight.ndim != len(kernels.letters) or block < 1:
        raise DefinitionError(f"winograd_pack wants weights of {kernel_layout} and a block, got {weight}, {block}")
    o, i, high, wide = (kernels.extent(weight, letter) for letter in "OIHW")
    if not all(isinstance(n, Const) and n.value == WINDOW for n in (high, wide)):
        raise DefinitionError(f"winograd_pack wants windows of 3 * 3, got {weight}")
    rows = transforms(tile)[1]

    def element(xi: Expr, nu: Expr, ob: Expr, c: Expr, oi: Expr) -> Expr:
        at = ob * block + oi
        taps = [
            [
                cast(weight(*kernels.index({"O": at, "I": c, "H": as_expr(y), "W": as_expr(x)})), "float64")
                for x in range(WINDOW)
            ]
            for y in range(WINDOW)
        ]
        lines = [_one_of(xi, by_rows(rows, [line[x] for line in taps])) for x in range(WINDOW)]
        value = cast(_one_of(nu, by_rows(rows, lines)), weight.dtype)
        whole = isinstance(o, Const) and int(o.value) % block == 0
        return value if whole else te.if_then_else(at < o, value, cast(0, weight.dtype))

    blocks = simplify(binary("floordiv", o + (block - 1), block))
    n = tile + WINDOW - 1
    result: Tensor = te.compute((n, n, blocks, i, block), element, name=name)
    return result


@checked
def conv2d_winograd(
    data: Tensor,
    packed: Tensor,
    padding: Padding = 0,
    data_layout: str = "NCHW",
    channels: int | None = None,
    name: str = "conv2d",
) -> Tensor:
    """Return the convolution, by steps of 1, of images with windows of 3 * 3 that `winograd_pack` has transformed.

    Tiles of m * m results (m as in the weights) take (m + 2)**2 products a channel in place of 9 * m**2. Sums are made
    in the dtype of the data. The largest error, by the largest value, is 2e-6 to 4e-6 in float32 for m = 4 and 5e-7
    for m = 2, where that of `conv2d` is about 1e-6; an element that is infinite or not a number reaches all results of
    its tile. Layouts, `padding` and `channels` are those of `conv2d`; NCHW16c makes outputs in the blocks of the
    weights. DefinitionError when the shapes do not fit, or are not numbers.

        >>> from tensorlang import te, topi
        >>> packed = topi.winograd_pack(te.placeholder((32, 3, 3, 3)))
        >>> topi.conv2d_winograd(te.placeholder((1, 3, 10, 10)), packed).shape
        (1, 32, 8, 8)
    """
    return by_tiles(data, packed, padding, layout(data_layout, "NCHW", ("C",)), channels, name, _UNDERIVED)


def by_tiles(
    data: Tensor,
    packed: Tensor,
    padding: Padding,
    images: Layout,
    channels: int | None,
    name: str,
    derived: Operation | str,
) -> Tensor:
    """The same; `derived`: the operation whose derivatives it has, or why it has none."""
    if data.ndim != len(images.letters) or packed.ndim != 5:
        raise DefinitionError(f"conv2d_winograd wants {images.text} and weights of winograd_pack; got {data}, {packed}")
    n, also, blocks, depth, block = window_sizes(packed, *range(5))
    tile = n - WINDOW + 1
    _check_tile(tile)
    features = blocks * block if channels is None else channels
    wanted = images.extent(data, "C")
    if n != also or not same(wanted, as_expr(depth)) or not 0 < features <= blocks * block:
        text = f"{wanted} input channels, and {features} of the output"
        raise DefinitionError(f"conv2d_winograd of {data} wants weights of {text}; got {packed}")
    if "C" in images.blocks:
        features = -(-features // block) * block
    down, right = windows((WINDOW, WINDOW), 1, padding, 1)
    plan = _Plan(data, packed, images, down, right, tile, depth, features, block)
    return plan.results(plan.products(plan.tiles(name), name), name, derived)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A convolution in tiles of `tile` * `tile` results."""

    data: Tensor
    packed: Tensor
    images: Layout
    down: Window
    right: Window
    tile: int
    depth: int
    features: int
    block: int

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the output."""
        found = [
            simplify(window.count(self.images.extent(self.data, letter)))
            for window, letter in ((self.down, "H"), (self.right, "W"))
        ]
        if not all(isinstance(n, Const) for n in found):
            raise DefinitionError(f"conv2d_winograd wants images whose sizes are numbers, got {self.data}")
        rows, columns = (int(n.value) for n in found if isinstance(n, Const))
        return rows, columns

    @property
    def counts(self) -> tuple[int, int]:
        """Rows and columns of tiles."""
        rows, columns = self.size
        return -(-rows // self.tile), -(-columns // self.tile)

    def tiles(self, name: str) -> Tensor:
        """The tiles of the data, transformed: first along their columns, then along their rows."""
        (down, right), n, m = self.counts, self.tile + WINDOW - 1, self.tile
        batch, matrix = self.images.extent(self.data, "N"), transforms(m)[0]

        def columns(nn: Expr, ty: Expr, x: Expr, xi: Expr, rc: Expr) -> Expr:
            terms = [self._element(nn, ty * m + i, x, rc) for i in range(n)]
            return _one_of(xi, by_rows(matrix, terms))

        half = te.compute((batch, down, right * m + WINDOW - 1, n, self.depth), columns, name=f"{name}_columns")

        def rows(nn: Expr, ty: Expr, tx: Expr, xi: Expr, nu: Expr, rc: Expr) -> Expr:
            terms = [half(nn, ty, tx * m + j, xi, rc) for j in range(n)]
            return _one_of(nu, by_rows(matrix, terms))

        made: Tensor = te.compute((batch, down, right, n, n, self.depth), rows, name=f"{name}_tiles")
        return made

    def _element(self, n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        """An element of the padded data; beyond it, where tiles stick out, too."""
        high, wide = (self.images.extent(self.data, letter) for letter in "HW")
        at, along = y - self.down.before, x - self.right.before
        value = self.data(*self.images.index({"N": n, "C": c, "H": at, "W": along}))
        tests = [
            *_inside(at, high, self.down.before, self.counts[0] * self.tile + WINDOW - 1),
            *_inside(along, wide, self.right.before, self.counts[1] * self.tile + WINDOW - 1),
        ]
        return te.if_then_else(te.all(*tests), value, cast(0, self.data.dtype)) if tests else value

    def products(self, tiles: Tensor, name: str) -> Tensor:
        """The sums over input channels."""
        rc = te.reduce_axis((0, self.depth), "rc")
        batch, down, right, n, also, _ = tiles.shape

        def element(nn: Expr, ty: Expr, tx: Expr, xi: Expr, nu: Expr, ff: Expr) -> Expr:
            factor = self.packed(xi, nu, binary("floordiv", ff, self.block), rc, binary("floormod", ff, self.block))
            return te.sum(tiles(nn, ty, tx, xi, nu, rc) * factor, axis=rc)

        made: Tensor = te.compute((batch, down, right, n, also, self.features), element, name=f"{name}_products")
        return made

    def results(self, products: Tensor, name: str, derived: Operation | str) -> Tensor:
        """The results: transformed back along rows, then along columns."""
        m, n, matrix = self.tile, self.tile + WINDOW - 1, transforms(self.tile)[2]
        batch, down, right, *_ = products.shape

        def rows(nn: Expr, ty: Expr, xx: Expr, xi: Expr, ff: Expr) -> Expr:
            tx = binary("floordiv", xx, m)
            terms = [products(nn, ty, tx, xi, nu, ff) for nu in range(n)]
            return _one_of(binary("floormod", xx, m), by_columns(matrix, terms))

        half = te.compute((batch, down, right * m, n, self.features), rows, name=f"{name}_rows")
        made = layout(_output(self.images, self.block), "NCHW", ("C",))
        extents = dict(zip("NHWC", (batch, *map(as_expr, self.size), as_expr(self.features)), strict=True))

        def columns(*index: Expr) -> Expr:
            at = dict(zip(made.letters, index, strict=True))
            ff = at["C"] * self.block + at["c"] if "c" in at else at["C"]
            ty = binary("floordiv", at["H"], m)
            terms = [half(at["N"], ty, at["W"], xi, ff) for xi in range(n)]
            return _one_of(binary("floormod", at["H"], m), by_columns(matrix, terms))

        shape = [made.dimension(letter, extents) for letter in made.letters]
        names = [OUTPUT_AXES[letter] for letter in made.letters]
        result: Tensor = te.compute(shape, columns, name=name, attrs={DERIVED: derived}, varargs_names=names)
        return result


def _output(images: Layout, block: int) -> str:
    """The layout of the data; where it is blocked, with the blocks of the weights."""
    plain = "".join(letter for letter in images.letters if letter.isupper())
    return f"{plain}{block}c" if "C" in images.blocks else images.text


def _inside(place: Expr, extent: Expr, before: int, reached: int) -> list[Expr]:
    """The conditions under which a place is no padding: none where none can be."""
    tests = [binary("ge", place, 0)] if before else []
    last = simplify(as_expr(reached - before) - extent)
    return tests if isinstance(last, Const) and last.value <= 0 else [*tests, binary("lt", place, extent)]


def _one_of(number: Expr, values: Sequence[Expr], first: int = 0) -> Expr:
    """The value of that number: folded where the axis of the number is unrolled."""
    if first == len(values) - 1:
        return values[first]
    return te.if_then_else(binary("eq", number, first), values[first], _one_of(number, values, first + 1))


def _check_tile(tile: int) -> None:
    if tile not in POINTS:
        raise DefinitionError(
            f"tiles of Winograd's algorithm have {' or '.join(map(str, POINTS))} results a side, got {tile}"
        )
