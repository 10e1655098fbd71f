"""The head of a loop: its kind, and its bounds in steps of one."""

from __future__ import annotations

import ast

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Cast, Const, Expr, Unary, Var, binary
from tensorlang.ir.loops import constant_difference
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX, LoopKind
from tensorlang.ir.traverse import bounded
from tensorlang.te.domain import thread_axis
from tensorlang.te.hybrid import values
from tensorlang.te.hybrid.expressions import Expressions
from tensorlang.te.hybrid.vocabulary import Loop

_ZERO = Const(0, INDEX)


@dataclass(frozen=True, slots=True)
class LoopHead:
    """A loop that counts from `lower` to `upper`; the script's variable is `first + step * counter`."""

    kind: LoopKind
    lower: Expr
    upper: Expr
    first: Expr = _ZERO
    step: int = 1
    thread: str = ""

    def value(self, counter: Var) -> Expr:
        """The script's variable, by the counter of the loop."""
        distance = binary("mul", Const(abs(self.step), INDEX), counter)
        return binary("add" if self.step > 0 else "sub", self.first, distance)


def loop_head(word: Loop, node: ast.Call, expressions: Expressions) -> LoopHead:
    """Read `range(...)`, `parallel(...)`, `bind(tag, extent)`, ..."""
    fault, name = expressions.source.fault, ast.unparse(node.func)
    arguments = list(node.args)
    thread = ""
    if word.kind is LoopKind.BOUND:
        thread = _thread(arguments.pop(0) if len(arguments) == 2 else None, node, expressions)
        arguments = arguments[:1]
    if node.keywords or not 1 <= len(arguments) <= 3:
        raise fault(node, f"{name} takes an end, or a begin, an end and a step")
    step = expressions.value(arguments[2]) if len(arguments) == 3 else 1
    if not isinstance(step, int) or isinstance(step, bool) or step == 0:
        raise fault(node, f"the step of a loop is a constant other than 0, got {ast.unparse(arguments[-1])}")
    begin = _bound(arguments[0], expressions) if len(arguments) > 1 else _ZERO
    end = _bound(arguments[min(1, len(arguments) - 1)], expressions)
    if word.constant and constant_difference(end, begin) is None:
        raise fault(node, f"{name} needs constant bounds; use range or unroll for others")
    if step == 1:
        return LoopHead(word.kind, begin, end, thread=thread)
    distance = binary("sub", end, begin) if step > 0 else binary("sub", begin, end)
    size = Const(abs(step), INDEX)
    count = binary("floordiv", binary("add", distance, Const(abs(step) - 1, INDEX)), size)
    return LoopHead(word.kind, _ZERO, simplify(count), begin, step, thread)


def _thread(node: ast.expr | None, call: ast.Call, expressions: Expressions) -> str:
    tag = None if node is None else expressions.value(node)
    if not isinstance(tag, str):
        raise expressions.source.fault(call, 'bind takes a thread and an extent, as bind("threadIdx.x", 32)')
    return thread_axis(tag).thread


def _bound(node: ast.expr, expressions: Expressions) -> Expr:
    value, fault = expressions.scalar(node), expressions.source.fault
    expr = values.to_dtype(value, INDEX) if isinstance(value, int) else value
    expr = expr.expr if isinstance(expr, values.Weak) else expr
    if not isinstance(expr, Expr) or not dtypes.info(expr.dtype).is_integer:
        raise fault(node, f"a loop runs over integers, got the bound {ast.unparse(node)}; cast it or use //")
    if values.reads_memory(expr):
        raise fault(
            node,
            f"the bound {ast.unparse(node)} reads an array or a local scalar; loop over the longest range, "
            "with an if inside that tests the bound",
        )
    if not _is_affine(expr):
        raise fault(
            node,
            f"the bound {ast.unparse(node)} is not affine; bounds are sums of loop variables and sizes times "
            "constants, // by constants, and te.min and te.max of such",
        )
    return Cast(expr, INDEX) if expr.dtype != INDEX else expr


@bounded
def _is_affine(expr: Expr) -> bool:
    """Whether isl can see a bound: affine in variables, with divisions by constants, minima and maxima."""
    match expr:
        case Const() | Var():
            return True
        case Cast() | Unary(op="neg"):
            return all(_is_affine(child) for child in expr.children())
        case Binary(op="add" | "sub" | "min" | "max"):
            return _is_affine(expr.a) and _is_affine(expr.b)
        case Binary(op="mul"):
            constant = isinstance(expr.a, Const) or isinstance(expr.b, Const)
            return constant and _is_affine(expr.a) and _is_affine(expr.b)
        case Binary(op="floordiv"):
            return _is_affine(expr.a) and isinstance(expr.b, Const) and expr.b.value > 0
    return False
