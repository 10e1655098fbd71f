"""Schedules of scans and recurrences: their own axes by name, what is legal in them, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang as tvm
from tensorlang import te
from tensorlang.errors import BadArgument, IllegalOrder, IllegalParallel, TargetError
from tensorlang.schedule import Schedule, Trace
from tensorlang.testing import check_schedule
from tests.te.test_recurrence import prefix
from tests.te.test_scan import cumulated


def replayed(s: Schedule, result: Any) -> None:
    """The trace makes the same schedule again, from JSON and from Python text."""
    again = te.create_schedule(result.op)
    again.replay(Trace.from_json(s.trace.to_json()))
    assert (again.program.text, str(again)) == (s.program.text, str(s))
    written = te.create_schedule(result.op)
    exec(str(s), {"s": written})
    assert written.trace == s.trace


def test_classic_schedule_of_a_sum_over_time() -> None:
    """The scan tutorial of classic te, with threads of a CPU instead of a GPU."""
    m, n = te.var("m"), te.var("n")
    X, init, update, result = cumulated(m, n)
    s = te.create_schedule(result.op)
    xo, xi = s[init].split(init.op.axis[1], factor=4)
    s[init].parallel(xo)
    xo, xi = s[update].split(update.op.axis[1], factor=4)
    s[update].parallel(xo)
    s[update].vectorize(xi)
    assert str(s).splitlines() == [
        "s['sums'].split('i_1', factor=4)",
        "s['sums'].parallel('i_1_o')",
        "s['sums'].split('i', factor=4)",
        "s['sums'].parallel('i_o')",
        "s['sums'].vectorize('i_i')",
    ]
    check_schedule(s, [X, result], sizes={"m": 6, "n": 11})
    replayed(s, result)


def test_axes_of_a_stage_inside_a_scan_go_by_its_own_names() -> None:
    _, init, update, result = cumulated(te.var("m"), 9)
    s = te.create_schedule(result.op)
    assert [str(a) for a in s[init].leaf_iter_vars] == ["_", "i_1"]
    assert [str(a) for a in s[update].leaf_iter_vars] == ["t", "i"]
    assert [str(a) for a in s[result].leaf_iter_vars] == ["_", "i_1", "t", "i"]
    assert [str(a) for a in s["init"].split("i", factor=3)] == ["i_1_o", "i_1_i"]
    assert [str(a) for a in s[result].split(update.op.axis[1], nparts=2)] == ["i_o", "i_i"]
    assert s[update].op is update.op and s[result].op.name == "sums"
    with pytest.raises(BadArgument, match="axis i_1 of sums was already transformed"):
        s[init].parallel("i")
    with pytest.raises(BadArgument, match="no stage 'unit'"):
        s["unit"]


def test_tiles_of_a_stage_inside_a_scan() -> None:
    state, X = te.placeholder((5, 12, 10), name="state"), te.placeholder((5, 12, 10), name="X")
    init = te.compute((1, 12, 10), lambda t, i, j: X[t, i, j], name="init")
    update = te.compute((5, 12, 10), lambda t, i, j: state[t - 1, i, j] * X[t, i, j], name="update")
    result = te.scan(init, update, state)
    s = te.create_schedule(result.op)
    s[init].fuse(init.op.axis[1], init.op.axis[2])
    io, _, _, ji = s[update].tile(update.op.axis[1], update.op.axis[2], x_factor=4, y_factor=5)
    s[update].parallel(io)
    s[update].unroll(ji)
    check_schedule(s, [X, result])
    replayed(s, result)


def test_parallel_over_time_is_refused_with_a_witness() -> None:
    _, _, update, result = cumulated(te.var("m"), te.var("n"))
    s = te.create_schedule(result.op)
    with pytest.raises(IllegalParallel) as refused:
        s[update].parallel(result.op.scan_axis)
    assert refused.value.witness is not None
    assert refused.value.witness.element == "sums[1, 0]"
    assert refused.value.witness.distance == (1, 0)
    assert "s['sums'].parallel('i')" in refused.value.legal
    with pytest.raises(IllegalOrder):
        s[result].reverse(result.op.scan_axis)


def test_time_inside_space_is_legal_where_columns_are_independent() -> None:
    X, _, update, result = cumulated(te.var("m"), te.var("n"))
    s = te.create_schedule(result.op)
    s[update].reorder(update.op.axis[1], update.op.axis[0])
    s[update].parallel(update.op.axis[1])
    check_schedule(s, [X, result], sizes={"m": 7, "n": 5})


def gates() -> dict[str, Any]:
    """A recurrent network of a matrix product, two gates and a state, as classic te writes them."""
    T, H = te.var("T"), 8
    X, W = te.placeholder((T, 2, H), name="X"), te.placeholder((2, H, H), name="W")
    state = te.placeholder((T, H), name="state")
    k = te.reduce_axis((0, H), "k")
    init = te.compute((1, H), lambda t, i: 0.0, name="init")
    product = te.compute((T, 2, H), lambda t, g, i: te.sum(W[g, i, k] * state[t - 1, k], axis=k), name="product")
    both = te.compute((T, 2, H), lambda t, g, i: X[t, g, i] + product[t, g, i], name="both")
    keep = te.compute((T, H), lambda t, i: te.sigmoid(both[t, 0, i]), name="keep")
    update = te.compute(
        (T, H), lambda t, i: keep[t, i] * state[t - 1, i] + te.tanh(both[t, 1, i]) * (1 - keep[t, i]), name="update"
    )
    result = te.scan(init, update, state, inputs=[X], name="rnn")
    return {"X": X, "W": W, "product": product, "both": both, "keep": keep, "update": update, "result": result}


def test_stages_of_a_time_step_are_scheduled_one_by_one() -> None:
    p = gates()
    product, both, keep, update = (p[name] for name in ("product", "both", "keep", "update"))
    s = te.create_schedule(p["result"].op)
    io, ii = s[product].split(product.op.axis[2], factor=4)
    s[product].parallel(io)
    s[product].split(product.op.reduce_axis[0], factor=2)
    assert [str(a) for a in s[product].leaf_iter_vars] == ["t", "g", "i_o", "i_i", "k_o", "k_i"]
    s[both].fuse(both.op.axis[1], both.op.axis[2])
    s[keep].vectorize(keep.op.axis[1])
    s[update].vectorize("i")
    assert str(ii) == "i_i"
    check_schedule(s, [p["X"], p["W"], p["result"]], sizes={"T": 5})
    replayed(s, p["result"])
    with pytest.raises(IllegalParallel, match="iterations of t would run at the same time"):
        s[product].parallel(product.op.axis[0])


def test_a_stage_inside_a_scan_is_inlined_there() -> None:
    p = gates()
    s = te.create_schedule(p["result"].op)
    args = [p["X"], p["W"], p["result"]]
    s[p["update"]].split(p["update"].op.axis[1], factor=3)
    s[p["both"]].compute_inline()
    s[p["keep"]].compute_inline()
    text = str(tvm.lower(s, args))
    assert text.count("allocate") == 1 and "rnn.both" not in text and "rnn.keep" not in text
    check_schedule(s, args, sizes={"T": 5})
    replayed(s, p["result"])
    s[p["update"]].parallel("i_3_o")
    check_schedule(s, args, sizes={"T": 4})


def test_an_array_of_a_time_step_in_another_memory() -> None:
    p = gates()
    s = te.create_schedule(p["result"].op)
    s[p["product"]].set_scope("local")
    assert "allocate rnn.product: float32[2, 8] in local" in str(tvm.lower(s, [p["X"], p["W"], p["result"]]))
    check_schedule(s, [p["X"], p["W"], p["result"]], sizes={"T": 4})
    replayed(s, p["result"])
    _, _, update, result = cumulated(6, 8)
    B = te.compute((6, 8), lambda t, i: result[t, i] * 2, name="B")
    s = te.create_schedule(B.op)
    s[B].fuse_with("t", "t", stage=s[result])
    with pytest.raises(BadArgument, match="update computes a state, which must be stored in full"):
        s[update].set_scope("local")
    with pytest.raises(BadArgument, match="update computes a state, which must be stored in full"):
        s[update].compute_inline()


@pytest.mark.parametrize(
    ("stage", "text"),
    [
        ("update", "rnn is a scan, whose statements run in order"),
        ("product", "product is a reduction and must be stored"),
        ("result", "rnn is a scan, whose statements run in order"),
    ],
)
def test_what_cannot_be_inlined_in_a_scan(stage: str, text: str) -> None:
    p = gates()
    s = te.create_schedule(p["result"].op)
    with pytest.raises(BadArgument, match=text):
        s[p[stage]].compute_inline()
    assert str(s) == ""


def test_a_stage_read_at_data_dependent_elements_is_not_inlined() -> None:
    where = te.placeholder((6, 4), "int32", name="where")
    state = te.placeholder((6, 4), name="state")
    init = te.compute((1, 4), lambda t, i: 1.0, name="init")
    double = te.compute((6, 4), lambda t, i: state[t - 1, i] * 2, name="double")
    update = te.compute((6, 4), lambda t, i: double[t, where[t, i]] + 1, name="update")
    result = te.scan(init, update, state)
    s = te.create_schedule(result.op)
    with pytest.raises(BadArgument, match=r"is read at an index that is not affine: double must be stored"):
        s[double].compute_inline()
    data = np.random.default_rng(0).integers(0, 4, (6, 4)).astype("int32")
    check_schedule(s, [where, result], inputs={"where": data})


def test_inlining_what_is_kept_over_time() -> None:
    X, state = te.placeholder((8,), "int32", name="X"), te.placeholder((8,), "int32", name="state")
    init = te.compute((1,), lambda t: X[0], name="init")
    double = te.compute((8,), lambda t: state[t - 1] * 2, name="double")
    update = te.compute((8,), lambda t: X[t] + te.if_then_else(t > 1, double[t - 1], 0), name="update")
    result = te.scan(init, update, state)
    s = te.create_schedule(result.op)
    s[double].compute_inline()
    assert "allocate" not in s.program.text
    check_schedule(s, [X, result])


def test_a_producer_outside_is_computed_in_the_time_loop() -> None:
    X, state = te.placeholder((6, 5), name="X"), te.placeholder((6, 5), name="state")
    squares = te.compute((6, 5), lambda t, i: X[t, i] * X[t, i], name="squares")
    init = te.compute((1, 5), lambda t, i: X[t, i], name="init")
    update = te.compute((6, 5), lambda time, i: state[time - 1, i] + squares[time, i], name="update")
    result = te.scan(init, update, state)
    s = te.create_schedule(result.op)
    s[squares].compute_at(s[update], update.op.axis[0])
    check_schedule(s, [X, result])
    assert str(s) == "s['squares'].compute_at(s['scan'], 'time')\n"


def test_threads_are_launched_around_a_scan() -> None:
    X, init, update, result = cumulated(te.var("m"), te.var("n"))
    s = te.create_schedule(result.op)
    block, thread = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")
    s[result].env_threads([block, thread])
    for stage in (init, update):
        outer, inner = s[stage].split(stage.op.axis[1], factor=8)
        s[stage].bind(outer, block)
        s[stage].bind(inner, thread)
    check_schedule(s, [X, result], sizes={"m": 5, "n": 19}, targets=["interpreter"])
    replayed(s, result)
    with pytest.raises(TargetError, match=r"is bound to blockIdx.x; target llvm has no such threads. Use parallel"):
        tvm.build(s, [X, result])


def test_threads_launched_once_have_one_number() -> None:
    _, init, update, result = cumulated(te.var("m"), te.var("n"))
    s = te.create_schedule(result.op)
    thread = te.thread_axis("threadIdx.x")
    s[update].bind(s[update].split(update.op.axis[1], factor=8)[1], thread)
    inner = s[init].split(init.op.axis[1], factor=4)[1]
    s[init].bind(inner, thread)  # launched for each loop on its own
    with pytest.raises(BadArgument, match=r"i_1_i runs on 4 threads, and i_i would run on 8|on 8 threads, .* on 4"):
        s[result].env_threads(thread)


@pytest.mark.parametrize(
    ("threads", "text"),
    [
        (["threadIdx.w"], "unknown thread axis 'threadIdx.w'"),
        (["threadIdx.x", "threadIdx.x"], "threadIdx.x is launched around sums already"),
    ],
)
def test_wrong_threads(threads: list[str], text: str) -> None:
    s = te.create_schedule(cumulated(4, 4)[-1].op)
    with pytest.raises(BadArgument, match=text):
        s["sums"].env_threads(threads)


def test_env_threads_needs_a_scan() -> None:
    A, P = prefix(8)
    B = te.compute((8,), lambda i: P[i] + A[i], name="B")
    s = te.create_schedule(B.op)
    for stage in (P, B):
        with pytest.raises(BadArgument, match=r"env_threads is for scans, and .* is none; bind its axes"):
            s[stage].env_threads(["threadIdx.x"])


def test_one_thread_axis_twice_around_a_statement() -> None:
    _, _, update, result = cumulated(8, 8)
    s = te.create_schedule(result.op)
    outer, inner = s[update].split(update.op.axis[1], factor=4)
    s[update].bind(inner, "threadIdx.x")
    with pytest.raises(BadArgument, match=r"threadIdx.x is bound to axis i_i of sums already"):
        s[update].bind(outer, "threadIdx.x")


def test_stages_of_a_time_step_share_a_loop() -> None:
    p = gates()
    s = te.create_schedule(p["result"].op)
    keep, update = p["keep"], p["update"]
    s[update].fuse_with(keep.op.axis[1], update.op.axis[1], stage=s[keep])
    assert [str(a) for a in s[keep].leaf_iter_vars] == [str(a) for a in s[update].leaf_iter_vars]
    check_schedule(s, [p["X"], p["W"], p["result"]], sizes={"T": 4})


def test_a_scan_joined_with_its_consumer_keeps_its_stages() -> None:
    X, _, update, result = cumulated(6, 8)
    B = te.compute((6, 8), lambda t, i: result[t, i] * 2, name="B")
    s = te.create_schedule(B.op)
    s["sums"].reorder("i", "t")
    s["B"].reorder("i", "t")
    s["B"].fuse_with("i", "i", stage=s["sums"])
    assert len(s.program.ops) == 2
    assert len(s[update].leaf_iter_vars) == 2
    s[update].split(update.op.axis[0], factor=2)
    check_schedule(s, [X, B])


def two_stages() -> tuple[Any, Any, Any, Any]:
    """X, the two stages of a time step, and the result: the example of classic te's tutorial of scans."""
    m, n = te.var("m"), te.var("n")
    X, state = te.placeholder((m, n), name="X"), te.placeholder((m, n), name="state")
    init = te.compute((1, n), lambda _, i: X[0, i], name="init")
    double = te.compute((m, n), lambda t, i: state[t - 1, i] * 2, name="double")
    update = te.compute((m, n), lambda t, i: double[t, i] + X[t, i], name="update")
    return X, double, update, te.scan(init, update, state, inputs=[X], name="net")


