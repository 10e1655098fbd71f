"""Groups of stages: who is a member, and that they move together or not at all."""

from __future__ import annotations

import pytest

from tensorlang import lower, te
from tensorlang.errors import BadArgument, UncoveredRead
from tensorlang.schedule import Schedule
from tensorlang.schedule.trace import Trace
from tensorlang.testing.check import check_schedule


def diamond() -> tuple[Schedule, list[te.Tensor]]:
    """E reads D, which reads C and B, which C reads too; B reads A."""
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1, name="B")
    c = te.compute((64,), lambda i: b[i] * 2, name="C")
    d = te.compute((64,), lambda i: c[i] + b[i], name="D")
    e = te.compute((64,), lambda i: d[i] * 3, name="E")
    return te.create_schedule(e.op), [a, b, c, d, e]


def names(s: Schedule, outputs: object, inputs: object, include_inputs: bool = False) -> list[str]:
    return [stage.name for stage in s.create_group(outputs, inputs, include_inputs).stages]


def test_members_lie_between_inputs_and_outputs() -> None:
    s, (a, b, c, d, _) = diamond()
    assert names(s, [d], [a]) == ["B", "C", "D"]
    assert names(s, d, b) == ["C", "D"]
    assert names(s, d, b, include_inputs=True) == ["B", "C", "D"]
    assert names(s, [d], [a], include_inputs=True) == ["B", "C", "D"]
    assert names(s, c, [b]) == ["C"]
    assert repr(s.create_group(d, a)) == "Group(B, C, D)"


def test_all_members_move_to_a_tile_and_back() -> None:
    s, (a, _, _, d, e) = diamond()
    group = s.create_group(outputs=[d], inputs=[a])
    i_o, _ = s[e].split("i", factor=8)
    group.compute_at(s[e], i_o)
    assert str(lower(s, [a, e])).count("float32[8] in global") == 3
    check_schedule(s, [a, e])
    group.compute_root()
    assert str(lower(s, [a, e])).count("float32[64] in global") == 3
    check_schedule(s, [a, e])


def test_a_member_inside_another_one_stays_there() -> None:
    s, (a, _, c, d, e) = diamond()
    s[c].compute_at(s[d], "i")
    i_o, _ = s[e].split("i", factor=8)
    s.create_group(d, a).compute_at(s[e], i_o)
    place = s.state.stages["C"].attach
    assert place is not None and (place.stage, place.axis) == ("D", "i")
    check_schedule(s, [a, e])


def test_members_wait_for_their_readers() -> None:
    s, (a, b, c, d, e) = diamond()
    i_o, _ = s[e].split("i", factor=8)
    s.create_group([c], [b]).compute_at(s[e], i_o)
    with pytest.raises(BadArgument, match="C is to be computed at i_o of E, but D, which reads it, is not"):
        lower(s, [a, e])
    s[d].compute_at(s[e], i_o)
    assert str(lower(s, [a, e])).count("float32[8] in global") == 2
    check_schedule(s, [a, e])


def test_all_move_or_none() -> None:
    s, (a, b, _, _, e) = diamond()
    f = te.compute((64,), lambda i: e[i] + 1, name="F")
    g = te.compute((64,), lambda i: b[i] + 1, name="G")
    s = te.create_schedule([f.op, g.op])
    before = s.state
    with pytest.raises(UncoveredRead, match="G reads B outside the loop i of F") as caught:
        s.create_group(e, a).compute_at(s[f], "i")
    assert s.state is before and not s.trace.steps
    assert caught.value.asked == "s['B'].compute_at(s['F'], 'i')" and caught.value.where is not None
    check_schedule(s, [a, f, g])


def test_refusals() -> None:
    s, (a, b, _, d, e) = diamond()
    with pytest.raises(BadArgument, match="E bounds no way to D: nothing of the group reads it"):
        s.create_group(d, e)
    with pytest.raises(BadArgument, match="no stage lies between B and B"):
        s.create_group(b, b)
    with pytest.raises(BadArgument, match="D is a member of the group") as caught:
        s.create_group(d, a).compute_at(s[d], "i")
    assert caught.value.asked == "s.create_group(B, C, D).compute_at(s['D'], 'i')"
    with pytest.raises(BadArgument, match="no stage 'Q'"):
        s.create_group("Q", a)


def test_moves_are_ordinary_steps() -> None:
    s, (a, _, _, d, e) = diamond()
    s.create_group(d, a).compute_at(s[e], "i")
    assert s.trace.to_python().splitlines() == [f"s['{n}'].compute_at(s['E'], 'i')" for n in "DCB"]
    again = diamond()[0]
    Trace.from_json(s.trace.to_json()).apply(again)
    assert again.trace == s.trace
