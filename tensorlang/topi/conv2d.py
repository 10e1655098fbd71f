"""Convolutions `O[n, o, h, w] = sum D[n, c, h * s + y, w * s + x] * W[o, c, y, x]`, in the layouts of classic topi.

Padding is neither a copy nor a zero: the sum runs over those elements of the window that lie in the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const, Expr, binary, cast, same
from tensorlang.ir.simplify import simplify
from tensorlang.te.axis import Axis
from tensorlang.te.operation import Tensor
from tensorlang.te.tags import CONV2D
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import rounded_once
from tensorlang.topi.layouts import Blocked, Layout, Place, layout
from tensorlang.topi.operator import Operator
from tensorlang.topi.windows import OUTPUT_AXES, Padding, Pair, sliding, windows
from tensorlang.topi.winograd import BLOCK, by_tiles, tile_of, winograd_pack

Array = npt.NDArray[Any]
_FEW = 8


@checked
def conv2d(
    data: Tensor,
    weight: Tensor,
    strides: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
    groups: int = 1,
    channels: int | None = None,
    name: str = "conv2d",
    algorithm: str = "direct",
) -> Tensor:
    """Return the convolution of images with a window of weights, in the layout of the data.

    `data_layout`: NCHW, NHWC, or in blocks of channels, such as NCHW16c. `kernel_layout`: OIHW, HWIO for NHWC and
    OIHW16i16o for NCHW16c unless given; that of `conv2d_pack` is OHWI32o. `padding`: a number, (height, width),
    (top, left, bottom, right), SAME or VALID. `groups`: data and output channels are cut into so many parts, each
    convolved by itself. `channels`: those of the output, where the last block of the weights holds fewer. The output
    is in blocks where data is, of the size of the weights' blocks. Sums are made in `out_dtype`, by default the dtype
    of the data; those of narrow floats are added up in float32 and rounded once. No sum has the padding in it; but
    `topi.schedule` makes convolutions that tensor cores of its target take (NHWC of float16, bfloat16 or bytes, sums of
    32 bits) products in which padding is zeros, and a weight that is infinite or not a number reaches what lies at the
    border. `algorithm`: "direct" has these sums; "winograd" takes a fourth of the products where windows of 3 * 3 move
    by steps of 1, and is less exact (`conv2d_winograd`, which takes weights transformed ahead, too); "auto" is that
    where it is faster as a rule, although weights are transformed in every call: in float32, from 64 channels of data
    and output and 28 * 28 pixels on. DefinitionError when the shapes do not fit.
    """
    images = layout(data_layout, "NCHW", ("C",))
    kernels = layout(kernel_layout or _kernel_of(images), "OIHW", ("O", "I"))
    _check_dimensions((data, images), (weight, kernels))
    depth, features = images.extent(data, "C"), kernels.extent(weight, "O")
    features = features if channels is None else _first_of(channels, features, weight)
    _check_groups(data, weight, depth, features, kernels.extent(weight, "I"), groups)
    down, right = windows([_number(kernels.extent(weight, k), weight) for k in "HW"], strides, padding, dilation)
    made = layout(_output_layout(images, kernels), "NCHW", ("C",))
    slide = sliding(data, images, down, right)
    c, over = _input_channels(images, depth, groups)
    dtype = out_dtype or data.dtype
    narrow = made.letters == "NCHW" and _is_narrow(features, groups)

    def body(index: Sequence[Expr], dtype: str) -> Expr:
        at = dict(zip(made.letters, index, strict=True))
        o: Place = Blocked(at["C"], at["c"], made.blocks["C"]) if "c" in at else at["C"]
        pixel = {"N": at["N"], "C": _source(o, c, depth, features, groups), "H": at["H"], "W": at["W"]}
        factor = {"O": o, "I": c, "H": slide.y.var, "W": slide.x.var}
        value, where = slide.element(pixel, dtype, cast(0, dtype) if narrow else None)
        product = value * cast(weight(*kernels.index(factor)), dtype)
        return te.sum(product, axis=[*over, slide.y, slide.x], where=where)

    extents = {"N": images.extent(data, "N"), "H": slide.rows, "W": slide.columns, "C": features}
    shape = [made.dimension(letter, extents) for letter in made.letters]
    names = [OUTPUT_AXES[letter] for letter in made.letters]
    how: dict[str, Any] = {"tag": "" if narrow else CONV2D, "attrs": {"groups": groups}, "varargs_names": names}
    result = rounded_once(name, dtype, lambda n, t: te.compute(shape, lambda *i: body(i, t), name=n, **how))
    sizes = *(images.extent(data, letter) for letter in "HWC"), features
    tile = tile_of(algorithm, down, right, sizes, groups, (data.dtype, weight.dtype, dtype))
    return _by_tiles(result, data, weight, features, padding, images, kernels, tile) if tile else result


def _by_tiles(
    direct: Tensor,
    data: Tensor,
    weight: Tensor,
    features: Expr,
    padding: Padding,
    images: Layout,
    kernels: Layout,
    tile: int,
) -> Tensor:
    """The same as a direct convolution, by tiles of Winograd's algorithm."""
    name = direct.op.name
    packed = winograd_pack(weight, tile, kernels.blocks.get("O", BLOCK), kernels.text, f"{name}_weights")
    return by_tiles(data, packed, padding, images, _number(features, weight), name, direct.op)


