"""te.hybrid.script: a Python function that is a tensor program for tensors, and plain Python for arrays."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, overload

import numpy as np

from tensorlang import dtypes
from tensorlang.errors import DefinitionError, shown
from tensorlang.ir import expr as ir
from tensorlang.ir.expr import Buffer, Const, Expr, Var
from tensorlang.ir.stmt import Stmt
from tensorlang.location import caller
from tensorlang.te.check import check_tensor_name
from tensorlang.te.define import current_tag
from tensorlang.te.hybrid.plain import Plain
from tensorlang.te.hybrid.scope import Array, Binding, Captured, Constant, Frame, Scope
from tensorlang.te.hybrid.source import Source, read_source
from tensorlang.te.hybrid.statements import Returned, Retype, Statements
from tensorlang.te.hybrid.values import Value, Weak, reads_memory
from tensorlang.te.operation import HybridOp, Tensor


class Script:
    """A function of the script language.

    Called with tensors (sizes and Python numbers beside them) it returns the tensors of a HybridOp; called with NumPy
    arrays it runs as plain Python, in place for the arrays that it updates, and returns the arrays of those tensors.
    """

    __name__: str

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        self.source = read_source(function)
        self._plain = Plain(self.source)
        self.name = check_tensor_name(name or function.__name__)
        self.signature = _signature(self.source)
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = self._bind(args, kwargs)
        arrays = [name for name, value in given.items() if isinstance(value, np.ndarray)]
        tensors = [name for name, value in given.items() if isinstance(value, Tensor | Expr)]
        if arrays and tensors:
            word = "tensor" if isinstance(given[tensors[0]], Tensor) else "size"
            raise DefinitionError(
                f"{self.name} got the {word} {tensors[0]} and the array {arrays[0]}; "
                "pass tensors to declare a program, or arrays to run it",
                caller(),
            )
        return self._run(given) if arrays else self._declare(given)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run as plain Python on NumPy arrays and numbers; what a call does when it is given an array."""
        return self._run(self._bind(args, kwargs))

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise DefinitionError(f"{self.name}{self.signature}: {error}", caller()) from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def _run(self, given: Mapping[str, Any]) -> Any:
        with np.errstate(all="ignore"):
            result = self._plain.function(Captured(self.source))(**given)
        if result is not None:
            return result
        updated = tuple(given[name] for name in self.source.updated)
        return updated if len(updated) != 1 else updated[0]

    def _declare(self, given: Mapping[str, Any]) -> Any:
        where = caller()
        taken = _sizes(given) | set(given)
        parameters: dict[str, Binding] = {name: self._parameter(name, value) for name, value in given.items()}
        self._check_aliases(given)
        types: dict[tuple[int, int], tuple[str, bool]] = {}
        while True:
            scope = Scope(self.source, Captured(self.source), taken)
            scope.enter(Frame("the script", [], dict(parameters)))
            statements = Statements(self.source, scope, types)
            try:
                body = statements.function()
                break
            except Retype as found:
                types[found.place] = found.type
        updated = {name: binding for name, binding in parameters.items() if name in self.source.updated}
        arrays = {n: b for n, b in {**statements.made, **updated}.items() if isinstance(b, Array)}
        returned = _returned(self.source, statements.returned, tuple(statements.made), tuple(updated))
        order = (*returned, *(name for name in updated if name not in returned))
        op = self._operation(body, [arrays[name] for name in order], given, where)
        outputs = tuple(op.output(n) for n in range(len(returned)))
        return outputs if len(outputs) != 1 else outputs[0]

    def _operation(self, body: Stmt, arrays: list[Array], given: Mapping[str, Any], where: Any) -> HybridOp:
        outputs = tuple(a.storage for a in arrays if isinstance(a.storage, Buffer))
        updates = tuple(given.get(a.name) for a in arrays)
        return HybridOp(self.name, outputs, body, updates, current_tag(""), where)

    def _parameter(self, name: str, value: Any) -> Binding:
        match value:
            case Tensor() if name in self.source.updated:
                return Array(name, Buffer(name, value.shape, value.dtype))
            case Tensor():
                return Array(name, value)
            case np.generic():
                return Constant(ir.const(value.item(), dtypes.canonical(value.dtype)), "a parameter")
            case bool() | int() | float() | str() | None:
                return Constant(value, "a parameter")
            case tuple() | list() if all(isinstance(v, bool | int | float | str) for v in value):
                return Constant(tuple(value), "a parameter")
            case Expr() if not reads_memory(value):
                return Constant(_size(value), "a parameter")
        takes = "it takes tensors, numbers, sizes (te.var) and constants"
        if isinstance(value, list | tuple):
            takes += "; pass a tensor (te.placeholder) to declare a program, or an array (np.asarray) to run it"
        raise DefinitionError(f"{self.name} got {shown(value)} for {name}; {takes}", caller())

    def _check_aliases(self, given: Mapping[str, Any]) -> None:
        for name in self.source.updated:
            for other, value in given.items():
                if other != name and isinstance(value, Tensor) and value == given[name]:
                    raise DefinitionError(
                        f"{self.name} updates {name}, and {other} is the same tensor; pass a copy for one of them",
                        caller(),
                    )


def _signature(source: Source) -> inspect.Signature:
    signature = inspect.signature(source.function)
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise source.fault(source.tree, f"a script has a fixed number of parameters; name those of {parameter}")
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return inspect.Signature(plain)


def _size(value: Expr) -> Value:
    """A size counts as a number of Python's; a constant of te keeps its dtype."""
    return value if isinstance(value, Const) or value.dtype not in ("int32", "int64") else Weak(ir.cast(value, "int64"))


def _sizes(given: Mapping[str, Any]) -> set[str]:
    """Names of the sizes in arguments."""
    shapes = [e for v in given.values() if isinstance(v, Tensor) for e in v.shape]
    return {
        n.name
        for e in (*shapes, *(v for v in given.values() if isinstance(v, Expr)))
        for n in ir.walk(e)
        if isinstance(n, Var)
    }


def _returned(
    source: Source, found: Returned | None, made: tuple[str, ...], updated: tuple[str, ...]
) -> tuple[str, ...]:
    """The names of the arrays that a script returns, after checking them."""
    if found is None:
        if made:
            raise source.fault(source.tree, f"the script makes the output {made[0]}; end it with return {made[0]}")
        if not updated:
            raise source.fault(source.tree, "the script has no result; return an array made with te.output_tensor")
        return updated
    for name in found.names:
        if name not in (*made, *updated):
            raise source.fault(
                found.node, f"{name} is no output; return arrays made with te.output_tensor, and updated parameters"
            )
    for name in made:
        if name not in found.names:
            raise source.fault(found.node, f"the output {name} is not returned; return it, or make it with te.allocate")
    return found.names


@overload
def script(function: Callable[..., Any], /) -> Script: ...
@overload
def script(*, name: str | None = None) -> Callable[[Callable[..., Any]], Script]: ...
def script(function: Callable[..., Any] | None = None, /, *, name: str | None = None) -> Any:
    """Make a Python function a tensor program.

    The function is made of loops over ranges with bounds affine in outer loop variables and sizes, `if`, local
    scalars, and assignments to elements of arrays. It makes its outputs with `te.output_tensor(shape, dtype)` and local
    arrays with `te.allocate(shape, dtype)`; assigning to an element of a parameter updates that tensor in place. It
    ends with `return` of one output or several. Used as `@te.hybrid.script`, or `@te.hybrid.script(name=...)`.
    """
    if function is None:
        return functools.partial(Script, name=name)
    return Script(function, name)
