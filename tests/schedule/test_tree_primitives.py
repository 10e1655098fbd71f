"""Steps that move, take apart and join loops over several statements: what they make, and that it is right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, note, settings
from hypothesis import strategies as st

from tensorlang import lower, te
from tensorlang.errors import IllegalOrder, ScheduleError, UncoveredRead
from tensorlang.polyhedral.affine_text import evaluate
from tensorlang.polyhedral.statement import Role
from tensorlang.schedule import Trace, order
from tensorlang.schedule.check import is_legal, verify
from tensorlang.schedule.derive import derive
from tensorlang.schedule.state import ScheduleState, initial_state
from tensorlang.te.operation import HybridOp
from tensorlang.testing.check import check_schedule
from tensorlang.testing.ordered_programs import ordered_programs
from tensorlang.testing.strategies import programs
from tensorlang.testing.traces import schedules
from tests.programs import Case, argmax, chain, diamond, matmul, plane_sum, row_sum, stencil, two_consumers
from tests.property import enumeration
from tests.property.test_random_schedules import CASES, part_of

n, m = te.var("n"), te.var("m")
FAVOURED = ("fuse_with", "fission", "shift", "peel", "partition", "reverse", "decompose_reduction")
Size = int | te.Var
Example = tuple[Callable[..., object], ...]


@te.hybrid.script
def lu(size: Any, A: Any) -> Any:
    for i in range(size):
        for j in range(i):
            for k in range(j):
                A[i, j] -= A[i, k] * A[k, j]
            A[i, j] /= A[j, j]
        for j in range(i, size):
            for k in range(i):
                A[i, j] -= A[i, k] * A[k, j]
    return A


@te.hybrid.script
def smoothed(steps: Any, size: Any, A: Any) -> Any:
    B = te.allocate((size,), A.dtype)
    for _ in range(steps):
        for i in range(1, size - 1):
            B[i] = A[i - 1] + A[i] + A[i + 1]
        for j in range(1, size - 1):
            A[j] = B[j] * 0.5
    return A


@te.hybrid.script
def norms(rows: Any, columns: Any, A: Any) -> Any:
    R = te.output_tensor((rows,), A.dtype)
    for i in range(rows):
        total = 0.0
        for j in range(columns):
            total += A[i, j] * A[i, j]
        R[i] = total + 1.0
    return R


def decomposition() -> Case:
    """An LU decomposition in place."""
    A = te.placeholder((n, n), "float64", name="A")
    return Case(te.create_schedule(lu(n, A).op), (A,))


def jacobi() -> Case:
    """Some steps of a stencil over one row, by way of a second."""
    A = te.placeholder((n,), "float64", name="A")
    return Case(te.create_schedule(smoothed(m, n, A).op), (A, m))


def sums_of_squares() -> Case:
    """A scalar of its own for each row."""
    A = te.placeholder((n, m), "float64", name="A")
    B = te.compute((n, m), lambda i, j: A[i, j] * 2.0, name="B")
    R = norms(n, m, B)
    return Case(te.create_schedule(R.op), (A, R))


def outputs_of_two(extent: Size = 18) -> Case:
    """B = A + 1, and C = three neighbours of B: the caller gets both."""
    A = te.placeholder((extent + 2,), name="A")
    B = te.compute((extent + 2,), lambda i: A[i] + 1, name="B")
    C = te.compute((extent,), lambda i: B[i] + B[i + 1] + B[i + 2], name="C")
    return Case(te.create_schedule([B.op, C.op]), (A, B, C))


def used_later() -> Case:
    """B = A + 1; C = 2 B, which the caller gets; D = B + C."""
    A = te.placeholder((10,), name="A")
    B = te.compute((10,), lambda i: A[i] + 1, name="B")
    C = te.compute((10,), lambda i: B[i] * 2, name="C")
    D = te.compute((10,), lambda i: B[9 - i] + C[i], name="D")
    return Case(te.create_schedule([C.op, D.op]), (A, C, D))


def updated_in_place() -> Case:
    """An array is computed, and then decomposed where it is."""
    A = te.placeholder((n, n), "float64", name="A")
    B = te.compute((n, n), lambda i, j: A[i, j] + te.if_then_else(i == j, 40.0, 0.0), name="B")
    C = lu(n, B)
    return Case(te.create_schedule(C.op), (A, C))


EXAMPLES: dict[str, Example] = {
    "shift": (chain, lambda s: s["C"].shift("i", 3)),
    "shift by a size": (lambda: chain(n), lambda s: s["C"].shift("i", 1 - n), lambda s: s["C"].split("i_s", 4)),
    "shift inside a tile": (
        stencil,
        lambda s: s["C"].split("i", 6),
        lambda s: s["B"].compute_at(s["C"], "i_o"),
        lambda s: s["B"].shift("i", 5),
    ),
    "shift of a reduction": (row_sum, lambda s: s["B"].shift("k", -2), lambda s: s["B"].reorder("k_s", "i")),
    "shift one statement": (
        jacobi,
        lambda s: s["smoothed"].shift("j", 1),
        lambda s: s["smoothed"].fuse_with("i", "j_s"),
        lambda s: s["smoothed"].shift("i_fused", 2, statement="S1"),
    ),
    "reverse": (chain, lambda s: s["C"].reverse("i")),
    "reverse any extent": (lambda: row_sum(n, m), lambda s: s["B"].reverse("k"), lambda s: s["B"].reverse("i")),
    "reverse a triangle": (decomposition, lambda s: s["lu"].reverse("k"), lambda s: s["lu"].reverse("j_1")),
    "reverse a tile": (
        stencil,
        lambda s: s["C"].split("i", 5, tail="peel"),
        lambda s: s["C"].reverse("i_i"),
        lambda s: s["B"].compute_at(s["C"], "i_o"),
        lambda s: s["B"].reverse("i"),
    ),
    "fission": (sums_of_squares, lambda s: s["norms"].fission("i")),
    "fission in two": (sums_of_squares, lambda s: s["norms"].fission("i", after="j")),
    "fission in tiles": (
        sums_of_squares,
        lambda s: s["norms"].split("i", 4),
        lambda s: s["norms"].fission("i_i"),
        lambda s: s["norms"].reorder("j", "i_i_1"),
        lambda s: s["norms"].vectorize("i_i_1"),
        lambda s: s["B"].compute_at(s["norms"], "i_o"),
        lambda s: s["norms"].parallel("i_o"),
    ),
    "fuse_with of siblings": (
        jacobi,
        lambda s: s["smoothed"].shift("j", 1),
        lambda s: s["smoothed"].fuse_with("i", "j_s"),
    ),
    "fuse_with backwards": (
        jacobi,
        lambda s: s["smoothed"].shift("j", 1),
        lambda s: s["smoothed"].fuse_with("j_s", "i"),
    ),
    "fuse_with another stage": (chain, lambda s: s["C"].fuse_with("i", stage="B")),
    "fuse_with a shifted stencil": (
        lambda: outputs_of_two(n),
        lambda s: s["C"].shift("i", 2),
        lambda s: s["C"].fuse_with("i_s", "i", stage="B"),
    ),
    "fuse_with one of two readers": (two_consumers, lambda s: s["D"].fuse_with("i", stage="C")),
    "fuse_with what others need": (used_later, lambda s: s["C"].fuse_with("i", stage="B")),
    "fuse_with around others": (diamond, lambda s: s["C"].fuse_with("i", stage="B")),
    "fuse_with a matmul": (
        matmul,
        lambda s: s.cache_write("C", "local"),
        lambda s: s["C.local"].split("j", 4),
        lambda s: s["C.local"].reorder("i", "j_o", "k", "j_i"),
        lambda s: s["C.local"].vectorize("j_i"),
        lambda s: s["C"].fuse_with("i", stage="C.local"),
        lambda s: s["C"].split("j", 4),
        lambda s: s["C"].fuse_with("j_o_1", "j_o"),
    ),
    "fuse_with tiles of two sizes": (
        chain,
        lambda s: s["B"].split("i", 6),
        lambda s: s["C"].split("i", 4),
        lambda s: s["C"].fuse_with("i_o", stage="B"),
        lambda s: s["C"].fuse_with("i_i_1", "i_i"),
    ),
    "partition of a tile": (
        chain,
        lambda s: s["C"].split("i", 6),
        lambda s: s["C"].partition("i_i", [2]),
        lambda s: s["C"].split("i_i_1", 3),
    ),
    "fuse_with an update in place": (updated_in_place, lambda s: s["lu"].fuse_with("i", stage="B")),
    "fuse_with two outputs": (
        outputs_of_two,
        lambda s: s["C"].shift("i", 2),
        lambda s: s["C"].fuse_with("i_s", "i", "B"),
    ),
    "peel": (chain, lambda s: s["C"].peel("i", first=1, last=3)),
    "peel any extent": (
        lambda: chain(n),
        lambda s: s["C"].peel("i", first=1, last=2),
        lambda s: s["C"].unroll("i_last"),
    ),
    "peel a triangle": (decomposition, lambda s: s["lu"].peel("j_1", first=1), lambda s: s["lu"].peel("k", last=2)),
    "peel a reduction": (
        row_sum,
        lambda s: s["B"].split("k", 8),
        lambda s: s["B"].peel("k_o", last=1),
    ),
    "partition": (matmul, lambda s: s["C"].partition("j", [2, 5]), lambda s: s["C"].fission("i")),
    "partition any extent": (
        lambda: chain(n),
        lambda s: s["C"].partition("i", [n // 2, 9, n - 1]),
        lambda s: s["C"].split("i_1", 4),
    ),
    "partition of pairs of axes": (
        plane_sum,
        lambda s: s["B"].fuse("k", "l"),
        lambda s: s["B"].partition("k_l_fused", [7]),
    ),
    "decompose_reduction": (matmul, lambda s: s["C"].decompose_reduction("i"), lambda s: s["C"].parallel("i")),
    "decompose_reduction in a tile": (
        lambda: matmul(n, m, 8),
        lambda s: s["C"].tile("i", "j", 4, 4),
        lambda s: s["C"].reorder("i_o", "j_o", "k", "i_i", "j_i"),
        lambda s: s["C"].decompose_reduction("j_o"),
        lambda s: s["C"].vectorize("j_i"),
        lambda s: s["C"].split("j_o", 2),
    ),
    "decompose_reduction of pairs": (argmax, lambda s: s["T"].decompose_reduction("i")),
    "decompose_reduction then peel": (
        matmul,
        lambda s: s["C"].decompose_reduction("j"),
        lambda s: s["C"].peel("k", first=1),
    ),
}


def scheduled(name: str) -> Case:
    """The program of an example under its steps."""
    make, *steps = EXAMPLES[name]
    case = make()
    assert isinstance(case, Case)
    for step in steps:
        step(case.s)
    return case


def inputs_of(case: Case, sizes: dict[str, int]) -> dict[str, Any]:
    """A matrix that can be decomposed, where the program does that."""
    first = case.args[0]
    if "lu" not in case.s.original.by_name or "B" in case.s.original.by_name:
        return {}
    size = sizes["n"]
    return {first.name: np.random.default_rng(size).integers(-3, 4, (size, size)) + 40.0 * np.eye(size)}


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, golden: Callable[[str], None]) -> None:
    case = scheduled(name)
    golden(f"{case.s}\n{lower(case.s, case.args)}")
    for values in ((5, 7), (16, 8), (3, 1), (2, 2), (1, 1), (0, 0)) if case.s.original.sizes else ((),):
        sizes = {v.name: value for v, value in zip(case.s.original.sizes, values, strict=False)}
        check_schedule(case.s, case.args, sizes, inputs=inputs_of(case, sizes))


def test_every_step_here_has_an_example() -> None:
    used = {data["step"] for name in EXAMPLES for data in scheduled(name).s.trace.to_json()}
    assert used >= set(FAVOURED)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_trace_replays_and_reads_as_python(name: str) -> None:
    case = scheduled(name)
    fresh = EXAMPLES[name][0]()
    assert isinstance(fresh, Case)
    Trace.from_json(case.s.trace.to_json()).apply(fresh.s)
    assert fresh.s.state.stages == case.s.state.stages and fresh.s.program.text == case.s.program.text
    typed = EXAMPLES[name][0]()
    assert isinstance(typed, Case)
    exec(case.s.trace.to_python(), {"s": typed.s})
    assert typed.s.trace.key == case.s.trace.key and typed.s.state.stages == case.s.state.stages


def test_two_stages_become_one_that_goes_by_both_names() -> None:
    case = outputs_of_two()
    B, C = case.args[1:]
    s = case.s
    s[C].shift("i", 2)
    s[C].fuse_with("i_s", "i", stage=B)
    assert s[B].name == s["B"].name == s[C].name == "C" and isinstance(s[B].op, HybridOp)
    assert [b.name for b in s[C].op.outputs] == ["B", "C"] and s.program.outputs == ("C",)
    assert s.program.is_output("B") and not s.program.hidden


def test_the_caller_gets_no_more_than_before() -> None:
    s = scheduled("fuse_with what others need").s
    assert s.program.outputs == ("C", "D") and s.program.hidden == {"B"}
    assert s.program.text.endswith("return C, D without B\n") and s.program.key != s.original.key


def test_an_array_that_nobody_else_needs_belongs_to_the_fused_stage() -> None:
    s = scheduled("fuse_with another stage").s
    with pytest.raises(ScheduleError, match="no stage 'B'"):
        s["B"]
    assert [op.name for op in s.program.ops] == ["A", "C"] and "allocate B" in s.program.text


def test_loops_of_other_stages_inside_come_along() -> None:
    A = te.placeholder((n, 6), name="A")
    P = te.compute((n, 6), lambda i, j: A[i, j] + 1, name="P")
    B = te.compute((n, 6), lambda i, j: P[i, j] * 2, name="B")
    C = te.compute((n, 6), lambda i, j: B[i, j] + A[i, 5 - j], name="C")
    s = te.create_schedule(C.op)
    s[P].compute_at(s[B], "j")
    s[C].fuse_with("i", stage=B)
    s[C].reverse("j")
    attach = s.state.stages["P"].attach
    assert attach is not None and attach.stage == "C"
    for size in (0, 1, 5):
        check_schedule(s, (A, C), {"n": size})


def test_the_names_of_copies_are_new_each_time() -> None:
    case = chain()
    s = case.s
    s["C"].peel("i", first=2, last=2)
    s["C"].partition("i_main", [5])
    s["C"].peel("i_last", first=1)
    assert list(order.statements(s.state.stages["C"].order)) == ["S0.1", "S0", "S0.3", "S0.4", "S0.2"]
    axes = [str(a) for a in s["C"].leaf_iter_vars]
    assert axes == ["i_first", "i_main_0", "i_main_1", "i_last_first", "i_last_main"]
    check_schedule(s, case.args)


def test_a_refused_step_says_which_pair_it_breaks() -> None:
    case = jacobi()
    with pytest.raises(IllegalOrder) as caught:
        case.s["smoothed"].fuse_with("i", "j")
    witness = caught.value.witness
    assert witness is not None and witness.source is not None
    assert (witness.source.statement, witness.sink.statement) == ("smoothed.S0", "smoothed.S1")
    assert not case.s.trace.steps


def instances(state: ScheduleState, sizes: dict[str, int]) -> Counter[tuple[str, str, tuple[int, ...]]]:
    """How often every statement of the hybrid stages runs at every point of the loops as declared."""
    found: Counter[tuple[str, str, tuple[int, ...]]] = Counter()
    for statement, values in enumeration.events(derive(state), sizes):
        if statement.role is Role.ORDERED:
            point = tuple(evaluate(value, {**sizes, **values}) for _, value in statement.point)
            found[statement.stage, statement.source, point] += 1
    return found


@pytest.mark.parametrize("part", range(2))
def test_verdict_equals_enumeration(part: int) -> None:
    """Part 0 over programs with order in them, part 1 over stages of te.compute."""
    verdicts: Counter[bool] = Counter()

    @part_of(part)
    @settings(max_examples=CASES * 2 // 3)
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        sizes: tuple[dict[str, int], ...] = ({},)
        if part == 0:
            ordered = data.draw(ordered_programs(data=False))
            outputs, sizes = ordered.outputs, ordered.sizes
        else:
            outputs = data.draw(programs(max_stages=3, max_extent=4)).outputs
        s = data.draw(schedules(outputs, max_steps=5, check=False, favoured=FAVOURED))
        note(f"{s.original.text}{s.trace.to_python()}")
        for values in sizes:
            assert instances(s.state, values) == instances(initial_state(s.program), values)
        derived = derive(s.state)
        verdict = is_legal(s.state)
        event("legal" if verdict else "illegal")
        verdicts[verdict] += 1
        if verdict:
            assert all(enumeration.is_legal(derived, values) for values in sizes)
        else:
            with pytest.raises(ScheduleError) as caught:
                verify(s.state)
            witness = caught.value.witness
            # A read outside the loop of its producer is refused even if it never runs: it has no witness then.
            assert witness is not None or isinstance(caught.value, UncoveredRead)
            assert not enumeration.is_legal(derived, dict(witness.sizes) if witness else sizes[0])

    run()
    assert min(verdicts[True], verdicts[False]) > sum(verdicts.values()) // 50, verdicts


@pytest.mark.parametrize("part", range(2))
def test_legal_schedules_keep_meaning(part: int) -> None:
    """Part 0 over programs with order in them, part 1 over stages of te.compute."""

    @part_of(part)
    @settings(max_examples=CASES // 3)
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        if part == 0:
            ordered = data.draw(ordered_programs(data=data.draw(st.booleans())))
            s = data.draw(schedules(ordered.outputs, favoured=FAVOURED))
            note(f"{s.original.text}{s.trace.to_python()}")
            for sizes in ordered.sizes[-2:]:
                check_schedule(s, ordered.args, sizes, inputs=ordered.inputs(sizes))
        else:
            case = data.draw(programs(max_stages=3))
            s = data.draw(schedules(case.outputs, favoured=FAVOURED))
            note(f"{s.original.text}{s.trace.to_python()}")
            given_arrays = {t.op.name: a for t, a in zip(case.placeholders, case.inputs, strict=True)}
            check_schedule(s, case.tensors, inputs=given_arrays)

    run()


def test_cache_write_takes_the_loops_of_a_reduction_along() -> None:
    a, b = te.placeholder((20, 30), name="A"), te.placeholder((30, 12), name="B")
    k = te.reduce_axis((0, 30), "k")
    c = te.compute((20, 12), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], factor=8)
    k_o, k_i = s[c].split(k, factor=4)
    s[c].reorder(outer, k_o, inner, k_i)
    s[c].unroll(k_i)
    local = s.cache_write(c, "local")
    assert [str(axis.var) for axis in s[c].leaf_iter_vars] == ["i_o", "j", "i_i"]
    assert [str(axis.var) for axis in s[local].leaf_iter_vars] == ["i", "j", "k_o", "k_i"]
    s[local].compute_at(s[c], outer)
    s[local].reorder("k_o", "i", "j", "k_i")
    check_schedule(s, [a, b, c])


@pytest.mark.parametrize("split", [True, False])
def test_rfactor_of_any_number_of_blocks(split: bool) -> None:
    n = te.var("n")
    a, k = te.placeholder((3, n), name="A"), te.reduce_axis((0, n), "k")
    c = te.compute((3,), lambda i: te.sum(a[i, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    factored = s[c].split(k, factor=16)[0] if split else k
    parts = s.rfactor(c, factored)
    s[parts].parallel(s[parts].op.axis[0])
    for size in (0, 1, 16, 50):
        check_schedule(s, [a, c], sizes={"n": size})