@checked
def conv2d_nchw(
    data: Tensor,
    weight: Tensor,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """Return `conv2d` of NCHW data with OIHW weights.

    >>> import numpy as np
    >>> from tensorlang import te, topi
    >>> image = np.arange(16.0).reshape(1, 1, 4, 4)
    >>> te.evaluate(topi.conv2d_nchw, image, np.ones((1, 1, 3, 3)), stride=1, padding=0, dilation=1).tolist()
    [[[[45.0, 54.0], [81.0, 90.0]]]]
    """
    return conv2d(data, weight, stride, padding, dilation, "NCHW", out_dtype=out_dtype)


@checked
def conv2d_nhwc(
    data: Tensor,
    weight: Tensor,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """Return `conv2d` of NHWC data with HWIO weights.

    >>> import numpy as np
    >>> from tensorlang import te, topi
    >>> te.evaluate(
    ...     topi.conv2d_nhwc, np.ones((1, 3, 3, 2)), np.ones((3, 3, 2, 1)), stride=1, padding=0, dilation=1
    ... ).tolist()
    [[[[18.0]]]]
    """
    return conv2d(data, weight, stride, padding, dilation, "NHWC", out_dtype=out_dtype)


@checked
def conv2d_NCHWc(
    data: Tensor,
    weight: Tensor,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    layout: str = "",
    out_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """Return `conv2d` of blocked data [n, c / b, h, w, b] with weights [o / p, c / b, kh, kw, b, p].

    The blocks are those of the arrays; layouts that are given, such as NCHW16c, have to agree.

        >>> import numpy as np
        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.conv2d_NCHWc, np.ones((1, 1, 2, 2, 4)), np.ones((1, 1, 2, 2, 4, 2))).tolist()
        [[[[[16.0, 16.0]]]]]
    """
    if data.ndim != 5 or weight.ndim != 6:
        raise DefinitionError(f"conv2d_NCHWc wants data of 5 and weights of 6 dimensions, got {data} and {weight}")
    inner, outer = _number(data.shape[4], data), _number(weight.shape[5], weight)
    for given, block in ((layout, inner), (out_layout, outer)):
        if given not in ("", f"NCHW{block}c"):
            raise DefinitionError(f"the arrays have the layout NCHW{block}c, and {given} was asked for")
    kernel = f"OIHW{inner}i{outer}o"
    return conv2d(data, weight, stride, padding, dilation, f"NCHW{inner}c", kernel, out_dtype)


@checked
def group_conv2d_nchw(
    data: Tensor,
    weight: Tensor,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """Return `conv2d` of NCHW data in groups, with weights [o, c / groups, kh, kw].

    >>> from tensorlang import te, topi
    >>> data, weight = te.placeholder((1, 4, 6, 6)), te.placeholder((4, 2, 3, 3))
    >>> topi.group_conv2d_nchw(data, weight, stride=1, padding=0, dilation=1, groups=2).shape
    (1, 4, 4, 4)
    """
    return conv2d(data, weight, stride, padding, dilation, "NCHW", out_dtype=out_dtype, groups=groups)


@checked
def conv2d_hwcn(
    data: Tensor,
    weight: Tensor,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """Return `conv2d` of HWCN data with HWIO weights.

    >>> import numpy as np
    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.conv2d_hwcn, np.ones((3, 3, 2, 1)), np.ones((3, 3, 2, 1))).tolist()
    [[[[18.0]]]]
    """
    return conv2d(data, weight, stride, padding, dilation, "HWCN", "HWIO", out_dtype)


@checked
def conv2d_NCHWc_int8(
    data: Tensor,
    weight: Tensor,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    layout: str = "",
    out_layout: str = "",
    out_dtype: str = "int32",
    n_elems: int = 4,
) -> Tensor:
    """Return `conv2d_NCHWc` of weights [o / p, c / b, kh, kw, b / n, p, n], in which n inputs are neighbours.

    DefinitionError for other weights than those, n being `n_elems`.

        >>> from tensorlang import te, topi
        >>> data, weight = te.placeholder((1, 2, 5, 5, 8), "uint8"), te.placeholder((3, 2, 3, 3, 2, 16, 4), "int8")
        >>> topi.nn.conv2d_NCHWc_int8(data, weight).shape
        (1, 3, 3, 3, 16)
    """
    if weight.ndim != 7 or not same(weight.shape[6], Const(n_elems, "int32")):
        raise DefinitionError(f"conv2d_NCHWc_int8 wants weights of 7 dimensions, the last of {n_elems}, got {weight}")
    outer, chunks, high, wide, inner, block, _ = weight.shape

    def element(o: Expr, c: Expr, y: Expr, x: Expr, i: Expr, p: Expr) -> Expr:
        return weight(o, c, y, x, binary("floordiv", i, n_elems), p, binary("floormod", i, n_elems))

    shape = (outer, chunks, high, wide, simplify(inner * n_elems), block)
    plain = te.compute(shape, element, name="conv2d_NCHWc_weight")
    assert isinstance(plain, Tensor)
    return conv2d_NCHWc(data, plain, stride, padding, dilation, layout, out_layout, out_dtype)


@checked
def conv2d_pack(weight: Tensor, block: int = 32, kernel_layout: str = "OIHW", name: str = "packed") -> Tensor:
    """Return weights as schedules want them, [o / block, kh, kw, c, block] (OHWI32o), for `conv2d` to be told so.

    Built once, as a kernel of its own, it takes packing out of every call. Two vectors are a good block. The last
    block is filled up with zeros; `conv2d(..., channels=)` says where it ends.

        >>> from tensorlang import te, topi
        >>> topi.conv2d_pack(te.placeholder((40, 3, 5, 5)), block=32).shape
        (2, 5, 5, 3, 32)
    """
    kernels = layout(kernel_layout, "OIHW", ("O", "I"))
    if weight.ndim != len(kernels.letters) or block < 1:
        raise DefinitionError(f"conv2d_pack wants weights of layout {kernel_layout} and a block, got {weight}, {block}")
    o, i, high, wide = (kernels.extent(weight, letter) for letter in "OIHW")

    def element(ob: Expr, y: Expr, x: Expr, c: Expr, oi: Expr) -> Expr:
        at = ob * block + oi
        value = weight(*kernels.index({"O": at, "I": c, "H": y, "W": x}))
        whole = isinstance(o, Const) and int(o.value) % block == 0
        return value if whole else te.if_then_else(at < o, value, cast(0, weight.dtype))

    blocks = simplify(binary("floordiv", o + (block - 1), block))
    result: Tensor = te.compute((blocks, high, wide, i, block), element, name=name)
    return result


def _kernel_of(images: Layout) -> str:
    """The layout of weights that goes with one of data."""
    if "C" in images.blocks:
        return f"OIHW{images.blocks['C']}i{images.blocks['C']}o"
    return "HWIO" if images.letters == "NHWC" else "OIHW"


def _output_layout(images: Layout, kernels: Layout) -> str:
    """The layout of the data; where it is blocked, with the blocks of the weights' outputs."""
    if "C" not in images.blocks:
        return images.text
    if "O" not in kernels.blocks:
        raise DefinitionError(f"data in {images.text} needs weights in blocks of outputs, not {kernels.text}")
    plain = "".join(letter for letter in images.letters if letter.isupper())
    return f"{plain}{kernels.blocks['O']}c"


def _check_dimensions(*pairs: tuple[Tensor, Layout]) -> None:
    for tensor, form in pairs:
        if tensor.ndim != len(form.letters):
            raise DefinitionError(f"conv2d wants {form.text}, which has {len(form.letters)} dimensions; got {tensor}")


def _first_of(channels: int, features: Expr, weight: Tensor) -> Expr:
    if isinstance(features, Const) and not 0 < channels <= features.value:
        raise DefinitionError(f"{weight} has {features} output channels, and {channels} of them were asked for")
    return Const(channels, "int32")


def _check_groups(data: Tensor, weight: Tensor, depth: Expr, features: Expr, inner: Expr, groups: int) -> None:
    fits = same(simplify(inner * groups), depth) and groups >= 1
    if not fits or (isinstance(features, Const) and int(features.value) % groups):
        raise DefinitionError(
            f"conv2d of {depth} channels in {groups} groups wants weights of {_share(depth, groups)} input channels, "
            f"and output channels that {groups} divides; got {inner} and {features}: {data} and {weight}"
        )


def _share(depth: Expr, groups: int) -> str:
    """The channels of a group."""
    whole = isinstance(depth, Const) and groups > 0 and depth.value % groups == 0
    return str(int(depth.value) // groups) if isinstance(depth, Const) and whole else f"{depth} / {groups}"


def _is_narrow(features: Expr, groups: int) -> bool:
    """Whether vectors of pixels are better than of channels: few outputs read the same data, or an unknown number."""
    return not isinstance(features, Const) or int(features.value) // groups <= _FEW


def _number(extent: Expr, tensor: Tensor) -> int:
    if not isinstance(extent, Const):
        raise DefinitionError(f"the windows and blocks of {tensor} must be numbers, got {extent}")
    return int(extent.value)


def _input_channels(images: Layout, depth: Expr, groups: int) -> tuple[Place, list[Axis]]:
    """The input channel of a product, and the axes of the sum that make it: two where data is in blocks."""
    block = images.blocks.get("C")
    if block is None or groups > 1:
        c = te.reduce_axis((0, simplify(binary("floordiv", depth, groups))), "rc")
        return c.var, [c]
    outer, inner = (
        te.reduce_axis((0, simplify(binary("floordiv", depth, block))), "rc"),
        te.reduce_axis((0, block), "ri"),
    )
    return Blocked(outer.var, inner.var, block), [outer, inner]


def _source(o: Place, c: Place, depth: Expr, features: Expr, groups: int) -> Place:
    """The channel of the data that an output channel reads."""
    if groups == 1 or isinstance(c, Blocked):
        return c
    flat = o.outer * o.size + o.inner if isinstance(o, Blocked) else o
    return binary("floordiv", flat, simplify(features // groups)) * simplify(depth // groups) + c


def _workload(
    n: int,
    c: int,
    h: int,
    w: int,
    o: int,
    k: int,
    dtype: str = "float32",
    stride: Pair = 1,
    padding: Padding = "SAME",
    dilation: Pair = 1,
    groups: int = 1,
    algorithm: str = "direct",
) -> list[Tensor]:
    """A window of k * k, its middle on every pixel."""
    if not isinstance(groups, int) or groups < 1 or c % groups:
        raise DefinitionError(f"conv2d has groups of equally many channels, got groups={groups} for C = {c}")
    data = te.placeholder((n, c, h, w), dtype, "data")
    weight = te.placeholder((o, c // groups, k, k), dtype, "weight")
    made = conv2d(data, weight, stride, padding, dilation, "NCHW", groups=groups, algorithm=algorithm)
    return [data, weight, made]


def conv2d_reference(
    data: Array, weight: Array, stride: Pair = 1, padding: Padding = 0, dilation: Pair = 1, groups: int = 1
) -> Array:
    """The convolution of NCHW data with OIHW weights: float64 sums for floats, wrap-around for integers."""
    down, right = windows(weight.shape[2:], stride, padding, dilation)
    exact = dtypes.info(dtypes.canonical(data.dtype)).is_float
    a, b = (x.astype(np.float64) if exact else x for x in (data, weight))
    padded = np.pad(a, ((0, 0), (0, 0), (down.before, down.after), (right.before, right.after)))
    rows, columns = ((padded.shape[2 + k] - win.reach) // win.stride + 1 for k, win in enumerate((down, right)))
    n, features = data.shape[0], weight.shape[0]
    total = np.zeros((n, groups, features // groups, rows, columns), a.dtype)
    parts = padded.reshape(n, groups, -1, *padded.shape[2:])
    factors = b.reshape(groups, features // groups, *b.shape[1:])
    for y in range(down.size):
        for x in range(right.size):
            top, left = y * down.dilation, x * right.dilation
            seen = parts[:, :, :, top :: down.stride, left :: right.stride][:, :, :, :rows, :columns]
            total += np.einsum("ngchw,goc->ngohw", seen, factors[..., y, x], optimize=True)
    return total.reshape(n, features, rows, columns).astype(data.dtype)


def _workload_reference(
    data: Array,
    weight: Array,
    stride: Pair = 1,
    padding: Padding = "SAME",
    dilation: Pair = 1,
    groups: int = 1,
    algorithm: str = "direct",
) -> list[Array]:
    return [conv2d_reference(data, weight, stride, padding, dilation, groups)]


def conv2d_numpy(
    data: Array,
    weight: Array,
    out: Array,
    stride: Pair = 1,
    padding: Padding = "SAME",
    dilation: Pair = 1,
    groups: int = 1,
    algorithm: str = "direct",
) -> None:
    """What a NumPy user writes; the competitor of the tables."""
    down, right = windows(weight.shape[2:], stride, padding, dilation)
    padded = np.pad(data, ((0, 0), (0, 0), (down.before, down.after), (right.before, right.after)))
    seen = np.lib.stride_tricks.sliding_window_view(padded, (down.reach, right.reach), axis=(2, 3))
    seen = seen[:, :, :: down.stride, :: right.stride, :: down.dilation, :: right.dilation]
    inputs, outputs = weight.shape[1], weight.shape[0] // groups
    for g in range(groups):
        part, to = seen[:, g * inputs : (g + 1) * inputs], slice(g * outputs, (g + 1) * outputs)
        out[:, to] = np.tensordot(part, weight[to], ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)


OPERATORS = (
    Operator(
        "conv2d",
        ("N", "C", "H", "W", "O", "K"),
        _workload,
        _workload_reference,
        conv2d_numpy,
        {"stride": 1, "padding": "SAME", "dilation": 1, "groups": 1, "algorithm": "direct"},
    ),
)
