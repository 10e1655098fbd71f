"""Operators of detection against loops of NumPy, as TVM and ONNX define them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorlang import te, topi
from tensorlang.errors import DefinitionError
from tests.device_targets import on_cuda, on_opencl
from tests.topi.calls import Call, check, floats
from tests.topi.programs import Array

BOXES = 9


def boxes(n: int, images: int = 2) -> Array:
    """Class, score, and two corners each, some of them turned around."""
    rng = np.random.default_rng(n)
    corners = rng.random((images, n, 2)).repeat(2, 1).reshape(images, n, 4) + rng.normal(0, 0.2, (images, n, 4))
    kind = rng.integers(-1, 2, (images, n, 1))
    return np.concatenate([kind, rng.random((images, n, 1)), corners], 2).astype(np.float32)


def overlap(a: Array, b: Array) -> np.float32:
    left, top = np.maximum(np.minimum(a[:2], a[2:]), np.minimum(b[:2], b[2:]))
    right, bottom = np.minimum(np.maximum(a[:2], a[2:]), np.maximum(b[:2], b[2:]))
    both = max(right - left, np.float32(0)) * max(bottom - top, np.float32(0))
    areas = [np.prod(np.abs(x[2:] - x[:2])) for x in (a, b)]
    either = areas[0] + areas[1] - both
    return both / either if either > 0 else np.float32(0)


def valid_counts(data: Array, threshold: float) -> list[Array]:
    good = (data[..., 1] > np.float32(threshold)) & (data[..., 0] >= 0)
    made, places = np.full_like(data, -1), np.full(data.shape[:2], -1, np.int32)
    for b, row in enumerate(good):
        (at,) = np.nonzero(row)
        made[b, : len(at)], places[b, : len(at)] = data[b, at], at
    return [good.sum(1).astype(np.int32), made, places]


def kept_rows(data: Array, count: Array, most: int, threshold: float, force: bool, best: int) -> list[list[int]]:
    """The places of boxes in order, -1 for those that are left out."""
    found: list[list[int]] = []
    for own, valid in zip(data, count, strict=True):
        order = np.argsort(-own[:valid, 1], kind="stable")
        kept: list[int] = []
        for place in order[: best if best > 0 else None]:
            rivals = [own[k] for k in kept if k >= 0 and own[k, 1] > 0 and own[k, 0] >= 0]
            rivals = [r for r in rivals if force or r[0] == own[place, 0]]
            full = 0 <= most <= sum(k >= 0 for k in kept)
            near = any(overlap(own[place, 2:], r[2:]) >= threshold for r in rivals)
            kept.append(-1 if full or near else int(place))
        found.append(kept + [-1] * (data.shape[1] - len(kept)))
    return found


def suppressed(data: Array, count: Array, at: Array, **how: Any) -> list[Array]:
    rows = kept_rows(data, count, how["most"], how["threshold"], how["force"], how["best"])
    places = [[at[b, k] for k in row if k >= 0] for b, row in enumerate(rows)]
    made = np.full(at.shape, -1, np.int32)
    for b, row in enumerate(places):
        made[b, : len(row)] = row
    return [made, np.array([[len(row)] for row in places], np.int32)]


def suppression(most: int = -1, threshold: float = 0.3, force: bool = False, best: int = -1) -> Call:
    return Call(
        lambda d, c, i: topi.vision.non_max_suppression(d, c, i, most, threshold, force, best),
        lambda d, c, i: suppressed(d, c, i, most=most, threshold=threshold, force=force, best=best),
        counted,
    )


def counted(n: int) -> list[Array]:
    count, data, at = valid_counts(boxes(n), 0.2)
    return [data, count, at]


def all_rows(data: Array, count: Array, bottom: bool) -> Array:
    made = np.full_like(data, -1)
    for b, row in enumerate(kept_rows(data, count, 3, 0.3, True, 6)):
        places = [k for k in row if k >= 0] if bottom else row
        for j, k in enumerate(places):
            made[b, j] = data[b, k] if k >= 0 else -1
    return made


def selected(corners: Array, scores: Array) -> list[Array]:
    found: list[list[int]] = []
    for b, c in np.ndindex(*scores.shape[:2]):
        kept: list[int] = []
        for place in np.argsort(-scores[b, c], kind="stable"):
            near = any(overlap(corners[b, place], corners[b, k]) > 0.2 for k in kept)
            if scores[b, c, place] > 0.1 and not near and len(kept) < 3:
                kept.append(int(place))
        found += [[b, c, k] for k in kept]
    made = np.full((scores.size, 3), -1, np.int64)
    made[: len(found)] = np.array(found).reshape(-1, 3)
    return [made, np.array([len(found)])]


def sampled(image: Array, y: float, x: float) -> Array:
    _, high, wide = image.shape
    if y < -1 or x < -1 or y > high or x > wide:
        return np.zeros(len(image))
    y, x = min(max(y, 0), high - 1), min(max(x, 0), wide - 1)
    top, left = int(y), int(x)
    below, right = min(top + 1, high - 1), min(left + 1, wide - 1)
    low = image[:, top, left] * (1 - x + left) + image[:, top, right] * (x - left)
    high_row = image[:, below, left] * (1 - x + left) + image[:, below, right] * (x - left)
    return np.asarray(low * (1 - y + top) + high_row * (y - top))


def aligned(images: Array, rois: Array, cells: tuple[int, int], mode: str, ratio: int) -> Array:
    made = np.zeros((len(rois), images.shape[1], *cells))
    for r, roi in enumerate(rois.astype(np.float64)):
        begin = roi[[2, 1]] * 0.5
        size = np.maximum(roi[[4, 3]] * 0.5 - begin, 1) / cells
        count = [ratio if ratio > 0 else math.ceil(n) for n in size]
        for p, q in np.ndindex(*cells):
            places = [
                begin + (np.array([p, q]) + (np.array(k) + 0.5) / count) * size for k in np.ndindex(count[0], count[1])
            ]
            values = np.array([sampled(images[int(roi[0])].astype(np.float64), y, x) for y, x in places])
            made[r, :, p, q] = values.mean(0) if mode == "avg" else values.max(0)
    return made


def pooled(images: Array, rois: Array, cells: tuple[int, int]) -> Array:
    made = np.zeros((len(rois), images.shape[1], *cells), np.float32)
    for r, roi in enumerate(rois):
        low, high = np.rint(roi[[2, 1]] * 0.5).astype(int), np.rint(roi[[4, 3]] * 0.5).astype(int)
        size = np.maximum(high - low + 1, 1) / cells
        for p, q in np.ndindex(*cells):
            begin = np.floor(np.array([p, q]) * size + 1e-5).astype(int) + low
            end = np.ceil(np.array([p + 1, q + 1]) * size - 1e-5).astype(int) + low
            (top, left), (bottom, right) = (np.clip(at, 0, images.shape[2:]) for at in (begin, end))
            if top < bottom and left < right:
                made[r, :, p, q] = images[int(roi[0]), :, top:bottom, left:right].max((1, 2))
    return made


def regions(n: int) -> list[Array]:
    """Images, and regions inside, across borders, turned around, and much larger than an image."""
    places = [(0, 2, 3, 12, 9), (1, -9, -6, 8, 30), (1, 9, 9, 2, 2), (0, -40, -40, 60, 50), (0, 40, 40, 50, 50)]
    return [floats(2, 3, 7, 6), np.array(places[:n], np.float32).reshape(-1, 5)]


def priors(high: int, wide: int) -> Array:
    made = []
    for i, j in np.ndindex(high, wide):
        y, x = (i + 0.5) / high, (j + 0.3) / wide
        for size, ratio in ((0.4, 1), (0.7, 1), (0.4, 2), (0.4, 0.5)):
            w, h = size * high / wide * ratio**0.5 / 2, size / ratio**0.5 / 2
            made.append([x - w, y - h, x + w, y + h])
    return np.array(made)[None].clip(0, 1)


def located(probability: Array, moves: Array, anchors: Array) -> list[Array]:
    images, _, n = probability.shape
    made, count = np.full((images, n, 6), -1.0), np.zeros(images, np.int32)
    for b, j in np.ndindex(images, n):
        kind, score = probability[b, 1:, j].argmax(), probability[b, 1:, j].max()
        if score >= 0.4:
            low, high = anchors[0, j, :2], anchors[0, j, 2:]
            move = moves[b, j * 4 : j * 4 + 4]
            center = move[:2] * 0.1 * (high - low) + (low + high) / 2
            half = np.exp(move[2:] * 0.2) * (high - low) / 2
            made[b, count[b]] = [kind, score, *np.clip(np.r_[center - half, center + half], 0, 1)]
            count[b] += 1
    return [made, count]


def predictions(n: int) -> list[Array]:
    rng = np.random.default_rng(5)
    corners = np.sort(rng.random((1, n, 2, 2)), 2).reshape(1, n, 4)
    return [a.astype(np.float32) for a in (rng.random((2, 3, n)) * 0.7, rng.normal(size=(2, n * 4)), corners)]


CALLS: dict[str, Call] = {
    "valid counts": Call(
        lambda x: topi.vision.get_valid_counts(x, 0.4), lambda x: valid_counts(x, 0.4), lambda n: [boxes(n)]
    ),
    "suppression": suppression(),
    "suppression of all classes": suppression(force=True, threshold=0.1),
    "suppression of the best": suppression(best=4),
    "suppression of a few": suppression(most=2, force=True),
    "boxes where they were": Call(
        lambda d, c: topi.vision.nms.non_max_suppression(d, c, c, 3, 0.3, True, 6, return_indices=False),
        lambda d, c: all_rows(d, c, False),
        lambda n: counted(n)[:2],
    ),
    "boxes in front": Call(
        lambda d, c: topi.vision.non_max_suppression(d, c, c, 3, 0.3, True, 6, 2, 1, 0, False, True),
        lambda d, c: all_rows(d, c, True),
        lambda n: counted(n)[:2],
    ),
    "all boxes": Call(
        lambda d, c: topi.vision.non_max_suppression(d, c, c, iou_threshold=0, return_indices=False),
        lambda d, c: np.where(np.arange(d.shape[1])[:, None] < c[:, None, None], d, np.float32(-1)),
        lambda n: counted(n)[:2],
    ),
    "all classes": Call(
        lambda b, s: topi.vision.all_class_non_max_suppression(b, s, 3, 0.2, 0.1),
        selected,
        lambda n: [boxes(n)[..., 2:].copy(), np.random.default_rng(1).random((2, 3, n)).astype(np.float32)],
    ),
    **{
        f"align {mode} {ratio}": Call(
            lambda d, r, mode=mode, ratio=ratio: topi.vision.rcnn.roi_align_nchw(d, r, (2, 3), 0.5, mode, ratio),
            lambda d, r, mode=mode, ratio=ratio: aligned(d, r, (2, 3), mode, ratio),
            regions,
        )
        for mode in ("avg", "max")
        for ratio in (2, -1)
    },
    "align of channels behind": Call(
        lambda d, r: topi.vision.roi_align_nhwc(d, r, (2, 3), 0.5, 0, 2),
        lambda d, r: aligned(d.transpose(0, 3, 1, 2), r, (2, 3), "avg", 2).transpose(0, 2, 3, 1),
        lambda n: [np.ascontiguousarray(regions(n)[0].transpose(0, 2, 3, 1)), regions(n)[1]],
    ),
    "pool": Call(lambda d, r: topi.vision.roi_pool_nchw(d, r, (2, 3), 0.5), lambda d, r: pooled(d, r, (2, 3)), regions),
    "priors": Call(
        lambda x: topi.vision.ssd.multibox_prior(x, (0.4, 0.7), (1, 2, 0.5), offsets=(0.5, 0.3), clip=True),
        lambda x: priors(*x.shape[2:]),
        lambda n: [floats(1, 2, 3, 4)],
    ),
    "locations": Call(lambda p, m, a: topi.vision.multibox_transform_loc(p, m, a, True, 0.4), located, predictions),
    "detection": Call(
        lambda p, m, a: topi.vision.multibox_detection(p, m, a, True, 0.4, 0.3, True),
        lambda p, m, a: detected(*located(p, m, a)),
        predictions,
    ),
}


def detected(data: Array, count: Array) -> Array:
    rows = kept_rows(data, count, -1, 0.3, True, -1)
    return np.stack(
        [[own[k] if k >= 0 else np.full(6, -1.0) for k in row] for own, row in zip(data, rows, strict=True)]
    )


def number(name: str) -> int:
    return 5 if name.startswith(("align", "pool")) else BOXES


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    check(CALLS[name], "llvm", number(name))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("priors", "detection")])
def test_calls_without_boxes(name: str) -> None:
    check(CALLS[name], "llvm", 0)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("target", ["interpreter", on_opencl, on_cuda])
@pytest.mark.parametrize("name", CALLS)
def test_calls_on_devices(name: str, target: str) -> None:
    check(CALLS[name], target, number(name))


D, R = te.placeholder((2, 3, 7, 6), name="D"), te.placeholder((5, 5), name="R")
B, C = te.placeholder((2, 9, 6), name="B"), te.placeholder((2,), "int32", name="C")
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "counts of no boxes": (lambda: topi.vision.get_valid_counts(D), "boxes \\[images, n, elements\\]"),
    "a score that is not there": (lambda: topi.vision.get_valid_counts(B, 0, 0, 6), "with the elements 6, 0, 0"),
    "counts of other images": (
        lambda: topi.vision.non_max_suppression(B, te.placeholder((3,), "int32"), C),
        "integers for 2 images",
    ),
    "corners that are not there": (
        lambda: topi.vision.non_max_suppression(B, C, C, coord_start=3),
        "the elements 1, 0, 6",
    ),
    "another format": (
        lambda: topi.vision.all_class_non_max_suppression(B, B, 3, 0.5, 0.1, "tensorflow"),
        "the format onnx",
    ),
    "another mode": (lambda: topi.vision.roi_align_nchw(D, R, 2, 1.0, "sum"), "modes avg \\(0\\) and max"),
    "no cells": (lambda: topi.vision.roi_pool_nchw(D, R, 0, 1.0), "a size of at least 1"),
    "regions of another dtype": (
        lambda: topi.vision.roi_pool_nchw(D, te.placeholder((5, 5), "float64"), 2, 1.0),
        "of one dtype of floats",
    ),
    "priors of a ratio of 0": (lambda: topi.vision.multibox_prior(D, ratios=(0,)), "ratios above 0"),
    "predictions of other anchors": (
        lambda: topi.vision.multibox_transform_loc(B, te.placeholder((2, 20)), te.placeholder((1, 6, 4))),
        "class probabilities",
    ),
    "a word for a number": (lambda: topi.vision.roi_pool_nchw(D, R, "2", 1.0), r"topi\.vision\.roi_pool_nchw takes"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(DefinitionError, match=message):
        call()
