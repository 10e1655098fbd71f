"""Walks over trees of nodes that are thousands of levels deep: none of them nests calls as deep as the tree.

`walk`, `distinct`, `children_first` and `rewrite` are loops. A function that calls itself on sub-expressions, and needs
nothing but them, is `bounded`: in a deep tree it is called on what lies below first, so that it finds their results.
One whose arguments change on the way is a generator that asks for results, and `unwound` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial, wraps
from operator import is_
from threading import get_ident
from typing import Any, Protocol, Self, TypeAlias, TypeVar, cast

DEEP = 16
"""Trees of so many levels are left to calls that nest, which meet a part as often as it is shared."""

LONGEST = 100_000
"""So many operations an expression may have, those of shared parts counted wherever they stand."""

DEEPEST = 6_000
"""So many levels an expression may have: what is cut into parts is as many statements, one inside the other."""


class Tree(Protocol):
    """What has sub-trees. `levels` is 1 for a leaf, and one more than that of its deepest child else."""

    @property
    def levels(self) -> int: ...

    def children(self) -> tuple[Self, ...]: ...

    def with_children(self, children: tuple[Any, ...]) -> Any: ...

    def label(self) -> tuple[object, ...]: ...


T = TypeVar("T", bound=Tree)
Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")
Asking: TypeAlias = Generator[tuple[Any, ...], Result, Result]
"""A function that yields the arguments of calls of itself, is sent their results, and returns its own."""


def walk(root: T) -> Iterator[T]:
    """Yield every node, parents first; one that is shared comes up wherever it stands."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.children())


def distinct(root: T) -> Iterator[T]:
    """Yield every node once, parents first."""
    waiting, seen = [root], {id(root)}
    while waiting:
        node = waiting.pop()
        yield node
        for child in reversed(node.children()):
            if id(child) not in seen:
                seen.add(id(child))
                waiting.append(child)


def children_first(
    root: T, wanted: Callable[[T], bool] | None = None, children: Callable[[T], tuple[T, ...]] | None = None
) -> Iterator[T]:
    """Yield every node once, its children before it; of these only those that are wanted, and what is below them.

    `children` are those of a node that are looked at at all.
    """
    waiting, done = [root], set[int]()
    while waiting:
        node = waiting[-1]
        if id(node) in done:
            waiting.pop()
            continue
        below = node.children() if children is None else children(node)
        missing = [c for c in below if id(c) not in done and (wanted is None or wanted(c))]
        if missing:
            waiting += reversed(missing)
        else:
            done.add(id(waiting.pop()))
            yield node


def operations(roots: Iterable[Tree]) -> int:
    """How many nodes with operands some trees have; one that is shared counts wherever it stands."""
    count: dict[int, int] = {}
    total = 0
    for root in roots:
        for node in children_first(root, lambda n: id(n) not in count) if id(root) not in count else ():
            operands = node.children()
            count[id(node)] = sum(count[id(c)] for c in operands) + bool(operands)
        total += count[id(root)]
    return total


def counted(number: int) -> str:
    """A number of operations in words."""
    return f"{number:,}" if number < 10**18 else "more than 10^18"


def excess(roots: Sequence[Tree]) -> str:
    """What of some trees is more than can be compiled, in words; empty if nothing is."""
    levels = max((root.levels for root in roots), default=0)
    if levels <= 6:
        return ""
    deep = f"operations nested {counted(levels)} deep, and at most {counted(DEEPEST)} levels can be compiled"
    return too_many(operations(roots)) or (deep if levels > DEEPEST else "")


def too_many(count: int) -> str:
    """So many operations in words, if they are more than can be compiled; empty if not."""
    if count <= LONGEST:
        return ""
    shared = "those of a part that is used several times counted each time"
    return f"{counted(count)} operations ({shared}), and at most {counted(LONGEST)} can be compiled"


def same(a: Any, b: Any) -> bool:
    """Structural equality: the same tree, dtypes included."""
    waiting, met = [(a, b)], set[tuple[int, int]]()
    while waiting:
        x, y = waiting.pop()
        if x is y:
            continue
        if type(x) is not type(y) or x.levels != y.levels or x.dtype != y.dtype or x.label() != y.label():
            return False
        left, right = x.children(), y.children()
        if len(left) != len(right):
            return False
        if x.levels > DEEP:  # pairs of shared nodes are compared once
            if (id(x), id(y)) in met:
                continue
            met.add((id(x), id(y)))
        waiting += zip(left, right, strict=True)
    return True


def rewrite(root: T, rule: Callable[[T], T | None]) -> T:
    """Rebuild bottom-up; `rule` returns a replacement or None to keep the node.

    In a tree of many levels the rule is asked once for a node that is shared.
    """
    if root.levels > DEEP:
        return _rewritten(root, rule)
    old = root.children()
    if old:
        new = tuple([rewrite(c, rule) for c in old])
        if not all(map(is_, old, new)):
            root = root.with_children(new)
    replacement = rule(root)
    return root if replacement is None else replacement


