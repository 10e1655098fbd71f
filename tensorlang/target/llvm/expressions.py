"""Expressions to values, and index expressions to places in memory.

In a vector loop an expression that does not depend on the lane stays scalar; it is repeated in every lane
where it meets one that does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.ir.clamped import clamped
from tensorlang.ir.expr import Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var, same, walk
from tensorlang.ir.machine import Broadcast, MachineCall, MachineExpr, Pointer, Reinterpret, VectorLoad
from tensorlang.target.llvm import intrinsics, machine, memory
from tensorlang.target.llvm.arithmetic import binary, cast, select, splat, unary
from tensorlang.target.llvm.clamped import cast_clamped
from tensorlang.target.llvm.flat import flattened
from tensorlang.target.llvm.linear import Linear, is_index, linear
from tensorlang.target.llvm.memory import Place, lane_numbers
from tensorlang.target.llvm.scope import Scope, Storage, has_loads
from tensorlang.target.llvm.text import INDEX, Function, Value, literal, memory_type

_EXACT = ("add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max")
_NOTHING, _ONE = literal(0, INDEX), literal(1, INDEX)
_FALSE, _TRUE = Const(False, "bool"), Const(True, "bool")


def value(fn: Function, scope: Scope, expr: Expr) -> Value:
    """Evaluate an expression at its own dtype."""
    match expr:
        case Const():
            return literal(expr.value, expr.dtype)
        case Var():
            return cast(fn, variable(fn, scope, expr.name), expr.dtype)
        case Unary():
            return unary(fn, expr.op, value(fn, scope, expr.a))
        case Binary(op="and") if has_loads(expr.b):
            return _choose(fn, scope, expr.a, expr.b, _FALSE)
        case Binary(op="or") if has_loads(expr.b):
            return _choose(fn, scope, expr.a, _TRUE, expr.b)
        case Binary():
            return binary(fn, expr.op, value(fn, scope, expr.a), value(fn, scope, expr.b))
        case Cast():
            found = clamped(expr)
            if found is not None:
                return cast_clamped(fn, found, value(fn, scope, found.inner), expr.dtype)
            return cast(fn, value(fn, scope, expr.value), expr.dtype)
        case Select():
            return _choose(fn, scope, expr.cond, expr.then, expr.orelse)
        case Call():
            return intrinsics.call(fn, expr.name, [value(fn, scope, a) for a in expr.args], expr.dtype)
        case Load() if scope.held and expr in scope.held:
            return scope.held[expr]
        case Load():
            mask = scope.lanes.mask if scope.lanes else None
            return memory.load(fn, place(fn, scope, expr), mask)
        case MachineExpr():
            return _machine(fn, scope, expr)
    raise InternalError(f"{type(expr).__name__} {expr} reached code generation")


def _machine(fn: Function, scope: Scope, expr: MachineExpr) -> Value:
    """Evaluate an expression of machine code, whose vectors do not depend on a loop around them."""
    match expr:
        case VectorLoad():
            first = place(fn, scope, Load(expr.buffer, expr.index))
            return memory.load(fn, replace(first, width=expr.lanes, step=literal(1, INDEX)), None)
        case Broadcast():
            return splat(fn, value(fn, scope, expr.value), expr.lanes)
        case Reinterpret():
            return machine.reinterpret(fn, value(fn, scope, expr.value), expr.dtype, expr.lanes)
        case MachineCall():
            return machine.call(fn, expr, [_operand(fn, scope, a) for a in expr.args])
    raise InternalError(f"the address {expr} stands outside a call")


def _operand(fn: Function, scope: Scope, expr: Expr) -> Value | str:
    """An operand of a call by symbol: a value, or an address as text."""
    if isinstance(expr, Pointer):
        return place(fn, scope, Load(expr.buffer, expr.index)).pointer
    return value(fn, scope, expr)


def variable(fn: Function, scope: Scope, name: str) -> Value:
    """The value of a variable as it was bound: loop variables and sizes are int64."""
    lanes = scope.lanes
    if lanes is not None and name == lanes.var:
        return binary(fn, "add", splat(fn, lanes.first, lanes.width), lane_numbers(lanes.width))
    try:
        return scope.values[name]
    except KeyError:
        raise InternalError(f"variable {name} is not defined here") from None


def index(fn: Function, scope: Scope, expr: Expr) -> Value:
    """Evaluate an index as int64. Narrower affine arithmetic is exact here: it is proven within bounds."""
    match expr:
        case Const():
            return literal(expr.value, INDEX)
        case Var():
            return cast(fn, variable(fn, scope, expr.name), INDEX)
        case Binary() if expr.op in _EXACT and is_index(expr) and not has_loads(expr):
            return binary(fn, expr.op, index(fn, scope, expr.a), index(fn, scope, expr.b))
        case Cast() if is_index(expr) and is_index(expr.value):
            return index(fn, scope, expr.value)
    return cast(fn, value(fn, scope, expr), INDEX)


def place(fn: Function, scope: Scope, access: Load) -> Place:
    """The element, or the elements of all lanes, that an access names."""
    storage, lanes = scope.storage(access.buffer), scope.lanes
    dtype = access.buffer.dtype
    indices = tuple(scope.expanded(i) for i in access.index) if scope.varying else access.index
    form = _offset_form(storage, indices)
    if lanes is None:
        return Place(dtype, _pointer(fn, scope, storage, form), 0, literal(0, INDEX))
    if form.divides and any(map(scope.varies, indices)):
        storage, indices = flattened(storage, indices, lanes)
        form = _offset_form(storage, indices)
    step = _step(fn, scope, form)
    if step is not None:
        return Place(dtype, _pointer(fn, scope, storage, form), lanes.width, step)
    if any(has_loads(i) or _mentions(i, scope.varying) for i in indices):
        offset = splat(fn, _offset(fn, scope, storage, indices), lanes.width)
        return Place(dtype, storage.pointer, lanes.width, None, (offset,))
    firsts = (binary(fn, "add", lanes.first, literal(n, INDEX)) for n in range(lanes.width))
    offsets = tuple(_offset(fn, scope.scalar(first), storage, indices) for first in firsts)
    return Place(dtype, storage.pointer, lanes.width, None, offsets)


def address(fn: Function, scope: Scope, access: Load) -> str:
    """Where an element is, for the first lane; it may lie outside of its array."""
    storage, indices = scope.storage(access.buffer), tuple(scope.expanded(i) for i in access.index)
    return _pointer(fn, scope, storage, _offset_form(storage, indices))


def coefficient(scope: Scope, expr: Expr) -> int | None:
    """How much an index grows from one lane to the next; None when that is not one constant."""
    match expr:
        case Var() if scope.lanes is not None and expr.name == scope.lanes.var:
            return 1
        case Cast() if is_index(expr) and is_index(expr.value):
            return coefficient(scope, expr.value)
        case Unary(op="neg"):
            inner = coefficient(scope, expr.a)
            return None if inner is None else -inner
        case Binary(op="add" | "sub"):
            a, b = coefficient(scope, expr.a), coefficient(scope, expr.b)
            if a is None or b is None:
                return None
            return a + b if expr.op == "add" else a - b
        case Binary(op="mul"):
            for factor, other in ((expr.a, expr.b), (expr.b, expr.a)):
                inner = coefficient(scope, other)
                if isinstance(factor, Const) and inner is not None:
                    return int(factor.value) * inner
    return None if scope.varies(expr) else 0


def _step(fn: Function, scope: Scope, form: Offset) -> Value | None:
    """The distance in elements from one lane's element to the next one's, if it is the same for all."""
    step = literal(0, INDEX)
    for part, stride in ((form.known, _ONE), *form.scaled):
        along = _along(scope, part)
        if along is None:
            return None
        step = binary(fn, "add", step, binary(fn, "mul", literal(along, INDEX), stride))
    return step


def _along(scope: Scope, form: Linear) -> int | None:
    """How much a sum grows from one lane to the next; None when that is not one constant."""
    assert scope.lanes is not None
    total = form.names.get(scope.lanes.var, 0)
    for part, factor in form.rest:
        along = coefficient(scope, part)
        if along is None:
            return None
        total += factor * along
    return None if any(form.names.get(name) for name in scope.varying) else total


def _mentions(expr: Expr, names: Mapping[str, object]) -> bool:
    return any(isinstance(node, Var) and node.name in names for node in walk(expr))


def _offset(fn: Function, scope: Scope, storage: Storage, indices: tuple[Expr, ...]) -> Value:
    """The distance in elements from the start of a buffer."""
    total = literal(0, INDEX)
    for part, stride in zip(indices, storage.strides, strict=True):
        total = binary(fn, "add", total, binary(fn, "mul", index(fn, scope, part), stride))
    return total


@dataclass(frozen=True, slots=True)
class Offset:
    """The distance of an element from the start of a buffer: a sum, and sums of dimensions whose strides vary."""

    known: Linear
    scaled: tuple[tuple[Linear, Value], ...]

    @property
    def divides(self) -> bool:
        """Whether it may hold quotients or remainders."""
        return bool(self.known.rest) or any(form.rest for form, _ in self.scaled)


def _offset_form(storage: Storage, indices: tuple[Expr, ...]) -> Offset:
    """The offset of an element: one sum of all dimensions whose strides are known, and the others."""
    known, scaled = Linear(), list[tuple[Linear, Value]]()
    for part, stride in zip(indices, storage.strides, strict=True):
        if stride.integer is not None:
            known.add(part, stride.integer)
        else:
            scaled.append((linear(part), stride))
    return Offset(known, tuple(scaled))


def _pointer(fn: Function, scope: Scope, storage: Storage, offset: Offset) -> str:
    """Where an element is: a constant distance from where its neighbours, copies of a loop's body say, begin, too."""
    total = _NOTHING
    for form, stride in offset.scaled:
        start, apart = _sum(fn, scope, form, _NOTHING)
        at = binary(fn, "add", start, literal(apart, INDEX))
        total = binary(fn, "add", total, binary(fn, "mul", at, stride))
    start, apart = _sum(fn, scope, offset.known, total)
    type_, pointer = memory_type(storage.buffer.dtype), storage.pointer
    if start.integer is None:
        pointer = fn.element(type_, pointer, start.text)
    return fn.element(type_, pointer, apart) if apart else pointer


