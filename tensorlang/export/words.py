"""Names and types of the arguments of an exported kernel, as C spells them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tensorlang import dtypes
from tensorlang.errors import ArgumentError, shown

_KEYWORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const constexpr continue
    decltype default delete do double else enum explicit export extern false float for friend goto if inline int long
    mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register restrict
    return short signed sizeof static static_assert struct switch template this thread_local throw true try typedef
    typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq main"""
_RESERVED = frozenset(_KEYWORDS.split())
_OURS = ("workspace", "host", "threads", "arrays", "code")
_FLOATS = {"float32": "float", "float64": "double"}


def c_type(dtype: str) -> str:
    """The C type that holds an element; floats that C has no name for are their bits."""
    d = dtypes.info(dtype)
    if d.is_float:
        return _FLOATS.get(dtype, f"uint{8 * d.bytes}_t")
    return "uint8_t" if d.kind == "bool" else f"{dtype}_t"


def c_names(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Names as C can have them, each once."""
    used, made = {*_RESERVED, *_OURS, *taken}, list[str]()
    for name in names:
        wish = re.sub(r"^(?=[0-9])|[^A-Za-z0-9_]", "_", name)
        while wish in used or wish.startswith("__"):
            wish = f"{wish.lstrip('_')}_" if wish.startswith("__") else f"{wish}_"
        used.add(wish)
        made.append(wish)
    return made


def check_name(name: str) -> str:
    """The name of a library, if C and linkers can have it; ArgumentError otherwise."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or name in _RESERVED:
        raise ArgumentError(
            f"export: the file's name is that of the C function, and {shown(name)} cannot be one; name the file with "
            "letters, digits and _, as in 'out/layer'"
        )
    return name
