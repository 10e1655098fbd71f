"""What a user declares: placeholders, computes, axes, sizes, tags, and the canonical program made from them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Binary, Const, Select, same
from tensorlang.te.axis import AxisKind
from tensorlang.te.operation import Reduce
from tensorlang.te.program import Program, canonical

A = te.placeholder((8, 9), name="A")


def names(tensor: te.Tensor) -> list[str]:
    return [axis.name for axis in tensor.op.axis]


def test_placeholder() -> None:
    n = te.var("n")
    tensor = te.placeholder((n, 3, np.int64(4)), "float16", name="X.in")
    assert (tensor.dtype, tensor.ndim, tensor.name) == ("float16", 3, "X.in")
    assert repr(tensor) == "Tensor(shape=[n, 3, 4], dtype=float16, name=X.in)"
    assert te.placeholder(5).ndim == 1 and te.placeholder(()).ndim == 0
    assert te.placeholder((2,)).dtype == "float32"
    assert te.placeholder((2,), np.dtype("int8")).dtype == "int8"


def test_axis_names_are_the_parameter_names() -> None:
    assert names(te.compute((8, 9), lambda row, col: A[row, col])) == ["row", "col"]
    assert names(te.compute((8, 9), lambda *i: A(*i) + 1)) == ["i0", "i1"]
    assert names(te.compute((8, 9), lambda y, *rest: A(y, *rest) + 1)) == ["y", "i0"]
    assert names(te.compute((8, 9), lambda *i: A(*i) * 2, varargs_names=["p", "q"])) == ["p", "q"]
    assert names(te.compute((8, 9), A)) == ["i0", "i1"]

    def element(i: Any, j: Any, scale: float = 2.0) -> Any:
        return A[i, j] * scale

    assert names(te.compute((8, 9), element)) == ["i", "j"]


def test_reads_in_three_spellings() -> None:
    made: Any = te.compute((8,), lambda i: A[i, 0] + A[i][1] + A(i, 2))
    assert str(made.op.body[0]) == "A[i, 0] + A[i, 1] + A[i, 2]"


def test_compute_attributes() -> None:
    k = te.reduce_axis((1, 9), "k")
    made: Any = te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="R", tag="row", attrs={"note": 3})
    op = made.op
    assert made.shape[0].value == 8 and made.dtype == "float32"
    assert [a.name for a in op.reduce_axis] == ["k"] and op.reduce_axis[0].kind is AxisKind.REDUCE
    assert (op.tag, dict(op.attrs)) == ("row", {"note": 3})
    assert op.input_tensors == [A]
    assert op.axis[0].dom.extent.value == 8 and op.axis[0].var.name == "i"
    assert op.reduce_axis[0].dom.min.value == 1 and op.reduce_axis[0].dom.extent.value == 8
    assert op.location is not None and op.location.file == __file__


def test_several_outputs() -> None:
    low, high = te.compute((8,), lambda i: (A[i, 0], A[i, 1] > 0), name="T")
    assert (low.name, low.dtype, high.name, high.dtype) == ("T.v0", "float32", "T.v1", "bool")
    assert low.op is high.op and low != high


def test_literal_bodies_have_default_dtypes() -> None:
    bodies: dict[str, Callable[..., Any]] = {
        "int32": lambda i: 1,
        "float32": lambda i: 1.5,
        "bool": lambda i: True,
        "int8": lambda i: np.int8(3),
    }
    for dtype, body in bodies.items():
        assert te.compute((2,), body).dtype == dtype


def test_program_text_and_names() -> None:
    n = te.var("n")
    X = te.placeholder((n,), name="X")
    one = te.compute((n,), lambda i: X[i] + 1)
    two = te.compute((n,), lambda i: one[i] * one[i])
    program, given = canonical([two])
    assert program.text == (
        "input X: float32[n]\n"
        "compute: float32[n] [i < n] = X[i] + 1.0\n"
        "compute_1: float32[n] [i < n] = compute[i] * compute[i]\n"
        "return compute_1\n"
    )
    assert given == {id(X.op): "X", id(one.op): "compute", id(two.op): "compute_1"}
    assert [v.name for v in program.sizes] == ["n"]
    assert program.consumers == {"X": ("compute",), "compute": ("compute_1",), "compute_1": ()}
    assert canonical([two.op])[0].key == program.key


def test_programs_are_picklable() -> None:
    k = te.reduce_axis((0, 9), "k")
    made = te.compute((8,), lambda i: te.max(A[i, k], axis=k, where=k > i), name="R")
    program = canonical([made])[0]
    copy: Program = pickle.loads(pickle.dumps(program))
    assert copy.text == program.text and copy.key == program.key


def test_key_tells_custom_reducers_apart() -> None:
    k = te.reduce_axis((0, 9), "k")

    def key(combine: Callable[[Any, Any], Any], name: str, identity: float = 0) -> str:
        reducer = te.comm_reducer(combine, lambda t: te.const(identity, t), name=name)
        return canonical([te.compute((8,), lambda i: reducer(A[i, k], axis=k), name="R")])[0].key

    plain = canonical([te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="R")])[0].key
    assert key(lambda x, y: x + y, "sum") == plain
    assert key(lambda x, y: x * y, "sum", 1) != plain
    assert key(lambda x, y: x + y, "fold") != key(te.maximum, "fold")
    assert key(te.maximum, "fold", 0) != key(te.maximum, "fold", 1)


def test_long_chains() -> None:
    stage = te.compute((4,), lambda i: i, name="S")
    for _ in range(1500):
        stage = (lambda s: te.compute((4,), lambda i: s[i] + 1, name="S"))(stage)
    program = canonical([stage])[0]
    assert len(program.ops) == 1501 and program.ops[-1].name == "S_1500"


def test_reductions_that_combine_directly() -> None:
    x = A[0, 0]
    assert str(te.max(x, 0.0)) == "max(A[0, 0], 0.0)"
    assert str(te.min(x, A[1, 1], A[2, 2])) == "min(min(A[0, 0], A[1, 1]), A[2, 2])"
    assert str(te.sum(x, 2)) == "A[0, 0] + 2.0"
    assert str(te.all(x > 0, x < 1, x != 0.5)) == "A[0, 0] > 0.0 and A[0, 0] < 1.0 and A[0, 0] != 0.5"
    assert str(te.any(x > 0)) == "A[0, 0] > 0.0"
    product = te.comm_reducer(lambda a, b: a * b, lambda t: te.const(1, t), name="product")
    assert str(product(x, A[1, 1])) == "A[0, 0] * A[1, 1]"


def test_reduction_nodes() -> None:
    k, m = te.reduce_axis((0, 8), "k"), te.reduce_axis((1, 9), "m")
    both = te.sum(A[k, m], axis=[k, m], where=k < m, init=1)
    assert str(both) == "sum(A[k, m]; k in [0, 8), m in [1, 9), where=k < m, init=(1.0))"
    assert te.sum(A[k, 0] > 0, axis=k).dtype == "int32"
    assert te.any(A[k, 0] > 0, axis=k).dtype == "bool"
    assert str(te.all(A[k, 0] > 0, k)) == "all(A[k, 0] > 0.0; k in [0, 8))"
    low, high = te.max(A[k, 0], axis=k), te.min(A[k, 0].astype("uint8"), axis=k)
    assert isinstance(low, Reduce) and isinstance(high, Reduce)
    assert str(low.reducer.identity[0]) == "-inf" and str(high.reducer.identity[0]) == "uint8(255)"
    assert not same(te.sum(A[k, 0], axis=k), te.prod(A[k, 0], axis=k))
    assert same(te.sum(A[k, 0], axis=k), te.sum(A[k, 0], axis=k))


def test_tag_scope() -> None:
    with te.tag_scope(tag="conv"):
        inside: Any = te.compute((8,), lambda i: A[i, 0])
        with pytest.raises(DefinitionError, match="tag scopes do not nest"), te.tag_scope("pool"):
            pass
        with pytest.raises(DefinitionError, match="inside tag scope 'conv'"):
            te.compute((8,), lambda i: A[i, 0], tag="own")
    assert inside.op.tag == "conv"
    outside: Any = te.compute((8,), lambda i: A[i, 0])
    assert outside.op.tag == ""

    @te.tag_scope(tag="pool")
    def pool() -> te.Tensor:
        made: te.Tensor = te.compute((8,), lambda i: A[i, 0])
        return made

    tags = [op.tag for op in (pool().op, pool().op) if isinstance(op, te.ComputeOp)]
    assert tags == ["pool", "pool"]


def test_thread_axes() -> None:
    bound = te.thread_axis("threadIdx.x")
    assert (bound.name, bound.thread, bound.kind) == ("threadIdx.x", "threadIdx.x", AxisKind.THREAD)
    sized = te.thread_axis((0, 32), "blockIdx.y", name="by")
    assert (sized.name, sized.thread, str(sized.extent)) == ("by", "blockIdx.y", "32")
    assert str(te.thread_axis(16, "vthread").extent) == "16"


def test_sizes() -> None:
    assert te.size_var("n").dtype == "int32" and te.var("n", "int64").dtype == "int64"
    n = te.var("n")
    k = te.reduce_axis((1, n), "k")
    assert str(k.dom.extent) == "n - 1"
    assert str(te.reduce_axis(te.Range(te.const(2), n), "k").dom.extent) == "n"


def test_axes_compare_as_expressions() -> None:
    i = te.compute((8,), lambda i: A[i, 0]).op.axis[0]
    assert isinstance(i == 3, Binary) and isinstance(i != 3, Binary)
    assert i in [i] and (i == None) is False  # noqa: E711


def test_scalar_functions() -> None:
    x, i = A[0, 0], te.var("i")
    assert isinstance(te.if_then_else(x > 0, x, 0), Select) and isinstance(te.select(x > 0, x, 0), Select)
    assert str(te.floordiv(i, 3)) == "i // 3" and str(te.indexmod(i, 3)) == "i % 3"
    assert str(te.div(i, 3)) == "truncdiv(i, 3)" and str(te.div(x, 3)) == "A[0, 0] / 3.0"
    assert str(te.ceildiv(i, 4)) == "(i + 3) // 4"
    assert te.likely(x > 0).dtype == "bool"
    for dtype in ("float16", "bfloat16", "float32", "float64", "int8", "uint64", "bool"):
        low, high = te.min_value(dtype), te.max_value(dtype)
        assert isinstance(low, Const) and low.dtype == high.dtype == dtype and low.value <= 0 < high.value
    assert te.max_value("float16").value == 65504.0 and te.min_value("int8").value == -128
    assert te.infinity("float32").value == float("inf")


def test_every_exported_name_exists() -> None:
    for name in te.__all__:
        assert getattr(te, name) is not None
    assert "create_schedule" in dir(te)


def test_a_whole_float_is_an_extent_as_classic_programs_write_it() -> None:
    assert str(te.placeholder((64 / 32, 3)).shape[0]) == "2"
