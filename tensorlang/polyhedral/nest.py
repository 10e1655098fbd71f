"""The tree of a scheduled program: loops, sequences, and statements at the leaves.

Plain Python, derived from a schedule's stages; isl orders and schedule trees are made from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr
from tensorlang.ir.stmt import LoopKind
from tensorlang.polyhedral.statement import Scop, Statement


@dataclass(frozen=True, slots=True)
class Loop:
    """One schedule axis as a loop. `name` is unique in the tree; `axis` is the user's name of it.

    `peel` lists the point loops (name, extent) whose full range makes a full tile, and statements (name, 1) that are
    full tiles by themselves; empty: no separation.
    """

    name: str
    axis: str
    stage: str
    lower: Expr
    upper: Expr
    kind: LoopKind
    thread: str
    peel: tuple[tuple[str, int], ...]
    body: Tree
    pragmas: tuple[tuple[str, int | str], ...] = ()


@dataclass(frozen=True, slots=True)
class Sequence:
    """Children one after the other."""

    children: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A statement, by its number in the scop."""

    statement: int


Tree: TypeAlias = Loop | Sequence | Leaf


def leaves(tree: Tree) -> Iterator[int]:
    """Yield the statement numbers below a node, in order."""
    match tree:
        case Loop():
            yield from leaves(tree.body)
        case Sequence():
            for child in tree.children:
                yield from leaves(child)
        case Leaf():
            yield tree.statement


def loops(tree: Tree) -> Iterator[Loop]:
    """Yield every loop, outer ones first."""
    match tree:
        case Loop():
            yield tree
            yield from loops(tree.body)
        case Sequence():
            for child in tree.children:
                yield from loops(child)


def paths(tree: Tree, around: tuple[Loop, ...] = ()) -> Iterator[tuple[int, tuple[Loop, ...]]]:
    """Yield (statement, the loops around it): the nodes of the tree, outermost first."""
    match tree:
        case Loop():
            yield from paths(tree.body, (*around, tree))
        case Sequence():
            for child in tree.children:
                yield from paths(child, around)
        case Leaf():
            yield tree.statement, around


def times(tree: Tree, prefix: tuple[int | str, ...] = ()) -> Iterator[tuple[int, tuple[int | str, ...]]]:
    """Yield (statement, time): static positions and loop names in turn, `[p0, loop, p1, loop, p2]`."""
    match tree:
        case Sequence():
            for k, child in enumerate(tree.children):
                yield from _placed(child, (*prefix, k))
        case _:
            yield from _placed(tree, (*prefix, 0))


def _placed(tree: Tree, prefix: tuple[int | str, ...]) -> Iterator[tuple[int, tuple[int | str, ...]]]:
    match tree:
        case Leaf():
            yield tree.statement, prefix
        case Loop():
            yield from times(tree.body, (*prefix, tree.name))
        case Sequence():
            raise ValueError("a sequence directly in a sequence has no time of its own; flatten it")


def sequence(children: list[Tree]) -> Tree:
    """Return children in order, without nested or single-child sequences."""
    flat: list[Tree] = []
    for child in children:
        flat += child.children if isinstance(child, Sequence) else [child]
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def nest_text(tree: Tree, scop: Scop) -> str:
    """Return the tree as text: a line per loop and per statement, with the statement's instances and accesses."""
    return "".join(f"{line}\n" for line in _lines(tree, scop))


def _lines(tree: Tree, scop: Scop) -> Iterator[str]:
    match tree:
        case Loop():
            kind = "" if tree.kind is LoopKind.SERIAL else f"  {tree.thread or tree.kind.value}"
            peeled = "  peeled" if tree.peel else ""
            yield f"{tree.name} in [{tree.lower}, {tree.upper}){kind}{peeled}"
            yield from (f"  {line}" for line in _lines(tree.body, scop))
        case Sequence():
            for child in tree.children:
                yield from _lines(child, scop)
        case Leaf():
            yield from _statement_lines(scop.statements[tree.statement])


def _statement_lines(statement: Statement) -> Iterator[str]:
    at = ", ".join(f"{axis} = {value}" for axis, value in statement.point)
    yield f"{statement.name} ({statement.role.value}) at {at or 'its only point'}"
    guards = statement.domain[2 * len(statement.loops) :]  # the ranges of the loops come first
    if guards:
        yield f"  where {' and '.join(map(str, guards))}"
    for word, accesses in (("writes", statement.writes), ("reads", statement.reads)):
        for access in accesses:
            index = "any element" if access.index is None else ", ".join(map(str, access.index))
            version = f" of its version at {', '.join(access.version)}" if access.version else ""
            guard = f" if {' and '.join(map(str, access.conditions))}" if access.conditions else ""
            yield f"  {word} {access.array}[{index}]{version}{guard}"
