"""Attention, plain and causal, against the whole matrix of scores in float64."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import tensorlang
from tensorlang import dtypes, te, topi
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Var
from tensorlang.ir.stmt import LoopKind
from tensorlang.schedules.cpu.attention import key_block, plan_of
from tensorlang.schedules.default import apply_forms
from tensorlang.target import parse
from tensorlang.te.operation import Tensor
from tensorlang.topi.attention import attention_reference
from tests.topi.programs import Array, Given, close, given, run


def inputs(outer: tuple[int, ...], n: int, m: int, depth: int, width: int, dtype: str = "float32") -> list[Given]:
    shapes = (("q", n, depth), ("k", m, depth), ("v", m, width))
    return [given(name, *outer, rows, columns, dtype=dtype) for name, rows, columns in shapes]


def exact(query: Given, key: Given, value: Given, is_causal: bool) -> Array:
    """The attention of numbers of any dtype, not rounded."""
    q, k, v = (x.astype(np.float64) for _, x in (query, key, value))
    return attention_reference(q, k, v, is_causal)[0]


def check(outer: tuple[int, ...], n: int, m: int, depth: int, width: int, is_causal: bool) -> None:
    q, k, v = inputs(outer, n, m, depth, width)
    made = run(topi.attention(q[0], k[0], v[0], is_causal=is_causal), q, k, v)
    close(made, attention_reference(q[1], k[1], v[1], is_causal)[0])


@pytest.mark.sampled(1)
@pytest.mark.covering(1)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("tokens", [128, 1024])
def test_named_shapes(tokens: int, is_causal: bool) -> None:
    """Two of the twelve heads, which are all alike."""
    check((2,), tokens, tokens, 64, 64, is_causal)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("is_causal", [False, True])
def test_heads_batches_and_other_keys(is_causal: bool) -> None:
    check((2, 2), 20, 37, 8, 20, is_causal)
    check((), 1, 50, 16, 16, is_causal)


@drawn(st.integers(1, 40), st.integers(0, 40), st.integers(1, 20), st.integers(1, 40), st.booleans())
@settings(max_examples=3)
def test_odd_shapes(n: int, more: int, depth: int, width: int, is_causal: bool) -> None:
    check((2,), n, n + more, depth, width, is_causal)


def test_float64_and_another_scale() -> None:
    q, k, v = inputs((2,), 20, 30, 8, 8, dtype="float64")
    made = run(topi.attention(q[0], k[0], v[0], scale=0.25), q, k, v)
    close(made, attention_reference(q[1] * (0.25 * 8**0.5), k[1], v[1])[0])


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("n", "m", "dtype"), [(20, 37, "float16"), (9, 2500, "bfloat16")])
def test_narrow_numbers(n: int, m: int, dtype: str) -> None:
    """Scores and sums are in float32: only the result is rounded, to the dtype asked for."""
    q, k, v = inputs((2,), n, m, 8, 12, dtype)
    wanted = exact(q, k, v, is_causal=True)
    for out_dtype in (dtype, "float32"):
        made = run(topi.attention(q[0], k[0], v[0], is_causal=True, out_dtype=out_dtype), q, k, v)
        assert made.dtype == dtypes.info(out_dtype).numpy
        close(made, wanted)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("is_causal", [False, True])
def test_what_is_blocked_for_tensor_cores_runs_on_a_cpu(is_causal: bool) -> None:
    """Weights are rounded to 16 bits, and keys are in blocks of 64."""
    q, k, v = inputs((2,), 20, 137, 16, 32, "bfloat16")
    out = topi.attention(q[0], k[0], v[0], is_causal=is_causal)
    s = te.create_schedule(out.op)
    s[out].blocked_attention(keys=64, rows=32)
    apply_forms(s, parse(None))
    made = np.full((2, 20, 32), 77, q[1].dtype)
    tensorlang.build(s, [q[0], k[0], v[0], out])(q[1], k[1], v[1], made)
    close(made, exact(q, k, v, is_causal))


@pytest.mark.sampled(1)
@pytest.mark.covering(1)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("n", "m"), [(40, 2176), (33, 2500)])
def test_long_rows_are_taken_in_blocks(n: int, m: int, is_causal: bool) -> None:
    """Blocks of equal length, and a rest."""
    assert key_block(m) is not None
    check((), n, m, 8, 20, is_causal)


@pytest.mark.sampled(4)
@pytest.mark.covering(1)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize(("outer", "n", "m"), [((3,), 1, 64), ((), 4, 100), ((2,), 5, 2500), ((1,), 2, 2304)])
def test_few_queries(outer: tuple[int, ...], n: int, m: int, dtype: str, is_causal: bool) -> None:
    """Keys are read as they lie; blocks of them are shared by the threads where heads are fewer."""
    q, k, v = inputs(outer, n, m, 96, 40, dtype)
    out, target = topi.attention(q[0], k[0], v[0], is_causal), "llvm -num-cores=2"
    s = topi.schedule(out, target)
    assert not any("global" in name for name in s.state.stages)
    assert any(name.endswith("merged.rf") for name in s.state.stages) == (m > 2048 and prod(outer) % 2 == 1)
    close(run(out, q, k, v, target=target), exact(q, k, v, is_causal))


def check_symbolic(n: Var, m: Var, is_causal: bool, numbers: list[tuple[int, int]]) -> None:
    q, k, v = (te.placeholder((2, rows, 8), name=name) for name, rows in (("q", n), ("k", m), ("v", m)))
    out = topi.attention(q, k, v, is_causal=is_causal)
    kernel = tensorlang.build(topi.schedule(out), [q, k, v, out])
    for queries, keys in numbers:
        (_, a), (_, b), (_, c) = inputs((2,), queries, keys, 8, 8)
        made = np.full((2, queries, 8), 77, np.float32)
        kernel(a, b, c, made)
        close(made, attention_reference(a, b, c, is_causal)[0])


def test_symbolic_numbers_of_queries_and_keys() -> None:
    check_symbolic(te.var("b"), te.var("c"), False, [(1, 1), (20, 37), (40, 512), (9, 1100)])


def test_few_queries_of_a_symbolic_number_of_keys() -> None:
    q, m = given("q", 2, 4, 32), te.var("m")
    k, v = (te.placeholder((2, m, 32), name=name) for name in "kv")
    out = topi.attention(q[0], k, v)
    kernel = tensorlang.build(topi.schedule(out), [q[0], k, v, out])
    for keys in (1, 17, 512, 700):
        (_, b), (_, c) = given("k", 2, keys, 32), given("v", 2, keys, 32)
        kernel(q[1], b, c, made := np.full((2, 4, 32), 77, np.float32))
        close(made, attention_reference(q[1], b, c)[0])


def test_a_symbolic_number_of_tokens() -> None:
    n = te.var("n")
    check_symbolic(n, n, True, [(1, 1), (37, 37), (530, 530)])


def test_blocks_of_very_different_scores_and_nan() -> None:
    """The greatest score may stand in any block; what is not a number reaches its own query only."""
    q, k, v = inputs((), 12, 2304, 4, 4)
    q[1][:] = 1
    for block, score in enumerate((5.0, -300.0, 90.0, 80.0)):
        k[1][block * 576 : (block + 1) * 576] = score
    q[1][3] = np.nan
    made, wanted = run(topi.attention(q[0], k[0], v[0]), q, k, v), attention_reference(q[1], k[1], v[1])[0]
    np.testing.assert_array_equal(np.isnan(made).any(axis=1), np.arange(12) == 3)
    close(np.delete(made, 3, axis=0), np.delete(wanted, 3, axis=0))


def test_the_scratch_of_a_row_does_not_grow_with_the_keys() -> None:
    def of_rows(tokens: int) -> int:
        q, k, v = (te.placeholder((1, tokens, 64), name=name) for name in "qkv")
        out = topi.attention(q, k, v)
        kernel = tensorlang.build(topi.schedule(out, "llvm -num-cores=1"), [q, k, v, out], "llvm -num-cores=1")
        block = key_block(tokens)
        assert block is not None
        width = plan_of(tokens, block, 64, 32, parse("llvm -num-cores=1")).scores.width
        return int(kernel.memory().total) - tokens // block * -(-block // width) * width * 64 * 4

    assert of_rows(4096) == of_rows(8192)


def test_what_follows_is_computed_in_the_tile() -> None:
    q, k, v = inputs((2,), 33, 33, 16, 16)
    residual = given("residual", 2, 33, 16)
    out = topi.add(topi.attention(q[0], k[0], v[0]), residual[0])
    assert [name for name, stage in topi.schedule(out).state.stages.items() if stage.attach is None] == ["add"]
    close(run(out, q, k, v, residual), attention_reference(q[1], k[1], v[1])[0] + residual[1])


def test_the_matrix_of_scores_is_never_whole() -> None:
    q, k, v = (te.placeholder((4, 512, 64), name=name) for name in "qkv")
    out = topi.attention(q, k, v)
    kernel = tensorlang.build(topi.schedule(out, "llvm -num-cores=1"), [q, k, v, out], "llvm -num-cores=1")
    packed = 4 * 512 * 64 * 4
    assert kernel.memory().total <= 1.5 * packed < 4 * 512 * 512 * 4


def test_causal_attention_skips_what_no_query_sees() -> None:
    q, k, v = (te.placeholder((1, 512, 64), name=name) for name in "qkv")
    s = topi.schedule(topi.attention(q, k, v, is_causal=True))
    assert {name for name, stage in s.state.stages.items() if stage.predicates} == {
        "attention_scaled",
        "attention_weight",
    }


def refused(match: str, q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> None:
    with pytest.raises(DefinitionError, match=match):
        topi.attention(q, k, v, is_causal)


def test_refusals() -> None:
    q, k = te.placeholder((2, 8, 4), name="q"), te.placeholder((2, 6, 4), name="k")
    refused("attention wants query", q, k, te.placeholder((2, 7, 4), name="v"))
    refused("attention wants query", q, te.placeholder((2, 6, 5), name="k"), k)
    refused("would see none of 6 keys", q, k, k, is_causal=True)


@pytest.mark.parametrize("cpu", ["skylake-avx512", "haswell"])
@pytest.mark.parametrize(("n", "width"), [(1024, 64), (128, 64), (1000, 20), (17, 128), (1, 5), (7, 1)])
def test_tiles_fit_the_registers_and_blocks(cpu: str, n: int, width: int) -> None:
    target = parse(f"llvm -mcpu={cpu}")
    plan = plan_of(n, n, width, 32, target)
    assert plan.scores.rows % plan.mixing.rows == 0
    assert plan.rows % plan.scores.rows == 0
    for tile in (plan.scores, plan.mixing):
        assert tile.rows * tile.vectors + tile.vectors + 1 <= target.vector_registers


def test_threads_share_heads_or_the_queries_of_few() -> None:
    def shared(heads: int) -> list[str]:
        q, k, v = (te.placeholder((heads, 256, 16), name=name) for name in "qkv")
        stage = topi.schedule(topi.attention(q, k, v), "llvm -num-cores=2").state.stages["attention"]
        return [axis for axis in stage.leaves if stage.kind(axis) is LoopKind.PARALLEL]

    assert shared(1) == shared(3) == ["i1_o"]
    assert shared(2) == shared(12) == shared(13) == ["i0"]
