"""Programs as JSON: the same ones come back, and what is no such text is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import ir, te, topi
from tensorlang.errors import DefinitionError
from tensorlang.te.operation import PlaceholderOp, Tensor
from tensorlang.te.program import canonical


def sums() -> list[Tensor]:
    n = te.var("n")
    A, k = te.placeholder((n, 8), name="A"), te.reduce_axis((0, 8), "k")
    where = te.compute((n,), lambda i: te.sum(A[i, k] * float("1.5"), axis=k, where=k < 5), name="C")
    return [A, where, te.compute((n,), lambda i: te.if_then_else(i > 2, where[i], te.infinity("float32")), name="D")]


def ordered() -> list[Tensor]:
    x = te.placeholder((4, 9), name="x")
    return [x, topi.cumsum(x, 1), topi.sort(x)]


def largest() -> list[Tensor]:
    x = te.placeholder((4, 5), "int32", name="x")
    return [x, topi.argmax(x, 1)]


def layers() -> list[Tensor]:
    shapes = {"x": (3, 2, 4), "wi": (8, 4), "wh": (8, 2)}
    x, wi, wh = (te.placeholder(shape, name=name) for name, shape in shapes.items())
    return [x, wi, wh, *topi.lstm(x, wi, wh)]


def outputs(tensors: Any) -> list[Any]:
    return [t for t in tensors if not isinstance(t.op, PlaceholderOp)]


@pytest.mark.parametrize("make", [sums, ordered, largest, layers])
def test_programs_come_back(make: Any) -> None:
    tensors = make()
    text = ir.save_json(tensors)
    made = ir.load_json(text)
    assert canonical(outputs(made))[0].text == canonical(outputs(tensors))[0].text
    assert [t.name for t in made] == [t.name for t in tensors] and ir.save_json(made) == text
    te.create_schedule([t.op for t in outputs(made)])


def test_what_came_back_runs() -> None:
    A, C, D = ir.load_json(ir.save_json(sums()))
    a, d = np.ones((4, 8), np.float32), np.empty(4, np.float32)
    tensorlang.build(te.create_schedule(D.op), [A, D])(a, d)
    assert np.array_equal(d, [np.inf, np.inf, np.inf, 7.5]) and C.op.name == "C"


def test_expressions_are_written_once_where_they_are_shared() -> None:
    x = te.var("x")
    value = x + 1
    for _ in range(60):
        value = value * value
    text = ir.save_json(value)
    assert len(text) < 20_000 and str(ir.load_json(ir.save_json(x + 1))) == "x + 1"
    assert ir.save_json(ir.load_json(text)) == text


def changed(**fields: Any) -> str:
    return json.dumps(json.loads(ir.save_json(sums())) | fields)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 5000,
        changed(tensorlang=2),
        changed(root={"node": 0}),
        changed(nodes=[["eval", {}]]),
        changed(nodes=None),
        ir.save_json(sums())[:-9],
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match="no text of tensorlang's save_json"):
        ir.load_json(text)


def test_what_is_no_data_is_refused() -> None:
    A = te.placeholder((4,), name="A")
    called = te.extern((4,), [A], lambda a, out: None, name="called")
    with pytest.raises(DefinitionError, match="called calls a Python function"):
        ir.save_json(te.compute((4,), lambda i: called[i] + 1))
    for wrong in (object(), [A, np.ones(3)], te.create_schedule(te.compute((4,), lambda i: A[i]).op)):
        with pytest.raises(DefinitionError, match="save_json takes tensors and expressions"):
            ir.save_json(wrong)
