"""Pragmas: the code that they ask for, the same results, and refusals that say what there is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorlang import build, lower, te, tir
from tensorlang.errors import BadArgument, UnknownPragma
from tensorlang.ir.stmt import Launch, walk
from tensorlang.schedule import Schedule
from tensorlang.schedule.trace import Trace
from tensorlang.testing.check import check_schedule


def blocks(extent: Any = 10) -> tuple[Schedule, list[te.Tensor], te.Tensor]:
    a = te.placeholder((extent, 4, 3), name="A")
    b = te.compute((extent, 4, 3), lambda i, j, k: a[i, j, k] + 1, name="B")
    return te.create_schedule(b.op), [a, b], b


@pytest.mark.parametrize(("most", "copies"), [(0, 1), (2, 1), (3, 3), (11, 3), (12, 12), (119, 12), (120, 120)])
def test_loops_are_copied_up_to_a_number_of_stores(most: int, copies: int) -> None:
    s, args, b = blocks()
    s[b].pragma("i", "auto_unroll_max_step", most)
    text = str(lower(s, args))
    assert text.count("] = A[") == copies
    check_schedule(s, args)


def test_a_pragma_holds_at_and_below_its_axis() -> None:
    s, args, b = blocks()
    s[b].pragma("k", "auto_unroll_max_step", 12)
    assert "for j in range(4):" in str(lower(s, args))
    s, args, b = blocks()
    s[b].pragma("i", "auto_unroll_max_step", 120)
    s[b].pragma("j", "auto_unroll_max_step", 3)
    assert "for j in range(4):" in str(lower(s, args))


def test_a_loop_of_any_extent_is_not_copied() -> None:
    s, args, b = blocks(te.var("n"))
    s[b].pragma("i", "auto_unroll_max_step", 1000)
    assert "for i in range(n):" in str(lower(s, args))
    for size in (0, 5):
        check_schedule(s, args, sizes={"n": size})


def test_vectors_inside_are_copied_as_they_are() -> None:
    s, args, b = blocks()
    s[b].vectorize("k")
    s[b].pragma("j", "auto_unroll_max_step", 4)
    assert str(lower(s, args)).count("vectorized k in range(3)") == 4
    check_schedule(s, args)


def test_copying_can_be_left_to_llvm() -> None:
    s, args, b = blocks()
    s[b].unroll("j")
    s[b].pragma("i", "auto_unroll_max_step", 3)
    s[b].pragma("i", "unroll_explicit", False)
    assert str(lower(s, args)).count("] = A[") == 1
    assert build(s, args).source("ll").count("llvm.loop.unroll.full") == 2
    check_schedule(s, args)
    s[b].pragma("i", "unroll_explicit", True)
    assert str(lower(s, args)).count("] = A[") == 12


def test_threads_take_turns() -> None:
    @te.hybrid.script
    def triangle(a: Any, n: Any) -> Any:
        out = output_tensor((n,), "float32")  # type: ignore[name-defined]  # noqa: F821
        for i in range(n):
            out[i] = 0.0
            for j in range(i):
                out[i] += a[i, j]
        return out

    n = te.var("n")
    a = te.placeholder((n, n), name="A")
    t = triangle(a, n)
    s = te.create_schedule(t.op)
    with pytest.raises(BadArgument, match="i is serial") as caught:
        s[t].pragma("i", "parallel_stride_pattern")
    assert caught.value.legal == ("s['triangle'].parallel('i'); s['triangle'].pragma('i', 'parallel_stride_pattern')",)
    s[t].parallel("i")
    s[t].pragma("i", "parallel_stride_pattern")
    s[t].pragma("i", "parallel_barrier_when_finish")
    for cores in (1, 2):
        kernel = build(s, [a, t], target=f"llvm -num-cores={cores}")
        for size in (0, 1, 2, 37):
            values = np.random.default_rng(size).integers(-3, 3, (size, size)).astype(np.float32)
            found = np.full(size, 99, np.float32)
            kernel(values, found)
            np.testing.assert_array_equal(found, np.tril(values, -1).sum(axis=1))


def test_sums_in_a_script_are_made_of_vectors() -> None:
    def sums(a):  # type: ignore[no-untyped-def]
        total = te.output_tensor((1,), "int32")
        scaled = te.output_tensor((1,), "float32")
        doubled = te.output_tensor((100,), "int32")
        total[0] = 0
        scaled[0] = te.cast(0, "float32")
        for i in range(100):
            total[0] = total[0] + a[i]
        for j in range(100):
            scaled[0] = scaled[0] + te.cast(a[j], "float32")
        for k in range(100):
            doubled[k] = a[k] * 2
        return total, scaled, doubled

    a = te.placeholder((100,), "int32", name="a")
    outputs = te.hybrid.script(name="sums")(sums)(a)
    strict = te.create_schedule(outputs[0].op, strict=True)
    strict["sums"].pragma("i", "reduce_tree")
    with pytest.raises(BadArgument, match="changes the order of floating-point updates of sums"):
        strict["sums"].pragma("j", "reduce_tree")
    s = te.create_schedule(outputs[0].op)
    with pytest.raises(BadArgument, match="reduce_tree needs a sum, and loop k of sums has none"):
        s["sums"].pragma("k", "reduce_tree")
    s["sums"].pragma("i", "reduce_tree")
    s["sums"].pragma("j", "reduce_tree")
    kernel, values = build(s, [a, *outputs]), np.arange(100, dtype=np.int32) - 37
    found, product, twice = np.zeros(1, np.int32), np.zeros(1, np.float32), np.zeros(100, np.int32)
    kernel(values, found, product, twice)
    assert (found[0], product[0], twice[9]) == (values.sum(), values.sum(), 2 * values[9])
    assert kernel.source("ll").count("load <") > 2


def test_full_tiles_apart() -> None:
    s, args, b = blocks(te.var("n"))
    i_o, _ = s[b].split("i", factor=4)
    s[b].pragma(i_o, "loop_partition_hint")
    peeled, _, _ = blocks(te.var("n"))
    peeled["B"].split("i", factor=4, tail="peel")
    assert str(lower(s, args)) == str(lower(peeled, args))
    with pytest.raises(BadArgument, match="no tile of B that a guard may cut starts at j") as caught:
        s[b].pragma("j", "loop_partition_hint")
    assert caught.value.legal == ("s['B'].pragma('i_o', 'loop_partition_hint')",)
    for size in (0, 3, 9):
        check_schedule(s, args, sizes={"n": size})


HALF = """
define void @half_row(ptr %a, ptr %b) {
  br label %loop
loop:
  %i = phi i64 [0, %0], [%next, %loop]
  %from = getelementptr float, ptr %a, i64 %i
  %x = load float, ptr %from
  %y = fmul float %x, 5.0e-01
  %to = getelementptr float, ptr %b, i64 %i
  store float %y, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, 16
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def test_functions_given_as_llvm_ir() -> None:
    x = te.placeholder((16,), name="x")
    y = te.compute((16,), lambda i: x[i] * 0.5, name="y")

    def calls(ins: Any, outs: Any) -> Any:
        return tir.call_extern("int32", "half_row", ins[0].access_ptr("r"), outs[0].access_ptr("w"))

    intrin = te.decl_tensor_intrin(y.op, calls, "half_row")
    a = te.placeholder((8, 16), name="A")
    b = te.compute((8, 16), lambda i, j: a[i, j] * 0.5, name="B")
    s = te.create_schedule(b.op)
    s[b].pragma("i", "import_llvm", HALF)
    s[b].tensorize("j", intrin)
    assert "define void @half_row" in str(lower(s, [a, b]))
    check_schedule(s, [a, b])


def test_refusals() -> None:
    s, _, b = blocks()
    cases: list[tuple[str, Any, str]] = [
        ("parallel_launch_point", None, "threads are launched at the parallel loop itself"),
        ("import_c", "int f() {}", r"compile the file with `clang -S -emit-llvm`"),
        ("debug_skip_region", None, "a kernel always runs all of its program"),
        ("auto_unroll_max_step", -1, "takes a number of stores, 0 or more; got -1"),
        ("auto_unroll_max_step", None, "takes a number of stores, 0 or more; got None"),
        ("unroll_explicit", "no", "takes True or False, got 'no'"),
        ("import_llvm", None, "takes LLVM IR text that defines functions, got nothing"),
        ("import_llvm", "half.ll", "takes LLVM IR text that defines functions, got 'half.ll'"),
    ]
    for word, value, why in cases:
        with pytest.raises(BadArgument, match=why):
            s[b].pragma("i", word, value)
    with pytest.raises(BadArgument, match="no axis 'x' in B"):
        s[b].pragma("x", "unroll_explicit", True)


def test_an_unknown_one_is_kept_with_a_warning() -> None:
    s, args, b = blocks()
    before = str(lower(s, args))
    with pytest.warns(UnknownPragma, match=r"'auto_unrol' is kept .*; there are .*did you mean auto_unroll_max_step"):
        s[b].pragma("i", "auto_unrol", 4)
    assert str(s).endswith("s['B'].pragma('i', 'auto_unrol', 4)\n") and str(lower(s, args)) == before
    again = te.create_schedule(b.op)
    again.replay(s.trace)
    assert again.trace == s.trace


def test_an_axis_is_transformed_first() -> None:
    s, _, b = blocks()
    s[b].pragma("i", "unroll_explicit", True)
    with pytest.raises(BadArgument, match="axis i of B has a unroll_explicit; transform the axis before"):
        s[b].split("i", factor=4)


def test_it_replays() -> None:
    s, args, b = blocks()
    s[b].pragma("i", "auto_unroll_max_step", 12)
    s[b].pragma("i", "unroll_explicit", False)
    again = blocks()[0]
    Trace.from_json(s.trace.to_json()).apply(again)
    assert str(lower(again, args)) == str(lower(s, args))
    assert s.trace.to_python().splitlines() == [
        "s['B'].pragma('i', 'auto_unroll_max_step', 12)",
        "s['B'].pragma('i', 'unroll_explicit', 0)",
    ]


def test_blocks_of_a_gpu_share_a_core() -> None:
    s, args, b = blocks()
    with pytest.raises(BadArgument, match="i of B is not bound to blockIdx") as caught:
        s[b].pragma("i", "blocks_per_core", 4)
    assert caught.value.legal == ("s['B'].bind('i', 'blockIdx.x'); s['B'].pragma('i', 'blocks_per_core', 4)",)
    s[b].bind("i", "blockIdx.x")
    s[b].bind("j", "threadIdx.x")
    with pytest.raises(BadArgument, match="takes a number of blocks, 1 or more; got 0"):
        s[b].pragma("i", "blocks_per_core", 0)
    s[b].pragma("i", "blocks_per_core", 4)
    (launch,) = (x for x in walk(lower(s, args, target="cuda").kernel.body) if isinstance(x, Launch))
    assert launch.kernel.blocks_per_core == 4
    check_schedule(s, args, targets=["interpreter"])


def test_a_loop_of_one_iteration_hands_its_wish_on() -> None:
    s, args, b = blocks()
    once, _ = s[b].split("i", nparts=1)
    s[b].pragma(once, "auto_unroll_max_step", 12)
    text = str(lower(s, args))
    assert "in range(1)" not in text and text.count("] = A[") == 12
    check_schedule(s, args)
    s[b].pragma("i_i", "auto_unroll_max_step", 3)
    assert str(lower(s, args)).count("] = A[") == 3
