"""isl AST generation: a tree and its statements become loops and guards.

The tree is handed to isl as one schedule-tree text with a 1-D band and a mark per axis. Statements are
scanned in axis space, so isl returns the axis values at each leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import groupby

from tensorlang import config
from tensorlang.errors import InternalError
from tensorlang.ir.expr import Binary, Const, Expr, Var, binary, same
from tensorlang.ir.loops import with_wishes
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX, For, If, LoopKind, Seq, Stmt
from tensorlang.ir.thread_tags import is_block
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, condition_text, dims
from tensorlang.polyhedral.ast_expr import convert
from tensorlang.polyhedral.nest import Loop, Tree
from tensorlang.polyhedral.nest import loops as loops_of
from tensorlang.polyhedral.numbered import is_numbered, numbered
from tensorlang.polyhedral.schedule_text import Spaces, is_simple, schedule_text, wide_unit
from tensorlang.polyhedral.statement import Scop, Statement
from tensorlang.polyhedral.tiles import is_tested

LeafBuilder = Callable[[int, Mapping[str, Expr]], Stmt]
BodyWrapper = Callable[[str, Stmt], Stmt]
_ZERO = Const(0, INDEX)


def scan(tree: Tree, scop: Scop, leaf: LeafBuilder, wrap: BodyWrapper) -> Stmt:
    """Return the loops that run every statement instance of `scop` once, in the order of `tree`.

    `leaf(number, values)` makes the body of a statement from the values of its loops; `wrap(loop, body)`
    completes the body of one iteration of a loop (its allocations).
    """
    with isl.budget(config.get("budget")):
        node, spaces = _made(tree, scop)
        return _Walker(tree, scop, spaces, leaf, wrap).run(node)


def _made(tree: Tree, scop: Scop) -> tuple[isl.AstNode, Spaces]:
    """The AST of a tree, and what its names mean.

    isl loses instances of some loops that are divided: it takes `m*i - m*n*q` within `m` of some value, and `i` within
    `m` values (where it needs `n`), for one value of `i`. So the values of all loops are put further apart then than
    any factor, which leaves no such `i`.
    """
    text, spaces = schedule_text(tree, scop)
    node, whole = _loops(text, spaces.context(), 1, is_simple(scop.statements))
    if whole:
        return node, spaces
    wide = wide_unit(scop.statements)
    for unit in (wide, wide**2, wide**3):
        text, spaces = schedule_text(tree, scop, unit)
        node, whole = _loops(text, spaces.context(), unit, False)
        if whole:
            break
    return node, spaces


@lru_cache(maxsize=4)
def _loops(schedule: str, context: str, unit: int, simple: bool) -> tuple[isl.AstNode, bool]:
    """The AST of a schedule tree, and whether it is whole; asked for twice in a row, for the kernel and for the check.

    Nothing can be lost where the domain is `simple`.
    """
    if simple:
        return isl.loops_of_schedule(schedule, context), True
    return isl.whole_loops_of_schedule(schedule, context, as_given=unit > 1)


def invisible(statement: Statement, sizes: frozenset[str]) -> list[Expr]:
    """The conditions of a domain that the loops leave to the statement to test.

    isl cannot see them (products of axes and sizes), or makes wrong loops of some such (`is_tested`).
    """
    names, namer = dims(statement.loops), Namer(sizes)
    return [c for c in statement.domain if is_tested(statement, c) or condition_text(c, names, namer) is None]


class _Walker:
    """Turns the isl AST into loop IR.

    A mark stands around all pieces of its axis: the `for` nodes reached without crossing another mark, and
    iterations that isl wrote without a loop. An axis of one iteration may have several marks and no `for`;
    its body is then completed together with that of the loop around (`single` collects such axes). A loop over blocks
    of a device stays one: it tells what the device runs from what the host does.
    """

    def __init__(self, tree: Tree, scop: Scop, spaces: Spaces, leaf: LeafBuilder, wrap: BodyWrapper) -> None:
        self.loops = {loop.name: loop for loop in loops_of(tree)}
        self.scop = scop
        self.leaf = leaf
        self.wrap = wrap
        self.bounds = spaces.plain
        self.unit = spaces.unit
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
            found.append(self._expr(call.get_op_arg(1 + dims.index(loop.name))))
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
        cond = self._expr(node.if_get_cond())
        orelse = branch(node.if_get_else_node()) if node.if_has_else_node() else None
        return If(cond, branch(node.if_get_then_node()), orelse)

    def _expr(self, node: isl.AstExpr) -> Expr:
        """An expression of isl's; where values are some units apart, without the products that this brings."""
        found = convert(node, self.names)
        return found if self.unit == 1 else simplify(found)

    def _for(self, node: isl.AstNode, loop: Loop, path: tuple[str, ...]) -> Stmt:
        iterator = node.for_get_iterator().get_id().get_name()
        first = self._expr(node.for_get_init())
        if node.for_is_degenerate():
            self.names[iterator] = first
            return self._single(node.for_get_body(), loop, _in_units(first, self.unit), path)
        var = Var(_fresh(loop.axis, path), INDEX)
        condition = node.for_get_cond()
        limit = self._expr(condition.get_op_arg(1))
        if condition.get_op_type() == isl.OpType.le:
            limit = _plus_one(limit)
        step, kind = isl.number(node.for_get_inc().get_val()), loop.kind
        test: Expr | None = None
        if self.unit != 1:
            test = _meets(first, binary("mul", var, self.unit), step, self.unit)
            first, limit = _in_units(first, self.unit), _in_units(limit, self.unit)
            step = max(1, step // self.unit) if step % self.unit == 0 else 1
        value: Expr = var
        if step != 1 and not is_numbered(loop):
            # One iteration may hold several of the schedule's: its lanes would mix the order of their statements.
            kind = LoopKind.SERIAL if kind is LoopKind.VECTORIZED else kind
            value = binary("add", first, binary("mul", var, step))
            limit = binary("floordiv", binary("add", binary("sub", limit, first), step - 1), step)
            first = Const(0, INDEX)
        self.names[iterator] = value if self.unit == 1 else binary("mul", value, self.unit)
        body = self._iteration([node.for_get_body()], loop, (*path, var.name))
        if test is not None:
            body = If(test, body)
        return numbered(loop, For(var, first, limit, kind, body, loop.axis, loop.thread, loop.pragmas), step)

    def _user(self, node: isl.AstNode) -> Stmt:
        call = node.user_get_expr()
        number = int(call.get_op_arg(0).get_id().get_name()[1:])
        values = [self._expr(call.get_op_arg(k)) for k in range(1, call.get_op_n_arg())]
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


def _in_units(value: Expr, unit: int) -> Expr:
    """How many units are below a value: the first one that is not, where values are a unit apart."""
    if unit == 1:
        return value
    if isinstance(value, Binary) and value.op in ("min", "max"):
        return binary(value.op, _in_units(value.a, unit), _in_units(value.b, unit))
    return simplify(binary("floordiv", binary("add", value, unit - 1), unit))


def _meets(first: Expr, value: Expr, step: int, unit: int) -> Expr | None:
    """That a loop from `first` in steps reaches a value that is some units; None where it reaches all those."""
    if step % unit == 0:
        return None if all(_is_multiple(end, unit) for end in _ends(first)) else _divides(first, unit)
    distance = simplify(binary("sub", value, first))
    return None if _is_multiple(distance, step) else _divides(distance, step)


def _divides(value: Expr, number: int) -> Expr:
    return simplify(binary("eq", binary("floormod", value, number), Const(0, INDEX)))


def _is_multiple(value: Expr, number: int) -> bool:
    return same(_divides(value, number), Const(True, "bool"))


def _ends(value: Expr) -> Iterator[Expr]:
    """The operands of nested minima and maxima."""
    if isinstance(value, Binary) and value.op in ("min", "max"):
        yield from (*_ends(value.a), *_ends(value.b))
    else:
        yield value
