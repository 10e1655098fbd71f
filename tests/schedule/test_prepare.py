"""Rewrites of what a stage computes: the same values as before, in the same trace on every machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from tensorlang import te, topi
from tensorlang.schedule import Schedule, Trace
from tensorlang.schedule.rewrites.attention import attention_of
from tensorlang.schedule.rewrites.narrow_product import SUMS, panels, product_of_panels
from tensorlang.te.operation import ComputeOp, Tensor
from tensorlang.testing import check_schedule
from tests.programs import Case
from tests.schedule.primitive_uses import attended, convolution, narrow, running
from tests.topi.programs import given, run

Draw = Any


@settings(max_examples=10)
@drawn(st.data())
def test_narrow_products(data: Draw) -> None:
    """Of all shapes, dtypes and transposes, in panels of any width."""
    m, n, k = (data.draw(st.integers(1, 20)) for _ in range(3))
    a, b = data.draw(st.booleans()), data.draw(st.booleans())
    dtype, weight = data.draw(st.sampled_from(list(SUMS)))
    A = te.placeholder((k, m) if a else (m, k), dtype, "A")
    B = te.placeholder((n, k) if b else (k, n), weight, "B")
    C = topi.matmul(A, B, a, b, out_dtype=SUMS[dtype, weight])
    s = te.create_schedule(C.op)
    operand = data.draw(st.sampled_from([dtype, "uint8"] if dtype == "int8" else [dtype]))
    s[C].narrow_product(data.draw(st.integers(1, 24)), operand)
    check_schedule(s, [A, B, C], targets=("interpreter",))


@pytest.mark.parametrize("word", ["m", "i", "p", "k", "lane"])
def test_sizes_may_have_the_names_of_axes(word: str) -> None:
    m = te.var(word)
    A, B = te.placeholder((m, 5), "int8", "A"), te.placeholder((5, 7), "int8", "B")
    k = te.reduce_axis((0, 5), "r")
    C = te.compute((m, 7), lambda x, y: te.sum(A[x, k].astype("int32") * B[k, y].astype("int32"), axis=k), name="C")
    s = te.create_schedule(C.op)
    s[C].narrow_product(4, "uint8")
    check_schedule(s, [A, B, C], {word: 6}, targets=("interpreter",))


@settings(max_examples=6)
@drawn(st.integers(-128, 127), st.integers(1, 6), st.integers(1, 9), st.integers(1, 9))
def test_zero_points(zero: int, m: int, n: int, k: int) -> None:
    """What a zero of the data is, moved to be unsigned or not, is taken out of the sums again."""
    (A, x), (B, y) = given("A", m, k, dtype="int8"), given("B", n, k, dtype="int8")
    wanted = (x.astype(np.int64) - zero) @ y.astype(np.int64).T
    for operand, moved in (("int8", zero), ("uint8", zero + 128)):
        packed = panels(B, True, 4, "packed")
        made = product_of_panels(A, packed, te.const(n, "int32"), False, operand, moved, None, "C")
        np.testing.assert_array_equal(run(made, (A, x), (B, y)), wanted)


@settings(max_examples=10)
@drawn(st.data())
def test_products_of_windows(data: Draw) -> None:
    """Of all windows, strides, dilations, paddings, layouts of weights, and groups."""
    n, h, w = (data.draw(st.integers(1, 2))), *(data.draw(st.integers(5, 7)) for _ in range(2))
    groups, c, f, high, wide = (data.draw(st.integers(1, 3)) for _ in range(5))
    strides, dilation = ([data.draw(st.integers(1, 2)) for _ in "yx"] for _ in range(2))
    padding = [data.draw(st.integers(0, 2)) for _ in range(4)]
    letters, kernel = data.draw(st.sampled_from(["NHWC", "NHCW"])), data.draw(st.sampled_from(["HWIO", "OHWI", "OIHW"]))
    sizes = {"N": n, "H": h, "W": w, "C": c * groups}
    D = te.placeholder([sizes[x] for x in letters], "int8", "D")
    sizes = {"O": f * groups, "I": c, "H": high, "W": wide}
    W = te.placeholder([sizes[x] for x in kernel], "int8", "W")
    C = topi.conv2d(D, W, strides, padding, dilation, letters, kernel, "int32", groups, name="C")
    terms = data.draw(st.permutations(["ry", "rx", "rc"]))
    s = te.create_schedule(C.op)
    s[C].windows_product(["nn", "yy", "xx"], terms, groups)
    assert s.program["C_product"].reduce_axis
    check_schedule(s, [D, W, C], targets=("interpreter",))


def test_any_sum_of_products_has_windows() -> None:
    """A product of three factors' worth of axes: pairs of rows, and a sum over two axes."""
    A, B = te.placeholder((3, 4, 5, 6), "int32", "A"), te.placeholder((5, 6, 7), "int32", "B")
    p, q = te.reduce_axis((0, 5), "p"), te.reduce_axis((0, 6), "q")
    C = te.compute((3, 7, 4), lambda x, f, y: te.sum(B[p, q, f] * A[x, y, p, q], axis=[p, q]), name="C")
    s = te.create_schedule(C.op)
    assert s[C].windows_product(["y", "x"], ["q", "p"]) == ("C_windows", "C_filters", "C_product")
    check_schedule(s, [A, B, C], targets=("interpreter",))


