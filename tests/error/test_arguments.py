"""Arguments that make no sense for a stage: refused before any analysis, with what would."""

from __future__ import annotations

from typing import Any

import pytest

from tensorlang import te
from tensorlang.errors import BadArgument
from tensorlang.schedule.primitives import Vectorize
from tests.error.refusal import Refusal, refused
from tests.programs import Case, chain, matmul, with_extern

n, m = te.var("n"), te.var("m")


def split(error: str, *legal: str, **arguments: Any) -> Refusal:
    return Refusal(chain, (), lambda s: s["C"].split("i", **arguments), (error,), legal=legal)


def squares() -> Case:
    """C of B of A, of six rows of four."""
    a = te.placeholder((6, 4), name="A")
    b = te.compute((6, 4), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((6, 4), lambda i, j: b[i, j] * b[i, j], name="C")
    return Case(te.create_schedule(c.op), (a, c))


SPLITS = {
    "factor zero": split("factor must be at least 1, got 0", factor=0),
    "factor negative": split("factor must be at least 1, got -3", factor=-3),
    "factor fraction": split("factor must be a whole number, got 2.5", factor=2.5),
    "factor bool": split("factor must be a whole number, got True", factor=True),
    "factor text": split("factor must be a whole number, got '4'", factor="4"),
    "no factor": split("exactly one of factor and nparts, got neither", "s['C'].split('i', factor=8)"),
    "factor and nparts": split("exactly one of factor and nparts", "s['C'].split('i', factor=4)", factor=4, nparts=5),
    "nparts zero": split("nparts must be at least 1, got 0", nparts=0),
    "nparts bool": split("nparts must be a whole number, got False", nparts=False),
    "unknown tail": split(
        "unknown tail 'gaurd'; there are guard, peel, perfect; did you mean guard", factor=4, tail="gaurd"
    ),
    "perfect factor": split(
        "needs 3 to divide the extent of i, which is 20",
        "s['C'].split('i', factor=3)",
        "s['C'].split('i', factor=3, tail='peel')",
        factor=3,
        tail="perfect",
    ),
    "perfect nparts": split(
        "needs 3 to divide the extent of i, which is 20",
        "s['C'].split('i', nparts=3)",
        "s['C'].split('i', nparts=3, tail='peel')",
        nparts=3,
        tail="perfect",
    ),
    "perfect of a size": Refusal(
        lambda: chain(n),
        (),
        lambda s: s["C"].split("i", 4, tail="perfect"),
        ("needs 4 to divide the extent of i, which is symbolic",),
    ),
    "unknown axis": Refusal(
        chain, (), lambda s: s["C"].split("ii", 4), ("no axis 'ii' in C; there are i; did you mean i?",)
    ),
    "split axis": Refusal(
        chain,
        (lambda s: s["C"].split("i", 4),),
        lambda s: s["C"].split("i", 2),
        ("axis i of C was already transformed; its loops are i_o, i_i",),
    ),
    "parallel axis": Refusal(
        chain,
        (lambda s: s["C"].parallel("i"),),
        lambda s: s["C"].split("i", 2),
        ("axis i of C is parallel; transform it before annotating it",),
    ),
    "outer axis that holds a stage": Refusal(
        squares,
        (lambda s: s["B"].compute_at(s["C"], "i"),),
        lambda s: s["C"].fuse("i", "j"),
        ("B is computed at axis i of C; transform the axis before compute_at",),
        legal=("s['B'].compute_root(); s['C'].fuse('i', 'j')",),
        advice=("compute_at again afterwards",),
    ),
    "nparts of a size that a reduction writes": Refusal(
        lambda: matmul(n, m, 8),
        (),
        lambda s: s["C"].split("i", nparts=4),
        ("i has a symbolic extent", "the element that C updates would not be affine"),
        legal=("s['C'].split('i', factor=4)",),
    ),
    "sampled elsewhere": Refusal(
        chain,
        (lambda s: s.sample_choice("factor", [2, 4]),),
        lambda s: s["C"].split("i", chain().s.sample_choice("fcator", [2, 4])),
        ("no decision 'fcator' was sampled; there are factor; did you mean factor?",),
    ),
}

LOOPS = {
    "fuse no neighbours": Refusal(
        matmul,
        (lambda s: s["C"].split("i", 2),),
        lambda s: s["C"].fuse("i_o", "j"),
        ("only neighbours can be fused, outer first; the loops are i_o, i_i, j, k",),
        legal=("s['C'].reorder('i_o', 'j', 'i_i'); s['C'].fuse('i_o', 'j')",),
    ),
    "fuse inner first": Refusal(
        matmul,
        (),
        lambda s: s["C"].fuse("j", "i"),
        ("only neighbours",),
        legal=("s['C'].reorder('j', 'i'); s['C'].fuse('j', 'i')",),
    ),
    "fuse one axis twice": Refusal(matmul, (), lambda s: s["C"].fuse("j", "j"), ("axis j appears twice",)),
    "fuse an axis again": Refusal(matmul, (), lambda s: s["C"].fuse("i", "j", "i"), ("axis i appears twice",)),
    "fuse mixed kinds": Refusal(
        matmul, (), lambda s: s["C"].fuse("j", "k"), ("j is a spatial axis and k a reduce axis",)
    ),
    "fuse unknown": Refusal(matmul, (), lambda s: s["C"].fuse("i", "jj"), ("no axis 'jj' in C", "did you mean j?")),
    "fuse sizes that a reduction writes": Refusal(
        lambda: matmul(n, m, 8), (), lambda s: s["C"].fuse("i", "j"), ("j has a symbolic extent", "would not be affine")
    ),
    "reorder twice": Refusal(matmul, (), lambda s: s["C"].reorder("i", "j", "i"), ("axis i appears twice",)),
    "reorder unknown": Refusal(
        matmul, (), lambda s: s["C"].reorder("i", "q"), ("no axis 'q' in C; there are i, j, k",)
    ),
    "reorder split axis": Refusal(
        matmul,
        (lambda s: s["C"].split("i", 2),),
        lambda s: s["C"].reorder("j", "i"),
        ("axis i of C was already transformed; its loops are i_o, i_i, j, k",),
    ),
    "skew by itself": Refusal(matmul, (), lambda s: s["C"].skew("i", "i"), ("another axis of its kind (spatial)",)),
    "skew by an inner axis": Refusal(
        matmul,
        (),
        lambda s: s["C"].skew("i", "j", 2),
        ("j is inside i",),
        legal=("s['C'].skew('j', by='i', factor=2)",),
    ),
    "skew mixed kinds": Refusal(
        matmul, (), lambda s: s["C"].skew("k", "j"), ("k can only be skewed by another axis of its kind (reduce)",)
    ),
    "skew by a fraction": Refusal(
        matmul,
        (),
        lambda s: s["C"].skew("j", "i", factor=1.5),  # type: ignore[arg-type]
        ("factor must be a whole number, got 1.5",),
    ),
}

ANNOTATIONS = {
    "unroll a size": Refusal(lambda: chain(n), (), lambda s: s["C"].unroll("i"), ("unroll needs a constant extent",)),
    "unroll nparts of a size": Refusal(
        lambda: chain(n),
        (lambda s: s["C"].split("i", nparts=4),),
        lambda s: s["C"].unroll("i_i"),
        ("i_i has a symbolic one",),
    ),
    "annotate twice": Refusal(
        chain, (lambda s: s["C"].parallel("i"),), lambda s: s["C"].unroll("i"), ("axis i of C is parallel already",)
    ),
    "unknown thread": Refusal(
        chain, (), lambda s: s["C"].bind("i", "threadId.x"), ("unknown thread axis 'threadId.x'; there are blockIdx.x",)
    ),
    "bind a thread twice": Refusal(
        matmul,
        (lambda s: s["C"].bind("i", te.thread_axis("threadIdx.x")),),
        lambda s: s["C"].bind("j", te.thread_axis("threadIdx.x")),
        ("threadIdx.x is bound to axis i of C already",),
    ),
    "bind an axis twice": Refusal(
        chain,
        (lambda s: s["C"].bind("i", "threadIdx.x"),),
        lambda s: s["C"].bind("i", "threadIdx.y"),
        ("axis i of C is bound already",),
    ),
    "vectorize around a stage": Refusal(
        chain,
        (lambda s: s["C"].split("i", 4), lambda s: s["B"].compute_at(s["C"], "i_i")),
        lambda s: s.apply(Vectorize("C", "i_i")),
        ("B is computed inside i_i: its buffer has no lanes",),
    ),
}

STAGES = {
    "unknown stage": Refusal(chain, (), lambda s: s["D"], ("no stage 'D' (inlined?); there are A, B, C",)),
    "inlined stage": Refusal(
        chain,
        (lambda s: s["B"].compute_inline(),),
        lambda s: s["B"].parallel("i"),
        ("no stage 'B' (inlined?); there are A, C",),
    ),
    "stage of another program": Refusal(
        chain, (), lambda s: s[te.compute((4,), lambda i: i, name="T").op], ("no stage 'T'", "there are A, B, C")
    ),
    "loops of an input": Refusal(
        chain, (), lambda s: s["A"].split("i", 4), ("A is an input: it has no loops to schedule",)
    ),
    "loops of an extern stage": Refusal(
        with_extern, (), lambda s: s["S"].split("i", 4), ("S is an extern stage: it has no loops to schedule",)
    ),
    "reorder of an extern stage": Refusal(with_extern, (), lambda s: s["S"].reorder("i"), ("S is an extern stage",)),
    "name that is no name": Refusal(
        chain, (), lambda s: s.sample_choice("my factor", [1, 2]), ("named like a Python variable, got 'my factor'",)
    ),
    "second decision of a name": Refusal(
        chain,
        (lambda s: s.sample_choice("f", [1, 2]),),
        lambda s: s.sample_choice("f", [3]),
        ("there is a decision f already",),
    ),
    "no candidates": Refusal(chain, (), lambda s: s.sample_choice("f", []), ("decision f has no candidates",)),
    "no candidate": Refusal(
        chain, (), lambda s: s.sample_choice("f", [1, 2], 3), ("decision f = 3 is not among [1, 2]",)
    ),
}

ALL = {**SPLITS, **LOOPS, **ANNOTATIONS, **STAGES}


@pytest.mark.parametrize("name", ALL)
def test_refused(name: str) -> None:
    refused(ALL[name])


def test_every_tail_named_as_a_repair_is_accepted() -> None:
    for tail in ("guard", "peel"):
        chain().s["C"].split("i", 3, tail=tail)


@pytest.mark.parametrize(("x", "y"), [(2, 0), (0, 2), (2, -1)])
def test_a_refused_tile_leaves_the_schedule_as_it_was(x: int, y: int) -> None:
    s = matmul().s
    s["C"].unroll("k")
    state, trace = s.state, s.trace
    with pytest.raises(BadArgument, match="factor must be at least 1"):
        s["C"].tile("i", "j", x, y)
    assert s.state is state and s.trace is trace
