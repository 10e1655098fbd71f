"""Elements found through data: taken as any element, unless the user states a fact; a wrong fact is found out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorlang import build, config, te
from tensorlang.errors import ArgumentError, BadArgument, IllegalParallel
from tensorlang.ir.expr import Buffer, Expr, Load, Var, cast
from tensorlang.ir.stmt import INDEX, For, LoopKind, Seq, Store
from tensorlang.schedule import Schedule
from tensorlang.te.operation import HybridOp, Read

N = 8
Index = Callable[[Expr], Expr]


def scatter(*targets: Index, update: bool = True) -> Schedule:
    """`for i: out[target(i)] += x[i]` for each target, an index that may read idx."""
    x, out = te.placeholder((N,), "int32", name="x"), te.placeholder((2 * N,), "int32", name="out")
    made, i = Buffer("P", out.shape, "int32"), Var("i", INDEX)
    stores = []
    for target in targets:
        at = (cast(target(i), INDEX),)
        value = Read(x, (i,))
        stores.append(Store(made, at, Load(made, at) + value if update else value))
    body = For(i, cast(0, INDEX), cast(N, INDEX), LoopKind.SERIAL, Seq(tuple(stores)))
    s: Schedule = te.create_schedule(HybridOp("P", (made,), body, (out,)))
    return s


IDX = te.placeholder((2 * N,), "int32", name="idx")


def idx(offset: int = 0, at: int = 0) -> Index:
    return lambda i: cast(Read(IDX, (i + at,)), INDEX) + offset


def refusal(s: Schedule) -> IllegalParallel:
    with pytest.raises(IllegalParallel) as caught:
        s["P"].parallel("i")
    return caught.value


def run(s: Schedule, index: list[int]) -> tuple[Any, Any]:
    """The result of a scatter, and what it should be."""
    tensors = [op.output(0) for op in s.original.ops]
    given = {
        "x": np.arange(1, N + 1, dtype="int32"),
        "out": np.zeros(2 * N, "int32"),
        "idx": np.array(index + [0] * (2 * N - len(index)), "int32"),
    }
    args = [t for t in tensors if t.op.name in given]
    expected = given["out"].copy()
    np.add.at(expected, given["idx"][:N], given["x"])
    build(s, args)(*(given[t.op.name] for t in args))
    return given["out"], expected


def test_the_refusal_says_that_data_is_the_reason_and_what_helps() -> None:
    error = refusal(scatter(idx()))
    assert "out[int64(idx[i])] in P.S0 depends on data: it counts as any element" in error.why
    assert error.witness is not None and error.witness.element == "out[...]"
    assert error.legal == (
        "s['P'].atomic(); s['P'].parallel('i')",
        "s.assume('injective', 'idx'); s['P'].parallel('i')",
    )


def test_what_cannot_be_true_is_not_offered() -> None:
    image = te.placeholder((20, 20), "uint8", name="image")  # more elements than a byte has values

    @te.hybrid.script
    def histogram(image):  # type: ignore[no-untyped-def]
        out = te.output_tensor((256,), "int32")
        for b in range(256):
            out[b] = 0
        for y in range(20):
            for x in range(20):
                out[image[y, x]] = out[image[y, x]] + 1
        return out

    s: Schedule = te.create_schedule(histogram(image).op)
    with pytest.raises(IllegalParallel) as caught:
        s["histogram"].parallel("y")
    assert "s['histogram'].atomic(); s['histogram'].parallel('y')" in caught.value.legal
    assert not any("injective" in line for line in caught.value.legal)


def test_the_offered_fact_makes_it_legal_and_right() -> None:
    s = scatter(idx())
    exec(refusal(s).legal[0], {"s": s})
    whole = [3, 1, 4, 15, 9, 2, 6, 5]
    with config.override(check=False):
        got, wanted = run(s, whole)
    np.testing.assert_array_equal(got, wanted)


def test_a_wrong_fact_is_found_out_before_the_kernel_runs() -> None:
    s = scatter(idx())
    s.assume("injective", "idx")
    s["P"].parallel("i")
    with pytest.raises(ArgumentError, match=r"idx is not injective.*idx\[1\] and idx\[4\] are both 7"):
        run(s, [3, 7, 4, 0, 7, 7, 6, 5])
    with config.override(check=False):
        run(s, [3, 7, 4, 0, 7, 7, 6, 5])


@pytest.mark.parametrize(
    ("fact", "index", "complaint"),
    [
        (("monotonic", "idx"), [0, 2, 1], r"idx\[1\] is 2, and idx\[2\] is 1"),
        (("range", "idx", 0, 5), [0, 1, 5], r"idx\[2\] is 5"),
        (("range", "idx", 1, 9), [4, 0], r"1 <= element < 9.*idx\[1\] is 0"),
    ],
)
def test_what_contradicts_a_fact(fact: tuple[Any, ...], index: list[int], complaint: str) -> None:
    s = scatter(idx())
    s.assume(*fact)
    with pytest.raises(ArgumentError, match=complaint):
        run(s, index)


def test_what_fits_a_fact_runs() -> None:
    s = scatter(idx())
    s.assume("monotonic", "idx")
    s.assume("range", "idx", 0, 10)
    got, wanted = run(s, [0, 0, 1, 2, 2, 5, 9, 9] + [9] * N)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("targets", "update", "facts", "legal"),
    [
        ((idx(),), False, (), False),
        ((idx(),), False, (("injective",),), True),
        ((idx(1),), True, (("injective",),), True),
        ((idx(0, 3),), True, (("injective",),), True),
        ((idx(), idx()), True, (("injective",),), True),
        ((idx(), idx(1)), True, (("injective",),), False),  # idx may hold 3 and 4
        ((idx(), idx(0, 1)), True, (("injective",),), False),  # the next iteration's element
        ((idx(), lambda i: i), True, (("injective",),), False),
        ((idx(), lambda i: i + 8), True, (("injective",),), False),
        ((idx(), lambda i: i + 8), True, (("injective",), ("range", 0, 8)), True),
        ((idx(), lambda i: i + 8), True, (("injective",), ("range", 0, 9)), False),
        ((idx(),), True, (("monotonic",),), False),
        ((idx(),), True, (("range", 0, 1),), False),
    ],
)
def test_how_far_facts_reach(targets: Any, update: bool, facts: Any, legal: bool) -> None:
    s = scatter(*targets, update=update)
    for kind, *limits in facts:
        s.assume(kind, "idx", *limits)
    if legal:
        s["P"].parallel("i")
    else:
        refusal(s)


def test_monotonic_orders_neighbours() -> None:
    """`out[idx[i]] = x[i]; out[idx[i] + 1] = x[i]`: an element is written by the second store of an earlier iteration
    than by the first, so that all second stores may run before all first ones; the other way round is wrong."""
    s = scatter(idx(), idx(1), update=False)
    with pytest.raises(Exception, match="would run before what it needs"):
        s["P"].fission("i")
    s.assume("injective", "idx")
    s.assume("monotonic", "idx")
    with pytest.raises(Exception, match="would run before what it needs"):
        s["P"].fission("i")
    backwards = scatter(idx(1), idx(), update=False)
    with pytest.raises(Exception, match="would run before what it needs"):
        backwards["P"].fission("i")
    backwards.assume("monotonic", "idx")
    backwards["P"].fission("i")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("distinct", "idx"), "unknown fact 'distinct'"),
        (("injective", "idy"), "no array 'idy'"),
        (("injective", "P"), "P is computed"),
        (("injective", "out"), "out is updated in place"),
        (("injective", "idx", 0, 3), "injective takes no range"),
        (("range", "idx"), "a range needs whole numbers"),
    ],
)
def test_what_cannot_be_assumed(arguments: tuple[Any, ...], why: str) -> None:
    with pytest.raises(BadArgument, match=why):
        scatter(idx()).assume(*arguments)


def test_facts_are_steps_of_the_trace() -> None:
    s = scatter(idx())
    s.assume("injective", "idx")
    s.assume("range", "idx", 0, 8)
    s["P"].parallel("i")
    again = type(s.trace).from_json(s.trace.to_json()).apply(scatter(idx()))
    assert again.trace == s.trace and again.state.facts == s.state.facts
