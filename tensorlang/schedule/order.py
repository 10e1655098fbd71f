"""The loops of a stage as a tree of axis names and statements, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from tensorlang.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LoopNode:
    """A loop over `axis` around what it runs."""

    axis: str
    body: Order


Node: TypeAlias = LoopNode | str  # a statement stands for itself by name
Order: TypeAlias = tuple[Node, ...]


def chain(axes: tuple[str, ...], inner: Order) -> Order:
    """Return loops over `axes`, outermost first, around `inner`."""
    for axis in reversed(axes):
        inner = (LoopNode(axis, inner),)
    return inner


def loops(order: Order) -> Iterator[LoopNode]:
    """Yield every loop, outer ones first."""
    for node in order:
        if isinstance(node, LoopNode):
            yield node
            yield from loops(node.body)


def statements(order: Order) -> Iterator[str]:
    """Yield every statement in order."""
    for node in order:
        if isinstance(node, LoopNode):
            yield from statements(node.body)
        else:
            yield node


def axes(order: Order) -> tuple[str, ...]:
    """The axes of all loops, outer ones first."""
    return tuple(node.axis for node in loops(order))


def find(order: Order, axis: str) -> LoopNode:
    """Return the loop over an axis."""
    return next(node for node in loops(order) if node.axis == axis)


def path(order: Order, axis: str) -> tuple[str, ...]:
    """The axes down to and including a loop, outermost first; KeyError when there is none."""
    for node in loops_at(order):
        if node.axis == axis:
            return (axis,)
        if axis in axes(node.body):
            return (node.axis, *path(node.body, axis))
    raise KeyError(axis)


def around(order: Order, statement: str) -> tuple[str, ...]:
    """The axes of the loops around a statement, outermost first; KeyError when there is no such statement."""
    if statement in order:
        return ()
    for node in loops_at(order):
        if statement in statements(node.body):
            return (node.axis, *around(node.body, statement))
    raise KeyError(statement)


def places(order: Order, outer: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    """The axes of the loops around every statement, outermost first."""
    found: dict[str, tuple[str, ...]] = {}
    for node in order:
        if isinstance(node, LoopNode):
            found |= places(node.body, (*outer, node.axis))
        else:
            found[node] = outer
    return found


def loops_at(order: Order) -> list[LoopNode]:
    """The loops directly in a body."""
    return [node for node in order if isinstance(node, LoopNode)]


def siblings(order: Order, axis: str) -> Order:
    """The body that holds the loop over an axis."""
    for node in order:
        if isinstance(node, LoopNode):
            if node.axis == axis:
                return order
            if axis in axes(node.body):
                return siblings(node.body, axis)
    raise KeyError(axis)


def rebuild(order: Order, axis: str, change: Callable[[LoopNode], Order]) -> Order:
    """Return the tree with the loop over an axis replaced by what `change` makes of it."""
    done: list[Node] = []
    for node in order:
        if isinstance(node, str):
            done.append(node)
        elif node.axis == axis:
            done += change(node)
        else:
            done.append(LoopNode(node.axis, rebuild(node.body, axis, change)))
    return tuple(done)


def renamed(order: Order, names: dict[str, str]) -> Order:
    """Return the tree with axes renamed."""
    return tuple(
        n if isinstance(n, str) else LoopNode(names.get(n.axis, n.axis), renamed(n.body, names)) for n in order
    )


def with_statements(order: Order, names: dict[str, str]) -> Order:
    """Return the tree with statements renamed."""
    return tuple(
        names.get(n, n) if isinstance(n, str) else LoopNode(n.axis, with_statements(n.body, names)) for n in order
    )
