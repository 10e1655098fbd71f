"""Boxes with scores: those above a threshold, and those that overlap no better one."""

from __future__ import annotations

from tensorlang import dtypes, te
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import extents, within
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed
from tensorlang.topi.sort import argsort
from tensorlang.topi.transform import reshape
from tensorlang.topi.vision.front import count_of, places_in_front, rows_at


@checked
def get_valid_counts(
    data: Tensor, score_threshold: float = 0, id_index: int = 0, score_index: int = 1, name: str = "get_valid_counts"
) -> list[Tensor]:
    """Return how many boxes of each image have a score above a threshold, these boxes in front, and where they were.

    `data` are boxes [images, n, elements] of floats; with an `id_index` from 0 on, boxes whose element there is below 0
    do not count. Returns int32[images], boxes in the shape of `data` and int32[images, n], both -1 behind the ones that
    count. DefinitionError for other shapes and indices.

        >>> from tensorlang import te, topi
        >>> [x.shape for x in topi.vision.get_valid_counts(te.placeholder((2, 100, 6)), 0.5)]
        [(2,), (2, 100, 6), (2, 100)]
    """
    images, n, _ = _boxes(name, data, id_index, score_index, None)

    def good(b: Expr, j: Expr) -> Expr:
        above = binary("gt", data(b, j, score_index), te.const(score_threshold, data.dtype))
        return above if id_index < 0 else above & binary("ge", data(b, j, id_index), te.const(0, data.dtype))

    wanted = computed((images, n), good, f"{name}_wanted")
    places = places_in_front(wanted, f"{name}_indices")
    return [count_of(wanted, f"{name}_count"), rows_at(data, places, f"{name}_boxes"), places]


@checked
def non_max_suppression(
    data: Tensor,
    valid_count: Tensor,
    indices: Tensor,
    max_output_size: int = -1,
    iou_threshold: float = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
    name: str = "non_max_suppression",
) -> Tensor | list[Tensor]:
    """Return the boxes, best ones first, that do not overlap a better one that is kept.

    The first `valid_count[image]` boxes of `data` [images, n, elements] count, of those the `top_k` best (below 1:
    all), and at most `max_output_size` are kept (below 0: all). Corners are four elements from `coord_start` on. Two
    boxes overlap when their intersection is at least `iou_threshold` of their union and their elements at `id_index`
    are equal (`force_suppress`, or no `id_index`: all classes). With an `iou_threshold` of 0 all are kept as they are.

    With `return_indices`: `[places, counts]`, int32[images, n] from `indices` (as get_valid_counts returns them), -1
    behind the kept ones, and int32[images, 1]. Without: the boxes, sorted, with -1 in place of those that were left
    out, or behind the others (`invalid_to_bottom`). DefinitionError for other shapes, dtypes and indices.

        >>> from tensorlang import te, topi
        >>> count, boxes, at = topi.vision.get_valid_counts(te.placeholder((2, 100, 6)), 0.5)
        >>> [x.shape for x in topi.vision.non_max_suppression(boxes, count, at)]
        [(2, 100), (2, 1)]
    """
    images, n, _ = _boxes(name, data, id_index, score_index, coord_start)
    fits = extents(name, valid_count) == (images,) and (not return_indices or extents(name, indices) == (images, n))
    if not fits or not all(dtypes.info(x.dtype).is_integer for x in (valid_count, indices)):
        wanted = f"integers for {images} images, and a place for each of {n} boxes"
        raise DefinitionError(f"{name} of {data} wants {wanted}; got {valid_count} and {indices}")
    how = _How(max_output_size, iou_threshold, force_suppress, top_k, coord_start, score_index, id_index)
    kept = _kept_of_first(data, valid_count, how, name)
    if not return_indices and not invalid_to_bottom:
        return rows_at(data, kept, name)
    good = computed((images, n), lambda b, j: binary("ge", kept(b, j), 0), f"{name}_good")
    order = places_in_front(good, f"{name}_front")

    def place(b: Expr, j: Expr) -> Expr:
        own = te.maximum(te.minimum(kept(b, te.maximum(order(b, j), 0)), n - 1), 0)
        found = own if invalid_to_bottom and not return_indices else cast(indices(b, own), "int32")
        return te.if_then_else(binary("ge", order(b, j), 0), found, -1)

    places = computed((images, n), place, f"{name}_places")
    if not return_indices:
        return rows_at(data, places, name)
    count = count_of(good, f"{name}_count")
    return [places, computed((images, 1), lambda b, _: count(b), f"{name}_counts")]


