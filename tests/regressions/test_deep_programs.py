"""Programs of thousands of operations in one expression: once they overflowed Python's stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te
from tensorlang.errors import BadArgument, DefinitionError, TensorlangError
from tensorlang.ir.expr import same
from tensorlang.te.program import canonical
from tensorlang.te.reference import evaluate
from tests.device_targets import needs_opencl

SIZE = 8
Body = Callable[[te.Tensor, Any], Any]


def chain(A: te.Tensor, i: Any, operations: int = 600) -> Any:
    """A[i] * 3 + 1, again and again."""
    e = A[i]
    for _ in range(operations // 2):
        e = e * 3 + 1
    return e


def terms(A: te.Tensor, i: Any, count: int = 400) -> Any:
    """A sum of products, written out."""
    e = A[i] * A[0]
    for k in range(1, count):
        e = e + A[i + k % 8] * A[k % 8]
    return e


def choices(A: te.Tensor, i: Any, count: int = 90) -> Any:
    """Choices inside choices; each reads another element."""
    e = A[i]
    for k in range(count):
        e = te.if_then_else(A[i + k % 8] > k / count, A[i + k % 5] * k, e)
    return e


def clamps(A: te.Tensor, i: Any, count: int = 200) -> Any:
    """Minima of maxima."""
    e = A[i]
    for k in range(count):
        e = te.min(te.max(e, k / count - 1), 2 - k / count)
    return e


def far(A: te.Tensor, i: Any, count: int = 1000) -> Any:
    """One element, at an index of many operations."""
    at = i
    for _ in range(count):
        at = at + 1
    return A[at - count]


def conditions(A: te.Tensor, i: Any, count: int = 400) -> Any:
    """One choice, by a condition of many parts."""
    c = A[i] > 0
    for k in range(count):
        c = te.all(c, i > -1 - k) if k % 2 else te.any(c, A[i] < -k)
    return te.if_then_else(c, A[i], 0.0)


BODIES: list[Body] = [chain, terms, choices, clamps, far, conditions]


def declared(body: Body, dtype: str = "float32") -> tuple[te.Tensor, te.Tensor]:
    """A program of one stage B over A."""
    A = te.placeholder((2 * SIZE,), dtype, name="A")
    return A, te.compute((SIZE,), lambda i: body(A, i), name="B")


def check(args: tuple[te.Tensor, te.Tensor], schedule: Any, target: str) -> None:
    """Compare what runs with the reference."""
    A, B = args
    draw = np.random.default_rng(0)
    wide = draw.integers(-9, 9, 2 * SIZE) if A.dtype == "int32" else draw.uniform(-1, 1, 2 * SIZE)
    a, out = wide.astype(A.dtype), np.zeros(SIZE, B.dtype)
    tensorlang.build(schedule, [A, B], target=target)(a, out)
    with np.errstate(all="ignore"):
        (wanted,) = evaluate(canonical([B])[0], {"A": a}).values()
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["llvm", "interpreter"])
@pytest.mark.parametrize("body", BODIES)
def test_deep_bodies_run(body: Body, target: str) -> None:
    args = declared(body)
    check(args, te.create_schedule(args[1].op), target)


def test_five_thousand_integer_operations_wrap_as_they_should() -> None:
    args = declared(lambda A, i: chain(A, i, 5000), "int32")
    check(args, te.create_schedule(args[1].op), "llvm")


@pytest.mark.parametrize("body", [terms, choices])
def test_deep_bodies_run_in_lanes(body: Body) -> None:
    args = declared(body)
    s = te.create_schedule(args[1].op)
    s[args[1]].vectorize(args[1].op.axis[0])
    check(args, s, "llvm")


def on_threads(B: te.Tensor) -> Any:
    """A schedule for a GPU."""
    s = te.create_schedule(B.op)
    block, thread = s[B].split(B.op.axis[0], 4)
    s[B].bind(block, te.thread_axis("blockIdx.x"))
    s[B].bind(thread, te.thread_axis("threadIdx.x"))
    return s


@needs_opencl
@pytest.mark.parametrize("body", [chain, choices])
def test_deep_bodies_run_on_opencl(body: Body) -> None:
    args = declared(body)
    check(args, on_threads(args[1]), "opencl")


def test_c_nests_no_deeper_than_compilers_take() -> None:
    A, B = declared(lambda A, i: chain(A, i, 600), "int32")
    depth = deepest = 0
    for letter in tensorlang.build(on_threads(B), [A, B], target="cuda").source("cuda"):
        depth += (letter in "([{") - (letter in ")]}")
        deepest = max(deepest, depth)
    assert 0 < deepest < 200


def test_a_read_that_is_proven_is_not_tested_again_under_guards_that_read() -> None:
    A, B = declared(lambda A, i: te.if_then_else(A[i] > 0, A[i + 1], te.if_then_else(A[i] < -1, A[i], 0.0)))
    assert "fail" not in str(tensorlang.lower(te.create_schedule(B.op), [A, B]))
    A, B = declared(lambda A, i: te.if_then_else(A[i] > 0, A[i + 9], 0.0))
    assert "fail" in str(tensorlang.lower(te.create_schedule(B.op), [A, B]))


def doubled(A: te.Tensor, i: Any) -> Any:
    """A sum of 2**60 terms."""
    e = A[i]
    for _ in range(60):
        e = e + e
    return e


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (doubled, "B is made of more than 10^18 operations"),
        (lambda A, i: chain(A, i, 7000), "B is made of operations nested 7,002 deep, and at most 6,000 levels"),
        (lambda A, i: te.sum(doubled(A, i), axis=te.reduce_axis((0, 4))), "more than 10^18 operations"),
    ],
)
def test_what_cannot_be_compiled_is_refused_when_it_is_declared(body: Body, words: str) -> None:
    with pytest.raises(DefinitionError, match="made of") as refused:
        declared(body)
    assert words in str(refused.value) and "te.compute of its own" in str(refused.value)


def test_inlining_that_grows_each_time_is_refused_in_time() -> None:
    stages = [te.placeholder((SIZE,), name="A")]
    for k in range(8):
        stages.append(te.compute((SIZE,), lambda i, p=stages[-1]: te.sum(*[p[i]] * 10), name=f"S{k}"))
    s = te.create_schedule(stages[-1].op)
    with pytest.raises(BadArgument, match=r"S\d+ with S\d+ inlined is made of [\d,]+ operations"):
        for stage in stages[1:-1]:
            s[stage].compute_inline()


def test_sums_of_many_terms_have_derivatives() -> None:
    A, B = declared(lambda A, i: terms(A, i, 60))
    (made,) = te.gradient(B, [A])
    assert same(made.shape[0], B.shape[0])
    A, B = declared(lambda A, i: clamps(A, i, 300))
    with pytest.raises(TensorlangError, match="the derivative is made of"):
        te.gradient(B, [A])


SCRIPT = """
from tensorlang import te

@te.hybrid.script
def sums(A):
    B = te.output_tensor((8,), "float32")
    for i in range(8):
        B[i] = {value}
    return B
"""


def script(folder: Any, value: str) -> Any:
    """A script of one store, in a file of its own."""
    path = folder / "sums.py"
    path.write_text(SCRIPT.format(value=value))
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names["sums"]


def test_scripts_have_lines_of_many_terms(tmp_path: Any) -> None:
    A = te.placeholder((2 * SIZE,), name="A")
    B = script(tmp_path, " + ".join(f"A[i + {k % 8}]" for k in range(700)))(A)
    check((A, B), te.create_schedule(B.op), "llvm")


def test_scripts_that_nest_too_deep_say_so(tmp_path: Any) -> None:
    A = te.placeholder((2 * SIZE,), name="A")
    value = " if A[i] > 0 else ".join(f"{k}.0" for k in range(400))
    with pytest.raises(DefinitionError, match="nests too deep for Python; name parts of it"):
        script(tmp_path, value)(A)
