"""Windows that slide over images: convolutions and pooling. Images have their channels last in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tensorlang import te, topi
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.networks.integers import Factors, Quantized, factors_of
from tensorlang.networks.network import Value
from tensorlang.networks.node import Node, Rule, shape_of
from tensorlang.networks.onnx.pools import global_norm, pooled, slices, windows_of
from tensorlang.networks.onnx.zeros import less, less_zero, scaled
from tensorlang.networks.places import reshaped
from tensorlang.networks.refusal import Unsupported
from tensorlang.te.operation import Tensor
from tensorlang.topi.convolution import Phases, check_results, spread


def _sides(
    node: Node, spatial: Sequence[int], kernel: Sequence[int], steps: Sequence[int], gaps: Sequence[int]
) -> list[int]:
    """Padding in front of each spatial dimension, then behind each."""
    how = node.attrs.get("auto_pad", "NOTSET")
    if how in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            max(0, (-(-n // s) - 1) * s + (k - 1) * g + 1 - n)
            for n, k, s, g in zip(spatial, kernel, steps, gaps, strict=True)
        ]
        less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
        return [*less, *more] if how == "SAME_UPPER" else [*more, *less]
    found = (
        [0] * (2 * len(spatial)) if how == "VALID" else [int(n) for n in node.attrs.get("pads", [0] * 2 * len(spatial))]
    )
    if min(found) < 0:
        raise Unsupported(f"{node.op} with negative padding {found}")
    return found


def _images(node: Node, tensor: Tensor, spatial: Sequence[int]) -> Tensor:
    """Data over one or two spatial dimensions as images, channels last."""
    n, c, *_ = shape_of(tensor)
    plain = tensor if len(spatial) == 2 else reshaped(tensor, (n, c, 1, spatial[0]), f"{node.stage}_image")
    return topi.transpose(plain, (0, 2, 3, 1), f"{node.stage}_in")


def _from_images(node: Node, images: Tensor, dims: int) -> Tensor:
    made = topi.transpose(images, (0, 3, 1, 2), f"{node.stage}_out")
    n, c, _, w = shape_of(made)
    return made if dims == 2 else reshaped(made, (n, c, w), f"{node.stage}_line")


def _windows(node: Node, spatial: Sequence[int], kernel: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Strides, dilations, and padding (top, left, bottom, right) for images; a line is an image of one row."""
    dims = len(spatial)
    if dims not in (1, 2):
        raise Unsupported(f"{node.op} over {dims} spatial dimensions; one and two are taken")
    steps, gaps = ([int(n) for n in node.attrs.get(w, [1] * dims)] for w in ("strides", "dilations"))
    sides = _sides(node, spatial, kernel, steps, gaps)
    if dims == 1:
        return [1, *steps], [1, *gaps], [0, sides[0], 0, sides[1]]
    return steps, gaps, sides


def _conv(node: Node) -> Value:
    if len(node.shape(0)) == 5:
        return _volumes_convolved(node)
    factors = factors_of(node.meaning(0), node.meaning(1), 0)
    if factors is None:
        made = _images_convolved(node, node.tensor(0), node.value(1))
    else:
        made = scaled(node, _sums(node, factors), factors.scale)
    if node.has(2):
        made = _with_bias(node, made)
    return _from_images(node, made, len(node.shape(0)) - 2)


def _volumes_convolved(node: Node) -> Value:
    """The convolution of volumes, as one of images that have the slices of a window as their channels."""
    data, (n, _, *extents) = node.tensor(0), node.shape(0)
    o, i, *kernel = node.shape(1)
    groups, weight = int(node.attrs.get("group", 1)), node.value(1)
    steps, gaps = ([int(v) for v in node.attrs.get(word, [1] * 3)] for word in ("strides", "dilations"))
    sides = _sides(node, extents, kernel, steps, gaps)
    count = windows_of(extents, kernel, steps, gaps, sides, False)[0]
    depth = count, kernel[0], steps[0], gaps[0], sides[0]
    images = slices(data, node.shape(0), groups, depth, f"{node.stage}_in")
    if isinstance(weight, Tensor):
        laid = topi.transpose(weight, (3, 4, 2, 1, 0), f"{node.stage}_laid")
        laid = reshaped(laid, (*kernel[1:], kernel[0] * i, o), f"{node.stage}_weight")
    else:
        laid = node.weights.tensor(weight.transpose(3, 4, 2, 1, 0).reshape(*kernel[1:], kernel[0] * i, o))
    around = [sides[1], sides[2], sides[4], sides[5]]
    made = topi.conv2d(images, laid, steps[1:], around, gaps[1:], "NHWC", "HWIO", None, groups, name=node.stage)
    if node.has(2):
        made = _with_bias(node, made)
    _, high, wide, _ = shape_of(made)
    whole: Tensor = te.compute(
        (n, o, count, high, wide), lambda b, k, z, y, x: made(b * count + z, y, x, k), name=f"{node.stage}_out"
    )
    return whole


