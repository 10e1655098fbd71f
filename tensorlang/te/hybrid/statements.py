"""Statements of a script: from syntax to loop IR."""

from __future__ import annotations

import ast
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Buffer, Expr, Load, Var, walk
from tensorlang.ir.stmt import INDEX, Allocate, For, If, Seq, Stmt, Store
from tensorlang.te.domain import shape_of
from tensorlang.te.hybrid import values
from tensorlang.te.hybrid.bounds import loop_head
from tensorlang.te.hybrid.expressions import OPERATORS, Expressions
from tensorlang.te.hybrid.scope import Array, Constant, Frame, Place, Scalar, Scope
from tensorlang.te.hybrid.source import ScriptError, Source, subscripted
from tensorlang.te.hybrid.values import Value, is_scalar, weak_kind
from tensorlang.te.hybrid.vocabulary import Loop, Maker

_SCOPES = ("global", "local", "shared")
_ABSENT: dict[type[ast.stmt], str] = {
    ast.While: "while; loop over a range, with an if inside",
    ast.Break: "break; put the rest of the loop's body under an if",
    ast.Continue: "continue; put the rest of the loop's body under an if",
    ast.With: "with; write its body as it is",
    ast.Try: "try; test with an if before",
    ast.Raise: "raise; a kernel cannot stop half-way",
    ast.FunctionDef: "functions inside; write the loops of the inner function here",
    ast.ClassDef: "classes; use arrays and scalars",
    ast.Import: "imports; import at the top of the file",
    ast.ImportFrom: "imports; import at the top of the file",
    ast.Global: "global; a script changes only arrays that it makes or is given",
    ast.Nonlocal: "nonlocal; a script changes only arrays that it makes or is given",
    ast.Delete: "del; a local ends with its block",
    ast.Match: "match; use if and elif",
    ast.AnnAssign: "annotated assignments; leave the annotation out, and cast: x = float32(0)",
}

_NOTHING = Seq(())


class Retype(Exception):
    """A local that began as a Python number turned out to hold another dtype: parse again with `dtype`."""

    def __init__(self, place: Place, dtype: str, weak: bool) -> None:
        self.place = place
        self.type = dtype, weak
        super().__init__(place)


@dataclass(frozen=True, slots=True)
class Returned:
    """The names after return, and the statement."""

    names: tuple[str, ...]
    node: ast.stmt