@checked
def all_class_non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    max_output_boxes_per_class: int,
    iou_threshold: float,
    score_threshold: float,
    output_format: str = "onnx",
    name: str = "all_class_non_max_suppression",
) -> list[Tensor]:
    """Return which boxes of which class overlap no better one of that class, as ONNX's NonMaxSuppression selects them.

    `boxes` [images, n, 4] are two corners, `scores` [images, classes, n]. Two boxes overlap when their intersection is
    more than `iou_threshold` of their union; scores are above `score_threshold`. Returns int64[images * classes * n, 3]
    of image, class and box, -1 behind the selected ones, and their number int64[1]. `output_format` is "onnx".
    DefinitionError for other shapes.

        >>> from tensorlang import te, topi
        >>> boxes, scores = te.placeholder((1, 6, 4)), te.placeholder((1, 2, 6))
        >>> [x.shape for x in topi.vision.all_class_non_max_suppression(boxes, scores, 3, 0.5, 0.1)]
        [(12, 3), (1,)]
    """
    if output_format != "onnx" or boxes.ndim != 3 or scores.ndim != 3 or boxes.dtype != scores.dtype:
        raise DefinitionError(f"{name} wants boxes [images, n, 4], scores [images, classes, n] and the format onnx")
    (images, n, corners), (_, classes, _) = extents(name, boxes), extents(name, scores)
    if corners != 4 or extents(name, scores) != (images, classes, n) or not dtypes.info(boxes.dtype).is_float:
        raise DefinitionError(f"{name} wants boxes [images, n, 4] and scores [images, classes, n] of floats")
    rows, each = images * classes, max(n, 1)
    flat = reshape(scores, (rows, n), f"{name}_flat")
    good = computed(
        (rows, n), lambda r, j: binary("gt", flat(r, j), te.const(score_threshold, scores.dtype)), f"{name}_above"
    )

    def element(r: Expr, j: Expr, k: Expr) -> Expr:
        corner = boxes(binary("floordiv", r, max(classes, 1)), j, te.maximum(k - 1, 0))
        return te.if_then_else(k < 1, flat(r, j), corner)

    data = computed((rows, n, 5), element, f"{name}_data")
    how = _How(max_output_boxes_per_class, iou_threshold, True, -1, 1, 0, -1, exactly=False)
    kept = _kept(data, _best_first(flat, name), count_of(good, f"{name}_number"), how, f"{name}_kept")
    found = reshape(computed((rows, n), lambda r, j: binary("ge", kept(r, j), 0), f"{name}_good"), (1, rows * n))
    order = places_in_front(found, f"{name}_front")

    def selected(j: Expr, k: Expr) -> Expr:
        at = te.maximum(order(0, j), 0)
        row, box = binary("floordiv", at, each), kept(binary("floordiv", at, each), binary("floormod", at, each))
        image, of_class = binary("floordiv", row, max(classes, 1)), binary("floormod", row, max(classes, 1))
        number = te.select(k < 1, image, te.select(k < 2, of_class, box))
        return te.if_then_else(binary("ge", order(0, j), 0), cast(number, "int64"), te.const(-1, "int64"))

    count = count_of(found, f"{name}_total")
    return [
        computed((rows * n, 3), selected, name),
        computed((1,), lambda i: cast(count(i), "int64"), f"{name}_count"),
    ]


@dataclass(frozen=True, slots=True)
class _How:
    """What non_max_suppression is told: limits below 0 are none. `exactly`: so much overlap is too much, and boxes
    without a score above 0 stay, and take nobody's place."""

    most: int
    threshold: float
    all_classes: bool
    best: int
    corner: int
    score: int
    of_class: int
    exactly: bool = True


def _boxes(name: str, data: Tensor, id_index: int, score_index: int, coord_start: int | None) -> tuple[int, int, int]:
    """The extents of boxes of floats; DefinitionError where there are no such elements."""
    shape = extents(name, data) if data.ndim == 3 else (0, 0, 0)
    ends = [score_index, id_index, 0 if coord_start is None else coord_start + 3]
    if not dtypes.info(data.dtype).is_float or min(score_index, coord_start or 0) < 0 or max(ends) >= shape[2]:
        wanted = f"boxes [images, n, elements] of floats with the elements {', '.join(str(n) for n in ends if n >= 0)}"
        raise DefinitionError(f"{name} wants {wanted}; got {data}")
    return shape[0], shape[1], shape[2]


