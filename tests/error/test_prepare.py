"""Stages that are not of the kind that a rewrite takes: products, windows, attention, running reductions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tensorlang import te, topi
from tensorlang.schedule import Schedule
from tests.error.refusal import Refusal, refused
from tests.programs import Case, chain, matmul
from tests.schedule.primitive_uses import attended, convolution, narrow, running


def windows(s: Schedule, rows: Sequence[str] = ("nn", "yy", "xx"), groups: int = 1) -> object:
    """The usual windows of the convolution."""
    return s["C"].windows_product(rows, ["ry", "rx", "rc"], groups)


def padded_floats() -> Case:
    """A strict schedule of a convolution with padding."""
    D, W = te.placeholder((1, 3, 3, 2), name="D"), te.placeholder((2, 2, 2, 4), name="W")
    C = topi.conv2d(D, W, padding=1, data_layout="NHWC", name="C")
    return Case(te.create_schedule(C.op, strict=True), (D, W, C))


def of_parts() -> Case:
    """A product of bytes whose second matrix has more rows than there are terms."""
    A, B = te.placeholder((5, 6), "int8", "A"), te.placeholder((8, 7), "int8", "B")
    k = te.reduce_axis((0, 6), "k")
    C = te.compute((5, 7), lambda i, j: te.sum(A[i, k].astype("int32") * B[k, j].astype("int32"), axis=k), name="C")
    return Case(te.create_schedule(C.op), (A, B, C))


def strict_attention() -> Case:
    """An attention whose sums keep their order."""
    made = attended()
    return Case(te.create_schedule(made.args[-1].op, strict=True), made.args)


def differences() -> Case:
    """What is left of a row when its elements are taken away one by one, and what reads two elements of its own."""
    A = te.placeholder((9,), name="A")
    B = te.recurrence((9,), lambda self, i: te.if_then_else(i > 0, self[i - 1] - A[i], A[i]), name="B")
    C = te.recurrence((9,), lambda self, i: te.if_then_else(i > 0, self[i - 1] + self[0] * B[i], B[i]), name="C")
    return Case(te.create_schedule(C.op), (A, C))


WHAT = "C is no product of two whole matrices of narrow numbers (bfloat16 by bfloat16 in float32, int8 by int8 in int32"
PREPARE = {
    "floats": Refusal(matmul, (), lambda s: s["C"].narrow_product(16, "float32"), (WHAT,)),
    "no product": Refusal(chain, (), lambda s: s["C"].narrow_product(16, "int8"), (WHAT,)),
    "a part of a matrix": Refusal(of_parts, (), lambda s: s["C"].narrow_product(16, "int8"), (WHAT,)),
    "another dtype of rows": Refusal(
        lambda: narrow("uint8"), (), lambda s: s["C"].narrow_product(16, "int8"), ("C is no product",)
    ),
    "signed rows": Refusal(
        lambda: narrow("int8"),
        (),
        lambda s: s["C"].narrow_product(16, "int16"),
        ("rows of int8 are multiplied as int8 or uint8, got data='int16'",),
    ),
    "width": Refusal(
        lambda: narrow("int8"), (), lambda s: s["C"].narrow_product(0, "int8"), ("width must be at least 1, got 0",)
    ),
    "after other steps": Refusal(
        lambda: narrow("int8"),
        (lambda s: s["C"].split("i", 2),),
        lambda s: s["C"].narrow_product(16, "int8"),
        ("C was scheduled already; a rewrite of what it computes must come first",),
    ),
    "rows": Refusal(
        convolution, (), lambda s: windows(s, ["nn", "xx"]), ("rows are all of nn, yy, xx, ff but one, and terms all",)
    ),
    "columns as rows": Refusal(
        convolution,
        (),
        lambda s: windows(s, ["nn", "yy", "ff"]),
        ("one factor and the condition do not move with xx but for its group, the other not with rows",),
    ),
    "groups": Refusal(convolution, (), lambda s: windows(s, groups=3), ("3 groups of ff < 4",)),
    "no groups": Refusal(convolution, (), lambda s: windows(s, groups=0), ("groups must be at least 1, got 0",)),
    "no sum": Refusal(chain, (), lambda s: s["C"].windows_product([], []), ("C is a sum of products of two elements",)),
    "strict": Refusal(padded_floats, (), windows, ("no number under an infinite weight", "the schedule is strict")),
    "no attention": Refusal(
        matmul, (), lambda s: s["C"].blocked_attention(4, 2), ("C is no output of topi.attention",)
    ),
    "a part of an attention": Refusal(
        attended, (), lambda s: s["C_scaled"].blocked_attention(4, 2), ("C_scaled is no output of topi.attention",)
    ),
    "an attention of which a part was scheduled": Refusal(
        attended,
        (lambda s: s["C_score"].parallel("i0"),),
        lambda s: s["C"].blocked_attention(4, 2),
        ("C_score was scheduled already",),
    ),
    "no block": Refusal(attended, (), lambda s: s["C"].blocked_attention(0, 2), ("keys must be at least 1, got 0",)),
    "a strict attention": Refusal(
        strict_attention, (), lambda s: s["C"].blocked_attention(4, 2), ("rounds weights of C", "schedule is strict")
    ),
    "no running reduction": Refusal(
        matmul, (), lambda s: s["C"].running_pieces("i", 4), ("C is no recurrence of one value along i by one of add",)
    ),
    "differences": Refusal(differences, (), lambda s: s["B"].running_pieces("i", 4), ("B is no recurrence",)),
    "terms of its own": Refusal(differences, (), lambda s: s["C"].running_pieces("i", 4), ("C is no recurrence",)),
    "another axis": Refusal(running, (), lambda s: s["C"].running_pieces("r", 4), ("C is no recurrence", "along r")),
    "no piece": Refusal(running, (), lambda s: s["C"].running_pieces("i", 0), ("size must be at least 1, got 0",)),
    "a strict sum": Refusal(
        lambda: running(strict=True),
        (),
        lambda s: s["C"].running_pieces("i", 4),
        ("adds up pieces of C first", "schedule is strict"),
    ),
}


@pytest.mark.parametrize("name", PREPARE)
def test_refusals(name: str) -> None:
    refused(PREPARE[name])
