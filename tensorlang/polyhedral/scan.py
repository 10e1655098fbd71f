"""isl AST generation: a tree and its statements become loops and guards.

The tree is handed to isl as one schedule-tree text with a 1-D band and a mark per axis. Statements are
scanned in axis space, so bands are identities and isl returns the axis values at each leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import groupby

from tensorlang import config
from tensorlang.errors import InternalError
from tensorlang.ir.expr import Binary, Const, Expr, Var, binary
from tensorlang.ir.stmt import INDEX, For, If, LoopKind, Seq, Stmt
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, condition_text, conditions_text, dims, wraps_quotient
from tensorlang.polyhedral.ast_expr import convert
from tensorlang.polyhedral.nest import Leaf, Loop, Sequence, Tree, leaves
from tensorlang.polyhedral.nest import loops as loops_of
from tensorlang.polyhedral.statement import Scop, Statement
from tensorlang.polyhedral.tiles import isolate_option, scanned

LeafBuilder = Callable[[int, Mapping[str, Expr]], Stmt]
BodyWrapper = Callable[[str, Stmt], Stmt]


def scan(tree: Tree, scop: Scop, leaf: LeafBuilder, wrap: BodyWrapper) -> Stmt:
    """Return the loops that run every statement instance of `scop` once, in the order of `tree`.

    `leaf(number, values)` makes the body of a statement from the values of its loops; `wrap(loop, body)`
    completes the body of one iteration of a loop (its allocations).
    """
    text, namer = schedule_text(tree, scop)
    with isl.budget(config.get("budget")):
        node = _loops(text, f"{namer.prefix()}{{ : {namer.context()} }}")
        return _Walker(tree, scop, namer, leaf, wrap).run(node)


@lru_cache(maxsize=4)
def _loops(schedule: str, context: str) -> isl.AstNode:
    """The AST of a schedule tree: asked for twice in a row, for the kernel and for the check of its loops."""
    return isl.AstBuild.from_context(isl.make_set(context)).node_from_schedule(isl.parse_schedule(schedule))


def schedule_text(tree: Tree, scop: Scop) -> tuple[str, Namer]:
    """Return the isl schedule tree as YAML text, and the parameters it uses."""
    namer = Namer(scop.sizes)
    spaces = [_space(k, s, namer) for k, s in enumerate(scop.statements)]
    used = sorted(leaves(tree))
    body = _node(tree, scop.statements, (), namer)
    domain = "; ".join(spaces[k] for k in used)
    child = "" if body == "{ }" else f", child: {body}"
    return f'{{ domain: "{namer.prefix()}{{ {domain} }}"{child} }}', namer


def _space(number: int, statement: Statement, namer: Namer) -> str:
    names = dims(statement.loops)
    where, _ = conditions_text(scanned(statement), names, namer)
    return f"S{number}[{', '.join(names.values())}] : {where}"


def invisible(statement: Statement, sizes: frozenset[str]) -> list[Expr]:
    """The conditions of a domain that the loops leave to the statement to test.

    isl cannot see them (products of axes and sizes), or makes wrong loops of some such (`wraps_quotient`).
    """
    names, namer = dims(statement.loops), Namer(sizes)
    return [c for c in statement.domain if wraps_quotient(c) or condition_text(c, names, namer) is None]


def _instance(number: int, statements: tuple[Statement, ...]) -> str:
    return f"S{number}[{', '.join(dims(statements[number].loops).values())}]"


def _node(tree: Tree, statements: tuple[Statement, ...], path: tuple[str, ...], namer: Namer) -> str:
    match tree:
        case Leaf():
            return "{ }"
        case Sequence():
            filters = []
            for child in tree.children:
                below = "; ".join(_instance(k, statements) for k in leaves(child))
                inner = _node(child, statements, path, namer)
                child_text = "" if inner == "{ }" else f", child: {inner}"
                filters.append(f'{{ filter: "{{ {below} }}"{child_text} }}')
            return f"{{ sequence: [ {', '.join(filters)} ] }}"
        case Loop():
            return _band(tree, statements, path, namer)


def _band(loop: Loop, statements: tuple[Statement, ...], path: tuple[str, ...], namer: Namer) -> str:
    maps = []
    for k in leaves(loop):
        names = dims(statements[k].loops)
        maps.append(f"{_instance(k, statements)} -> [{names[loop.name]}]")
    option = isolate_option(loop, statements, path, namer) if loop.peel else None
    options = f', options: "{option}"' if option else ""
    inner = _node(loop.body, statements, (*path, loop.name), namer)
    child = "" if inner == "{ }" else f", child: {inner}"
    band = f'{{ schedule: "[{{ {"; ".join(maps)} }}]"{options}{child} }}'
    return f'{{ mark: "{loop.name}", child: {band} }}'


class _Walker:
    """Turns the isl AST into loop IR.

    A mark stands around all pieces of its axis: the `for` nodes reached without crossing another mark, and
    iterations that isl wrote without a loop. An axis of one iteration may have several marks and no `for`;
    its body is then completed together with that of the loop around (`single` collects such axes).
    """

    def __init__(self, tree: Tree, scop: Scop, namer: Namer, leaf: LeafBuilder, wrap: BodyWrapper) -> None:
        self.loops = {loop.name: loop for loop in loops_of(tree)}
        self.scop = scop
        self.leaf = leaf
        self.wrap = wrap
        self.names: dict[str, Expr] = dict(namer.parameters)
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
            if _has_for(inside):
                return self._pieces(inside, loop, path)
            self.single[-1][loop.name] = None
            return self.statement(inside, path)
        if kind == isl.NodeType.block:
            return Seq(tuple(self.statement(n, path) for n in _flat(node)))
        if kind == isl.NodeType.if_:
            return self._if(node, lambda n: self.statement(n, path))
        if kind == isl.NodeType.user:
            return self._user(node)
        raise InternalError(f"isl AST node {kind} is not handled")

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
            self.single[-1][loop.name] = None
            return self.statement(node.for_get_body(), path)
        var = Var(_fresh(loop.axis, path), INDEX)
        self.names[iterator] = var
        condition = node.for_get_cond()
        limit = convert(condition.get_op_arg(1), self.names)
        if condition.get_op_type() == isl.OpType.le:
            limit = _plus_one(limit)
        step, kind = isl.number(node.for_get_inc().get_val()), loop.kind
        if step != 1:
            # One iteration may hold several of the schedule's: its lanes would mix the order of their statements.
            kind = LoopKind.SERIAL if kind is LoopKind.VECTORIZED else kind
            self.names[iterator] = binary("add", first, binary("mul", var, step))
            limit = binary("floordiv", binary("add", binary("sub", limit, first), step - 1), step)
            first = Const(0, INDEX)
        body = self._iteration([node.for_get_body()], loop, (*path, var.name))
        return For(var, first, limit, kind, body, loop.axis, loop.thread, loop.pragmas)

    def _user(self, node: isl.AstNode) -> Stmt:
        call = node.user_get_expr()
        number = int(call.get_op_arg(0).get_id().get_name()[1:])
        values = [convert(call.get_op_arg(k), self.names) for k in range(1, call.get_op_n_arg())]
        loops = self.scop.statements[number].loops
        return self.leaf(number, dict(zip(loops, values, strict=True)))


def _flat(block: isl.AstNode) -> list[isl.AstNode]:
    """The children of a block, those of nested blocks included."""
    children = block.block_get_children()
    found: list[isl.AstNode] = []
    for k in range(children.n_ast_node()):
        child = children.get_at(k)
        found += _flat(child) if child.get_type() == isl.NodeType.block else [child]
    return found


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
