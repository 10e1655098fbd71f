"""What a type checker knows of programs: mypy reads this file, and an `ignore` that nothing needs is an error."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import assert_type

import pytest

import tensorlang
from tensorlang import te, topi
from tensorlang.driver import Lowered, build, lower
from tensorlang.ir.expr import Expr, Var
from tensorlang.nd import Device
from tensorlang.runtime.executable import Executable
from tensorlang.schedule import Schedule, Stage, create_schedule
from tensorlang.te.axis import Axis
from tensorlang.te.operation import Tensor

A, x = te.placeholder((8, 4), name="A"), te.placeholder(8, "float32", name="x")


def test_declarations() -> None:
    assert_type(A, Tensor)
    assert_type(te.var("n"), Var)
    assert_type(te.var("n", "int64"), Var)
    assert_type(te.reduce_axis((0, 4), "k"), Axis)
    assert_type(te.placeholder((te.var("n"), 3)), Tensor)
    assert_type(te.size_var("m"), Var)


def test_computed_tensors() -> None:
    k = te.reduce_axis((0, 4), "k")
    assert_type(te.compute((8,), lambda i: x[i] + 1), Tensor)
    assert_type(te.compute((8,), lambda i: te.sum(A[i, k], axis=k)), Tensor)
    assert_type(te.compute(8, lambda i: 1.0), Tensor)
    assert_type(te.compute(A.shape, lambda *i: te.exp(A(*i))), Tensor)
    pair = te.compute((8,), lambda i: (x[i], x[i] * 2))
    assert_type(pair, tuple[Tensor, ...])
    assert len(pair) == 2 and pair[0].shape == x.shape


def test_elements() -> None:
    assert_type(A[0, 1], Expr)
    assert_type(A[0][1], Expr)
    assert_type(A(0, 1), Expr)
    assert_type(x[0] + 1, Expr)
    total = x[0]
    total = total + te.exp(x[1])
    assert_type(total, Expr)


def test_whole_tensors() -> None:
    assert_type(topi.softmax(A), Tensor)
    assert_type(topi.sum(A, axis=1), Tensor)
    assert_type(topi.matmul(A, topi.transpose(A)), Tensor)


def test_schedules_and_kernels() -> None:
    B = te.compute((8,), lambda i: x[i] + 1, name="B")
    s = create_schedule(B.op)
    assert_type(s, Schedule)
    assert_type(s[B], Stage)
    product = topi.matmul(A, topi.transpose(A))
    assert_type(te.create_schedule(product.op)[product].tile(*product.op.axis, 4, 4), tuple[Axis, Axis, Axis, Axis])
    outer, inner = s[B].split("i", factor=4)
    assert_type(outer, Axis)
    s[B].vectorize(inner)
    assert_type(lower(s, [x, B]), Lowered)
    assert_type(build(s, [x, B]), Executable)


def test_names_that_are_loaded_when_they_are_used() -> None:
    B = te.compute((8,), lambda i: x[i] + 1, name="B")
    s = te.create_schedule(B.op)
    assert_type(s, Schedule)
    assert_type(tensorlang.build(s, [x, B]), Executable)
    assert_type(tensorlang.lower(s, [x, B]), Lowered)
    assert_type(tensorlang.cpu(), Device)
    assert_type(tensorlang.__version__, str)
    assert_type(tensorlang.te.exp(x[0]), Expr)
    assert_type(tensorlang.topi.nn.softmax(A), Tensor)
    assert_type(topi.nn.relu(A), Tensor)
    error: type[Exception] = tensorlang.ScheduleError
    assert issubclass(error, tensorlang.TVMError)


@pytest.mark.parametrize("room", ["tensorlang", "tensorlang.te", "tensorlang.topi", "tensorlang.autotune"])
def test_type_checkers_see_all_that_is_offered(room: str) -> None:
    """What a room offers lazily stands in its block for type checkers, too."""
    module = import_module(room)
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    seen = {name for block in blocks for statement in block.body for name in _bound(statement)}
    public = {name for name in dir(module) if not name.startswith("_")}
    assert public <= seen | set(getattr(module, "__all__", ()))


def _bound(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.ImportFrom(names=names):
            return [alias.asname or alias.name for alias in names]
        case ast.Assign(targets=targets):
            return [ast.unparse(target) for target in targets]
    return []


def refused() -> None:
    """Nobody calls it: a type checker finds these mistakes."""
    te.vectorise  # type: ignore[attr-defined]
    topi.soft_max(A)  # type: ignore[attr-defined]
    tensorlang.buidl  # type: ignore[attr-defined]
    te.create_schedule("B")  # type: ignore[arg-type]
    te.compute((8,), lambda i: "text")  # type: ignore[arg-type, return-value]
    te.compute((8,), 3)  # type: ignore[call-overload]
    te.placeholder(("n",))  # type: ignore[arg-type]
    te.reduce_axis(16)  # type: ignore[arg-type]
    te.exp("x")  # type: ignore[arg-type]
    topi.softmax(3)  # type: ignore[arg-type]
