"""Consumers inside the loops of their producer: every point runs once its inputs are there; refusals with a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tensorlang import lower, te
from tensorlang.errors import BadArgument, IllegalOrder, IllegalParallel, ScheduleError, UncoveredRead
from tensorlang.schedule import Schedule
from tensorlang.schedule.trace import Trace
from tensorlang.testing.check import check_schedule


def dense(rows: Any = 20, columns: Any = 24) -> tuple[list[te.Tensor], te.Tensor]:
    a, b = te.placeholder((rows, 12), name="A"), te.placeholder((12, columns), name="B")
    k = te.reduce_axis((0, 12), "k")
    return [a, b], te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")


def relu(c: te.Tensor, name: str = "D") -> te.Tensor:
    made: te.Tensor = te.compute(c.shape, lambda i, j: te.maximum(c[i, j], 0.0), name=name)
    return made


def convolution() -> tuple[list[te.Tensor], te.Tensor]:
    x, w = te.placeholder((18, 18), name="X"), te.placeholder((3, 3), name="W")
    a, b = te.reduce_axis((0, 3), "a"), te.reduce_axis((0, 3), "b")
    made = te.compute((16, 16), lambda i, j: te.sum(x[i + a, j + b] * w[a, b], axis=[a, b]), name="C")
    return [x, w], made


def pool(c: te.Tensor, window: int, stride: int, extent: int) -> te.Tensor:
    u, v = te.reduce_axis((0, window), "u"), te.reduce_axis((0, window), "v")
    made: te.Tensor = te.compute(
        (extent, extent), lambda y, x: te.max(c[stride * y + u, stride * x + v], axis=[u, v]), name="D"
    )
    return made


def test_an_activation_in_the_tiles_of_a_product() -> None:
    args, c = dense()
    d = relu(c)
    s = te.create_schedule(d.op)
    i_o, j_o, _, _ = s[c].tile("i", "j", 4, 8)
    s[d].reverse_compute_at(s[c], j_o)
    s[d].vectorize("j")
    s[c].parallel(i_o)
    assert "for i in range(4):\n        vectorized j in range(8):\n          D[4 * i_o + i, 8 * j_o + j]" in str(
        lower(s, [*args, d])
    )
    check_schedule(s, [*args, d])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("sizes", [(0, 5), (1, 1), (8, 16), (9, 19)])
def test_every_loop_and_size(axis: int, sizes: tuple[int, int]) -> None:
    args, c = dense(te.var("n"), te.var("m"))
    d = relu(c)
    s = te.create_schedule(d.op)
    axes = s[c].tile("i", "j", 4, 8)
    s[d].reverse_compute_at(s[c], axes[axis])
    check_schedule(s, [*args, d], sizes=dict(zip(("n", "m"), sizes)))


def test_a_chain_of_consumers_and_an_output_among_them() -> None:
    args, c = dense()
    d = relu(c)
    e = te.compute(c.shape, lambda i, j: d[i, j] * 2 + c[i, j], name="E")
    s = te.create_schedule([e.op, c.op])
    _, j_o, _, _ = s[c].tile("i", "j", 3, 5)
    s[d].reverse_compute_at(s[c], j_o)
    s[e].reverse_compute_at(s[c], j_o)
    s[e].split("j", factor=2)
    check_schedule(s, [*args, c, e])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("window", "stride", "extent"), [(2, 2, 8), (3, 2, 7), (3, 1, 14), (1, 3, 6)])
@pytest.mark.parametrize("tile", [(4, 8), (3, 5), (1, 1), (16, 16)])
def test_a_window_waits_for_its_last_input(window: int, stride: int, extent: int, tile: tuple[int, int]) -> None:
    args, c = convolution()
    d = pool(c, window, stride, extent)
    s = te.create_schedule(d.op)
    axes = s[c].tile("i", "j", *tile)
    s[d].reverse_compute_at(s[c], axes[1])
    check_schedule(s, [*args, d])


def test_windows_in_one_tile_leave_the_tiles_parallel() -> None:
    args, c = convolution()
    d = pool(c, 2, 2, 8)
    s = te.create_schedule(d.op)
    i_o, j_o, _, _ = s[c].tile("i", "j", 4, 8)
    s[d].reverse_compute_at(s[c], j_o)
    s[c].parallel(i_o)
    check_schedule(s, [*args, d])
    d = pool(c, 3, 2, 7)
    s = te.create_schedule(d.op)
    i_o, j_o, _, _ = s[c].tile("i", "j", 4, 8)
    s[d].reverse_compute_at(s[c], j_o)
    with pytest.raises(IllegalParallel, match="C"):
        s[c].parallel(i_o)


def test_reads_under_a_condition() -> None:
    args, c = dense()

    def below_and_before(i: te.Var, j: te.Var) -> Any:
        below = te.if_then_else(i < 19, c[i + 1, j], 0.0)
        return c[i, j] + below + te.if_then_else(j > 0, c[i, j - 1], 0.0)

    d = te.compute(c.shape, below_and_before, name="D")
    s = te.create_schedule(d.op)
    _, j_o, _, _ = s[c].tile("i", "j", 4, 8)
    s[d].reverse_compute_at(s[c], j_o)
    check_schedule(s, [*args, d])


def test_fused_and_skewed_loops() -> None:
    makers: list[Callable[[Schedule], Any]] = [
        lambda s: s["C"].split(s["C"].fuse("i", "j"), factor=7)[0],
        lambda s: s["C"].fuse(*s["C"].tile("i", "j", 4, 8)[:2]),
        lambda s: s["C"].skew("j", by="i"),
    ]
    for steps in makers:
        args, c = dense()
        d = relu(c)
        s = te.create_schedule(d.op)
        s[d].reverse_compute_at(s[c], steps(s))
        check_schedule(s, [*args, d])


def test_stages_inside_both() -> None:
    args, c = dense()
    bias = te.compute((24,), lambda j: te.const(2.0) * j, name="bias")
    d = te.compute(c.shape, lambda i, j: c[i, j] + bias[j], name="D")
    s = te.create_schedule(d.op)
    _, j_o, _, _ = s[c].tile("i", "j", 4, 8)
    p = s.cache_read("A", "local", [c])
    s[p].compute_at(s[c], j_o)
    s[d].reverse_compute_at(s[c], j_o)
    s[bias].compute_at(s[d], "i")
    check_schedule(s, [*args, d])


def test_a_consumer_that_needs_the_other_end_first() -> None:
    args, c = dense()
    d = te.compute(c.shape, lambda i, j: c[19 - i, j] + c[i, j], name="D")
    s = te.create_schedule(d.op)
    i_o, _ = s[c].split("i", factor=4)
    s[d].reverse_compute_at(s[c], i_o)
    check_schedule(s, [*args, d])


def test_an_order_that_runs_backwards_is_refused() -> None:
    args, c = convolution()
    d = pool(c, 3, 2, 7)
    s = te.create_schedule(d.op)
    backwards = s[c].reverse("i")
    with pytest.raises(IllegalOrder):
        s[d].reverse_compute_at(s[c], backwards)
    check_schedule(s, [*args, d])


def test_a_consumer_that_also_needs_a_later_stage_is_refused() -> None:
    args, c = dense()
    other = te.compute(c.shape, lambda i, j: c[i, j] * 3, name="other")
    d = te.compute(c.shape, lambda i, j: c[i, j] + other[i, j], name="D")
    s = te.create_schedule(d.op)
    with pytest.raises(IllegalOrder):
        s[d].reverse_compute_at(s[c], "i")
    s[other].reverse_compute_at(s[c], "i")
    s[d].reverse_compute_at(s[c], "i")
    check_schedule(s, [*args, d])


def test_places_that_make_no_sense() -> None:
    _, c = dense()
    d = relu(c)
    e = relu(d, "E")
    s = te.create_schedule(e.op)
    s[c].reorder("i", "k", "j")
    cases: list[tuple[Any, str]] = [
        (lambda: s[d].reverse_compute_at(s[c], "k"), "inside k no element of C is complete"),
        (lambda: s[d].reverse_compute_at(s[c], "j"), "inside k no element of C is complete"),
        (lambda: s[d].reverse_compute_at(s[d], "i"), "D cannot be computed inside itself"),
        (lambda: s[e].reverse_compute_at(s[c], "i"), "E reads nothing that is made in one iteration of the loop C.i"),
        (lambda: s[d].reverse_compute_at(s[c], "q"), "no axis 'q' in C"),
        (lambda: s["A"].reverse_compute_at(s[c], "i"), "A is an input"),
    ]
    for step, why in cases:
        with pytest.raises(BadArgument, match=why):
            step()
    s[d].reverse_compute_at(s[c], "i")
    with pytest.raises(BadArgument, match="D is computed inside i of C; it has to stand at the root") as caught:
        s[e].reverse_compute_at(s[d], "i")
    assert caught.value.legal == ("s['D'].compute_root(); s['E'].reverse_compute_at(s['D'], 'i')",)
    s[c].split("i", factor=4)
    attach = s.state.stages["D"].attach
    assert attach is not None and attach.axis == "i_i"
    with pytest.raises(BadArgument, match="needs a stage that is computed inside a loop"):
        s[d].rolling_buffer()


def test_data_decides_what_is_read() -> None:
    x = te.placeholder((20,), "int32", name="x")
    c = te.compute((20,), lambda i: x[i] + 1, name="C")
    d = te.compute((20,), lambda i: c[x[i]], name="D")
    s = te.create_schedule(d.op)
    with pytest.raises(ScheduleError):
        s[d].reverse_compute_at(s[c], "i")


def test_the_producer_stays_where_it_is() -> None:
    args, c = dense()
    d = relu(c)
    e = relu(c, "E")
    s = te.create_schedule([d.op, e.op])
    s[d].reverse_compute_at(s[c], "i")
    with pytest.raises(BadArgument, match=r"C, which has to be a te\.compute stage at the root"):
        s[c].compute_at(s[e], "i")
    s[d].compute_root()
    check_schedule(s, [*args, d, e])


def test_nobody_reads_a_part_that_comes_later() -> None:
    args, c = dense()
    d = relu(c)
    e = te.compute(c.shape, lambda i, j: c[i, j] + d[19 - i, j], name="E")
    s = te.create_schedule(e.op)
    s[d].reverse_compute_at(s[c], "i")
    s[e].reverse_compute_at(s[c], "i")
    check_schedule(s, [*args, e])
    with pytest.raises(UncoveredRead):
        s[d].set_store_predicate("i > 0")


def test_it_replays_and_is_explained() -> None:
    args, c = dense()
    d = relu(c)

    def steps(s: Schedule) -> Schedule:
        _, j_o, _, _ = s[c].tile("i", "j", 4, 8)
        s[d].reverse_compute_at(s[c], j_o)
        return s

    s = steps(te.create_schedule(d.op))
    again = Trace.from_json(s.trace.to_json()).apply(te.create_schedule(d.op))
    assert str(lower(again, [*args, d])) == str(lower(s, [*args, d]))
    assert s.trace.to_python().splitlines()[-1] == "s['D'].reverse_compute_at(s['C'], 'j_o')"
    assert "D after j_o of C: D[20, 24]" in str(s.explain())


def test_a_reduction_that_cancels_in_an_index() -> None:
    A, k = te.placeholder((8,), name="A"), te.reduce_axis((0, 3), name="k")
    P = te.compute((8,), lambda i: A[i] * 2.0, name="P")
    C = te.compute((8,), lambda i: te.sum(P[i + k - k], axis=k), name="C")
    s = te.create_schedule(C.op)
    s[C].reverse_compute_at(s[P], s[P].op.axis[0])
    text = str(lower(s, [A, C]))
    assert text.count("for i in range(8)") == 1