def _sum(fn: Function, scope: Scope, form: Linear, total: Value) -> tuple[Value, int]:
    """A sum, for the first lane, added to another one: as an index, which is 0 if it is none, and a constant."""
    lanes, apart = scope.lanes, form.constant
    moving = lanes is not None and any(scope.varies(part) for part, _ in form.rest)
    inside = scope.scalar(lanes.first) if lanes is not None and moving else scope
    terms = [(_first(fn, scope, name), factor) for name, factor in form.names.items() if factor]
    terms += [(index(fn, inside, part), factor) for part, factor in form.rest]
    factors: dict[str, int] = {}
    for at, factor in terms:
        number = at.integer
        if number is None:
            start, number = fn.sum(at)
            factors[start.text] = factors.get(start.text, 0) + factor
        apart += factor * number
    for start_text, factor in factors.items():
        if factor:
            product = start_text if factor == 1 else fn.op(f"mul i64 {start_text}, {factor}")
            total = Value(product if total.text == "0" else fn.op(f"add i64 {total.text}, {product}"), INDEX)
    return total, apart


def _first(fn: Function, scope: Scope, name: str) -> Value:
    """The value of a variable in the first lane."""
    if scope.lanes is not None and name == scope.lanes.var:
        return scope.lanes.first
    return cast(fn, variable(fn, scope, name), INDEX)


