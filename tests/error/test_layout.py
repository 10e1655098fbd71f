"""Index maps that are no layout: transform_layout."""

from __future__ import annotations

import pytest

from tensorlang import te
from tensorlang.errors import DefinitionError
from tests.error.refusal import Refusal, refused
from tests.programs import Case, chain, with_extern


def plane() -> Case:
    """B = A + 1 over 12 x 10; C = 2 B."""
    A = te.placeholder((12, 10), name="A")
    B = te.compute((12, 10), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((12, 10), lambda i, j: B[i, j] * 2, name="C")
    return Case(te.create_schedule(C.op), (A, C))


LAYOUT = {
    "two elements in one place": Refusal(
        chain,
        (),
        lambda s: s["B"].transform_layout(lambda i: i // 2),
        ("the index map sends two elements to one place: i // 2",),
    ),
    "a lost dimension": Refusal(
        plane, (), lambda s: s["B"].transform_layout(lambda i, j: i + j), ("sends two elements to one place: i + j",)
    ),
    "overlapping rows": Refusal(
        plane, (), lambda s: s["B"].transform_layout(lambda i, j: 9 * i + j), ("sends two elements to one place",)
    ),
    "no index": Refusal(plane, (), lambda s: s["B"].transform_layout(lambda i, j: ()), ("sends two elements",)),
    "too many parameters": Refusal(
        chain, (), lambda s: s["B"].transform_layout(lambda i, j: (j, i)), ("B has 1 dimensions, the map takes 2",)
    ),
    "too few parameters": Refusal(
        plane, (), lambda s: s["B"].transform_layout(lambda i: i), ("B has 2 dimensions, the map takes 1",)
    ),
    "product of axes": Refusal(
        plane,
        (),
        lambda s: s["B"].transform_layout(lambda i, j: (i * j, j)),
        ("the index map is not affine: i * j, j",),
    ),
    "division by an axis": Refusal(
        plane, (), lambda s: s["B"].transform_layout(lambda i, j: (i // (j + 1), j)), ("the index map is not affine",)
    ),
    "fraction": Refusal(
        chain, (), lambda s: s["B"].transform_layout(lambda i: 1.5), ("cannot read the index expression '1.5'",)
    ),
    "choice": Refusal(
        chain,
        (),
        lambda s: s["B"].transform_layout(lambda i: te.if_then_else(i < 3, i, i + 1)),
        ("cannot read the index expression", "names, whole numbers, +, -, *, // and %"),
    ),
    "negative start": Refusal(
        chain,
        (),
        lambda s: s["B"].transform_layout(lambda i: i - 5),
        ("index 0 of the map starts at -5, and must start at 0",),
    ),
    "late start": Refusal(
        plane,
        (),
        lambda s: s["B"].transform_layout(lambda i, j: (i, j + 2)),
        ("index 1 of the map starts at 2, and must start at 0",),
    ),
    "unknown name": Refusal(
        chain,
        (),
        lambda s: s["B"].transform_layout(lambda i: i + te.var("q")),
        ("q is neither an axis, a decision nor a size",),
    ),
    "output": Refusal(
        chain,
        (),
        lambda s: s["C"].transform_layout(lambda i: (i // 7, i % 7)),
        ("C is an output, and some places of the new array would hold no element of it",),
        legal=("T = s.cache_write('C', 'global'); s[T].transform_layout(lambda i: [i // 7, i % 7])",),
    ),
    "extern reader": Refusal(
        with_extern,
        (),
        lambda s: s["B"].transform_layout(lambda i: (i // 2, i % 2)),
        ("S is an extern stage and needs B in its own layout",),
    ),
    "after a split": Refusal(
        chain,
        (lambda s: s["B"].split("i", 4),),
        lambda s: s["B"].transform_layout(lambda i: (i // 2, i % 2)),
        ("transform_layout must come before other steps on B",),
    ),
    "after an annotation": Refusal(
        chain,
        (lambda s: s["B"].parallel("i"),),
        lambda s: s["B"].transform_layout(lambda i: (i // 2, i % 2)),
        ("transform_layout must come before other steps on B",),
    ),
    "around a stage": Refusal(
        chain,
        (lambda s: s.cache_read("A", "local", ["B"]), lambda s: s["A.local"].compute_at(s["B"], "i")),
        lambda s: s["B"].transform_layout(lambda i: (i // 2, i % 2)),
        ("transform_layout must come before other steps on B",),
    ),
}


@pytest.mark.parametrize("name", LAYOUT)
def test_refused(name: str) -> None:
    refused(LAYOUT[name])


def test_an_index_that_is_no_expression_is_a_definition_error() -> None:
    s = chain().s
    with pytest.raises(DefinitionError, match="expected a number or an expression, got str 'i'"):
        s["B"].transform_layout(lambda i: "i")
    assert not s.trace.steps