def test_a_stage_of_a_time_step_is_computed_in_a_loop_of_its_consumer() -> None:
    X, double, update, result = two_stages()
    s = te.create_schedule(result.op)
    xo, xi = s[update].split(update.op.axis[1], factor=4)
    s[double].compute_at(s[update], xo)
    assert str(s).splitlines() == [
        "s['net'].split('i_1', factor=4)",
        "s['net'].split('i', factor=4)",
        "s['net'].fuse_with('i_o', 'i_1_o')",
    ]
    assert [str(a) for a in s[double].leaf_iter_vars] == ["t", "i_o_fused", "i_i"]
    s[update].vectorize(xi)
    s[update].parallel("i_o_fused")
    check_schedule(s, [X, result], sizes={"m": 5, "n": 11})
    replayed(s, result)


def test_a_reduction_of_a_time_step_is_computed_in_a_reordered_loop_of_its_consumer() -> None:
    p = gates()
    product, both = p["product"], p["both"]
    s = te.create_schedule(p["result"].op)
    io, _ = s[both].split(both.op.axis[2], nparts=2)
    s[both].reorder(io, both.op.axis[1])
    s[product].compute_at(s[both], io)
    assert [str(a) for a in s[product].leaf_iter_vars] == ["t", "i_o_fused", "g", "i_i", "k"]
    check_schedule(s, [p["X"], p["W"], p["result"]], sizes={"T": 4})