def _best_first(score: Tensor, name: str) -> Tensor:
    """The places of the best scores of each row; what is no number comes last."""
    least = te.min_value(score.dtype)
    known = computed(score.shape, lambda b, j: te.select(te.isnan(score(b, j)), least, score(b, j)), f"{name}_known")
    return argsort(known, axis=1, is_ascend=False, dtype="int32", name=f"{name}_order")


def _kept_of_first(data: Tensor, valid_count: Tensor, how: _How, name: str) -> Tensor:
    """The places of the boxes that are kept of the first ones, so many of each image."""
    images, n, _ = extents(name, data)
    number = computed((images,), lambda b: cast(valid_count(b), "int32"), f"{name}_number")
    if how.threshold <= 0:
        return computed((images, n), lambda b, j: te.if_then_else(binary("lt", j, number(b)), j, -1), f"{name}_kept")

    def score(b: Expr, j: Expr) -> Expr:
        return te.if_then_else(binary("lt", j, number(b)), data(b, j, how.score), te.min_value(data.dtype))

    order = _best_first(computed((images, n), score, f"{name}_score"), name)
    return _kept(data, order, number, how, f"{name}_kept")


def _kept(data: Tensor, order: Tensor, number: Tensor, how: _How, name: str) -> Tensor:
    """The places of boxes in order, of which so many count, where they overlap no better one; else -1."""
    images, n, _ = extents(name, data)
    score, kind, exactly, dtype = how.score, how.of_class, how.exactly, data.dtype
    by_class = kind >= 0 and not how.all_classes
    most = how.most if how.most >= 0 else n
    best = how.best if how.best > 0 else n
    threshold = how.threshold
    corners = _corners(data, order, how.corner, f"{name}_corners")
    ranked = computed((images, n), lambda b, j: data(b, within(order(b, j), n), score), f"{name}_ranked")
    kinds = computed((images, n), lambda b, j: data(b, within(order(b, j), n), max(kind, 0)), f"{name}_kinds")

    def kept(order, number, ranked, kinds, corners):  # type: ignore[no-untyped-def]
        made = te.output_tensor((images, n), "int32")
        for b in range(images):
            count = te.allocate((1,), "int32", "local")
            free = te.allocate((1,), "int32", "local")
            count[0] = 0
            for j in range(n):
                made[b, j] = -1
                if j < best and j < number[b] and count[0] < most:
                    free[0] = 1
                    if not exactly or ranked[b, j] > 0:
                        for k in range(j):
                            near = free[0] > 0 and made[b, k] >= 0
                            if exactly:
                                near = near and ranked[b, k] > 0
                            if exactly and kind >= 0:
                                near = near and kinds[b, k] >= 0
                            if by_class:
                                near = near and kinds[b, k] == kinds[b, j]
                            if near:
                                wide = min(corners[b, j, 2], corners[b, k, 2]) - max(corners[b, j, 0], corners[b, k, 0])
                                high = min(corners[b, j, 3], corners[b, k, 3]) - max(corners[b, j, 1], corners[b, k, 1])
                                both = max(wide, te.const(0, dtype)) * max(high, te.const(0, dtype))
                                share = both / (corners[b, j, 4] + corners[b, k, 4] - both)
                                if share > threshold or (exactly and share == threshold):
                                    free[0] = 0
                        count[0] = count[0] + free[0]
                    if free[0] > 0:
                        made[b, j] = order[b, j]
        return made

    found = te.hybrid.script(name=name)(kept)(order, number, ranked, kinds, corners)
    assert isinstance(found, Tensor)
    return found


def _corners(data: Tensor, order: Tensor, first: int, name: str) -> Tensor:
    """Left, top, right, bottom and area of boxes in order, whichever of their corners comes first."""
    images, n, _ = extents(name, data)

    def element(b: Expr, j: Expr, k: Expr) -> Expr:
        own = within(order(b, j), n)
        sides = [data(b, own, first + number) for number in range(4)]
        low = [te.minimum(sides[d], sides[d + 2]) for d in (0, 1)]
        high = [te.maximum(sides[d], sides[d + 2]) for d in (0, 1)]
        made = (high[0] - low[0]) * (high[1] - low[1])
        for number, value in enumerate((*low, *high)):
            made = te.select(binary("eq", k, number), value, made)
        return made

    return computed((images, n, 5), element, name)
