"""Pixels of a few channels, in vectors of pixels: against the plain program."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import tensorlang
from tensorlang import te, topi
from tensorlang.ir.expr import Expr
from tensorlang.te.operation import Tensor
from tests.topi.programs import Array, given, run, shape_of


def form_of(output: Tensor) -> str:
    """What the library takes for an output."""
    forms = topi.schedule([output], "llvm -num-cores=1").forms
    return next(note.form for note in forms if note.stage == output.op.name)


def agrees(output: Tensor, inputs: list[Tensor], arrays: list[Array], cores: int = 1, cpu: str = "") -> None:
    """The library's schedule computes what the program says, bit for bit."""
    results = []
    target = f"llvm -num-cores={cores}{cpu}"
    for s in (te.create_schedule(output.op), topi.schedule([output], target)):
        results.append(np.full(shape_of(output), 77, output.dtype))
        tensorlang.build(s, [*inputs, output], target=target)(*arrays, results[-1])
    got, wanted = results
    np.testing.assert_array_equal(got, wanted)


@st.composite
def filters(draw: st.DrawFn) -> tuple[list[Tensor], Tensor]:
    """An image whose channels lie side by side or in planes, and one made of it, in whose pixels channels differ."""
    height, width, channels = draw(st.integers(1, 3)), draw(st.integers(8, 150)), draw(st.integers(1, 5))
    made, stride = draw(st.integers(2, 4)), draw(st.integers(1, 2))
    dtype = draw(st.sampled_from(["float32", "uint8", "int16", "float16"]))
    in_planes, to_planes, border = draw(st.booleans()), draw(st.booleans()), draw(st.integers(0, 2))
    rows, columns = height + 1, width * stride + 1
    A = te.placeholder((channels, rows, columns) if in_planes else (rows, columns, channels), dtype, "A")
    W = te.placeholder((made,), dtype, "W")
    picks = [
        (draw(st.integers(0, 1)), draw(st.integers(0, 1)), draw(st.integers(0, channels - 1))) for _ in range(made)
    ]

    def read(i: Expr, j: Expr, c: int) -> Expr:
        return A[c, i, j] if in_planes else A[i, j, c]

    def at(i: Expr, j: Expr, c: Expr) -> Expr:
        values = [read(i + y, stride * j + x, k) + read(i, stride * j, 0) for y, x, k in picks]
        value = values[-1]
        for n, other in enumerate(values[:-1]):
            value = te.select(c == n, other, value)
        value = value + W[c]
        return te.if_then_else(j < width - border, value, W[0]) if border else value

    shape = (made, height, width) if to_planes else (height, width, made)
    out = te.compute(shape, (lambda c, i, j: at(i, j, c)) if to_planes else at, name="B")
    return [A, W], out


@settings(max_examples=20)
@drawn(filters(), st.sampled_from([1, 2]), st.sampled_from(["", " -mcpu=haswell"]))
def test_any_filter_of_pixels_computes_what_it_says(program: tuple[list[Tensor], Tensor], cores: int, cpu: str) -> None:
    inputs, out = program
    rng = np.random.default_rng(0)
    agrees(out, inputs, [rng.integers(0, 60, shape_of(t)).astype(t.dtype) for t in inputs], cores, cpu)


def test_what_depends_on_the_channel_is_made_for_vectors_of_pixels() -> None:
    a, x = given("A", 9, 70, 4, dtype="uint8")
    blended = te.compute((9, 70, 3), lambda i, j, c: a[i, j, c] * a[i, j, 3], "blended")
    turned = te.compute((9, 70, 4), lambda i, j, c: a[i, j, 3 - c], "turned")
    planes = te.compute((4, 9, 70), lambda c, i, j: a[i, j, c], "planes")
    for output in (blended, turned, planes):
        assert form_of(output) == "pixels"
        agrees(output, [a], [x])


def test_what_is_the_same_for_all_channels_runs_along_memory() -> None:
    a, x = given("A", 9, 70, 3)
    plain = te.compute((9, 68, 3), lambda i, j, c: a[i, j, c] + a[i, j + 2, c], "plain")
    assert form_of(plain) == "along"
    agrees(plain, [a], [x])


def test_pixels_of_open_sizes() -> None:
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m, 3), "uint8", "A")
    out = te.compute((n, m, 3), lambda i, j, c: a[i, j, 2 - c], "B")
    assert form_of(out) == "pixels"
    kernel = tensorlang.build(topi.schedule([out], "llvm -num-cores=1"), [a, out])
    for shape in ((1, 1, 3), (3, 63, 3), (2, 200, 3)):
        x = np.random.default_rng(0).integers(0, 255, shape, np.uint8)
        made = np.zeros_like(x)
        kernel(x, made)
        np.testing.assert_array_equal(made, x[..., ::-1])


