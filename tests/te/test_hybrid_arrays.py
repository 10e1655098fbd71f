"""te.hybrid.script: scalars, arrays, updates, and what a script is called with."""

from __future__ import annotations

import builtins
from typing import Any

import ml_dtypes
import numpy as np

from tensorlang import te
from tensorlang.ir.stmt import Allocate, If, Store
from tensorlang.ir.stmt import walk as walk_stmt
from tensorlang.te.hybrid import Script, allocate, serial
from tensorlang.te.operation import HybridOp, Tensor
from tensorlang.te.program import canonical
from tensorlang.te.reference import evaluate
from tests.te.hybrid_runs import agree, as_program, as_python, declare, floats, op_of, whole

FACTOR = 3
HALF = 0.5
WEIGHTS = (1, 4, 6, 4, 1)
ENABLED = True


# Scalars and arrays


@te.hybrid.script
def dot(a: Any, b: Any) -> Any:
    c = te.output_tensor((1,), a.dtype)
    total = 0.0
    for i in range(len(a)):
        total = total + a[i] * b[i]
    c[0] = total
    return c


@te.hybrid.script
def counters(a: Any) -> Any:
    c = te.output_tensor((4,), "int32")
    found = False
    positive = 0
    place = -1
    mean = 0
    for i in range(len(a)):
        if a[i] > 0:
            positive += 1
            if not found:
                place = i
            found = True
        mean += i / 2  # type: ignore[assignment]
    c[0] = positive
    c[1] = place
    c[2] = te.cast(found, "int32")
    c[3] = te.cast(mean * 2, "int32")
    return c


@te.hybrid.script
def names_of_values(a: Any) -> Any:
    n, m = a.shape
    shape = (m, n)
    c = te.output_tensor(shape, a.dtype)
    for i in range(n):
        last = n - 1 - i
        inside = i > 0 and last > 0
        for j in range(m):
            value = a[last, j]
            if inside:
                value *= 2
            twice = value + value
            c[j, i] = twice
    return c


@te.hybrid.script
def local_arrays(a: Any) -> Any:
    n, m = a.shape
    c = te.output_tensor((n,), a.dtype)
    sums = te.allocate((n + 1, 2), a.dtype)
    for i in range(n):
        row = allocate((m,), a.dtype, scope="local")
        for j in range(m):
            row[j] = a[i, j] + j
        sums[i][0] = 0
        sums[i, 1] = 1
        for j in range(m):
            sums[i, 0] += row[m - 1 - j]
    for i in range(n):
        c[i] = sums[i, 0] * sums[i][1]
    return c


@te.hybrid.script
def recurrence(a: Any) -> Any:
    c = te.output_tensor(a.shape, a.dtype)
    state = a[0]
    for i in range(len(a)):
        old = state
        state = HALF * (old + a[i])
        c[i] = state
    return c


def test_scalars_and_arrays() -> None:
    for dtype in ("float32", "float64", "float16", "int32", "int8"):
        agree(dot, a=floats(6, dtype=dtype), b=floats(6, dtype=dtype))
    agree(counters, a=floats(9))
    agree(names_of_values, a=floats(4, 5))
    agree(local_arrays, a=floats(4, 5))
    agree(recurrence, a=floats(6))


def test_a_local_that_begins_as_a_literal_has_the_dtype_of_what_it_holds() -> None:
    def local(script: Script, **arguments: Any) -> list[str]:
        allocations = [s.buffer for s in walk_stmt(op_of(script, **arguments).body) if isinstance(s, Allocate)]
        return [f"{b.name} {b.dtype}" for b in allocations]

    assert local(dot, a=floats(3, dtype="float16"), b=floats(3, dtype="float64")) == ["total float64"]
    assert local(dot, a=whole(3), b=whole(3)) == ["total float32"]
    assert local(counters, a=floats(3))[:4] == ["found bool", "positive int64", "place int64", "mean float64"]


def test_what_reads_no_array_is_no_array_itself() -> None:
    op = op_of(names_of_values, a=floats(4, 5))
    assert [s.buffer.name for s in walk_stmt(op.body) if isinstance(s, Allocate)] == ["value", "twice"]
    assert [str(s.cond) for s in walk_stmt(op.body) if isinstance(s, If)] == ["i > 0 and 3 - i > 0"]


def test_bfloat16() -> None:
    agree(dot, a=floats(6).astype(ml_dtypes.bfloat16), b=floats(6).astype(ml_dtypes.bfloat16))


# Updates, several outputs


@te.hybrid.script
def seidel(a: Any, steps: Any) -> None:
    n = len(a)
    for _t in range(steps):
        for i in range(1, n - 1):
            a[i] = a[i - 1] + a[i] + a[i + 1]


@te.hybrid.script(name="swapped")
def swap(a: Any, b: Any) -> Any:
    for i in range(len(a)):
        x = a[i]
        a[i] = b[i]
        b[i] = x
    return b, a


@te.hybrid.script
def divided(a: Any, b: Any) -> Any:
    """Quotients and remainders, and the largest divisor in place."""
    assert len(a) == len(b), "one divisor each"
    q = te.output_tensor(a.shape, a.dtype)
    r = te.output_tensor(a.shape, a.dtype)
    for i in range(len(a)):
        q[i] = a[i] // b[i]
        r[i] = a[i] % b[i]
        b[0] = max(b[0], b[i])
    return r, q


