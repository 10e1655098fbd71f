"""A kernel as a function of its inputs: which arguments go in, which come out, and of what shape."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.driver import Lowered
from tensorlang.errors import ArgumentError, DefinitionError
from tensorlang.ir.expr import Binary, Cast, Const, Expr, Var, variables
from tensorlang.ir.operators import ON_INTEGERS
from tensorlang.runtime.executable import Executable
from tensorlang.te.operation import Operation, PlaceholderOp, Tensor
from tensorlang.te.program import unique

Argument: TypeAlias = Tensor | Var


@dataclass(frozen=True, eq=False)
class Program:
    """A program with its arguments in the kernel's order: arrays and sizes that go in, and arrays that come out.

    `outputs`: the places of those that come out; `written`: those of inputs that are updated in place. `make` builds
    the kernel.
    """

    name: str
    arguments: tuple[Argument, ...]
    outputs: tuple[int, ...]
    written: frozenset[int]
    make: Callable[[], Executable]

    @cached_property
    def kernel(self) -> Executable:
        """The kernel, built when it is first asked for."""
        return self.make()

    def renew(self) -> None:
        """Have the kernel built again when it is next asked for."""
        self.__dict__.pop("kernel", None)

    @cached_property
    def numpy_dtypes(self) -> tuple[Any, ...]:
        """NumPy's dtypes of what comes out."""
        return tuple(dtypes.info(t.dtype).numpy for t in self.made)

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """The places of what goes in."""
        return tuple(n for n in range(len(self.arguments)) if n not in self.outputs)

    @cached_property
    def given(self) -> tuple[Argument, ...]:
        """What goes in."""
        return tuple(self.arguments[n] for n in self.inputs)

    @cached_property
    def made(self) -> tuple[Tensor, ...]:
        """What comes out."""
        return tuple(t for n in self.outputs if isinstance(t := self.arguments[n], Tensor))

    @cached_property
    def floats(self) -> tuple[int, ...]:
        """The numbers of those that go in and have a gradient."""
        return differentiable(self.given)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names for what goes in that any language takes, each different."""
        taken = set[str]()
        found = []
        for argument in self.given:
            wish = re.sub(r"^(?=[0-9])|\W", "_", argument.name, flags=re.ASCII).strip("_") or "x"
            found.append(unique(wish, taken))
            taken.add(found[-1])
        return tuple(found)

    def sizes(self, inputs: Sequence[Any]) -> dict[str, Any]:
        """The values of symbolic sizes, from the shapes of inputs and from numbers. ArgumentError where they differ."""
        known: dict[str, Any] = {}
        for argument, value in zip(self.given, inputs, strict=True):
            if isinstance(argument, Var):
                known[argument.name] = value
        for argument, value in zip(self.given, inputs, strict=True):
            if isinstance(argument, Var):
                continue
            if len(value.shape) != argument.ndim:
                text = f"{self.name}: {argument.name} has {argument.ndim} dimensions, got {len(value.shape)}"
                raise ArgumentError(f"{text}: shape {tuple(value.shape)}")
            for extent, actual in zip(argument.shape, value.shape, strict=True):
                if isinstance(extent, Var):
                    known.setdefault(extent.name, actual)
        for argument, value in zip(self.given, inputs, strict=True):
            if not isinstance(argument, Var):
                self._compare(argument, value.shape, known)
        return known

    def _compare(self, tensor: Tensor, shape: Sequence[Any], known: Mapping[str, Any]) -> None:
        for axis, (extent, actual) in enumerate(zip(tensor.shape, shape, strict=True)):
            wanted = evaluate(extent, known)
            if wanted != actual:
                text = f"{self.name}: {tensor.name} has {wanted} ({extent}) in dimension {axis}"
                raise ArgumentError(f"{text}, got {actual}: shape {tuple(shape)}")

    def shapes(self, sizes: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """The shapes of what comes out, for values of the sizes."""
        return [tuple(evaluate(extent, sizes) for extent in tensor.shape) for tensor in self.made]

    @cached_property
    def fixed(self) -> list[tuple[int, ...]] | None:
        """The shapes of what comes out, if no size is symbolic."""
        symbolic = any(variables(extent) for t in self.arguments if isinstance(t, Tensor) for extent in t.shape)
        return None if symbolic else self.shapes({})


def differentiable(arguments: Sequence[Argument]) -> tuple[int, ...]:
    """The numbers of arrays of floats."""
    return tuple(n for n, t in enumerate(arguments) if isinstance(t, Tensor) and dtypes.info(t.dtype).is_float)


def evaluate(extent: Expr, sizes: Mapping[str, Any]) -> Any:
    """The value of an extent, for sizes that may stand for numbers themselves (those of torch.compile)."""
    match extent:
        case Const():
            return extent.value
        case Var():
            return sizes[extent.name]
        case Cast():
            return evaluate(extent.value, sizes)
        case Binary() if extent.op in ON_INTEGERS:
            return ON_INTEGERS[extent.op](evaluate(extent.a, sizes), evaluate(extent.b, sizes))
    raise DefinitionError(f"the extent {extent} is not made of sums, products and quotients of sizes")


def program_of(kernel: Executable) -> Program:
    """The program that a kernel was built from; DefinitionError for kernels that are no function of their inputs."""
    origin = kernel.origin
    if not isinstance(origin, Lowered):
        raise DefinitionError(f"{kernel.entry_name} was not built here by tensorlang.build: it has no program")
    held = origin.schedule.program
    arguments: list[Argument] = []
    for given, own in zip(origin.args, kernel.signature, strict=True):
        if not isinstance(given, Tensor):
            arguments.append(Var(given.name, "int64"))
        elif isinstance(held[held.producer[own.name]], PlaceholderOp) and not isinstance(given.op, PlaceholderOp):
            arguments.append(PlaceholderOp(own.name, given.shape, given.dtype).output())  # it is updated in place
        else:
            arguments.append(given)
    written = frozenset(n for n, own in enumerate(kernel.signature) if own.name in kernel.kernel.outputs)
    return program(kernel.entry_name, tuple(arguments), written, lambda: kernel)


def program(
    name: str, arguments: tuple[Argument, ...], written: frozenset[int], make: Callable[[], Executable]
) -> Program:
    """A program of these arguments, some of which are written."""
    outputs = tuple(n for n in sorted(written) if not isinstance(_operation(arguments[n]), PlaceholderOp))
    made = Program(name, arguments, outputs, written - set(outputs), make)
    if not any(isinstance(a, Tensor) for a in made.given):
        raise DefinitionError(f"{name} reads no array: an operator has one at least")
    known = {a.name for a in made.given if isinstance(a, Var)}
    known |= {e.name for a in made.given if isinstance(a, Tensor) for e in a.shape if isinstance(e, Var)}
    wanted = {n for a in arguments if isinstance(a, Tensor) for extent in a.shape for n in variables(extent)}
    if wanted - known:
        sizes = ", ".join(sorted(wanted - known))
        raise DefinitionError(f"{name}: no input has a dimension that is just {sizes}; pass it in args of build, too")
    return made


def _operation(argument: Argument) -> Operation | None:
    return argument.op if isinstance(argument, Tensor) else None
