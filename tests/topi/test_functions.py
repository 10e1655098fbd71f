"""Functions of the library that have no row of sizes: a table of calls, each against NumPy, on every kind of target."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tensorlang import te, topi
from tensorlang.errors import DefinitionError, KernelError
from tests.device_targets import on_cuda, on_opencl
from tests.topi.calls import Call, N, check, floats, ran, whole
from tests.topi.programs import Array


def images(n: int) -> list[Array]:
    return [floats(n, 8, 4, 6)]


def reversed_rows(x: Array, lengths: Array) -> Array:
    made = x.copy()
    for row, n in enumerate(lengths):
        made[row, : max(n, 0)] = x[row, : max(n, 0)][::-1]
    return made


def masked(x: Array, lengths: Array) -> Array:
    return np.where(np.arange(x.shape[0])[:, None] >= lengths[None], np.float32(7), x)


def with_part(x: Array, v: Array, part: Any) -> Array:
    made = x.copy()
    made[part] = v
    return made


def sliced(x: Array, shape: tuple[int, ...], *cut: slice) -> tuple[Array, Array]:
    """A slice with zeros behind it, and its shape."""
    part, made = x[cut], np.zeros(shape, x.dtype)
    room = tuple(slice(min(a, b)) for a, b in zip(part.shape, shape, strict=True))
    made[room] = part[room]
    return made, np.array(part.shape)


def cut_of(step: int, n: int) -> list[Array]:
    """A vector, and where a slice of it begins, ends (past it) and by what it steps."""
    return [floats(n), np.array([2]), np.array([99 if step > 0 else -99]), np.array([step])]


def products(n: int) -> list[Array]:
    return [floats(n, 3, 4), floats(4, 3, 2)]


def places(x: Array, most: int) -> tuple[Array, Array]:
    """The coordinates of what is not 0, in so many rows, and how many there are."""
    found, made = np.argwhere(x), np.full((most, x.ndim), -1, np.int32)
    made[: len(found)] = found[:most]
    return made, np.array([len(found)], np.int32)


def with_diagonal(x: Array, d: Array, k: int) -> Array:
    made = x.copy()
    for i in range(d.shape[-1]):
        made[..., i - min(k, 0), i + max(k, 0)] = d[..., i]
    return made


def uniques(x: Array, in_order: bool) -> list[Array]:
    """What np.unique finds, in the order of values or of their first places, and how unique fills up."""
    found, first, back, counts = np.unique(x, True, True, True)
    turn = np.arange(len(found)) if in_order else np.argsort(first)
    rest = len(x) - len(found)
    whole = [np.pad(found[turn], (0, rest)), np.pad(first[turn], (0, rest), constant_values=len(x))]
    rank = np.argsort(turn)[back] if len(x) else back
    return [
        whole[0],
        *(a.astype(np.int32) for a in (whole[1], rank, np.array([len(found)]), np.pad(counts[turn], (0, rest)))),
    ]


def to_space(x: Array, order: str) -> Array:
    n, c, h, w = x.shape
    split, axes = (
        ((n, 2, 2, c // 4, h, w), (0, 3, 4, 1, 5, 2))
        if order == "DCR"
        else ((n, c // 4, 2, 2, h, w), (0, 1, 4, 2, 5, 3))
    )
    return x.reshape(split).transpose(axes).reshape(n, c // 4, h * 2, w * 2)


def to_depth(x: Array) -> Array:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 3, 5, 1, 2, 4).reshape(n, c * 4, h // 2, w // 2)


def to_batch(x: Array) -> Array:
    padded = np.pad(x, ((0, 0), (1, 1), (0, 0), (0, 0)), constant_values=2)
    n, h, w, c = padded.shape
    return padded.reshape(n, h // 2, 2, w // 3, 3, c).transpose(2, 4, 0, 1, 3, 5).reshape(n * 6, h // 2, w // 3, c)


def from_batch(x: Array) -> Array:
    b, h, w, c = x.shape
    split = x.reshape(2, 3, b // 6, h, w, c).transpose(2, 3, 0, 4, 1, 5)
    return split.reshape(b // 6, h * 2, w * 3, c)[:, 1:-1, 2:]


def dilated(x: Array) -> Array:
    made = np.full((max(0, (x.shape[0] - 1) * 2 + 1), x.shape[1] * 3 - 2), 9, x.dtype)
    made[::2, ::3] = x
    return made


def logsumexp(x: Array, axis: int | None, keepdims: bool = False) -> Array:
    return np.asarray(np.log(np.exp(x.astype(np.float64)).sum(axis=axis, keepdims=keepdims)))


def normalized(x: Array, axes: tuple[int, ...]) -> Array:
    """Without mean, of variance 1, in float64."""
    y = x.astype(np.float64)
    return np.asarray((y - y.mean(axes, keepdims=True)) / np.sqrt(y.var(axes, keepdims=True) + 1e-5))


def in_groups(x: Array, gamma: Array, beta: Array) -> Array:
    split = normalized(x.reshape(len(x), 2, 4, *x.shape[2:]), (2, 3, 4)).reshape(x.shape)
    return split * gamma[:, None, None] + beta[:, None, None]


def among_neighbours(x: Array) -> Array:
    squares = np.pad(x.astype(np.float64) ** 2, ((0, 0), (1, 1)))
    total = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    return np.asarray(x / (2 + 0.3 / 3 * total) ** 0.75)


def with_channels(n: int) -> list[Array]:
    return [*images(n), floats(8), floats(8) + 1]


CALLS: dict[str, Call] = {
    "bias_add": Call(lambda x, b: topi.bias_add(x, b, -1), lambda x, b: x + b, lambda n: [floats(n, 6), floats(6)]),
    "prelu": Call(topi.prelu, lambda x, s: np.where(x > 0, x, x * s), lambda n: [floats(n, 6), floats(6)]),
    "scale_shift_nchw": Call(
        topi.scale_shift_nchw, lambda x, a, b: x * a[:, None, None] + b[:, None, None], with_channels
    ),
    "instance_norm": Call(
        topi.instance_norm,
        lambda x, a, b: normalized(x, (2, 3)) * a[:, None, None] + b[:, None, None],
        with_channels,
        empty=False,
    ),
    "group_norm": Call(lambda x, a, b: topi.group_norm(x, a, b, 2), in_groups, with_channels, empty=False),
    "lrn": Call(lambda x: topi.lrn(x, 3, alpha=0.3), among_neighbours),
    "full": Call(lambda x: topi.full((3, 4), "int16", 7), lambda x: np.full((3, 4), 7, np.int16)),
    "full_like": Call(lambda x: topi.full_like(x, 2.5), lambda x: np.full_like(x, 2.5)),
    "arange": Call(lambda x: topi.arange(2, 9, 3, "int32"), lambda x: np.arange(2, 9, 3, dtype=np.int32)),
    "arange of floats": Call(
        lambda x: topi.arange(1.0, -0.6, -0.5), lambda x: np.arange(1, -0.6, -0.5, dtype=np.float32)
    ),
    "meshgrid": Call(
        lambda a, b: topi.meshgrid([a, b], "xy")[1], lambda a, b: np.meshgrid(a, b)[1], lambda n: [floats(n), floats(4)]
    ),
    "meshgrid of rows": Call(
        lambda a, b: topi.meshgrid([a, b])[0],
        lambda a, b: np.meshgrid(a, b, indexing="ij")[0],
        lambda n: [floats(n), floats(4)],
    ),
    "one_hot": Call(
        lambda i: topi.one_hot(i, 2.0, -1.0, 4, axis=1),
        lambda i: np.where(i[:, None, :] == np.arange(4)[:, None], np.float32(2), np.float32(-1)),
        lambda n: [whole(n, 6, low=-1)],
    ),
    "eye": Call(lambda x: topi.eye(3, 5, 1, "int8"), lambda x: np.eye(3, 5, 1, np.int8)),
    "trilu": Call(lambda x: topi.trilu(x, 1), lambda x: np.triu(x, 1)),
    "trilu below": Call(lambda x: topi.trilu(x, -1, upper=False), lambda x: np.tril(x, -1)),
    "matrix_set_diag": Call(
        lambda x, d: topi.matrix_set_diag(x, d, -1),
        lambda x, d: with_diagonal(x, d, -1),
        lambda n: [floats(n, 6), floats(max(n - 1, 0))],
        empty=False,
    ),
    "sequence_mask": Call(
        lambda x, n: topi.sequence_mask(x, n, 7.0), masked, lambda n: [floats(n, 6), whole(6, high=7, low=-1)]
    ),
    "shape": Call(lambda x: topi.shape(x, "int64"), lambda x: np.array(x.shape, np.int64)),
    "ndarray_size": Call(topi.ndarray_size, lambda x: np.array(x.size, np.int32)),
    "tile": Call(lambda x: topi.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3))),
    "repeat": Call(lambda x: topi.repeat(x, 3, -1), lambda x: np.repeat(x, 3, -1)),
    "stack": Call(
        lambda a, b: topi.stack([a, b], -1),
        lambda a, b: np.stack([a, b], -1),
        lambda n: [floats(n, 6), floats(n, 6) + 1],
    ),
    "flip": Call(lambda x: topi.flip(x, (0, 1)), lambda x: np.flip(x, (0, 1))),
    "roll": Call(lambda x: topi.roll(x, (2, -1), (0, 1)), lambda x: np.roll(x, (2, -1), (0, 1))),
    "roll of all": Call(lambda x: topi.roll(x, 7), lambda x: np.roll(x, 7)),
    "reverse_sequence": Call(topi.reverse_sequence, reversed_rows, lambda n: [floats(n, 6), whole(n, high=7, low=-1)]),
    "strided_slice": Call(lambda x: topi.strided_slice(x, [-2, 5], [None, 0], [-1, -2]), lambda x: x[-2::-1, 5:0:-2]),
    "strided_slice of sizes": Call(
        lambda x: topi.strided_slice(x, [1], [3], axes=[-1], slice_mode="size"), lambda x: x[:, 1:4]
    ),
    "dynamic_strided_slice": Call(
        lambda x, b, e, s: topi.dynamic_strided_slice(x, b, e, s, (3, 4), with_sizes=True),
        lambda x, b, e, s: sliced(x, (3, 4), *(slice(*row) for row in zip(b, e, s, strict=True))),
        lambda n: [floats(n, 6), *(np.array(row, np.int32) for row in ((-2, 5), (99, 0), (1, -2)))],
    ),
    "dynamic_strided_slice of the first axis": Call(
        topi.dynamic_strided_slice,
        lambda x, b, e, s: sliced(x, x.shape, slice(b[0], e[0], s[0]))[0],
        lambda n: [floats(n, 6), np.array([-1]), np.array([-(1 << 62)]), np.array([-2])],
    ),
    **{
        f"dynamic_strided_slice by {step}": Call(
            lambda x, b, e, s: topi.dynamic_strided_slice(x, b, e, s, with_sizes=True),
            lambda x, b, e, s: sliced(x, x.shape, slice(b[0], e[0], s[0])),
            partial(cut_of, step),
        )
        for step in ((1 << 63) - 1, -(1 << 63))
    },
    "dynamic_strided_slice of unsigned numbers": Call(
        lambda x, b, e, s: topi.dynamic_strided_slice(x, b, e, s, with_sizes=True),
        lambda x, b, e, s: sliced(x, x.shape, slice(int(b[0]), int(e[0]), int(s[0]))),
        lambda n: [floats(n), *(np.array([v], np.uint64) for v in (1, (1 << 64) - 1, (1 << 64) - 1))],
    ),
    "strided_set": Call(
        lambda x, v: topi.strided_set(x, v, [0, 5], [None, 0], [1, -2]),
        lambda x, v: with_part(x, v, np.s_[:, 5:0:-2]),
        lambda n: [floats(n, 6), floats(n, 3)],
    ),
    "strided_set by data": Call(
        topi.strided_set,
        lambda x, v, b, e, s: with_part(x, v, np.s_[-4:99:2, 5:0:-2]) if len(x) else x,
        lambda n: [floats(n, 6), floats(2, 3), *(np.array(row, np.int32) for row in ((-4, 5), (99, 0), (2, -2)))],
    ),
    "strided_set by data of the first axis": Call(
        topi.strided_set,
        lambda x, v, b, e: with_part(x, v, np.s_[1:3]) if len(x) else x,
        lambda n: [whole(n, 6), whole(2, 6, high=99), np.array([1]), np.array([3])],
    ),
    "strided_set by fewer strides": Call(
        topi.strided_set,
        lambda x, v, b, e, s: with_part(x, v, np.s_[1:3, 0:6]) if len(x) else x,
        lambda n: [floats(n, 6), floats(2, 6), *(np.array(row, np.int32) for row in ((1,), (3, 6), (1,)))],
    ),
    "gather_nd of floats": Call(
        topi.gather_nd,
        lambda x, i: x[tuple(i.astype(int))],
        lambda n: [floats(4, 6), np.array([[1.5, 3.0], [0.0, 5.9]], np.float32)[:, :n]],
    ),
    "strided_slice by data": Call(
        topi.strided_slice,
        lambda x, b, e: sliced(x, x.shape, slice(1, 4))[0],
        lambda n: [floats(n, 6), np.array([1]), np.array([4])],
    ),
    "slice_like": Call(
        lambda x, y: topi.slice_like(x, y, [1]), lambda x, y: x[:, :4], lambda n: [floats(n, 6), floats(1, 4)]
    ),
    "sliding_window": Call(
        lambda x: topi.sliding_window(x, 1, [3], [2]),
        lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, 1)[:, ::2],
    ),
    "gather_nd": Call(topi.gather_nd, lambda x, i: x[tuple(i)], lambda n: [floats(5, 4, 3), whole(2, n, high=4)]),
    "gather_nd of batches": Call(
        lambda x, i: topi.gather_nd(x, i, batch_dims=1),
        lambda x, i: np.stack([x[b, i[0, b]] for b in range(len(x))]) if len(x) else x[:, :0],
        lambda n: [floats(n, 4), whole(1, n, 3, high=4)],
        empty=False,
    ),
    "adv_index": Call(
        lambda x, i, j: topi.adv_index(x, [i, j]),
        lambda x, i, j: x[i, j],
        lambda n: [floats(5, 4, 3), whole(n, 1), whole(2, high=4)],
    ),
    "unravel_index": Call(
        lambda i: topi.unravel_index(i, (3, 4, 5)),
        lambda i: np.stack(np.unravel_index(i, (3, 4, 5))).astype(np.int32),
        lambda n: [whole(n, 2, high=60)],
    ),
    "unravel_index in a shape that is data": Call(
        topi.unravel_index,
        lambda i, shape: np.stack(np.unravel_index(i, tuple(shape))).astype(np.int8),
        lambda n: [whole(n, high=60).astype(np.int8), np.array([1, 3, 200], np.int64)],
    ),
    "flatten": Call(topi.flatten, lambda x: x.reshape(len(x), -1), lambda n: [floats(n, 4, 3)], empty=False),
    "depth_to_space": Call(lambda x: topi.depth_to_space(x, 2), lambda x: to_space(x, "DCR"), images),
    "depth_to_space by columns": Call(
        lambda x: topi.depth_to_space(x, 2, "NHWC", "CRD"),
        lambda x: to_space(x.transpose(0, 3, 1, 2), "CRD").transpose(0, 2, 3, 1),
        lambda n: [floats(n, 2, 3, 8)],
    ),
    "space_to_depth": Call(lambda x: topi.space_to_depth(x, 2), to_depth, images),
    "space_to_batch_nd": Call(
        lambda x: topi.space_to_batch_nd(x, [2, 3], [1, 0], [1, 0], 2.0), to_batch, lambda n: [floats(n, 4, 6, 2)]
    ),
    "batch_to_space_nd": Call(
        lambda x: topi.batch_to_space_nd(x, [2, 3], [1, 2], [1, 0]), from_batch, lambda n: [floats(6 * n, 3, 2, 2)]
    ),
    "dilate": Call(lambda x: topi.dilate(x, (2, 3), 9.0), dilated),
    "mirror_pad": Call(
        lambda x: topi.mirror_pad(x, (0, 6), (0, 2)),
        lambda x: np.pad(x, ((0, 0), (6, 2)), mode="symmetric"),
        empty=False,
    ),
    "mirror_pad without the edge": Call(
        lambda x: topi.mirror_pad(x, (4, 0), (2, 5), "REFLECT"),
        lambda x: np.pad(x, ((4, 2), (0, 5)), mode="reflect"),
        empty=False,
    ),
    "cumsum": Call(lambda x: topi.cumsum(x, 1), lambda x: np.cumsum(x, 1)),
    "scanop": Call(
        lambda x: topi.scanop(x, te.maximum, -9, "scan", 1, exclusive=True),
        lambda x: np.maximum.accumulate(np.pad(x, ((0, 0), (1, 0)), constant_values=-9), 1)[:, :-1],
        lambda n: [whole(n, 6, low=-20)],
    ),
    "cumsum before each": Call(
        lambda x: topi.cumsum(x, 0, exclusive=True),
        lambda x: np.cumsum(x, 0) - x,
        lambda n: [np.round(floats(n, 6) * 4)],
    ),
    "cumsum of all": Call(
        lambda x: topi.cumsum(x, dtype="int64"), lambda x: np.cumsum(x, dtype=np.int64), lambda n: [whole(n, 6)]
    ),
    "cumprod": Call(lambda x: topi.cumprod(x, -1), lambda x: np.cumprod(x, -1)),
    "einsum": Call(
        lambda a, b: topi.einsum("bij,bjk->bik", a, b),
        lambda a, b: np.einsum("bij,bjk->bik", a, b),
        lambda n: [floats(2, n, 4), floats(2, 4, 3)],
    ),
    "einsum without an arrow": Call(
        lambda a, b: topi.einsum("ji,jk", a, b),
        lambda a, b: np.einsum("ji,jk", a, b),
        lambda n: [floats(4, n), floats(4, 3)],
    ),
    "einsum of a diagonal": Call(
        lambda a: topi.einsum("ii->i", a), lambda a: np.einsum("ii->i", a), lambda n: [floats(n, n)]
    ),
    **{
        f"tensordot of {axes}": Call(
            lambda a, b, axes=axes: topi.tensordot(a, b, axes),
            lambda a, b, axes=axes: np.tensordot(a, b, axes),
            products,
        )
        for axes in (0, 1, (2, 0), ((1, -1), (1, 0)))
    },
    "argwhere": Call(
        lambda x: topi.argwhere(None, x, with_count=True), lambda x: places(x, x.size), lambda n: [whole(n, 6, high=3)]
    ),
    "argwhere of a few": Call(
        lambda x: topi.argwhere((4, 2), x), lambda x: places(x, 4)[0], lambda n: [whole(n, 6, high=3) > 0]
    ),
    "invert_permutation": Call(
        topi.invert_permutation,
        lambda p: np.argsort(p).astype(np.int32),
        lambda n: [np.random.default_rng(0).permutation(n).astype(np.int32)],
    ),
    "expand_like": Call(
        lambda a, like: topi.expand_like(a, like, [0, -1]),
        lambda a, like: np.broadcast_to(a[None, :, None], like.shape),
        lambda n: [floats(n), floats(3, n, 2)],
    ),
    "einsum of bools": Call(
        lambda a, b: topi.einsum("ij,jk->ik", a, b),
        lambda a, b: np.einsum("ij,jk->ik", a, b),
        lambda n: [whole(n, 6) > 2, whole(6, 4) > 2],
    ),
    "argsort": Call(lambda x: topi.argsort(x, axis=1, dtype="int64"), lambda x: np.argsort(x, 1, kind="stable")),
    "argsort of equal ones": Call(
        lambda x: topi.argsort(x, axis=0, is_ascend=False, dtype="int64"),
        lambda x: np.argsort(-x, 0, kind="stable"),
        lambda n: [whole(n, 6)],
        empty=False,
    ),
    "sort": Call(topi.sort, np.sort),
    "topk": Call(lambda x: topi.topk(x, 3)[0], lambda x: -np.sort(-x, 1)[:, :3]),
    "topk places": Call(lambda x: topi.topk(x, 2, 1, "indices"), lambda x: np.argsort(-x, 1, kind="stable")[:, :2]),
    "searchsorted": Call(
        lambda s, v: topi.searchsorted(s, v, right=True),
        lambda s, v: np.searchsorted(s, v, "right"),
        lambda n: [np.sort(floats(9)), floats(n, 6)],
    ),
    "searchsorted of what is no number": Call(
        topi.searchsorted,
        np.searchsorted,
        lambda n: [np.array([1, 2, np.nan, np.nan], np.float32), np.array([np.nan, 1.5], np.float32)],
    ),
    "searchsorted behind what is no number": Call(
        lambda s, v: topi.searchsorted(s, v, right=True),
        lambda s, v: np.searchsorted(s, v, "right"),
        lambda n: [np.array([1, 2, np.nan, np.nan], np.float32), np.array([np.nan, 1.5], np.float32)],
    ),
    "unique": Call(
        lambda x: topi.unique(x, return_counts=True), lambda x: uniques(x, True), lambda n: [whole(2 * n, low=-3)]
    ),
    "unique of floats": Call(
        topi.unique,
        lambda x: uniques(x, True)[:4],
        lambda n: [np.array([3, np.nan, 1, np.nan, 3][:n], np.float32)],
    ),
    "unique as they come": Call(
        lambda x: topi.unique(x, False, True), lambda x: uniques(x, False), lambda n: [whole(2 * n, low=-3)]
    ),
    "searchsorted of rows": Call(
        topi.searchsorted,
        lambda s, v: np.stack([np.searchsorted(a, b) for a, b in zip(s, v, strict=True)]),
        lambda n: [np.sort(whole(n, 9), 1), whole(n, 6)],
        empty=False,
    ),
    "any": Call(lambda x: topi.any(x, 1), lambda x: x.any(1), lambda n: [whole(n, 6, high=2)]),
    "all": Call(lambda x: topi.all(x, (0, 1), True), lambda x: x.all(keepdims=True), lambda n: [whole(n, 2, high=3)]),
    "logsumexp": Call(lambda x: topi.logsumexp(x, 1), lambda x: logsumexp(x, 1)),
    "logsumexp of all": Call(lambda x: topi.logsumexp(x, None, True), lambda x: logsumexp(x, None, True), empty=False),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    check(CALLS[name], "llvm", N)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call.empty])
def test_calls_without_elements(name: str) -> None:
    check(CALLS[name], "llvm", 0)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("target", ["interpreter", on_opencl, on_cuda])
@pytest.mark.parametrize("name", CALLS)
def test_calls_elsewhere(name: str, target: str) -> None:
    check(CALLS[name], target, N)


MATRIX = te.placeholder((4, 6), name="m")
LENGTH, LONG = te.placeholder((1,), "int32", name="one"), te.placeholder((3,), "int32", name="three")
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "arange": (lambda: topi.arange(1, 5, 0), "the step is 0"),
    "meshgrid": (lambda: topi.meshgrid([MATRIX]), "meshgrid wants vectors"),
    "one_hot": (lambda: topi.one_hot(MATRIX, 1, 0, 4, axis=5), "no place 5"),
    "trilu": (lambda: topi.trilu(te.placeholder((4,))), "trilu wants matrices"),
    "matrix_set_diag": (lambda: topi.matrix_set_diag(MATRIX, te.placeholder((6,))), "has 4 elements"),
    "sequence_mask": (lambda: topi.sequence_mask(MATRIX, MATRIX), "a vector of lengths"),
    "tile": (lambda: topi.tile(MATRIX, (2, -1)), "numbers of at least 0"),
    "repeat": (lambda: topi.repeat(MATRIX, 0, 1), "a number of at least 1"),
    "roll": (lambda: topi.roll(MATRIX, (1, 2, 3), (0, 1)), "a shift for each axis"),
    "strided_slice": (lambda: topi.strided_slice(MATRIX, [0], [3], [0]), "a stride is 0"),
    "strided_slice of a size": (
        lambda: topi.strided_slice(te.placeholder((te.var("n"),)), [1], [3]),
        "has a symbolic extent",
    ),
    "strided_set": (lambda: topi.strided_set(MATRIX, MATRIX, [0, 1], [4, 6]), "does not fit the slice"),
    "strided_set of numbers and data": (
        lambda: topi.strided_set(MATRIX, MATRIX, LENGTH, [4]),
        "are all numbers, or all tensors",
    ),
    "strided_set by data": (lambda: topi.strided_set(MATRIX, LENGTH, LENGTH, LENGTH), "does not fit a slice of 1 axes"),
    "strided_slice by data": (lambda: topi.strided_slice(MATRIX, LENGTH, LENGTH, axes=[1]), "takes no axes"),
    "slice_like": (lambda: topi.slice_like(MATRIX, te.placeholder((9, 9))), "is not known to have 9 elements"),
    "sliding_window": (lambda: topi.sliding_window(MATRIX, 0, [7], [1]), "a window of 7 does not fit"),
    "gather_nd": (lambda: topi.gather_nd(MATRIX, te.placeholder((3, 2), "int32")), "one row for each coordinate"),
    "tensordot": (lambda: topi.tensordot(MATRIX, MATRIX, 1), "does not fit"),
    "tensordot of other axes": (lambda: topi.tensordot(MATRIX, MATRIX, ((0, 1), (0,))), "each once"),
    "argwhere": (lambda: topi.argwhere((3,), MATRIX), r"has the shape \(n, 2\)"),
    "expand_like": (lambda: topi.expand_like(MATRIX, MATRIX, [0]), "has not the shape of"),
    "gather_nd of other batches": (
        lambda: topi.gather_nd(MATRIX, te.placeholder((1, 3, 2), "int32"), batch_dims=1),
        "are not those of",
    ),
    "unravel_index": (lambda: topi.unravel_index(te.placeholder((3,), "int32"), (3, -4)), "none of them negative"),
    "unravel_index in a shape of floats": (
        lambda: topi.unravel_index(te.placeholder((3,), "int32"), te.placeholder((2,))),
        "none of them negative",
    ),
    "dynamic_strided_slice": (
        lambda: topi.dynamic_strided_slice(MATRIX, LONG, LONG, LONG),
        "vectors of integers, at most 2",
    ),
    "dynamic_strided_slice of another shape": (
        lambda: topi.dynamic_strided_slice(MATRIX, LENGTH, LENGTH, LENGTH, (4, 5)),
        "the output_shape of a slice of 1 axes",
    ),
    "unique": (lambda: topi.unique(MATRIX), "takes a vector"),
    "argsort": (lambda: topi.argsort(te.placeholder((200,)), dtype="int8"), "int8 does not hold all places of 200"),
    "adv_index": (lambda: topi.adv_index(MATRIX, [MATRIX]), "tensors of integers"),
    "depth_to_space": (lambda: topi.depth_to_space(te.placeholder((1, 6, 2, 2)), 2), "are no squares of 2"),
    "space_to_depth": (lambda: topi.space_to_depth(te.placeholder((1, 4, 3, 2)), 2), "make no squares of 2"),
    "space_to_batch_nd": (lambda: topi.space_to_batch_nd(MATRIX, [4], [0], [0]), "make no blocks of 4"),
    "dilate": (lambda: topi.dilate(MATRIX, (2,)), "wants 2 numbers of at least 1"),
    "mirror_pad": (lambda: topi.mirror_pad(MATRIX, (5, 0)), "is wider than 4 elements"),
    "einsum": (lambda: topi.einsum("ij,jk->ik", MATRIX, MATRIX), "does not fit"),
    "einsum of dots": (lambda: topi.einsum("..i->i", MATRIX), "is no list of letters"),
    "topk": (lambda: topi.topk(MATRIX, 7), "k of at most 6"),
    "sort": (lambda: topi.sort(te.placeholder((te.var("n"),))), "has a symbolic extent"),
    "searchsorted": (lambda: topi.searchsorted(te.placeholder((3, 6)), MATRIX), "a row for each of"),
    "prelu": (lambda: topi.prelu(MATRIX, te.placeholder((4,))), "an element for each of axis 1"),
    "group_norm": (
        lambda: topi.group_norm(MATRIX, te.placeholder((6,)), te.placeholder((6,)), 4, axes=[0]),
        "does not make 4 groups",
    ),
    "lrn": (lambda: topi.lrn(MATRIX, 4), "an odd number of neighbours"),
    "logsumexp": (lambda: topi.logsumexp(te.placeholder((4,), "int32")), "logsumexp wants floats"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(DefinitionError, match=message):
        call()


@pytest.mark.parametrize("target", ["llvm", "interpreter"])
@pytest.mark.parametrize("numbers", [[0, 1, -2], [0, 1, 3]])
def test_numbers_of_no_permutation_are_found_when_the_kernel_runs(numbers: list[int], target: str) -> None:
    with pytest.raises(KernelError):
        ran(CALLS["invert_permutation"], target, [np.array(numbers, np.int32)])


def test_points_outside_are_found_when_the_kernel_runs() -> None:
    with pytest.raises(KernelError):
        ran(CALLS["gather_nd"], "llvm", [floats(2, 4, 3), whole(2, 3, low=5, high=9)])


def test_rows_of_a_recurrence_share_no_set_of_a_cache() -> None:
    """Four at a time: of eight rows a page apart, read and written, a first cache of eight ways holds half."""
    s = topi.schedule(topi.cumsum(te.placeholder((1024, 1024)), 1), "llvm -mcpu=znver4 -num-cores=1", tuned=False)
    assert "split('i0', factor=4, tail='peel')" in str(s)
