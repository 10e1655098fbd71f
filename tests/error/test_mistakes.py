"""What users write by mistake, as a table: each message says what was got, what is wanted, and what to do instead."""

from __future__ import annotations

import math
import math as m
from collections.abc import Callable
from functools import cache
from math import sqrt as root
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import autotune, te, topi
from tensorlang.runtime.executable import Executable
from tensorlang.te.operation import Tensor

A, B = te.placeholder((16, 16), name="A"), te.placeholder((16, 16), name="B")
x = te.placeholder((16,), name="x")
n = te.var("n")
k = te.reduce_axis((0, 16), "k")
C = te.compute((16, 16), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
D = te.compute((16, 16), lambda i, j: C[i, j] * 2, name="D")
FULL, HALF = np.zeros((16, 16), "float32"), np.zeros((8, 16), "float32")
Mistake = Callable[[], object]


def element(body: Callable[[Any], Any]) -> Mistake:
    """A tensor of 16 elements that a function gives."""
    return lambda: te.create_schedule(te.compute((16,), body, name="Z").op)


def step(body: Callable[[Any], object]) -> Mistake:
    """A step of a new schedule of D."""
    return lambda: body(te.create_schedule(D.op))


@cache
def kernel() -> Executable:
    made: Executable = tensorlang.build(te.create_schedule(D.op), [A, B, D], target="interpreter")
    return made


def call(*given: Any, **named: Any) -> Mistake:
    return lambda: kernel()(*given, **named)


def conditional(i: Any) -> Any:
    if x[i] > 0:
        return x[i]
    return 0.0


def counted(i: Any) -> Any:
    total = x[i]
    for step_ in range(n):
        total = total + step_
    return total


EXPRESSIONS: dict[str, tuple[Mistake, tuple[str, ...]]] = {
    "np.exp": (element(lambda i: np.exp(x[i])), ("np.exp computes numbers", "use te.exp")),
    "np.maximum": (element(lambda i: np.maximum(x[i], 0)), ("np.maximum computes numbers", "use te.maximum")),  # type: ignore[call-overload]
    "np.where": (element(lambda i: np.where(x[i] > 0, x[i], 0)), ("np.where computes arrays", "te.if_then_else")),  # type: ignore[call-overload]
    "np.clip": (element(lambda i: np.clip(x[i], 0, 1)), ("np.clip computes arrays", "topi.clip")),  # type: ignore[call-overload]
    "np.dot": (lambda: np.dot(A, B), ("np.dot computes arrays", "use topi.matmul")),  # type: ignore[call-overload]
    "np.sum": (lambda: np.sum(A), ("np.sum computes arrays", "use te.sum")),  # type: ignore[call-overload]
    "np.mean": (lambda: np.mean(A), ("np.mean computes arrays", "use topi.mean")),  # type: ignore[call-overload]
    "np.concatenate": (lambda: np.transpose(A), ("np.transpose computes arrays", "topi.transpose")),  # type: ignore[call-overload]
    "math.sqrt": (element(lambda i: math.sqrt(x[i])), ("math.sqrt computes numbers", "use te.sqrt(x[i])")),
    "math.trunc": (element(lambda i: math.trunc(x[i])), ("math.trunc() computes numbers", "use te.trunc")),
    "an index that is asked for": (
        element(lambda i: 1 if i == 0 else 2),
        ("no truth value", "te.if_then_else(i == 0,"),
    ),
    "an element that is asked for": (element(lambda i: 1 if x[i] != 1 else 2), ("te.if_then_else(x[i] != 1, a, b)",)),
    "an index of a recurrence": (
        lambda: te.recurrence((4,), lambda y, i: FULL[i, 0] + y[i - 1], name="y"),
        ("FULL holds values",),
    ),
    "math.exp": (element(lambda i: math.exp(x[i])), ("math.exp computes numbers", "use te.exp(x[i])")),
    "math.pow": (element(lambda i: math.pow(x[i], 2)), ("math.pow computes numbers", "use te.power(x[i], 2)")),
    "math.fabs": (element(lambda i: math.fabs(x[i])), ("math.fabs computes numbers", "use te.abs(x[i])")),
    "math.fmod": (element(lambda i: math.fmod(x[i], 2)), ("math.fmod computes numbers", "use te.fmod(x[i], 2)")),
    "math.log": (element(lambda i: math.log(x[i], 2)), ("math.log computes", "use te.log(x[i]) / math.log(2)")),
    "a base of math.log": (element(lambda i: math.log(2, x[i])), ("math.log", "use math.log(2) / te.log(x[i])")),
    "math.degrees": (element(lambda i: math.degrees(x[i])), ("math.degrees", "; write it with the functions of te")),
    "math.isqrt": (element(lambda i: math.isqrt(i * 2)), ("math.isqrt", "; write it with the functions of te")),
    "math by a name": (element(lambda i: m.sqrt(x[i])), ("m.sqrt computes numbers", "use te.sqrt(x[i])")),
    "a name of math": (element(lambda i: root(x[i])), ("root computes numbers", "use te.sqrt(x[i])")),
    "np.linalg": (lambda: np.linalg.norm(A), ("np.linalg.norm computes", "; write it with the functions of te")),  # type: ignore[call-overload]
    "np.percentile": (lambda: np.percentile(A, 5), ("np.percentile", "; write it with the functions of te")),  # type: ignore[call-overload]
    "values": (element(lambda i: FULL[i + 1, 0]), ("FULL holds values", "declare the array as te.placeholder")),
    "rows of values": (element(lambda *at: HALF[0][at]), ("HALF[0] holds values", "declare the array as")),
    "max": (element(lambda i: max(x[i], 0)), ("no truth value", "use te.maximum(x[i], 0) instead of max()")),
    "min": (element(lambda i: min(x[i], 0)), ("no truth value", "use te.minimum(x[i], 0) instead of min()")),
    "a chain": (element(lambda i: te.select(0 < x[i] < 1, 1, 0)), ("no truth value", "te.all(0 < x[i], x[i] < 1)")),
    "and": (element(lambda i: te.select(x[i] > 0 and i < 9, 1, 0)), ("no truth", "te.all(x[i] > 0, i < 9)")),
    "or": (element(lambda i: te.select(x[i] > 0 or i < 9, 1, 0)), ("no truth", "te.any(x[i] > 0, i < 9)")),
    "not": (element(lambda i: te.select(not x[i] > 0, 1, 0)), ("no truth value", "use ~(x[i] > 0)")),
    "if, else": (element(lambda i: x[i] if x[i] > 0 else 0), ("no truth", "te.if_then_else(x[i] > 0, a, b)")),
    "if": (element(conditional), ("no truth value", "te.if_then_else(x[i] > 0, a, b)")),
    "any": (element(lambda i: te.select(any([x[i] > 0]), 1, 0)), ("no truth value", "te.any")),
    "sum": (element(lambda i: sum(A[i, k])), ("sum() goes over numbers", "te.sum(..., axis=k)")),
    "range": (element(counted), ("range() counts to a number, not to an expression", "te.reduce_axis((0, n))")),
    "a loop": (lambda: list(x), ("a loop goes over elements", "te.compute(shape, lambda i: ...)")),
    "in": (element(lambda i: te.select(3 in x, 1, 0)), ("`in` asks for elements", "te.any(a == 1, a == 2)")),
    "float": (element(lambda i: float(x[i])), ("a float is wanted, and this is an expression", ".astype('float32')")),
    "int": (element(lambda i: int(x[i])), ("an int is wanted, and this is an expression", ".astype('int32')")),
    "abs": (element(lambda i: abs(x[i])), ("abs() computes numbers", "use te.abs")),
    "round": (element(lambda i: round(x[i])), ("round() computes numbers", "use te.round")),
    "a power": (element(lambda i: x[i] ** 2), ("** computes numbers", "use te.power, or a product")),
    "a base": (element(lambda i: 2 ** x[i]), ("** computes numbers", "use te.power")),
    "@": (lambda: A @ B, ("@ multiplies matrices of numbers", "use topi.matmul(A, B)")),
    "an assignment": (lambda: A.__setitem__((0, 0), 1.0), ("elements are not assigned", "te.compute")),
    "an integer by /": (element(lambda i: i / 2), ("/ on integers is ambiguous (i / 2)", "use // (floordiv)")),
    "exp of an integer": (
        element(lambda i: te.exp(i * 2)),
        ("got int32 (i * 2)", "x.astype('float32')"),
    ),
    "a number as a test": (element(lambda i: te.select(x[i], 1, 0)), ("bool, got float32 (x[i])", "as in x[i] > 0")),
    "a word": (element(lambda i: te.exp("m")), ("got str 'm'", "te.var('m') is a size")),  # type: ignore[arg-type]
    "an array": (element(lambda i: te.exp(np.ones(3))), ("got ndarray", "te.placeholder((3,))")),  # type: ignore[arg-type]
}
DEFINITIONS: dict[str, tuple[Mistake, tuple[str, ...]]] = {
    "few indices": (element(lambda i: A[i]), ("A has 2 dimensions, indexed with 1", "give 2, as in A[i0, i1]")),
    "many indices": (element(lambda i: x[i, i]), ("x has 1 dimensions, indexed with 2", "give 1, as in x[i0]")),
    "an index of words": (element(lambda i: x["i"]), ("x is indexed with ('i',)", "one that the function takes")),
    "a slice": (element(lambda i: x[1:3]), ("x is indexed with (slice(1, 3, None),)", "one that the function takes")),
    "a float index": (element(lambda i: x[0.5]), ("indexed with 0.5 of dtype float32", "cast it to an integer")),
    "outside": (element(lambda i: x[i + 1]), ("Z reads x[i + 1] outside x of shape (16)", "te.if_then_else")),
    "an arity": (lambda: te.compute((16, 16), lambda i: x[i]), ("takes 1 indices (i)", "write lambda i, j: ...")),
    "no function": (lambda: te.compute((16,), 3), ("as in lambda i: A[i] * 2", "got 3")),  # type: ignore[call-overload]
    "no return": (element(lambda i: None), ("Z must compute an expression, got None", "lacks a return")),
    "a text": (element(lambda i: "a b"), ("Z must compute an expression", "got str 'a b'", "A[i] * 2 + i")),
    "a sum in a term": (element(lambda i: te.sum(A[i, k], axis=k) + 1), ("be the whole value", "its own te.compute")),
    "a sum without axes": (element(lambda i: te.sum(A[i, k])), ("needs axis=", "te.reduce_axis((0, n))")),
    "a sum of a tensor": (lambda: te.sum(A), ("of elements over reduce axes, got Tensor", "topi.sum(A, axis=1)")),
    "an axis of words": (element(lambda i: te.sum(A[i, k], axis="k")), ("axis 'k'", "te.sum(A[i, k], axis=k)")),
    "a free reduce axis": (element(lambda i: A[i, k]), ("Z uses k, which is neither", "te.sum(..., axis=k)")),
    "a named extent": (lambda: te.placeholder(("m",)), ("must be an integer, got 'm'", "te.var('m') is a size")),  # type: ignore[arg-type]
    "a shape of words": (lambda: te.placeholder("16"), ("must be an integer, got '16'", "give the number")),  # type: ignore[arg-type]
    "half an extent": (lambda: te.placeholder((4.5,)), ("must be an integer, got 4.5", "int(...) or //")),
    "an extent of None": (lambda: te.placeholder((None, 3)), ("must be an integer, got None", "te.var")),  # type: ignore[arg-type]
    "below zero": (lambda: te.placeholder((-4,)), ("is -4", "zero or more")),
    "a dtype": (lambda: te.placeholder((4,), "float23"), ("unknown dtype 'float23'", "did you mean float32?")),
    "a range": (lambda: te.reduce_axis(16), ("must be (lower, upper), got 16", "te.reduce_axis((0, 16))")),  # type: ignore[arg-type]
    "a name": (lambda: te.var("a b"), ("letters, digits and _", "got 'a b'")),
    "no operation": (lambda: te.create_schedule(5), ("expected tensors or their operations, got 5", "(C.op)")),  # type: ignore[arg-type]
    "an array for a tensor": (lambda: topi.softmax(FULL), ("takes a tensor for x, got ndarray", "te.placeholder")),  # type: ignore[arg-type]
    "a product": (lambda: topi.matmul(A, x), ("wants a[m, k] and b[k, n]", "got Tensor", "transpose_b=True")),
    "a reshape": (lambda: topi.reshape(A, (7, 7)), ("256 elements does not fill the shape (7, 7) of 49", "-1")),
    "channels": (
        lambda: topi.conv2d(te.placeholder((1, 3, 8, 8)), te.placeholder((4, 5, 3, 3))),
        ("conv2d of 3 channels", "weights of 3 input channels", "got 5 and 4"),
    ),
    "an operator": (lambda: autotune.create_task("matmull", (8, 8, 8)), ("'matmull'", "did you mean matmul?")),
    "no task": (lambda: autotune.tune("matmul"), ("tune takes a task, got 'matmul'", "create_task(")),  # type: ignore[arg-type]
}
NAMES: dict[str, tuple[Mistake, tuple[str, ...]]] = {
    "te.expp": (lambda: te.expp, ("has no attribute 'expp'", "did you mean exp?")),  # type: ignore[attr-defined]
    "te.relu": (lambda: te.relu, ("has no attribute 'relu'", "use topi.relu")),  # type: ignore[attr-defined]
    "te.where": (lambda: te.where, ("has no attribute 'where'", "te.select or te.if_then_else")),  # type: ignore[attr-defined]
    "te.float32": (lambda: te.float32, ("has no attribute 'float32'", "dtypes are text")),  # type: ignore[attr-defined]
    "topi.gemm": (lambda: topi.gemm, ("has no attribute 'gemm'", "use topi.matmul")),  # type: ignore[attr-defined]
    "topi.linear": (lambda: topi.linear, ("has no attribute 'linear'", "use topi.dense")),  # type: ignore[attr-defined]
    "topi.soft_max": (lambda: topi.soft_max, ("has no attribute 'soft_max'", "did you mean softmax?")),  # type: ignore[attr-defined]
    "tensorlang.jit": (lambda: tensorlang.jit, ("has no attribute 'jit'", "tensorlang.build(s, args)")),  # type: ignore[attr-defined]
    "tensorlang.array": (lambda: tensorlang.array, ("has no attribute 'array'", "kernels take NumPy arrays")),  # type: ignore[attr-defined]
    "x.sum": (lambda: A.sum, ("has no attribute 'sum'", "use topi.sum(A)")),  # type: ignore[attr-defined]
    "x.T": (lambda: A.T, ("has no attribute 'T'", "use topi.transpose(A)")),  # type: ignore[attr-defined]
    "x.numpy": (lambda: A.numpy, ("has no attribute 'numpy'", "the function that tensorlang.build returns")),  # type: ignore[attr-defined]
    "s.reorder": (step(lambda s: s.reorder("i", "j")), ("has no 'reorder'", "there is s[C].reorder")),
    "vectorise": (step(lambda s: s["C"].vectorise("j")), ("has no 'vectorise'", "use vectorize")),
    "parallelize": (step(lambda s: s["C"].parallelize("i")), ("no 'parallelize'", "did you mean parallel?")),
    "computeAt": (step(lambda s: s["C"].computeAt(s["D"], "i")), ("no 'computeAt'", "did you mean compute_at?")),
    "inline": (step(lambda s: s["C"].inline()), ("has no 'inline'", "use compute_inline")),
    "tiles": (step(lambda s: s["C"].tiles("i", "j", 4, 4)), ("has no 'tiles'", "did you mean tile?")),
    "kernel.benchmark": (lambda: kernel().benchmark, ("no attribute 'benchmark'", "f.time_evaluator()")),  # type: ignore[attr-defined]
    "kernel.asm": (lambda: kernel().asm, ("no attribute 'asm'", "f.source('asm')")),  # type: ignore[attr-defined]
}
STEPS: dict[str, tuple[Mistake, tuple[str, ...]]] = {
    "no factor": (step(lambda s: s["C"].split("i")), ("got neither", "split('i', factor=8)")),
    "two factors": (step(lambda s: s["C"].split("i", 4, 4)), ("got factor 4 and nparts 4", "split('i', factor=4)")),
    "a factor of 0": (step(lambda s: s["C"].split("i", 0)), ("must be at least 1", "got 0")),
    "half a factor": (step(lambda s: s["C"].split("i", 2.5)), ("must be a whole number", "got 2.5")),
    "a keyword": (step(lambda s: s["C"].split("i", by=4)), ("split(", "factor: int", "unexpected keyword", "'by'")),
    "a tail": (step(lambda s: s["C"].split("i", 5, tail="guards")), ("'guards'", "did you mean guard?")),
    "an axis": (step(lambda s: s["C"].unroll("z")), ("no axis 'z' in C", "there are i, j, k")),
    "a stage": (step(lambda s: s["E"]), ("no stage 'E'", "there are A, B, C, D")),
    "an axis twice": (step(lambda s: s["C"].reorder("i", "i")), ("i appears twice", "each once, of i, j, k")),
    "no neighbours": (step(lambda s: s["C"].fuse("i", "k")), ("only neighbours", "the loops are i, j, k")),
    "a parallel sum": (step(lambda s: s["C"].parallel("k")), ("C[0, 0] is updated by two of them", "legal: s['C']")),
    "an output inlined": (step(lambda s: s["D"].compute_inline()), ("D is an output", "legal: T = s.cache_write")),
    "a sum inlined": (step(lambda s: s["C"].compute_inline()), ("C is a reduction", "legal: s['C'].compute_root()")),
    "roles": (step(lambda s: s["D"].compute_at(s["C"], "i")), ("D reads C", "legal: s['C'].compute_at(s['D'], 'i')")),
    "a reader": (step(lambda s: s.cache_read(A, "local", [D])), ("D does not read A", "who does: C")),
    "a scope": (step(lambda s: s.cache_read(A, "sharde", [C])), ("'sharde'", "did you mean shared?")),
    "a thread": (step(lambda s: s["C"].bind("i", "blockidx.x")), ("'blockidx.x'", "did you mean blockIdx.x?")),
    "rfactor": (step(lambda s: s.rfactor(C, "i")), ("needs a reduce axis, and i of C is spatial", "reduce axes: k")),
}
CALLS: dict[str, tuple[Mistake, tuple[str, ...]]] = {
    "no args": (step(tensorlang.build), ("build needs args", "build(s, [A, B, D])")),
    "an input left out": (step(lambda s: tensorlang.build(s, [A, D])), ("lack B", "every input and every output")),
    "a target": (step(lambda s: tensorlang.build(s, [A, B, D], target="lvm")), ("'lvm'", "did you mean 'llvm'?")),
    "too few": (call(FULL), ("takes 3 arguments (A: float32[16, 16]", "got 1")),
    "too many": (call(*[FULL] * 5), ("takes 3 arguments (A: float32[16, 16]", "got 5")),
    "another dtype": (call(FULL.astype("float64"), FULL, FULL), ("float32, got float64", ".astype('float32')")),
    "another shape": (call(HALF, FULL, FULL), ("expected 16 in dimension 0, got 8", "[16, 16] would fit")),
    "a list": (call([1, 2], FULL, FULL), ("expected an array, got list", "np.asarray makes one")),
    "None": (call(FULL, FULL, None), ("expected an array, got NoneType", "np.empty makes one")),
    "by name": (call(A=FULL), ("not by name ('A')", "pass (A, B, D)")),
    "with holes": (call(np.zeros((16, 32), "float32")[:, ::2], FULL, FULL), ("C-contiguous", "ascontiguousarray")),
}
MISTAKES = {**EXPRESSIONS, **DEFINITIONS, **NAMES, **STEPS, **CALLS}


def test_the_table_is_long() -> None:
    tables = EXPRESSIONS, DEFINITIONS, NAMES, STEPS, CALLS
    assert len(MISTAKES) == sum(map(len, tables)) >= 110


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_message_says_what_to_do(mistake: str) -> None:
    wrong, parts = MISTAKES[mistake]
    with pytest.raises((tensorlang.TensorlangError, AttributeError, TypeError)) as caught:
        wrong()
    assert not isinstance(caught.value, tensorlang.errors.InternalError)
    text = str(caught.value)
    assert [part for part in parts if part not in text] == [], text


def test_what_is_proposed_for_names_is_there() -> None:
    """Of other rooms, and of words of other libraries."""
    from tensorlang.names import _advised

    said = {word.strip(".,;()") for names in _advised.values() for text in names.values() for word in text.split()}
    for word in said:
        room, _, name = word.partition("(")[0].partition(".")
        if room in ("te", "topi"):
            assert hasattr({"te": te, "topi": topi}[room], name), word


def test_errors_of_arrays_stay() -> None:
    bodies: dict[str, Callable[[Any], Any]] = {
        "only integers": lambda i: FULL[0, 0.5],  # type: ignore[index]
        "index 99 is out of bounds": lambda i: FULL[0, 98 + len([i])],
    }
    for text, body in bodies.items():
        with pytest.raises(IndexError, match=text):
            te.compute((16,), body)


def test_elements_of_whole_tensors_may_still_be_combined() -> None:
    made = te.max(A, B)
    assert isinstance(made, Tensor) and made.shape == A.shape


def test_a_constant_extent_counts() -> None:
    assert list(range(te.placeholder((3,)).shape[0])) == [0, 1, 2]