def _choose(fn: Function, scope: Scope, cond: Expr, then: Expr, orelse: Expr) -> Value:
    """A select whose branches touch memory only where they are taken."""
    test = value(fn, scope, cond)
    if not _reads_more(then, cond) and not _reads_more(orelse, cond):
        return select(fn, test, value(fn, scope, then), value(fn, scope, orelse))
    if test.lanes:
        return select(fn, test, *_under_masks(fn, scope, test, then, orelse))
    return _branch(fn, scope, test, then, orelse)


def _reads_more(branch: Expr, cond: Expr) -> bool:
    """Whether a branch reads memory that its condition does not read in any case."""
    certain = not any(isinstance(n, Select) or (isinstance(n, Binary) and n.op in ("and", "or")) for n in walk(cond))
    read = [n for n in walk(cond) if isinstance(n, Load)] if certain else []
    return any(isinstance(n, Load) and not any(same(n, r) for r in read) for n in walk(branch))


def _under_masks(fn: Function, scope: Scope, test: Value, then: Expr, orelse: Expr) -> tuple[Value, Value]:
    inverse = unary(fn, "not", test)
    results = []
    for mask, branch in ((test, then), (inverse, orelse)):
        if scope.lanes is not None and scope.lanes.mask is not None:
            mask = binary(fn, "and", scope.lanes.mask, mask)
        results.append(value(fn, scope.masked(mask), branch))
    return results[0], results[1]


def _branch(fn: Function, scope: Scope, test: Value, then: Expr, orelse: Expr) -> Value:
    lanes = scope.lanes
    width = lanes.width if lanes is not None and (scope.varies(then) or scope.varies(orelse)) else 0
    labels = (fn.fresh("then"), fn.fresh("else"))
    join = fn.fresh("join")
    fn.branch(test, *labels)
    incoming: list[tuple[Value, str]] = []
    for label, branch in zip(labels, (then, orelse), strict=True):
        fn.start(label)
        result = value(fn, scope, branch)
        incoming.append((splat(fn, result, width) if width else result, fn.block))
        fn.jump(join)
    fn.start(join)
    edges = ", ".join(f"[{v.text}, %{block}]" for v, block in incoming)
    first = incoming[0][0]
    return fn.value(f"phi {first.type} {edges}", first.dtype, first.lanes)