def test_a_stage_of_a_time_step_at_the_time_loop_is_there_already() -> None:
    _, double, update, result = two_stages()
    s = te.create_schedule(result.op)
    s[double].compute_at(s[update], update.op.axis[0])
    assert str(s) == ""


def test_a_stage_of_a_time_step_where_its_consumer_needs_other_elements() -> None:
    """A sum needs the whole of what it adds up; and a loop of another stage is none of the consumer."""
    p = gates()
    update, product, both = p["update"], p["product"], p["both"]
    state = te.placeholder((6, 4), name="state")
    k = te.reduce_axis((0, 4), "k")
    init = te.compute((1, 4), lambda t, i: 1.0, name="init")
    double = te.compute((6, 4), lambda t, i: state[t - 1, i] * 2, name="double")
    total = te.compute((6, 4), lambda t, i: te.sum(double[t, k], axis=k), name="total")
    result = te.scan(init, total, state)
    s = te.create_schedule(result.op)
    with pytest.raises(BadArgument, match="loop i_1 of total does not run over elements of double one by one"):
        s[double].compute_at(s[total], total.op.axis[1])
    s = te.create_schedule(p["result"].op)
    with pytest.raises(BadArgument, match="no loop of update"):
        s[product].compute_at(s[update], both.op.axis[1])
    with pytest.raises(IllegalOrder, match=r"s\['rnn.both'\].compute_at|fuse_with"):  # before `keep`, which it needs
        s[both].compute_at(s[update], update.op.axis[1])
    assert str(s) == ""


