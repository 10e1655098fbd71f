"""Schedules of recurrences: wavefronts, units in parallel, and what their order refuses."""

from __future__ import annotations

import numpy as np
import pytest

import tensorlang as tvm
from tensorlang import te
from tensorlang.errors import IllegalOrder, IllegalParallel
from tensorlang.testing import check_schedule
from tests.schedule.test_scan import replayed
from tests.te.test_recurrence import aligned, lstm, prefix, smith_waterman


def test_parallel_prefix_sum_is_refused() -> None:
    _, P = prefix(te.var("n"))
    s = te.create_schedule(P.op)
    with pytest.raises(IllegalParallel) as refused:
        s[P].parallel(P.op.axis[0])
    witness = refused.value.witness
    assert witness is not None and (witness.element, witness.distance) == ("prefix[0]", (1,))
    outer, inner = s[P].split(P.op.axis[0], factor=4)
    with pytest.raises(IllegalParallel):
        s[P].vectorize(inner)
    with pytest.raises(IllegalOrder):
        s[P].reorder(inner, outer)


def test_wavefront_of_smith_waterman() -> None:
    """After the skew, all scores of one anti-diagonal may be computed at once."""
    P, Q, H = smith_waterman(te.var("m"), te.var("n"))
    p, q = (np.random.default_rng(s).integers(0, 4, n).astype("int32") for s, n in ((0, 13), (1, 10)))
    s = te.create_schedule(H.op)
    i, j = H.op.axis
    with pytest.raises(IllegalParallel):
        s[H].parallel(j)
    diagonal = s[H].skew(j, i)
    s[H].reorder(diagonal, i)
    s[H].parallel(i)
    check_schedule(s, [P, Q, H], sizes={"m": 13, "n": 10}, inputs={"P": p, "Q": q})
    kernel = tvm.build(s, [P, Q, H])
    got = np.zeros((13, 10), "int32")
    kernel(p, q, got)
    np.testing.assert_array_equal(got, aligned(p, q))
    replayed(s, H)


def test_tiles_of_smith_waterman_in_wavefronts() -> None:
    P, Q, H = smith_waterman(24, 20)
    s = te.create_schedule(H.op)
    io, jo, _, _ = s[H].tile(H.op.axis[0], H.op.axis[1], x_factor=8, y_factor=5)
    wave = s[H].skew(jo, io)
    s[H].reorder(wave, io)
    s[H].parallel(io)
    check_schedule(s, [P, Q, H])


def test_lstm_runs_its_units_at_once_but_not_its_time() -> None:
    inputs, h, c = lstm(te.var("n"), 2, 5)
    s = te.create_schedule(h.op)
    t, b, j = h.op.axis
    with pytest.raises(IllegalParallel):
        s[h].parallel(t)
    s[h].parallel(b)
    jo, ji = s[h].split(j, factor=2)
    s[h].unroll(ji)
    assert str(jo) == "j_o"
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((5, 2, 4, 5)).astype("float32"), rng.standard_normal((4, 5, 5)).astype("float32")
    check_schedule(s, [*inputs, h, c], sizes={"n": 5}, inputs={"X": x, "W": w})
