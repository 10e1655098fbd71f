"""Schedules in auto_scheduler's words: what states do is what steps do, and kernels of them are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import autotune, te
from tensorlang.autotune.dag import ComputeDAG, State
from tensorlang.errors import BadArgument, DefinitionError, ScheduleError

N = 16


def matmul() -> list[Any]:
    A, B = (te.placeholder((N, N), name=name) for name in "AB")
    k = te.reduce_axis((0, N), "k")
    C = te.compute((N, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return [A, B, te.compute((N, N), lambda i, j: te.max(C[i, j], 0.0), name="D")]


def names(iterators: Any) -> list[str]:
    return [str(one) for one in iterators]


def test_states_make_schedules_that_are_right() -> None:
    tensors = matmul()
    dag = ComputeDAG(tensors)
    state = dag.get_init_state()
    i, j = state["D"].iters
    i_parts, j_parts = state.split("D", i, [2, 4]), state.split(tensors[2], j, [8])
    state.reorder("D", [i_parts[0], j_parts[0], *i_parts[1:], j_parts[1]])
    state.compute_at("C", tensors[2].op, j_parts[0])
    state.vectorize("D", j_parts[1])
    state.unroll("D", i_parts[2], 16)
    assert len(state.transform_steps) == 7
    state.unroll("D", i_parts[1], 1)
    assert len(state.transform_steps) == 7
    state.parallel("D", state.fuse("D", [i_parts[0], j_parts[0]]))
    assert names(state["D"].iters) == ["i_o_o_j_o_fused", "i_o_i", "i_i", "j_i"]
    assert [str(one.range.extent) for one in state["C"].iters if one.range] == ["8", "8", str(N)]
    s, own = dag.apply_steps_from_state(state)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (N, N)).astype(np.float32) for _ in "ab")
    d = np.empty((N, N), np.float32)
    tensorlang.build(s, own)(a, b, d)
    assert np.array_equal(d, np.maximum(a @ b, 0))
    assert dag.print_python_code_from_state(state) == str(s).rstrip()
    assert dag.get_init_state().transform_steps == () and dag.flop_ct > 2 * N**3


def test_copies_go_their_own_way_and_refused_steps_leave_no_trace() -> None:
    dag = ComputeDAG(matmul())
    state = dag.get_init_state()
    other = state.copy()
    assert names(other.split("C", "k", [2, 2], inner_to_outer=False)) == ["k_o", "k_i_o", "k_i_i"]
    assert state.transform_steps == () and len(other.transform_steps) == 2
    with pytest.raises(ScheduleError):
        other.parallel("C", "k_o")
    with pytest.raises(BadArgument, match="so none of number 7"):
        other[7]
    assert len(other.transform_steps) == 2


def test_steps_that_make_stages_return_their_operations() -> None:
    state = ComputeDAG(matmul()).get_init_state()
    partial = state.rfactor("C", state.split("C", "k", [4])[1], 2)
    assert partial.name == "C.rf" and state[partial].op.name == "C.rf"
    copy = state.cache_read("A", "global", [partial])
    assert copy.name in [op.name for op in state.stage_ops]
    written = state.cache_write("D", "global")
    state.compute_root("C")
    state.compute_inline(written)
    state.pragma("D", "i", "auto_unroll_max_step$16")
    assert str(state).rstrip().endswith("s['D'].pragma('i', 'auto_unroll_max_step', 16)")
    assert state.stages[0].op.name == state[0].op.name


def test_states_are_of_their_program() -> None:
    dag = autotune.ComputeDAG(matmul())
    A = te.placeholder((4,), name="A")
    other = ComputeDAG(te.create_schedule(te.compute((4,), lambda i: A[i] + 1, name="B").op))
    assert [t.name for t in other.tensors] == ["A", "B"] and other.hash_key() != dag.hash_key()
    assert "C" in str(dag) and dag.print_dag() == str(dag) and [op.name for op in dag.ops] == ["A", "B", "C", "D"]
    with pytest.raises(DefinitionError, match="no state of the program"):
        dag.apply_steps_from_state(other.get_init_state())
    made: Any = 3
    for wrong in (made, [made]):
        with pytest.raises(DefinitionError, match="made of tensors"):
            ComputeDAG(wrong)
    assert isinstance(dag.init_state, State)
