"""Products of matrices: every form and shape against NumPy, and the machine code of the micro-kernel."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorlang
from tensorlang import dtypes, te, topi
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const
from tensorlang.runtime.executable import Executable
from tensorlang.schedules.cpu.product_plan import Plan, Reading, plan_of
from tensorlang.schedules.cpu.register_tile import fixed_width, register_tile
from tensorlang.schedules.product import product_of
from tensorlang.target.detect import parse
from tensorlang.target.spec import Target
from tensorlang.te.operation import ComputeOp, Tensor

Array = npt.NDArray[Any]


ZEN5 = replace(parse("llvm -mcpu=znver5"), caches=(48 << 10, 1 << 20, 32 << 20))
"""A machine whose plans are known, whatever the caches of this one."""


def extents(tensor: Tensor) -> tuple[int, ...]:
    return tuple(int(extent.value) for extent in tensor.shape if isinstance(extent, Const))


def numbers(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Array:
    """Small whole numbers, whose sums of products are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def run(output: Tensor, *inputs: tuple[Tensor, Array], target: str | Target | None = None) -> Array:
    """What the library's schedule computes."""
    kernel = tensorlang.build(topi.schedule(output, target), [*(t for t, _ in inputs), output], target)
    made: Array = np.full(extents(output), 77, output.dtype)
    kernel(*(a for _, a in inputs), made)
    return made


def factor(name: str, *shape: int, dtype: str = "float32") -> tuple[Tensor, Array]:
    return te.placeholder(shape, dtype, name), numbers(shape, dtype, len(name) + sum(shape))


def plan(output: Tensor, target: str | Target | None = None) -> Plan:
    op = output.op
    assert isinstance(op, ComputeOp)
    made = topi.schedule(output, target).original[op.name]
    assert isinstance(made, ComputeOp)
    return plan_of(product_of(made), parse(target))


def check(m: int, n: int, k: int, transpose_a: bool, transpose_b: bool, dtype: str = "float32") -> None:
    a, x = factor("a", *((k, m) if transpose_a else (m, k)), dtype=dtype)
    b, y = factor("b", *((n, k) if transpose_b else (k, n)), dtype=dtype)
    made = run(topi.matmul(a, b, transpose_a, transpose_b), (a, x), (b, y))
    np.testing.assert_array_equal(made, (x.T if transpose_a else x) @ (y.T if transpose_b else y))


