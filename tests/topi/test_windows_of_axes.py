"""Convolutions, their transposes, and pooling over one to three axes, against loops over windows in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te, topi
from tensorlang.errors import DefinitionError
from tests.device_targets import on_opencl
from tests.topi.calls import Call, check, floats
from tests.topi.programs import Array

ALL = slice(None)


def index(*parts: Any) -> Any:
    """Slices and numbers for all axes."""
    return parts


def convolved(x: Array, w: Array, stride: int, padding: Sequence[int], dilation: int = 1, groups: int = 1) -> Array:
    """NC... data by OI... weights, in float64; padding as fronts, then ends."""
    rank = x.ndim - 2
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *zip(padding[:rank], padding[-rank:], strict=True)])
    counts = [(n - (k - 1) * dilation - 1) // stride + 1 for n, k in zip(x.shape[2:], w.shape[2:], strict=True)]
    made = np.zeros((x.shape[0], w.shape[0], *counts))
    o, c = w.shape[0] // groups, w.shape[1]
    for r in product(*map(range, w.shape[2:])):
        firsts = [k * dilation for k in r]
        at = [slice(k, k + (n - 1) * stride + 1, stride) for k, n in zip(firsts, counts, strict=True)]
        for g in range(groups):
            part, own = x[index(ALL, slice(g * c, (g + 1) * c), *at)], w[index(slice(g * o, (g + 1) * o), ALL, *r)]
            made[:, g * o : (g + 1) * o] += np.einsum("nc...,oc->no...", part, own)
    return made.astype(np.float32)


def transposed(x: Array, w: Array, stride: int, padding: int, more: int, groups: int = 1) -> Array:
    """NC... data spread by IO... weights, in float64."""
    counts = [(n - 1) * stride + k + more for n, k in zip(x.shape[2:], w.shape[2:], strict=True)]
    made = np.zeros((x.shape[0], w.shape[1] * groups, *counts))
    c, o = x.shape[1] // groups, w.shape[1]
    for r in product(*map(range, w.shape[2:])):
        at = [slice(k, k + (n - 1) * stride + 1, stride) for k, n in zip(r, x.shape[2:], strict=True)]
        for g in range(groups):
            part, own = x[:, g * c : (g + 1) * c].astype(np.float64), w[index(slice(g * c, (g + 1) * c), ALL, *r)]
            made[index(ALL, slice(g * o, (g + 1) * o), *at)] += np.einsum("nc...,co->no...", part, own)
    kept = made[index(ALL, ALL, *[slice(padding, n - padding) for n in counts])]
    return np.asarray(kept.astype(np.float32))


def pooled(x: Array, bounds: Sequence[Sequence[tuple[int, int]]], function: Callable[..., Any]) -> Array:
    """Windows of NC... data, each from its begin to its end along every axis."""
    made = np.zeros((*x.shape[:2], *map(len, bounds)), x.dtype)
    for at in product(*[range(len(b)) for b in bounds]):
        window = x[index(ALL, ALL, *[slice(*b[k]) for b, k in zip(bounds, at, strict=True)])]
        made[index(ALL, ALL, *at)] = function(window, axis=tuple(range(2, x.ndim)))
    return made


def shared_out(n: int, o: int) -> list[tuple[int, int]]:
    return [(k * n // o, -(-(k + 1) * n // o)) for k in range(o)]


def sliding(n: int, size: int, stride: int, padding: int) -> list[tuple[int, int]]:
    starts = [k * stride - padding for k in range((n + 2 * padding - size) // stride + 1)]
    return [(max(0, s), min(n, s + size)) for s in starts]


def front(x: Array) -> Array:
    """Channels in front of pixels."""
    return np.moveaxis(x, -1, 1)


def back(x: Array) -> Array:
    return np.moveaxis(x, 1, -1)


def of_weights(w: Array) -> Array:
    """Outputs and inputs in front of places."""
    return np.moveaxis(w, (-1, -2), (0, 1))


CALLS: dict[str, Call] = {
    "conv1d_ncw": Call(
        lambda x, w: topi.conv1d_ncw(x, w, 2, (1, 2), 2),
        lambda x, w: convolved(x, w, 2, (1, 2), 2),
        lambda n: [floats(n, 4, 11), floats(6, 4, 3)],
    ),
    "conv1d_nwc in groups": Call(
        lambda x, w: topi.conv1d_nwc(x, w, 1, "SAME", 1, groups=2),
        lambda x, w: back(convolved(front(x), of_weights(w), 1, (1, 1), 1, 2)),
        lambda n: [floats(n, 9, 4), floats(3, 2, 6)],
    ),
    "group_conv2d_nhwc": Call(
        lambda x, w: topi.group_conv2d_nhwc(x, w, (2, 2), (0, 1), 1, 2),
        lambda x, w: back(convolved(front(x), of_weights(w), 2, (0, 1), 1, 2)),
        lambda n: [floats(n, 5, 6, 4), floats(2, 3, 2, 4)],
    ),
    "conv3d_ncdhw": Call(
        lambda x, w: topi.conv3d_ncdhw(x, w, 2, 1),
        lambda x, w: convolved(x, w, 2, (1, 1, 1)),
        lambda n: [floats(n, 2, 4, 5, 6), floats(3, 2, 3, 2, 3)],
    ),
    "conv3d_ndhwc": Call(
        topi.conv3d_ndhwc,
        lambda x, w: back(convolved(front(x), of_weights(w), 1, (0, 0, 0))),
        lambda n: [floats(n, 3, 4, 3, 2), floats(2, 2, 1, 2, 3)],
    ),
    "conv1d_transpose_ncw": Call(
        lambda x, w: topi.conv1d_transpose_ncw(x, w, 3, 1, output_padding=2),
        lambda x, w: np.pad(transposed(x, w, 3, 0, 0)[..., 1:], ((0, 0), (0, 0), (0, 1))),
        lambda n: [floats(n, 4, 5), floats(4, 3, 4)],
    ),
    "conv2d_transpose_nchw in groups": Call(
        lambda x, w: topi.conv2d_transpose_nchw(x, w, 2, 1, groups=2),
        lambda x, w: transposed(x, w, 2, 1, 0, 2),
        lambda n: [floats(n, 4, 3, 4), floats(4, 2, 3, 3)],
    ),
    "conv2d_transpose_nchw, fewer weights than steps": Call(
        lambda x, w: topi.conv2d_transpose_nchw(x, w, (4, 4), 0, None, (3, 1)),
        lambda x, w: np.pad(transposed(x, w, 4, 0, 0), ((0, 0), (0, 0), (0, 3), (0, 1))),
        lambda n: [floats(n, 1, 3, 5), floats(1, 2, 1, 4)],
    ),
    "conv3d_transpose_ncdhw": Call(
        lambda x, w: topi.conv3d_transpose_ncdhw(x, w, 2, 0, None, 1),
        lambda x, w: transposed(x, w, 2, 0, 1),
        lambda n: [floats(n, 2, 2, 3, 2), floats(2, 2, 2, 2, 3)],
    ),
    "pool1d": Call(
        lambda x: topi.pool1d(x, 3, 2, 1, 1),
        lambda x: pooled(x, [sliding(10, 3, 2, 1)], np.max),
        lambda n: [floats(n, 3, 10)],
    ),
    "pool3d of means": Call(
        lambda x: topi.pool3d(x, 2, 2, 1, 1, "avg", count_include_pad=False),
        lambda x: pooled(x, [sliding(4, 2, 2, 1), sliding(5, 2, 2, 1), sliding(3, 2, 2, 1)], np.mean),
        lambda n: [floats(n, 2, 4, 5, 3)],
    ),
    "adaptive_pool": Call(
        lambda x: topi.adaptive_pool(x, (3, 2), "avg"),
        lambda x: pooled(x, [shared_out(7, 3), shared_out(5, 2)], np.mean),
        lambda n: [floats(n, 2, 7, 5)],
    ),
    "adaptive_pool1d": Call(
        lambda x: topi.adaptive_pool1d(x, 4, "max", "NWC"),
        lambda x: back(pooled(front(x), [shared_out(6, 4)], np.max)),
        lambda n: [floats(n, 6, 3)],
    ),
    "adaptive_pool3d": Call(
        lambda x: topi.adaptive_pool3d(x, (1, 2, 3), "max"),
        lambda x: pooled(x, [shared_out(2, 1), shared_out(3, 2), shared_out(4, 3)], np.max),
        lambda n: [floats(n, 2, 2, 3, 4)],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    check(CALLS[name], "llvm", 2)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CALLS)
def test_calls_without_images(name: str) -> None:
    check(CALLS[name], "llvm", 0)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", ["interpreter", on_opencl])
@pytest.mark.parametrize("name", CALLS)
def test_calls_elsewhere(name: str, target: str) -> None:
    check(CALLS[name], target, 2)


def test_half_precision_is_added_up_in_single() -> None:
    x, w = te.placeholder((1, 64, 8), "float16", "x"), te.placeholder((2, 64, 3), "float16", "w")
    out = topi.conv1d_ncw(x, w)
    assert out.dtype == "float16" and out.op.input_tensors[0].dtype == "float32"
    assert topi.conv1d_ncw(x, w, out_dtype="float32").op.input_tensors[0].dtype == "float16"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, w: topi.conv1d_ncw(x, te.placeholder((6, 3, 3))), "does not fit"),
        (lambda x, w: topi.conv1d_ncw(x, w, padding="FULL"), "padding is VALID, SAME or numbers"),
        (lambda x, w: topi.conv1d_ncw(x, w, (1, 2)), "stride is a number of at least 1, or 1 of them"),
        (lambda x, w: topi.conv1d_transpose_ncw(x, w, 1, 0, None, 1), "is less than the stride"),
        (lambda x, w: topi.conv1d_transpose_ncw(x, w, 1, 6), "the padding leaves no result of .*, \\(-1\\) along"),
        (lambda x, w: topi.pool1d(x, 2, layout="NHW"), "a layout of the letters NCW"),
        (lambda x, w: topi.adaptive_pool1d(x, 2, "sum"), "pool_type is max or avg"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        call(te.placeholder((1, 4, 9), name="x"), te.placeholder((4, 4, 3), name="w"))


def test_outputs_of_a_transposed_convolution_may_be_open() -> None:
    o = te.var("o")
    x, w = te.placeholder((1, 4, 3, 5), name="x"), te.placeholder((4, o, 3, 3), name="w")
    made = topi.conv2d_transpose_nchw(x, w, 2)
    assert [str(n) for n in made.shape] == ["1", "o", "7", "11"]
    kernel = tensorlang.build(topi.schedule(made), [x, w, made])
    images, weights = floats(1, 4, 3, 5), floats(4, 3, 3, 3)
    np.testing.assert_allclose(kernel(images, weights), transposed(images, weights, 2, 0, 0), rtol=1e-4, atol=1e-4)
