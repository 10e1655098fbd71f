"""Convolutions by Winograd's algorithm against their NumPy reference: exact for tiles of 2, close for tiles of 4."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from tensorlang import te, topi
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr
from tensorlang.te.operation import Tensor
from tensorlang.te.reference import evaluate
from tensorlang.topi.conv2d import conv2d_reference
from tensorlang.topi.toom_cook import POINTS, transformed_weights, transforms
from tests.topi.images import blocked, given, last, relu_of, run
from tests.topi.programs import Array, Given

LAYOUTS = ("NCHW", "NHWC", "NCHW8c")


def packed(weight: Array, tile: int, block: int) -> Given:
    """Weights transformed and laid out by NumPy."""
    made = transformed_weights(weight, tile, block)
    return te.placeholder(made.shape, name="packed"), made


def laid_out(array: Array, layout: str) -> Array:
    if layout == "NCHW8c":
        return blocked(array, 8)
    return last(array) if layout == "NHWC" else array


def close(made: Array, wanted: Array, tile: int) -> None:
    """Whole numbers: sums of quarters are exact in float32, those of tiles of 4 are close to the largest one."""
    error = np.abs(made - wanted).max() / max(1, np.abs(wanted).max())
    assert error <= (0 if tile == 2 else 4e-6)


def form_of(output: Tensor, target: str | None = None) -> list[str]:
    return [note.form for note in topi.schedule(output, target, tuned=False).forms]


@pytest.mark.parametrize("tile", POINTS)
def test_the_matrices_make_sums_over_windows(tile: int) -> None:
    """Exactly, in fractions, for each datum and each weight."""
    data, weights, results = transforms(tile)
    for d in range(tile + 2):
        for w in range(3):
            seen = [row[d] * factor[w] for row, factor in zip(data, weights, strict=True)]
            made = [sum(a * b for a, b in zip(row, seen, strict=True)) for row in results]
            assert made == [Fraction(d - w == i) for i in range(tile)]
    exact = [float(x) == np.float32(x) for matrix in (data, results) for row in matrix for x in row]
    assert all(exact)


@pytest.mark.covering(1)
@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("tile", POINTS)
def test_what_follows_is_in_the_kernel(tile: int, layout: str, cores: int) -> None:
    """A batch, channels that fill no block, tiles that stick out; bias, residual and activation in the last stage."""
    data, weight, bias = given("data", 2, 24, 21, 9), given("weight", 40, 24, 3, 3), given("bias", 40)
    wanted = conv2d_reference(data[1], weight[1], 1, 1)
    residual = given("residual", *laid_out(wanted, layout).shape)
    images = te.placeholder(laid_out(data[1], layout).shape, name="images"), laid_out(data[1], layout)
    ahead = packed(weight[1], tile, 8 if layout == "NCHW8c" else 16)
    conv = topi.conv2d_winograd(images[0], ahead[0], 1, layout, 40)
    if layout == "NCHW8c":
        made = te.compute(conv.shape, lambda *i: te.max(conv(*i) + residual[0](*i), 0), name="relu")
        inputs = [images, ahead, residual]
    else:
        made = relu_of(conv, bias[0], residual[0], layout.index("C"))
        inputs, wanted = [images, ahead, bias, residual], wanted + bias[1][:, None, None]
    target = f"llvm -num-cores={cores}"
    assert form_of(made, target) == ["winograd"]
    found = run(made, *inputs, target=target)
    close(found, np.maximum(laid_out(wanted, layout) + residual[1], 0), tile)


@drawn(
    st.tuples(*(st.integers(1, n) for n in (2, 20, 17, 20, 40))),
    st.tuples(*(st.integers(0, 2),) * 4),
    st.sampled_from(LAYOUTS[:2]),
    st.sampled_from([*POINTS]),
    st.sampled_from([1, 4]),
)
@settings(max_examples=2)
def test_any_sizes(
    sizes: tuple[int, int, int, int, int], padding: tuple[int, int, int, int], layout: str, tile: int, cores: int
) -> None:
    n, c, h, w, o = sizes
    data, weight = given("data", n, c, h + 2, w + 2), given("weight", o, c, 3, 3)
    images = te.placeholder(laid_out(data[1], layout).shape, name="images"), laid_out(data[1], layout)
    ahead = packed(weight[1], tile, 16)
    conv = topi.conv2d_winograd(images[0], ahead[0], padding, layout, o)
    target = f"llvm -num-cores={cores}"
    assert form_of(conv, target) == ["winograd"]
    wanted = conv2d_reference(data[1], weight[1], 1, padding)
    close(run(conv, images, ahead, target=target), laid_out(wanted, layout), tile)


@pytest.mark.covering(1)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [14, 15])
def test_an_algorithm_of_conv2d(layout: str, size: int) -> None:
    """Weights as they are, transformed in the call: tiles of 2 results for less than 16 of 4, for which they are."""
    data, weight = given("data", 1, 8, size, size - 2), given("weight", 16, 8, 3, 3)
    factors = weight[1]
    if layout == "NHWC":
        factors = factors.transpose(2, 3, 1, 0)
    if layout == "NCHW8c":
        factors = factors.reshape(2, 8, 1, 8, 3, 3).transpose(0, 2, 4, 5, 3, 1)
    images = te.placeholder(laid_out(data[1], layout).shape, name="images"), laid_out(data[1], layout)
    held = te.placeholder(factors.shape, name="held"), np.ascontiguousarray(factors)
    conv = topi.conv2d(images[0], held[0], 1, 0, data_layout=layout, algorithm="winograd")
    assert form_of(conv) == ["winograd"]
    wanted = laid_out(conv2d_reference(data[1], weight[1]), layout)
    close(run(conv, images, held), wanted, 2 if size == 14 else 4)


def test_weights_in_blocks_of_which_the_last_is_not_full() -> None:
    data, weight = given("data", 1, 8, 6, 6), given("weight", 20, 8, 3, 3)
    full = np.concatenate([weight[1], np.zeros((12, 8, 3, 3), np.float32)])
    blocks = np.ascontiguousarray(full.reshape(2, 16, 8, 3, 3).transpose(0, 3, 4, 2, 1))
    ahead = te.placeholder(blocks.shape, name="ahead"), blocks
    conv = topi.conv2d(data[0], ahead[0], 1, 1, kernel_layout="OHWI16o", channels=20, algorithm="winograd")
    np.testing.assert_array_equal(run(conv, data, ahead), conv2d_reference(data[1], weight[1], 1, 1))


def test_packing_is_what_numpy_makes_of_weights() -> None:
    weight = given("weight", 20, 3, 3, 3)
    made = run(topi.winograd_pack(weight[0], 4, 16), weight)
    np.testing.assert_allclose(made, packed(weight[1], 4, 16)[1], rtol=1e-6, atol=1e-7)


def test_the_error_is_near_that_of_sums() -> None:
    """Numbers as in networks, against float64: below that of the direct sums for tiles of 2, 2.5 times it for 4."""
    rng = np.random.default_rng(0)
    data = np.maximum(rng.standard_normal((1, 64, 16, 16)), 0).astype(np.float32)
    weight = (rng.standard_normal((64, 64, 3, 3)) * (2 / 576) ** 0.5).astype(np.float32)
    wanted = conv2d_reference(data.astype(np.float64), weight.astype(np.float64), 1, 1)
    images, held = te.placeholder(data.shape, name="data"), te.placeholder(weight.shape, name="weight")
    direct = run(topi.conv2d(images, held, 1, 1), (images, data), (held, weight))
    most = np.abs(wanted).max()
    for tile, times in ((2, 1.0), (4, 2.5)):
        ahead = packed(weight, tile, 32)
        made = run(topi.conv2d_winograd(images, ahead[0], 1), (images, data), ahead)
        assert np.abs(made - wanted).max() / most <= max(times * np.abs(direct - wanted).max() / most, times * 7e-7)


def test_auto_takes_it_where_it_is_faster_as_a_rule() -> None:
    def stages(c: int, size: int, o: int, k: int = 3, stride: int = 1, dtype: str = "float32") -> int:
        data, weight = te.placeholder((1, c, size, size), dtype, "data"), te.placeholder((o, c, k, k), dtype, "weight")
        conv = topi.conv2d(data, weight, stride, k // 2, algorithm="auto")
        return len(te.create_schedule(conv.op).stages)

    assert stages(64, 28, 64) > stages(64, 28, 64, stride=2)
    few = stages(64, 28, 64, 5)
    assert {stages(*s) for s in ((63, 28, 64), (64, 28, 63), (64, 24, 64))} == {few}
    assert stages(64, 28, 64, dtype="float16") == few + 1  # which rounds the sums


def test_gradients_are_those_of_the_direct_sums() -> None:
    data, weight = given("data", 1, 3, 9, 9), given("weight", 4, 3, 3, 3)
    head = given("head", 1, 4, 9, 9)

    def derivatives(algorithm: str) -> str:
        conv = topi.conv2d(data[0], weight[0], 1, 1, algorithm=algorithm)
        relu = te.compute(conv.shape, lambda *i: te.max(conv(*i), 0), name="relu")
        made = te.create_schedule([g.op for g in te.gradient(relu, [data[0], weight[0]], head[0])])
        return str(made.program.text)

    direct, tiled = derivatives("direct"), derivatives("winograd")
    assert "conv2d_tiles" in tiled and "conv2d_tiles" not in direct
    behind = direct.index("data_grad")
    assert direct[behind:] in tiled
    with pytest.raises(DefinitionError, match="transformed already; take that of conv2d"):
        te.gradient(topi.conv2d_winograd(data[0], packed(weight[1], 4, 16)[0]), data[0])


def test_stages_are_told_by_what_they_read() -> None:
    """Others' names, axes in another order, other points (0, 1, -1 for windows of 3 elements of a line of images)."""
    data, weight = given("image", 10, 12, 18), given("factors", 4, 4, 16, 18)

    def chosen(number: Expr, values: list[Expr]) -> Expr:
        found = values[-1]
        for k, value in reversed([*enumerate(values[:-1])]):
            found = te.if_then_else(number == k, value, found)
        return found

    def back(v: list[Expr]) -> list[Expr]:
        return [v[0] - v[2], v[1] + v[2], v[2] - v[1], v[3] - v[1]]

    def sums(v: list[Expr]) -> list[Expr]:
        return [v[0] + v[1] + v[2], v[1] - v[2] + v[3]]

    a = te.compute(
        (4, 18, 12, 4), lambda p, c, x, y: chosen(p, back([data[0][y * 2 + i, x, c] for i in range(4)])), name="a"
    )
    b = te.compute(
        (5, 4, 4, 18, 4), lambda x, p, q, c, y: chosen(q, back([a[p, c, x * 2 + j, y] for j in range(4)])), name="b"
    )
    k = te.reduce_axis((0, 18), "k")
    m = te.compute(
        (16, 4, 4, 4, 5), lambda o, q, p, y, x: te.sum(weight[0][q, p, o, k] * b[x, p, q, k, y], axis=k), name="m"
    )
    r = te.compute(
        (4, 4, 10, 16), lambda p, y, x, o: chosen(x % 2, sums([m[o, q, p, y, x // 2] for q in range(4)])), name="r"
    )
    out = te.compute(
        (8, 10, 16), lambda y, x, o: chosen(y % 2, sums([r[p, y // 2, x, o] for p in range(4)])), name="out"
    )
    made = run(out, data, weight)
    assert form_of(out) == ["winograd"]
    (wanted,) = evaluate(te.create_schedule(out.op).program, {"image": data[1], "factors": weight[1]}).values()
    np.testing.assert_array_equal(made, wanted)


def test_what_others_read_is_left_to_other_forms() -> None:
    data, ahead = given("data", 1, 8, 6, 6), packed(given("weight", 16, 8, 3, 3)[1], 2, 16)
    conv = topi.conv2d_winograd(data[0], ahead[0], 1, name="conv")
    (rows,) = conv.op.input_tensors
    (products,) = rows.op.input_tensors
    s = topi.schedule([conv, products], tuned=False)
    assert "winograd" not in [note.form for note in s.forms]


def test_refusals() -> None:
    data, weight = given("data", 1, 8, 9, 9)[0], given("weight", 4, 8, 3, 3)[0]
    with pytest.raises(DefinitionError, match="conv2d has the algorithms direct, winograd, auto, got 'fft'"):
        topi.conv2d(data, weight, algorithm="fft")
    with pytest.raises(DefinitionError, match=r"windows of 3 \* 3 by steps of 1"):
        topi.conv2d(data, weight, 2, algorithm="winograd")
    with pytest.raises(DefinitionError, match=r"wants windows of 3 \* 3, got"):
        topi.winograd_pack(given("weight", 4, 8, 5, 5)[0])
    with pytest.raises(DefinitionError, match="have 2 or 4 results a side, got 3"):
        topi.winograd_pack(weight, 3)
    with pytest.raises(DefinitionError, match="8 input channels, and 40 of the output; got"):
        topi.conv2d_winograd(data, packed(np.zeros((4, 8, 3, 3)), 2, 32)[0], channels=40)
    with pytest.raises(DefinitionError, match="weights of winograd_pack"):
        topi.conv2d_winograd(data, weight)


@pytest.mark.parametrize("tile", POINTS)
def test_weights_transformed_ahead_in_the_words_of_classic_topi(tile: int) -> None:
    weight, data = (given(n, *shape) for n, shape in (("weight", (5, 3, 3, 3)), ("data", (1, 3, 7, 6))))
    transformed = te.evaluate(lambda w: topi.nn.conv2d_winograd_weight_transform(w, tile), weight[1])
    wanted = conv2d_reference(data[1], weight[1], padding=1)
    for layout, axes in (("nchw", (0, 1, 3, 2)), ("nhwc", (0, 1, 2, 3))):
        convolve = getattr(topi.nn, f"conv2d_winograd_{layout}_without_weight_transform")
        short = getattr(topi.nn, f"conv2d_winograd_{layout}")
        x, w = data[1] if layout == "nchw" else last(data[1]), np.ascontiguousarray(transformed.transpose(axes))
        right = wanted if layout == "nchw" else last(wanted)
        moves = {"strides": 1, "padding": 1, "dilation": 1}
        close(te.evaluate(convolve, x, w, **moves), right, 4)
        close(te.evaluate(short, x, w, **moves, pre_computed=True), right, 4)
    A, B, G = (te.evaluate(lambda: matrix) for matrix in topi.nn.winograd_transform_matrices(tile, 3, "float64"))  # noqa: B023
    g, d = weight[1][0, 0], data[1][0, 0, : tile + 2, : tile + 2]
    made = A.T @ ((G @ g @ G.T) * (B.T @ d @ B)) @ A
    direct = [[(d[y : y + 3, x : x + 3] * g).sum() for x in range(tile)] for y in range(tile)]
    np.testing.assert_allclose(made, direct, rtol=1e-12, atol=1e-12)


def test_what_was_not_transformed_is_refused() -> None:
    data, weight = te.placeholder((1, 3, 7, 7)), te.placeholder((4, 4, 3, 8))
    with pytest.raises(DefinitionError, match="steps and dilations of 1"):
        topi.nn.conv2d_winograd_nchw_without_weight_transform(data, weight, 2, 1, 1)
    with pytest.raises(DefinitionError, match="tiles of 2 or 4 results, by windows of 3; got 3 and 3"):
        topi.nn.winograd_transform_matrices(3, 3, "float32")
    with pytest.raises(DefinitionError, match="wants weights of OIHW"):
        topi.nn.conv2d_winograd_weight_transform(te.placeholder((4, 4)), 2)
