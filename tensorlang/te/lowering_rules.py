"""Users' rules for intrinsics, in the words of classic te: what a call is made of, for a target or for all.

A rule is followed where an expression is declared, for the target in use there, so what it makes is scheduled, proven
and compared with its reference like all else.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, shown
from tensorlang.ir import intrinsics
from tensorlang.ir.expr import Call, Expr, ExprLike, as_expr, binary, cast
from tensorlang.ir.intrinsics import TABLE
from tensorlang.location import caller

_PREFIX = "tir."
_DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class _Rule:
    function: Callable[[Call], Any]
    level: int


class CallEffectKind:
    """What a call does beside its result, as classic te names it: nothing here, whatever is registered."""

    ExprAnnotation, Pure, ReadState, UpdateState, SpecialCallArg, EmbedInfo, ControlJump = range(7)


_rules: dict[str, dict[str, _Rule]] = {}
_followed: ContextVar[frozenset[str]] = ContextVar("followed", default=frozenset())
_C_NAMES = {"fabs": "abs", "rint": "round", "nearbyint": "round"}
_NOT_OF_C = ("round", "abs")  # of halves, and of integers


def register_intrin_lowering(op_name: str, target: str, *, f: Any = None, level: int = 10) -> Any:
    """Say what calls of an intrinsic are made of where `target` ("llvm", "cuda", ..., or "default") is in use.

    `f` takes the call (`op.args`, `op.dtype`, `op.op.name`) and returns an expression, or the call itself, which stays
    as it is then; without it this is a decorator. A later rule takes the place of one of the same level, or of a lower
    one. `op_name` begins with "tir.": a function of te, or a name of your own for `tir.call_intrin`, for which the rule
    of another target serves where there is no other. DefinitionError for other names.

        >>> from tensorlang import ir, te, tir
        >>> rule = lambda op: te.log(op.args[0]) / te.log(te.const(3.0, op.dtype))
        >>> ir.register_intrin_lowering("tir.log3", target="default", f=rule)
        >>> te.evaluate(lambda x: tir.call_intrin("float32", "tir.log3", x), 9.0).round(3)
        np.float32(2.0)
    """
    if not isinstance(op_name, str) or not op_name.startswith(_PREFIX) or not isinstance(target, str):
        raise DefinitionError(
            "a rule is for an intrinsic by a name such as 'tir.exp', and a target such as 'llvm', got "
            f"{shown(op_name)}, {shown(target)}",
            caller(),
        )
    if f is None:
        return lambda function: _register(op_name, target, function, level)
    _register(op_name, target, f, level)
    return None


def _register(op_name: str, target: str, function: Any, level: int) -> Any:
    held = _rules.setdefault(op_name.removeprefix(_PREFIX), {})
    if target not in held or held[target].level <= level:
        held[target] = _Rule(function, level)
    return function


def register_op_attr(op_name: str, attr_key: str, value: Any = None, level: int = 10) -> Any:
    """Take what classic te keeps about an operator, such as its effects; calls of expressions have none here."""
    del op_name, attr_key, level
    return value


def ruled(name: str, *args: ExprLike) -> Expr:
    """A call of an intrinsic that there is, or what a rule for the target in use makes of it."""
    made = intrinsics.call(name, *args)
    return made if name not in _rules or not isinstance(made, Call) else _made(made, elsewhere=False)


def asked(name: str, dtype: str, args: tuple[Any, ...]) -> Expr | None:
    """What rules make of an intrinsic with a user's name; None where there is no rule, and no intrinsic."""
    plain = name.removeprefix(_PREFIX)
    if plain in TABLE and len(args) == TABLE[plain].arity:
        return cast(ruled(plain, *args), dtype)
    if plain not in _rules:
        return None
    return _made(Call(plain, tuple(map(as_expr, args)), dtype), elsewhere=True)


def _made(call: Call, elsewhere: bool) -> Expr:
    from tensorlang.target.spec import Target  # with a rule: te alone needs no targets

    held, target = _rules[call.name], Target.current()
    rule = held.get(str(target.kind) if target is not None else "llvm", held.get(_DEFAULT))
    if rule is None and elsewhere:
        rule = max(held.values(), key=lambda one: one.level)
    if rule is None or call.name in _followed.get():
        return call
    token = _followed.set(_followed.get() | {call.name})
    try:
        found = rule.function(Call(call.name, call.args, call.dtype))
    finally:
        _followed.reset(token)
    if isinstance(found, Call) and found.name == call.name and call.name in TABLE:
        return call
    if (isinstance(found, Call) and found.name not in TABLE) or not isinstance(found, Expr | int | float):
        raise DefinitionError(f"the rule for tir.{call.name} makes no expression of {call}: {shown(found)}", caller())
    return cast(as_expr(found, call.dtype) if isinstance(found, int | float) else found, call.dtype)


def of_c(dtype: str, name: str, operands: tuple[Expr, ...]) -> Expr | None:
    """What a function of C's math library computes of floats, by its name: `expf`, `__expf` of CUDA, `exp`."""
    base = name.removeprefix("__")
    base = base.removesuffix("f") if dtype == "float32" else base
    plain = _C_NAMES.get(base, base if base not in _NOT_OF_C else "")
    if any(operand.dtype != dtype for operand in operands):
        return None
    if base == "fmod" and len(operands) == 2:
        return binary("truncmod", *operands)
    row = TABLE.get(plain)
    if row is None or row.family not in ("float", "number") or row.arity != len(operands):
        return None
    return intrinsics.call(plain, *operands)
