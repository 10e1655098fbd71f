"""Sums of half precision over many terms: added up in float32 and rounded once, by every operator that adds up."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tensorlang import dtypes, te, topi
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import walk
from tensorlang.te.operation import ComputeOp, Reduce, Tensor
from tensorlang.te.program import canonical
from tensorlang.topi.table import OPERATORS
from tests.topi.gpu.test_every_operator import SIZES
from tests.topi.programs import Array, shape_of
from tests.topi.programs import run as run_program

TARGET = "llvm -num-cores=1"
Shapes = tuple[tuple[int, ...], ...]
Function = Callable[..., Tensor]


def of(function: Function, *options: Any, **named: Any) -> Function:
    """A function of tensors with the options behind them."""
    return lambda *tensors, **more: function(*tensors, *options, **named, **more)


def packed(x: Tensor, w: Tensor, out_dtype: str | None = None) -> Tensor:
    return topi.dense_packed(x, topi.pack_weight(w, target=TARGET), w.shape[0], out_dtype=out_dtype)


def sparse(data: Tensor, elements: Tensor) -> Tensor:
    """One row of weights, all of whose elements are stored."""
    n = elements.shape[0]
    indices = te.compute((n,), lambda k: k.astype("int32"), name="indices")
    begins = te.compute((2,), lambda k: te.select(k < 1, 0, n).astype("int32"), name="begins")
    return topi.nn.sparse_dense(data, elements, indices, begins)


PRODUCTS: dict[str, tuple[Function, Callable[[int], Shapes]]] = {
    "matmul": (topi.matmul, lambda n: ((3, n), (n, 20))),
    "batch_matmul": (topi.batch_matmul, lambda n: ((2, 3, n), (2, 20, n))),
    "dense": (topi.dense, lambda n: ((3, n), (20, n))),
    "dense with a bias": (topi.dense, lambda n: ((3, n), (20, n), (20,))),
    "conv2d_nchw": (of(topi.conv2d_nchw, 1, 0, 1), lambda n: ((1, n, 3, 4), (20, n, 2, 2))),
    "conv2d_nchw, few outputs": (of(topi.conv2d_nchw, 1, 0, 1), lambda n: ((1, n, 3, 4), (2, n, 2, 2))),
    "conv2d_nhwc": (of(topi.conv2d_nhwc, 1, 0, 1), lambda n: ((1, 3, 4, n), (2, 2, n, 20))),
    "conv2d_hwcn": (of(topi.conv2d_hwcn, 1, 0, 1), lambda n: ((3, 4, n, 2), (2, 2, n, 5))),
    "conv2d_NCHWc": (
        lambda x, w, **more: topi.conv2d_NCHWc(x, w, 1, 0, 1, "", "", **more),
        lambda n: ((1, n // 7, 3, 4, 7), (2, n // 7, 2, 2, 7, 8)),
    ),
    "group_conv2d_nchw": (of(topi.group_conv2d_nchw, 1, 0, 1, 2), lambda n: ((1, 2 * n, 3, 4), (4, n, 2, 2))),
    "conv1d_ncw": (topi.conv1d_ncw, lambda n: ((1, n, 9), (5, n, 3))),
    "conv3d_ndhwc": (topi.conv3d_ndhwc, lambda n: ((1, 2, 2, 2, n), (2, 1, 2, n, 5))),
    "conv2d_transpose_nchw": (
        lambda x, w, out_dtype=None: topi.conv2d_transpose_nchw(x, w, 2, 0, out_dtype),
        lambda n: ((1, n, 3, 3), (n, 5, 2, 2)),
    ),
    "depthwise_conv2d_nchw": (topi.depthwise_conv2d_nchw, lambda n: ((1, 3, 1, n + 5), (3, 1, 1, n))),
    "depthwise_conv2d_nhwc": (topi.depthwise_conv2d_nhwc, lambda n: ((1, 1, n + 5, 3), (1, n, 3, 1))),
    "depthwise_conv2d_NCHWc": (topi.nn.depthwise_conv2d_NCHWc, lambda n: ((1, 1, 1, n + 5, 4), (1, 1, 1, n, 1, 4))),
    "deformable_conv2d_nchw": (
        of(topi.nn.deformable_conv2d_nchw),
        lambda n: ((1, n, 2, 2), (1, 2, 2, 2), (3, n, 1, 1)),
    ),
    "dense_packed": (packed, lambda n: ((3, n), (20, n))),
}
"""What has an `out_dtype`."""
OTHERS: dict[str, tuple[Function, Callable[[int], Shapes]]] = {
    "einsum": (lambda a, b: topi.einsum("ik,kj->ij", a, b), PRODUCTS["matmul"][1]),
    "tensordot": (of(topi.tensordot, 1), PRODUCTS["matmul"][1]),
    "sparse_dense": (sparse, lambda n: ((3, n), (n,))),
    "attention": (topi.attention, lambda n: ((1, 2, 16), (1, n, 16), (1, n, 16))),
    "lstm": (lambda *x: topi.nn.lstm(*x)[0], lambda n: ((2, 1, n), (4, n), (4, 1))),
    "gru": (topi.nn.gru, lambda n: ((1, 1, n), (3 * 500, n), (3 * 500, 500))),
    "sum": (of(topi.sum, 1), lambda n: ((3, n),)),
    "sum of columns": (of(topi.sum, 0), lambda n: ((n, 3),)),
    "mean": (of(topi.mean, 1), lambda n: ((3, n),)),
    "prod": (of(topi.prod, 1), lambda n: ((3, n // 8),)),
    "logsumexp": (of(topi.logsumexp, 1), lambda n: ((3, n),)),
    "collapse_sum": (of(topi.collapse_sum, (3, 1)), lambda n: ((3, n),)),
    "cumsum": (of(topi.cumsum, 1), lambda n: ((3, n),)),
    "cumprod": (of(topi.cumprod, 1), lambda n: ((3, n // 8),)),
    "softmax": (topi.softmax, lambda n: ((3, n),)),
    "log_softmax": (topi.log_softmax, lambda n: ((3, n),)),
    "layer_norm": (topi.layer_norm, lambda n: ((3, n),)),
    "rms_norm": (topi.rms_norm, lambda n: ((3, n),)),
    "group_norm": (of(topi.group_norm, 2), lambda n: ((1, 4, 1, n), (4,), (4,))),
    "instance_norm": (topi.instance_norm, lambda n: ((1, 4, 1, n), (4,), (4,))),
    "pool2d": (of(topi.nn.pool2d, (1, 500), pool_type="avg"), lambda n: ((1, 2, 1, n),)),
    "global_pool": (of(topi.nn.global_pool, "avg"), lambda n: ((1, 2, 3, n),)),
    "adaptive_pool": (of(topi.nn.adaptive_pool, (1, 2), "avg"), lambda n: ((1, 2, 3, n),)),
    "lrn": (of(topi.nn.lrn, 301), lambda n: ((1, n, 1, 2),)),
    "dft": (lambda x, y: topi.dft(x, y)[0], lambda n: ((n,), (n,))),
    "correlation": (of(topi.nn.correlation_nchw, 1, 1, 1, 1, 1, True), lambda n: ((1, n, 4, 4), (1, n, 4, 4))),
}
ALL = {**PRODUCTS, **OTHERS}


def numbers(shapes: Shapes, dtype: str) -> list[Array]:
    """Numbers around one: no sum of them cancels, and partial sums of half precision would stop growing."""
    rng = np.random.default_rng(5)
    return [(rng.random(shape) / 2 + 0.75).astype(dtypes.info(dtype).numpy) for shape in shapes]


def check(function: Function, arrays: list[Array], made_of: str, wanted: Array) -> None:
    """Hold what a kernel computes in a narrow dtype against float64, by one rounding and what float32 is off by."""
    given = [te.placeholder(a.shape, dtypes.canonical(a.dtype), f"x{k}") for k, a in enumerate(arrays)]
    out = function(*given)
    assert out.dtype == made_of and tuple(shape_of(out)) == wanted.shape
    made = run_program(out, *zip(given, arrays, strict=True), target=TARGET).astype(np.float64)
    bound = float(ml_dtypes.finfo(dtypes.info(made_of).numpy).eps) / 2 + 1e-4
    np.testing.assert_allclose(made, wanted, rtol=bound, atol=bound * 1e-1)


@pytest.mark.covering(1)
@pytest.mark.parametrize("n", [511, 4097])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ALL)
def test_half_precision_is_added_up_in_float32(name: str, dtype: str, n: int) -> None:
    function, shapes = ALL[name]
    arrays = numbers(shapes(n), dtype)
    check(function, arrays, dtype, te.evaluate(function, *(a.astype(np.float64) for a in arrays)))


@pytest.mark.covering(1)
@pytest.mark.parametrize("n", [511, 4097])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_sums_of_float32_are_rounded_once_to_the_dtype_that_is_asked_for(name: str, dtype: str, n: int) -> None:
    function, shapes = PRODUCTS[name]
    arrays = numbers(shapes(n), "float32")
    wanted = te.evaluate(function, *(a.astype(np.float64) for a in arrays))
    check(of(function, out_dtype=dtype), arrays, dtype, wanted)


WIDE = (1, 1, 2, 515)
GRID = np.stack([np.linspace(-1, 1, 99), np.zeros(99)]).reshape(1, 2, 1, 99)
SAMPLED: dict[str, tuple[Function, list[Array]]] = {
    "deformable_conv2d_nchw": (topi.nn.deformable_conv2d_nchw, [np.zeros((1, 2, 2, 515)), np.ones((1, 1, 1, 1))]),
    "grid_sample": (topi.image.grid_sample, [GRID]),
    "crop_and_resize": (
        lambda x, b: topi.image.crop_and_resize(x, b, te.compute((1,), lambda i: i, "at"), (1, 9)),
        [np.array([[0.0, 0.3, 1.0, 0.9]])],
    ),
    "roi_align_nchw": (of(topi.vision.roi_align_nchw, (1, 3), 1.0, "max", 2), [np.array([[0, 410, 0, 504, 1.0]])]),
    "affine_grid": (lambda _, m: topi.image.affine_grid(m, (2, 515)), [np.array([[[0.7, 0.3, 0.2], [0.1, 0.9, 0.3]]])]),
}
"""What reads images between their pixels, and the rest of what each takes."""


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", SAMPLED)
def test_places_in_images_are_in_float32(name: str, dtype: str) -> None:
    """Half precision has no place between pixels 300 and 301, bfloat16 no pixel 301."""
    function, rest = SAMPLED[name]
    arrays = [a.astype(dtypes.info(dtype).numpy) for a in (*numbers((WIDE,), "float64"), *rest)]
    check(function, arrays, dtype, te.evaluate(function, *(a.astype(np.float64) for a in arrays)))


def sums_of(out: Tensor) -> set[str]:
    """The dtypes in which a program adds up and multiplies."""
    program, _ = canonical([out])
    bodies = [body for op in program.ops if isinstance(op, ComputeOp) for body in op.body]
    found = [part for body in bodies for part in walk(body) if isinstance(part, Reduce)]
    return {part.dtype for part in found if part.reducer.name in ("sum", "prod")}


def test_no_operator_by_name_adds_up_in_half_precision() -> None:
    found = {}
    for name, operator in OPERATORS.items():
        with contextlib.suppress(DefinitionError):  # of integers alone
            *_, out = operator.tensors([SIZES[size] for size in operator.sizes], "float16")
            found[name] = sums_of(out)
    assert len(found) > 20 and {"matmul", "conv2d", "depthwise_conv2d", "sum", "dense_packed"} <= set(found)
    assert not [name for name, dtypes_ in found.items() if "float16" in dtypes_]
