"""Elements in other places: every one arrives, and rows are copied in vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import tensorlang
from tensorlang import te, topi
from tensorlang.errors import DefinitionError
from tests.topi.programs import given, run, run_all


@drawn(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.randoms(use_true_random=False))
@settings(max_examples=8)
def test_transpose_of_any_order(shape: list[int], random: object) -> None:
    x, order = given("x", *shape), list(range(len(shape)))
    random.shuffle(order)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(run(topi.transpose(x[0], order), x), x[1].transpose(order))


@pytest.mark.parametrize("shape", [(130, 70), (64, 64), (200, 3)])
def test_transpose_in_tiles_with_what_follows(shape: tuple[int, int]) -> None:
    x = given("x", *shape)
    out = topi.relu(topi.transpose(x[0]))
    assert set(topi.schedule(out).state.stages) == {"relu"}
    np.testing.assert_array_equal(run(out, x), np.maximum(x[1].T, 0))


@pytest.mark.parametrize(
    ("shape", "wanted"), [((6, 35), (2, 3, 5, 7)), ((2, 3, 5, 7), (6, -1)), ((4, 16), (64,)), ((6, 4), (3, 8))]
)
def test_reshape(shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    x = given("x", *shape)
    np.testing.assert_array_equal(run(topi.reshape(x[0], wanted), x), x[1].reshape(wanted))


def test_reshape_copies_vectors() -> None:
    x = te.placeholder((12, 35), name="x")
    out = topi.reshape(x, (4, 5, 21))
    asm = tensorlang.build(topi.schedule(out, "llvm"), [x, out], "llvm").source("asm")
    assert "div" not in asm
    assert "mulx" not in asm


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concatenate(axis: int) -> None:
    parts = [given(name, *[n if d == axis % 3 else 5 for d in range(3)]) for name, n in (("a", 3), ("b", 17), ("c", 1))]
    made = run(topi.concatenate([tensor for tensor, _ in parts], axis), *parts)
    np.testing.assert_array_equal(made, np.concatenate([array for _, array in parts], axis))


def test_what_follows_joins_the_pieces() -> None:
    a, b = given("a", 4, 9), given("b", 4, 20)
    out = topi.relu(topi.concatenate([a[0], b[0]], axis=1))
    assert set(topi.schedule(out).state.stages) == {"relu"}
    np.testing.assert_array_equal(run(out, a, b), np.maximum(np.concatenate([a[1], b[1]], axis=1), 0))


@pytest.mark.parametrize(
    ("before", "after"), [((0, 0, 1, 1), None), ((0, 0, 1, 2), (0, 0, 3, 0)), ((1, 0, 0, 0), None), ((0,) * 4, None)]
)
def test_pad(before: tuple[int, ...], after: tuple[int, ...] | None) -> None:
    x = given("x", 2, 3, 7, 9)
    border = list(zip(before, before if after is None else after, strict=True))
    made = run(topi.pad(x[0], before, after, pad_value=2.5), x)
    np.testing.assert_array_equal(made, np.pad(x[1], border, constant_values=2.5))


def test_split() -> None:
    x = given("x", 4, 9)
    for cut, axis in ((3, 1), ([2, 5], 1), (2, 0)):
        made = run_all(topi.split(x[0], cut, axis), x)
        for part, wanted in zip(made, np.split(x[1], cut, axis), strict=True):
            np.testing.assert_array_equal(part, wanted)


def test_dimensions_of_one() -> None:
    x = given("x", 4, 9)
    np.testing.assert_array_equal(run(topi.expand_dims(x[0], -1, 2), x), x[1][..., None, None])
    one = topi.expand_dims(x[0], 1)
    np.testing.assert_array_equal(run(topi.squeeze(one), x), x[1])


def test_layouts() -> None:
    x = given("x", 2, 32, 5, 6)
    blocked = run(topi.layout_transform(x[0], "NCHW", "NCHW16c"), x)
    np.testing.assert_array_equal(blocked, x[1].reshape(2, 2, 16, 5, 6).transpose(0, 1, 3, 4, 2))
    y = te.placeholder(blocked.shape, name="y")
    np.testing.assert_array_equal(run(topi.layout_transform(y, "NCHW16c", "NCHW"), (y, blocked)), x[1])
    made = run(topi.layout_transform(x[0], "NCHW", "NHWC"), x)
    np.testing.assert_array_equal(made, x[1].transpose(0, 2, 3, 1))


def test_refusals() -> None:
    x = te.placeholder((4, 9), name="x")
    with pytest.raises(DefinitionError, match="is no order of them"):
        topi.transpose(x, (0, 0))
    with pytest.raises(DefinitionError, match="does not fill the shape"):
        topi.reshape(x, (5, 7))
    with pytest.raises(DefinitionError, match="does not fit"):
        topi.concatenate([x, te.placeholder((5, 9), name="y")], axis=1)
    with pytest.raises(DefinitionError, match="2 numbers of at least 0"):
        topi.pad(x, (1, -1))
    with pytest.raises(DefinitionError, match="do not make 2 equal parts"):
        topi.split(x, 2, axis=1)
    with pytest.raises(DefinitionError, match="no rising indices"):
        topi.split(x, [5, 2], axis=1)
    with pytest.raises(DefinitionError, match="have the extent 1"):
        topi.squeeze(x, 0)
    with pytest.raises(DefinitionError, match="no blocks of 16"):
        topi.layout_transform(te.placeholder((1, 8, 2, 2), name="z"), "NCHW", "NCHW16c")


def _joined(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """Two matrices side by side, written by hand."""
    rows, first, second = a.shape[0], 9, 20
    shape = (rows, first + second)
    made = te.compute(shape, lambda i, j: te.select(j < first, a[i, j], b[i, j - first]), name="joined")
    assert isinstance(made, te.Tensor)
    return made


@pytest.mark.parametrize("kind", ["joined", "turned", "scaled"])
def test_what_users_move_is_told_by_what_it_reads(kind: str) -> None:
    a, b = given("a", 40, 9), given("b", 40, 20)
    if kind == "joined":
        out, wanted = _joined(a[0], b[0]), np.concatenate([a[1], b[1]], axis=1)
    elif kind == "turned":
        turned = te.compute((20, 40), lambda i, j: b[0][j, i], name="turned")
        out, wanted = (
            te.compute((20, 40), lambda i, j: te.maximum(turned[i, j], 0.0), name="out"),
            np.maximum(b[1].T, 0),
        )
    else:
        factors = te.compute((40,), lambda i: te.exp(a[0][i, 0]), name="factors")
        out = te.compute((40, 20), lambda i, j: b[0][i, j] * factors[i], name="out")
        wanted = b[1] * np.exp(a[1][:, :1])
    s = topi.schedule(out, "llvm", tuned=False)
    forms = {"joined": {"pieces"}, "turned": {"turned"}, "scaled": {"along"}}
    assert {note.form for note in s.forms} == forms[kind]
    assert set(s.state.stages) == ({"out", "factors"} if kind == "scaled" else {out.op.name})
    inputs = {"joined": (a, b), "turned": (b,), "scaled": (a, b)}[kind]
    np.testing.assert_allclose(run(out, *inputs), wanted, rtol=1e-6)


def test_rows_of_what_is_turned_around_are_turned_ahead() -> None:
    x = given("x", 300, 200)
    out = topi.softmax(topi.transpose(x[0]))
    s = topi.schedule(out, "llvm", tuned=False)
    assert "s['transpose'].split('i0', factor=" in s.trace.to_python()
    e = np.exp(x[1].T - x[1].T.max(axis=1, keepdims=True))
    np.testing.assert_allclose(run(out, x), e / e.sum(axis=1, keepdims=True), rtol=1e-5)


def test_what_is_joined_in_front_of_a_product_is_computed_with_what_follows() -> None:
    a, b, w = given("a", 40, 9), given("b", 40, 20), given("w", 29, 64)
    out = topi.matmul(topi.relu(topi.concatenate([a[0], b[0]], 1)), w[0])
    s = topi.schedule(out, "llvm", tuned=False)
    assert "s['relu'].partition(" in s.trace.to_python()
    assert "concatenate" not in s.state.stages
    wanted = np.maximum(np.concatenate([a[1], b[1]], 1), 0) @ w[1]
    np.testing.assert_allclose(run(out, a, b, w), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("border", [0, 2])
def test_pixels_that_users_put_into_rows_are_turned_around(border: int) -> None:
    """Channels that lie apart, side by side in a copy, with and without a border."""
    x, channels, wide = given("x", 6, 20, 33), 6, 33 + 2 * border

    def element(y: te.Expr, j: te.Expr) -> te.Expr:
        column = j // channels - border
        read = x[0][j % channels, y, column]
        return te.select(te.all(column >= 0, column < 33), read, 0.0) if border else read

    out = te.compute((20, wide * channels), element, name="rows")
    s = topi.schedule(out, "llvm", tuned=False)
    assert [note.form for note in s.forms] == ["pieces"]
    assert "factor=6)" in s.trace.to_python()
    padded = np.pad(x[1], ((0, 0), (0, 0), (border, border)))
    np.testing.assert_array_equal(run(out, x), padded.transpose(1, 2, 0).reshape(20, -1))
