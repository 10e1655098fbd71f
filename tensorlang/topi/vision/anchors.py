"""Anchors of single-shot detectors: where they are, and what boxes predictions make of them."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import extents
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed
from tensorlang.topi.vision.boxes import non_max_suppression
from tensorlang.topi.vision.front import count_of, places_in_front


@checked
def multibox_prior(
    data: Tensor,
    sizes: Sequence[float] = (1,),
    ratios: Sequence[float] = (1,),
    steps: Sequence[float] = (-1, -1),
    offsets: Sequence[float] = (0.5, 0.5),
    clip: bool = False,
    name: str = "multibox_prior",
) -> Tensor:
    """Return the anchors of a single-shot detector, [1, pixels * boxes, 4], for NCHW features `data`.

    At each pixel, whose center is `offsets` behind it, `steps` apart (below 0: as many as there are fill 1), there is a
    box of the first ratio for each of `sizes`, and one of the first size for each other ratio. Corners are left, top,
    right, bottom in shares of the image (Liu et al. 2016); `clip` brings them inside. DefinitionError without pixels
    that are numbers, sizes or ratios.

        >>> from tensorlang import te, topi
        >>> topi.vision.multibox_prior(te.placeholder((1, 8, 4, 6)), (0.2, 0.4), (1, 2, 0.5)).shape
        (1, 96, 4)
    """
    if data.ndim != 4 or not sizes or not ratios or min(ratios) <= 0 or len(steps) != 2 or len(offsets) != 2:
        raise DefinitionError(
            f"{name} wants NCHW features, sizes, ratios above 0, and two steps and offsets; got {data}, {sizes}, "
            f"{ratios}, {steps} and {offsets}"
        )
    high, wide = extents(name, data)[2:]
    gaps = [step if step > 0 else 1.0 / max(n, 1) for step, n in zip(steps, (high, wide), strict=True)]
    boxes = [(size, 1.0) for size in sizes] + [(sizes[0], ratio**0.5) for ratio in ratios[1:]]
    halves = [(size * high / max(wide, 1) * root / 2, size / root / 2) for size, root in boxes]
    count = len(boxes)

    def corner(_: Expr, number: Expr, k: Expr) -> Expr:
        pixel, box = binary("floordiv", number, count), binary("floormod", number, count)
        at = (binary("floormod", pixel, max(wide, 1)), binary("floordiv", pixel, max(wide, 1)))
        made: list[Expr] = []
        for side in (-1.0, 1.0):
            for axis in (0, 1):
                half: Expr = te.const(halves[-1][axis], "float32")
                for other in range(count - 1):
                    half = te.select(binary("eq", box, other), te.const(halves[other][axis], "float32"), half)
                center = (cast(at[axis], "float32") + offsets[1 - axis]) * gaps[1 - axis]
                made.append(center + half * side)
        value = te.select(k < 1, made[0], te.select(k < 2, made[1], te.select(k < 3, made[2], made[3])))
        return te.maximum(te.minimum(value, te.const(1, "float32")), te.const(0, "float32")) if clip else value

    return computed((1, high * wide * count, 4), corner, name)


@checked
def multibox_transform_loc(
    cls_prob: Tensor,
    loc_pred: Tensor,
    anchor: Tensor,
    clip: bool = True,
    threshold: float = 0.01,
    variances: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    name: str = "multibox_transform_loc",
) -> list[Tensor]:
    """Return the boxes that predictions make of anchors, [images, anchors, 6], and how many there are, int32[images].

    `cls_prob` [images, classes, anchors], whose class 0 is the background; `loc_pred` [images, anchors * 4], `anchor`
    [1, anchors, 4]. A box is class (from 0 on, without the background), score, left, top, right, bottom; those whose
    score is below `threshold` are left out, and -1 is behind the others. `clip` brings corners inside of 0 and 1.
    DefinitionError for other shapes.

        >>> from tensorlang import te, topi
        >>> scores, moves, anchors = map(te.placeholder, [(1, 3, 8), (1, 32), (1, 8, 4)])
        >>> [x.shape for x in topi.vision.multibox_transform_loc(scores, moves, anchors)]
        [(1, 8, 6), (1,)]
    """
    shape = extents(name, cls_prob)
    fits = len(shape) == 3 and extents(name, loc_pred) == (shape[0], shape[2] * 4) and shape[1] > 1
    if not fits or extents(name, anchor) != (1, shape[2], 4) or len(variances) != 4:
        wanted = "class probabilities [images, classes, anchors], predictions [images, anchors * 4] and anchors"
        raise DefinitionError(f"{name} wants {wanted}; got {cls_prob}, {loc_pred} and {anchor}")
    if len({x.dtype for x in (cls_prob, loc_pred, anchor)}) > 1 or not dtypes.info(anchor.dtype).is_float:
        raise DefinitionError(f"{name} wants floats of one dtype, got {cls_prob}, {loc_pred} and {anchor}")
    images, classes, anchors = shape
    k, dtype = te.reduce_axis((1, classes), "k"), anchor.dtype
    score = computed((images, anchors), lambda b, j: te.max(cls_prob(b, k, j), axis=k), f"{name}_score")
    c = te.reduce_axis((1, classes), "c")
    best = computed(
        (images, anchors),
        lambda b, j: te.min(
            te.select(binary("ge", cls_prob(b, c, j), score(b, j)), cast(c.var, "int32"), classes), axis=c
        ),
        f"{name}_class",
    )
    good = computed(
        (images, anchors), lambda b, j: binary("ge", score(b, j), te.const(threshold, dtype)), f"{name}_some"
    )
    places = places_in_front(good, f"{name}_front")

    def element(b: Expr, j: Expr, word: Expr) -> Expr:
        at = te.maximum(places(b, j), 0)
        made = [cast(best(b, at) - 1, dtype), score(b, at), *_corners(b, at, loc_pred, anchor, variances, clip)]
        value = made[-1]
        for number in reversed(range(5)):
            value = te.select(binary("eq", word, number), made[number], value)
        return te.if_then_else(binary("ge", places(b, j), 0), value, te.const(-1, dtype))

    return [computed((images, anchors, 6), element, name), count_of(good, f"{name}_count")]


def _corners(b: Expr, j: Expr, loc_pred: Tensor, anchor: Tensor, variances: Sequence[float], clip: bool) -> list[Expr]:
    """Left, top, right and bottom of the box that a prediction makes of an anchor."""
    found: list[list[Expr]] = [[], []]
    for axis in (0, 1):
        low, high = anchor(0, j, axis), anchor(0, j, axis + 2)
        center = loc_pred(b, j * 4 + axis) * variances[axis] * (high - low) + (low + high) / 2
        half = te.exp(loc_pred(b, j * 4 + axis + 2) * variances[axis + 2]) * (high - low) / 2
        for side, value in enumerate((center - half, center + half)):
            inside = te.maximum(te.minimum(value, te.const(1, value.dtype)), te.const(0, value.dtype))
            found[side].append(inside if clip else value)
    return [*found[0], *found[1]]


@checked
def multibox_detection(
    cls_prob: Tensor,
    loc_pred: Tensor,
    anchor: Tensor,
    clip: bool = True,
    threshold: float = 0.01,
    nms_threshold: float = 0.5,
    force_suppress: bool = False,
    variances: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    nms_topk: int = -1,
    name: str = "multibox_detection",
) -> Tensor:
    """Return the boxes of `multibox_transform_loc` that `non_max_suppression` keeps, [images, anchors, 6], else -1.

    >>> from tensorlang import te, topi
    >>> scores, moves, anchors = map(te.placeholder, [(1, 3, 8), (1, 32), (1, 8, 4)])
    >>> topi.vision.multibox_detection(scores, moves, anchors).shape
    (1, 8, 6)
    """
    boxes, count = multibox_transform_loc(cls_prob, loc_pred, anchor, clip, threshold, variances, f"{name}_boxes")
    made = non_max_suppression(
        boxes, count, count, -1, nms_threshold, force_suppress, nms_topk, return_indices=False, name=name
    )
    assert isinstance(made, Tensor)
    return made
