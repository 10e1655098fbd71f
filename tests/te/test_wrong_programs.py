"""Every malformed program is refused with DefinitionError, at the line that wrote it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.te.program import canonical

A = te.placeholder((8, 9), name="A")
V = te.placeholder((8,), name="V")
F = te.placeholder((8,), "float32", name="F")
MASK = te.placeholder((8,), "bool", name="MASK")
n = te.var("n")
k = te.reduce_axis((0, 8), "k")
m = te.reduce_axis((0, 9), "m")
argmax = te.comm_reducer(
    lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.maximum(x[1], y[1])),
    lambda t0, t1: (te.const(-1, t0), te.min_value(t1)),
    name="argmax",
)
Program = Callable[[], object]

WRONG: dict[str, tuple[Program, str]] = {
    "read of wrong rank": (lambda: te.compute((8,), lambda i: A[i, i, i]), r"A has 2 dimensions, indexed with 3"),
    "partial read as a value": (lambda: te.compute((8,), lambda i: A[i] + 1), r"A has 2 dimensions, indexed with 1"),
    "function of wrong rank": (lambda: te.compute((8, 9), lambda i: V[i]), r"2 dimensions, but its function takes 1"),
    "function of higher rank": (lambda: te.compute((8,), lambda i, j: A[i, j]), r"1 dimensions, .* takes 2"),
    "wrong varargs_names": (
        lambda: te.compute((8, 9), A, varargs_names=["i"]),
        r"2 dimensions, but its function takes 1 indices \(i\)",
    ),
    "equal axis names": (lambda: te.compute((8, 9), A, varargs_names=["i", "i"]), "two axes of one"),
    "unknown dtype": (lambda: te.placeholder((8,), "float33"), r"unknown dtype 'float33'; known: bool"),
    "unknown dtype of a cast": (lambda: te.compute((8,), lambda i: V[i].astype("f99")), r"unknown dtype 'f99'"),
    "no function": (lambda: te.compute((8,), 3), r"needs a function from indices"),  # type: ignore[call-overload]
    "float extent": (lambda: te.placeholder((8, 2.5)), r"extent 1 of placeholder must be an integer, got 2.5"),
    "bool extent": (lambda: te.placeholder((True,)), r"must be an integer, got True"),
    "text extent": (lambda: te.placeholder(("n",)), r"must be an integer, got 'n'"),  # type: ignore[arg-type]
    "missing extent": (lambda: te.placeholder(None), r"must be an integer, got None"),  # type: ignore[arg-type]
    "float expression extent": (lambda: te.placeholder((n * 1.5,)), r"must be int32 or int64"),
    "extent read from a tensor": (
        lambda: te.compute((te.placeholder((2,), "int32")[0],), lambda i: i),
        r"must not read a tensor",
    ),
    "negative extent": (lambda: te.placeholder((8, -1), name="B"), r"extent 1 of B is -1; extents are zero or more"),
    "negative compute extent": (lambda: te.compute((-3,), lambda i: i, name="B"), r"extent 0 of B is -3"),
    "negative reduce extent": (lambda: te.reduce_axis((4, 2), "k"), r"reduce axis k .* ends before it begins"),
    "reduce axis without a pair": (lambda: te.reduce_axis(8, "k"), r"must be \(lower, upper\), got 8"),  # type: ignore[arg-type]
    "reduce axis with a float": (lambda: te.reduce_axis((0, 2.5), "k"), r"the upper bound of reduce axis k must be an"),
    "axis name": (lambda: te.reduce_axis((0, 8), "k 1"), r"name of a reduce axis must be letters"),
    "size name": (lambda: te.var("2n"), r"name of a variable must be letters, digits and _, got '2n'"),
    "tensor name": (lambda: te.placeholder((8,), name="A B"), r"tensor's name must be"),
    "kept tensor name": (lambda: te.placeholder((8,), name="A.v0"), r"kept for one of several outputs"),
    "float size": (lambda: te.size_var("alpha", "float32"), r"is a size: its dtype is int32 or int64, got float32"),
    "float index": (lambda: te.compute((8,), lambda i: V[i * 0.5]), r"dtype float32; cast it to an integer"),
    "bool index": (lambda: te.compute((8,), lambda i: V[i > 1]), r"dtype bool; cast it"),
    "no expression": (
        lambda: te.compute((8,), lambda i: None, name="B"),  # type: ignore[arg-type, return-value]
        r"B must compute an expression, got None; its function lacks a return",
    ),
    "text instead of an expression": (lambda: te.compute((8,), lambda i: "x"), r"must compute an expression"),  # type: ignore[arg-type, return-value]
    "tensor instead of an element": (lambda: te.compute((8,), lambda i: A), r"A has 2 dimensions, indexed with 0"),
    "empty tuple": (lambda: te.compute((8,), lambda i: ()), r"computes an empty tuple"),
    "reduction in an expression": (
        lambda: te.compute((8,), lambda i: te.sum(A[i, m], axis=m) + 1, name="B"),
        r"B = .*: a reduction must be the whole value; give the reduction its own te.compute",
    ),
    "reduction in a condition": (
        lambda: te.compute((8,), lambda i: te.select(te.max(A[i, m], axis=m) > 0, 1, 0)),
        r"a reduction must be the whole value",
    ),
    "reduction in a reduction": (
        lambda: te.compute((), lambda: te.max(te.sum(A[k, m], axis=m), axis=k)),
        r"a reduction inside a reduction; reduce over both axes at once",
    ),
    "reduction in where": (
        lambda: te.compute((), lambda: te.sum(V[k], axis=k, where=te.sum(A[0, m], axis=m) > 0)),
        r"a reduction must be the whole value",
    ),
    "reduce axis outside a reduction": (lambda: te.compute((8,), lambda i: A[i, m], name="B"), r"B uses m, which is"),
    "reduce axis outside its reduction": (
        lambda: te.compute((8,), lambda i: te.sum(A[i, m] + V[k], axis=m)),
        r"uses k, which is neither an axis",
    ),
    "unknown variable": (lambda: te.compute((8,), lambda i: V[i] * te.var("m")), r"uses m, which is neither an axis"),
    "reduction over a spatial axis": (
        lambda: te.sum(V[0], axis=te.compute((8,), lambda i: V[i]).op.axis[0]),
        r"sum runs over reduce axes, got i; declare it with te.reduce_axis",
    ),
    "reduction over a variable": (lambda: te.sum(V[0], axis=[n]), r"sum runs over reduce axes, got n"),
    "reduction over nothing": (lambda: te.sum(V[0], axis=[]), r"one or several reduce axes, each once, got none"),
    "duplicate reduce axis": (lambda: te.sum(A[k, k], axis=[k, k]), r"each once, got k, k"),
    "reduction without an axis": (lambda: te.sum(V[0]), r"sum needs axis=<reduce axis>, or two operands"),
    "axis named as a reduce axis": (
        lambda: te.compute((8,), lambda k: te.sum(V[k], axis=te.reduce_axis((0, 8), "k")), name="B"),
        r"B has an axis and a reduce axis named k; rename",
    ),
    "range that depends on an axis": (
        lambda: te.compute((8,), lambda i: te.sum(V[m], axis=te.reduce_axis((0, i), "m"))),
        r"axis i_1 of compute has the name of a size .*written with where=",
    ),
    "axis named as another stage's size": (
        lambda: canonical(
            [te.compute((8,), lambda n: V[n]), te.compute((n,), lambda i: te.placeholder((n,), name="X")[i])]
        ),
        r"axis n of compute has the name of a symbolic size",
    ),
    "mixed reducers": (
        lambda: te.compute((8,), lambda i: (te.sum(A[i, m], axis=m), te.max(A[i, m], axis=m)), name="B"),
        r"B mixes different reductions; use a te.compute for each",
    ),
    "reduction beside an expression": (
        lambda: te.compute((8,), lambda i: (V[i], te.sum(A[i, m], axis=m))),
        r"mixes reductions and plain expressions",
    ),
    "one value of a tuple reduction": (
        lambda: te.compute((8,), lambda i: argmax((m, A[i, m]), axis=m)[1]),
        r"returns values \[1\] of the 2 that argmax gives; return them all",
    ),
    "values of two tuple reductions": (
        lambda: te.compute((8,), lambda i: (argmax((m, A[i, m]), axis=m)[0], argmax((m, -A[i, m]), axis=m)[1])),
        r"mixes different reductions",
    ),
    "swapped values": (
        lambda: te.compute((8,), lambda i: tuple(reversed(argmax((m, A[i, m]), axis=m)))),
        r"returns values \[1, 0\] of the 2 that argmax gives",
    ),
    "tuple to a built-in reduction": (lambda: te.sum((V[k], V[k]), axis=k), r"sum reduces one expression"),
    "condition of a reduction": (lambda: te.sum(V[k], axis=k, where=V[k]), r"where= of sum must be a condition"),
    "init of wrong length": (lambda: argmax((m, A[0, m]), axis=m, init=0), r"init= of argmax needs 2 values, got 1"),
    "init that varies": (lambda: te.sum(V[k], axis=k, init=V[k]), r"init= of sum is one value for the whole"),
    "all of numbers": (lambda: te.all(V[0], V[1]), r"te.all needs conditions, got V\[0\]; compare first"),
    "any of nothing": (lambda: [te.any()], r"te.any needs at least one condition"),
    "all of several over an axis": (lambda: te.all(MASK[k], MASK[k], axis=k), r"takes one condition, got 2"),
    "all of numbers over an axis": (lambda: te.all(V[k], axis=k), r"all needs conditions, got V\[k\]"),
    "combiner of another dtype": (
        lambda: te.comm_reducer(lambda x, y: x < y, lambda t: te.const(0, t))(V[k], axis=k),
        r"reducer reduce combines float32 into bool",
    ),
    "combiner of another length": (
        lambda: te.comm_reducer(lambda x, y: (x[0],), lambda t0, t1: (0, 0))((k, V[k]), axis=k),
        r"combines 2 elements, but .*",
    ),
    "combiner that reads": (
        lambda: te.comm_reducer(lambda x, y: x + V[0], lambda t: te.const(0, t))(V[k], axis=k),
        r"may use its operands only, got V\[0\]",
    ),
    "identity that varies": (
        lambda: te.comm_reducer(lambda x, y: x + y, lambda t: V[0])(V[k], axis=k),
        r"identity of reducer reduce must be a constant",
    ),
    "identity out of range": (
        lambda: te.comm_reducer(lambda x, y: x + y, lambda t: 300)(V[k].astype("int8"), axis=k),
        r"300 does not fit int8",
    ),
    "integer division by /": (lambda: te.compute((8,), lambda i: i / 2), r"/ on integers is ambiguous"),
    "division by zero": (lambda: te.compute((8,), lambda i: V[i // 0]), r"division by zero: i floordiv 0"),
    "bits of a float": (lambda: te.compute((8,), lambda i: V[i] & 1), r"bitand needs integer operands, got float32"),
    "not of a float": (lambda: te.compute((8,), lambda i: ~V[i]), r"~ needs an integer or bool"),
    "condition that is a number": (lambda: te.select(V[0], 1, 2), r"a condition must be bool, got float32"),
    "Python's if": (lambda: te.compute((8,), lambda i: V[i] if i > 2 else 0.0), r"no truth value .* te.if_then_else"),
    "Python's and": (lambda: te.compute((8,), lambda i: i > 2 and i < 5), r"no truth value"),
    "exp of an integer": (lambda: te.exp(n), r"exp needs a float, got int32 \(n\); .*x.astype\('float32'\)"),
    "popcount of a float": (lambda: te.popcount(V[0]), r"popcount needs an integer, got float32"),
    "abs of a bool": (lambda: te.abs(V[0] > 0), r"abs needs a number, got bool"),
    "infinity of an integer": (lambda: te.infinity("int32"), r"int32 has no infinity; use te.max_value"),
    "constant out of range": (lambda: te.const(128, "int8"), r"128 does not fit int8"),
    "constant with a fraction": (lambda: te.const(2.5, "int32"), r"2.5 is not an integer"),
    "unknown thread tag": (lambda: te.thread_axis("threadIdx.q"), r"unknown thread tag 'threadIdx.q'; known: vthread"),
    "no thread tag": (lambda: te.thread_axis((0, 4)), r"unknown thread tag ''"),
    "extern of an array": (lambda: te.extern((8,), [3], lambda ins, outs: None), r"inputs of extern must be tensors"),  # type: ignore[list-item]
    "extern without a dtype": (
        lambda: te.extern((8,), [V, MASK], lambda a, b, out: None),
        r"dtype of extern does not follow from its inputs; give dtype=",
    ),
    "extern with too many dtypes": (
        lambda: te.extern((8,), [V], lambda a, out: None, dtype=["float32", "int8"]),
        r"extern has 1 outputs, but 2 dtypes",
    ),
    "extern without call_packed": (
        lambda: te.extern((8,), [V], lambda ins, outs: 3),
        r"must return tir.call_packed\(...\), got 3",
    ),
    "outputs that are no tensors": (lambda: canonical([V[0]]), r"expected tensors or their operations, got"),  # type: ignore[list-item]
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_program_is_refused_at_its_line(case: str) -> None:
    program, message = WRONG[case]
    with pytest.raises(DefinitionError) as caught:
        program()
    assert re.search(message, caught.value.message, re.DOTALL), caught.value.message
    assert caught.value.where is not None
    assert Path(caught.value.where.file) == Path(__file__)
    lines, first = inspect.getsourcelines(program)
    assert first <= caught.value.where.line < first + len(lines)


def test_error_text_ends_with_the_place() -> None:
    with pytest.raises(
        DefinitionError, match=r"indexed with 3; give 2, as in A\[i0, i1\]\n  at test_wrong_programs.py:\d+"
    ):
        te.compute((8,), lambda i: A[i, i, i])
