"""Programs as JSON: the same ones come back, and what is no such text is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import ir, te, topi
from tensorlang.errors import DefinitionError, TensorlangError
from tensorlang.te import saved
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


@te.hybrid.script
def narrowed(a):  # type: ignore[no-untyped-def]
    o = te.output_tensor((4,), "int8")
    for i in range(4):
        o[i] = te.cast(a[i], "int8")
    return o


def scripted() -> list[Tensor]:
    A = te.placeholder((4,), "int64", name="A")
    return [A, narrowed(A)]


def signed(body: dict[str, Any]) -> str:
    """A document as anybody may write it: the digest is no secret."""
    kept = {"nodes": body["nodes"], "root": body["root"]}
    return json.dumps({"tensorlang": saved.VERSION, "digest": saved._digest(kept), **kept})


def forged(make: Callable[[], Any], kind: str, **fields: Any) -> str:
    """A document whose first node of a kind has other fields."""
    body = json.loads(ir.save_json(make()))
    next(node for node in body["nodes"] if node[0] == kind)[1].update(fields)
    return signed(body)


def stored_wide() -> str:
    """An array of bytes whose elements are stored as int64, which writes behind its end."""
    body = json.loads(ir.save_json(scripted()))
    (store,) = (node[1] for node in body["nodes"] if node[0] == "Store")
    store["value"] = body["nodes"][store["value"]["node"]][1]["value"]
    return signed(body)


def nested(levels: int) -> str:
    value: Any = 1
    for _ in range(levels):
        value = {"map": [["a", value]]}
    return signed({"nodes": [], "root": value})


def computed() -> list[Tensor]:
    A = te.placeholder((4,), name="A")
    return [A, te.compute((4,), lambda i: te.exp(A[i]) * A[i] + 1.0, name="B")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (stored_wide(), "the value stored into o is int64, expected int8"),
        (forged(computed, "PlaceholderOp", shape="4"), "shape of PlaceholderOp is '4'"),
        (forged(computed, "PlaceholderOp", num_outputs=2), "input A is 2 arrays"),
        (forged(computed, "PlaceholderOp", num_outputs=True), "num_outputs of PlaceholderOp is True"),
        (forged(computed, "PlaceholderOp", name="<b>"), "a tensor's name must be letters"),
        (forged(computed, "PlaceholderOp", dtype="int128"), "unknown dtype 'int128'"),
        (forged(computed, "PlaceholderOp", dtype="int32"), "exp of int32"),
        (forged(computed, "Binary", op="zz"), "unknown operation zz"),
        (forged(computed, "Binary", dtype="float64"), "mul of float32 gives float64"),
        (forged(computed, "Const", value=-4), "extents are zero or more"),
        (forged(computed, "Const", value=4.5), "literal holds a Python float"),
        (forged(computed, "Axis", name='A"'), "letters, digits and _"),
        (forged(computed, "Tensor", value_index=1), "A has no output 1"),
        (forged(computed, "ComputeOp", body={"tuple": []}), "computes an empty tuple"),
        (forged(computed, "ComputeOp", axes={"tuple": []}), "B uses i, which is neither an axis"),
        (forged(sums, "ComputeOp", reduce_axes={"tuple": []}), "C reduces over other axes than it says"),
        (forged(scripted, "Buffer", shape={"tuple": []}), "o: int8[] has 0 dimensions"),
        (forged(scripted, "For", thread="threadIdx.x"), "a serial loop has the thread tag"),
        (forged(scripted, "HybridOp", updates={"tuple": [{"node": 2}]}), "updates another array"),
        (signed({"nodes": [["Let", {}]], "root": None}), "KeyError: 'Let'"),
        (nested(33), "more than 32 deep"),
        (nested(100), "more than 32 deep"),
    ],
)
def test_forged_documents_are_refused(text: str, why: str) -> None:
    with pytest.raises(DefinitionError, match="no text of tensorlang's save_json") as refusal:
        ir.load_json(text)
    assert why in refusal.value.message


def test_rings_and_deep_lists_are_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    deep: list[Any] = []
    for _ in range(3000):
        deep = [deep]
    for wrong in (ring, deep):
        with pytest.raises(DefinitionError, match="32 deep"):
            ir.save_json(wrong)
    attrs: dict[str, Any] = {}
    B = te.compute((4,), lambda i: i, attrs=attrs)
    B.op.attrs["own"] = B
    with pytest.raises(DefinitionError, match="holds itself"):
        ir.save_json(B)
    with pytest.raises(DefinitionError, match="mappings from text"):
        ir.save_json({1: te.var("n"), "1": te.var("m")})


def mutate(body: dict[str, Any], draw: random.Random) -> None:
    """Change one field of one node into what another one has, another node, or nonsense."""
    nodes = body["nodes"]
    fields = draw.choice(nodes)[1]
    name = draw.choice(list(fields))
    other = draw.choice(nodes)[1]
    same = [node[1][name] for node in nodes if name in node[1]]
    nonsense: list[Any] = [
        None,
        -1,
        0,
        2**70,
        "",
        "int8",
        "float64",
        "x",
        True,
        {"tuple": []},
        {"tuple": [None]},
        {"map": []},
    ]
    node = {"node": draw.randrange(len(nodes))}
    fields[name] = draw.choice(
        [draw.choice(same), draw.choice(list(other.values())), draw.choice(nonsense), node, {"tuple": [node]}]
    )


def summed_up() -> list[Tensor]:
    x = te.placeholder((4, 9), name="x")
    return [x, topi.cumsum(x, 1)]


@pytest.mark.parametrize("make", [sums, summed_up, scripted, computed])
def test_mutated_documents_are_refused_or_programs(make: Any) -> None:
    draw, original, built = random.Random(11), ir.save_json(make()), 0
    for _ in range(150):
        body = json.loads(original)
        mutate(body, draw)
        try:
            tensors = ir.load_json(signed(body))
        except DefinitionError:
            continue
        if isinstance(tensors, list) and all(isinstance(t, Tensor) for t in tensors) and built < 6:
            built += 1
            with suppress(TensorlangError):
                tensorlang.build(te.create_schedule([t.op for t in outputs(tensors)]), tensors, "interpreter")
    assert built