def test_sums_over_rows_of_a_matrix_make_vectors() -> None:
    """A state times a matrix in each step: rows of the matrix are added to all results, some at a time."""
    steps, n = 5, 37
    state, w = te.placeholder((steps, n), name="state"), te.placeholder((n, n), name="w")
    first = te.compute((1, n), lambda _, j: te.const(1.0), name="first")
    k = te.reduce_axis((0, n), "k")
    product = te.compute((steps, n), lambda t, j: te.sum(state[t - 1, k] * w[k, j], axis=k), name="product")
    update = te.compute((steps, n), lambda t, j: te.tanh(product[t, j]), name="update")
    result = te.scan(first, update, state, name="states")
    s = tvm.topi.schedule(result, "llvm -num-cores=1", tuned=False)
    text = s.trace.to_python()
    assert ".fission('j'" in text and "factor=4, tail='peel'" in text and ".unroll(" in text
    matrix = np.random.default_rng(0).normal(0, 0.3, (n, n)).astype(np.float32)
    wanted, made = np.ones((steps, n)), np.zeros((steps, n), np.float32)
    for t in range(1, steps):
        wanted[t] = np.tanh(wanted[t - 1] @ matrix)
    tvm.build(s, [w, result], "llvm -num-cores=1")(matrix, made)
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)


