"""Python functions inside programs: the registry of named functions, and te.extern's two calling forms."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, overload

from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, KernelError
from tensorlang.location import caller
from tensorlang.nd import NDArray

_registered: dict[str, Callable[..., Any]] = {}


F = TypeVar("F", bound=Callable[..., Any])


@overload
def register_func(func_name: F) -> F: ...
@overload
def register_func(func_name: str, f: F, override: bool = False) -> F: ...
@overload
def register_func(func_name: str, f: None = None, override: bool = False) -> Callable[[F], F]: ...
def register_func(func_name: Any, f: Callable[..., Any] | None = None, override: bool = False) -> Any:
    """Register a Python function under a name for `tir.call_packed`; also a decorator, with or without a name."""
    if callable(func_name):
        return register_func(func_name.__name__, func_name)
    if f is None:
        return lambda function: register_func(func_name, function, override)
    if func_name in _registered and not override:
        raise DefinitionError(f"a function named {func_name!r} is already registered; pass override=True", caller())
    _registered[func_name] = f
    return f


def get_global_func(name: str, allow_missing: bool = False) -> Callable[..., Any] | None:
    """Return the function registered under a name; of an unknown one None when allowed, else DefinitionError."""
    if name not in _registered and not allow_missing:
        raise DefinitionError(f"no function is registered as {name!r}; use register_func first", caller())
    return _registered.get(name)


@dataclass(frozen=True, slots=True)
class Slot:
    """One whole array inside te.extern's function: `ins[n]` or `outs[n]`."""

    position: int
    label: str


@dataclass(frozen=True, slots=True)
class PackedCall:
    """A call of a Python function (or of the one registered under that name when the kernel runs) on whole arrays."""

    function: str | Callable[..., Any]
    args: tuple[Any, ...]

    @property
    def label(self) -> str:
        """The call as text."""
        name = self.function if isinstance(self.function, str) else self.function.__qualname__
        return f"{name}({', '.join(a.label if isinstance(a, Slot) else repr(a) for a in self.args)})"

    def run(self, arrays: tuple[Any, ...]) -> None:
        """Call the function, with NDArrays over `arrays` for the slots."""
        function = _registered.get(self.function) if isinstance(self.function, str) else self.function
        if function is None:
            raise KernelError(f"call_packed: no function is registered as {self.function!r}; use register_func first")
        function(*(NDArray(arrays[a.position]) if isinstance(a, Slot) else a for a in self.args))


def call_packed(function: str | Callable[..., Any], *args: Any) -> PackedCall:
    """Call a Python function, or the one registered under a name, from te.extern: on `ins[n]`, `outs[n]`, literals."""
    if not isinstance(function, str) and not callable(function):
        raise DefinitionError(f"call_packed needs a function or a registered name, got {function!r}", caller())
    for arg in args:
        if not isinstance(arg, Slot | bool | int | float | str):
            raise DefinitionError(f"call_packed takes ins[n], outs[n] and literals, got {arg!r}", caller())
    return PackedCall(function, args)


def whole_array_function(fcompute: Any, inputs: int, outputs: int, name: str) -> Callable[..., Any]:
    """Return te.extern's function in the form `f(*input_arrays, *output_arrays)`."""
    if not callable(fcompute):
        raise DefinitionError(f"{name} needs a function, got {fcompute!r}", caller())
    if not _takes_ins_outs(fcompute, inputs + outputs):
        return _plain(fcompute, name)
    ins = [Slot(n, f"ins[{n}]") for n in range(inputs)]
    outs = [Slot(inputs + n, f"outs[{n}]") for n in range(outputs)]
    made = fcompute(ins, outs)
    if not isinstance(made, PackedCall):
        raise DefinitionError(f"the function of {name} must return tir.call_packed(...), got {made!r}", caller())

    def run(*arrays: Any) -> None:
        made.run(arrays)

    run.__name__ = run.__qualname__ = made.label
    return run


def _takes_ins_outs(fcompute: Callable[..., Any], arrays: int) -> bool:
    """Whether this is classic te's `lambda ins, outs`: two parameters of those names, or two where arrays are not."""
    try:
        parameters = list(inspect.signature(fcompute).parameters.values())
    except ValueError:  # a C function without a signature
        return False
    if len(parameters) != 2 or any(p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters):
        return False
    return [p.name for p in parameters] == ["ins", "outs"] or arrays != 2


def _plain(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def run(*arrays: Any) -> None:
        if isinstance(function(*arrays), PackedCall):
            raise KernelError(f"the function of {name} returned call_packed(...): name its parameters ins, outs")

    run.__name__ = run.__qualname__ = getattr(function, "__qualname__", type(function).__name__)
    return run
