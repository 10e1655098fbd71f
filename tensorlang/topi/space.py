"""Pixels moved between space, channels and batches, dilated, mirrored at the border."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, ExprLike, binary
from tensorlang.ir.simplify import simplify
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed
from tensorlang.topi.slicing import strided_slice
from tensorlang.topi.transform import pad, reshape, transpose


@checked
def flatten(data: Tensor, name: str = "flatten") -> Tensor:
    """Return `data` as a matrix: the first dimension, and all others in one.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.flatten, [[[1, 2], [3, 4]]])
    array([[1, 2, 3, 4]], dtype=int32)
    """
    if not data.ndim:
        raise DefinitionError(f"flatten: {data} has no dimensions")
    rest: Expr | int = 1
    for extent in data.shape[1:]:
        rest = extent * rest
    return reshape(data, (data.shape[0], rest), name=name)


@checked
def depth_to_space(
    data: Tensor, block_size: int, layout: str = "NCHW", mode: str = "DCR", name: str = "depth_to_space"
) -> Tensor:
    """Return images of fewer channels and more pixels: blocks of `block_size` squared channels become squares.

    The channels of one pixel of the squares are neighbours (`mode` DCR), or those of one square (CRD, also CDR).
    DefinitionError for another layout or mode, and for channels that make no squares.

        >>> import numpy as np
        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.depth_to_space, np.arange(4).reshape(1, 4, 1, 1), block_size=2).tolist()
        [[[[0, 1], [2, 3]]]]
    """
    _check_blocks("depth_to_space", data, block_size, layout)
    if mode not in ("DCR", "CRD", "CDR"):
        raise DefinitionError(f"depth_to_space: mode is DCR or CRD, got {mode!r}")
    c = data.shape[1 if layout == "NCHW" else 3]
    if extent_of(simplify(binary("floormod", c, block_size * block_size))) != 0:
        raise DefinitionError(f"depth_to_space: {c} channels of {data} are no squares of {block_size} * {block_size}")
    channels = simplify(binary("floordiv", c, block_size * block_size))

    def place(channel: Expr, y: Expr, x: Expr) -> Expr:
        inside = binary("floormod", y, block_size) * block_size + binary("floormod", x, block_size)
        return inside * channels + channel if mode == "DCR" else channel * (block_size * block_size) + inside

    def element(*i: Expr) -> Expr:
        n, channel, y, x = i if layout == "NCHW" else (i[0], i[3], i[1], i[2])
        row, column = binary("floordiv", y, block_size), binary("floordiv", x, block_size)
        source = place(channel, y, x)
        return data(n, source, row, column) if layout == "NCHW" else data(n, row, column, source)

    n, high, wide = data.shape[0], *(data.shape[2:] if layout == "NCHW" else data.shape[1:3])
    pixels = (high * block_size, wide * block_size)
    return computed((n, channels, *pixels) if layout == "NCHW" else (n, *pixels, channels), element, name)


@checked
def space_to_depth(data: Tensor, block_size: int, layout: str = "NCHW", name: str = "space_to_depth") -> Tensor:
    """Return images of more channels and fewer pixels: the pixels of each square become channels (the inverse of DCR).

    DefinitionError for another layout, or pixels that make no squares.

        >>> import numpy as np
        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.space_to_depth, np.arange(4).reshape(1, 1, 2, 2), block_size=2).tolist()
        [[[[0]], [[1]], [[2]], [[3]]]]
    """
    _check_blocks("space_to_depth", data, block_size, layout)
    n, c, high, wide = data.shape if layout == "NCHW" else (data.shape[d] for d in (0, 3, 1, 2))
    if any(extent_of(simplify(binary("floormod", m, block_size))) != 0 for m in (high, wide)):
        raise DefinitionError(f"space_to_depth: {high} * {wide} pixels of {data} make no squares of {block_size}")

    def element(*i: Expr) -> Expr:
        image, depth, row, column = i if layout == "NCHW" else (i[0], i[3], i[1], i[2])
        number, channel = binary("floordiv", depth, c), binary("floormod", depth, c)
        y = row * block_size + binary("floordiv", number, block_size)
        x = column * block_size + binary("floormod", number, block_size)
        return data(image, channel, y, x) if layout == "NCHW" else data(image, y, x, channel)

    rows, columns = (simplify(binary("floordiv", m, block_size)) for m in (high, wide))
    channels = c * (block_size * block_size)
    return computed((n, channels, rows, columns) if layout == "NCHW" else (n, rows, columns, channels), element, name)


def _check_blocks(operator: str, data: Tensor, block_size: int, layout: str) -> None:
    if layout not in ("NCHW", "NHWC") or data.ndim != 4 or block_size < 1:
        wanted = "4 dimensions in layout NCHW or NHWC and a block of at least 1"
        raise DefinitionError(f"{operator} wants {wanted}, got {data}, {layout!r} and {block_size}")


@checked
def space_to_batch_nd(
    data: Tensor,
    block_shape: Sequence[int],
    pad_before: Sequence[int],
    pad_after: Sequence[int],
    pad_value: float = 0.0,
    name: str = "space_to_batch_nd",
) -> Tensor:
    """Return `data` padded, cut into blocks along the axes behind the batch, and each place of a block as a batch.

    DefinitionError for lists of different lengths, and extents that make no blocks.

        >>> from tensorlang import te, topi
        >>> topi.space_to_batch_nd(te.placeholder((1, 6, 6)), [2, 2], [0, 0], [0, 0]).shape
        (4, 3, 3)
    """
    _check_lists("space_to_batch_nd", data, block_shape, pad_before, pad_after)
    rest = data.ndim - 1 - len(block_shape)
    padded = pad(data, [0, *pad_before, *[0] * rest], [0, *pad_after, *[0] * rest], pad_value, name=f"{name}_padded")
    blocks = _blocks("space_to_batch_nd", padded, block_shape)
    split: list[ExprLike] = [padded.shape[0]]
    for pair in blocks:
        split += pair
    count, last = len(blocks), range(2 * len(blocks) + 1, 2 * len(blocks) + 1 + rest)
    order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2), *last]
    turned = transpose(reshape(padded, [*split, *padded.shape[1 + count :]]), order)
    batch = padded.shape[0]
    for size in block_shape:
        batch = batch * size
    return reshape(turned, [batch, *[n for n, _ in blocks], *padded.shape[1 + count :]], name=name)


@checked
def batch_to_space_nd(
    data: Tensor,
    block_shape: Sequence[int],
    crop_begin_list: Sequence[int],
    crop_end_list: Sequence[int],
    name: str = "batch_to_space_nd",
) -> Tensor:
    """Return batches as places of blocks along the axes behind the batch, then cropped: undoes space_to_batch_nd.

    DefinitionError for lists of different lengths, and batches that make no blocks.

        >>> from tensorlang import te, topi
        >>> topi.batch_to_space_nd(te.placeholder((4, 3, 3)), [2, 2], [0, 0], [0, 0]).shape
        (1, 6, 6)
    """
    _check_lists("batch_to_space_nd", data, block_shape, crop_begin_list, crop_end_list)
    size = 1
    for n in block_shape:
        size *= n
    batch = simplify(binary("floordiv", data.shape[0], size))
    if extent_of(simplify(binary("floormod", data.shape[0], size))) != 0:
        raise DefinitionError(f"batch_to_space_nd: {data.shape[0]} images make no blocks of {list(block_shape)}")
    count = len(block_shape)
    split = reshape(data, [*block_shape, batch, *data.shape[1:]])
    order = [count]
    for d in range(count):
        order += [count + 1 + d, d]
    turned = transpose(split, [*order, *range(2 * count + 1, split.ndim)])
    whole = [n * b for n, b in zip(data.shape[1 : count + 1], block_shape, strict=True)]
    joined = reshape(turned, [batch, *whole, *data.shape[count + 1 :]], name=f"{name}_whole")
    ends = [-n or None for n in crop_end_list]
    return strided_slice(joined, list(crop_begin_list), ends, axes=list(range(1, count + 1)), name=name)


def _check_lists(operator: str, data: Tensor, block: Sequence[int], begin: Sequence[int], end: Sequence[int]) -> None:
    fits = len(block) == len(begin) == len(end) < data.ndim and len(block) > 0
    if not fits or min(block) < 1 or min(*begin, *end) < 0:
        raise DefinitionError(
            f"{operator} of {data}: {block}, {begin} and {end} are lists of one length, less than its rank"
        )


def _blocks(operator: str, data: Tensor, block: Sequence[int]) -> list[tuple[Expr, int]]:
    """How many blocks there are along each axis, and their sizes."""
    found = []
    for extent, size in zip(data.shape[1:], block, strict=False):
        if extent_of(simplify(binary("floormod", extent, size))) != 0:
            raise DefinitionError(f"{operator}: {extent} elements of the padded data make no blocks of {size}")
        found.append((simplify(binary("floordiv", extent, size)), size))
    return found


@checked
def dilate(data: Tensor, strides: Sequence[int], dilation_value: float = 0.0, name: str = "dilate") -> Tensor:
    """Return `data` with its elements `strides` apart, and `dilation_value` between them.

    DefinitionError when there is not one number of at least 1 for each dimension.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.dilate, [1.0, 2.0], strides=[2])
        array([1., 0., 2.], dtype=float32)
    """
    if len(strides) != data.ndim or any(n < 1 for n in strides):
        raise DefinitionError(f"dilate of {data} wants {data.ndim} numbers of at least 1, got {list(strides)}")
    value = te.cast(dilation_value, data.dtype)

    def element(*i: Expr) -> Expr:
        on = [binary("floormod", k, n) == 0 for k, n in zip(i, strides, strict=True) if n > 1]
        read = data(*[binary("floordiv", k, n) for k, n in zip(i, strides, strict=True)])
        return te.select(te.all(*on) if len(on) > 1 else on[0], read, value) if on else read

    shape = [simplify(te.maximum((n - 1) * step + 1, 0)) for n, step in zip(data.shape, strides, strict=True)]
    return computed(shape, element, name)


@checked
def mirror_pad(
    data: Tensor,
    pad_before: Sequence[int],
    pad_after: Sequence[int] | None = None,
    mode: str = "SYMMETRIC",
    name: str = "mirror_pad",
) -> Tensor:
    """Return `data` with a border that mirrors it: the edge itself twice (SYMMETRIC), or once (REFLECT).

    DefinitionError for another mode, and for a border wider than the data.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.mirror_pad, [1, 2, 3], pad_before=[1], pad_after=[1])
        array([1, 1, 2, 3, 3], dtype=int32)
    """
    after = pad_before if pad_after is None else pad_after
    skip = {"SYMMETRIC": 0, "REFLECT": 1}.get(mode)
    fits = len(pad_before) == len(after) == data.ndim and all(n >= 0 for n in (*pad_before, *after))
    if skip is None or not fits:
        wanted = f"mode SYMMETRIC or REFLECT and {data.ndim} numbers of at least 0 on each side"
        raise DefinitionError(f"mirror_pad wants {wanted}, got {mode!r}, {list(pad_before)} and {list(after)}")
    for n, low, high in zip(data.shape, pad_before, after, strict=True):
        known = extent_of(n)
        if known is None or max(low, high) > known - skip:
            raise DefinitionError(f"mirror_pad: a border of {low} and {high} is wider than {n} elements ({mode})")
    edge = 1 - skip

    def mirrored(k: Expr, n: Expr, low: int, high: int) -> ExprLike:
        at = k - low
        inner: Expr = te.select(at >= n, n * 2 - at - 1 - skip, at) if high else at
        return te.select(at < 0, -at - edge, inner) if low else inner

    def element(*i: Expr) -> Expr:
        return data(*map(mirrored, i, data.shape, pad_before, after))

    return computed([n + a + b for n, a, b in zip(data.shape, pad_before, after, strict=True)], element, name)
