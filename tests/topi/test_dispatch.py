"""Schedules of programs made of the library's operators: what follows an operator is computed in its tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te, topi
from tensorlang.ir.expr import to_text
from tensorlang.te.operation import PlaceholderOp, Tensor
from tensorlang.te.program import canonical
from tensorlang.te.reference import evaluate
from tensorlang.testing.check import check_schedule
from tensorlang.topi.table import FAMILIES, OPERATORS

M, N, K = 13, 37, 19


def inputs_of(output: Tensor) -> list[Tensor]:
    """The placeholders behind a tensor, each once."""
    found: dict[int, Tensor] = {}
    pending = [output]
    while pending:
        tensor = pending.pop()
        if isinstance(tensor.op, PlaceholderOp):
            found[id(tensor.op)] = tensor
        pending += tensor.op.input_tensors
    return list(found.values())


def extents(tensor: Tensor) -> list[int]:
    """The shape of a tensor without symbolic sizes."""
    return [int(to_text(extent)) for extent in tensor.shape]


def check(outputs: Sequence[Tensor]) -> None:
    """The library's schedule computes what the program says."""
    inputs = list({id(t.op): t for output in outputs for t in inputs_of(output)}.values())
    kernel = tensorlang.build(topi.schedule(outputs), [*inputs, *outputs])
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, extents(t)).astype(t.dtype) for t in inputs]
    made = [np.empty(extents(t), t.dtype) for t in outputs]
    kernel(*arrays, *made)
    program, names = canonical(outputs)
    values = evaluate(program, {names[id(t.op)]: a for t, a in zip(inputs, arrays)})
    for tensor, array in zip(outputs, made):
        np.testing.assert_array_equal(array, values[names[id(tensor.op)]])


