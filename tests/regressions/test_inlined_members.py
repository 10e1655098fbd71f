"""Members of a scan that are inlined: what another time step computed from arrays of its own cannot be again."""

from __future__ import annotations

import pytest

from tensorlang import te
from tensorlang.errors import BadArgument
from tensorlang.schedule import Schedule
from tensorlang.testing.check import check_schedule


def two_steps_back() -> tuple[Schedule, list[te.Tensor]]:
    X = te.placeholder((5, 4), "int32", name="X")
    state = te.placeholder((5, 4), "int32", name="state")
    first = te.compute((1, 4), lambda t, i: X[t, i], name="first")
    A = te.compute((5, 4), lambda t, i: X[t, i] * state[t - 1, i], name="A")
    B = te.compute((5, 4), lambda t, i: X[t, i] * A[t, i], name="B")
    last = te.compute((5, 4), lambda t, i: X[t, i] + te.if_then_else(t >= 2, B[t - 1, i], 1), name="last")
    net = te.scan(first, last, state, inputs=[X], name="net")
    return te.create_schedule(net.op), [X, net]


def test_a_value_of_another_step_is_not_computed_from_arrays_of_this_one() -> None:
    s, args = two_steps_back()
    with pytest.raises(BadArgument, match=r"net\.B\[t - 1, i.*\] is of another iteration of t, each of which has"):
        s["net.B"].compute_inline()
    check_schedule(s, args)


def test_it_is_where_those_are_inlined_too() -> None:
    s, args = two_steps_back()
    s["net.A"].compute_inline()
    s["net.B"].compute_inline()
    check_schedule(s, args)
