"""Refusals of steps that move, take apart and join loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tensorlang import te
from tensorlang.errors import IllegalOrder
from tests.error.refusal import Refusal, Step, refused
from tests.programs import Case, argmax, chain, diamond, matmul, row_sum, stencil, with_extern

n = te.var("n")


@te.hybrid.script
def prefix(A: Any) -> Any:
    B = te.output_tensor((8,), A.dtype)
    C = te.output_tensor((8,), A.dtype)
    for i in range(8):
        B[i] = A[i] + 1.0
        C[i] = B[i] + (B[i - 2] if i > 1 else 0.0)
        for j in range(i):
            B[j] = C[i] * 2.0
    return B, C


def ordered() -> Case:
    """Two statements and an inner loop in one loop; the second needs what the inner loop did before."""
    A = te.placeholder((8,), name="A")
    B, C = prefix(A)
    return Case(te.create_schedule(B.op), (A, B, C))


def between() -> Case:
    """C needs B by way of D."""
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    D = te.compute((8,), lambda i: B[7 - i] * 2, name="D")
    C = te.compute((8,), lambda i: B[i] + D[i], name="C")
    return Case(te.create_schedule(C.op), (A, C))


def transposed() -> Case:
    """B = A + 1 over two symbolic extents."""
    A = te.placeholder((n, n), name="A")
    B = te.compute((n, n), lambda i, j: A[j, i] + 1, name="B")
    return Case(te.create_schedule(B.op), (A, B))


REFUSALS = {
    "shift by an axis": Refusal(
        chain, (), lambda s: s["C"].shift("i", "i"), ("neither an axis, a decision nor a size",)
    ),
    "shift by no number": Refusal(chain, (), lambda s: s["C"].shift("i", "1.5"), ("cannot read",)),
    "shift one statement of te.compute": Refusal(
        chain, (), lambda s: s["C"].shift("i", 1, statement="S0"), ("all of an iteration moves together",)
    ),
    "shift a statement that is not there": Refusal(
        ordered,
        (),
        lambda s: s["prefix"].shift("j", 1, statement="S0"),
        ("no statement 'S0' in loop j", "there are S2"),
    ),
    "shift too far": Refusal(
        ordered,
        (),
        lambda s: s["prefix"].shift("i", 1, statement="S0"),
        ("would run before what it needs",),
        IllegalOrder,
        pair=("prefix.S0[0]", "prefix.S1[0]"),
        element="prefix.v0[0]",
    ),
    "shift what is parallel": Refusal(
        chain, (lambda s: s["C"].parallel("i"),), lambda s: s["C"].shift("i", 1), ("i of C is parallel",)
    ),
    "reverse an unknown axis": Refusal(chain, (), lambda s: s["C"].reverse("x"), ("no axis 'x' in C",)),
    "fission of te.compute": Refusal(chain, (), lambda s: s["C"].fission("i"), ("holds one statement",), legal=()),
    "fission of a reduction": Refusal(
        row_sum,
        (),
        lambda s: s["B"].fission("i"),
        ("holds one statement",),
        legal=("s['B'].decompose_reduction('i')",),
    ),
    "fission of a single child": Refusal(
        ordered, (), lambda s: s["prefix"].fission("j"), ("loop j of prefix holds only S2",)
    ),
    "fission after a stranger": Refusal(
        ordered, (), lambda s: s["prefix"].fission("i", after="S2"), ("no child 'S2'", "there are S0, S1, j")
    ),
    "fission after the last child": Refusal(
        ordered, (), lambda s: s["prefix"].fission("i", after="j"), ("nothing stands after j",)
    ),
    "fuse_with inside te.compute": Refusal(
        matmul, (), lambda s: s["C"].fuse_with("i", "j"), ("has no loops side by side",)
    ),
    "fuse_with an inner loop": Refusal(
        ordered, (), lambda s: s["prefix"].fuse_with("i", "j"), ("not two loops of the same body",)
    ),
    "fuse_with itself": Refusal(ordered, (), lambda s: s["prefix"].fuse_with("i", "i"), ("fuse_with needs two loops",)),
    "fuse_with an inner loop of another stage": Refusal(
        diamond,
        (lambda s: s["C"].split("i", 5),),
        lambda s: s["C"].fuse_with("i_i", "i", stage="B"),
        ("i_i is not an outermost loop of C; there are i_o",),
    ),
    "fuse_with a stage too far away": Refusal(
        between, (), lambda s: s["C"].fuse_with("i", stage="B"), ("C needs D, which is computed from B",)
    ),
    "fuse_with pairs": Refusal(
        argmax, (), lambda s: s["T"].peel("k", first=1), ("T has 2 outputs that are updated together",)
    ),
    "fuse_with what is computed inside a loop": Refusal(
        stencil,
        (lambda s: s["B"].compute_at(s["C"], "i"),),
        lambda s: s["C"].fuse_with("i", stage="B"),
        ("B is computed inside i of C",),
    ),
    "fuse_with an extern stage": Refusal(
        with_extern, (), lambda s: s["C"].fuse_with("i", "i", stage=s.program.ops[2].name), ("no axis 'i'",)
    ),
    "peel nothing": Refusal(chain, (), lambda s: s["C"].peel("i"), ("peel needs first or last",)),
    "peel too much": Refusal(chain, (), lambda s: s["C"].peel("i", 10, 10), ("axis i has 20 iterations",)),
    "peel a negative number": Refusal(chain, (), lambda s: s["C"].peel("i", last=-1), ("last must be a whole number",)),
    "peel around another stage": Refusal(
        diamond,
        (lambda s: s["C"].split("i", 5), lambda s: s["B"].compute_root()),
        lambda s: s["C"].peel("i", 1),
        ("was already transformed",),
    ),
    "peel what holds another stage": Refusal(
        matmul,
        (lambda s: s.cache_read("A", "local", ["C"]), lambda s: s["A.local"].compute_at(s["C"], "j")),
        lambda s: s["C"].peel("i", 1),
        ("A.local is computed at axis j of C, which would be there twice",),
        legal=("s['A.local'].compute_root(); s['C'].peel('i', first=1)",),
    ),
    "peel after fusing symbolic axes": Refusal(
        transposed,
        (lambda s: s["B"].fuse("i", "j"),),
        lambda s: s["B"].peel("i_j_fused", 1),
        ("j of B has a symbolic extent",),
    ),
    "partition at no point": Refusal(chain, (), lambda s: s["C"].partition("i", []), ("at least one point",)),
    "partition outside": Refusal(chain, (), lambda s: s["C"].partition("i", [5, 20]), ("the points must rise",)),
    "partition backwards": Refusal(chain, (), lambda s: s["C"].partition("i", [8, 5]), ("the points must rise",)),
    "decompose nothing": Refusal(chain, (), lambda s: s["C"].decompose_reduction("i"), ("C has no reduction",)),
    "decompose inside the reduction": Refusal(
        row_sum,
        (lambda s: s["B"].reorder("k", "i"),),
        lambda s: s["B"].decompose_reduction("i"),
        ("i is inside the reduce axis k",),
        legal=("s['B'].decompose_reduction('k')",),
    ),
    "decompose ordered statements": Refusal(
        ordered, (), lambda s: s["prefix"].decompose_reduction("i"), ("is a hybrid stage",)
    ),
}


ORDERS: dict[str, tuple[Callable[[], Case], Step, tuple[str, str], str]] = {
    "reverse": (ordered, lambda s: s["prefix"].reverse("i"), ("prefix.S2[6, 5]", "prefix.S1[7]"), "prefix.v0[5]"),
    "fission": (
        ordered,
        lambda s: s["prefix"].fission("i", after="S1"),
        ("prefix.S2[1, 0]", "prefix.S1[2]"),
        "prefix.v0[0]",
    ),
    "fuse_with": (stencil, lambda s: s["C"].fuse_with("i", stage="B"), ("C.S0[1]", "C.S1[0]"), "B[1]"),
}


@pytest.mark.parametrize("name", ORDERS)
def test_statements_that_would_change_places_are_named(name: str) -> None:
    make, step, pair, element = ORDERS[name]
    s = make().s
    state = s.state
    with pytest.raises(IllegalOrder, match="would run before what it needs") as caught:
        step(s)
    witness = caught.value.witness
    assert witness is not None and s.state is state and not s.trace.steps
    assert (str(witness.source), str(witness.sink)) == pair and witness.element == element


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal(name: str) -> None:
    refused(REFUSALS[name])
