"""Expressions to pieces of C, and accesses to elements of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import gcd

from tensorlang import dtypes
from tensorlang.errors import InternalError, TargetError
from tensorlang.ir.expr import Binary, Buffer, Call, Cast, Const, Expr, Load, Select, Unary, Var, cast, same
from tensorlang.ir.flat import divides, flat_offset, row_major
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX
from tensorlang.ir.swizzle import turned
from tensorlang.ir.warp_arrays import held
from tensorlang.target.c_source import arithmetic, intrinsics
from tensorlang.target.c_source import code as c
from tensorlang.target.c_source.code import Code, limits
from tensorlang.target.c_source.dialect import NARROW
from tensorlang.target.c_source.scope import Scope


def value(scope: Scope, expr: Expr) -> Code:
    """The C of an expression, at its own dtype."""
    return _translate(scope, expr, trusted=False)


def index(scope: Scope, expr: Expr) -> Code:
    """The C of an index or a loop bound, which fits the index type of the kernel."""
    return _translate(scope, expr, trusted=True)


def _translate(scope: Scope, expr: Expr, trusted: bool) -> Code:
    text = scope.text
    match expr:
        case Const():
            return arithmetic.literal(scope.dialect, expr.value, expr.dtype)
        case Var():
            try:
                return arithmetic.cast(text, scope.variables[expr.name], expr.dtype)
            except KeyError:
                raise InternalError(f"a device kernel uses the variable {expr.name}, which is not defined") from None
        case Unary():
            return arithmetic.unary(text, expr.op, _translate(scope, expr.a, trusted))
        case Binary():
            trusted = trusted and expr.dtype == INDEX
            a, b = _translate(scope, expr.a, trusted), _translate(scope, expr.b, trusted)
            return arithmetic.binary(text, expr.op, a, b, trusted)
        case Cast():
            return arithmetic.cast(text, _translate(scope, expr.value, trusted and expr.dtype == INDEX), expr.dtype)
        case Select(cond=Binary(op="lt", a=x, b=Const(value=-126)), then=Const(value=0), orelse=Call() as power) if (
            power.name,
            power.dtype,
        ) == ("exp2", "float32") and same(x, power.args[0]):
            return Code(f"{text.call('normal_exp2_float32')}({_translate(scope, x, trusted).text})", "float32")
        case Select():
            then, orelse = (_translate(scope, e, trusted) for e in (expr.then, expr.orelse))
            return arithmetic.select(text, value(scope, expr.cond), then, orelse)
        case Call():
            return intrinsics.call(text, expr.name, [value(scope, a) for a in expr.args], expr.dtype)
        case Load():
            return loaded(scope, expr.dtype, element(scope, expr.buffer, expr.index))
    raise TargetError(f"the device code of {scope.dialect.name} cannot hold {type(expr).__name__} {expr}")


def loaded(scope: Scope, dtype: str, place: str) -> Code:
    """The value of an element in memory."""
    if dtype == "bool":
        return Code(f"{place} != 0", dtype, c.EQUAL, arithmetic.BOOL)
    if dtype in NARROW:
        return Code(f"{scope.text.call(f'tl_f32_from_{NARROW[dtype]}')}({place})", dtype, stored=place)
    return Code(place, dtype, interval=limits(dtype))


def stored(scope: Scope, value: Code) -> str:
    """The text of what is written to memory for a value."""
    if value.stored:
        return value.stored
    if value.dtype in NARROW:
        return f"{scope.text.call(f'tl_{NARROW[value.dtype]}_from_f32')}({value.unrounded or value.text})"
    return value.text


def element(scope: Scope, buffer: Buffer, where: Sequence[Expr]) -> str:
    """The C of an element of an array, to read or to write."""
    if scope.storage(buffer).fragment is not None:
        return _own_element(scope, buffer, where)
    return f"{scope.storage(buffer).name}[{offset_code(scope, buffer, where).text}]"


def address(scope: Scope, buffer: Buffer, where: Sequence[Expr]) -> str:
    """The C of a pointer to an element."""
    name, offset = scope.storage(buffer).name, offset_code(scope, buffer, where)
    return name if offset.constant == 0 else f"{name} + {offset.at(c.SUM + 1)}"


def in_registers(scope: Scope, buffer: Buffer, where: Sequence[Expr]) -> str:
    """The C of a pointer to the first register of a fragment that begins at an element."""
    storage = scope.storage(buffer)
    assert storage.fragment is not None
    at = index(scope, held(buffer, storage.fragment, tuple(where), scope.intervals()).register)
    return storage.name if at.constant == 0 else f"{storage.name} + {at.at(c.SUM + 1)}"


def _own_element(scope: Scope, buffer: Buffer, where: Sequence[Expr]) -> str:
    """The C of an element that the thread itself holds."""
    storage = scope.storage(buffer)
    assert storage.fragment is not None
    at, each = held(buffer, storage.fragment, tuple(where), scope.intervals()), storage.fragment.elements
    if each == 1:
        return f"{storage.name}[{index(scope, at.register).text}]"
    word = scope.dialect.word(buffer.dtype)
    return f"(({word} *){storage.name})[{index(scope, simplify(at.register * each + at.element)).text}]"


def offset_code(scope: Scope, buffer: Buffer, where: Sequence[Expr]) -> Code:
    """The C of the distance of an element from the start of its array, in elements."""
    if buffer.swizzled:
        simple = tuple(simplify(i, scope.intervals()) for i in turned(buffer, tuple(where)))
        return index(scope, simplify(_summed(buffer, simple), scope.intervals()))
    flat = offset(scope, buffer, where)
    if divides(flat) and any(map(divides, where)):
        # Remainders have become quotients, which did not cancel.
        flat = simplify(_summed(buffer, where), scope.intervals())
    return index(scope, flat)


def offset(scope: Scope, buffer: Buffer, where: Sequence[Expr]) -> Expr:
    """The distance of an element from the start of its array, in elements, with as few divisions as can be.

    In a swizzled array the element lies elsewhere, in a chunk of 16 bytes that begins at a multiple of 16 as this does.
    """
    extents = [int(e.value) for e in buffer.shape if isinstance(e, Const)]
    if len(extents) == len(buffer.shape) and any(map(divides, where)):
        return flat_offset(where, row_major(extents), scope.intervals())
    return simplify(_summed(buffer, where), scope.intervals()) if where else Const(0, INDEX)


def _summed(buffer: Buffer, where: Sequence[Expr]) -> Expr:
    pairs = zip(where[1:], buffer.shape[1:], strict=True)
    return reduce(lambda total, pair: total * cast(pair[1], INDEX) + cast(pair[0], INDEX), pairs, cast(where[0], INDEX))


def declared_type(scope: Scope, code: Code) -> str:
    """The C type of a variable that holds a value."""
    return scope.dialect.types["int32" if code.narrow else code.dtype]


def factor(expr: Expr, known: dict[str, int]) -> int:
    """A number that divides an integer expression; 0 if that is 0. `known` gives those of variables."""
    if not dtypes.info(expr.dtype).is_integer:
        return 1
    match expr:
        case Const():
            return abs(int(expr.value))
        case Var():
            return known.get(expr.name, 1)
        case Cast() if dtypes.info(expr.value.dtype).is_integer:
            return factor(expr.value, known)
        case Unary(op="neg"):
            return factor(expr.a, known)
        case Select():
            return gcd(factor(expr.then, known), factor(expr.orelse, known))
        case Binary(op="add" | "sub" | "min" | "max" | "floormod"):
            return gcd(factor(expr.a, known), factor(expr.b, known))
        case Binary(op="mul"):
            return factor(expr.a, known) * factor(expr.b, known)
        case Binary(op="floordiv", b=Const() as divisor) if divisor.value:
            whole, rest = divmod(factor(expr.a, known), abs(int(divisor.value)))
            return 1 if rest else whole
    return 1
