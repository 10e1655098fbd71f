"""Scalar expressions, shared by compute bodies (te) and loop IR.

Nodes are immutable. Operators build checked nodes: `a + b` promotes dtypes (tensorlang.dtypes), `a == b` builds a
comparison whose truth value is structural equality. Python's `and`, `or`, `not` have no overload: te.all, te.any, `~`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union, runtime_checkable

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, shown
from tensorlang.ir import traverse
from tensorlang.ir.foreign import ForeignFunctions, in_place_of, no_truth, not_known
from tensorlang.ir.node import Called, Node, levels_over, set_levels, setters
from tensorlang.ir.node import Printable as Printable
from tensorlang.ir.operators import BITWISE, COMPARE, DIVISION, LOGICAL, ON_INTEGERS, RANK, SYMBOL
from tensorlang.ir.traverse import LONGEST, bounded, distinct, mapping, operations
from tensorlang.ir.traverse import same as same
from tensorlang.ir.whole import Whole
from tensorlang.location import caller

ExprLike: TypeAlias = Union["Expr", "AsExpr", int, float, bool, np.generic]


@runtime_checkable
class AsExpr(Protocol):
    """Anything that stands for an expression: an Axis, a zero-dimensional tensor."""

    def as_expr(self) -> Expr: ...


class ExprOperators(ForeignFunctions):
    """The operator overloads of everything that can stand in an expression."""

    __slots__ = ()

    def __add__(self, other: ExprLike) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return binary("div", other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return binary("floordiv", self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return binary("floordiv", other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return binary("floormod", self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return binary("floormod", other, self)

    def __lshift__(self, other: ExprLike) -> Expr:
        return binary("shl", self, other)

    def __rlshift__(self, other: ExprLike) -> Expr:
        return binary("shl", other, self)

    def __rshift__(self, other: ExprLike) -> Expr:
        return binary("shr", self, other)

    def __rrshift__(self, other: ExprLike) -> Expr:
        return binary("shr", other, self)

    def __divmod__(self, other: ExprLike) -> tuple[Expr, Expr]:
        return binary("floordiv", self, other), binary("floormod", self, other)

    def __rdivmod__(self, other: ExprLike) -> tuple[Expr, Expr]:
        return binary("floordiv", other, self), binary("floormod", other, self)

    def __and__(self, other: ExprLike) -> Expr:
        return binary("bitand", self, other)

    def __rand__(self, other: ExprLike) -> Expr:
        return binary("bitand", other, self)

    def __or__(self, other: ExprLike) -> Expr:
        return binary("bitor", self, other)

    def __ror__(self, other: ExprLike) -> Expr:
        return binary("bitor", other, self)

    def __xor__(self, other: ExprLike) -> Expr:
        return binary("bitxor", self, other)

    def __rxor__(self, other: ExprLike) -> Expr:
        return binary("bitxor", other, self)

    def __neg__(self) -> Expr:
        value = as_expr(self)
        value = cast(value, "int32") if value.dtype == "bool" else value
        return Unary("neg", value, value.dtype)

    def __invert__(self) -> Expr:
        value = as_expr(self)
        if dtypes.info(value.dtype).is_float:
            raise DefinitionError(f"~ needs an integer or bool, got {value.dtype}", caller())
        return Unary("not" if value.dtype == "bool" else "invert", value, value.dtype)

    def __lt__(self, other: ExprLike) -> Expr:
        return binary("lt", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return binary("le", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return binary("gt", self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return binary("ge", self, other)

    def equal(self, other: ExprLike) -> Expr:
        """Elementwise equality (same as `==`)."""
        return binary("eq", self, other)

    def astype(self, dtype: str) -> Expr:
        """Convert to a dtype with NumPy's conversion rules."""
        return cast(self, dtype)


class Expr(Node, ExprOperators):
    """Base of all scalar expressions. `dtype` is a name of tensorlang.dtypes.TABLE."""

    __slots__ = ()
    dtype: str

    def __eq__(self, other: object) -> Any:
        if isinstance(other, _OPERANDS):
            return binary("eq", self, other)
        return NotImplemented

    def __ne__(self, other: object) -> Any:
        if isinstance(other, _OPERANDS):
            return binary("ne", self, other)
        return NotImplemented

    __hash__ = Node.__hash__

    def __bool__(self) -> bool:
        no_truth(self.dtype)

    if TYPE_CHECKING:  # of a tensor, `A[i]` is an element, or waits for further indices, `A[i][j]`

        def __getitem__(self, index: Any) -> Expr: ...

    def __str__(self) -> str:
        return to_text(self)

    __repr__ = __str__

    def children(self) -> tuple[Expr, ...]:
        """The direct sub-expressions."""
        return ()

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        """This node over other sub-expressions (same number)."""
        return self


