"""Dataclasses as the standard library has them, which cost little to declare and, frozen ones, to make.

The library compiles the methods of every class as it is declared: half of the time in which this package is imported.
Here methods are shared, and `__init__` is compiled where the first object is made. It sets the fields of a frozen one
by their slots, in half of the time of `object.__setattr__`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(kind: Any = None, /, **options: bool) -> Any:
        """`dataclasses.dataclass`: the same classes, without `order`, whose methods are still the library's."""
        if kind is None:
            return lambda kind: dataclass(kind, **options)
        if options.keys() - {"frozen", "slots", "init", "repr", "eq"}:
            return dataclasses.dataclass(**options)(kind)
        return _declared(kind, **options)


def _declared(
    kind: type, frozen: bool = False, slots: bool = False, init: bool = True, repr: bool = True, eq: bool = True
) -> Any:
    given = vars(kind)
    hashes = given.get("__hash__") is not None or ("__hash__" in given and "__eq__" not in given)
    if not kind.__doc__:
        kind.__doc__ = kind.__name__  # else the library writes the signature out
    heir = frozen and any(map(dataclasses.is_dataclass, kind.__mro__[1:]))  # the library wants heirs to be told
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, frozen=heir)(kind)
    fields, own = dataclasses.fields(made), vars(made)
    methods: dict[str, Any] = {}
    if init:
        methods["__init__"] = _init(made, fields, frozen)
        made.__signature__ = _Signature()
    if repr:
        methods["__repr__"] = _repr([f.name for f in fields if f.repr])
    if eq:
        methods["__eq__"] = _eq([f.name for f in fields if f.compare])
        if not hashes:
            wanted = [f.name for f in fields if (f.compare if f.hash is None else f.hash)]
            made.__hash__ = _hash(wanted) if frozen else None
    if frozen:
        made.__dataclass_params__.frozen = True
        methods |= {"__setattr__": _refused("assign to"), "__delattr__": _refused("delete")}
        if slots:
            methods |= {"__getstate__": _state, "__setstate__": _restore}
    for name, method in methods.items():
        if name not in own:
            method.__qualname__ = f"{made.__qualname__}.{name}"
            setattr(made, name, method)
    return made


def _init(kind: Any, fields: tuple[Field[Any], ...], frozen: bool) -> Any:
    """An `__init__` that puts the right one in its place when it is called."""

    def method(self: Any, *args: Any, **kwargs: Any) -> None:
        if vars(kind)["__init__"] is method:
            kind.__init__ = _written(kind, fields, frozen)
        kind.__init__(self, *args, **kwargs)

    return method


class _Signature:
    """What `help` shows of a class, made when somebody asks."""

    def __get__(self, value: Any, kind: type) -> Any:
        from inspect import Parameter, Signature

        owner = next(base for base in kind.__mro__ if "__init__" in vars(base))
        if value is not None or "__dataclass_fields__" not in vars(owner):  # an object that is called has its own
            raise AttributeError("__signature__")

        def parameter(field: Field[Any]) -> Parameter:
            default = Parameter.empty if field.default is MISSING else field.default
            default = default if field.default_factory is MISSING else _FACTORY
            return Parameter(field.name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=field.type)

        return Signature(
            [parameter(field) for field in dataclasses.fields(owner) if field.init], return_annotation=None
        )


class _Factory:
    """A default that is made anew each time, as a signature shows it."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _written(kind: Any, fields: tuple[Field[Any], ...], frozen: bool) -> Any:
    space: dict[str, Any] = {"MISSING": MISSING}
    required, lines = ["self"], []
    for field in fields:
        name = field.name
        value = name
        if field.default_factory is not MISSING:
            space[f"make_{name}"] = field.default_factory
            value = f"make_{name}() if {name} is MISSING else {name}" if field.init else f"make_{name}()"
            default = "=MISSING"
        elif field.default is not MISSING:
            space[f"default_{name}"] = field.default
            value = name if field.init else f"default_{name}"
            default = f"=default_{name}"
        else:
            default = ""
        if field.init:
            required.append(name + default)
        elif not default:
            continue
        slot = getattr(kind, name, None)
        if not frozen:
            lines.append(f"self.{name} = {value}")
        elif isinstance(slot, MemberDescriptorType):
            space[f"set_{name}"] = slot.__set__
            lines.append(f"set_{name}(self, {value})")
        else:
            lines.append(f"self.__dict__[{name!r}] = {value}")
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(required)}):\n  " + "\n  ".join(lines or ["pass"]), space)
    made = space["__init__"]
    made.__qualname__ = f"{kind.__qualname__}.__init__"
    return made


def _values(names: list[str]) -> Any:
    """What gets the fields of an object as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])


def _eq(names: list[str]) -> Any:
    values = _values(names)

    def method(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return method


def _hash(names: list[str]) -> Any:
    values = _values(names)
    return lambda self: hash(values(self))


def _repr(names: list[str]) -> Any:
    @recursive_repr()
    def method(self: Any) -> str:
        shown = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{self.__class__.__qualname__}({shown})"

    return method


def _refused(what: str) -> Any:
    def refuse(self: Any, name: str, *value: Any) -> None:
        raise FrozenInstanceError(f"cannot {what} field {name!r}")

    return refuse


def _state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
