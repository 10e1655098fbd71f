"""`tvm.transform`: settings of a build. The passes are fixed, so what classic programs set of them has no effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Self

from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, shown
from tensorlang.location import caller
from tensorlang.names import listing, lookup

_GROUPS = ("tir.", "relay.", "te.", "arith.")
_PASSES = ("tir.add_lower_pass",)


@dataclass(frozen=True, slots=True)
class PassContext:
    """Takes the settings that TVM's passes have, inside a `with`. None of them changes what a program means.

    Passes are the same at every `opt_level`; loops are vectorized and unrolled where the schedule says so. Passes of
    one's own (`tir.add_lower_pass`) cannot be run, and are refused, as are settings that TVM has not.
    """

    opt_level: int = 2
    required_pass: Sequence[str] = ()
    disabled_pass: Sequence[str] = ()
    instruments: Sequence[Any] = ()
    config: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        for key in self.config or {}:
            if key in _PASSES:
                raise DefinitionError(
                    f"{key}: passes of one's own have no loop IR to run on; schedule what it changes, or write an "
                    "intrinsic (te.decl_tensor_intrin)",
                    caller(),
                )
            if not f"{key}".startswith(_GROUPS):
                raise DefinitionError(
                    f"no setting {shown(key)}: those of TVM begin with {', '.join(_GROUPS)}", caller()
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def __getattr__(name: str) -> Any:
    return lookup(__name__, name)


def __dir__() -> list[str]:
    return listing(__name__)
