"""What users hold: Schedule and Stage, in the words of classic te."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorlang import lower, te
from tensorlang.errors import BadArgument, DefinitionError
from tensorlang.ir.expr import Var, as_expr, same
from tensorlang.schedule.primitive import Decision
from tensorlang.testing import check_schedule
from tests.programs import argmax, chain, matmul, two_consumers

n = te.var("n")


def test_stages() -> None:
    s, (A, C) = chain()
    assert [stage.name for stage in s.stages] == ["A", "B", "C"]
    assert [stage.op.name for stage in s.stages] == ["A", "B", "C"]
    assert s.outputs == [s["C"].op] and s["A"].leaf_iter_vars == []
    assert repr(s["C"]) == "Stage(C: i)" and repr(s) == "Schedule(C: 0 steps)" and str(s) == ""
    assert s[A].name == "A" and s[C].name == s[C.op].name == s["C"].name == s[s[C]].name == "C"
    assert s.normalize() is s


def test_axes_are_live() -> None:
    s = matmul().s
    C = s["C"]
    i_o, i_i = C.split(C.op.axis[0], factor=4)
    assert [str(a) for a in C.leaf_iter_vars] == ["i_o", "i_i", "j", "k"]
    assert [str(a) for a in C.all_iter_vars] == ["i", "j", "k", "i_o", "i_i"]
    assert [str(a.dom.extent) for a in (i_o, i_i)] == ["2", "4"]
    assert [a.kind.value for a in C.leaf_iter_vars] == ["spatial", "spatial", "spatial", "reduce"]
    C.reorder("k", i_i)
    assert [str(a) for a in C.leaf_iter_vars] == ["i_o", "k", "j", "i_i"]
    fused = C.fuse(*C.leaf_iter_vars[2:])
    assert str(fused) == "j_i_i_fused" and str(fused.extent) == "28"
    assert repr(s) == "Schedule(C: 3 steps)"


def test_axes_by_name_by_axis_and_in_lists() -> None:
    by_name, by_axis, by_list = matmul().s, matmul().s, matmul().s
    by_name["C"].reorder("k", "i")
    i, j = by_axis["C"].op.axis
    (k,) = by_axis["C"].op.reduce_axis
    by_axis["C"].reorder(k, i)
    by_list["C"].reorder([*by_list["C"].op.reduce_axis, by_list["C"].op.axis[0]])  # type: ignore[arg-type]
    assert by_name.trace == by_axis.trace == by_list.trace
    assert by_name["C"].fuse("j", "i").name == by_axis["C"].fuse([j, i]).name  # type: ignore[arg-type]


def test_names_never_clash() -> None:
    A = te.placeholder((64,), name="A")
    B = te.compute((64, 8), lambda i, i_o: A[i] + A[i_o], name="B")
    s = te.create_schedule(B.op)
    assert [str(a) for a in s[B].split("i", factor=4)] == ["i_o_1", "i_i"]
    assert [str(a) for a in s[B].split("i_o", factor=4)] == ["i_o_o", "i_o_i"]
    first, second = s.cache_read(A, "local", [B]), s.cache_read("A.local", "local", [B])
    assert (first.name, second.name) == ("A.local", "A.local.local")


def test_whole_numbers_of_any_kind() -> None:
    plain, numpy, literal = matmul().s, matmul().s, matmul().s
    plain["C"].split("i", factor=2)
    numpy["C"].split("i", factor=np.int64(2))  # type: ignore[arg-type]
    literal["C"].split("i", factor=te.const(2))  # type: ignore[arg-type]
    assert plain.trace == numpy.trace == literal.trace
    assert plain.trace.to_json() == numpy.trace.to_json()


def test_decisions_are_numbers() -> None:
    s = matmul().s
    f = s.sample_choice("f", [2, 4], 4)
    assert isinstance(f, int) and f == 4 and f + 1 == 5 and isinstance(f, Decision) and f.name == "f"


def test_decisions_stand_for_themselves_in_expressions() -> None:
    i, f = Var("i", "int64"), Decision("f", 4)
    assert same(as_expr(f), Var("@f")) and same(as_expr(f, "int64"), Var("@f"))
    assert [str(e) for e in (i // f, f * i, i + int(f))] == ["i // int64(@f)", "int64(@f) * i", "i + 4"]


def test_caches_return_tensors() -> None:
    s, (A, _, C) = matmul()
    T = s.cache_write(C, "local")
    P = s.cache_read(A, "shared", [T])
    assert isinstance(T, te.Tensor) and (T.name, P.name) == ("C.local", "A.shared")
    assert (s[T].scope, s[P].scope, s[C].scope) == ("local", "shared", "global")
    assert [stage.name for stage in s.stages] == ["A", "B", "A.shared", "C.local", "C"]
    assert [str(a) for a in s[C].op.reduce_axis] == [] and [str(a) for a in s[T].op.reduce_axis] == ["k"]
    s[T].set_scope("global")
    assert s[T].scope == "global"


def test_several_outputs_in_one_call() -> None:
    s, (_, T0, T1) = argmax()
    both = s.cache_write([T0, T1], "local")
    assert [t.name for t in both] == ["T.local.v0", "T.local.v1"]
    partial = s.rfactor(both[0], "k")
    assert [t.name for t in partial] == ["T.local.rf.v0", "T.local.rf.v1"]


def test_readers_one_or_several() -> None:
    one, several = two_consumers().s, two_consumers().s
    one.cache_read("B", "local", "C")
    assert one.program["D"].input_tensors == [] and "B.local" in one.program.text
    several.cache_read("B", "local", ["C", "D"])
    assert several.program.consumers["B.local"] == ("C", "D") and several.program.consumers["B"] == ("B.local",)


@pytest.mark.parametrize(("place", "axes"), [(0, "k i j"), (2, "i j k"), (-1, "i j k"), (-3, "k i j")])
def test_partial_results_stand_where_they_are_wanted(place: int, axes: str) -> None:
    s = matmul().s
    assert [a.name for a in s.rfactor("C", "k", factor_axis=place).op.axis] == axes.split()


def test_create_schedule_of_nothing() -> None:
    with pytest.raises(DefinitionError, match="needs at least one operation"):
        te.create_schedule([])


def test_create_schedule_of_tensors_and_operations() -> None:
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] + 1, name="B")
    C = te.compute((4,), lambda i: A[i] + 2, name="C")
    keys = {te.create_schedule(ops).original.key for ops in ([B, C], [B.op, C.op], (B, C.op))}
    assert len(keys) == 1
    assert te.create_schedule(B).program.outputs == ("B",)


def test_a_schedule_does_not_change_the_program_it_was_made_from() -> None:
    s = matmul().s
    before = s.original.text
    s.rfactor("C", "k")
    s["C.rf"].transform_layout(lambda k, i, j: (i, j, k))
    assert s.original.text == before == matmul().s.original.text != s.program.text


def test_states_are_kept_by_who_holds_them() -> None:
    s = chain().s
    first = s.state
    s["C"].split("i", factor=4)
    assert first.stages["C"].leaves == ("i",) and s.state.stages["C"].leaves == ("i_o", "i_i")
    with pytest.raises(BadArgument):
        s["C"].split("i", factor=4)


def test_what_tvm_has_and_tensorlang_lacks_says_what_to_do() -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    s = te.create_schedule(B.op)
    with pytest.raises(AttributeError, match=r"a Stage has no 'annotate': TVM has it.*use pragma"):
        s[B].annotate  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"a Schedule has no 'get_block': TVM has it.*s\[C\] is the stage"):
        s.get_block  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"a Stage has no 'splat'; did you mean split\?$"):
        s[B].splat  # type: ignore[attr-defined]


def test_input_tensors_are_those_of_other_stages() -> None:
    A = te.placeholder((4, 5), name="A")
    k = te.reduce_axis((0, 5), "k")
    B = te.compute((4, 5), lambda i, j: A[i, j] * 2, name="B")
    C: Any = te.compute((4,), lambda i: te.sum(B[i, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    (b,) = s[C].op.input_tensors
    assert (b.name, b.shape, b.dtype) == ("B", B.shape, "float32") and isinstance(b.op, te.ComputeOp)
    assert s[b].name == "B" and s[b].op is b.op and [t.name for t in b.op.input_tensors] == ["A"]
    assert str(s[C].op.body[0]) == str(C.op.body[0])
    T = s.cache_write(C, "local")
    assert [t.name for t in s[C].op.input_tensors] == ["C.local"]
    assert [t.name for t in T.op.input_tensors] == ["B"] and s[T].op is s[T].op
    s.cache_read(s[T].op.input_tensors[0], "local", [T])
    s[s[C].op.input_tensors[0].op.input_tensors[0].op.input_tensors[0]].compute_inline()
    assert [stage.name for stage in s.stages] == ["A", "B.local", "C.local", "C"]
    assert [t.name for op in s.outputs for t in op.input_tensors] == ["C.local"]


def test_input_tensors_of_a_script_and_of_python() -> None:
    @te.hybrid.script
    def doubled(n: int, A):  # type: ignore[no-untyped-def]
        for i in range(n):
            A[i] = A[i] * 2.0
        return A

    X = te.placeholder((4,), name="X")
    A = te.compute((4,), lambda i: X[i] + 1, name="A")
    E = te.extern((4,), [doubled(4, A)], lambda values, out: None, name="E")
    s = te.create_schedule(E.op)
    (d,) = s[E].op.input_tensors
    assert isinstance(d.op, te.HybridOp) and [t.name for t in s[d].op.input_tensors] == ["A"]
    assert [t.name for t in s[d].op.input_tensors[0].op.input_tensors] == ["X"]


def test_outputs_are_known_as_they_were_declared() -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    C = te.compute((8,), lambda i: B[i] * 2, name="C")
    s = te.create_schedule(C.op)
    s.cache_read(B, "local", [C])
    assert C.op in s.outputs and s[C].op in s.outputs
    assert B.op not in s.outputs and A.op not in s.outputs


def test_an_inlined_tensor_is_computed_in_its_copy() -> None:
    A = te.placeholder((18,), name="A")
    B = te.compute((18,), lambda i: A[i] + 1, name="B")
    C = te.compute((16,), lambda i: B[i] * B[i + 2], name="C")
    s = te.create_schedule(C.op)
    i_o, _ = s[C].split("i", factor=4)
    s[B].compute_inline()
    copy = s.cache_read(B, "local", [C])
    s[copy].compute_at(s[C], i_o)
    assert str(s).splitlines()[1:3] == ["s.cache_read('B', 'local', ['C'])", "s['B'].compute_inline()"]
    assert "B.local[ax0] = A[4 * i_o + ax0] + 1.0" in str(lower(s, [A, C]))
    check_schedule(s, [A, C])
    again = te.create_schedule(C.op)
    again.replay(s.trace)
    assert str(again) == str(s)
    with pytest.raises(BadArgument, match="no tensor 'D'"):
        s.cache_read("D", "local", [C])


def test_loops_have_the_names_that_they_had_before_stages_of_a_scan_shared_them() -> None:
    X, state = te.placeholder((6, 20), name="X"), te.placeholder((6, 20), name="state")
    init = te.compute((1, 20), lambda t, i: X[t, i], name="init")
    double = te.compute((6, 20), lambda t, i: state[t - 1, i] * 2, name="double")
    update = te.compute((6, 20), lambda t, i: double[t, i] + X[t, i], name="update")
    S = te.scan(init, update, state, inputs=[X])
    s = te.create_schedule(S.op)
    i_o, _ = s[update].split(update.op.axis[1], factor=8)
    s[double].compute_at(s[update], i_o)
    s[update].parallel(i_o)
    assert [str(a) for a in s[update].leaf_iter_vars] == ["t", "i_o_fused", "i_1_i"]
    check_schedule(s, [X, S])


def test_a_tile_that_is_larger_than_its_region_has_no_empty_iterations() -> None:
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] + 1, name="B")
    C = te.compute((64,), lambda i: B[i] * 2, name="C")
    s = te.create_schedule(C.op)
    i_o, _ = s[C].split("i", factor=4)
    _, inner = s[B].split("i", factor=32)
    s[B].split(inner, nparts=16)
    s[B].compute_at(s[C], i_o)
    text = str(lower(s, [A, C]))
    assert "range(32)" not in text and "if " not in text
    assert "for i_i_o in range(4)" in text
    check_schedule(s, [A, C])
