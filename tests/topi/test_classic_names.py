"""Functions that classic programs call by names of their own, against NumPy, on all kinds of targets."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tensorlang import dtypes, te, topi
from tensorlang.classic import nn
from tensorlang.errors import DefinitionError
from tensorlang.topi import vision
from tests.device_targets import on_cuda, on_opencl
from tests.topi.calls import Call, check, floats, whole
from tests.topi.programs import Array
from tests.topi.test_windows_of_axes import convolved, transposed

BLOCK = 4


def blocked(x: Array, size: int = BLOCK) -> Array:
    """NC... as blocks of channels, NC...c."""
    n, c, *rest = x.shape
    return np.ascontiguousarray(np.moveaxis(x.reshape(n, c // size, size, *rest), 2, -1))


def plain(x: Array) -> Array:
    """Blocks of channels as NC...."""
    moved = np.moveaxis(x, -1, 2)
    return moved.reshape(moved.shape[0], moved.shape[1] * moved.shape[2], *moved.shape[3:])


def each_channel(w: Array) -> Array:
    """Depthwise weights in blocks as those of a convolution in groups."""
    return np.moveaxis(w[:, 0, :, :, 0], -1, 1).reshape(-1, 1, *w.shape[2:4])


def turned(real: Array, imaginary: Array, inverse: bool) -> list[Array]:
    made = (np.fft.ifft if inverse else np.fft.fft)(real + 1j * imaginary)
    return [made.real.astype(real.dtype), made.imag.astype(real.dtype)]


def windows_turned(x: Array, window: Array, size: int, hop: int, normalized: bool, onesided: bool) -> Array:
    k = np.arange(len(window))
    starts = range(0, x.shape[1] - size + 1, hop)
    turns = np.exp(-2j * np.pi * np.outer(range(size // 2 + 1 if onesided else size), k) / len(window))
    made = np.stack([(x[:, s : s + len(window)] * window) @ turns.T for s in starts], -1)
    made = made / math.sqrt(size) if normalized else made
    return np.stack([made.real, made.imag], -1).astype(x.dtype)


def quantized(x: Array, code: Array, scale: Array, zero: Array) -> Array:
    bounds = {1: (-128, 127), 2: (0, 255), 3: (-(2**31), 2**31 - 1)}.get(int(code))
    return x if bounds is None else np.clip(np.round(x / scale) + zero, *bounds).astype(x.dtype)


def dequantized(x: Array, code: Array, scale: Array, zero: Array) -> Array:
    return x if int(code) == 0 else ((x - zero) * scale).astype(x.dtype)


def simulated(code: int, n: int) -> list[Array]:
    return [floats(n, 6) * 40, np.array(code, np.int32), np.float32(2) ** whole(6, low=-3, high=2), whole(6, low=-3)]


def signs(n: int) -> list[Array]:
    bits = np.random.default_rng(1).integers(0, 2**32, (2, n + 2, 3), dtype=np.uint32)
    return [np.ascontiguousarray(bits[0, :n]), bits[1]]


def counted(a: Array, b: Array) -> Array:
    """Products of rows of signs."""
    one, other = (np.unpackbits(x.view(np.uint8), axis=1).astype(np.int32) * 2 - 1 for x in (a, b))
    return np.asarray((one @ other.T).astype(np.float32))


def packed(x: Array) -> Array:
    words = np.packbits(x >= 0, axis=1).reshape(len(x), x.shape[1] // 32, 4)
    return np.ascontiguousarray(words[..., ::-1]).view(np.uint32)[..., 0]


def reorganized(x: Array, stride: int) -> Array:
    n, c, high, wide = x.shape
    large = x.reshape(n, c // stride**2, high, stride, wide, stride)
    return large.transpose(0, 3, 5, 1, 2, 4).reshape(n, c * stride**2, high // stride, wide // stride)


def dilated(x: Array, shape: Array) -> Array:
    seen = np.lib.stride_tricks.sliding_window_view(x, shape.shape[:2], (1, 2))
    return np.asarray((seen + np.moveaxis(shape, -1, 0)).max((-1, -2)))


def normalized_batch(x: Array, gamma: Array, beta: Array, mean: Array, var: Array, training: bool) -> list[Array]:
    own, spread = (x.mean((0, 2)), x.var((0, 2))) if training else (mean, var)
    own, spread, gamma, beta = (v[:, None] for v in (own, spread, gamma, beta))
    made = (x - own) / np.sqrt(spread + 1e-5) * gamma + beta
    own, spread = own[:, 0], spread[:, 0]
    share = 0.25 if training else 0.0
    return [made, mean * (1 - share) + own * share, var * (1 - share) + spread * share]


def channels(n: int) -> list[Array]:
    return [floats(n, 3, 5), *(np.abs(floats(3)) + k for k in range(4))]


def multiplied(x: Array, data: Array, indices: Array, indptr: Array) -> Array:
    """NHWC images times a matrix of blocks [4, 1]."""
    weight = np.zeros((4 * (len(indptr) - 1), x.shape[-1]), x.dtype)
    for row, (begin, end) in enumerate(pairwise(indptr)):
        for k in range(begin, end):
            weight[row * 4 : row * 4 + 4, indices[k]] = data[k, :, 0]
    return x @ weight.T


def sparse(first: bool, n: int) -> list[Array]:
    images = floats(n, 8, 3, 2) if first else floats(n, 3, 2, 8)
    return [images, floats(5, 4, 1), np.array([0, 3, 7, 2, 5], np.int32), np.array([0, 2, 2, 5], np.int32)]


def overlap(a: Array, b: Array) -> Any:
    wide, high = (min(a[d + 2], b[d + 2]) - max(a[d], b[d]) + 1 for d in (0, 1))
    both = max(wide, 0) * max(high, 0)
    areas = [(x[2] - x[0] + 1) * (x[3] - x[1] + 1) for x in (a, b)]
    return both / (sum(areas) - both)


def proposed(scores: Array, moves: Array, info: Array, corners: bool, best: int, wanted: int) -> Array:
    """Region proposals of scales 2 and 4 and ratios 0.5 and 1, 8 pixels apart, of at least 4 pixels."""
    sides = [(math.floor(math.sqrt(64 / r) + 0.5), math.floor(math.floor(math.sqrt(64 / r) + 0.5) * r + 0.5)) for r in
             (0.5, 1)]  # fmt: skip
    made = np.zeros((len(scores), wanted, 5), np.float32)
    for b in range(len(scores)):
        boxes = list[Any]()
        for y, x, k in np.ndindex(*scores.shape[2:], 4):
            half = (np.array(sides[k // 2]) * (2, 4)[k % 2] - 1) / 2
            middle = 3.5 + np.array([x, y]) * 8
            d = moves[b, k * 4 : k * 4 + 4, y, x]
            low, high = middle - half, middle + half
            if corners:
                low, high = low + d[:2], high + d[2:]
            else:
                size = high - low + 1
                centre, size = d[:2] * size + middle, np.exp(d[2:]) * size
                low, high = centre - (size - 1) / 2, centre + (size - 1) / 2
            limit = info[b, 1::-1] - 1
            low, high = (np.clip(v, 0, limit) for v in (low, high))
            small = (high - low + 1 < 4 * info[b, 2]).any()
            low, high = low - small * 2 * info[b, 2], high + small * 2 * info[b, 2]
            beyond = y >= info[b, 0] // 8 or x >= info[b, 1] // 8
            boxes.append([*low, *high, -1 if small or beyond else scores[b, k + 4, y, x]])
        ranked = sorted(boxes, key=lambda box: -box[4])[:best]
        kept = list[Any]()
        for box in ranked:
            if all(overlap(other, box) <= 0.5 for other in kept):
                kept.append(box)
        for j in range(wanted):
            made[b, j] = b, *kept[j % min(len(kept), wanted)][:4]
    return made.reshape(-1, 5)


def anchors(n: int) -> list[Array]:
    draw = np.random.default_rng(5)
    scores = draw.permutation(n * 8 * 3 * 2).reshape(n, 8, 3, 2).astype(np.float32) / 100
    info = np.tile(np.array([[20, 14, 1]], np.float32), (n, 1))
    return [scores, draw.uniform(-0.4, 0.4, (n, 16, 3, 2)).astype(np.float32), info]


def proposals(corners: bool) -> Callable[..., Any]:
    return lambda s, m, i: vision.proposal(s, m, i, (2, 4), (0.5, 1), 8, 0.5, 14, 6, 4, corners)


def dotted(text: str, *arrays: Array) -> Array:
    return np.asarray(np.einsum(text, *arrays, optimize=False))


CALLS: dict[str, Call] = {
    **{
        f"Fourier transform{word}": Call(
            lambda a, b, inverse=inverse: topi.dft(a, b, inverse),
            lambda a, b, inverse=inverse: turned(a, b, inverse),
            lambda n: [floats(n, 2, 12), floats(n, 2, 12) + 1],
        )
        for word, inverse in (("", False), (", inverse", True))
    },
    **{
        f"windows, {normalized}, {onesided}": Call(
            lambda x, w, how=(normalized, onesided): topi.stft(x, 8, 3, 6, w, *how),
            lambda x, w, how=(normalized, onesided): windows_turned(x, w, 8, 3, *how),
            lambda n: [floats(n, 21), floats(6)],
        )
        for normalized, onesided in ((False, True), (True, False))
    },
    **{
        f"quantized, {dtype}": Call(topi.nn.simulated_quantize, quantized, partial(simulated, code))
        for dtype, code in topi.nn.SQNN_DTYPE_TO_CODE.items()
    },
    **{
        f"dequantized, {dtype}": Call(topi.nn.simulated_dequantize, dequantized, partial(simulated, code))
        for dtype, code in (("disable", 0), ("uint8", 2))
    },
    "signs": Call(topi.nn.binarize_pack, packed, lambda n: [floats(n, 64)]),
    "products of signs": Call(topi.nn.binary_dense, counted, signs),
    **{
        f"fixed point, {shift}": Call(
            lambda x, shift=shift: topi.fixed_point_multiply(x, 1518500250, shift),
            lambda x, shift=shift: np.floor(x * 1518500250.0 * 2.0 ** (shift - 31) + 0.5).astype(np.int32),
            lambda n: [whole(n, 6, low=-1000, high=1000)],
        )
        for shift in (-3, 0, 4)
    },
    "fixed point of channels": Call(
        lambda x, y, a, b: topi.fixed_point_multiply_per_axis(x, y, a, b, 1, 1, [1]),
        lambda x, y, a, b: np.floor(x * (y * 2.0 ** (a - b - 31)) + 0.5).astype(np.int32),
        lambda n: [whole(n, 6, low=-900, high=900), whole(6, low=1 << 30, high=(1 << 31) - 1), whole(6), whole(6)],
    ),
    "queue": Call(
        lambda x, q: topi.nn.fifo_buffer(x, q, 1),
        lambda x, q: np.concatenate([q, x], 1)[:, -5:],
        lambda n: [floats(n, 2, 3), floats(n, 5, 3)],
    ),
    "reorg": Call(lambda x: vision.reorg(x, 2), lambda x: reorganized(x, 2), lambda n: [floats(n, 8, 4, 6)]),
    "collapse": Call(
        lambda x: topi.collapse_sum(x, (3, 1)), lambda x: x.sum((0, 2), keepdims=True)[0], lambda n: [floats(n, 3, 4)]
    ),
    "nothing to collapse": Call(lambda x: topi.collapse_sum(x, x.shape), lambda x: x, lambda n: [floats(n, 3)]),
    "dilation of channels behind": Call(
        lambda x, f: topi.image.dilation2d_nhwc(x, f, 1, 0, 1), dilated, lambda n: [floats(n, 5, 6, 3), floats(3, 2, 3)]
    ),
    **{
        f"places of the last {word}": Call(
            lambda x, f=function: f(x, 1, False, True),
            lambda x, f=numpy: 5 - f(x[:, ::-1], 1).astype(np.int32),
            lambda n: [whole(n, 6, high=3)],
        )
        for word, function, numpy in (("largest", topi.argmax, np.argmax), ("smallest", topi.argmin, np.argmin))
    },
    "take of batches": Call(
        lambda x, i: topi.take(x, i, 2, 1),
        lambda x, i: np.stack([a[:, k] for a, k in zip(x, i, strict=True)]) if len(x) else x[:, :, :2],
        lambda n: [floats(n, 3, 5), whole(n, 2)],
    ),
    "einsum of others": Call(
        lambda a, b: topi.einsum("...ij,...jk->...ik", a, b),
        lambda a, b: dotted("...ij,...jk->...ik", a, b),
        lambda n: [floats(2, n, 3, 4), floats(n, 4, 5)],
    ),
    "einsum of others, by itself": Call(
        lambda a, b: topi.einsum("i...,ij", a, b),
        lambda a, b: dotted("i...,ij", a, b),
        lambda n: [floats(n, 3, 4), floats(n, 5)],
    ),
    **{
        f"batch norm{word}": Call(
            lambda x, a, b, c, d, t=training: nn.batch_norm(x, a, b, c, d, training=t, momentum=0.25),
            lambda x, a, b, c, d, t=training: normalized_batch(x, a, b, c, d, t),
            channels,
            empty=False,
        )
        for word, training in (("", False), (", training", True))
    },
    "product and bias": Call(
        lambda a, b, c: topi.nn.matmul(a, b, c, transpose_b=True),
        lambda a, b, c: a @ b.T + c,
        lambda n: [floats(n, 6), floats(4, 6), floats(4)],
    ),
    "root mean squares and bias": Call(
        lambda x, w, b: topi.nn.rms_norm(x, w, b, 1, 1e-3),
        lambda x, w, b: x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-3) * w + b,
        lambda n: [floats(n, 6), floats(6), floats(6)],
    ),
    "channels behind, scaled": Call(
        topi.nn.scale_shift_nhwc, lambda x, a, b: x * a + b, lambda n: [floats(n, 3, 2, 4), floats(4), floats(4)]
    ),
    "blocks, scaled": Call(
        topi.nn.scale_shift_nchwc,
        lambda x, a, b: x * a[:, None, None] + b[:, None, None],
        lambda n: [floats(n, 2, 3, 2, 4), floats(2, 4), floats(2, 4)],
    ),
    "blocks, unpacked": Call(
        lambda x: topi.nn.unpack_NCHWc_to_nchw(x, "float32"), plain, lambda n: [floats(n, 2, 3, 2, BLOCK)]
    ),
    "depthwise blocks": Call(
        lambda x, w: topi.nn.depthwise_conv2d_NCHWc(x, w, 1, 1),
        lambda x, w: blocked(
            convolved(plain(x), np.moveaxis(w[:, 0, :, :, 0], -1, 1).reshape(16, 1, 3, 3), 1, (1, 1), 1, 8)
        ),
        lambda n: [floats(n, 2, 4, 5, BLOCK), floats(4, 1, 3, 3, 1, BLOCK)],
    ),
    "blocks of bytes": Call(
        topi.nn.conv2d_NCHWc_int8,
        lambda x, w: blocked(
            convolved(plain(x), w.transpose(0, 5, 1, 4, 6, 2, 3).reshape(8, 8, 3, 3), 1, (0, 0)), 8
        ).astype(np.int32),
        lambda n: [whole(n, 1, 4, 5, 8).astype(np.uint8), whole(1, 1, 3, 3, 2, 8, 4, low=-4).astype(np.int8)],
    ),
    "images behind": Call(
        lambda x, w: topi.nn.conv2d_hwcn(x, w, 1, 1),
        lambda x, w: convolved(x.transpose(3, 2, 0, 1), w.transpose(3, 2, 0, 1), 1, (1, 1)).transpose(2, 3, 1, 0),
        lambda n: [floats(4, 5, 3, n), floats(3, 3, 3, 2)],
    ),
    "a line of any layout": Call(
        lambda x, w: topi.nn.conv1d(x, w, 2, 1, 1, "NWC"),
        lambda x, w: np.moveaxis(convolved(np.moveaxis(x, 2, 1), w.transpose(2, 1, 0), 2, (1, 1)), 1, 2),
        lambda n: [floats(n, 9, 3), floats(3, 3, 4)],
    ),
    "lines in groups": Call(
        lambda x, w: topi.nn.group_conv1d_ncw(x, w, 1, 0, 1, 2),
        lambda x, w: convolved(x, w, 1, (0, 0), 1, 2),
        lambda n: [floats(n, 4, 7), floats(6, 2, 3)],
    ),
    "images in groups": Call(
        lambda x, w: topi.nn.conv(x, w, 1, 1, 1, 2, "NCHW"),
        lambda x, w: convolved(x, w, 1, (1, 1), 1, 2),
        lambda n: [floats(n, 4, 5, 4), floats(6, 2, 3, 3)],
    ),
    "spread in groups": Call(
        lambda x, w: topi.nn.group_conv2d_transpose_nchw(x, w, 2, 1, None, 0, 2),
        lambda x, w: transposed(x, w, 2, 1, 0, 2),
        lambda n: [floats(n, 4, 3, 4), floats(4, 2, 3, 3)],
    ),
    "Winograd": Call(
        lambda x, w: topi.nn.conv2d_winograd_nchw(x, w, 1, 1, 1),
        lambda x, w: convolved(x, w, 1, (1, 1)),
        lambda n: [floats(n, 4, 8, 8), floats(4, 4, 3, 3)],
        empty=False,
    ),
    "larger volumes": Call(
        lambda x: topi.nn.upsampling3d(x, 2, 1, 2, coordinate_transformation_mode="asymmetric"),
        lambda x: x.repeat(2, 2).repeat(2, 4),
        lambda n: [floats(n, 2, 2, 3, 2)],
    ),
    "sparse weights": Call(topi.nn.sparse_conv2d, multiplied, partial(sparse, False)),
    "sparse weights, channels first": Call(
        lambda x, w, i, p: topi.nn.sparse_conv2d(x, w, i, p, "NCHW"),
        lambda x, *w: np.moveaxis(multiplied(np.moveaxis(x, 1, 3), *w), 3, 1),
        partial(sparse, True),
    ),
    "sparse weights in blocks of a column": Call(
        topi.nn.sparse_conv2d,
        lambda x, w, *rest: multiplied(x, w[:, :, None], *rest),
        lambda n: [floats(n, 3, 2, 8), floats(5, 4), *sparse(False, n)[2:]],
    ),
    **{
        f"proposals{word}": Call(
            proposals(corners),
            lambda s, m, i, c=corners: proposed(s, m, i, c, 14, 6),
            anchors,
        )
        for word, corners in (("", False), (" of corners", True))
    },
}


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    check(CALLS[name], "llvm", 2)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("target", ["interpreter", on_opencl, on_cuda])
@pytest.mark.parametrize("name", CALLS)
def test_calls_on_devices(name: str, target: str) -> None:
    check(CALLS[name], target, 2)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", [name for name in CALLS if CALLS[name].empty])
def test_calls_without_elements(name: str) -> None:
    check(CALLS[name], "llvm", 0)


def test_samples_are_as_likely_as_their_weights() -> None:
    weights = np.array([[1, 0, 3, -5], [0, 2, 2, 0]], np.float32)

    def draw(key: Any, w: Any) -> Any:
        return topi.random.multinomial(key, w, 4000)[1]

    drawn = te.evaluate(draw, topi.random.threefry_key(7), weights)
    shares = [[np.mean(row == k) for k in range(4)] for row in drawn]
    np.testing.assert_allclose(shares, [[0.25, 0, 0.75, 0], [0, 0.5, 0.5, 0]], atol=0.03)


def test_words_of_classic_topi_are_parameters() -> None:
    room: Any = topi
    x, w = te.placeholder((1, 2, 5, 5), name="x"), te.placeholder((3, 2, 3, 3), name="w")
    a, b = te.placeholder((2, 3), name="a"), te.placeholder((3, 2), name="b")
    assert room.nn.conv2d_nchw(Input=x, Filter=w, stride=1, padding=0, dilation=1).shape[2] == 3
    assert room.nn.conv2d(input=x, filter=w, strides=1, padding=0, dilation=1).shape[1] == 3
    assert room.matmul(a, b, transp_a=True, transp_b=True).shape[0] == 3
    assert room.searchsorted(a, a, out_dtype="int64").dtype == "int64"
    with pytest.raises(TypeError, match="stride_of"):
        room.nn.conv2d_nchw(x, w, stride_of=1)


X = te.placeholder((2, 4, 6, 6), name="X")
M = te.placeholder((3, 5), name="M")
V = te.placeholder((5,), name="V")
WORDS = te.placeholder((3, 2), "uint32", name="words")
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "parts of two shapes": (lambda: topi.dft(M, V), "two parts of one shape"),
    "a long window": (lambda: topi.stft(M, 8, 2, 5, V), r"signals \[batch, time\]"),
    "another result": (lambda: topi.stft(M, 5, 2, 5, V, output_shape=(3, 3, 1, 1)), r"is \(3, 3, 1, 2\), got"),
    "a dtype of floats": (lambda: topi.simulated_quantize(M, V, V, V), "an integer of shape"),
    "bits that are no words": (lambda: topi.binarize_pack(M), "a multiple of 32 along axis 1"),
    "words of floats": (lambda: topi.binary_dense(M, M), "two matrices of uint32"),
    "rows of other words": (
        lambda: topi.binary_dense(WORDS, te.placeholder((3, 1), "uint32")),
        "does not fit",
    ),
    "a shift of 40": (lambda: topi.fixed_point_multiply(te.placeholder((2,), "int32"), 1, 40), "from -30 to 31"),
    "factors of another axis": (
        lambda: topi.fixed_point_multiply_per_axis(WORDS, V, V, V, 1, 1, [1]),
        r"in the shape of axes \[1\]",
    ),
    "more than the room": (lambda: topi.fifo_buffer(te.placeholder((3, 6)), M, 1), "does not fit into"),
    "channels of no squares": (lambda: vision.reorg(te.placeholder((1, 6, 4, 4)), 2), "c a multiple of"),
    "a shape that is no part": (lambda: topi.collapse_sum(M, (2, 5)), "is not broadcast to that of"),
    "axes that differ": (lambda: topi.take(M, te.placeholder((2, 2), "int32"), 1, 1), "have not 1 axes in common"),
    "letters of no axis": (lambda: topi.einsum("...a,b", V, M), "does not fit"),
    "an unknown layout": (lambda: topi.nn.conv1d(te.placeholder((1, 2, 3)), X, data_layout="CNW"), "NCW with OIW"),
    "weights of 6 dimensions": (
        lambda: topi.conv2d_NCHWc_int8(te.placeholder((1, 1, 4, 4, 8)), te.placeholder((1, 1, 3, 3, 8, 8))),
        "weights of 7 dimensions",
    ),
    "blocks of other channels": (
        lambda: topi.depthwise_conv2d_NCHWc(te.placeholder((1, 2, 4, 4, 8)), te.placeholder((1, 1, 3, 3, 1, 8))),
        "does not fit",
    ),
    "scales of another shape": (lambda: topi.scale_shift_nchwc(X, M, M), "a matrix for axes 1 and 4"),
    "a momentum of 2": (lambda: nn.batch_norm(X, V, V, V, V, momentum=2.0), "a number from 0 to 1, got 2"),
    "another shape of products": (
        lambda: topi.nn.batch_matmul(te.placeholder((2, 3, 4)), te.placeholder((2, 5, 4)), (2, 3, 4)),
        "was asked for",
    ),
    "weights of Winograd": (lambda: topi.nn.conv2d_winograd_nchw(X, X, 1, 1, 1, None, True), "tiles of Winograd"),
    "windows of sparse weights": (lambda: topi.nn.sparse_conv2d(X, M, V, V, "NHWC", 3), "kernel_size 1"),
    "anchors of another number": (
        lambda: vision.proposal(X, X, M, (1, 2), (1,), 16, 0.5, 10, 5, 1),
        "of 2 anchors",
    ),
    "weights of samples": (
        lambda: topi.random.multinomial(te.placeholder((10,), "uint64"), WORDS, 4),
        "rows of floats",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(DefinitionError, match=message):
        call()


MOVES = ("queue", "reorg", "signs", "einsum of others", "collapse", "nothing to collapse")
KINDS = [(name, dtype) for name in MOVES for dtype in ("float16", "bfloat16", "float64")]
KINDS += [("Fourier transform", "float64"), ("windows, True, False", "float64")]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("name", "dtype"), [*KINDS, ("Fourier transform", "float64"), ("windows, True, False", "float64")]
)
def test_calls_of_other_floats(name: str, dtype: str) -> None:
    kind, call = dtypes.info(dtype).numpy, CALLS[name]

    def reference(*x: Array) -> Any:
        found = call.numpy(*(a.astype(np.float64) for a in x))
        made = [a if a.dtype == np.uint32 else a.astype(kind) for a in (found if isinstance(found, list) else [found])]
        return made if isinstance(found, list) else made[0]

    rounded = call._replace(numpy=reference, inputs=lambda n: [x.astype(kind) for x in call.inputs(n)])
    check(rounded, "llvm", 2)


def test_tensors_without_elements_have_schedules_of_threads() -> None:
    x = te.placeholder((0, 5), name="x")
    s = topi.schedule([topi.exp(x)], "cuda -arch=sm_80", tuned=False)
    assert "threadIdx.x" in str(s)
