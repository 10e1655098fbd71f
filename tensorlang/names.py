"""Names that a module offers without importing what they stand for (PEP 562), and names that it explains.

The package root wires them, by text, so that `import tensorlang` stays light and so that a lower floor can show a
name of an upper one (`te.create_schedule`) without knowing of it. A module takes part by a `__getattr__` that calls
`lookup`, a class by the base `Explained`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:
    Loader = MetaPathFinder = object  # which import half of the library to say no more than these names

PAGE = "docs/from_tvm.md"

_offered: dict[str, dict[str, str]] = {}
_absent: dict[str, dict[str, str]] = {}
_advised: dict[str, dict[str, str]] = {}
_ROOMS = {room: f"tensorlang.{room}" for room in ("topi", "te", "autotune")} | {"tensorlang": "tensorlang"}
"""Where functions are that a user may look for elsewhere."""


def offer(module: str, names: Mapping[str, str]) -> None:
    """Let `module` have attributes: name -> `package.module:attribute`, or a module alone."""
    _offered.setdefault(module, {}).update(names)


def refuse(owner: str, names: Mapping[str, str]) -> None:
    """Explain attributes that TVM has and a module (or a class, by its name) lacks: name -> what to do instead."""
    _absent.setdefault(owner, {}).update(names)


def advise(owner: str, names: Mapping[str, str]) -> None:
    """Explain attributes that other libraries have and a module (or a class, by its name) lacks."""
    _advised.setdefault(owner, {}).update(names)


def explanation(advice: str | None) -> str:
    """What follows `has no attribute 'x'`: that TVM has it, what to do instead, and where to read more."""
    return f": TVM has it, tensorlang does not; {advice}; see {PAGE}" if advice else ""


class AbsentAttribute(AttributeError):
    """An attribute that is not there. What there is instead is looked for when somebody reads it: many only ask."""

    def __init__(self, text: str, name: str, reason: Callable[[], str]) -> None:
        super().__init__(text, name=name)
        self._reason = reason

    def __str__(self) -> str:
        return f"{self.args[0]}{self._reason()}"

    def __reduce__(self) -> tuple[object, ...]:
        return AttributeError, (str(self),)


def reason(owner: str, name: str, known: Iterable[str], use: str = "{}") -> str:
    """What follows `has no attribute 'x'`: another library's word for it, the nearest name, or where the name is.

    `owner`: a module, or the name of a class; `use` says how the function of another room is called.
    """
    if name.startswith("__"):
        return ""
    if text := explanation(_absent.get(owner, {}).get(name)):
        return text
    if advice := _advised.get(owner, {}).get(name):
        return f"; {advice}"
    rooms = [room for room, module in _ROOMS.items() if module != owner and has(room, name)]
    if rooms:
        return f"; use {use.format(f'{rooms[0]}.{name}')}"
    return meant(name, known)


def meant(name: str, known: Iterable[str]) -> str:
    """`; did you mean x?`: the name that is nearest, whatever its case and underlines; none where all are far."""
    plain = {_plain(other): other for other in known if not other.startswith("_")}
    close = get_close_matches(_plain(name), plain, n=1, cutoff=0.7)
    return f"; did you mean {plain[close[0]]}?" if close else ""


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def has(room: str, name: str) -> bool:
    """Whether a room, such as te, has a public function of a name."""
    module = _ROOMS[room]
    found = import_module(module)
    public = getattr(found, "__all__", None) or listing(module)
    return name in public and callable(getattr(found, name, None))


def lookup(module: str, name: str) -> Any:
    """Return an offered attribute and keep it in the module; AttributeError for any other name."""
    target = _offered.get(module, {}).get(name)
    if target is None:
        text = f"module {module!r} has no attribute {name!r}"
        raise AbsentAttribute(text, name, lambda: reason(module, name, listing(module)))
    path, _, attribute = target.partition(":")
    value = getattr(import_module(path), attribute) if attribute else import_module(path)
    setattr(sys.modules[module], name, value)
    return value


class OfferedModules(MetaPathFinder):
    """Finds modules under the names by which others offer them: `import tensorlang.autotvm.tuner`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module that a package, or the one that it stands for, offers or has under that name.

        ImportError, with what to do instead, for a name that TVM has and the package lacks.
        """
        package, _, name = fullname.rpartition(".")
        if not package.startswith("tensorlang") or package not in sys.modules:
            return None
        owner = sys.modules[package].__name__
        if advice := explanation(
            _absent.get(owner, {}).get(name)
        ):  # Python would say no more than that it is not there
            raise ImportError(f"cannot import name {name!r} from {package!r}{advice}", name=fullname)
        real = _offered.get(owner, {}).get(name, "" if owner == package else f"{owner}.{name}")
        if not real or ":" in real or real == fullname or find_spec(real) is None:
            return None
        return ModuleSpec(fullname, _Another(real))


class _Another(Loader):
    """Loads a module as another that there is, which stays what it was."""

    def __init__(self, real: str) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._real)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


def listing(module: str) -> list[str]:
    """What `dir` shows of a module: its public names, those it offers, and what Python knows of every module.

    Public is what `__all__` names, else what the module defines itself.
    """
    own = vars(sys.modules[module])
    public = own.get("__all__") or [n for n, value in own.items() if getattr(value, "__module__", None) == module]
    return sorted({*public, *_offered.get(module, {}), *(n for n in own if n.startswith("__"))})


class Explained:
    """A class whose objects explain the attributes that TVM's have and they lack."""

    __slots__ = ()
    _called: ClassVar[str] = "{}"
    """How a function of another room is called on an object."""

    if not TYPE_CHECKING:  # a type checker knows what there is

        def __getattr__(self, name: str) -> Any:
            cls = type(self)
            found = getattr(cls, name, None)
            if isinstance(found, property):  # it raised an AttributeError of its own: let it do so again
                return found.__get__(self, cls)
            text, owner = f"{cls.__name__!r} object has no attribute {name!r}", cls.__name__
            raise AbsentAttribute(text, name, lambda: reason(owner, name, dir(cls), self._called))
