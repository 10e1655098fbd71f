"""Arrays that several parts of a program own have names that no other array has."""

from __future__ import annotations

from tensorlang import te
from tensorlang.testing.check import check_schedule


def test_an_array_of_two_owners_takes_no_name_of_another_stage() -> None:
    """Of the loop over 16 elements, and of the part behind it, where one element is left and no loop."""
    a = te.placeholder((3, 17), name="A")
    other = te.compute((3, 17), lambda i, j: a[i, j] * 3, name="P_1")
    inside = te.compute((3, 17), lambda i, j: a[i, j] + 1, name="P")
    c = te.compute((3, 17), lambda i, j: inside[i, j] * 10 + other[i, j], name="C")
    s = te.create_schedule(c.op)
    _, inner = s[c].split(c.op.axis[1], factor=16, tail="peel")
    s[other].compute_at(s[c], c.op.axis[0])
    s[inside].compute_at(s[c], inner)
    check_schedule(s, [a, c])
