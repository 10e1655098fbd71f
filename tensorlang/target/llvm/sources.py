"""LLVM IR that a user gives: what it may hold, and names under which it can be called, but takes no function's place.

A definition called `memset` would be called by the code that LLVM makes of a loop, one called `malloc` by the runtime.
So whatever a source defines is renamed before it is linked, with the calls that mean it, and made internal after.
Modules and values here are those of llvmlite.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from tensorlang.errors import TargetError

RULE = "sources apart"
"""Names this way of linking, in the keys of objects."""
_MARK = "tensorlang.source."
_LOCAL = ("internal", "private")
_RUN_AT_LOAD = ("llvm.global_ctors", "llvm.global_dtors")
_ALIAS = re.compile(r'^@(?:"[^"]*"|[-\w$.]+) = (?:[a-z_]+(?:\([^)]*\))? )*(?:alias|ifunc) ', re.MULTILINE)
_MODULE_ASM = re.compile(r"^module asm ", re.MULTILINE)


def check_source(module: Any) -> None:
    """TargetError for what cannot be linked apart, or what LLVM would end the process for."""
    text = str(module)
    if _MODULE_ASM.search(text) or any(map(_is_assembly, _operands(module))):
        raise TargetError(f"{_GIVEN} has inline assembly, which is not assembled here; use LLVM's intrinsics instead")
    if _ALIAS.search(text):
        raise TargetError(f"{_GIVEN} defines an alias or an ifunc; define functions instead")
    if any(value.name in _RUN_AT_LOAD for value in module.global_variables):
        raise TargetError(f"{_GIVEN} has code that runs when it is loaded (llvm.global_ctors); call it instead")


_GIVEN = "the LLVM IR that was given as source"


def _operands(module: Any) -> Iterator[Any]:
    for function in module.functions:
        for block in function.blocks:
            for instruction in block.instructions:
                if instruction.opcode in ("call", "invoke", "callbr"):
                    yield from instruction.operands


def _is_assembly(operand: Any) -> bool:
    return bool(operand.value_kind.name == "inline_asm")


def defined(sources: Iterable[Any]) -> frozenset[str]:
    """The names that sources define for others to call."""
    return frozenset(
        value.name for module in sources for value in _values(module) if _is_defined(value) and not _is_local(value)
    )


def link_apart(module: Any, sources: Sequence[Any], called: Collection[str]) -> None:
    """Link sources to the module of a kernel, which calls the functions `called` of them.

    Raises RuntimeError as LLVM does when they do not fit.
    """
    names = defined(sources)
    for number, source in enumerate(sources):
        for value in list(_values(source)):
            if _is_defined(value) and _is_local(value):
                value.name = f"{_MARK}{number}.{value.name}"
            elif value.name in names:
                value.name = f"{_MARK}{value.name}"
    for function in list(module.functions):
        if function.is_declaration and function.name in names and function.name in called:
            function.name = f"{_MARK}{function.name}"
    for source in sources:
        module.link_in(source)
    for value in list(_values(module)):
        if value.name.startswith(_MARK) and _is_defined(value):
            value.visibility = "default"
            value.linkage = "internal"


def _values(module: Any) -> Iterator[Any]:
    """Functions and variables that have a name of the program: those of LLVM itself mean what they are called."""
    for value in (*module.functions, *module.global_variables):
        if value.name and not value.name.startswith("llvm."):
            yield value


def _is_defined(value: Any) -> bool:
    return not value.is_declaration


def _is_local(value: Any) -> bool:
    return value.linkage.name in _LOCAL