def test_pixels_that_lie_far_apart_are_not_gathered() -> None:
    a, x = given("A", 9, 90, 4)
    few = te.compute((9, 10, 2), lambda i, j, c: a[i, 9 * j, c + 1] * a[i, 9 * j, 0], "few")
    assert form_of(few) == "along"
    agrees(few, [a], [x])


@settings(max_examples=5)
@drawn(st.integers(2, 4), st.integers(8, 150), st.integers(0, 3), st.sampled_from(["float32", "uint8"]))
def test_an_image_is_enlarged_in_vectors_of_what_it_is_made_of(phases: int, width: int, at: int, dtype: str) -> None:
    """Every so many elements of a row are made alike."""
    a, x = given("A", 3, width // phases + 3, dtype=dtype)
    row = te.compute(
        (3, width),
        lambda i, j: te.select(j % phases == at, a[i, j // phases], a[i, j // phases] + a[i, (j + 1) // phases + 1]),
        name="row",
    )
    out = te.compute((6, width), lambda i, j: te.select(i % 2 == 0, row[i // 2, j], row[(5 - i) // 2, j]), name="out")
    assert form_of(out) == "pixels"
    agrees(out, [a], [x])


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_limits_of_what_is_read_cut_rows(dtype: str) -> None:
    """Borders that repeat, written by minimum and maximum: only elements at the border ask for them."""
    n, m = te.var("n"), te.var("m")
    for shape in ((9, 70), (n, m)):
        a = te.placeholder(shape, dtype, "A")

        def near(place: Expr, size: object) -> Expr:
            return te.minimum(te.maximum(place, 0), size - 1)  # type: ignore[operator]

        rows = te.compute(
            shape, lambda i, j, a=a, m=shape[1]: a[i, near(j - 2, m)] + a[i, j] + a[i, near(j + 2, m)], name="rows"
        )
        out = te.compute(
            shape, lambda i, j, b=rows, n=shape[0]: b[near(i - 1, n), j] + b[near(i + 1, n), j] + b[i, j], name="out"
        )
        s = topi.schedule([out], "llvm -num-cores=1")
        assert "partition" in str(s)
        kernel = tensorlang.build(s, [a, out])
        for size in ((9, 70), (1, 1), (2, 3), (40, 5))[: 1 if shape == (9, 70) else 4]:
            x = np.random.default_rng(0).integers(0, 9, size).astype(dtype)
            wide = np.pad(x, ((0, 0), (2, 2)), "edge")
            wanted = wide[:, :-4] + wide[:, 2:-2] + wide[:, 4:]
            tall = np.pad(wanted, ((1, 1), (0, 0)), "edge")
            made = np.zeros_like(x)
            kernel(x, made)
            np.testing.assert_array_equal(made, tall[:-2] + tall[2:] + wanted)


@pytest.mark.parametrize(("dtype", "shape"), [("uint8", (70, 133)), ("float32", (37, 90))])
def test_rotated_images_are_turned_in_tiles(dtype: str, shape: tuple[int, int]) -> None:
    a, x = given("A", *shape, dtype=dtype)
    rows, columns = shape
    left = te.compute((columns, rows), lambda i, j: a[j, columns - 1 - i], name="left")
    right = te.compute((columns, rows), lambda i, j: a[rows - 1 - j, i], name="right")
    for output in (left, right):
        assert form_of(output) == "turned"
        agrees(output, [a], [x])


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("dtype", "channels"), [("float32", 3), ("uint8", 4)])
def test_pixels_that_lie_where_it_was_computed_are_vectors_of_channels(dtype: str, channels: int, cores: int) -> None:
    """Read one after the other: vectors of pixels would gather each of their elements."""
    target = f"llvm -num-cores={cores}"
    x, a = given("x", 40, 50, channels, dtype=dtype)
    rows, i = given("rows", 30, 60, dtype="int32")
    moved = te.compute((30, 60, channels), lambda r, c, k: x[rows[r, c], c // 2, k], name="moved")
    turned = te.compute(
        (30, 60, channels), lambda r, c, k: x[r, te.min(te.floor(c * 0.7).astype("int32"), 49), k] + moved[r, c, k]
    )
    s = topi.schedule(turned, target)
    assert [note.form for note in s.forms] == ["pixels"] and "vectorize('k')" in str(s) and "unroll" not in str(s)
    found = a[np.arange(30)[:, None], np.minimum(np.arange(60, dtype=np.float32) * np.float32(0.7), 49).astype(int)]
    made = run(turned, (x, a), (rows, i), target=target)
    np.testing.assert_array_equal(made, found + a[i, np.arange(60) // 2])
