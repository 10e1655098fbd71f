"""Rolling, double and folded buffers, and padded strides: equal results, no recomputation, refusals with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from tensorlang import lower, te
from tensorlang.errors import BadArgument, IllegalParallel, OverwrittenValue, RecordError, UncoveredRead
from tensorlang.schedule import Schedule
from tensorlang.schedule.primitive import from_json, to_json
from tensorlang.testing.check import check_schedule


def blur(rows: int = 34, columns: int = 40) -> tuple[Schedule, list[te.Tensor], te.Tensor, te.Tensor]:
    a = te.placeholder((rows, columns), name="A")
    b = te.compute((rows, columns), lambda i, j: a[i, j] * 2, name="B")
    c = te.compute((rows - 2, columns - 2), lambda i, j: b[i, j] + b[i + 1, j + 1] + b[i + 2, j + 2], name="C")
    return te.create_schedule(c.op), [a, c], b, c


def note(s: Schedule, stage: str) -> Any:
    return next(n for n in s.explain().stages if n.stage == stage)


def test_a_rolling_buffer_computes_every_row_once() -> None:
    s, args, b, c = blur()
    s[b].compute_at(s[c], "i")
    assert note(s, "B").recomputed == pytest.approx(32 * 3 / 34)
    s[b].rolling_buffer()
    assert note(s, "B").recomputed == 1.0
    assert note(s, "B").shape == ("3", "40")
    assert "B[(i + 2) % 3, j] = A[i + 2, j] * 2.0" in str(lower(s, args))
    check_schedule(s, args)


@pytest.mark.covering(2)
@pytest.mark.parametrize("rows, columns", [(34, 40), (7, 5), (3, 3)])
@pytest.mark.parametrize("factors", [(4, 8), (1, 3), (5, 1)])
@pytest.mark.parametrize("how", ["rolling_buffer", "double_buffer"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_tiles_that_outlive_an_iteration_equal_the_reference(
    rows: int, columns: int, factors: tuple[int, int], how: str, axis: int
) -> None:
    s, args, b, c = blur(rows, columns)
    axes = s[c].tile("i", "j", *factors)
    s[b].compute_at(s[c], axes[axis])
    getattr(s[b], how)()
    check_schedule(s, args)


@pytest.mark.sampled(3)
@pytest.mark.covering(2)
@pytest.mark.parametrize("stages", [2, 3, 4, 7])
@pytest.mark.parametrize("factors", [(4, 8), (1, 3), (5, 1)])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_pipeline_equals_the_reference(stages: int, factors: tuple[int, int], axis: int) -> None:
    s, args, b, c = blur(23, 40)
    axes = s[c].tile("i", "j", *factors)
    s[b].compute_at(s[c], axes[axis])
    s[b].pipeline(stages)
    assert note(s, "B").shape[0] == str(stages)
    check_schedule(s, args)


@pytest.mark.parametrize(("stages", "ahead"), [(3, 1), (5, 2)])
def test_tiles_may_be_kept_after_they_are_read(stages: int, ahead: int) -> None:
    s, args, b, c = blur(23, 40)
    axes = s[c].tile("i", "j", 4, 8)
    s[b].compute_at(s[c], axes[1])
    s[b].pipeline(stages, ahead)
    assert note(s, "B").shape[0] == str(stages)
    assert str(s.trace.steps[-1].text()).endswith(f".pipeline({stages}, ahead={ahead})")
    check_schedule(s, args)
    for wrong in (0, stages):
        with pytest.raises(BadArgument, match=f"of {stages} stages 1 to {stages - 1} are computed ahead, got ahead="):
            s[b].pipeline(stages, wrong)


def test_steps_recorded_before_they_had_all_fields_can_be_read() -> None:
    step = from_json({"step": "pipeline", "stage": "B", "stages": 3})
    assert step.text() == "s['B'].pipeline(3)" and from_json(to_json(step)) == step
    with pytest.raises(RecordError, match="step pipeline needs the fields"):
        from_json({"step": "pipeline", "stage": "B"})


def test_panels_have_whole_units_of_the_swizzle() -> None:
    a = te.placeholder((24, 12, 128), "float16", name="A")
    c = te.compute((24, 12, 128), lambda n, i, j: a[n, i, j] + 1, name="C")
    s = te.create_schedule(c.op)
    copy = s.cache_read(a, "shared", [c])
    with pytest.raises(BadArgument, match=r"panels have a multiple of 8 rows of 128 bytes, and .* has not"):
        s[copy].swizzle(panels=True)
    s[copy].swizzle()


def test_a_loop_that_carries_tiles_stays_sequential() -> None:
    s, args, b, c = blur()
    axes = s[c].tile("i", "j", 4, 8)
    s[b].compute_at(s[c], axes[1])
    s[b].double_buffer()
    with pytest.raises(IllegalParallel, match=r"B\[0, 0, 0\] is written and read"):
        s[c].parallel(axes[1])
    s[c].parallel(axes[0])
    check_schedule(s, args)


def test_a_reduction_can_roll() -> None:
    a = te.placeholder((20, 9), name="A")
    k = te.reduce_axis((0, 9), "k")
    b = te.compute((20,), lambda i: te.sum(a[i, k], axis=k), name="B")
    c = te.compute((18,), lambda i: b[i] + b[i + 2], name="C")
    s = te.create_schedule(c.op)
    s[b].compute_at(s[c], "i")
    s[b].rolling_buffer()
    check_schedule(s, [a, c])


def test_symbolic_rows_roll() -> None:
    n = te.var("n")
    a = te.placeholder((n + 2, 8), name="A")
    b = te.compute((n + 2, 8), lambda i, j: a[i, j] * 2, name="B")
    c = te.compute((n, 8), lambda i, j: b[i, j] + b[i + 2, j], name="C")
    s = te.create_schedule(c.op)
    s[b].compute_at(s[c], "i")
    s[b].rolling_buffer()
    for size in (0, 1, 13):
        check_schedule(s, [a, c], sizes={"n": size})


def test_a_producer_of_a_double_buffer_must_be_there_one_tile_earlier() -> None:
    a = te.placeholder((64,), name="A")
    p = te.compute((64,), lambda i: a[i] + 1, name="P")
    b = te.compute((64,), lambda i: p[i] * 2, name="B")
    c = te.compute((64,), lambda i: b[i] + 3, name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split("i", factor=16)
    s[b].compute_at(s[c], outer)
    s[b].double_buffer()
    with pytest.raises(UncoveredRead):
        s[p].compute_at(s[c], outer)
    check_schedule(s, [a, c])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("k, tile", [(16, 8), (7, 8), (9, 4), (5, 1)])
@pytest.mark.parametrize("stages", [(1, 2), (3, 2), (2, 4)])
def test_tiles_ahead_of_tiles_find_their_elements(k: int, tile: int, stages: tuple[int, int]) -> None:
    """What a pipelined stage reads of another tile belongs to it in the first iterations, too, which come early."""
    a, r = te.placeholder((8, k), name="A"), te.reduce_axis((0, k), "k")
    c = te.compute((8,), lambda i: te.sum(a[i, r], axis=r), name="C")
    s = te.create_schedule(c.op)
    outer = s.cache_read(a, "shared", [c])
    inner = s.cache_read(outer, "local", [c])
    k_o, k_i = s[c].split(r, tile)
    s[outer].compute_at(s[c], k_o)
    s[inner].compute_at(s[c], k_i)
    if stages[0] > 1:
        s[outer].pipeline(stages[0])
    s[inner].pipeline(stages[1])
    check_schedule(s, [a, c])


@pytest.mark.parametrize(("steps", "stages"), [(1, 4), (2, 5), (3, 4)])
def test_more_stages_than_steps_in_another_layout(steps: int, stages: int) -> None:
    """The digits of an index in the first iterations, which begin before the loop, are those of the tiles computed."""
    a, r = te.placeholder((8, 16 * steps), name="A"), te.reduce_axis((0, 16 * steps), "k")
    c = te.compute((8,), lambda i: te.sum(a[i, r], axis=r), name="C")
    s = te.create_schedule(c.op)
    copy = s.cache_read(a, "local", [c])
    outer, _ = s[c].split(r, 16)
    s[copy].transform_layout(lambda i, k: [k // 16, i, k % 16])
    s[copy].compute_at(s[c], outer)
    s[copy].pipeline(stages)
    check_schedule(s, [a, c])


def test_buffers_need_a_place() -> None:
    s, _, b, _ = blur()
    for how in ("rolling_buffer", "double_buffer"):
        with pytest.raises(BadArgument, match="needs a stage that is computed inside a loop") as caught:
            getattr(s[b], how)()
        assert caught.value.legal[0].startswith("s['B'].compute_at(s['C'], 'i'); s['B'].")


def test_folding_finds_the_smallest_window_and_refuses_a_smaller_one() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")

    @te.hybrid.script
    def smooth(a: Any, n: Any) -> Any:
        out = te.output_tensor((n,), "float32")
        t = te.allocate((n + 3,), "float32")
        for i in range(n):
            t[i] = a[i] * 2.0
            if i >= 3:
                out[i] = t[i] + t[i - 3]
        return out

    out = smooth(a, n)
    s = te.create_schedule(out.op)
    with pytest.raises(OverwrittenValue) as caught:
        s["smooth"].fold_storage("t", 0, 3)
    assert caught.value.witness is not None and caught.value.witness.element == "smooth.t[0]"
    assert s["smooth"].fold_storage("t", 0) == 4
    check_schedule(s, [a, out], sizes={"n": 19})


def test_folding_of_a_whole_stage_is_refused_when_its_reader_comes_late() -> None:
    s, _, b, _ = blur()
    with pytest.raises(OverwrittenValue, match="overwrites the memory of B"):
        s[b].fold_storage(b, 0, 4)
    with pytest.raises(BadArgument, match="belongs to the caller"):
        s["C"].fold_storage("C", 0, 4)
    with pytest.raises(BadArgument, match="makes no array 'D'"):
        s["C"].fold_storage("D", 0, 4)


@pytest.mark.parametrize("factor, offset, width", [(16, 0, 48), (16, 8, 40), (32, 1, 65), (1, 0, 40)])
def test_aligned_strides(factor: int, offset: int, width: int) -> None:
    s, args, b, _ = blur()
    s[b].storage_align(b.op.axis[0], factor, offset)
    assert note(s, "B").shape == ("34", str(width))
    check_schedule(s, args)


def test_alignment_that_no_padding_reaches() -> None:
    a = te.placeholder((4, 5, 6), name="A")
    b = te.compute((4, 5, 6), lambda i, j, k: a[i, j, k] + 1, name="B")
    c = te.compute((4, 5, 6), lambda i, j, k: b[i, j, k] + 1, name="C")
    s = te.create_schedule(c.op)
    with pytest.raises(BadArgument, match="no padding inside i gives a stride"):
        s[b].storage_align("i", 4, 1)
    with pytest.raises(BadArgument, match="C is an output"):
        s[c].storage_align("i", 4, 0)


@pytest.mark.parametrize("late", [False, True])
def test_tiles_ahead_need_a_loop_that_threads_do_not_share(late: bool) -> None:
    A = te.placeholder((12,), name="A")
    B = te.compute((12,), lambda i: A[i] * 2, name="B")
    C = te.compute((12,), lambda i: B[i] + 1, name="C")
    s = te.create_schedule(C.op)
    outer, inner = s[C].split("i", factor=4)
    s[C].bind(outer, "blockIdx.x")
    s[B].compute_at(s[C], inner)
    if late:
        s[B].pipeline(4)
    else:
        s[C].bind(inner, "threadIdx.x")
    with pytest.raises(BadArgument, match=r"i_i of C is bound to threadIdx\.x"):
        s[C].bind(inner, "threadIdx.x") if late else s[B].pipeline(4)


def test_a_refusal_tries_no_place_that_cannot_be_derived() -> None:
    X = te.placeholder((4, 7), name="X")
    M = te.compute((4, 7), lambda i, j: X[i, j] + 1, name="M")
    Y = te.compute((4, 7), lambda i, j: M[i, j] * 2 + X[i, j], name="Y")
    s = te.create_schedule(Y.op)
    outer, inner = s[Y].split("i", factor=2)
    s[Y].bind(outer, "blockIdx.x")
    copy = s.cache_read(X, "shared", [M, Y])
    s[M].compute_at(s[Y], inner)
    s[copy].compute_at(s[Y], inner)
    s[copy].pipeline(2)
    with pytest.raises(UncoveredRead) as caught:
        s[M].pipeline(2)
    assert "compute_root" in str(caught.value)


def smoothed(rows: int | te.Var = 32, step: int = 1) -> tuple[Schedule, list[te.Tensor]]:
    """Sums over three neighbours along both dimensions of what is itself a sum, zeros around."""
    a, w = te.placeholder((rows, 12, 5), name="A"), te.placeholder((5, 8), name="W")
    k = te.reduce_axis((0, 5), name="k")
    b = te.compute((rows, 12, 8), lambda i, j, c: te.sum(a[i, j, k] * w[k, c], axis=k), name="B")
    e = te.compute(b.shape, lambda i, j, c: te.maximum(b[i, j, c], te.const(0.25, "float32")), name="E")
    y, x = te.reduce_axis((0, 3), name="y"), te.reduce_axis((0, 3), name="x")

    def window(i: te.Expr, j: te.Expr, c: te.Expr) -> te.Expr:
        r, q = i * step + y - 1, j + x - 1
        inside = te.all(r >= 0, r < rows, q >= 0, q < 12)
        return te.sum(te.if_then_else(inside, e[r, q, c], te.const(0, "float32")), axis=[y, x])

    d = te.compute((rows // step, 12, 8), window, name="D")
    return te.create_schedule(d.op), [a, w, d]


def test_a_tile_ends_where_its_array_ends() -> None:
    s, args = smoothed()
    s["E"].compute_at(s["D"], "i")
    assert note(s, "E").shape[1:] == ("12", "8")  # the window reads from -1 to 12
    check_schedule(s, args)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("factor", [1, 2, 4, 5])
@pytest.mark.parametrize("axis", ["i", "j_o", "c"])
def test_what_is_computed_inside_a_rolling_buffer_is_computed_for_new_elements_only(
    step: int, factor: int, axis: str
) -> None:
    s, args = smoothed(30, step)
    band, _ = s["D"].split("i", factor)
    s["E"].compute_at(s["D"], band)
    s["E"].split("j", 5)
    s["B"].compute_at(s["E"], axis)
    s["E"].rolling_buffer()
    assert note(s, "B").recomputed == note(s, "E").recomputed == 1.0
    check_schedule(s, args)


def test_a_rolling_buffer_inside_another_keeps_what_old_rows_made() -> None:
    a = te.placeholder((20, 16), name="A")
    b = te.compute((20, 16), lambda i, j: a[i, j] * 2, name="B")
    e = te.compute((18, 16), lambda i, j: b[i, j] + b[i + 2, j], name="E")
    d = te.compute((16, 16), lambda i, j: e[i, j] + e[i + 2, j], name="D")
    s = te.create_schedule(d.op)
    band, _ = s["D"].split("i", 4)
    s["E"].compute_at(s["D"], band)
    s["E"].rolling_buffer()
    s["B"].compute_at(s["E"], "i")
    s["B"].rolling_buffer()
    check_schedule(s, [a, d])


def test_new_rows_of_a_size_that_is_not_known() -> None:
    n = te.size_var("n")
    s, args = smoothed(n)
    band, _ = s["D"].split("i", 4)
    s["E"].compute_at(s["D"], band)
    s["B"].compute_at(s["E"], "i")
    s["E"].rolling_buffer()
    for rows in (1, 3, 4, 9):
        check_schedule(s, args, sizes={"n": rows})


def test_what_a_rolling_buffer_reads_may_be_kept_further_out() -> None:
    """Which rows are new is told by a loop that is not around what is read."""
    s, args, b, c = blur(10, 12)
    kept = s.cache_read(args[0], "global", [b])
    s[c].split("i", factor=4)
    s[b].compute_at(s[c], "i_i")
    s[b].rolling_buffer()
    s[kept].compute_at(s[c], "i_o")
    check_schedule(s, args)


def test_reads_under_tests_of_data_follow_a_layout_as_they_are() -> None:
    """What stays inside of its array whatever is tested has an index that isl sees."""
    A = te.placeholder((8, 16), name="A")
    B = te.compute((8, 16), lambda i, j: A[i, j] * 2, name="B")
    C = te.compute((8, 16), lambda i, j: te.select(A[i, j] > 0.0, B[i, j], 0.0), name="C")
    s = te.create_schedule(C.op)
    s[B].transform_layout(lambda i, j: [j // 4, i, j % 4])
    s[B].compute_at(s[C], "i")
    assert "B[j // 4, i, j % 4]" in str(s["C"].op) and note(s, "B").shape == ("4", "1", "4")