@dataclass(frozen=True, slots=True, eq=False, repr=False, init=False)
class Const(Expr):
    """A literal: int, float or bool value of a dtype."""

    value: int | float | bool
    dtype: str

    def __init__(self, value: int | float | bool, dtype: str) -> None:
        _CONST[0](self, value)
        _CONST[1](self, dtype)
        set_levels(self, 1)

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return super(Expr, self).__index__() if isinstance(self.value, float) else int(self.value)

    def label(self) -> tuple[object, ...]:
        return (str(self.value) if isinstance(self.value, float) else self.value,)


@dataclass(frozen=True, slots=True, eq=False, repr=False, init=False)
class Var(Expr):
    """A named scalar: an axis, a loop variable, or a symbolic size. Its name is its identity."""

    name: str
    dtype: str = "int32"

    def __init__(self, name: str, dtype: str = "int32") -> None:
        _VAR[0](self, name)
        _VAR[1](self, dtype)
        set_levels(self, 1)

    def label(self) -> tuple[object, ...]:
        return (self.name,)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unary(Expr):
    """neg (numbers), not (bool), invert (integer bits)."""

    op: str
    a: Expr
    dtype: str

    def label(self) -> tuple[object, ...]:
        return (self.op,)

    def children(self) -> tuple[Expr, ...]:
        return (self.a,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Unary(self.op, children[0], self.dtype)


@dataclass(frozen=True, slots=True, eq=False, repr=False, init=False)
class Binary(Expr):
    """Arithmetic, bitwise, logical or comparison; both operands have one dtype (shifts included)."""

    op: str
    a: Expr
    b: Expr
    dtype: str

    def __init__(self, op: str, a: Expr, b: Expr, dtype: str) -> None:
        _BINARY[0](self, op)
        _BINARY[1](self, a)
        _BINARY[2](self, b)
        _BINARY[3](self, dtype)
        left, right = a.levels, b.levels
        set_levels(self, (left if left > right else right) + 1)

    def label(self) -> tuple[object, ...]:
        return (self.op,)

    def __bool__(self) -> bool:
        if self.op not in ("eq", "ne"):
            return Expr.__bool__(self)
        equal = same(self.a, self.b)
        if not equal and (unknown := not_known.get()) and any(id(node) in unknown for node in walk(self)):
            no_truth(self.dtype)
        return equal == (self.op == "eq")

    def children(self) -> tuple[Expr, ...]:
        return (self.a, self.b)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Binary(self.op, children[0], children[1], self.dtype)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cast(Expr):
    """Conversion with NumPy's rules."""

    value: Expr
    dtype: str

    def children(self) -> tuple[Expr, ...]:
        return (self.value,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Cast(children[0], self.dtype)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Select(Expr):
    """`then` where `cond` holds, else `orelse`; a branch not taken reads no memory."""

    cond: Expr
    then: Expr
    orelse: Expr
    dtype: str

    def children(self) -> tuple[Expr, ...]:
        return (self.cond, self.then, self.orelse)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Select(children[0], children[1], children[2], self.dtype)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Called, Expr):
    """A math intrinsic by name (`exp`, `sqrt`, `fma`, ...; see tensorlang.ir.intrinsics)."""

    name: str
    args: tuple[Expr, ...]
    dtype: str

    def label(self) -> tuple[object, ...]:
        return (self.name,)

    def children(self) -> tuple[Expr, ...]:
        return self.args

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Call(self.name, children, self.dtype)


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named array. `scope`: global, local (of a thread), warp, shared; `swizzled`, in `panels`: see ir.swizzle."""

    name: str
    shape: tuple[Expr, ...]
    dtype: str
    scope: str = "global"
    swizzled: bool = False
    panels: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True, eq=False, repr=False, init=False)
class Load(Expr):
    """An element of a buffer."""

    buffer: Buffer
    index: tuple[Expr, ...]

    def __init__(self, buffer: Buffer, index: tuple[Expr, ...]) -> None:
        _LOAD[0](self, buffer)
        _LOAD[1](self, index)
        set_levels(self, levels_over(index))

    def label(self) -> tuple[object, ...]:
        return (self.buffer.name,)

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.buffer.dtype

    def children(self) -> tuple[Expr, ...]:
        return self.index

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Load(self.buffer, children)


_CONST, _VAR, _BINARY, _LOAD = map(setters, (Const, Var, Binary, Load))
_OPERANDS = (Expr, int, float, np.generic, AsExpr)  # the dearest to tell last


def as_expr(value: ExprLike | ExprOperators, dtype: str | None = None) -> Expr:
    """Return `value` as an expression; a literal takes `dtype`, else int32 / float32 / bool."""
    match value:
        case Expr():
            return value
        case _ if type(value) not in (int, float, bool) and isinstance(value, AsExpr):  # to look for methods is slow
            return value.as_expr()
        case bool() | np.bool_():
            return const(bool(value), dtype or "bool")
        case int():
            return const(value, dtype or "int32")
        case float():
            return const(value, dtype or "float32")
        case np.generic():
            return const(value.item(), dtypes.canonical(value.dtype))
    got = f"{type(value).__name__} {shown(value)}"
    raise DefinitionError(f"expected a number or an expression, got {got}; {in_place_of(value)}", caller())


def const(value: int | float | bool, dtype: str | None = None) -> Const:
    """Return a literal of a dtype; integers out of its range are refused."""
    if dtype is None:
        dtype = "bool" if isinstance(value, bool) else "int32" if isinstance(value, int) else "float32"
    d = dtypes.info(dtypes.canonical(dtype))
    if d.is_float:
        return Const(float(value), d.name)
    if d.kind == "bool":
        return Const(bool(value), d.name)
    low, high = dtypes.limits(d.name)
    if value != value or not low <= value <= high:
        raise DefinitionError(f"{value!r} does not fit {d.name} ({low} to {high})", caller())
    if value != int(value):
        raise DefinitionError(f"{value!r} is not an integer; a constant of {d.name} needs one", caller())
    return Const(int(value), d.name)


def _literal_dtype(value: int | float | bool, other: str) -> str:
    """Weak typing of a Python literal beside an expression of dtype `other`."""
    kind = dtypes.info(other).kind
    if isinstance(value, float) and kind != "float":
        return "float32"
    if isinstance(value, int) and not isinstance(value, bool) and kind == "bool":
        return "int32"
    return other


def _is_literal(value: Any) -> bool:
    """A plain Python number; one that stands for an expression (a sampled decision) is not."""
    return isinstance(value, bool | int | float) and not hasattr(value, "as_expr")


def operands(a: Any, b: Any) -> tuple[Expr, Expr]:
    """Convert two operands to expressions of one dtype, by the promotion table."""
    if isinstance(a, Expr):
        if isinstance(b, Expr) and a.dtype == b.dtype:
            return a, b
        if type(b) is int and a.dtype in _LIMITS and _LIMITS[a.dtype][0] <= b <= _LIMITS[a.dtype][1]:
            return a, Const(b, a.dtype)
    weak_a, weak_b = _is_literal(a), _is_literal(b)
    if weak_a and not weak_b:
        right = as_expr(b)
        left: Expr = const(a, _literal_dtype(a, right.dtype))
    elif weak_b and not weak_a:
        left = as_expr(a)
        right = const(b, _literal_dtype(b, left.dtype))
    else:
        left, right = as_expr(a), as_expr(b)
    dtype = dtypes.promote(left.dtype, right.dtype)
    return cast(left, dtype), cast(right, dtype)


def binary(op: str, a: Any, b: Any) -> Expr:
    """Build a checked binary expression, or a tensor where an operand is one; integer constants fold."""
    whole = a if isinstance(a, Whole) else b if isinstance(b, Whole) else None
    if whole is not None and (made := whole.combined(op, a, b)) is not None:
        return made
    x, y = operands(a, b)
    kind = dtypes.info(x.dtype).kind
    if op in COMPARE:
        return Binary(op, x, y, "bool")
    if op in LOGICAL:
        if kind != "bool":
            raise DefinitionError(f"{op} needs bool operands, got {x.dtype} ({x} and {y}); compare first", caller())
        return Binary(op, x, y, "bool")
    if op in BITWISE and kind == "float":
        raise DefinitionError(f"{op} needs integer operands, got {x.dtype}; cast first", caller())
    if kind == "bool":
        if op in ("bitand", "bitor"):
            return Binary("and" if op == "bitand" else "or", x, y, "bool")
        if op == "bitxor":
            return Binary("ne", x, y, "bool")
        if op not in ("min", "max"):
            x, y, kind = cast(x, "int32"), cast(y, "int32"), "int"
    if op == "div" and kind != "float":
        raise DefinitionError(
            f"/ on integers is ambiguous ({x} / {y}); use // (floordiv), te.truncdiv, or cast to a float first",
            caller(),
        )
    if op in DIVISION and isinstance(y, Const) and y.value == 0 and kind != "float":
        raise DefinitionError(f"division by zero: {x} {op} 0", caller())
    folded = fold_integers(op, x, y)
    return folded if folded is not None else Binary(op, x, y, x.dtype)


_LIMITS = {name: dtypes.limits(name) for name, d in dtypes.TABLE.items() if d.is_integer}


def fold_integers(op: str, x: Expr, y: Expr) -> Expr | None:
    """Constant folding and neutral elements of integer arithmetic; None when nothing applies."""
    left = x.value if isinstance(x, Const) else None
    right = y.value if isinstance(y, Const) else None
    if (left is None and right is None) or x.dtype not in _LIMITS:
        return None
    if left is not None and right is not None and op in ON_INTEGERS:
        value = ON_INTEGERS[op](int(left), int(right))
        low, high = _LIMITS[x.dtype]
        return Const(value, x.dtype) if low <= value <= high else None
    match op:
        case "add" if left == 0:
            return y
        case "add" | "sub" if right == 0:
            return x
        case "mul" if left == 1:
            return y
        case "mul" | "floordiv" if right == 1:
            return x
        case "mul" if left == 0 or right == 0:
            return Const(0, x.dtype)
        case "floormod" if right == 1:
            return Const(0, x.dtype)
    return None


def cast(value: ExprLike | ExprOperators, dtype: str) -> Expr:
    """Convert to a dtype; constants fold when exact, and Python's numbers are as exact as the dtype."""
    if isinstance(value, Expr) and value.dtype == dtype:
        return value
    target = dtypes.canonical(dtype)
    low, high = dtypes.limits(target)
    wide = target == "float64" if isinstance(value, float) else isinstance(value, int) and value.bit_length() > 31
    if wide and isinstance(value, int | float) and low <= value <= high:
        return const(value, target)
    x = as_expr(value)
    if isinstance(x, Const) and not dtypes.info(x.dtype).is_float and low <= x.value <= high:
        return const(x.value, target)
    return x if x.dtype == target else Cast(x, target)


def select(cond: ExprLike, then: Any, orelse: Any) -> Select:
    """`then` where `cond` holds, else `orelse`; a branch not taken reads no memory."""
    test = as_expr(cond)
    if test.dtype != "bool":
        usual = f"compare first, as in {test} > 0"
        raise DefinitionError(f"a condition must be bool, got {test.dtype} ({test}); {usual}", caller())
    x, y = operands(then, orelse)
    return Select(test, x, y, x.dtype)


walk: Callable[[Expr], Iterator[Expr]] = traverse.walk
rewrite: Callable[[Expr, Callable[[Expr], Expr | None]], Expr] = traverse.rewrite


def variables(expr: Expr) -> set[str]:
    """Names of the variables in an expression."""
    return {node.name for node in distinct(expr) if isinstance(node, Var)}


def substitute(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """Replace variables by name; integer constants fold on the way."""
    return expr if isinstance(expr, Const) else substitution(values)(expr)


def substitution(values: Mapping[str, Expr]) -> Callable[[Expr], Expr]:
    """Return what substitutes in one expression after the other: a node that some share is replaced once, by one."""

    def leaf(node: Expr) -> Expr | None:
        if isinstance(node, Var):
            value = values.get(node.name)
            return node if value is None else cast(value, node.dtype)
        return node if isinstance(node, Const) else None

    return mapping(leaf, _folded)


def _folded(node: Expr) -> Expr:
    made = fold_integers(node.op, node.a, node.b) if isinstance(node, Binary) else None
    return node if made is None else made


_PREFIX, _ATOM = 11, 12


def to_text(expr: Expr) -> str:
    """Return the one text form of an expression, with the fewest parentheses.

    What has more operations than can be declared is not written out.
    """
    if expr.levels > 16 and (count := operations([expr])) > LONGEST:
        return f"<{expr.dtype} expression of {traverse.counted(count)} operations>"
    return _text(expr)[0]


@bounded
def _text(expr: Expr) -> tuple[str, int]:
    """The text, and how tightly what it is made of binds."""
    match expr:
        case Const():
            plain = expr.dtype in ("int32", "int64", "bool", "float32")
            return repr(expr.value) if plain else f"{expr.dtype}({expr.value!r})", _ATOM
        case Var():
            return expr.name, _ATOM
        case Unary():
            sign = {"neg": "-", "not": "not ", "invert": "~"}.get(expr.op, f"{expr.op} ")
            inner, rank = _text(expr.a)
            return f"{sign}({inner})" if rank < _PREFIX else f"{sign}{inner}", _ATOM
        case Binary():
            if expr.op not in SYMBOL:
                return f"{expr.op}({_text(expr.a)[0]}, {_text(expr.b)[0]})", _ATOM
            own, (left, a), (right, b) = RANK[expr.op], _text(expr.a), _text(expr.b)
            left, right = left if a >= own else f"({left})", right if b > own else f"({right})"
            return f"{left} {SYMBOL[expr.op]} {right}", own
        case Cast():
            return f"{expr.dtype}({_text(expr.value)[0]})", _ATOM
        case Select():
            return f"select({', '.join([_text(c)[0] for c in expr.children()])})", _ATOM
        case Call():
            return f"{expr.name}({', '.join([_text(a)[0] for a in expr.args])})", _ATOM
        case Load():
            return f"{expr.buffer.name}[{', '.join([_text(i)[0] for i in expr.index])}]", _ATOM
        case Printable():
            return expr.text(), _ATOM
    return object.__repr__(expr), _ATOM