def recurrent() -> tuple[Any, Any, Any, Any]:
    """Rows times a matrix, step by step, whose sums may be made in parts of four."""
    X, W = te.placeholder((6, 8), name="X"), te.placeholder((8, 8), name="W")
    state, k = te.placeholder((6, 8), name="state"), te.reduce_axis((0, 8), "k")
    init = te.compute((1, 8), lambda _, i: X[0, i], name="init")
    update = te.compute((6, 8), lambda t, i: te.sum(state[t - 1, k] * W[i, k], axis=k), name="update")
    return X, W, state, te.scan(init, update, state, inputs=[X], name="rnn")


def test_copies_and_parts_inside_a_scan_are_declared_there() -> None:
    X, W, state, result = recurrent()
    s = te.create_schedule(result.op)
    with pytest.raises(BadArgument, match=r"rnn is a scan, .* as a te.compute inside the scan"):
        s.cache_write("rnn", "local")
    with pytest.raises(BadArgument, match=r"rnn is a scan, .* as a te.compute inside the scan"):
        s.rfactor("rnn", "k")
    with pytest.raises(BadArgument, match="the state of a scan is read where it lies: declare its copy"):
        s.cache_read(state, "local", ["rnn"])
    with pytest.raises(BadArgument, match="must be a whole number, got n; places of loops are proven where"):
        s["rnn"].split("i", factor=te.var("n"))  # type: ignore[arg-type]
    k, part = te.reduce_axis((0, 4), "k"), te.reduce_axis((0, 2), "part")
    copy = te.compute((6, 8), lambda t, i: state[t - 1, i], name="copy")
    parts = te.compute((6, 8, 2), lambda t, i, p: te.sum(copy[t, p * 4 + k] * W[i, p * 4 + k], axis=k), name="parts")
    update = te.compute((6, 8), lambda t, i: te.sum(parts[t, i, part], axis=part), name="update")
    init = te.compute((1, 8), lambda _, i: X[0, i], name="init")
    made = te.scan(init, update, state, inputs=[X], name="rnn")
    s = te.create_schedule(made.op)
    s[copy].vectorize(copy.op.axis[1])
    s[parts].vectorize(parts.op.axis[2])
    s[parts].parallel(parts.op.axis[1])
    check_schedule(s, [X, W, made])
