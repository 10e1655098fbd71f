"""Windows that slide over an axis: kernel, stride, dilation and padding of convolutions and pooling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tensorlang import te
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const, Expr, ExprLike, as_expr, binary, cast
from tensorlang.ir.simplify import simplify
from tensorlang.te.axis import Axis
from tensorlang.te.operation import Tensor
from tensorlang.topi.layouts import Blocked, Layout, Place

Pair: TypeAlias = int | Sequence[int]
"""One number for height and width, or one for each."""
Numbers: TypeAlias = int | Sequence[int]
"""One number for all axes, or one for each."""
Padding: TypeAlias = int | str | Sequence[int]
"""One number for all sides, one for each axis, those of all beginnings and then of all ends, or VALID or SAME.

Of images: (height, width) or (top, left, bottom, right).
"""
_COUNTS = {2: "(height, width) or (top, left, bottom, right)"}

OUTPUT_AXES = {"N": "nn", "C": "ff", "c": "fi", "H": "yy", "W": "xx"}
"""The axes of an output, by the letters of its layout, named as in classic topi. Sums run over rc (and ri), ry, rx."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window of `size` elements, `dilation` apart, moved by `stride`, over an axis padded `before` and `after`."""

    size: int
    stride: int = 1
    dilation: int = 1
    before: int = 0
    after: int = 0

    @property
    def reach(self) -> int:
        """The elements from the first to the last of a window."""
        return (self.size - 1) * self.dilation + 1

    def count(self, extent: Expr, ceil_mode: bool = False) -> Expr:
        """How many windows fit on an axis; with `ceil_mode` one more where the last leaves elements over."""
        span = extent + (self.before + self.after - self.reach + (self.stride - 1 if ceil_mode else 0))
        return simplify(binary("floordiv", span, self.stride) + 1)

    def number(self, extent: int) -> int:
        """How many windows fit on an axis of so many elements; below 1 where none does."""
        found = self.count(as_expr(extent))
        assert isinstance(found, Const)
        return int(found.value)

    def at(self, window: ExprLike, element: ExprLike) -> Expr:
        """The place of an element of a window, less than zero or beyond the end in the padding."""
        return as_expr(window) * self.stride + as_expr(element) * self.dilation - self.before

    def inside(self, window: ExprLike, element: ExprLike, extent: Expr, windows: Expr) -> list[Expr]:
        """The conditions under which an element is not padding: none where none can be."""
        place, tests = self.at(window, element), list[Expr]()
        if self.before:
            tests.append(binary("ge", place, 0))
        last = simplify((windows - 1) * self.stride + (self.reach - self.before) - extent)
        if not (isinstance(last, Const) and last.value <= 0):
            tests.append(binary("lt", place, extent))
        return tests


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows over the pixels of an image: `y` and `x` run over a window, `rows` and `columns` count the windows."""

    data: Tensor
    images: Layout
    down: Window
    right: Window
    rows: Expr
    columns: Expr
    y: Axis
    x: Axis

    def element(self, at: Mapping[str, Place], dtype: str, beside: Expr | None = None) -> tuple[Expr, Expr | None]:
        """An element of the window at a pixel, and the condition, if any, under which it is no padding.

        `at`: coordinates of the pixel by letter, H and W counted in windows. `beside`: what padding at both ends of a
        row stands for; then the condition is only about what is above and below, and vectors of pixels keep their
        places.
        """
        h, w = at["H"], at["W"]
        assert not isinstance(h, Blocked) and not isinstance(w, Blocked)
        place = {**at, "H": self.down.at(h, self.y), "W": self.right.at(w, self.x)}
        value = cast(self.data(*self.images.index(place)), dtype)
        tests = self.down.inside(h, self.y, self.images.extent(self.data, "H"), self.rows)
        ends = self.right.inside(w, self.x, self.images.extent(self.data, "W"), self.columns)
        if beside is None:
            tests += ends
        elif ends:
            value = te.if_then_else(te.all(*ends), value, beside)
        return value, te.all(*tests) if tests else None


def sliding(data: Tensor, images: Layout, down: Window, right: Window, ceil_mode: bool = False) -> Sliding:
    """Windows over the pixels of data in a layout."""
    rows = down.count(images.extent(data, "H"), ceil_mode)
    columns = right.count(images.extent(data, "W"), ceil_mode)
    y, x = te.reduce_axis((0, down.size), "ry"), te.reduce_axis((0, right.size), "rx")
    return Sliding(data, images, down, right, rows, columns, y, x)


def windows(kernel: Sequence[int], stride: Pair, padding: Padding, dilation: Pair) -> tuple[Window, Window]:
    """The windows along height and width; DefinitionError for numbers that make none."""
    steps, gaps = pair("stride", stride), pair("dilation", dilation)
    if min(*kernel, *steps, *gaps) < 1:
        text = f"kernel, stride and dilation are at least 1, got {tuple(kernel)}, {steps} and {gaps}"
        raise DefinitionError(text)
    down, right = _windows("padding", kernel, steps, padding, gaps)
    return down, right


def windows_over(
    operator: str, kernel: Sequence[int], stride: Numbers, padding: Padding, dilation: Numbers
) -> list[Window]:
    """The windows along any number of axes; DefinitionError, which names the operator, for numbers that make none."""
    rank = len(kernel)
    steps, gaps = each(f"{operator}: stride", stride, rank), each(f"{operator}: dilation", dilation, rank)
    return _windows(f"{operator}: padding", kernel, steps, padding, gaps)


def _windows(
    what: str, kernel: Sequence[int], steps: Sequence[int], padding: Padding, gaps: Sequence[int]
) -> list[Window]:
    before, after = around(what, padding, [(k - 1) * d for k, d in zip(kernel, gaps, strict=True)])
    return [Window(*row) for row in zip(kernel, steps, gaps, before, after, strict=True)]


def pair(what: str, value: Pair) -> tuple[int, int]:
    """Height and width of a number, or of two."""
    found = (value, value) if isinstance(value, int) else tuple(value)
    if len(found) != 2 or not all(isinstance(n, int) for n in found):
        raise DefinitionError(f"{what} is a whole number, or one for height and one for width; got {value!r}")
    return found


def each(what: str, value: Numbers, rank: int, least: int = 1) -> list[int]:
    """A number for each axis; DefinitionError for another count, and for numbers that are too small."""
    found = [value] * rank if isinstance(value, int) else list(value)
    if len(found) != rank or any(n < least for n in found):
        raise DefinitionError(f"{what} is a number of at least {least}, or {rank} of them; got {value!r}")
    return found


def around(what: str, padding: Padding, reach: Sequence[int]) -> tuple[list[int], list[int]]:
    """Padding in front of each axis and behind it; `reach` is what SAME adds."""
    rank = len(reach)
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID"):
            raise DefinitionError(f"{what} is VALID, SAME or numbers, got {padding!r}")
        whole = reach if padding.upper() == "SAME" else [0] * rank
        return [(n + 1) // 2 for n in whole], [n // 2 for n in whole]
    found = [padding] * rank if isinstance(padding, int) else list(padding)
    found = found * rank if len(found) == 1 else found
    if len(found) not in (rank, 2 * rank) or not all(isinstance(n, int) and n >= 0 for n in found):
        counts = _COUNTS.get(rank, f"{rank} or {2 * rank}")
        raise DefinitionError(f"{what} is one number, {counts}, each at least 0; got {padding!r}")
    return found[:rank], found[-rank:]


def window_sizes(tensor: Tensor, *dims: int) -> list[int]:
    """Dimensions of a tensor that have to be numbers."""
    found = [tensor.shape[d] for d in dims]
    if not all(isinstance(extent, Const) for extent in found):
        raise DefinitionError(f"the size of a window is given in numbers, got {tensor}")
    return [int(extent.value) for extent in found if isinstance(extent, Const)]
