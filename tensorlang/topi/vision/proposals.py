"""Boxes that a region proposal network suggests: anchors moved by what it says, best ones first (Ren et al. 2015)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import extents
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed
from tensorlang.topi.sort import argsort


@checked
def proposal(
    cls_prob: Tensor,
    bbox_pred: Tensor,
    im_info: Tensor,
    scales: Sequence[float],
    ratios: Sequence[float],
    feature_stride: int,
    threshold: float,
    rpn_pre_nms_top_n: int,
    rpn_post_nms_top_n: int,
    rpn_min_size: int,
    iou_loss: bool = False,
    name: str = "proposal",
) -> Tensor:
    """Return boxes [n * rpn_post_nms_top_n, 5] of image, left, top, right, bottom: the best that overlap no better one.

    `cls_prob` [n, 2 * anchors, h, w] are probabilities of background and of objects, `bbox_pred` [n, 4 * anchors, h, w]
    the moves of anchors: of centres in shares of sizes and logarithms of sizes, or of corners (`iou_loss`). Anchors are
    `len(ratios) * len(scales)` to a pixel, `feature_stride` apart. `im_info` [n, 3]: height, width and scale of images;
    boxes end there, and those below `rpn_min_size` times the scale, which grow by half of that on each side, and of
    pixels beyond the image come last. Of the `rpn_pre_nms_top_n` best (below 1:
    all) those remain that share at most `threshold` with a better one; where they are fewer than wanted, they are
    repeated. DefinitionError for other shapes and dtypes than float32.

        >>> from tensorlang import te, topi
        >>> shapes = (1, 18, 14, 14), (1, 36, 14, 14), (1, 3)
        >>> inputs = [te.placeholder(shape) for shape in shapes]
        >>> topi.vision.rcnn.proposal(*inputs, [8, 16, 32], [0.5, 1, 2], 16, 0.7, 200, 50, 16).shape
        (50, 5)
    """
    anchors = [_anchor(ratio, scale, feature_stride) for ratio in ratios for scale in scales]
    shape = extents(name, cls_prob) if cls_prob.ndim == 4 else (0, 0, 0, 0)
    n, _, high, wide = shape
    fits = shape[1] == 2 * len(anchors) > 0 and extents(name, bbox_pred) == (n, 4 * len(anchors), high, wide)
    if not fits or extents(name, im_info) != (n, 3) or {x.dtype for x in (cls_prob, bbox_pred, im_info)} != {"float32"}:
        raise DefinitionError(
            f"{name} wants float32 of [n, 2 * anchors, h, w], [n, 4 * anchors, h, w] and [n, 3], of {len(anchors)} "
            f"anchors; got {cls_prob}, {bbox_pred} and {im_info}"
        )
    every = high * wide * len(anchors)
    best = min(rpn_pre_nms_top_n, every) if rpn_pre_nms_top_n > 0 else every
    boxes = _boxes(cls_prob, bbox_pred, im_info, anchors, (feature_stride, rpn_min_size, iou_loss), name)
    scores = computed((n, every), lambda b, j: boxes(b, j, 4), f"{name}_scores")
    order = argsort(scores, axis=1, is_ascend=False, dtype="int32", name=f"{name}_order")
    ranked = computed((n, best, 5), lambda b, j, k: boxes(b, order(b, j), k), f"{name}_ranked")
    chosen = _chosen(ranked, threshold, rpn_post_nms_top_n, name)
    many = max(rpn_post_nms_top_n, 1)

    def element(row: Expr, k: Expr) -> Expr:
        b, at = binary("floordiv", row, many), chosen(binary("floordiv", row, many), binary("floormod", row, many))
        corner = ranked(b, te.maximum(te.minimum(at, best - 1), 0), te.maximum(k - 1, 0))
        found = te.if_then_else(k < 1, cast(b, "float32"), corner)
        return te.if_then_else(binary("ge", at, 0), found, te.const(0, "float32"))

    return computed((n * rpn_post_nms_top_n, 5), element, name)


def _anchor(ratio: float, scale: float, base: int) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of the anchor of the first pixel: about its middle, of whole sides before scaling."""
    middle = 0.5 * (base - 1)
    side = math.floor(math.sqrt(math.floor(base * base / ratio)) + 0.5)
    half_wide, half_high = (0.5 * (size * scale - 1) for size in (side, math.floor(side * ratio + 0.5)))
    return middle - half_wide, middle - half_high, middle + half_wide, middle + half_high