NAMED = [(512, 512, 512), (1000, 300, 700), (128, 3072, 768), (128, 768, 3072), (32, 1024, 4096), (1, 4096, 1024)]
"""Of the large thin shapes a quarter: 32 by 4096 by 4096 and 1 by 4096 by 4096 have four times the terms or columns."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("m", "n", "k"), NAMED)
def test_named_shapes(m: int, n: int, k: int) -> None:
    check(m, n, k, transpose_a=False, transpose_b=False)


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("m", "n", "k", "shared"),
    [(300, 512, 100, "columns"), (1200, 20, 60, "rows"), (500, 20, 6000, "rows"), (40, 40, 40, "")],
)
@pytest.mark.parametrize("transposed", [False, True])
def test_threads_share_the_longer_side(m: int, n: int, k: int, shared: str, transposed: bool) -> None:
    named, machine = replace(ZEN5, cores=2), replace(parse(None), cores=2)
    (a, x), (b, y) = factor("a", *((k, m) if transposed else (m, k))), factor("b", *((n, k) if transposed else (k, n)))
    c = topi.matmul(a, b, transposed, transposed)
    assert plan(c, named).shared == shared
    exact = (x.T if transposed else x) @ (y.T if transposed else y)
    np.testing.assert_array_equal(run(c, (a, x), (b, y), target=machine), exact)


@pytest.mark.sampled(3)
@pytest.mark.covering(2)
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (1, 1, 1),
        (1, 37, 300),
        (7, 1, 5),
        (13, 129, 1),
        (100, 70, 33),
        (257, 131, 65),
        (5, 3000, 40),
        (300, 40, 5000),
        (300, 1, 200),
        (33, 401, 1501),
        (600, 65, 2700),
    ],
)
def test_odd_and_thin_shapes(m: int, n: int, k: int, transpose_a: bool, transpose_b: bool) -> None:
    check(m, n, k, transpose_a, transpose_b)


sizes = st.integers(1, 90) | st.sampled_from([127, 128, 129, 257, 1024])


@settings(max_examples=8)
@given(sizes, sizes, sizes, st.booleans(), st.booleans())
def test_random_shapes(m: int, n: int, k: int, transpose_a: bool, transpose_b: bool) -> None:
    check(m, n, k, transpose_a, transpose_b)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int64", "uint8"])
def test_dtypes(dtype: str) -> None:
    check(50, 70, 30, transpose_a=False, transpose_b=False, dtype=dtype)
    check(50, 70, 30, transpose_a=True, transpose_b=True, dtype=dtype)


def test_sums_may_be_wider_than_factors() -> None:
    (a, x), (b, y) = factor("a", 40, 60, dtype="int8"), factor("b", 50, 60, dtype="int8")
    made = run(topi.dense(a, b, out_dtype="int32"), (a, x), (b, y))
    np.testing.assert_array_equal(made, x.astype("int32") @ y.T.astype("int32"))


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("q", "m", "n", "k"), [(12, 128, 128, 64), (12, 128, 64, 128), (3, 1, 50, 70), (2, 37, 41, 3000)]
)
@pytest.mark.parametrize("transpose_b", [False, True])
def test_batches(q: int, m: int, n: int, k: int, transpose_b: bool) -> None:
    (a, x), (b, y) = factor("a", q, m, k), factor("b", *((q, n, k) if transpose_b else (q, k, n)))
    made = run(topi.batch_matmul(a, b, transpose_b=transpose_b), (a, x), (b, y))
    np.testing.assert_array_equal(made, x @ (y.transpose(0, 2, 1) if transpose_b else y))


def test_one_matrix_serves_a_batch() -> None:
    (a, x), (b, y) = factor("a", 1, 30, 20), factor("b", 5, 40, 20)
    np.testing.assert_array_equal(run(topi.batch_matmul(a, b), (a, x), (b, y)), x @ y.transpose(0, 2, 1))
    (a, x), (b, y) = factor("a", 5, 20, 30), factor("b", 1, 20, 40)
    made = run(topi.batch_matmul(a, b, transpose_a=True, transpose_b=False), (a, x), (b, y))
    np.testing.assert_array_equal(made, x.transpose(0, 2, 1) @ y)


@pytest.mark.sampled(3)
@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 300, 200), (1, 300, 64), (32, 100, 700), (128, 96, 300), (37, 61, 4000), (5, 9, 33)]
)
@pytest.mark.parametrize("packed", [False, True])
def test_epilogues_are_computed_in_the_tile(m: int, n: int, k: int, packed: bool) -> None:
    (x, a), (w, b), (bias, c), (skip, d) = factor("x", m, k), factor("w", n, k), factor("bias", n), factor("skip", m, n)
    if packed:
        form = topi.pack_weight(w)
        weights = te.placeholder(extents(form), "float32", "weights")
        layer, given_w = topi.dense_packed(x, weights, n, bias), (weights, run(form, (w, b)))
    else:
        layer, given_w = topi.dense(x, w, bias), (w, b)
    relu = te.compute((m, n), lambda i, j: te.maximum(layer[i, j], 0.0), name="relu")
    total = te.compute((m, n), lambda i, j: relu[i, j] + skip[i, j], name="total")
    assert {stage.op.name for stage in topi.schedule(total).stages} >= {"total", "dense_product"}
    assert topi.schedule(total).state.stages["dense_product"].attach is not None
    made = run(total, (x, a), given_w, (bias, c), (skip, d))
    np.testing.assert_array_equal(made, np.maximum(a @ b.T + c, 0) + d)


def test_gelu_of_a_dense_layer() -> None:
    m, n, k = 32, 192, 768
    x, w, bias = (te.placeholder(s, name=name) for s, name in (((m, k), "x"), ((k, n), "w"), ((n,), "bias")))
    y = topi.matmul(x, w)
    z = te.compute((m, n), lambda i, j: y[i, j] + bias[j], name="z")
    gelu = te.compute((m, n), lambda i, j: 0.5 * z[i, j] * (1.0 + te.erf(z[i, j] * 0.5**0.5)), name="gelu")
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(extents(t), dtype=np.float32) * 0.2 for t in (x, w, bias)]
    made = run(gelu, *zip((x, w, bias), arrays, strict=True))
    exact = arrays[0].astype("f8") @ arrays[1] + arrays[2]
    exact = 0.5 * exact * (1 + np.vectorize(math.erf)(exact * 0.5**0.5))
    np.testing.assert_allclose(made, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [1, 16, 31, 300])
@pytest.mark.parametrize("transposed", [False, True])
def test_weights_are_packed_in_panels(n: int, transposed: bool) -> None:
    k = 41
    w, b = factor("w", *((n, k) if transposed else (k, n)))
    made = run(topi.pack_weight(w, transposed), (w, b))
    columns = b if transposed else b.T
    width = made.shape[2]
    assert made.shape == (-(-n // width), k, width)
    flat = made.transpose(0, 2, 1).reshape(-1, k)
    np.testing.assert_array_equal(flat[:n], columns)
    np.testing.assert_array_equal(flat[n:], 0)


def test_symbolic_sizes() -> None:
    m, n, k = te.var("m"), te.var("n"), te.var("k")
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    c = topi.matmul(a, b)
    kernel = tensorlang.build(topi.schedule(c), [a, b, c])
    for shape in ((5, 7, 3), (100, 130, 70), (1, 1, 1)):
        x, y = numbers((shape[0], shape[2])), numbers((shape[2], shape[1]))
        made = np.empty(shape[:2], "float32")
        kernel(x, y, made)
        np.testing.assert_array_equal(made, x @ y)


@pytest.mark.parametrize("transpose_b", [False, True])
def test_symbolic_batches(transpose_b: bool) -> None:
    q, n = te.var("batch"), te.var("n")
    a = te.placeholder((q, 3, 70), name="a")
    b = te.placeholder((q, n, 70) if transpose_b else (q, 70, n), name="b")
    c = topi.batch_matmul(a, b, transpose_b=transpose_b)
    kernel = tensorlang.build(topi.schedule(c), [a, b, c])
    x, y = numbers((5, 3, 70)), numbers((5, 41, 70) if transpose_b else (5, 70, 41))
    made = np.empty((5, 3, 41), "float32")
    kernel(x, y, made)
    np.testing.assert_array_equal(made, x @ (y.transpose(0, 2, 1) if transpose_b else y))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("cores", [1, 2])
def test_what_follows_weights_in_place(cores: int) -> None:
    m, n, k = 33, 401, 1501
    (a, x), (b, y), (skip, d) = factor("a", m, k), factor("b", k, n), factor("skip", m, n)
    product = topi.matmul(a, b)
    relu = te.compute((m, n), lambda i, j: te.maximum(product[i, j], 0.0) + skip[i, j], name="relu")
    machine = replace(parse(None), cores=cores)
    made = run(relu, (a, x), (b, y), (skip, d), target=machine)
    np.testing.assert_array_equal(made, np.maximum(x @ y, 0) + d)


def test_few_rows_of_a_batch() -> None:
    (a, x), (b, y) = factor("a", 2, 29, 1100), factor("b", 2, 1100, 301)
    c = topi.batch_matmul(a, b, transpose_b=False)
    assert plan(c, ZEN5).reading is Reading.FETCHED
    np.testing.assert_array_equal(run(c, (a, x), (b, y)), x @ y)


def test_shapes_that_do_not_fit() -> None:
    a, b, cube = te.placeholder((3, 4), name="a"), te.placeholder((5, 6), name="b"), te.placeholder((2, 3, 4), name="c")
    with pytest.raises(DefinitionError, match=r"matmul wants a\[m, k\] and b\[k, n\], got .*name=a.* and .*name=b"):
        topi.matmul(a, b)
    with pytest.raises(DefinitionError, match=r"matmul wants a\[k, m\] and b\[n, k\]"):
        topi.matmul(a, b, True, True)
    with pytest.raises(DefinitionError, match=r"batch_matmul wants a\[q, m, k\] and b\[q, n, k\]"):
        topi.batch_matmul(a, cube)
    with pytest.raises(DefinitionError, match="dense wants data"):
        topi.dense(a, b)
    with pytest.raises(DefinitionError, match="the bias of dense has 5 elements"):
        topi.dense(a, te.placeholder((5, 4), name="w"), te.placeholder((4,), name="bias"))
    with pytest.raises(DefinitionError, match="pack_weight wants a matrix"):
        topi.pack_weight(cube)
    packed = te.placeholder((2, 4, 16), name="packed")
    with pytest.raises(DefinitionError, match="does not hold 40 units in panels of 16"):
        topi.dense_packed(a, packed, 40)
    with pytest.raises(DefinitionError, match="dense_packed wants data"):
        topi.dense_packed(a, b, 40)


CPUS = [
    ("llvm -mcpu=znver5", "vfmadd"),
    ("llvm -mcpu=skylake-avx512", "vfmadd"),
    ("llvm -mcpu=haswell", "vfmadd"),
    ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", "fmla"),
]


def innermost(kernel: Executable, multiply: str) -> list[str]:
    """Of the loops without loops inside, the one with the most multiply-adds."""
    lines = kernel.source("asm").splitlines()
    labels = {line.split(":")[0]: n for n, line in enumerate(lines) if re.match(r"[.\w]+:", line)}
    found: list[list[str]] = [[]]
    for n, line in enumerate(lines):
        jump = re.match(r"\s+(?:j\w+|b\.\w+|cbnz|tbnz)\s.*?(\.L\w+)", line)
        start = labels.get(jump.group(1), n) if jump else n
        body = lines[start + 1 : n]
        if start < n and not any(re.match(r"[.\w]+:", inner) for inner in body):
            found.append(body)
    return max(found, key=lambda body: sum(multiply in inner for inner in body))


@pytest.mark.sampled(2)
@pytest.mark.covering(2)
@pytest.mark.parametrize(("target", "multiply"), CPUS)
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(1024, 1024, 1024), (1000, 300, 700), (100, 1000, 800)])
def test_accumulators_stay_in_registers(m: int, n: int, k: int, transpose_b: bool, target: str, multiply: str) -> None:
    a, b = te.placeholder((m, k), name="a"), te.placeholder((n, k) if transpose_b else (k, n), name="b")
    c = topi.matmul(a, b, transpose_b=transpose_b)
    body = innermost(tensorlang.build(topi.schedule(c, target), [a, b, c], target), multiply)
    tile = plan(c, target).tile
    assert sum(multiply in line for line in body) == tile.rows * tile.vectors
    assert not [line for line in body if "(%rsp" in line or "[sp" in line]


@pytest.mark.parametrize("target", [cpu for cpu, _ in CPUS])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 1000), (1000, 3), (7, 100), (4096, 4096), (1000, 300)])
def test_tiles_fit_the_registers(m: int, n: int, target: str) -> None:
    machine = parse(target)
    tile = register_tile(m, n, machine, 32)
    assert tile.rows <= m and tile.width == tile.vectors * machine.lanes(32) < n + machine.lanes(32)
    assert tile.rows * tile.vectors + tile.vectors + 1 <= machine.vector_registers
    rows = fixed_width(m, tile.width, machine, 32).rows
    assert rows <= m and rows * tile.vectors + tile.vectors + 1 <= machine.vector_registers


def test_large_products_use_large_tiles() -> None:
    for target, least in (("llvm -mcpu=znver5", 24), ("llvm -mcpu=haswell", 12)):
        tile = register_tile(2048, 2048, parse(target), 32)
        assert tile.rows * tile.vectors >= least


def test_what_is_packed() -> None:
    def of(m: int, n: int, k: int, transpose_b: bool = False) -> Plan:
        a, b = te.placeholder((m, k), name="a"), te.placeholder((n, k) if transpose_b else (k, n), name="b")
        return plan(topi.matmul(a, b, transpose_b=transpose_b), ZEN5)

    assert of(1024, 1024, 1024).reading is Reading.PANELS
    assert of(128, 128, 64).reading is Reading.NEAR
    assert of(128, 128, 64).steps == 4
    for rows, width in ((1, 64), (4, 64), (8, 32)):
        streamed = of(rows, 4096, 4096)
        assert streamed.reading is Reading.STREAMED and streamed.depth == streamed.steps == 8
        assert streamed.tile.width == width
    assert of(1, 4096, 4096, transpose_b=True).reading is Reading.DOTS
    assert of(1, 4096, 4096, transpose_b=True).tile.width == 1  # from memory: in order
    assert of(1, 64, 1024, transpose_b=True).tile.width == 4  # from near, and long: rows share the vector
    assert of(64, 4096, 4096, transpose_b=True).reading is Reading.PANELS
    assert of(1000, 1, 1000).reading is Reading.DOTS
    assert of(300, 40, 50000).depth is not None
    assert of(2048, 2048, 2048).pack_a and not of(512, 512, 512).pack_a


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_in_order_are_summed_in_several_vectors(dtype: str) -> None:
    a, x = te.placeholder((4000, 4096), dtype, name="a"), te.placeholder((4096,), dtype, name="x")
    k = te.reduce_axis((0, 4096), "k")
    own = te.compute((4000,), lambda i: te.sum(a[i, k].astype("float32") * x[k].astype("float32"), axis=k), name="own")
    made = topi.dense(te.placeholder((1, 4096), dtype, name="row"), a, out_dtype="float32")
    target = "llvm -mcpu=znver4"
    for result, vector in ((own, x), (made, made.op.input_tensors[0])):
        kernel = tensorlang.build(topi.schedule(result, target), [a, vector, result], target)
        sums = [line for line in innermost(kernel, "vfmadd") if "vfmadd" in line]
        assert len(sums) >= 4 and all("zmm" in line for line in sums)


@pytest.mark.parametrize(("many", "cores", "streams"), [(512, 1, 4), (1024, 2, 4), (512, 64, 1), (333, 1, 5)])
@pytest.mark.parametrize("turned", [False, True])
def test_rows_that_fill_the_first_cache_are_summed_side_by_side(
    many: int, cores: int, streams: int, turned: bool
) -> None:
    target = replace(parse("llvm"), caches=(1 << 10, 2 << 10, 4 << 10), cores=cores)
    (data, x), (weight, w) = factor("data", 1, 150), factor("weight", many, 150)
    made = topi.dense(weight, data) if turned else topi.dense(data, weight)
    text = str(tensorlang.lower(topi.schedule(made, target), [data, weight, made]))
    assert text.count("reduce_tree") == 1 + (many == 333) and text.count(", k] * ") == streams
    found = run(made, (data, x), (weight, w), target=target)
    np.testing.assert_array_equal(found, (w @ x.T) if turned else (x @ w.T))


@pytest.mark.parametrize("columns", [False, True])
def test_a_matrix_by_itself_is_no_copy_in_panels_of_rows(columns: bool) -> None:
    m, k = 417, 79
    a, x = factor("a", *((k, m) if columns else (m, k)))
    term = te.reduce_axis((0, k), name="term")

    def products(i: te.Var, j: te.Var) -> te.Expr:
        return te.sum(a[term, i] * a[term, j] if columns else a[i, term] * a[j, term], axis=term)

    made = te.compute((m, m), products, name="made")
    assert not plan(made, "llvm -mcpu=znver4").pack_a
    np.testing.assert_array_equal(run(made, (a, x)), x.T @ x if columns else x @ x.T)


@pytest.mark.parametrize(("m", "k", "batch"), [(143, 517, 1), (1024, 640, 1), (37, 70, 3), (5, 9, 1)])
def test_columns_along_memory_by_one_vector_are_read_as_rows_of_columns(m: int, k: int, batch: int) -> None:
    (a, x), (b, y) = factor("a", batch, k, m), factor("b", batch, k, 1)
    made = topi.relu(topi.batch_matmul(a, b, transpose_a=True, transpose_b=False))
    text = str(tensorlang.lower(topi.schedule(made), [a, b, made]))
    assert ".global" not in text and "vectorized" in text
    found = run(made, (a, x), (b, y))
    np.testing.assert_array_equal(found, np.maximum(x.swapaxes(1, 2) @ y, 0))


@pytest.mark.parametrize("turned", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize(("dtype", "m", "k"), [("float32", 5, 96), ("float32", 15, 256), ("bfloat16", 7, 160)])
def test_few_rows_by_a_matrix_from_memory_are_multiplied_where_it_lies(
    dtype: str, m: int, k: int, turned: bool
) -> None:
    target = replace(parse("llvm -mcpu=znver4"), caches=(4 << 10, 32 << 10, 32 << 10))
    data, weight = te.placeholder((m, k), dtype, "data"), te.placeholder((37, k), dtype, "weight")
    made = topi.dense(*((weight, data) if turned else (data, weight)), out_dtype="float32")
    assert plan(made, target).reading is Reading.DOTS and plan(made).reading is not Reading.DOTS
    kernel = tensorlang.build(topi.schedule(made, target), [data, weight, made], target)
    assert ("vdpbf16ps" in kernel.source("asm")) == (dtype == "bfloat16")
    here = replace(parse("llvm"), caches=target.caches)
    numpy = dtypes.info(dtype).numpy
    x, w = numbers((m, k)).astype(numpy), numbers((37, k), seed=1).astype(numpy)
    wanted = x.astype(np.float32) @ w.astype(np.float32).T
    found = run(made, (data, x), (weight, w), target=here)
    np.testing.assert_allclose(found, wanted.T if turned else wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("m", "n", "k", "in_place"),
    [(8, 512, 256, True), (8, 512, 240, False), (40, 512, 2048, False), (512, 15, 512, True), (512, 16, 512, False)],
)
def test_copies_pay_for_many_rows_of_few_terms(m: int, n: int, k: int, in_place: bool) -> None:
    made = topi.dense(te.placeholder((m, k), name="data"), te.placeholder((n, k), name="weight"))
    target = replace(parse("llvm -mcpu=znver4"), caches=(32 << 10, 1 << 20, 32 << 20))
    assert (plan(made, target).reading is Reading.DOTS) == in_place


@pytest.mark.sampled(2)
@pytest.mark.parametrize("order", ["qjk", "jqk", "jkq", "kjq", "kqj"])
def test_panels_are_of_columns_wherever_these_lie(order: str) -> None:
    """As the heads of attention do, between tokens and features."""
    q, n, k = extent = 3, 128, 64
    shape = [dict(zip("qjk", extent, strict=True))[axis] for axis in order]
    a, b = factor("A", q, n, k), factor("B", *shape)
    term = te.reduce_axis((0, k), name="k")
    Y = te.compute(
        (q, n, n),
        lambda q, i, j: te.sum(
            a[0][q, i, term] * b[0](*({"q": q, "j": j, "k": term}[axis] for axis in order)), axis=term
        ),
        name="Y",
    )
    wanted = np.einsum(f"qik,{order}->qij", a[1], b[1])
    np.testing.assert_allclose(run(Y, a, b), wanted, rtol=1e-4, atol=1e-4)
    text = str(topi.schedule(Y, "llvm -mcpu=x86-64-v4 -num-cores=1", tuned=False).explain())
    assert order.endswith("j") or re.search(r"B\.global\[[1, ]*4, 64, 32\]", text)


def test_few_rows_read_weights_in_place() -> None:
    def of(m: int, n: int, k: int, target: Target = ZEN5) -> Plan:
        return plan(topi.matmul(te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")), target)

    whole, parts = of(128, 1000, 1000), of(128, 768, 3072)
    assert whole.reading is parts.reading is Reading.FETCHED
    apart = of(32, 4096, 4096)
    assert whole.depth is None and parts.depth is not None and apart.depth is not None and apart.depth < parts.depth
    odd = of(129, 769, 3071)
    assert odd.depth is not None and odd.depth % odd.steps == 0
    assert of(256, 1024, 1024).reading is Reading.PANELS  # rows that lie apart share the sets of the cache
    assert of(400, 768, 3072).reading is Reading.FETCHED and of(2000, 768, 3072).reading is Reading.PANELS
    two = replace(ZEN5, cores=2)
    assert of(1000, 300, 700, two).shared == "rows"  # of columns two threads would have 160 and 140
    assert of(1000, 320, 700, two).shared == "columns"
    many = topi.batch_matmul(
        te.placeholder((50, 31, 35), name="a"), te.placeholder((50, 35, 33), name="b"), transpose_b=False
    )
    assert plan(many, two).shared == "columns"  # whole products
    assert of(400, 200, 9000, two).reading is Reading.PANELS  # threads share rows, and those are inside