def test_updates_in_place_and_several_outputs() -> None:
    agree(seidel, a=floats(7), steps=3)
    agree(swap, a=floats(5), b=floats(5) + 1)
    agree(divided, a=whole(9, high=40), b=whole(9, high=6) + 1)
    first, second = declare(swap, {"a": floats(5), "b": floats(5)}, symbolic=False)[1]
    op = first.op
    assert isinstance(op, HybridOp) and op.name == "swapped" and second.op is op
    assert [b.name for b in op.outputs] == ["b", "a"]
    assert [t.name for t in op.updates if isinstance(t, Tensor)] == ["b", "a"]
    third = declare(divided, {"a": whole(9), "b": whole(9)}, symbolic=False)[1]
    assert [b.name for b in third[0].op.outputs] == ["r", "q", "b"]  # type: ignore[union-attr]
    assert len(third) == 2


def test_arrays_are_updated_in_place_by_plain_python() -> None:
    a = floats(7)
    before = a.copy()
    assert seidel(a, 2) is a
    assert not np.array_equal(a, before)


def test_a_reduction_keeps_its_structure() -> None:
    @te.hybrid.script
    def sums(a: Any) -> Any:
        c = te.output_tensor((len(a),), a.dtype)
        for i in range(len(a)):
            c[i] = 0
            c[i] += a[i]
            c[i] = a[i] + c[i]
        return c

    stores = [s for s in walk_stmt(op_of(sums, a=floats(3)).body) if isinstance(s, Store)]
    assert [str(s.value) for s in stores[1:]] == ["c[i] + a[i]", "a[i] + c[i]"]
    agree(sums, a=floats(3))


def test_names_of_an_outer_function_are_constants() -> None:
    count, scale = 3, np.float64(0.1)

    @te.hybrid.script
    def scaled(a: Any) -> None:
        for _repeat in range(count):
            for i in range(len(a)):
                a[i] = a[i] * scale

    agree(scaled, a=floats(4, dtype="float64"))
    count = 2
    agree(scaled, a=floats(4, dtype="float64"))


def test_scalars_as_arguments() -> None:
    @te.hybrid.script
    def axpy(alpha: Any, x: Any, y: Any, shift: int = 2) -> Any:
        z = te.output_tensor(y.shape, y.dtype)
        for i in range(len(y)):
            z[i] = alpha * x[i] + y[i] + shift
        return z

    x, y = floats(4), floats(4) + 1
    agree(axpy, alpha=2.5, x=x, y=y)
    agree(axpy, alpha=np.float32(0.3), x=x, y=y, shift=1)
    agree(axpy, alpha=np.array(0.3, "float32"), x=x, y=y)
    tensors = te.placeholder((4,), name="x"), te.placeholder((4,), name="y")
    program = str(axpy(te.const(2, "float32"), *tensors).op.body)
    assert "2.0" in program


def test_sizes_as_arguments() -> None:
    @te.hybrid.script
    def table(n: Any, m: Any, a: Any) -> Any:
        t = te.output_tensor((n, m + 1), "float64")
        for i in range(n):
            for j in range(i, m + 1):
                t[i, j] = i * j / n + a[0]
        return t

    n, m = te.var("n"), te.var("m", "int64")
    a = te.placeholder((1,), "float64", name="a")
    made = table(n, m * 2, a)
    assert [str(e) for e in made.shape] == ["n", "m * 2 + 1"] and made.shape[0].dtype == "int32"
    program, _ = canonical([made])
    (got,) = evaluate(program, {"a": np.ones(1)}, {"n": 3, "m": 2}).values()
    np.testing.assert_array_equal(got, table(3, 4, np.ones(1)))


def test_a_script_of_computed_tensors() -> None:
    a = te.placeholder((6,), name="a")
    b = te.compute((6,), lambda i: a[i] * 2, name="b")
    c = recurrence(b)
    d = te.compute((6,), lambda i: c[i] + 1, name="d")
    program, _ = canonical([d])
    x = floats(6)
    (got,) = evaluate(program, {"a": x}).values()
    np.testing.assert_array_equal(got, recurrence(x * np.float32(2)) + np.float32(1))


def test_a_script_takes_the_tag_of_the_scope_around() -> None:
    with te.tag_scope("smoothing"):
        tagged = seidel(te.placeholder((6,), name="a"), 1)
    assert tagged.op.tag == "smoothing"
    assert tagged.op.location.file == __file__


def test_a_script_is_described_by_its_function() -> None:
    assert divided.__name__ == "divided" and (divided.__doc__ or "").startswith("Quotients")
    assert str(divided.signature) == "(a, b)"
    assert recurrence.name == "recurrence"
    assert serial(3) == builtins.range(3)


def test_shadowed_builtins_are_what_the_user_made_them() -> None:
    max = 7  # noqa: A001

    @te.hybrid.script
    def shadowed(a: Any) -> None:
        for i in range(len(a)):
            a[i] += max

    agree(shadowed, a=floats(3))


def test_runs_without_arrays_are_asked_for() -> None:
    @te.hybrid.script
    def squares(n: Any) -> Any:
        c = te.output_tensor((n,), "int32")
        for i in range(n):
            c[i] = i * i
        return c

    np.testing.assert_array_equal(squares.run(4), [0, 1, 4, 9])
    assert isinstance(squares(4), Tensor)
    assert as_python(squares, {"n": 4})[0].tolist() == as_program(squares, {"n": 4})[0].tolist()


def test_names_mean_on_arrays_what_they_mean_at_the_time() -> None:
    function: Any = te.sqrt
    offset = 1.0

    @te.hybrid.script
    def changed(a: Any) -> None:
        for i in range(len(a)):
            a[i] = function(a[i]) + offset

    def run() -> list[float]:
        return list(map(float, changed.run(np.array([4.0, 16.0]))[0:2]))

    assert run() == run() == [3.0, 5.0]
    offset = 2.0
    assert run() == [4.0, 6.0]
    function = te.floor
    assert run() == [6.0, 18.0]
    function = te.sqrt
    assert run() == [4.0, 6.0]
