"""Expressions of a script: from syntax to values."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from tensorlang import dtypes
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr
from tensorlang.te.hybrid import values
from tensorlang.te.hybrid.scope import MISSING, Array, Constant, Scalar, Scope
from tensorlang.te.hybrid.source import ScriptError, Source
from tensorlang.te.hybrid.values import Value, is_number, is_scalar
from tensorlang.te.hybrid.vocabulary import BARE, Choice, Function, Length, Loop, Maker, Refused, Typed

OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "floormod",
    ast.Pow: "pow", ast.BitAnd: "bitand", ast.BitOr: "bitor", ast.BitXor: "bitxor", ast.LShift: "shl",
    ast.RShift: "shr",
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"
}  # fmt: skip
_ABSENT: dict[type[ast.expr], str] = {
    ast.Lambda: "a lambda; write its expression where it is used",
    ast.ListComp: "a list comprehension; write a loop that assigns elements",
    ast.GeneratorExp: "a generator; write a loop that assigns elements",
    ast.Dict: "a dictionary; use arrays",
    ast.Set: "a set; use arrays",
    ast.NamedExpr: "an assignment inside an expression; assign in a line of its own",
    ast.JoinedStr: "text; a script computes numbers",
    ast.Slice: "a slice; write a loop over the elements",
    ast.Starred: "a starred expression; write its parts",
}


class Expressions:
    """The values of expressions in a scope."""

    def __init__(self, source: Source, scope: Scope) -> None:
        self.source = source
        self.scope = scope

    def value(self, node: ast.expr) -> Value:
        """The value of an expression; an Array for the name of one."""
        try:
            return self._value(node)
        except ScriptError:
            raise
        except DefinitionError as error:
            raise self.source.fault(node, error.message) from None
        except RecursionError:
            raise self.source.fault(node, "this nests too deep for Python; name parts of it, in lines before") from None

    def scalar(self, node: ast.expr) -> Value:
        """The value of an expression that must be one number; an array without dimensions is its element."""
        value = self.value(node)
        if isinstance(value, Array):
            if value.shape:
                index = ", ".join("ijklmn"[n % 6] for n in range(len(value.shape)))
                raise self.source.fault(node, f"{value.name} is a whole array; take an element: {value.name}[{index}]")
            return value.element(())
        if not is_scalar(value):
            raise self.source.fault(node, f"expected a number, got {value!r}")
        return value

    def condition(self, node: ast.expr) -> Expr:
        """The value of an expression that must be a condition."""
        try:
            return values.condition(self.scalar(node))
        except ScriptError:
            raise
        except DefinitionError as error:
            raise self.source.fault(node, error.message) from None

    def _value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None):
                return node.value
            case ast.Name():
                return self._name(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.Tuple() | ast.List():
                return tuple(self.value(part) for part in node.elts)
            case ast.BinOp():
                return self._arithmetic(node)
            case ast.UnaryOp():
                return self._unary(node)
            case ast.BoolOp():
                return self._logical(node)
            case ast.Compare():
                return self._compare(node)
            case ast.IfExp():
                return self._choice(node.test, node.body, node.orelse)
            case ast.Call():
                return self._call(node)
        what = _ABSENT.get(type(node), f"{type(node).__name__}; use arithmetic, comparisons, and functions of te")
        raise self.source.fault(node, f"a script cannot have {what}")

    def _arithmetic(self, node: ast.BinOp) -> Value:
        """A sum of many terms nests to the left: it is worked out from there, without a call for each."""
        steps, first = [node], node.left
        while isinstance(first, ast.BinOp):
            steps.append(first)
            first = first.left
        for step in steps:
            if type(step.op) not in OPERATORS:
                raise self.source.fault(step, "@ is not part of scripts; write the loops of the product")
        value = self.scalar(first)
        for step in reversed(steps):
            right = self.scalar(step.right)
            try:
                value = values.binary(OPERATORS[type(step.op)], value, right)
            except DefinitionError as error:
                raise self.source.fault(step, error.message) from None
        return value

    def _name(self, node: ast.Name) -> Value:
        match self.scope.find(node):
            case Array() as array:
                return array
            case Scalar() as scalar:
                return scalar.read()
            case Constant() as constant:
                return constant.value

    def _attribute(self, node: ast.Attribute) -> Value:
        captured = self.scope.captured
        if captured.find(node.value) is not MISSING:
            return self.scope.constant(node, captured.find(node))
        base = self.value(node.value)
        if isinstance(base, Array) and node.attr in ("shape", "dtype", "ndim"):
            return {"shape": base.shape, "dtype": base.dtype, "ndim": len(base.shape)}[node.attr]
        known = "an array has shape, dtype and ndim; a number has astype"
        raise self.source.fault(node, f"{ast.unparse(node)} means nothing in a script; {known}")

    def _subscript(self, node: ast.Subscript) -> Value:
        array, index = self.place(node)
        if isinstance(array, Array):
            return array.element(index)
        parts = [array]
        for part in index:
            if not isinstance(parts[-1], tuple) or not isinstance(part, int):
                break
            if not 0 <= part < len(parts[-1]):
                raise self.source.fault(node, f"index {part} is outside {ast.unparse(node.value)}, of {len(parts[-1])}")
            parts.append(parts[-1][part])
        if len(parts) <= len(index):
            raise self.source.fault(node, f"{ast.unparse(node)}: a tuple is indexed with constants, and others are not")
        return parts[-1]

    def place(self, node: ast.Subscript) -> tuple[Any, tuple[Any, ...]]:
        """What `A[i, j]` or `A[i][j]` indexes, and the index: expressions for an array, values for a tuple."""
        nodes: list[ast.expr] = []
        root: ast.expr = node
        while isinstance(root, ast.Subscript):
            inner = root.slice.elts if isinstance(root.slice, ast.Tuple) else [root.slice]
            nodes, root = [*inner, *nodes], root.value
        base = self.value(root)
        if not isinstance(base, Array):
            return base, tuple(self.value(n) for n in nodes)
        if len(nodes) != len(base.shape):
            raise self.source.fault(node, f"{base.name} has {len(base.shape)} dimensions, indexed with {len(nodes)}")
        return base, tuple(self._index(n) for n in nodes)

    def _index(self, node: ast.expr) -> Expr:
        try:
            return values.index(self.scalar(node))
        except ScriptError:
            raise
        except DefinitionError as error:
            raise self.source.fault(node, error.message) from None

    def _unary(self, node: ast.UnaryOp) -> Value:
        match node.op:
            case ast.USub():
                return values.negative(self.scalar(node.operand))
            case ast.UAdd():
                return self.scalar(node.operand)
            case ast.Invert():
                return values.inverted(self.scalar(node.operand))
            case _:
                operand = self.value(node.operand)
                return not operand if values.is_known(operand) else ~self.condition(node.operand)

    def _logical(self, node: ast.BoolOp) -> Value:
        both = isinstance(node.op, ast.And)
        open_parts: list[Expr] = []
        for part in node.values:
            value = self.value(part)
            if not values.is_known(value):
                open_parts.append(self.condition(part))
            elif bool(value) is not both:
                return not both
        join = values.conjunction if both else values.disjunction
        return join(open_parts) if open_parts else both

    def _compare(self, node: ast.Compare) -> Value:
        match node:
            case ast.Compare(ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(value=None)]):
                return (self.value(node.left) is None) == isinstance(op, ast.Is)
            case ast.Compare(ops=[ast.Eq() | ast.NotEq() as op], comparators=[ast.Constant(value=str() as text)]):
                return (self.value(node.left) == text) == isinstance(op, ast.Eq)
        if any(type(op) not in _COMPARE for op in node.ops):
            raise self.source.fault(node, "a script compares with ==, !=, <, <=, > and >=; with None, by is")
        ops = [_COMPARE[type(op)] for op in node.ops]
        numbers = [self.scalar(part) for part in (node.left, *node.comparators)]
        parts = [values.binary(op, a, b) for op, a, b in zip(ops, numbers, numbers[1:])]
        if all(is_number(part) for part in parts):
            return all(parts)
        return values.conjunction([values.condition(part) for part in parts])

    def _choice(self, test: ast.expr, then: ast.expr, orelse: ast.expr) -> Value:
        cond = self.value(test)
        if values.is_known(cond):
            return self.value(then if cond else orelse)
        return values.choice(self.condition(test), self.scalar(then), self.scalar(orelse))

    def _call(self, node: ast.Call) -> Value:
        name = ast.unparse(node.func)
        if isinstance(node.func, ast.Attribute) and self.scope.captured.find(node.func.value) is MISSING:
            return self._method(node, node.func)
        match self.scope.captured.word(node.func):
            case Function() as word:
                return self._function(node, word)
            case Typed() as word:
                return self._typed(node, word)
            case Choice():
                if len(node.args) != 3 or node.keywords:
                    raise self.source.fault(node, f"{name} takes a condition and two values")
                return self._choice(*node.args)
            case Length():
                return self._length(node)
            case Loop():
                raise self.source.fault(node, f"{name} begins a loop: for i in {name}(...)")
            case Maker():
                raise self.source.fault(
                    node, f"{name} makes an array; give it a name in a line of its own: C = {name}(...)"
                )
            case Refused(advice):
                raise self.source.fault(node, f"a script has no {name}; {advice}")
        last = name.rpartition(".")[2]
        advice = f"te.{last}" if isinstance(BARE.get(last), Function) else "functions of te"
        raise self.source.fault(
            node, f"{name} is not a function that scripts know; write what it does here, or use {advice}"
        )

    def _method(self, node: ast.Call, func: ast.Attribute) -> Value:
        base = self.value(func.value)
        if func.attr != "astype" or len(node.args) != 1 or node.keywords:
            raise self.source.fault(node, f"{ast.unparse(func)} is no method of a script; a number has astype(dtype)")
        value = self.scalar(func.value) if isinstance(base, Array) else base
        if values.weak_kind(value) is not None:
            raise self.source.fault(
                node, f"Python's numbers have no astype; use te.cast({ast.unparse(func.value)}, ...)"
            )
        return value.astype(self.dtype(node.args[0]))

    def _function(self, node: ast.Call, word: Function) -> Value:
        arguments = [self.scalar(a) for a in node.args]
        try:
            if node.keywords:
                raise TypeError("takes no keywords")
            inspect.signature(word.symbolic).bind(*arguments)
        except TypeError as error:
            raise self.source.fault(node, f"{ast.unparse(node.func)}: {error}") from None
        if all(is_number(a) for a in arguments):
            return word.plain(*arguments)
        return values.apply(word.symbolic, word.wants_float, arguments)

    def _typed(self, node: ast.Call, word: Typed) -> Value:
        arguments: dict[str, Any] = {}
        try:
            bound = inspect.signature(word.symbolic).bind(*node.args, **{k.arg or "**": k.value for k in node.keywords})
        except TypeError as error:
            raise self.source.fault(node, f"{ast.unparse(node.func)}: {error}") from None
        for parameter, part in bound.arguments.items():
            arguments[parameter] = self.dtype(part) if parameter == "dtype" else self.scalar(part)
        if word.weak and all(is_number(a) for a in arguments.values()):
            return word.plain(*arguments.values())
        made = word.symbolic(**arguments)
        return values.weakened(made) if word.weak else made

    def _length(self, node: ast.Call) -> Value:
        value = self.value(node.args[0]) if len(node.args) == 1 else None
        if isinstance(value, Array) and value.shape:
            return value.shape[0]
        if isinstance(value, tuple):
            return len(value)
        raise self.source.fault(node, "len takes an array or a tuple")

    def dtype(self, node: ast.expr) -> str:
        """A dtype: text, a NumPy type, or the bare name of one."""
        found = self.scope.captured.find(node)
        if isinstance(found, Typed) and isinstance(node, ast.Name):
            return dtypes.canonical(node.id)
        thing = found if isinstance(found, type) else self.value(node)
        try:
            return dtypes.canonical(thing)
        except DefinitionError as error:
            raise self.source.fault(node, error.message) from None
