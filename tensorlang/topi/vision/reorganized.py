"""Images whose pixels become channels in the order of Darknet's reorg layer (Redmon 2016)."""

from __future__ import annotations

from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, binary
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import extents
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed
from tensorlang.topi.transform import reshape


@checked
def reorg(data: Tensor, stride: int, name: str = "reorg") -> Tensor:
    """Return NCHW images [n, c * stride**2, h / stride, w / stride] of images [n, c, h, w], as Darknet orders them.

    Images are read as ones of `c / stride**2` channels and `stride` times the rows and columns; of each square of
    these, the pixels of one place become a block of channels. DefinitionError for sizes that these do not divide.

        >>> from tensorlang import te, topi
        >>> topi.vision.reorg(te.placeholder((2, 8, 6, 4)), 2).shape
        (2, 32, 3, 2)
    """
    shape = extents(name, data)
    fits = len(shape) == 4 and stride > 0 and not any(map(int.__mod__, shape[1:], (stride * stride, stride, stride)))
    if not fits:
        raise DefinitionError(
            f"{name} wants [n, c, h, w], c a multiple of {stride}**2, h and w of {stride}; got {data}"
        )
    n, c, high, wide = shape
    few = c // (stride * stride)
    large = reshape(data, (n, few, high * stride, wide * stride), f"{name}_large")

    def element(b: Expr, k: Expr, y: Expr, x: Expr) -> Expr:
        place = binary("floordiv", k, max(few, 1))
        row = y * stride + binary("floordiv", place, stride)
        return large(b, binary("floormod", k, max(few, 1)), row, x * stride + binary("floormod", place, stride))

    moved = computed((n, c, high, wide), element, f"{name}_moved")
    return reshape(moved, (n, c * stride * stride, high // stride, wide // stride), name)