@settings(max_examples=6)
@drawn(st.integers(1, 6), st.integers(0, 9), st.booleans(), st.integers(1, 6), st.integers(1, 5))
def test_attention_in_blocks(n: int, more: int, is_causal: bool, keys: int, rows: int) -> None:
    shapes = {"q": (2, n, 3), "k": (2, n + more, 3), "v": (2, n + more, 4)}
    q, k, v = (te.placeholder(shape, "float32", name) for name, shape in shapes.items())
    C = topi.attention(q, k, v, is_causal=is_causal, name="C")
    s = te.create_schedule(C.op)
    s[C].blocked_attention(keys, rows)
    check_schedule(s, [q, k, v, C], targets=("interpreter",))


def test_attentions_are_known_by_what_they_compute() -> None:
    """Long ones and second ones too; one whose scores are something else is none, whatever its tags say."""
    q, k, v = (te.placeholder((2, 3000, 4), "float32", name) for name in "qkv")
    first = topi.attention(q, k, v, is_causal=True)
    s = te.create_schedule(topi.attention(first, k, v, scale=0.3).op)
    for name in ("attention", "attention_1"):
        found = attention_of(s.operation(name))
        assert found is not None and found.is_causal == (name == "attention")
    s["attention_1"].blocked_attention(64, 64)
    s["attention"].blocked_attention(64, 64)
    assert len([op.name for op in s.program.ops if "rounded" in op.name]) == 2
    op = first.op
    assert isinstance(op, ComputeOp)
    made = te.compute(first.shape, lambda *x: first(*x) * 2.0, name="C", tag=op.tag, attrs=op.attrs)
    assert attention_of(te.create_schedule(made.op).operation("C")) is None


@settings(max_examples=12)
@drawn(st.data())
def test_running_reductions_in_pieces(data: Draw) -> None:
    """Along any axis, by any operator, of any length, exclusive ones and pieces of pieces too."""
    shape = [data.draw(st.integers(1, 14)) for _ in range(data.draw(st.integers(1, 3)))]
    axis, is_exclusive = data.draw(st.integers(0, len(shape) - 1)), data.draw(st.booleans())
    combine = data.draw(st.sampled_from([te.add, te.multiply, te.minimum, te.maximum]))
    n = te.var("n") if data.draw(st.booleans()) else te.const(shape[axis], "int32")
    A = te.placeholder([n if d == axis else extent for d, extent in enumerate(shape)], "int32", "A")
    C = topi.scanop(A, combine, 3, "C", axis, exclusive=is_exclusive)
    s = te.create_schedule(C.op)
    _, totals = s[C].running_pieces(f"i{axis}", data.draw(st.integers(1, 6)))
    if data.draw(st.booleans()):
        s[totals].running_pieces(s[totals].op.axis[axis], 2)
    s[C].parallel(s.operation("C").axis[axis])
    check_schedule(s, [A, C], {"n": shape[axis]} if s.program.sizes else {}, targets=("interpreter",))


STEPS: dict[str, tuple[Callable[[], Case], Callable[[Schedule], object]]] = {
    "narrow_product": (lambda: narrow("int8"), lambda s: s["C"].narrow_product(4, "uint8")),
    "windows_product": (convolution, lambda s: s["C"].windows_product(["nn", "yy", "xx"], ["ry", "rx", "rc"])),
    "blocked_attention": (attended, lambda s: s["C"].blocked_attention(4, 2)),
    "running_pieces": (running, lambda s: s["C"].running_pieces("i", 4)),
}


def rewritten(name: str) -> Case:
    """A program with a step taken."""
    make, step = STEPS[name]
    case = make()
    step(case.s)
    return case


@pytest.mark.parametrize("name", STEPS)
def test_a_step_prints_replays_and_leaves_the_workload_as_it_is(name: str) -> None:
    case = rewritten(name)
    s, output = case.s, case.args[-1]
    assert isinstance(output, Tensor) and s[output].name == "C" and output.op in s.outputs
    again: Schedule = te.create_schedule(output.op)
    assert s.original.key == again.original.key != s.program.key
    again.replay(Trace.from_json(s.trace.to_json()))
    assert again.program.text == s.program.text
    assert f".{name}(" in str(s)
    new = next(op.name for op in s.program.ops if op.name not in again.original.by_name)
    assert new in str(s.explain())


@pytest.mark.parametrize("name", STEPS)
def test_steps_may_follow(name: str) -> None:
    """The stages that a rewrite makes are scheduled like any other."""
    case = rewritten(name)
    stages = [op for op in case.s.program.ops if isinstance(op, ComputeOp)]
    case.s[stages[0].name].split(stages[0].axis[-1], factor=3)
    case.s[stages[-1].name].parallel(stages[-1].axis[0])
    check_schedule(case.s, case.args)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_undone_where_a_later_one_is_refused(name: str) -> None:
    make, step = STEPS[name]
    s = make().s
    before = s.program.text

    def both() -> None:
        step(s)
        s["C"].parallel("nothing")

    assert not s.attempt(both)
    assert s.program.text == before and not s.trace.steps