def product() -> Tensor:
    return topi.matmul(te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B"))


def test_a_chain_is_computed_in_the_tile() -> None:
    C, bias = product(), te.placeholder((N,), name="bias")
    biased = te.compute((M, N), lambda i, j: C[i, j] + bias[j], name="biased")
    relu = te.compute((M, N), lambda i, j: te.maximum(biased[i, j], 0.0), name="relu")
    s = topi.schedule(relu)
    assert "biased" not in {stage.op.name for stage in s.stages}
    attach = s.state.stages["C"].attach
    assert attach is not None and attach.stage == "relu"
    check([relu])


def test_a_result_that_two_stages_read_is_in_the_tile_of_the_last() -> None:
    C = product()
    twice = te.compute((M, N), lambda i, j: C[i, j] * 2.0, name="twice")
    total = te.compute((M, N), lambda i, j: twice[i, j] + C[i, j], name="total")
    attach = topi.schedule(total).state.stages["C"].attach
    assert attach is not None and attach.stage == "total"
    check([total])
    check([total, twice])


def test_readers_of_other_elements_do_not_share_the_tile() -> None:
    C = product()
    flipped = te.compute((M, N), lambda i, j: C[M - 1 - i, j], name="flipped")
    assert topi.schedule(flipped).state.stages["C"].attach is None
    check([flipped])


def test_two_operators_in_one_program() -> None:
    first = product()
    shifted = te.compute((M, N), lambda i, j: first[i, j] - 1.0, name="shifted")
    second = topi.matmul(shifted, te.placeholder((N, K), name="D"), name="E")
    check([second])


def test_one_reader_of_two_operators_follows_the_first() -> None:
    A = te.placeholder((M, N), name="A")
    B = te.placeholder((M, N), name="B")
    check([topi.add(topi.max(A, 1), topi.max(B, 1))])
    check([topi.add(topi.matmul(A, topi.transpose(B)), topi.matmul(B, topi.transpose(A)))])


def test_an_output_in_the_middle_is_kept() -> None:
    C = product()
    more = te.compute((M, N), lambda i, j: C[i, j] + 1.0, name="more")
    check([C, more])


@pytest.mark.parametrize("shape", [(1,), (7,), (5000,), (3, 50), (2, 3, 4, 5)])
def test_programs_without_operators(shape: tuple[int, ...]) -> None:
    A = te.placeholder(shape, name="A")
    one = te.compute(shape, lambda *i: A(*i) + 1.0, name="one")
    check([te.compute(shape, lambda *i: one(*i) * 3.0, name="two")])


def test_sums_without_an_operator() -> None:
    A, k = te.placeholder((40, 30), name="A"), te.reduce_axis((0, 30), name="k")
    check([te.compute((40,), lambda i: te.sum(A[i, k], axis=k), name="sums")])


def test_every_family_is_whole() -> None:
    for family in FAMILIES:
        for operator in family.OPERATORS:
            assert OPERATORS[operator.name] is operator


def test_rows_whose_elements_wait_for_each_other_run_side_by_side() -> None:
    X = te.placeholder((21, 30), name="X")
    Y = te.recurrence(
        (21, 30), lambda self, i, j: te.if_then_else(j > 0, te.maximum(self[i, j - 1], X[i, j]), X[i, j]), name="Y"
    )
    s = topi.schedule(Y, "llvm -num-cores=1", tuned=False)
    assert str(s.trace.to_python()).splitlines()[-2:] == ["s['Y'].reorder('i_o', 'j', 'i_i')", "s['Y'].unroll('i_i')"]
    check_schedule(s, [X, Y])


def test_elements_that_wait_for_rows_before_them_stay_in_their_order() -> None:
    X = te.placeholder((21, 30), name="X")

    def element(self: Any, i: Any, j: Any) -> Any:
        above = te.if_then_else(te.all(i > 0, j < 29), self[i - 1, j + 1], 0.0)
        return te.if_then_else(j > 0, self[i, j - 1] * 0.5, above) + above * 0.25 + X[i, j]

    Y = te.recurrence((21, 30), element, name="Y")
    s = topi.schedule(Y, "llvm -num-cores=1", tuned=False)
    assert not any("unroll" in line for line in s.trace.to_python().splitlines())
    check_schedule(s, [X, Y])


def test_sums_of_nothing_stay_as_declared() -> None:
    A = te.placeholder((2, 0, 4), name="A")
    k = te.reduce_axis((0, 0), "k")
    s = topi.schedule(te.compute((2, 4), lambda i, j: te.sum(A[i, k, j], axis=k), name="S"), tuned=False)
    assert "it has no iterations" in str(s.explain())


def test_what_pieces_cannot_take_in_stays_a_stage() -> None:
    X = te.placeholder((3, 4, 8), name="X")
    halves = [te.compute((3, 4, 4), lambda i, j, k, n=n: X[i, j, k + n] * 2.0, name=f"half{n}") for n in (0, 4)]
    sums = [te.compute((3, 4, 4), lambda i, j, k, h=h: h[i, j, k] - X[i, j, k], name="less") for h in halves]
    both = topi.concatenate(sums, axis=2)
    out = topi.transpose(both, (1, 0, 2))
    check_schedule(topi.schedule(out, tuned=False), [X, out])


def test_numbers_without_dimensions_are_read_in_place() -> None:
    X, c = te.placeholder((5,), name="X"), te.compute((), lambda: te.const(1.5), name="c")
    less = te.compute((), lambda: -c(), name="less")
    out = te.compute((5,), lambda i: te.select(X[i] < less(), X[i] + c(), less()), name="out")
    check_schedule(topi.schedule(out, tuned=False), [X, out])


@pytest.mark.parametrize(("batch", "keys", "depth"), [(0, 4, 8), (2, 0, 8), (2, 4, 0)])
def test_attention_of_nothing(batch: int, keys: int, depth: int) -> None:
    query = te.placeholder((batch, 2, 1, depth), name="query")
    key, value = (te.placeholder((batch, 2, keys, depth), name=name) for name in ("key", "value"))
    lengths = te.placeholder((batch,), "int32", name="lengths")
    for made in (topi.attention(query, key, value), topi.cached_attention(query, key, value, lengths)):
        inputs = [query, key, value, *([lengths] if made.name == "cached_attention" else [])]
        kernel = tensorlang.build(topi.schedule(made, tuned=False), [*inputs, made])
        arrays = [np.zeros(extents(t), t.dtype) for t in (*inputs, made)]
        kernel(*arrays)
        assert np.array_equal(arrays[-1], np.full_like(arrays[-1], 0 if keys else np.nan), equal_nan=True)
