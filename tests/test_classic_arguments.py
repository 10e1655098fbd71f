"""What classic programs may write: several names for one thing, numbers for tensors, steps in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import tensorlang as tvm
from tensorlang import nd, te, tir, topi
from tensorlang.errors import ArgumentError, DefinitionError
from tensorlang.testing.check import check_schedule

ONES = np.ones((4, 6), np.float32)


def run(out: Any, *inputs: tuple[te.Tensor, Any], s: te.Schedule | None = None) -> np.ndarray[Any, Any]:
    """What a kernel makes of arrays and numbers, without a step unless a schedule is given."""
    s = s or te.create_schedule(out.op)
    made = np.zeros([int(n) for n in s.program.buffers[out.name].shape], out.dtype)
    tvm.build(s, [*(tensor for tensor, _ in inputs), out])(*(array for _, array in inputs), made)
    return made


def matrix(name: str = "A", dtype: str = "float32") -> te.Tensor:
    return te.placeholder((4, 6), dtype, name)


def test_an_extent_is_a_number_in_any_dtype() -> None:
    wide = te.placeholder((4, tir.IntImm("int64", 6)), name="B")
    a = matrix()
    assert topi.add(a, wide).shape == a.shape
    made = [topi.concatenate([a, wide]), topi.reshape(wide, (tir.IntImm("int64", 24),)), topi.dense(a, wide)]
    assert [str(tensor.shape) for tensor in made] == ["(8, 6)", "(24,)", "(4, 4)"]


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "maximum", "minimum", "power"])
def test_a_number_stands_for_a_tensor(name: str) -> None:
    a = matrix()
    one, other = getattr(topi, name)(a, 2.5), getattr(topi, name)(3, a)
    x, word = np.arange(1, 25, dtype=np.float32).reshape(4, 6), getattr(np, name)
    np.testing.assert_allclose(run(one, (a, x)), word(x, np.float32(2.5)), rtol=1e-6)
    np.testing.assert_allclose(run(other, (a, x)), word(np.float32(3), x), rtol=1e-5)


def test_operators_of_tensors() -> None:
    a, b, row = matrix(), matrix("B"), te.placeholder((6,), name="row")
    x, y, z = (np.random.default_rng(k).standard_normal(shape).astype(np.float32)
               for k, shape in enumerate([(4, 6), (4, 6), (6,)]))  # fmt: skip
    made = -(a + b) * 2 - row / 4.0
    assert isinstance(made, te.Tensor) and made.op.name == "subtract"
    np.testing.assert_allclose(run(made, (a, x), (b, y), (row, z)), -(x + y) * 2 - z / 4, rtol=1e-5)
    greater, whole = a > b, a.astype("int32")
    assert (greater.dtype, whole.dtype) == ("bool", "int32")
    np.testing.assert_array_equal(run(greater, (a, x), (b, y)), x > y)
    np.testing.assert_array_equal(run(1 - whole % 3, (a, x)), 1 - x.astype(np.int32) % 3)
    np.testing.assert_array_equal(run(~(greater | (a < 0)), (a, x), (b, y)), ~((x > y) | (x < 0)))
    with pytest.raises(DefinitionError, match="A has 2 dimensions, indexed with 0; index it where an element"):
        te.compute((4, 6), lambda i, j: a + b[i, j])
    single = te.placeholder((), name="single")
    assert isinstance(single * 2, tir.PrimExpr) and a == a and a != b


def test_bounds_take_the_dtype_of_the_data() -> None:
    a = matrix(dtype="int16")
    made = topi.clip(a, tir.IntImm("int32", -3), 70000)
    assert made.dtype == "int16"
    x = np.arange(-12, 12, dtype=np.int16).reshape(4, 6)
    np.testing.assert_array_equal(run(made, (a, x)), x.clip(-3))
    with pytest.raises(DefinitionError, match=r"0\.5 is not an integer"):
        topi.clip(a, 0.5, 3)


def test_tensors_without_elements_are_reshaped() -> None:
    a = te.placeholder((4, 0, 2), name="A")
    assert run(topi.reshape(a, (2, 0)), (a, np.zeros((4, 0, 2), np.float32))).shape == (2, 0)
    with pytest.raises(DefinitionError, match="-1 may be anything beside an extent of 0"):
        topi.reshape(a, (0, -1))


def test_bits_of_narrow_floats() -> None:
    made = nd.empty((2,), "bfloat16").copyfrom(np.array([0x3F80, 0x4000], np.uint16))
    assert made.numpy().astype(np.float32).tolist() == [1, 2]
    assert nd.empty((2,), "bfloat16").copyfrom(np.array([3, 4])).numpy().astype(np.float32).tolist() == [3, 4]


def test_classes_to_ask_for() -> None:
    assert isinstance(tvm.target.Target("llvm"), tvm.target.Target) and not isinstance("llvm", tvm.target.Target)
    assert issubclass(tvm.TVMError, RuntimeError)
    with pytest.raises(RuntimeError):
        te.compute((4,), lambda i: None)  # type: ignore[arg-type, return-value]


def test_numbers_are_arguments() -> None:
    a, factor, count, on = matrix(), te.var("factor", "float32"), te.var("count", "int8"), te.var("on", "bool")
    made = te.compute((4, 6), lambda i, j: te.select(on, a[i, j] * factor + count.astype("float32"), 0.0), name="out")
    for number, few, flag in ((2.5, -3, True), (np.float64(0.5), np.int64(100), np.bool_(False))):
        found = run(made, (factor, number), (count, few), (on, flag), (a, ONES))
        np.testing.assert_array_equal(found, np.where(flag, ONES * number + few, 0))
    for wrong in ((2.5, 300, True), (2.5, 1.5, True), (2.5, 1, 1)):
        with pytest.raises(ArgumentError, match=r"expected a number that (int8|bool) holds"):
            run(made, *zip((factor, count, on), wrong, strict=True), (a, ONES))


def test_axes_of_one_name() -> None:
    a = matrix()
    k, m = te.reduce_axis((0, 4)), te.reduce_axis((1, 6))
    total = te.compute((1,), lambda i: te.sum(a[k, m], axis=[k, m], where=m < 5), name="total")
    assert [str(axis) for axis in total.op.reduce_axis] == ["rv", "rv_1"]
    s = te.create_schedule(total.op)
    _, inner = s[total].split(m, factor=2)
    s[total].reorder(inner, k)
    assert [str(axis) for axis in s[total].leaf_iter_vars] == ["i", "rv_1_i", "rv_1_o", "rv"]
    partial = s.rfactor(total, k)
    assert partial.shape == (4, 1)
    check_schedule(s, [a, total])
    n = te.var("n")
    b = te.placeholder((n,), name="B")
    made = te.compute((n,), lambda n: b[n] + n, name="C")
    assert made.op.axis[0].name == "n_1" and made.op.axis[0].extent.name == "n"


def test_arrays_of_callers_in_other_layouts() -> None:
    a = matrix()
    made = te.compute((4, 6), lambda i, j: a[i, j] + i, name="out")
    s = te.create_schedule(made.op)
    assert s[a].transform_layout(lambda i, j: [j, i]) == []
    s[made].transform_layout(lambda i, j: [j // 3, i, j % 3])
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    wanted = (x + np.arange(4)[:, None]).reshape(4, 2, 3).transpose(1, 0, 2)
    np.testing.assert_array_equal(run(made, (a, np.ascontiguousarray(x.T)), s=s), wanted)


@drawn(st.permutations([0, 1, 2]), st.sampled_from([(4, 2), (3, 2), (5, 3)]), st.booleans(), st.integers(1, 3))
@settings(max_examples=8)
def test_layouts_of_arguments_keep_meaning(order: list[int], block: tuple[int, int], also: bool, tile: int) -> None:
    whole, part = block
    a = te.placeholder((3, 4, 6), "int32", name="A")
    made = te.compute((3, 4, 6), lambda i, j, k: a[i, j, k] * 2 + j, name="out")
    s = te.create_schedule(made.op)
    s[a].transform_layout(lambda *i: [i[order[0]], i[order[1]] // whole, i[order[2]], i[order[1]] % whole])
    s[made].transform_layout(lambda i, j, k: [[i, j, k][d] for d in order])
    if also:
        s[a].transform_layout(lambda i, j, k, n: [k // part, n, i, j, k % part])
    s[made].split(s[made].leaf_iter_vars[1], factor=tile)
    check_schedule(s, [a, made])


def test_what_is_asked_twice_is_done_once() -> None:
    made = te.compute((4, 6), lambda i, j: i + j, name="out")
    s = te.create_schedule(made.op)
    for _ in range(2):
        s[made].parallel("i")
        s[made].unroll("j")
    before = str(tvm.lower(s, [made]))
    s[made].unroll("j")
    assert str(tvm.lower(s, [made])) == before


def test_what_hangs_on_an_axis_moves_with_it() -> None:
    a = matrix()
    b = te.compute((4, 6), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((4, 6), lambda i, j: b[i, j] * 2, name="C")
    s = te.create_schedule(c.op)
    i, j = c.op.axis
    s[b].compute_at(s[c], j)
    fused = s[c].fuse(i, j)
    s[c].split(fused, factor=5)
    attach = s.state.stages["B"].attach
    assert attach is not None and attach.axis == "i_j_fused_i"
    check_schedule(s, [a, c])


def test_a_cell_of_a_scan_that_looks_back_has_no_first_value() -> None:
    x, state = te.placeholder((5, 3), name="X"), te.placeholder((5, 3), name="state")
    cell = te.compute((5, 3), lambda t, i: x[t - 1, i] * 2, name="cell")
    init = te.compute((1, 3), lambda t, i: x[0, i])
    made = te.scan(init, te.compute((5, 3), lambda t, i: state[t - 1, i] + cell[t, i]), state, inputs=[x])
    values = np.arange(15, dtype=np.float32).reshape(5, 3)
    wanted = np.cumsum(np.concatenate([values[:1], 2 * values[:-1]]), axis=0)
    np.testing.assert_array_equal(run(made, (x, values)), wanted)
