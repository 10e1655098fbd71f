"""A refusal says for which sizes it holds; for all others the schedule is legal."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest

from tensorlang import te
from tensorlang.errors import ScheduleError
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.legality import TimeSpace
from tensorlang.polyhedral.sizes import sizes_text
from tensorlang.polyhedral.statement import Scop
from tensorlang.schedule import Schedule
from tensorlang.schedule import primitives as p
from tensorlang.schedule.derive import derive
from tensorlang.schedule.primitive import Primitive
from tests.property import enumeration

n, m = te.var("n"), te.var("m")


@te.hybrid.script
def far(A):  # type: ignore[no-untyped-def]
    for i in range(A.shape[0] - 5):
        for j in range(A.shape[1]):
            A[i + 5, j] = A[i, j] + 1
    return A


@te.hybrid.script
def mirror(A):  # type: ignore[no-untyped-def]
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            A[i, j] = A[A.shape[0] - 1 - i, j] + 1
    return A


@te.hybrid.script
def triangle(A):  # type: ignore[no-untyped-def]
    for i in range(2, A.shape[0]):
        for j in range(i - 1):
            A[i, j] = A[i - 1, j + 1] + A[j, 0]
    return A


@te.hybrid.script
def one(A):  # type: ignore[no-untyped-def]
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            A[0, 0] = A[i, j] - A[0, 0]
    return A


def made(script: Any, shape: tuple[Any, ...]) -> Schedule:
    made: Schedule = te.create_schedule(script(te.placeholder(shape, "int32", name="A")).op)
    return made


CASES: dict[str, tuple[Any, tuple[Any, ...], Primitive, str]] = {
    "far": (far, (n, m), p.Parallel("far", "i"), "n >= 11 and m > 0"),
    "far reversed": (far, (n, m), p.Reverse("far", "i"), "n >= 11 and m > 0"),
    "mirror": (mirror, (n, m), p.Parallel("mirror", "i"), "n >= 2 and m > 0"),
    "square": (mirror, (n, n), p.Reverse("mirror", "i"), "n >= 2"),
    "triangle": (triangle, (n, n), p.Parallel("triangle", "i"), "n >= 5"),
    "one": (one, (n, m), p.Parallel("one", "j"), "n > 0 and m >= 2"),
}


@pytest.mark.parametrize("name", CASES)
def test_exactly_those_sizes_fail(name: str) -> None:
    """What the error says, against all pairs of instances for sizes up to a dozen."""
    script, shape, step, wanted = CASES[name]
    s = made(script, shape)
    with pytest.raises(ScheduleError) as caught:
        s.apply(step)
    assert caught.value.witness is not None
    assert caught.value.witness.sizes_text == f"fails exactly when {wanted}"
    assert f"\n    fails exactly when {wanted}\n" in f"{caught.value}\n"
    s.advance(step, check=False)
    derived = derive(s.state)
    names = sorted(v.name for v in s.program.sizes)
    for values in product((0, 1, 2, 3, 4, 5, 10, 11, 12) if len(names) == 1 else (0, 1, 2, 10, 11), repeat=len(names)):
        sizes = dict(zip(names, values, strict=True))
        failing = next(enumeration.broken(derived, sizes), None) is not None
        assert failing == eval(wanted, {}, sizes), sizes


def test_constant_extents_have_no_sizes() -> None:
    with pytest.raises(ScheduleError) as caught:
        made(mirror, (4, 4))["mirror"].parallel("i")
    assert caught.value.witness is not None and caught.value.witness.sizes_text == ""


@pytest.mark.parametrize(
    ("sets", "text"),
    [
        (["n >= 3"], "n >= 3"),
        (["n >= 3", "n <= 2"], "all"),
        (["n >= 5 and m >= 2"], "m >= 2 and n >= 5"),
        (["n = 4"], "n = 4"),
        (["n >= 3", "n >= 5"], "n >= 3"),
    ],
)
def test_sizes_in_the_users_names(sets: list[str], text: str) -> None:
    space = TimeSpace(Scop((), (), frozenset({"n", "m"})))
    names = {"m": space.namer.parameter(m), "n": space.namer.parameter(n)}
    prefix = space.namer.prefix()
    texts = [re.sub(r"\b[mn]\b", lambda found: names[found[0]], s) for s in sets]
    found = [isl.make_set(f"{prefix}{{ : {text} }}") for text in texts]
    assert sizes_text(found, space) == text