def integer_convolution(node: Node, a: Quantized, b: Quantized) -> Tensor:
    """The convolution of integers, each less its zero, as int32; padding is zeros."""
    factors = factors_of(a, b, 0)
    if factors is None:
        made = _images_convolved(node, less_zero(node, a, 1, "data"), less_zero(node, b, 0, "weight"))
    else:
        made = _sums(node, factors)
    return _from_images(node, made, len(shape_of(a.data)) - 2)


def _sums(node: Node, factors: Factors) -> Tensor:
    """The convolution of data and weights, both less their zeros, as images."""
    sums = _images_convolved(node, factors.data, factors.weight, "int32", factors.zero)
    return less(node, sums, factors.zero, factors.totals(0))


def _images_convolved(
    node: Node, data: Tensor, weight: Value, dtype: str | None = None, padding: int | Tensor | None = None
) -> Tensor:
    """The convolution of a node as images, with sums of a dtype, that of the data unless given.

    With a number as `padding` that lies around the data; else padding adds nothing to the sums.
    """
    _, c, *spatial = shape_of(data)
    o, i, *kernel = shape_of(weight)
    groups = int(node.attrs.get("group", 1))
    steps, gaps, sides = _windows(node, spatial, kernel)
    if groups == 1 and {*spatial, *kernel} == {1} and not any(sides):
        return _pixels_multiplied(node, data, weight, dtype)
    images = _images(node, data, spatial)
    if any(sides) and padding is not None:
        images, sides = _framed(node, images, sides, padding), [0] * 4
    high, wide = kernel if len(kernel) == 2 else (1, kernel[0])
    if groups == c and i == 1 and c > 1:
        laid = _laid_out(node, weight, (c, o // c, high, wide), (2, 3, 0, 1))
        return topi.depthwise_conv2d_nhwc(images, laid, steps, sides, gaps, out_dtype=dtype, name=node.stage)
    laid = _laid_out(node, weight, (o, i, high, wide), (2, 3, 1, 0))
    return topi.conv2d(images, laid, steps, sides, gaps, "NHWC", "HWIO", dtype, groups, name=node.stage)


def _pixels_multiplied(node: Node, data: Tensor, weight: Value, dtype: str | None) -> Tensor:
    """The convolution of images of one pixel: a product of matrices."""
    (n, c, *_), o = shape_of(data), shape_of(weight)[0]
    columns = reshaped(_laid_out(node, weight, (o, c, 1, 1), (2, 3, 1, 0)), (c, o), f"{node.stage}_columns")
    product = topi.matmul(reshaped(data, (n, c), f"{node.stage}_rows"), columns, out_dtype=dtype, name=node.stage)
    return reshaped(product, (n, 1, 1, o), f"{node.stage}_pixel")


def _framed(node: Node, images: Tensor, sides: Sequence[int], number: int | Tensor) -> Tensor:
    """Images with a number around them."""
    before, after = [0, *sides[:2], 0], [0, *sides[2:], 0]
    if not isinstance(number, Tensor):
        return topi.pad(images, before, after, number, f"{node.stage}_pad")
    shape = shape_of(images)

    def element(*index: Expr) -> Expr:
        at = [i - n for i, n in zip(index, before, strict=True)]
        inside = [test for i, n in zip(at[1:3], shape[1:3], strict=True) for test in (i >= 0, i < n)]
        return te.if_then_else(te.all(*inside), images(*at), cast(number(), images.dtype))

    extents = [n + b + a for n, b, a in zip(shape, before, after, strict=True)]
    made: Tensor = te.compute(tuple(extents), element, name=f"{node.stage}_pad")
    return made


def _laid_out(node: Node, weight: Value, shape: tuple[int, ...], order: tuple[int, ...]) -> Tensor:
    """Weights with their dimensions in another order: ahead, where they are known."""
    if not isinstance(weight, Tensor):
        return node.weights.tensor(weight.reshape(shape).transpose(order))
    return topi.transpose(reshaped(weight, shape, f"{node.stage}_weight"), order, f"{node.stage}_laid")


def _with_bias(node: Node, images: Tensor) -> Tensor:
    bias = node.tensor(2)
    made: Tensor = te.compute(images.shape, lambda *i: images(*i) + bias(i[-1]), name=f"{node.stage}_bias")
    return made


def _conv_transpose(node: Node) -> Value:
    data, weight = node.tensor(0), node.tensor(1)
    spatial, kernel = shape_of(data)[2:], shape_of(weight)[2:]
    dims, groups = len(spatial), int(node.attrs.get("group", 1))
    steps, gaps, extra = (
        [int(v) for v in node.attrs.get(w, [usual] * dims)]
        for w, usual in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    sides = _transposed_sides(node, spatial, kernel, steps, gaps, extra)
    over = [Phases(*each) for each in zip(kernel, steps, sides[:dims], sides[dims:], extra, strict=True)]
    check_results(node.op, data, [replace(w, kernel=(w.kernel - 1) * g + 1) for w, g in zip(over, gaps, strict=True)])
    if gaps == [1] * dims:
        made = spread(node.stage, data, weight, over, groups)
    else:
        made = _spread_apart(node, data, weight, over, gaps, groups)
    if not node.has(2):
        return made
    bias = node.tensor(2)
    whole: Tensor = te.compute(made.shape, lambda *i: made(*i) + bias(i[1]), name=f"{node.stage}_bias")
    return whole


def _spread_apart(
    node: Node, data: Tensor, weight: Tensor, over: Sequence[Phases], gaps: Sequence[int], groups: int
) -> Tensor:
    """Data spread by weights that are `gaps` apart: windows over what is between are told by a condition."""
    (n, c, *spatial), per = shape_of(data), shape_of(weight)[1]
    sizes = [
        w.stride * (h - 1) + w.more + (w.kernel - 1) * g + 1 - w.before - w.after
        for h, w, g in zip(spatial, over, gaps, strict=True)
    ]
    rc = te.reduce_axis((0, c // groups), "rc")
    axes = [te.reduce_axis((0, w.kernel), f"r{d}") for d, w in enumerate(over)]

    def element(*index: Expr) -> Any:
        b, o, *at = index
        places, inside = [], []
        for v, k, w, g, extent in zip(at, axes, over, gaps, spatial, strict=True):
            reach = v + w.before - k * g
            place = binary("floordiv", reach, w.stride)
            places.append(place)
            inside += [binary("ge", reach, 0), binary("lt", place, extent)]
            inside += [binary("eq", binary("floormod", reach, w.stride), 0)] * (w.stride > 1)
        part = binary("floordiv", o, per)
        channel = part * (c // groups) + rc if groups > 1 else rc.var
        factor = weight(channel, binary("floormod", o, per) if groups > 1 else o, *axes)
        return te.sum(data(b, channel, *places) * factor, axis=[rc, *axes], where=te.all(*inside))

    return node.compute((n, per * groups, *sizes), element)


def _transposed_sides(
    node: Node,
    spatial: Sequence[int],
    kernel: Sequence[int],
    steps: Sequence[int],
    gaps: Sequence[int],
    extra: Sequence[int],
) -> list[int]:
    """What is cut off in front of each dimension, then behind each; below 0 zeros are added."""
    how, wanted = node.attrs.get("auto_pad", "NOTSET"), node.attrs.get("output_shape")
    if wanted is None and how not in ("SAME_UPPER", "SAME_LOWER"):
        return (
            [0] * (2 * len(spatial))
            if how == "VALID"
            else [int(v) for v in node.attrs.get("pads", [0] * 2 * len(spatial))]
        )
    sizes = [n * s for n, s in zip(spatial, steps, strict=True)] if wanted is None else [int(n) for n in wanted]
    totals = [
        s * (n - 1) + e + (k - 1) * g + 1 - size
        for n, k, s, g, e, size in zip(spatial, kernel, steps, gaps, extra, sizes[-len(spatial) :], strict=True)
    ]
    less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return [*less, *more] if how == "SAME_UPPER" else [*more, *less]


def _pool(kind: str) -> Rule:
    def rule(node: Node) -> Value:
        if node.outputs > 1:
            raise Unsupported(f"{node.op} with places of the largest")
        data = node.tensor(0)
        _, _, *spatial = shape_of(data)
        kernel = [int(k) for k in node.attrs["kernel_shape"]]
        counted = bool(node.attrs.get("count_include_pad"))
        if len(spatial) > 2 or (counted and kind == "avg" and node.attrs.get("ceil_mode")):
            return pooled(node, kind, kernel, *_steps(node, spatial, kernel))
        steps, gaps, sides = _windows(node, spatial, kernel)
        size = kernel if len(kernel) == 2 else [1, *kernel]
        if node.attrs.get("ceil_mode"):
            sides = _with_last_windows([1, *spatial][-2:], size, steps, gaps, sides)
        images = _images(node, data, spatial)
        made = topi.pool2d(images, size, steps, gaps, sides, kind, False, "NHWC", counted, name=node.stage)
        return _from_images(node, made, len(spatial))

    return rule


def _with_last_windows(
    spatial: Sequence[int], size: Sequence[int], steps: Sequence[int], gaps: Sequence[int], sides: Sequence[int]
) -> list[int]:
    """Padding so that windows reach beyond it at the end, but none begins there."""
    found = list(sides)
    counts = windows_of(spatial, size, steps, gaps, sides, True)
    for d, (n, k, s, g, count) in enumerate(zip(spatial, size, steps, gaps, counts, strict=True)):
        found[d + 2] = max(0, (count - 1) * s + (k - 1) * g + 1 - n - sides[d])
    return found


def _lp_pool(node: Node) -> Value:
    _, _, *spatial = node.shape(0)
    kernel = [int(k) for k in node.attrs["kernel_shape"]]
    return pooled(node, "lp", kernel, *_steps(node, spatial, kernel), int(node.attrs.get("p", 2)))


def _steps(node: Node, spatial: Sequence[int], kernel: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Strides, dilations and padding over any number of dimensions."""
    steps, gaps = ([int(n) for n in node.attrs.get(w, [1] * len(kernel))] for w in ("strides", "dilations"))
    return steps, gaps, _sides(node, spatial, kernel, steps, gaps)


def _global(kind: str) -> Rule:
    def rule(node: Node) -> Value:
        axes = list(range(2, len(node.shape(0))))
        reduction = topi.max if kind == "max" else topi.mean
        return reduction(node.tensor(0), axes, keepdims=True, name=node.stage)

    return rule


def _lrn(node: Node) -> Value:
    data, shape = node.tensor(0), node.shape(0)
    size = int(node.attrs["size"])
    alpha, beta, bias = (
        float(node.attrs.get(name, usual)) for name, usual in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    k, low = te.reduce_axis((0, size), "rc"), (size - 1) // 2

    def squares(n: Expr, c: Expr, *rest: Expr) -> Any:
        at = c + k - low
        value = data(n, at, *rest)
        return te.sum(value * value, axis=k, where=te.all(binary("ge", at, 0), binary("lt", at, shape[1])))

    total: Tensor = te.compute(tuple(shape), squares, name=f"{node.stage}_squares")
    dtype = data.dtype

    def element(*i: Expr) -> Expr:
        spread = total(*i) * te.const(alpha / size, dtype) + te.const(bias, dtype)
        if beta == 0.75:  # a power is slow: x ** 0.75 = sqrt(x) * sqrt(sqrt(x))
            root = te.sqrt(spread)
            return data(*i) / (root * te.sqrt(root))
        return data(*i) / te.pow(spread, te.const(beta, dtype))

    return node.compute(shape, element)


RULES: dict[str, Rule] = {
    "AveragePool": _pool("avg"),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "GlobalAveragePool": _global("avg"),
    "GlobalLpPool": global_norm,
    "GlobalMaxPool": _global("max"),
    "LRN": _lrn,
    "LpPool": _lp_pool,
    "MaxPool": _pool("max"),
}
