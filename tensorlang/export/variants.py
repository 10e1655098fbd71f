"""Kernels of one program for several instruction sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from tensorlang.errors import ArgumentError, ScheduleError, TargetError
from tensorlang.export.metadata import Variant
from tensorlang.schedule.primitives import Strict
from tensorlang.target.detect import parse, target_cpu
from tensorlang.target.llvm.library.variant import emit_variant
from tensorlang.target.spec import Target


class Own(Variant, Protocol):
    """The kernel as it was built; `library`: its schedule is the library's."""

    @property
    def library(self) -> bool:
        """Whether another machine gets another schedule."""


V = TypeVar("V", bound=Own)


def variants_of(own: V, isas: Sequence[str], lower: Callable[[Target, bool], V]) -> tuple[list[V], dict[str, str]]:
    """A variant for each CPU, the one that can most first, and those that are left out, with the reason.

    `lower` makes one for a target, with the same steps or with the library's. TargetError where none is left.
    """
    if isinstance(isas, str):
        raise ArgumentError(f"export: isas is a tuple of names, got {isas!r}; write isas=({isas!r},)")
    if not isas:
        return [own], {}
    targets = {isa: parse(f"llvm -mcpu={isa} -num-cores={own.target.cores}") for isa in dict.fromkeys(isas)}
    if len({target_cpu(t).architecture for t in targets.values()}) > 1:
        raise TargetError(f"export: one file is for CPUs of one architecture, got {', '.join(isas)}")
    found: list[V] = []
    left_out: dict[str, str] = {}
    for isa, target in sorted(targets.items(), key=lambda item: -len(target_cpu(item[1]).features)):
        try:
            found.append(_variant(own, target, lower))
        except TargetError as error:
            left_out[isa] = " ".join(str(error).split())
    if not found:
        raise TargetError(f"none of {', '.join(isas)} can run {own.kernel.name}: {next(iter(left_out.values()))}")
    return found, left_out


def _variant(own: V, target: Target, lower: Callable[[Target, bool], V]) -> V:
    """The kernel for a target: with its steps if they fit that machine, else with the library's."""
    if not own.library:
        try:
            return _tried(lower(target, False))
        except (TargetError, ScheduleError):
            if any(isinstance(step, Strict) for step in own.schedule.trace.steps):
                raise  # what the library would do may sum in another order
    return _tried(lower(target, True))


def _tried(made: V) -> V:
    """The variant, if its target has what it needs."""
    emit_variant(made.kernel, made.target, "tried", [])
    return made