def _rewritten(root: T, rule: Callable[[T], T | None]) -> T:
    made: dict[int, T] = {}
    for node in children_first(root, lambda n: n.levels > DEEP):
        old = node.children()
        new = tuple([made[id(c)] if id(c) in made else rewrite(c, rule) for c in old])
        kept = node if all(map(is_, old, new)) else node.with_children(new)
        replacement = rule(kept)
        made[id(node)] = kept if replacement is None else replacement
    return made[id(root)]


def mapping(leaf: Callable[[T], T | None], finish: Callable[[T], T]) -> Callable[[T], T]:
    """Return what rebuilds one tree after the other: a node that some share is replaced once, by one.

    A node without children for which `leaf` gives something becomes that; others are rebuilt over what their children
    became, and passed to `finish`.
    """
    return partial(_mapped, leaf, finish, {})


def _mapped(leaf: Callable[[T], T | None], finish: Callable[[T], T], done: dict[int, tuple[T, T]], node: T) -> T:
    """What a node becomes; `done` by the identity of nodes, which are kept for that.

    No closures that call each other: each pair would be garbage in a circle, and there are thousands in a build.
    """
    if node.levels == 1:
        found = leaf(node)
        if found is not None:
            return found
    known = done.get(id(node))
    if known is not None:
        return known[1]
    if node.levels > DEEP:
        for below in children_first(node, lambda n: n.levels > DEEP and id(n) not in done):
            _rebuilt(leaf, finish, done, below)
        return done[id(node)][1]
    return _rebuilt(leaf, finish, done, node)


def _rebuilt(leaf: Callable[[T], T | None], finish: Callable[[T], T], done: dict[int, tuple[T, T]], node: T) -> T:
    old = node.children()
    new = tuple([_mapped(leaf, finish, done, child) for child in old])
    result = finish(node if all(map(is_, old, new)) else node.with_children(new))
    done[id(node)] = node, result
    return result


_running: dict[tuple[object, ...], dict[int, tuple[Any, Any, Exception | None]]] = {}
"""Results for nodes of deep trees, and the nodes, which are kept for that, while bounded functions run."""


def bounded(function: Function) -> Function:
    """Let a function of a tree (its first argument, after `self`) call itself on sub-trees however deep they nest.

    Its result must follow from the sub-tree and the other arguments, and these must be the same ones all the way. In a
    deep tree it is called on every node that is deep, children first, also on those that it would not have looked at.
    """
    code = function.__code__
    of_class = code.co_varnames[0] == "self"

    # One wrapper for each number of arguments: what passes any number on takes twice as long.
    @wraps(function)
    def of_one(tree: Any) -> Any:
        return function(tree) if tree.levels <= DEEP else _in_order(function, tree, (), ())

    @wraps(function)
    def of_three(tree: Any, a: Any, b: Any) -> Any:
        return function(tree, a, b) if tree.levels <= DEEP else _in_order(function, tree, (), (a, b))

    @wraps(function)
    def of_any(tree: Any, *rest: Any) -> Any:
        return function(tree, *rest) if tree.levels <= DEEP else _in_order(function, tree, (), rest)

    @wraps(function)
    def of_object(self: Any, tree: Any) -> Any:
        return function(self, tree) if tree.levels <= DEEP else _in_order(function, tree, (self,), ())

    @wraps(function)
    def of_object_any(self: Any, tree: Any, *rest: Any) -> Any:
        return function(self, tree, *rest) if tree.levels <= DEEP else _in_order(function, tree, (self,), rest)

    if of_class:
        return cast(Function, of_object if code.co_argcount == 2 else of_object_any)
    return cast(Function, {1: of_one, 3: of_three}.get(code.co_argcount, of_any))


def _in_order(function: Callable[..., Any], tree: Any, first: tuple[Any, ...], rest: tuple[Any, ...]) -> Any:
    same = (x if isinstance(x, int | str) else id(x) for x in (*first, *rest))
    key = (get_ident(), function, *same)
    outermost = key not in _running
    known = _running.setdefault(key, {})
    try:
        if id(tree) not in known:
            for node in children_first(tree, lambda n: n.levels > DEEP and id(n) not in known):
                try:
                    known[id(node)] = node, function(*first, node, *rest), None
                except Exception as error:
                    known[id(node)] = node, None, error
        _, result, wrong = known[id(tree)]
    finally:
        if outermost:
            _running.pop(key, None)
    if wrong is not None:
        raise wrong
    return result


def unwound(function: Callable[..., Asking[Result]], *arguments: Any) -> Result:
    """Run a function that yields the arguments of calls of itself, without nesting these."""
    waiting = [function(*arguments)]
    result: Any = None
    try:
        while True:
            try:
                wanted = waiting[-1].send(result)
            except StopIteration as end:
                waiting.pop()
                result = end.value
                if not waiting:
                    return cast(Result, result)
            else:
                waiting.append(function(*wanted))
                result = None
    finally:
        while waiting:
            waiting.pop().close()
