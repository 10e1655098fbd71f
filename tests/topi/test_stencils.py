"""Elementwise stages that read neighbours of others: what is made once, in rings of rows, against the plain program."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import tensorlang
from tensorlang import te, topi
from tensorlang.ir.expr import Expr
from tensorlang.te.operation import Tensor
from tests.topi.programs import Array, given, shape_of

Index = Callable[[Expr, int], Expr]
TAPS = (0.1, 0.25, 0.3, 0.2, 0.15)


def form_of(output: Tensor, stage: str, target: str = "llvm -num-cores=1") -> str:
    """What the library takes for a stage."""
    return next(note.form for note in topi.schedule([output], target).forms if note.stage == stage)


def made(
    output: Tensor, inputs: list[Tensor], arrays: list[Array], s: te.Schedule | None = None, cores: int = 1
) -> Array:
    """What a program computes: unscheduled, or by a schedule."""
    result = np.full(shape_of(output), 77, output.dtype)
    target = f"llvm -num-cores={cores}"
    tensorlang.build(s or te.create_schedule(output.op), [*inputs, output], target=target)(*arrays, result)
    return result


def agrees(output: Tensor, inputs: list[Tensor], arrays: list[Array], form: str) -> None:
    """The library takes a form for a stage, and it computes what the program says, on one core and on two."""
    assert form_of(output, output.op.name) == form
    wanted = made(output, inputs, arrays)
    for cores in (1, 2):
        s = topi.schedule([output], f"llvm -num-cores={cores}")
        np.testing.assert_allclose(made(output, inputs, arrays, s, cores), wanted, 2e-5, 2e-5)


def blurred(x: Tensor, axis: int, name: str, taps: int = 5, step: int = 1) -> Tensor:
    """Weighted sums of neighbours along an axis, where all of them are there."""
    shape = [*shape_of(x)]
    shape[axis] = (shape[axis] - taps) // step + 1

    def at(*place: Expr) -> Expr:
        return sum(
            (x[(*place[:axis], place[axis] * step + k, *place[axis + 1 :])] * TAPS[k] for k in range(1, taps)),
            start=x[(*place[:axis], place[axis] * step, *place[axis + 1 :])] * TAPS[0],
        )

    return te.compute(tuple(shape), at, name=name)


@pytest.mark.parametrize("shape", [(40, 52), (2, 37, 41), (3, 20, 24, 3), (7, 133)])
def test_rows_of_a_separable_filter_are_kept(shape: tuple[int, ...]) -> None:
    """Images alone, in batches, with channels, of sizes that are no multiples of anything."""
    a, x = given("A", *shape)
    down = {2: 0, 3: 1, 4: 1}[len(shape)]
    agrees(blurred(blurred(a, down + 1, "B"), down, "C"), [a], [x], "rings")


def test_an_image_is_halved_by_rings() -> None:
    """Rows are read two by two."""
    a, x = given("A", 45, 69)
    agrees(blurred(blurred(a, 1, "B", step=2), 0, "C", step=2), [a], [x], "rings")


def test_what_many_read_at_one_place_is_computed_there() -> None:
    """Squares of derivatives join the sums that read them; the derivatives, dearer, are kept."""
    a, x = given("A", 30, 43)
    ix = te.compute((28, 41), lambda i, j: (a[i, j + 2] - a[i, j] + 2.0 * (a[i + 1, j + 2] - a[i + 1, j])) / 8.0, "Ix")
    xx = te.compute((28, 41), lambda i, j: ix[i, j] * ix[i, j], "Ixx")
    box = te.compute((26, 39), lambda i, j: sum((xx[i + p, j + q] for p in range(3) for q in range(3)), start=0.0), "S")
    out = te.compute((26, 39), lambda i, j: box[i, j] - 0.04 * box[i, j] * box[i, j], "H")
    agrees(out, [a], [x], "rings")
    lowered = tensorlang.lower(topi.schedule([out], "llvm -num-cores=1"), [a, out])
    assert "Ix" in str(lowered)
    assert "Ixx" not in str(lowered)


@pytest.mark.parametrize(("padding", "form"), [("zeros", "rings"), ("edge", "tiles")])
def test_borders_are_made_in_pieces(padding: str, form: str) -> None:
    """An image with a border is an array of its own; one whose border repeats has rows that do not move evenly."""
    a, x = given("A", 33, 47)
    if padding == "zeros":
        wide = topi.nn.pad(a, (2, 2))
        agrees(blurred(blurred(wide, 1, "B"), 0, "C"), [a], [x], form)
        return

    def clamped(place: Expr, last: int) -> Expr:
        return te.if_then_else(place < 0, 0, te.if_then_else(place > last, last, place))

    b = te.compute((33, 43), lambda i, j: sum((a[i, j + k] * TAPS[k] for k in range(1, 5)), start=a[i, j] * 0.1), "B")
    c = te.compute(
        (33, 43), lambda i, j: sum((b[clamped(i + k - 2, 32), j] * TAPS[k] for k in range(5)), start=0.0), "C"
    )
    agrees(c, [a], [x], form)
    lines = str(tensorlang.lower(topi.schedule([c], "llvm -num-cores=1"), [a, c])).split("\n")
    assert sum(line.lstrip().startswith("B[") for line in lines) < 20, "all rows of a tile are written out"


def test_results_whose_rows_end_in_a_border_are_made_of_rings() -> None:
    """The last stage comes in pieces along a row, the one before it is kept."""
    a, x = given("A", 33, 47)
    b = blurred(a, 1, "B")
    c = te.compute((29, 43), lambda i, j: te.if_then_else(j < 40, b[i, j] + b[i + 4, j] + b[i + 2, j], 0.0), "C")
    agrees(c, [a], [x], "rings")


def test_what_data_or_turns_say_where_to_read_is_not_kept_in_rings() -> None:
    """A tile would have all rows made."""
    a, _ = given("A", 64, 32)
    where = te.placeholder((64,), "int32", "where")
    b = te.compute((64, 32), lambda i, j: te.exp(a[i, j]) + a[i, j] * 2.0, "B")
    gathered = te.compute((60, 32), lambda i, j: b[where[i], j] + b[where[i + 1], j], "C")
    turned = te.compute((60, 32), lambda i, j: b[(i * 7) % 64, j] + b[(i * 5) % 64, j], "D")
    assert form_of(gathered, "C") == "along"
    assert form_of(turned, "D") == "along"


def test_gray_of_an_image_is_made_for_its_gradients() -> None:
    """Of bytes with channels, which the rows that are kept have none of."""
    a, x = given("A", 31, 45, 3, dtype="uint8")
    weights = (0.299, 0.587, 0.114)
    g = te.compute(
        (31, 45), lambda i, j: sum((a[i, j, c].astype("float32") * weights[c] for c in range(3)), start=0.0), "G"
    )
    dx = te.compute((29, 43), lambda i, j: g[i, j + 2] - g[i, j] + 2.0 * (g[i + 1, j + 2] - g[i + 1, j]), "X")
    dy = te.compute((29, 43), lambda i, j: g[i + 2, j] - g[i, j] + 2.0 * (g[i + 2, j + 1] - g[i, j + 1]), "Y")
    agrees(
        te.compute((29, 43), lambda i, j: te.sqrt(dx[i, j] * dx[i, j] + dy[i, j] * dy[i, j]), "M"), [a], [x], "rings"
    )


@st.composite
def chains(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """An input, and stages one behind another, which read neighbours of one or two before them, maybe mirrored."""
    height, width = draw(st.integers(14, 40)), draw(st.integers(14, 50))
    stages = [te.placeholder((height, width), name="A")]
    for n in range(draw(st.integers(2, 4))):
        sources = [stages[-1], *draw(st.lists(st.sampled_from(stages), max_size=1))]
        places = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=2, max_size=4))
        flip = draw(st.integers(0, 5)) == 0
        rows, columns = (min(sizes) - 2 for sizes in zip(*map(shape_of, sources), strict=True))

        def at(i: Expr, j: Expr, sources: list[Tensor], places: list[tuple[int, int]], row: int, flip: bool) -> Expr:
            y = row - 1 - i if flip else i
            terms = [s[y + p, j + q] * (0.5 + 0.1 * k) for s in sources for k, (p, q) in enumerate(places)]
            return te.max(sum(terms[1:], start=terms[0]), -1.0)

        body = partial(at, sources=sources, places=places, row=rows, flip=flip)
        stages.append(te.compute((rows, columns), lambda i, j, body=body: body(i, j), name=f"S{n}"))
    return stages[0], stages[-1]


@settings(max_examples=12)
@drawn(chains(), st.sampled_from([1, 2]))
def test_any_chain_of_stencils_computes_what_it_says(program: tuple[Tensor, Tensor], cores: int) -> None:
    """Whatever is kept, and whatever is computed where it is read."""
    a, out = program
    x = np.random.default_rng(0).standard_normal(shape_of(a)).astype(np.float32)
    s = topi.schedule([out], f"llvm -num-cores={cores}")
    np.testing.assert_allclose(made(out, [a], [x], s, cores), made(out, [a], [x]), 1e-4, 1e-4)


@pytest.mark.parametrize("terms", [5, 23, 300])
def test_long_windows_along_memory_are_vectors_of_results(terms: int) -> None:
    """One filter for all of an array, and one for each row; before, each result was a reduction of its own."""
    a, x = given("A", 3, 90 + terms)
    w, f = given("W", 3, terms)
    r = te.reduce_axis((0, terms), "r")
    each = te.compute((3, 90), lambda i, j: te.sum(a[i, j + r] * w[i, r], axis=r), "each")
    line = te.compute((90,), lambda j: te.max(a[1, j + r], axis=r), "line")
    assert form_of(each, "each").startswith("reuse.pack-none")
    assert form_of(line, "line").startswith("reuse.pack-none")
    windows = np.lib.stride_tricks.sliding_window_view(x, terms, axis=1)[:, :90]
    s = topi.schedule([each], "llvm -num-cores=1")
    np.testing.assert_allclose(made(each, [a, w], [x, f], s), np.einsum("ijr,ir->ij", windows, f), 1e-4, 1e-4)
    s = topi.schedule([line], "llvm -num-cores=1")
    np.testing.assert_array_equal(made(line, [a], [x], s), windows[1].max(-1))


def test_filters_of_one_row_are_made_piece_by_piece() -> None:
    """Signals: one filter behind another, every second element, and of open sizes."""
    a, x = given("A", 9001)
    for step in (1, 2):
        first = blurred(a, 0, "B", step=step)
        agrees(blurred(blurred(first, 0, "C"), 0, "D"), [a], [x], "tiles")
    n = te.var("n")
    a = te.placeholder((n + 2,), name="A")
    e = te.compute((n + 2,), lambda i: te.exp(a[i]) * 0.5, name="E")
    out = te.compute((n,), lambda i: e[i] + e[i + 1] - e[i + 2], name="F")
    assert form_of(out, "F") == "tiles"
    for cores in (1, 2):
        kernel = tensorlang.build(topi.schedule([out], f"llvm -num-cores={cores}"), [a, out])
        for size in (1, 700, 12345):
            values = np.random.default_rng(0).standard_normal(size + 2).astype("float32")
            result = np.zeros(size, "float32")
            kernel(values, result)
            wanted = np.exp(values) * 0.5
            np.testing.assert_allclose(result, wanted[:-2] + wanted[1:-1] - wanted[2:], 2e-5, 2e-5)


@pytest.mark.parametrize(("width", "channels"), [(90, 3), (37, 4), (18, 2)])
def test_rows_of_pixels_whose_channels_differ_are_kept(width: int, channels: int) -> None:
    """Of an image with one channel more, and weighed by channels."""
    a, x = given("A", 21, width + 4, channels + 1)
    w, f = given("W", channels)
    b = te.compute(
        (21, width, channels),
        lambda i, j, c: sum((a[i, j + k, c] * TAPS[k] for k in range(1, 5)), start=a[i, j, c] * 0.1),
        name="B",
    )
    c = te.compute(
        (17, width, channels),
        lambda i, j, c: sum((b[i + k, j, c] * TAPS[k] for k in range(1, 5)), start=b[i, j, c] * 0.1) * w[c],
        name="C",
    )
    agrees(c, [a, w], [x, f], "rings")
    assert "unroll('c')" in str(topi.schedule([c], "llvm -num-cores=1"))