class Statements:
    """One pass over the statements of a script. `types` holds what earlier passes learned of weak locals."""

    def __init__(self, source: Source, scope: Scope, types: dict[Place, tuple[str, bool]]) -> None:
        self.source = source
        self.scope = scope
        self.types = types
        self.expressions = Expressions(source, scope)
        self.made: dict[str, Array] = {}
        self.loops: set[str] = set()
        self.returned: Returned | None = None

    def function(self) -> Stmt:
        """The body of the function, without its final return."""
        body = list(self.source.tree.body)
        if isinstance(body[-1], ast.Return):
            last = body.pop()
            stmt = self.block(body, "the function")
            self.returned = self._return(last)
            return stmt
        return self.block(body, "the function")

    def block(self, statements: list[ast.stmt], what: str, names: dict[str, Any] | None = None) -> Stmt:
        """A block; its scalars and arrays are allocated around it."""
        frame = Frame(what, statements, dict(names or {}))
        self.scope.enter(frame)
        result = _sequence([self.statement(s) for s in statements])
        self.scope.leave()
        for buffer in reversed(frame.arrays):
            result = _unless_empty(result, Allocate(buffer, result))
        return result

    def statement(self, node: ast.stmt) -> Stmt:
        """One statement."""
        try:
            return self._statement(node)
        except ScriptError:
            raise
        except DefinitionError as error:
            raise self.source.fault(node, error.message) from None

    def _statement(self, node: ast.stmt) -> Stmt:
        match node:
            case ast.For():
                return self._for(node)
            case ast.If():
                return self._if(node)
            case ast.Assign(targets=[ast.Name() as target]):
                return self._assign(target, node.value)
            case ast.Assign(targets=[ast.Subscript() as target]):
                array, index = self._writable(target)
                return self._store(array, index, self.expressions.scalar(node.value))
            case ast.Assign(targets=[ast.Tuple() as target]):
                return self._unpack(target, node.value)
            case ast.Assign():
                raise self.source.fault(node, "assign one name or element a line")
            case ast.AugAssign():
                return self._augmented(node)
            case ast.Pass() | ast.Assert() | ast.Expr(value=ast.Constant()):
                return _NOTHING
            case ast.Expr(value=ast.Call() as call):
                self.expressions.value(call)
                raise self.source.fault(node, "the result is not used; assign it to a name or an element")
            case ast.Return():
                raise self.source.fault(node, "return stands once, as the last statement of the script")
        what = _ABSENT.get(type(node), f"{type(node).__name__.lower()} statements; use for, if and assignments")
        raise self.source.fault(node, f"a script has no {what}")

    # Loops and branches

    def _for(self, node: ast.For) -> Stmt:
        if not isinstance(node.target, ast.Name):
            raise self.source.fault(node, "a loop has one variable; write a loop for each")
        if node.orelse:
            raise self.source.fault(node.orelse[0], "a loop of a script has no else; write those lines after the loop")
        name = node.target.id
        if self.scope.live(name) is not None:
            raise self.source.fault(node, f"{name} has a meaning here already; give the loop variable another name")
        word = self.scope.captured.word(node.iter.func) if isinstance(node.iter, ast.Call) else None
        if not isinstance(node.iter, ast.Call) or not isinstance(word, Loop):
            raise self.source.fault(
                node,
                "a loop runs over range(...), te.range(...), serial, parallel, vectorize, unroll, const_range or bind",
            )
        head = loop_head(word, node.iter, self.expressions)
        var = Var(self.scope.fresh(name), INDEX)
        self.loops.add(var.name)
        constant = Constant(values.Weak(head.value(var)), f"the variable of the loop in line {node.lineno}")
        body = self.block(node.body, f"the loop over {name} of line {node.lineno}", {name: constant})
        return _unless_empty(body, For(var, head.lower, head.upper, head.kind, body, var.name, head.thread))

    def _if(self, node: ast.If) -> Stmt:
        tests = node.test.values if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And) else None
        plain: list[Expr] = []
        data: list[Expr] = []
        for test in tests or [node.test]:
            value = self.expressions.value(test)
            if values.is_known(value):
                if not value:
                    return self._inline(node.orelse)
                continue
            part = self.expressions.condition(test)
            (data if values.reads_memory(part) else plain).append(part)
        if not plain and not data:
            return self._inline(node.body)
        then = self._branch(node.body, "if", node)
        orelse = self._branch(node.orelse, "else", node)
        return self._guard(plain, data, then, None if orelse == _NOTHING else orelse)

    def _inline(self, statements: list[ast.stmt]) -> Stmt:
        """A branch that is known to be taken: its statements stand in the block around."""
        return _sequence([self.statement(s) for s in statements])

    def _branch(self, statements: list[ast.stmt], word: str, node: ast.If) -> Stmt:
        return self.block(statements, f"the {word} of line {node.lineno}")

    def _guard(self, plain: list[Expr], data: list[Expr], then: Stmt, orelse: Stmt | None) -> Stmt:
        """Branches on conditions of loop variables and sizes (`plain`), and on conditions that read arrays."""
        if orelse is None and then == _NOTHING:
            return _NOTHING
        affine = values.conjunction(plain) if plain else None
        if not data:
            assert affine is not None
            return If(affine, then, orelse)
        flag = Buffer(self.scope.fresh("holds"), (), "bool", "local")
        held = Load(flag, ())
        if affine is None:
            test = Store(flag, (), values.conjunction(data))
            return Allocate(flag, Seq((test, If(held, then, orelse))))
        if orelse is None:
            test = Store(flag, (), values.conjunction(data))
            return If(affine, Allocate(flag, Seq((test, If(held, then)))))
        # What holds for loops and sizes stays visible around the branch that is taken where it holds.
        test = Store(flag, (), values.conjunction([affine, *data]))
        return Allocate(flag, Seq((test, If(affine, If(held, then)), If(~held, orelse))))

    # Assignments

    def _augmented(self, node: ast.AugAssign) -> Stmt:
        if type(node.op) not in OPERATORS:
            raise self.source.fault(node, "@= is not part of scripts; write the loops of the product")
        op = OPERATORS[type(node.op)]
        if isinstance(node.target, ast.Subscript):
            array, index = self._writable(node.target)
            value = self.expressions.scalar(node.value)
            return self._store(array, index, values.binary(op, array.element(index), value))
        if not isinstance(node.target, ast.Name):
            raise self.source.fault(node, "only names and elements of arrays are assigned")
        before = self.expressions.scalar(ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target))
        return self._assigned(node.target, values.binary(op, before, self.expressions.scalar(node.value)))

    def _writable(self, node: ast.Subscript) -> tuple[Array, tuple[Expr, ...]]:
        array, index = self.expressions.place(node)
        if not isinstance(array, Array):
            raise self.source.fault(node, f"{ast.unparse(subscripted(node))} is no array; make one with te.allocate")
        return array, index

    def _store(self, array: Array, index: tuple[Expr, ...], value: Value) -> Stmt:
        assert isinstance(array.storage, Buffer)
        return Store(array.storage, index, values.to_dtype(value, array.dtype))

    def _unpack(self, target: ast.Tuple, node: ast.expr) -> Stmt:
        found = self.expressions.value(node)
        names = [part for part in target.elts if isinstance(part, ast.Name)]
        if not isinstance(found, tuple) or isinstance(node, ast.Tuple) or len(names) != len(target.elts):
            raise self.source.fault(target, "assign one name or element a line; only a shape can be unpacked")
        if len(found) != len(names):
            raise self.source.fault(target, f"{len(names)} names for {len(found)} values")
        return _sequence([self._assigned(name, value) for name, value in zip(names, found)])

    def _assign(self, target: ast.Name, node: ast.expr) -> Stmt:
        word = self.scope.captured.word(node.func) if isinstance(node, ast.Call) else None
        if isinstance(word, Maker) and isinstance(node, ast.Call):
            return self._make(target, word, node)
        value = self.expressions.value(node)
        if isinstance(value, Array):
            if value.shape:
                raise self.source.fault(node, f"{target.id} would be a second name of the array {value.name}; use one")
            value = value.element(())
        return self._assigned(target, value)

    def _assigned(self, target: ast.Name, value: Value) -> Stmt:
        """`target = value`: a store into a scalar, or a name for a value that reads no array and stays as it is."""
        binding = self.scope.live(target.id)
        match binding:
            case Scalar():
                self._check_type(target, binding, value)
                return Store(binding.buffer, (), values.to_dtype(value, binding.buffer.dtype))
            case Array():
                raise self.source.fault(target, f"{target.id} is an array; assign its elements, or take another name")
            case Constant():
                raise self.source.fault(target, f"{target.id} is {binding.what} and cannot change; take another name")
        frame = self.scope.frames[-1]
        if not values.reads_memory(value) and frame.assignments(target.id) == 1:
            self.scope.bind(target.id, Constant(value, "assigned once"))
            return _NOTHING
        if not is_scalar(value):
            raise self.source.fault(target, f"{target.id} is assigned more than once, but {value!r} is no number")
        scalar = self._declare(target, value)
        self._check_type(target, scalar, value)
        frame.arrays.append(scalar.buffer)
        self.scope.bind(target.id, scalar)
        return Store(scalar.buffer, (), values.to_dtype(value, scalar.buffer.dtype))

    def _declare(self, target: ast.Name, value: Value) -> Scalar:
        place, kind = (target.lineno, target.col_offset), weak_kind(value)
        first = (value.dtype, False) if kind is None else (values.python_dtype([kind]), True)
        dtype, weak = self.types.get(place, first)
        return Scalar(Buffer(self.scope.fresh(target.id), (), dtype, "local"), weak, kind is not None, place)

    def _check_type(self, target: ast.Name, scalar: Scalar, value: Value) -> None:
        """Refuse a value that the scalar cannot hold; one that began as a Python number takes the wider dtype."""
        dtype = scalar.buffer.dtype
        if not is_scalar(value):
            raise self.source.fault(target, f"{target.id} holds numbers, got {value!r}")
        wanted, weak = values.joined(dtype, scalar.weak, value)
        if (wanted, weak) == (dtype, scalar.weak):
            return
        if scalar.literal:
            raise Retype(scalar.declared, wanted, weak)
        line = scalar.declared[0]
        raise self.source.fault(
            target,
            f"{target.id} is {dtype} since line {line}, and {wanted} is needed here; "
            f"cast in line {line}, as {target.id} = {wanted}(...), or cast here to {dtype}",
        )

    def _make(self, target: ast.Name, word: Maker, node: ast.Call) -> Stmt:
        """`C = output_tensor(shape, dtype)`, `T = allocate(shape, dtype, scope)`."""
        if self.scope.live(target.id) is not None or target.id in self.made:
            raise self.source.fault(node, f"{target.id} has a meaning here already; give the array another name")
        given = dict(zip(("shape", "dtype", "scope"), node.args)) | {k.arg or "**": k.value for k in node.keywords}
        allowed = ("shape", "dtype") if word.name == "output_tensor" else ("shape", "dtype", "scope")
        if len(given) != len(node.args) + len(node.keywords) or "shape" not in given or set(given) - set(allowed):
            raise self.source.fault(node, f"{word.name} takes {', '.join(allowed)}")
        shape = self._shape(given["shape"], target.id)
        dtype = self.expressions.dtype(given["dtype"]) if "dtype" in given else "float32"
        scope = self.expressions.value(given["scope"]) if "scope" in given else "global"
        if scope not in _SCOPES:
            raise self.source.fault(node, f"the scope of an array is one of {', '.join(_SCOPES)}, got {scope!r}")
        buffer = Buffer(self.scope.fresh(target.id), shape, dtype, scope)
        array = Array(target.id, buffer)
        self.scope.bind(target.id, array)
        if word.name == "allocate":
            self.scope.frames[-1].arrays.append(buffer)
        elif len(self.scope.frames) > 2:
            raise self.source.fault(node, "an output is made at the top of the script, outside loops and ifs")
        else:
            self.made[target.id] = array
        return _NOTHING

    def _shape(self, node: ast.expr, name: str) -> tuple[Expr, ...]:
        value = self.expressions.value(node)
        extents = tuple(values.extent(e) for e in (value if isinstance(value, tuple) else (value,)))
        shape = shape_of(extents, name)
        inside = sorted({n.name for e in shape for n in walk(e) if isinstance(n, Var)} & self.loops)
        if inside:
            raise self.source.fault(
                node, f"the shape of {name} depends on the loop over {inside[0]}; make it as large as it gets"
            )
        return shape

    def _return(self, node: ast.stmt) -> Returned | None:
        assert isinstance(node, ast.Return)
        if node.value is None:
            return None
        parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        names = tuple(p.id for p in parts if isinstance(p, ast.Name))
        if len(names) != len(parts) or len(set(names)) != len(names):
            raise self.source.fault(node, "a script returns arrays by name, each once: return C, or return C, D")
        return Returned(names, node)


def _sequence(statements: list[Stmt]) -> Stmt:
    """Statements one after the other, without sequences in sequences."""
    flat = [part for made in statements for part in (made.body if isinstance(made, Seq) else (made,))]
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def _unless_empty(body: Stmt, stmt: Stmt) -> Stmt:
    """A statement around `body`; nothing, if that does nothing."""
    return _NOTHING if body == _NOTHING else stmt
