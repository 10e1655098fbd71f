"""What schedules say of themselves in classic te's words."""

from __future__ import annotations

import pytest

from tensorlang import te
from tensorlang.te.axis import Axis


def tiled() -> tuple[te.Schedule, te.Tensor, te.Tensor, list[Axis]]:
    """B of A, computed in tiles of eight of C; the loops of C."""
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] + 1, name="B")
    C = te.compute((64,), lambda i: B[i] * 2, name="C")
    s = te.create_schedule(C.op)
    outer, inner = s[C].split(C.op.axis[0], factor=8)
    s[B].compute_at(s[C], outer)
    s[C].vectorize(inner)
    return s, B, C, [outer, inner]


def test_where_stages_are() -> None:
    s, B, C, (outer, inner) = tiled()
    assert (s[B].attach_type, s[C].attach_type) == (4, 1)
    assert s[B].attach_stage.name == "C" and s[B].attach_ivar.same_as(outer) and s[C].attach_ivar is None  # type: ignore[union-attr]
    assert s[C].is_output and not s[B].is_output and s[C].origin_op is C.op
    attrs = s[C].iter_var_attrs
    assert [(str(axis), attr.iter_type) for axis, attr in attrs.items()] == [(str(inner), 6)]
    assert s.stage_map[C.op].name == s.stage_map[s[C].op].name == "C" and len(s.stage_map) == 3
    with pytest.raises(KeyError):
        s.stage_map[te.placeholder((3,), name="other").op]


def test_groups() -> None:
    s, B, C, _ = tiled()
    assert s.groups == [] and s[B].group is None
    made = s.create_group(outputs=B, inputs="A")
    assert s.groups == [made] and s[B].group is made and s[C].group is None and s.again().groups == [made]


def test_how_axes_are_made() -> None:
    A = te.placeholder((6, 8), name="A")
    B = te.compute((6, 8), lambda i, j: A[i, j] + 1, name="B")
    s = te.create_schedule(B.op)
    fused = s[B].fuse(*B.op.axis)
    outer, inner = s[B].split(fused, nparts=4)
    first, second = s[B].relations
    assert isinstance(first, te.schedule.Fuse) and isinstance(second, te.schedule.Split)
    assert (str(first.outer), str(first.inner)) == ("i", "j") and first.fused.same_as(fused)
    assert second.parent.same_as(fused) and second.outer.same_as(outer) and second.inner.same_as(inner)
    assert (second.factor, second.nparts) == (None, 4) and not outer.same_as(inner)


def test_inferred_ranges() -> None:
    s, B, C, (outer, inner) = tiled()
    bounds = te.schedule.InferBound(s.normalize())
    found = {str(axis): str(bounds[axis].extent) for axis in (outer, inner, C.op.axis[0], B.op.axis[0])}
    assert found == {"i_o": "8", "i_i": "8", "i": "8"}  # eight of B's are needed in a tile: the last i
    assert str(bounds[C.op.axis[0]].extent) == "64" and len(bounds) == len(list(bounds))
    with pytest.raises(KeyError):
        bounds[te.reduce_axis((0, 3), "k")]
