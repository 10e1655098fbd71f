"""Nodes of expressions: immutable, however many levels deep, with their hash and their depth at hand."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.ir.traverse import DEEP, children_first

Row: TypeAlias = tuple[type, tuple[tuple[int, Any], ...]]
"""A node to be pickled: its class, and its fields as (_PLAIN, value), (_NODE, place) or (_NODES, places)."""

_PLAIN, _NODE, _NODES = range(3)
_names: dict[type, tuple[str, ...]] = {}
"""Names of the fields of every class of nodes met so far."""


class Node:
    """Base of frozen dataclasses that are trees. `levels` is 1 for a leaf."""

    __slots__ = ("_hash", "levels")
    _hash: int
    levels: int

    def __post_init__(self) -> None:
        set_levels(self, levels_over(self.children()))

    def label(self) -> tuple[object, ...]:
        """What tells this node from others of its class, children and dtype aside."""
        return ()

    def children(self) -> tuple[Any, ...]:
        """The direct sub-trees."""
        return ()

    def with_children(self, children: tuple[Any, ...]) -> Any:
        """This node over other sub-trees (same number)."""
        return self

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            if self.levels > DEEP:
                for node in children_first(self, lambda n: n.levels > DEEP and not hasattr(n, "_hash")):
                    _set_hash(node, _hash_of(node))
            else:
                _set_hash(self, _hash_of(self))
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as a table of nodes, children first: pickle itself nests calls as deep as what it is given."""
        return _unpacked, (_packed(self),)


class Printable:
    """Mixin of nodes defined above this room that bring their own text."""

    __slots__ = ()

    def text(self) -> str:
        raise NotImplementedError


def levels_over(children: tuple[Node, ...]) -> int:
    """The levels of a node over its children."""
    most = 0
    for child in children:
        if child.levels > most:
            most = child.levels
    return most + 1


set_levels: Any = vars(Node)["levels"].__set__
_set_hash: Any = vars(Node)["_hash"].__set__


def setters(kind: type) -> tuple[Any, ...]:
    """What sets the fields of a new node of a class, field by field: faster than what frozen dataclasses do."""
    return tuple(vars(kind)[name].__set__ for name in names(kind))


def names(kind: type) -> tuple[str, ...]:
    """The names of the fields of a class of nodes."""
    known = _names.get(kind)
    if known is None:
        known = _names[kind] = tuple(f.name for f in fields(kind))
    return known


def values(node: Node) -> list[Any]:
    """The fields of a node, in order."""
    return [getattr(node, name) for name in names(type(node))]


def _hash_of(node: Node) -> int:
    """The hash of a node whose children have theirs, or are not deep; all that is no number is one thing."""
    parts = values(node)
    if node.levels == 1:
        parts = ["nan" if isinstance(v, float) and v != v else v for v in parts]
    return hash((type(node).__name__, *parts))


def _packed(root: Node) -> tuple[Row, ...]:
    place: dict[int, int] = {}
    rows: list[Row] = []

    def field(value: Any) -> tuple[int, Any]:
        if isinstance(value, Node):
            return _NODE, place[id(value)]
        if isinstance(value, tuple) and value and all(isinstance(v, Node) for v in value):
            return _NODES, tuple(place[id(v)] for v in value)
        return _PLAIN, value

    for node in children_first(root):
        rows.append((type(node), tuple(map(field, values(node)))))
        place[id(node)] = len(place)
    return tuple(rows)


def _unpacked(rows: tuple[Row, ...]) -> Node:
    made: list[Node] = []

    def value(kind: int, given: Any) -> Any:
        if kind == _PLAIN:
            return given
        return made[given] if kind == _NODE else tuple(made[place] for place in given)

    for kind, row in rows:
        made.append(kind(*(value(*field) for field in row)))
    return made[-1]


@dataclass(frozen=True, slots=True)
class Callee:
    """What a call calls, by the name that classic te gives it: `tir.exp`."""

    name: str


class Called:
    """A call as classic te sees it: its `op` has the name."""

    __slots__ = ()
    name: str

    @property
    def op(self) -> Callee:
        """What is called."""
        return Callee("tir.fabs" if self.name == "abs" else f"tir.{self.name}")
