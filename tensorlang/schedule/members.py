"""Stages of operations that run inside a hybrid one: their axes, by the loops that those are there."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, TypeVar

from tensorlang.dataclass import dataclass
from tensorlang.polyhedral.ordered import sources
from tensorlang.schedule import order
from tensorlang.schedule.state import ScheduleState
from tensorlang.te.axis import Axis, AxisKind
from tensorlang.te.operation import HybridOp, Member, Operation, Tensor

AxisLike = Axis | str
C = TypeVar("C", bound=type[Any])


def member_of(op: Operation, key: Any) -> Member | None:
    """The member of a hybrid operation that a tensor, an operation or a name stands for."""
    wanted = key.op if isinstance(key, Tensor) else key
    if not isinstance(op, HybridOp):
        return None
    return next((m for m in op.members if wanted is m.op or wanted == m.op.name or wanted in m.arrays), None)


def host_of(program: Mapping[str, Operation], key: Any) -> str | None:
    """The stage that a tensor, an operation or a name is a member of."""
    return next((op.name for op in program.values() if member_of(op, key) is not None), None)


@dataclass(frozen=True, slots=True)
class Inside:
    """Whose axes are meant in a stage: those of `member` by name, and those of all `members` as objects.

    `merged` gives loops that have become one with others their new names.
    """

    member: Member | None
    members: tuple[Member, ...]
    merged: Mapping[str, str] = field(default_factory=dict)

    def loop(self, axis: Any) -> Any:
        """The loop of an axis; anything else stays what it is."""
        found = self._loop(axis)
        while str(found) in self.merged:
            found = self.merged[str(found)]
        return found

    def _loop(self, axis: Any) -> Any:
        match axis:
            case str():
                return axis if self.member is None else self.member.loops.get(axis, axis)
            case list() | tuple():
                return tuple(self.loop(a) for a in axis)
            case Axis():
                mine = () if self.member is None else (self.member,)
                owners = (m for m in (*mine, *self.members) if any(a is axis for a in (*m.op.axis, *m.op.reduce_axis)))
                owner = next(owners, None)
                return axis if owner is None else owner.loops[axis.name]
        return axis


def leaves_of(state: ScheduleState, stage: str, member: Member) -> tuple[str, ...]:
    """The loops around the statements of a member, outer ones first."""
    current, op = state.stages[stage], state.program[stage]
    assert isinstance(op, HybridOp)
    own = {member.loops[a.name] for a in member.op.axes}
    every = set(member.loops.values())
    mine: set[str] = set()
    for name, strand in current.strands.items():
        loops = set(sources(op)[strand.source].axes)
        if own <= loops <= every:
            mine |= set(order.around(current.order, name))
    return tuple(a for a in current.leaves if a in mine)


def by_own_names(cls: C) -> C:
    """Let the methods of a class that take axes refuse those of other stages, and take a member's own.

    `self.require_own(method, axis, stage, anywhere)` refuses, and names them; `self.inside` translates.
    """
    for name, function in list(vars(cls).items()):
        if inspect.isfunction(function):
            axes = [k for k, a in function.__annotations__.items() if "AxisLike" in str(a) and k != "return"]
            if axes:
                setattr(cls, name, _translating(function, axes))
    return cls


_OF_ANOTHER = {("compute_at", "scope"): "parent", ("reverse_compute_at", "scope"): "parent"} | {
    ("fuse_with", "other"): "stage"
}
"""Method and argument -> the argument that names the stage whose axis it is."""
_ANYWHERE = {("prefetch", "along"), ("prefetch", "shared"), ("bind", "thread_ivar")}
"""Arguments that may be loops around the stage, or no loops at all."""


def _translating(function: Callable[..., Any], axes: list[str]) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError as error:
            wanted = str(signature).replace("self, ", "").split(" -> ")[0].replace("'", "")
            raise TypeError(f"{function.__name__}{wanted}: {error}") from None
        inside: Inside | None = self.inside
        for name in (name for name in axes if name in bound.arguments):
            given, key = bound.arguments[name], (function.__name__, name)
            named: dict[int, str] = {}
            for axis in objects(given):
                other = bound.arguments.get(_OF_ANOTHER.get(key, ""))
                found = self.require_own(function.__name__, axis, other, key in _ANYWHERE)
                named |= {id(axis): found} if found != axis.name else {}
            if named:
                bound.arguments[name] = _renamed(given, named)
            elif inside is not None:
                bound.arguments[name] = inside.loop(given)
        return function(*bound.args, **bound.kwargs)

    return method


def _renamed(given: Any, named: Mapping[int, str]) -> Any:
    """An argument with the names of axes whose operation calls them otherwise in their places."""
    if isinstance(given, list | tuple):
        return tuple(_renamed(part, named) for part in given)
    return named.get(id(given), given)


def objects(given: Any) -> Iterator[Axis]:
    """The axis objects in an argument, lists of any depth included; threads are nobody's."""
    if isinstance(given, Axis) and given.kind is not AxisKind.THREAD:
        yield given
    for part in given if isinstance(given, list | tuple) else ():
        yield from objects(part)
