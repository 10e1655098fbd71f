"""isl AST generation: a tree and its statements become loops and guards.

The tree is handed to isl as one schedule-tree text with a 1-D band and a mark per axis. Statements are
scanned in axis space, so bands are identities and isl returns the axis values at each leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from tensorlang import config
from tensorlang.errors import InternalError
from tensorlang.ir.expr import Binary, Const, Expr, Var, binary, same
from tensorlang.ir.loops import with_wishes
from tensorlang.ir.stmt import INDEX, For, If, LoopKind, Seq, Stmt
from tensorlang.ir.thread_tags import is_block
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, condition_text, conditions_text, dims, wraps_quotient
from tensorlang.polyhedral.ast_expr import convert
from tensorlang.polyhedral.nest import Leaf, Loop, Tree, leaves
from tensorlang.polyhedral.nest import Sequence as Branches
from tensorlang.polyhedral.nest import loops as loops_of
from tensorlang.polyhedral.numbered import is_numbered, numbered
from tensorlang.polyhedral.statement import Scop, Statement, constant_bounds
from tensorlang.polyhedral.tiles import isolate_option, scanned

LeafBuilder = Callable[[int, Mapping[str, Expr]], Stmt]
BodyWrapper = Callable[[str, Stmt], Stmt]
_ZERO = Const(0, INDEX)


def scan(tree: Tree, scop: Scop, leaf: LeafBuilder, wrap: BodyWrapper) -> Stmt:
    """Return the loops that run every statement instance of `scop` once, in the order of `tree`.

    `leaf(number, values)` makes the body of a statement from the values of its loops; `wrap(loop, body)`
    completes the body of one iteration of a loop (its allocations).
    """
    text, spaces = schedule_text(tree, scop)
    with isl.budget(config.get("budget")):
        node = _loops(text, f"{spaces.namer.prefix()}{{ : {spaces.namer.context()} }}")
        return _Walker(tree, scop, spaces, leaf, wrap).run(node)


@lru_cache(maxsize=4)
def _loops(schedule: str, context: str) -> isl.AstNode:
    """The AST of a schedule tree: asked for twice in a row, for the kernel and for the check of its loops."""
    return isl.AstBuild.from_context(isl.make_set(context)).node_from_schedule(isl.parse_schedule(schedule))


def schedule_text(tree: Tree, scop: Scop) -> tuple[str, _Spaces]:
    """Return the isl schedule tree as YAML text, and what its names mean."""
    spaces = _Spaces(scop.statements, _plain(tree, scop.statements), Namer(scop.sizes))
    domains = [spaces.domain(k) for k in range(len(scop.statements))]
    used = sorted(leaves(tree))
    body = spaces.node(tree, ())
    domain = "; ".join(domains[k] for k in used)
    child = "" if body == "{ }" else f", child: {body}"
    return f'{{ domain: "{spaces.namer.prefix()}{{ {domain} }}"{child} }}', spaces


def _plain(tree: Tree, statements: Sequence[Statement]) -> dict[str, tuple[int, int]]:
    """The loops from one number up to another, whatever other loops do; those of one iteration may be in conditions.

    isl, whose time grows fast with the number of bands, need not know them. Those to peel stay: isl makes their tiles.
    """
    known = [constant_bounds(s.domain, s.loops) for s in statements]
    found: dict[str, tuple[int, int]] = {}
    inside: dict[str, set[int]] = {}
    peeled = {loop.name for loop in loops_of(tree) if loop.peel}
    for loop in loops_of(tree):
        inside.setdefault(loop.name, set()).update(leaves(loop))
    for name, numbers in inside.items():
        bounds = {known[k].get(name) for k in numbers}
        if None in bounds or name in peeled or len({bound[:2] for bound in bounds if bound}) != 1:
            continue
        lower, upper = next(bound[:2] for bound in bounds if bound)
        if upper == lower + 1 or (upper > lower and all(bound[2] for bound in bounds if bound)):
            found[name] = lower, upper
    return found


@dataclass(frozen=True, slots=True)
class _Spaces:
    """The statements as isl sees them: `plain` loops are left out, with their first value in conditions."""

    statements: tuple[Statement, ...]
    plain: Mapping[str, tuple[int, int]]
    namer: Namer

    def names(self, number: int) -> dict[str, str]:
        """Loops as dims, or as numbers."""
        found = dims(self.statements[number].loops)
        return {name: str(self.plain[name][0]) if name in self.plain else dim for name, dim in found.items()}

    def instance(self, number: int) -> str:
        """The tuple of a statement."""
        kept = [dim for name, dim in self.names(number).items() if name not in self.plain]
        return f"S{number}[{', '.join(kept)}]"

    def domain(self, number: int) -> str:
        """The instances of a statement."""
        where, _ = conditions_text(scanned(self.statements[number]), self.names(number), self.namer)
        return f"{self.instance(number)} : {where}"

    def node(self, tree: Tree, path: tuple[str, ...]) -> str:
        """A schedule tree inside some bands, as text."""
        match tree:
            case Leaf():
                return "{ }"
            case Branches():
                filters = []
                for child in tree.children:
                    below = "; ".join(self.instance(k) for k in leaves(child))
                    filters.append(f'{{ filter: "{{ {below} }}"{_child(self.node(child, path))} }}')
                return f"{{ sequence: [ {', '.join(filters)} ] }}"
            case Loop():
                inside = self._within(tree.body, path) if tree.name in self.plain else self._band(tree, path)
                return f'{{ mark: "{tree.name}", child: {inside} }}'

    def _within(self, body: Tree, path: tuple[str, ...]) -> str:
        """What stands below a mark, which isl wants to be something."""
        if isinstance(body, Leaf):
            return f'{{ sequence: [ {{ filter: "{{ {self.instance(body.statement)} }}" }} ] }}'
        return self.node(body, path)

    def _band(self, loop: Loop, path: tuple[str, ...]) -> str:
        maps = [f"{self.instance(k)} -> [{self.names(k)[loop.name]}]" for k in leaves(loop)]
        option = isolate_option(loop, self.statements, path, self.namer) if loop.peel else None
        options = f', options: "{option}"' if option else ""
        inside = self.node(loop.body, (*path, loop.name))
        return f'{{ schedule: "[{{ {"; ".join(maps)} }}]"{options}{_child(inside)} }}'


def _child(text: str) -> str:
    return "" if text == "{ }" else f", child: {text}"


def invisible(statement: Statement, sizes: frozenset[str]) -> list[Expr]:
    """The conditions of a domain that the loops leave to the statement to test.

    isl cannot see them (products of axes and sizes), or makes wrong loops of some such (`wraps_quotient`).
    """
    names, namer = dims(statement.loops), Namer(sizes)
    return [c for c in statement.domain if wraps_quotient(c) or condition_text(c, names, namer) is None]


class _Walker:
    """Turns the isl AST into loop IR.

    A mark stands around all pieces of its axis: the `for` nodes reached without crossing another mark, and
    iterations that isl wrote without a loop. An axis of one iteration may have several marks and no `for`;
    its body is then completed together with that of the loop around (`single` collects such axes). A loop over blocks
    of a device stays one: it tells what the device runs from what the host does.
    """

    def __init__(self, tree: Tree, scop: Scop, spaces: _Spaces, leaf: LeafBuilder, wrap: BodyWrapper) -> None:
        self.loops = {loop.name: loop for loop in loops_of(tree)}
        self.scop = scop
        self.leaf = leaf
        self.wrap = wrap
        self.bounds = spaces.plain
        self.plain: dict[str, Expr] = {}
        self.names: dict[str, Expr] = dict(spaces.namer.parameters)
        self.single: list[dict[str, None]] = [{}]

    def run(self, node: isl.AstNode) -> Stmt:
        """The whole AST."""
        body = self.statement(node, tuple(self.scop.sizes))
        return self._completed(body, self.single.pop())

    def statement(self, node: isl.AstNode, path: tuple[str, ...] = ()) -> Stmt:
        """A node outside of any mark of its own."""
        kind = node.get_type()
        if kind == isl.NodeType.mark:
            loop, inside = self.loops[node.mark_get_id().get_name()], node.mark_get_node()
            if loop.name in self.bounds:
                return self._plain(inside, loop, path)
            if _has_for(inside):
                return self._pieces(inside, loop, path)
            return self._single(inside, loop, self._value(inside, loop), path)
        if kind == isl.NodeType.block:
            return Seq(tuple(self.statement(n, path) for n in _flat(node)))
        if kind == isl.NodeType.if_:
            return self._if(node, lambda n: self.statement(n, path))
        if kind == isl.NodeType.user:
            return self._user(node)
        raise InternalError(f"isl AST node {kind} is not handled")

    def _plain(self, node: isl.AstNode, loop: Loop, path: tuple[str, ...]) -> Stmt:
        """A loop that isl does not know."""
        lower, upper = (Const(bound, INDEX) for bound in self.bounds[loop.name])
        if upper.value == lower.value + 1:
            self.plain[loop.name] = lower
            return self._single(node, loop, lower, path)
        var = Var(_fresh(loop.axis, path), INDEX)
        self.plain[loop.name] = var
        body = self._iteration([node], loop, (*path, var.name))
        return For(var, lower, upper, loop.kind, body, loop.axis, loop.thread, loop.pragmas)

    def _value(self, node: isl.AstNode, loop: Loop) -> Expr | None:
        """The value of a bound loop of which isl wrote no `for`, as the statements below have it; None if unknown."""
        if loop.kind is not LoopKind.BOUND:
            return None
        found: list[Expr] = []
        for call in _calls(node):
            number = int(call.get_op_arg(0).get_id().get_name()[1:])
            dims = [name for name in self.scop.statements[number].loops if name not in self.bounds]
            found.append(convert(call.get_op_arg(1 + dims.index(loop.name)), self.names))
        return found[0] if all(same(value, found[0]) for value in found[1:]) else None

    def _single(self, node: isl.AstNode, loop: Loop, value: Expr | None, path: tuple[str, ...]) -> Stmt:
        """The only iteration of a loop: without the loop, except for one over blocks, or a thread but the first."""
        stays = is_block(loop.thread) or (is_numbered(loop) and value != _ZERO)
        if value is None or not stays:
            self.single[-1][loop.name] = None
            return with_wishes(self.statement(node, path), loop.pragmas)
        var = Var(_fresh(loop.axis, path), INDEX)
        body = self._iteration([node], loop, (*path, var.name))
        return numbered(loop, For(var, value, _plus_one(value), loop.kind, body, loop.axis, loop.thread, loop.pragmas))

    def _completed(self, body: Stmt, names: Iterable[str]) -> Stmt:
        for name in names:
            body = self.wrap(name, body)
        return body

    def _pieces(self, node: isl.AstNode, loop: Loop, path: tuple[str, ...]) -> Stmt:
        """A node that holds iterations of `loop`, some of them in a `for`."""
        kind = node.get_type()
        if kind == isl.NodeType.for_:
            return self._for(node, loop, path)
        if kind == isl.NodeType.if_:
            return self._if(node, lambda n: self._pieces(n, loop, path))
        if kind == isl.NodeType.block:
            return Seq(tuple(self._block_pieces(_flat(node), loop, path)))
        return self._iteration([node], loop, path)

    def _block_pieces(self, nodes: list[isl.AstNode], loop: Loop, path: tuple[str, ...]) -> Iterator[Stmt]:
        """Loops and conditionals one by one; what lies between them is one iteration without a loop."""
        for has_loop, group in groupby(nodes, _has_for):
            if has_loop:
                yield from (self._pieces(n, loop, path) for n in group)
            else:
                yield self._iteration(list(group), loop, path)

    def _iteration(self, nodes: list[isl.AstNode], loop: Loop, path: tuple[str, ...]) -> Stmt:
        """The body of one iteration of `loop`, with all that lives as long as it."""
        self.single.append({})
        body = self.statement(nodes[0], path) if len(nodes) == 1 else Seq(tuple(self.statement(n, path) for n in nodes))
        return self._completed(body, [*self.single.pop(), loop.name])

    def _if(self, node: isl.AstNode, branch: Callable[[isl.AstNode], Stmt]) -> If:
        cond = convert(node.if_get_cond(), self.names)
        orelse = branch(node.if_get_else_node()) if node.if_has_else_node() else None
        return If(cond, branch(node.if_get_then_node()), orelse)

    def _for(self, node: isl.AstNode, loop: Loop, path: tuple[str, ...]) -> Stmt:
        iterator = node.for_get_iterator().get_id().get_name()
        first = convert(node.for_get_init(), self.names)
        if node.for_is_degenerate():
            self.names[iterator] = first
            return self._single(node.for_get_body(), loop, first, path)
        var = Var(_fresh(loop.axis, path), INDEX)
        self.names[iterator] = var
        condition = node.for_get_cond()
        limit = convert(condition.get_op_arg(1), self.names)
        if condition.get_op_type() == isl.OpType.le:
            limit = _plus_one(limit)
        step, kind = isl.number(node.for_get_inc().get_val()), loop.kind
        if step != 1 and not is_numbered(loop):
            # One iteration may hold several of the schedule's: its lanes would mix the order of their statements.
            kind = LoopKind.SERIAL if kind is LoopKind.VECTORIZED else kind
            self.names[iterator] = binary("add", first, binary("mul", var, step))
            limit = binary("floordiv", binary("add", binary("sub", limit, first), step - 1), step)
            first = Const(0, INDEX)
        body = self._iteration([node.for_get_body()], loop, (*path, var.name))
        return numbered(loop, For(var, first, limit, kind, body, loop.axis, loop.thread, loop.pragmas), step)

    def _user(self, node: isl.AstNode) -> Stmt:
        call = node.user_get_expr()
        number = int(call.get_op_arg(0).get_id().get_name()[1:])
        values = [convert(call.get_op_arg(k), self.names) for k in range(1, call.get_op_n_arg())]
        dims, loops = iter(values), self.scop.statements[number].loops
        return self.leaf(number, {name: self.plain[name] if name in self.bounds else next(dims) for name in loops})


def _flat(block: isl.AstNode) -> list[isl.AstNode]:
    """The children of a block, those of nested blocks included."""
    children = block.block_get_children()
    found: list[isl.AstNode] = []
    for k in range(children.n_ast_node()):
        child = children.get_at(k)
        found += _flat(child) if child.get_type() == isl.NodeType.block else [child]
    return found


def _calls(node: isl.AstNode) -> Iterator[isl.AstExpr]:
    """The statements below a node that has no `for` of its own, and not of another loop."""
    kind = node.get_type()
    if kind == isl.NodeType.mark:
        yield from _calls(node.mark_get_node())
    elif kind == isl.NodeType.block:
        for child in _flat(node):
            yield from _calls(child)
    elif kind == isl.NodeType.if_:
        yield from _calls(node.if_get_then_node())
        if node.if_has_else_node():
            yield from _calls(node.if_get_else_node())
    elif kind == isl.NodeType.for_:
        yield from _calls(node.for_get_body())
    else:
        yield node.user_get_expr()


def _has_for(node: isl.AstNode) -> bool:
    """True when a `for` is reached without crossing a mark."""
    kind = node.get_type()
    if kind == isl.NodeType.block:
        return any(_has_for(n) for n in _flat(node))
    if kind == isl.NodeType.if_:
        branches = [node.if_get_then_node()] + ([node.if_get_else_node()] if node.if_has_else_node() else [])
        return any(_has_for(n) for n in branches)
    return bool(kind == isl.NodeType.for_)


def _plus_one(limit: Expr) -> Expr:
    """An inclusive bound made exclusive: inside a minimum, so that `min(64, rest)` shows its constant."""
    if isinstance(limit, Binary) and limit.op in ("min", "max"):
        return binary(limit.op, _plus_one(limit.a), _plus_one(limit.b))
    if isinstance(limit, Binary) and limit.op == "sub" and isinstance(limit.b, Const):
        return binary("sub", limit.a, limit.b.value - 1)
    return binary("add", limit, 1)


def _fresh(wish: str, taken: tuple[str, ...]) -> str:
    name, n = wish, 1
    while name in taken:
        n += 1
        name = f"{wish}_{n}"
    return name
