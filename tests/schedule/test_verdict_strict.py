"""A strict schedule keeps the order of floating-point updates, and says so when a step would not."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from tensorlang import build, te
from tensorlang.errors import BadArgument, IllegalOrder, IllegalParallel
from tensorlang.schedule import Schedule, Trace
from tensorlang.te.operation import Operation

N = 6
WHY = "the schedule is strict: floating-point updates of one element keep the order of the program"
Step = Callable[[Schedule], object]


def plane(dtype: str) -> Operation:
    A = te.placeholder((N, 8, 9), dtype, name="A")
    k, r = te.reduce_axis((0, 8), "k"), te.reduce_axis((0, 9), "r")
    made: te.Tensor = te.compute((N,), lambda i: te.sum(A[i, k, r], axis=[k, r]), name="B")
    return made.op


def script(dtype: str) -> Operation:
    @te.hybrid.script
    def B(A, out):  # type: ignore[no-untyped-def]
        for i in range(6):
            for k in range(8):
                for r in range(9):
                    out[i] += A[i, k, r]
        return out

    tensor: te.Tensor = B(te.placeholder((N, 8, 9), dtype, name="A"), te.placeholder((N,), dtype, name="out"))
    return tensor.op


PROGRAMS = {made.__name__: made for made in (plane, script)}
programs = pytest.mark.parametrize("make", PROGRAMS.values(), ids=PROGRAMS)


@programs
@pytest.mark.parametrize(
    ("step", "error"),
    [
        (lambda s: s["B"].reorder("r", "k"), IllegalOrder),
        (lambda s: s["B"].reverse("k"), IllegalOrder),
        (lambda s: s["B"].parallel("k"), IllegalParallel),
        (lambda s: s["B"].vectorize("r"), IllegalParallel),
    ],
    ids=["reorder", "reverse", "parallel", "vectorize"],
)
def test_floats_keep_their_order(
    make: Callable[[str], Operation], step: Step, error: type[IllegalOrder | IllegalParallel]
) -> None:
    with pytest.raises(error) as caught:
        step(te.create_schedule(make("float32"), strict=True))
    assert WHY in caught.value.why
    if error is IllegalOrder:
        step(te.create_schedule(make("float32")))


@programs
@pytest.mark.parametrize("step", [lambda s: s["B"].reorder("r", "k"), lambda s: s["B"].reverse("k")])
def test_integers_are_not_affected(make: Callable[[str], Operation], step: Step) -> None:
    step(te.create_schedule(make("int32"), strict=True))


@programs
def test_what_keeps_the_order_stays_legal(make: Callable[[str], Operation]) -> None:
    s = te.create_schedule(make("float32"), strict=True)
    s["B"].split("k", factor=3)
    s["B"].reorder("k_o", "k_i", "i", "r")
    s["B"].vectorize("i")


def test_the_bits_stay_the_same() -> None:
    A = np.random.default_rng(3).random((N, 8, 9)).astype("float32") - np.float32(0.5)
    results = []
    several: list[list[Step]] = [[], [lambda s: s["B"].reorder("k", "r", "i"), lambda s: s["B"].parallel("i")]]
    for steps in several:
        s = te.create_schedule(plane("float32"), strict=True)
        for step in steps:
            step(s)
        out = np.zeros(N, "float32")
        build(s, [op.output(0) for op in s.original.ops])(A, out)
        results.append(out.tobytes())
    assert results[0] == results[1]


def test_rfactor_is_refused_for_floats_alone() -> None:
    with pytest.raises(BadArgument, match="another order of its floating-point updates, and the schedule is strict"):
        te.create_schedule(plane("float32"), strict=True).rfactor("B", "k")
    te.create_schedule(plane("int32"), strict=True).rfactor("B", "k")


def test_a_replay_is_strict_too() -> None:
    s = te.create_schedule(plane("float32"), strict=True)
    s["B"].split("k", factor=3)
    assert s.trace.to_python() == "s.strict()\ns['B'].split('k', factor=3)\n"
    read = Trace.from_json(json.loads(json.dumps(s.trace.to_json())))
    for strict in (False, True):
        again = read.apply(te.create_schedule(plane("float32"), strict=strict))
        assert again.trace == s.trace and again.state.strict
        with pytest.raises(IllegalOrder):
            again["B"].reorder("r", "k_i")


def test_strictness_looks_back() -> None:
    s = te.create_schedule(plane("float32"))
    s["B"].reorder("r", "k")
    with pytest.raises(IllegalOrder) as caught:
        s.strict()
    assert WHY in caught.value.why and not s.state.strict
