"""te.scan: what it declares, what it means, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import tensorlang
from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.te.operation import HybridOp
from tensorlang.te.program import canonical
from tensorlang.te.reference import evaluate
from tensorlang.testing import check_schedule


def cumulated(m: Any, n: Any) -> tuple[Any, Any, Any, Any]:
    """X, init, update and result of the sum over time."""
    X = te.placeholder((m, n), name="X")
    state = te.placeholder((m, n), name="state")
    init = te.compute((1, n), lambda _, i: X[0, i], name="init")
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + X[t, i], name="update")
    return X, init, update, te.scan(init, update, state, inputs=[X], name="sums")


def run(outputs: Any, *inputs: Any, **sizes: int) -> list[Any]:
    """The reference of a program."""
    program, _ = canonical(outputs)
    return list(evaluate(program, list(inputs), sizes).values())


def test_sum_over_time_as_text() -> None:
    m, n = te.var("m"), te.var("n")
    result = cumulated(m, n)[-1]
    assert canonical([result])[0].text == (
        "input X: float32[m, n]\n"
        "hybrid sums: float32[m, n]:\n"
        "  for _ in range(1):\n"
        "    for i_1 in range(n):\n"
        "      if _ < m:\n"
        "        sums[_, i_1] = X[0, i_1]\n"
        "  for t in range(1, m):\n"
        "    for i in range(n):\n"
        "      sums[t, i] = sums[t - 1, i] + X[t, i]\n"
        "return sums\n"
    )


@pytest.mark.parametrize("sizes", [{"m": 6, "n": 5}, {"m": 1, "n": 3}, {"m": 0, "n": 3}, {"m": 4, "n": 0}])
def test_sum_over_time_for_all_sizes(sizes: dict[str, int]) -> None:
    X, _, _, result = cumulated(te.var("m"), te.var("n"))
    data = np.arange(sizes["m"] * sizes["n"], dtype="float32").reshape(sizes["m"], sizes["n"])
    (got,) = run([result], data)
    np.testing.assert_array_equal(got, np.cumsum(data, axis=0))
    check_schedule(te.create_schedule(result.op), [X, result], sizes=sizes)


def test_two_first_values_make_fibonacci() -> None:
    state = te.placeholder((12,), "int64", name="state")
    init = te.compute((2,), lambda t: te.const(1, "int64"), name="init")
    update = te.compute((12,), lambda t: state[t - 1] + state[t - 2], name="update")
    result = te.scan(init, update, state)
    (got,) = run([result])
    assert list(got) == [1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144]
    check_schedule(te.create_schedule(result.op), [result])


def test_several_states_and_an_input_as_first_values() -> None:
    """Two states that need each other: (a, b) -> (b, a + b); the first values of one come from an array."""
    n = te.var("n")
    start = te.placeholder((1, 3), "int64", name="start")
    a, b = (te.placeholder((n, 3), "int64", name=name) for name in "ab")
    zero = te.compute((1, 3), lambda t, i: te.const(0, "int64"), name="zero")
    next_a = te.compute((n, 3), lambda t, i: b[t - 1, i], name="next_a")
    next_b = te.compute((n, 3), lambda t, i: next_a[t, i] + a[t - 1, i], name="next_b")
    first, second = te.scan([zero, start], [next_a, next_b], [a, b], name="pair")
    begin = np.array([[1, 2, 5]])
    got_a, got_b = run([first], begin, n=8)
    fibonacci = np.array([0, 1, 1, 2, 3, 5, 8, 13, 21])
    np.testing.assert_array_equal(got_a, fibonacci[:8, None] * begin)
    np.testing.assert_array_equal(got_b, fibonacci[1:, None] * begin)
    check_schedule(te.create_schedule(first.op), [start, first, second], sizes={"n": 8})


def test_states_that_begin_alike() -> None:
    a, b = (te.placeholder((5, 2), "int32", name=name) for name in "ab")
    one = te.compute((1, 2), lambda t, i: i + 1, name="one")
    next_a = te.compute((5, 2), lambda t, i: a[t - 1, i] * 2, name="next_a")
    next_b = te.compute((5, 2), lambda t, i: b[t - 1, i] * 3, name="next_b")
    first, second = te.scan([one, one], [next_a, next_b], [a, b])
    got_a, got_b = run([first])
    np.testing.assert_array_equal(got_a, np.outer(2 ** np.arange(5), [1, 2]))
    np.testing.assert_array_equal(got_b, np.outer(3 ** np.arange(5), [1, 2]))
    check_schedule(te.create_schedule(first.op), [first, second])


def test_updates_of_one_compute_with_two_outputs() -> None:
    X = te.placeholder((6, 4), "int32", name="X")
    low, high = (te.placeholder((6, 4), "int32", name=name) for name in ("low", "high"))
    init = te.compute((1, 4), lambda t, i: (X[t, i], X[t, i]), name="init")
    update = te.compute(
        (6, 4), lambda t, i: (te.min(low[t - 1, i], X[t, i]), te.max(high[t - 1, i], X[t, i])), name="update"
    )
    lowest, highest = te.scan(init, update, [low, high])
    data = np.random.default_rng(0).integers(-9, 9, (6, 4)).astype("int32")
    got_low, got_high = run([lowest], data)
    np.testing.assert_array_equal(got_low, np.minimum.accumulate(data))
    np.testing.assert_array_equal(got_high, np.maximum.accumulate(data))
    check_schedule(te.create_schedule(lowest.op), [X, lowest, highest])


def test_stages_of_a_time_step_are_arrays_of_that_step() -> None:
    """A matrix product between the state and the update; what one step alone needs has no time axis."""
    X = te.placeholder((7, 5), name="X")
    W = te.placeholder((5, 5), name="W")
    state = te.placeholder((7, 5), name="state")
    k = te.reduce_axis((0, 5), "k")
    init = te.compute((1, 5), lambda t, i: X[0, i], name="init")
    product = te.compute((7, 5), lambda t, i: te.sum(state[t - 1, k] * W[i, k], axis=k), name="product")
    update = te.compute((7, 5), lambda t, i: te.tanh(product[t, i] + X[t, i]), name="update")
    result = te.scan(init, update, state, name="rnn")
    text = canonical([result])[0].text
    assert "    allocate rnn.product: float32[5] in global\n" in text
    x, w = np.random.default_rng(0).standard_normal((2, 7, 7)).astype("float32")
    x, w = x[:, :5], w[:5, :5]
    (got,) = run([result], *(w, x) if text.startswith("input W") else (x, w))
    want = [x[0]]
    for t in range(1, 7):
        want.append(np.tanh(w @ want[-1] + x[t]))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    check_schedule(te.create_schedule(result.op), [X, W, result])


def test_a_stage_read_at_another_time_is_kept() -> None:
    X = te.placeholder((8,), "int32", name="X")
    state = te.placeholder((8,), "int32", name="state")
    init = te.compute((1,), lambda t: X[0], name="init")
    double = te.compute((8,), lambda t: state[t - 1] * 2, name="double")
    update = te.compute((8,), lambda t: X[t] + te.if_then_else(t > 1, double[t - 1], 0) + double[t], name="update")
    result = te.scan(init, update, state, name="kept")
    assert "\n  allocate kept.double: int32[8] in global\n" in canonical([result])[0].text
    x = np.arange(1, 9, dtype="int32")
    want = [1]
    for t in range(1, 8):
        want.append(int(x[t]) + (2 * want[t - 2] if t > 1 else 0) + 2 * want[t - 1])
    (got,) = run([result], x)
    assert list(got) == want
    check_schedule(te.create_schedule(result.op), [X, result])


def test_first_values_and_steps_by_reductions_with_conditions() -> None:
    X = te.placeholder((6, 4), "int32", name="X")
    state = te.placeholder((6, 4), "int32", name="state")
    r, k = te.reduce_axis((0, 4), "r"), te.reduce_axis((0, 4), "k")
    init = te.compute((2, 4), lambda t, i: te.max(X[t, r], axis=r, where=r <= i), name="init")
    update = te.compute(
        (6, 4), lambda t, i: te.sum(state[t - 2, k], axis=k, where=te.all(k != i, X[t, k] > 0)), name="update"
    )
    result = te.scan(init, update, state)
    x = np.random.default_rng(1).integers(-4, 5, (6, 4)).astype("int32")
    want = [np.maximum.accumulate(x[t]) for t in range(2)]
    for t in range(2, 6):
        want.append(np.array([sum(want[t - 2][j] for j in range(4) if j != i and x[t, j] > 0) for i in range(4)]))
    (got,) = run([result], x)
    np.testing.assert_array_equal(got, want)
    check_schedule(te.create_schedule(result.op), [X, result], inputs={"X": x})


def test_what_does_not_depend_on_the_state_stays_outside() -> None:
    X = te.placeholder((5, 3), name="X")
    state = te.placeholder((5, 3), name="state")
    squares = te.compute((5, 3), lambda t, i: X[t, i] * X[t, i], name="squares")
    init = te.compute((1, 3), lambda t, i: squares[t, i], name="init")
    update = te.compute((5, 3), lambda t, i: state[t - 1, i] + squares[t, i], name="update")
    result = te.scan(init, update, state, inputs=[squares])
    program, _ = canonical([result])
    assert [op.name for op in program.ops] == ["X", "squares", "scan"]
    assert [t.name for t in result.op.input_tensors] == ["squares"]
    check_schedule(te.create_schedule(result.op), [X, result])


def test_the_operation_of_a_scan() -> None:
    m = te.var("m")
    _, init, update, result = cumulated(m, 4)
    op = result.op
    assert isinstance(op, HybridOp)
    assert (str(op.scan_axis), str(op.scan_axis.lower), str(op.scan_axis.extent)) == ("t", "1", "m - 1")
    loops = {member.op.name: dict(member.loops) for member in op.members}
    assert loops == {"update": {"t": "t", "i": "i"}, "init": {"_": "_", "i": "i_1"}}
    assert {id(m.op) for m in op.members} == {id(init.op), id(update.op)}
    other = te.recurrence((4,), lambda self, i: te.if_then_else(i > 0, self[i - 1], 1), dtype="int32")
    with pytest.raises(AttributeError, match="recurrence is no scan"):
        other.op.scan_axis


def test_loops_are_named_apart_from_sizes_and_from_each_other() -> None:
    """Time is `n` in one compute and a size in another; `i` is time in one and space in the other."""
    n = te.var("n")
    X = te.placeholder((n, n), "int32", name="X")
    state = te.placeholder((n, n), "int32", name="state")
    init = te.compute((1, n), lambda i, t: X[i, t], name="init")
    double = te.compute((n, n), lambda i, t: state[i - 1, t] * 2, name="double")
    update = te.compute((n, n), lambda t, i: double[t, i] + X[t, i], name="update")
    result = te.scan(init, update, state)
    x = np.random.default_rng(2).integers(-3, 4, (5, 5)).astype("int32")
    want = [x[0]]
    for t in range(1, 5):
        want.append(2 * want[-1] + x[t])
    np.testing.assert_array_equal(run([result], x)[0], want)
    check_schedule(te.create_schedule(result.op), [X, result], sizes={"n": 5})


def _state(shape: Any = (8, 4), dtype: str = "float32") -> Any:
    return te.placeholder(shape, dtype, name="state")


def _zeros(shape: Any, dtype: str = "float32") -> Any:
    return te.compute(shape, lambda *i: te.const(0, dtype), name="init")


def _step(state: Any, shape: Any = (8, 4), back: int = 1) -> Any:
    return te.compute(shape, lambda *i: state(i[0] - back, *i[1:]), name="update")


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no tensor": (lambda: te.scan(cast(Any, 1), _step(_state()), _state()), "init of scan must be tensors, got 1"),
    "counts": (
        lambda: te.scan([_zeros((1, 4))] * 2, [_step(_state())], [_state()]),
        "one init, one update and one placeholder per state, got 2, 1, 1",
    ),
    "no placeholder": (
        lambda: te.scan(_zeros((1, 4)), _step(_state()), _zeros((8, 4))),
        "the state of scan must be a te.placeholder",
    ),
    "no compute": (lambda: te.scan(_zeros((1, 4)), _state(), _state()), "the update of scan must be a te.compute"),
    "update shape": (
        lambda: te.scan(_zeros((1, 4)), _step(_state(), (7, 4)), _state()),
        r"update update of scan has shape \(7, 4\); the state state needs \(8, 4\)",
    ),
    "init shape": (
        lambda: te.scan(_zeros((1, 3)), _step(s := _state()), s),
        r"init init of scan has shape \(1, 3\); the state state needs \(k, 4\)",
    ),
    "dtypes": (
        lambda: te.scan(_zeros((1, 4), "int32"), _step(s := _state()), s),
        "state is float32, its init int32 and its update float32; cast them",
    ),
    "too many first values": (
        lambda: te.scan(_zeros((9, 4)), _step(s := _state()), s),
        "scan has 9 first values for 8 time steps",
    ),
    "no time": (
        lambda: te.scan(_zeros(()), te.compute((), lambda: 1.0), te.placeholder((), name="state")),
        "state of scan has no time axis",
    ),
    "the time that is computed": (
        lambda: te.scan(_zeros((1, 4)), _step(s := _state(), back=0), s),
        r"update reads the state state\[i0, i1\] of scan, which is not computed before it; read an earlier time",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_scans_are_refused(case: str) -> None:
    make, text = WRONG[case]
    with pytest.raises(DefinitionError, match=text):
        make()


def test_first_values_of_the_state_itself_are_refused() -> None:
    state = _state()
    init = te.compute((1, 4), lambda t, i: state[0, i], name="init")
    with pytest.raises(DefinitionError, match="the init init of scan depends on a state"):
        te.scan(init, _step(state), state)


def test_a_stage_without_time_is_refused() -> None:
    state = _state()
    total = te.compute((4,), lambda i: state[0, i], name="total")
    update = te.compute((8, 4), lambda t, i: total[i], name="update")
    with pytest.raises(
        DefinitionError, match=r"total depends on a state of scan, .* must be time, of extent 8; its sh"
    ):
        te.scan(_zeros((1, 4)), update, state)


def test_an_extern_stage_inside_is_refused() -> None:
    state = _state()
    copied = te.extern((8, 4), [state], lambda a, b: None, name="copied")
    update = te.compute((8, 4), lambda t, i: copied[t, i], name="update")
    with pytest.raises(DefinitionError, match=r"copied depends on a state of scan, so it must be a te.compute"):
        te.scan(_zeros((1, 4)), update, state)


def test_a_reduction_of_tuples_inside_is_refused() -> None:
    state = _state()
    first = te.comm_reducer(lambda x, y: (te.min(x[0], y[0]), x[1] + y[1]), lambda a, b: (9.0, 0.0), name="both")
    k = te.reduce_axis((0, 4), "k")
    pair = te.compute((8, 4), lambda t, i: first((state[t - 1, k], state[t - 1, i]), axis=k), name="pair")
    update = te.compute((8, 4), lambda t, i: pair[0][t, i], name="update")
    with pytest.raises(DefinitionError, match=r"pair reduces tuples \(both\), which runs as one step"):
        te.scan(_zeros((1, 4)), update, state)


def test_two_states_with_one_update_are_refused() -> None:
    a, b = _state(), _state()
    update = te.compute((8, 4), lambda t, i: a[t - 1, i] + b[t - 1, i], name="update")
    with pytest.raises(DefinitionError, match="two states of scan have one update; give each its own"):
        te.scan([_zeros((1, 4))] * 2, [update, update], [a, b])


def test_states_of_different_lengths_are_refused() -> None:
    a, b = _state((8, 4)), _state((6, 4))
    with pytest.raises(DefinitionError, match="the states of scan have different numbers of time steps"):
        te.scan([_zeros((1, 4))] * 2, [_step(a), _step(b, (6, 4))], [a, b])


def test_a_read_before_the_first_value_is_refused() -> None:
    state = _state()
    result = te.scan(_zeros((1, 4)), _step(state, back=2), state)
    with pytest.raises(DefinitionError, match=r"scan reads scan\[i0 - 2, i1\] outside scan of shape"):
        te.create_schedule(result.op)
    late = te.compute((8, 4), lambda t, i: state[te.min(t + 1, 7), i], name="late")
    with pytest.raises(DefinitionError, match=r"scan: S1\[1, 0\] reads scan\[2, 0\] before anything wrote it"):
        te.create_schedule(te.scan(_zeros((1, 4)), late, state).op)


@pytest.mark.parametrize("inside", [False, True])
def test_what_a_scan_reads_is_cached(inside: bool) -> None:
    X, W = te.placeholder((6, 8), name="X"), te.placeholder((8, 8), name="W")
    state, k = te.placeholder((6, 8), name="state"), te.reduce_axis((0, 8), "k")
    init = te.compute((1, 8), lambda _, i: X[0, i], name="init")
    turned = te.compute((6, 8), lambda t, i: te.sum(state[t - 1, k] * W[i, k], axis=k), name="turned")
    made = te.scan(init, te.compute((6, 8), lambda t, i: turned[t, i] + X[t, i], name="next"), state, inputs=[X])
    s = te.create_schedule(made.op)
    copy = s.cache_read(W, "local", [turned])
    if inside:
        s[copy].compute_at(s[turned], turned.op.axis[1])
    x, w = (np.random.default_rng(n).integers(-2, 3, (m, 8)).astype(np.float32) for n, m in ((0, 6), (1, 8)))
    wanted = [x[0]]
    for row in x[1:]:
        wanted.append(w @ wanted[-1] + row)
    for target in ("llvm", "interpreter"):
        out = np.zeros((6, 8), np.float32)
        tensorlang.build(s, [X, W, made], target=target)(x, w, out)
        np.testing.assert_array_equal(out, wanted)
    assert "W.local[i, k]" in str(tensorlang.lower(s, [X, W, made])) or inside