def _boxes(
    cls_prob: Tensor,
    bbox_pred: Tensor,
    im_info: Tensor,
    anchors: Sequence[Sequence[float]],
    how: tuple[int, int, bool],
    name: str,
) -> Tensor:
    """The moved anchors [n, h * w * anchors, 5] inside of their images, with scores: -1 of small ones, and outside."""
    n, _, high, wide = extents(name, cls_prob)
    (stride, least, corners), count = how, len(anchors)

    def table(k: Expr, side: Expr) -> Expr:
        made: Expr = te.const(0, "float32")
        for number, anchor in enumerate(anchors):
            for where, value in enumerate(anchor):
                made = te.select(binary("eq", k, number) & binary("eq", side, where), te.const(value, "float32"), made)
        return made

    sides = computed((count, 4), table, f"{name}_anchors")

    def moved(b: Expr, j: Expr, side: Expr) -> Expr:
        k, pixel = binary("floormod", j, count), binary("floordiv", j, count)
        y, x = binary("floordiv", pixel, max(wide, 1)), binary("floormod", pixel, max(wide, 1))
        along = binary("floormod", side, 2)
        shift = cast(te.select(along < 1, x, y) * stride, "float32")
        first, last = (sides(k, along + 2 * end) + shift for end in (0, 1))
        delta, grow = (bbox_pred(b, k * 4 + along + 2 * end, y, x) for end in (0, 1))
        if corners:
            raw = te.select(side < 2, first + delta, last + grow)
        else:
            size = last - first + 1.0
            middle, half = delta * size + (first + 0.5 * (size - 1.0)), 0.5 * (te.exp(grow) * size - 1.0)
            raw = te.select(side < 2, middle - half, middle + half)
        return te.maximum(te.minimum(raw, im_info(b, 1 - along) - 1.0), 0.0)

    inside = computed((n, high * wide * count, 4), moved, f"{name}_inside")

    def scored(b: Expr, j: Expr, k: Expr) -> Expr:
        anchor, pixel = binary("floormod", j, count), binary("floordiv", j, count)
        y, x = binary("floordiv", pixel, max(wide, 1)), binary("floormod", pixel, max(wide, 1))
        low = te.const(least, "float32") * im_info(b, 2)
        small = te.any(*(inside(b, j, d + 2) - inside(b, j, d) + 1.0 < low for d in (0, 1)))
        beyond = te.any(*(v >= cast(im_info(b, d) / float(stride), "int32") for d, v in enumerate((y, x))))
        score = te.select(te.any(small, beyond), te.const(-1, "float32"), cls_prob(b, anchor + count, y, x))
        grown = te.select(k < 2, -0.5, 0.5) * te.select(small, low, te.const(0, "float32"))
        return te.if_then_else(k < 4, inside(b, j, te.minimum(k, 3)) + grown, score)

    return computed((n, high * wide * count, 5), scored, f"{name}_boxes")


def _chosen(ranked: Tensor, threshold: float, wanted: int, name: str) -> Tensor:
    """The places of boxes in order that share too little with better ones, int32[n, wanted], from the front again."""
    images, n, _ = extents(name, ranked)

    def chosen(ranked):  # type: ignore[no-untyped-def]
        made = te.output_tensor((images, wanted), "int32")
        gone = te.output_tensor((images, n), "int32")
        for b in range(images):
            count = te.allocate((1,), "int32", "local")
            count[0] = 0
            for j in range(wanted):
                made[b, j] = -1
            for j in range(n):
                gone[b, j] = 0
            for j in range(n):
                if gone[b, j] == 0:
                    if count[0] < wanted:
                        made[b, min(max(count[0], 0), wanted - 1)] = j
                    count[0] = count[0] + 1
                    for k in range(j + 1, n):
                        wide = min(ranked[b, j, 2], ranked[b, k, 2]) - max(ranked[b, j, 0], ranked[b, k, 0]) + 1.0
                        high = min(ranked[b, j, 3], ranked[b, k, 3]) - max(ranked[b, j, 1], ranked[b, k, 1]) + 1.0
                        both = max(wide, te.const(0, "float32")) * max(high, te.const(0, "float32"))
                        one = (ranked[b, j, 2] - ranked[b, j, 0] + 1.0) * (ranked[b, j, 3] - ranked[b, j, 1] + 1.0)
                        other = (ranked[b, k, 2] - ranked[b, k, 0] + 1.0) * (ranked[b, k, 3] - ranked[b, k, 1] + 1.0)
                        if both / (one + other - both) > threshold:
                            gone[b, k] = 1
        return made, gone

    made, gone = te.hybrid.script(name=f"{name}_chosen")(chosen)(ranked)
    kept = te.reduce_axis((0, n), "j")
    found = computed((images,), lambda b: te.sum(1 - gone(b, kept), axis=kept), f"{name}_found")
    return computed(
        (images, wanted),
        lambda b, j: made(b, binary("floormod", j, te.maximum(te.minimum(found(b), wanted), 1))),
        f"{name}_repeated",
    )
